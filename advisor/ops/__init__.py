"""Running the service: supervisor, broker, health and request limits."""

from advisor.ops import health, supervise
from advisor.ops.chunked_bodies import with_length

__all__ = [
    "health",
    "supervise",
    "with_length",
]
