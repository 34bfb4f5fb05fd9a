"""How often agents may call; advisor/api/limits.py counts."""

from django.conf import settings
from rest_framework.request import Request

from advisor.api import Exceeded, address, count, reached, rest_s

REFUSED = "refused"


def of_agent(request: Request, pk: int) -> None:
    count(request, "agent", str(pk), settings.PROBE_CALLS_PER_MINUTE_AGENT)


def refused(request: Request) -> None:
    """A token that is not known."""
    count(request, REFUSED, address(request), settings.PROBE_REFUSALS_PER_MINUTE)


def check_refused(request: Request) -> None:
    """Nothing more is looked up for an address that guessed too often; agents with a token are not held up."""
    if reached(REFUSED, address(request), settings.PROBE_REFUSALS_PER_MINUTE):
        raise Exceeded(wait=rest_s())
