"""How often agents may call: so many times a minute for each agent and for each address, counted in the cache.

With Redis all web processes count together; without it each counts alone, so that the limit is at most their number
times as high.
"""

import math
import time

from django.conf import settings
from django.core.cache import cache
from rest_framework import exceptions
from rest_framework.request import Request

from advisor.client_address import address

WINDOW_S = 60


def of_address(request: Request) -> None:
    """Every call, before anything is looked up."""
    count("address", address(request), settings.PROBE_CALLS_PER_MINUTE_ADDRESS)


def of_agent(pk: int) -> None:
    count("agent", str(pk), settings.PROBE_CALLS_PER_MINUTE_AGENT)


def refused(request: Request) -> None:
    """A token that nobody knows."""
    count("refused", address(request), settings.PROBE_REFUSALS_PER_MINUTE)


def check_refused(request: Request) -> None:
    """Nothing more is looked up for an address that guessed too often; agents with a token are not held up."""
    if cache.get(key("refused", address(request)), 0) >= settings.PROBE_REFUSALS_PER_MINUTE:
        raise exceptions.Throttled(wait=rest_s())


def count(kind: str, who: str, most: int) -> None:
    """Throttled (429, Retry-After) from the call after `most` in this minute on."""
    name = key(kind, who)
    if cache.add(name, 1, 2 * WINDOW_S):
        return
    try:
        calls = cache.incr(name)
    except ValueError:  # dropped from a full cache between the two: a minute begins anew
        return
    if calls > most:
        raise exceptions.Throttled(wait=rest_s())


def key(kind: str, who: str) -> str:
    return f"probes.calls.{kind}.{who.replace(' ', '')[:64]}.{math.floor(time.time()) // WINDOW_S}"


def rest_s() -> float:
    """Seconds until the next minute begins."""
    return WINDOW_S - time.time() % WINDOW_S
