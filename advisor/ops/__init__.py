"""Running the service: supervisor, broker, health and request limits.

Nothing is imported here: settings, celery and wsgi name these modules before Django has loaded its models.
"""

__all__ = [
    "chunked_bodies",
    "health",
    "supervise",
]
