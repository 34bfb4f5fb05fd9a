"""The task application. It is not imported by advisor/__init__.py: the engine must import without Django."""

import os

from celery import Celery

from advisor import shutdown

__all__ = ["app", "shutdown"]  # importing `shutdown` connects what a worker does on SIGTERM

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "advisor.settings")
app = Celery("advisor")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()
