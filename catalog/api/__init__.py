"""REST views of the catalog, and of an organization's own prices."""

from catalog.api import freshness, lists, own_prices
