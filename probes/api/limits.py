"""Rate limits for agents, counted by advisor/api/limits.py."""

from django.conf import settings
from rest_framework.request import Request

from advisor.api import Exceeded, address, count, reached, rest_s

REFUSED = "refused"


def of_agent(request: Request, pk: int) -> None:
    count(request, "agent", str(pk), settings.PROBE_CALLS_PER_MINUTE_AGENT)


def refused(request: Request) -> None:
    """Counts a refused token against the address of the request."""
    count(request, REFUSED, address(request), settings.PROBE_REFUSALS_PER_MINUTE)


def check_refused(request: Request) -> None:
    """Exceeded: this address sent too many refused tokens. Agents with a valid token are not affected."""
    if reached(REFUSED, address(request), settings.PROBE_REFUSALS_PER_MINUTE):
        raise Exceeded(wait=rest_s())
