"""Limits of wrong passwords: of a name from one address, of an address over all names, of a name over all addresses.

django-axes counts them, but compares every count with one limit. The two broad limits would also shut out colleagues
behind the same address and the owner of the name. They do not apply to a name from an address where it has signed in
before: there the first limit alone counts.
"""

from datetime import timedelta
from typing import Any

from axes.handlers.database import AxesDatabaseHandler
from axes.helpers import get_client_username
from axes.models import AccessLog
from django.conf import settings
from django.db.models import Sum

KNOWN_DAYS = 30


class Handler(AxesDatabaseHandler):
    def get_failures(self, request: Any, credentials: dict[str, Any] | None = None) -> int:
        """Failures against the nearest limit, scaled so that each limit is reached at AXES_FAILURE_LIMIT."""
        counts = [
            attempts.aggregate(sum=Sum("failures_since_start"))["sum"] or 0
            for attempts in self.get_user_attempts(request, credentials)  # in the order of AXES_LOCKOUT_PARAMETERS
        ]
        here, *broad = counts
        if any(broad) and not is_known(request, credentials):
            limits = (settings.LOGIN_FAILURES_ADDRESS, settings.LOGIN_FAILURES_NAME)
            here = max(here, *(n * settings.AXES_FAILURE_LIMIT // most for n, most in zip(broad, limits, strict=True)))
        return here


def is_known(request: Any, credentials: dict[str, Any] | None) -> bool:
    """Whether this name has signed in from this address before."""
    return AccessLog.objects.filter(
        username=get_client_username(request, credentials),
        ip_address=request.axes_ip_address,
        attempt_time__gte=request.axes_attempt_time - timedelta(days=KNOWN_DAYS),
    ).exists()
