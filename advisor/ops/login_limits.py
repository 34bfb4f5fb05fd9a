"""Limits of failed logins: per name and address, per address, and per name.

django-axes counts them but compares all counts with the same limit. The limits per address and per name would also
lock out colleagues behind the same address and the account's owner. So they do not apply to a name at an address from
which it has logged in before.
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
        """The number of failures, scaled so that each limit is reached at AXES_FAILURE_LIMIT."""
        counts = [
            attempts.aggregate(sum=Sum("failures_since_start"))["sum"] or 0
            for attempts in self.get_user_attempts(request, credentials)  # in the order of AXES_LOCKOUT_PARAMETERS
        ]
        name_and_address, *broad = counts
        if any(broad) and not is_known(request, credentials):
            limits = (settings.LOGIN_FAILURES_ADDRESS, settings.LOGIN_FAILURES_NAME)
            scaled = [n * settings.AXES_FAILURE_LIMIT // limit for n, limit in zip(broad, limits, strict=True)]
            return max(name_and_address, *scaled)
        return name_and_address


def is_known(request: Any, credentials: dict[str, Any] | None) -> bool:
    """Whether this name has logged in from this address in the last KNOWN_DAYS."""
    return AccessLog.objects.filter(
        username=get_client_username(request, credentials),
        ip_address=request.axes_ip_address,
        attempt_time__gte=request.axes_attempt_time - timedelta(days=KNOWN_DAYS),
    ).exists()
