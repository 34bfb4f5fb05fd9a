"""What operators see of a running service: log lines, metrics and traces. Imports nothing, as settings load it."""

__all__ = [
    "counts_folder",
    "http",
    "logs",
    "tallies",
    "tracing",
]
