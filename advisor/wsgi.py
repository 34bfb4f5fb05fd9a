"""The web application, for gunicorn."""

import os

from django.core.wsgi import get_wsgi_application
from django.urls import reverse

from advisor.ops import with_length

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "advisor.settings")
application = with_length(get_wsgi_application())
# Every view is loaded now, not in the first request: on two busy cores that took 3 s, and all others stood behind it.
reverse("healthz")
