"""Reads the price lists of sellers and collections."""

from catalog.importers.prices import (
    aws,
    azure,
    gcp,
    gpu_price_index,
    gpuhunt,
    hosted,
    lambda_cloud,
    litellm,
    names,
    openrouter,
    skypilot,
)
from catalog.importers.prices.offers import Account, Offer
