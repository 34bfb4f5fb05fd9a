"""The Celery application. advisor/__init__.py must not import it, because the engine works without Django."""

import os

from celery import Celery

from advisor import shutdown

__all__ = ["app", "shutdown"]  # importing `shutdown` connects its signal handlers

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "advisor.settings")
app = Celery("advisor")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()
