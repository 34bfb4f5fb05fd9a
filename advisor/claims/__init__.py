"""Industry claims checked against the engine."""

from advisor.claims import checks, claims

__all__ = [
    "checks",
    "claims",
]
