"""Studies: many questions about one state of the catalog, cut into pieces that workers share."""

from advisor.studies import pieces, tables

__all__ = ["pieces", "tables"]
