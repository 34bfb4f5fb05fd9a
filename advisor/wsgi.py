"""The WSGI application for gunicorn."""

import os

from django.core.wsgi import get_wsgi_application
from django.urls import reverse

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "advisor.settings")
django_application = get_wsgi_application()

from advisor.ops import chunked_bodies  # noqa: E402  (imports models, so Django must be set up first)

application = chunked_bodies.with_length(django_application)
# Load all views now instead of in the first request, which would take up to 3 s and block the others.
reverse("healthz")
