"""The Celery application. advisor/__init__.py must not import it, because the engine works without Django."""

import os

from celery import Celery

from advisor import shutdown
from advisor.watch import logs, tracing

__all__ = ["app", "logs", "shutdown"]  # importing both modules connects their signal handlers

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "advisor.settings")
tracing.start()
app = Celery("advisor")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()
