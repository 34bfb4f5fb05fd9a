"""REST views of the catalog, and of an organization's own prices."""

from catalog.api import lists, own_prices

__all__ = [
    "lists",
    "own_prices",
]
