"""Runs the service: supervisor, broker, health checks, request limits, language and currency.

Imports nothing, because settings, celery and wsgi load these modules before Django has loaded its models.
"""

__all__ = [
    "backup",
    "chunked_bodies",
    "health",
    "reader",
    "supervise",
]
