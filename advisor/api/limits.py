"""Rate limits: so many calls in each minute for a token, a machine or an address, counted in the cache.

With Redis all web processes count together. Without it each process counts alone, so the effective limit is at most
the number of processes times as high.
"""

import math
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from django.conf import settings
from django.core.cache import cache
from django.http import HttpRequest, HttpResponse
from redis.exceptions import RedisError
from rest_framework import exceptions
from rest_framework.request import Request

from advisor.api import client_address

WINDOW_S = 60
TIGHTEST = "assay.rate_limit"  # in META, which the REST framework's request and Django's share
Respond = Callable[[HttpRequest], HttpResponse]


class CountersDown(exceptions.APIException):
    """The cache does not answer. 503 for agents, who come again; people's calls pass uncounted."""

    status_code = 503
    default_detail = "Redis is not available, so calls cannot be counted. Try again in a few seconds."
    wait = 5


class Exceeded(exceptions.Throttled):
    """429 with Retry-After."""

    wait: int


@dataclass(frozen=True, slots=True)
class Usage:
    """How far one limit is used up in the current window."""

    limit: int
    calls: int
    reset_s: int

    @property
    def remaining(self) -> int:
        return max(self.limit - self.calls, 0)


def address(request: Request | HttpRequest) -> str:
    """Where the call comes from, IPv6 by its /64; the text as it came where it is no address."""
    return client_address.network(request) or client_address.address(request)


def count(request: Request | HttpRequest, kind: str, who: str, limit: int) -> None:
    """Counts one call. Raises Exceeded from the call after `limit` in this minute on; a limit of 0 is none."""
    if limit <= 0:
        return
    name = key(kind, who)
    try:
        calls = 1 if cache.add(name, 1, 2 * WINDOW_S) else cache.incr(name)
    except ValueError:  # evicted from a full cache between the two: the minute starts again
        calls = 1
    except (RedisError, OSError) as error:
        raise CountersDown from error
    used = Usage(limit, calls, math.ceil(rest_s()))
    tightest = request.META.get(TIGHTEST)
    if tightest is None or used.remaining <= tightest.remaining:
        request.META[TIGHTEST] = used
    if calls > limit:
        raise Exceeded(wait=rest_s())


def reached(kind: str, who: str, limit: int) -> bool:
    """Whether a limit is used up; counts nothing."""
    try:
        return bool(cache.get(key(kind, who), 0) >= limit > 0)
    except (RedisError, OSError) as error:
        raise CountersDown from error


def key(kind: str, who: str) -> str:
    return f"calls.{kind}.{who.replace(' ', '')[:64]}.{math.floor(time.time()) // WINDOW_S}"


def rest_s() -> float:
    """Seconds until the next minute begins."""
    return WINDOW_S - time.time() % WINDOW_S


# --- people's API -----------------------------------------------------------------------------------------------


def of_token(request: Request, pk: int) -> None:
    with suppress(CountersDown):
        count(request, "token", str(pk), settings.API_PER_MINUTE_TOKEN)


def of_estimate(request: Request) -> None:
    """An estimate is computed while its caller waits: a few at once hold every web thread."""
    with suppress(CountersDown):
        count(request, "estimate", address(request), settings.ESTIMATES_PER_MINUTE)


def of_address(request: HttpRequest) -> None:
    """Every call of the API, before anything is looked up."""
    if request.path.startswith("/api/agent/"):
        count(request, "agents", address(request), settings.PROBE_CALLS_PER_MINUTE_ADDRESS)
        return
    with suppress(CountersDown):
        count(request, "address", address(request), settings.API_PER_MINUTE_ADDRESS)


# --- in a response ----------------------------------------------------------------------------------------------


def limit_calls(get_response: Respond) -> Respond:
    """Middleware: limits the API by address, and names the tightest limit that a call counted against."""

    def respond(request: HttpRequest) -> HttpResponse:
        if not request.path.startswith("/api/"):
            return get_response(request)
        try:
            of_address(request)
        except (Exceeded, CountersDown) as refused:
            response = too_many(refused)
        else:
            response = get_response(request)
        for name, value in headers(request.META.get(TIGHTEST)).items():
            response[name] = value
        return response

    return respond


def too_many(refused: Exceeded | CountersDown) -> HttpResponse:
    from advisor.api.problems import problem_response  # here: middleware is made before the applications are ready

    return problem_response(refused.status_code, "", str(refused.detail), {"Retry-After": str(refused.wait)})


def headers(used: Usage | None) -> dict[str, str]:
    """RateLimit fields as of draft-ietf-httpapi-ratelimit-headers-07."""
    if used is None:
        return {}
    return {
        "RateLimit-Limit": str(used.limit),
        "RateLimit-Remaining": str(used.remaining),
        "RateLimit-Reset": str(used.reset_s),
        "RateLimit-Policy": f"{used.limit};w={WINDOW_S}",
    }
