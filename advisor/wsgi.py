"""The WSGI application for gunicorn."""

import os

from django.core.wsgi import get_wsgi_application
from django.urls import reverse

from advisor.watch import tracing

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "advisor.settings")
tracing.start()  # before the middleware is loaded, to which it adds its own
django_application = get_wsgi_application()

from advisor.ops import chunked_bodies  # noqa: E402  (imports models, so Django must be set up first)
from advisor.watch import http  # noqa: E402

application = http.with_request_id(chunked_bodies.with_length(django_application))
# Load all views now instead of in the first request, which would take up to 3 s and block the others.
reverse("healthz")
