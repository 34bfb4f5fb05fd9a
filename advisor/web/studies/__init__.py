"""Pages of studies."""

from advisor.web.studies import every, one

__all__ = ["every", "one"]
