"""The pages of the catalog."""

from catalog.pages import deletion, details, freshness, lists, model_import, own_prices, price_index, saved_views
from catalog.pages.deletion import confirmed
