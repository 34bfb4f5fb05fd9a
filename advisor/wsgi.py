"""The web application, for gunicorn."""

import os

from django.core.wsgi import get_wsgi_application
from django.urls import reverse

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "advisor.settings")
django_application = get_wsgi_application()

from advisor.ops import chunked_bodies  # noqa: E402  (it imports models, which Django has to set up first)

application = chunked_bodies.with_length(django_application)
# Every view is loaded now, not in the first request: on two busy cores that took 3 s, and all others stood behind it.
reverse("healthz")
