"""REST views of the catalog, and of what organizations add to it: prices, views and models."""

from catalog.api import changes, freshness, lists, own_prices
