"""What operators see of the whole installation: the checks of `doctor`, the status page, and /metrics."""

__all__ = [
    "checks",
    "pages",
]
