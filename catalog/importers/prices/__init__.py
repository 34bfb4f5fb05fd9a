"""Reads the price lists of sellers and collections."""

from catalog.importers.prices import aws, azure, gcp, gpu_price_index, gpuhunt, litellm, openrouter, skypilot

__all__ = [
    "aws",
    "azure",
    "gcp",
    "gpu_price_index",
    "gpuhunt",
    "litellm",
    "openrouter",
    "skypilot",
]
