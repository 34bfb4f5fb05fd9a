"""Rate limits: calls per minute of a token, a machine or an address, counted in the cache.

With Redis, all web processes share the counters. Without it, each process counts separately, so the effective limit is
up to the number of processes times higher.
"""

import math
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address, ip_network

from django.conf import settings
from django.core.cache import cache
from django.http import HttpRequest, HttpResponse
from redis.exceptions import RedisError
from rest_framework import exceptions
from rest_framework.request import Request

WINDOW_S = 60
ENTRY = 1  # units of work: about 5 ms of a processor
# An estimate, a quick ranking, the comparison of a bill, and what a call leaves to workers.
ESTIMATE, QUICK, BILL, ADVICE, STUDY = 20, 5, 40, 10, 40
TIGHTEST = "assay.rate_limit"  # key in META, which Django and the REST framework share
COUNTED = "assay.counted"  # key in META: the call was counted for its token
Respond = Callable[[HttpRequest], HttpResponse]


def stated_address(request: Request | HttpRequest) -> str:
    """The client's address. X-Forwarded-For is trusted only for the entries that ASSAY_PROXIES proxies added."""
    forwarded = [part.strip() for part in request.META.get("HTTP_X_FORWARDED_FOR", "").split(",") if part.strip()]
    trusted = settings.PROXIES
    return forwarded[-trusted] if 0 < trusted <= len(forwarded) else str(request.META.get("REMOTE_ADDR", ""))


def network(request: Request | HttpRequest) -> str | None:
    """The IPv4 address, or the /64 network of an IPv6 address, which is one customer. None if it is not an address."""
    text = stated_address(request)
    if text.count(":") == 1 or text.startswith("["):  # some proxies add the port
        text = text.rpartition(":")[0].strip("[]") if not text.endswith("]") else text.strip("[]")
    try:
        parsed = ip_address(text)
    except ValueError:
        return None
    if not isinstance(parsed, IPv6Address):
        return str(parsed)
    return str(parsed.ipv4_mapped or ip_network((parsed, 64), strict=False).network_address)


class CountersDown(exceptions.APIException):
    """The cache is not available: 503 for agents, which try again. Other calls are not counted."""

    status_code = 503
    default_detail = "Redis is not available, so calls cannot be counted. Try again in a few seconds."
    wait = 5


class Exceeded(exceptions.Throttled):
    """429 with Retry-After."""

    wait: int


@dataclass(frozen=True, slots=True)
class Usage:
    """The use of one limit in the current window."""

    limit: int
    calls: int
    reset_s: int

    @property
    def remaining(self) -> int:
        return max(self.limit - self.calls, 0)


def address(request: Request | HttpRequest) -> str:
    """The client's IPv4 address or IPv6 /64 network; the unchanged text if it is not an address."""
    return network(request) or stated_address(request)


def caller_key(request: Request | HttpRequest) -> str:
    """Whom a limit counts: the token, else the account, else the address, which many people may share."""
    user = getattr(request, "user", None)
    token = getattr(user, "token", None)
    if token is not None:
        return f"token-{token.pk}"
    account = getattr(user, "pk", None)
    return f"account-{account}" if account else address(request)


def count(request: Request | HttpRequest, kind: str, who: str, limit: int, weight: int = 1) -> None:
    """Counts a call as `weight` calls. Raises Exceeded after `limit` calls in this minute; 0 means no limit."""
    if limit <= 0:
        return
    name = key(kind, who)
    try:
        calls = weight if cache.add(name, weight, 2 * WINDOW_S) else cache.incr(name, weight)
    except ValueError:  # evicted from a full cache between the two calls: start again
        calls = weight
    except (RedisError, OSError) as error:
        raise CountersDown from error
    used = Usage(limit, calls, math.ceil(rest_s()))
    tightest = request.META.get(TIGHTEST)
    if tightest is None or used.remaining <= tightest.remaining:
        request.META[TIGHTEST] = used
    if calls > limit:
        raise Exceeded(wait=rest_s())


def reached(kind: str, who: str, limit: int) -> bool:
    """Whether a limit is used up. Does not count a call."""
    try:
        return bool(cache.get(key(kind, who), 0) >= limit > 0)
    except (RedisError, OSError) as error:
        raise CountersDown from error


def key(kind: str, who: str) -> str:
    return f"calls.{kind}.{who.replace(' ', '')[:64]}.{math.floor(time.time()) // WINDOW_S}"


def rest_s() -> float:
    """Seconds until the next window starts."""
    return WINDOW_S - time.time() % WINDOW_S


# --- limits of the API ------------------------------------------------------------------------------------------


def of_token(request: Request, pk: int) -> None:
    request.META[COUNTED] = True
    with suppress(CountersDown):
        count(request, "token", str(pk), settings.API_PER_MINUTE_TOKEN)


def of_work(request: Request | HttpRequest, units: int) -> None:
    """Counts what a call with a token costs, so that tokens share the machines by work and not by calls.

    Callers without one are limited by account, else by address.
    """
    if (who := caller_key(request)).startswith("token-"):
        with suppress(CountersDown):
            count(request, "work", who, settings.WORK_PER_MINUTE, units)


def of_estimate(request: Request | HttpRequest, weight: int = 1, entries: int = 0) -> None:
    """Counts estimates, which occupy a web thread while they are computed. entries: of one call, which count less."""
    of_work(request, entries * ENTRY or ESTIMATE)
    with suppress(CountersDown):
        count(request, "estimate", caller_key(request), settings.ESTIMATES_PER_MINUTE, weight)
    from catalog.accounts import organisation_of, quotas  # here, because middleware is created before apps are ready

    quotas.use(organisation_of(request), "estimates", weight)


def of_quick(request: Request | HttpRequest) -> None:
    """Counts a quick ranking; people make several a second while they type."""
    of_work(request, QUICK)
    with suppress(CountersDown):
        count(request, "quick", caller_key(request), settings.QUICK_PER_MINUTE)


def of_address(request: HttpRequest) -> None:
    """Counts any API call of an address."""
    if request.path.startswith("/api/agent/"):
        count(request, "agents", address(request), settings.PROBE_CALLS_PER_MINUTE_ADDRESS)
        return
    with suppress(CountersDown):
        count(request, "address", address(request), settings.API_PER_MINUTE_ADDRESS)


# --- responses --------------------------------------------------------------------------------------------------


def limit_calls(get_response: Respond) -> Respond:
    """Middleware: limits API calls by token, else by address, and reports the tightest limit in RateLimit headers.

    A call with a token counts for its address only if the token is refused, so that those behind one address do not
    share its limit.
    """

    def respond(request: HttpRequest) -> HttpResponse:
        has_token = has_bearer(request) and not request.path.startswith("/api/agent/")
        if not (has_token or request.path.startswith("/api/")):
            return get_response(request)
        try:
            if not has_token:
                of_address(request)
            response = get_response(request)
            if has_token and COUNTED not in request.META:
                of_address(request)
        except (Exceeded, CountersDown) as error:
            response = refusal(error)
        for name, value in headers(request.META.get(TIGHTEST)).items():
            response[name] = value
        return response

    return respond


def has_bearer(request: HttpRequest) -> bool:
    return request.headers.get("Authorization", "")[:7].lower() == "bearer "


def refusal(error: Exceeded | CountersDown) -> HttpResponse:
    from catalog.rest import refusal as problem  # here, because middleware is created before the apps are ready

    return problem(error.status_code, str(error.detail), headers={"Retry-After": str(error.wait)})


def headers(used: Usage | None) -> dict[str, str]:
    """RateLimit headers of draft-ietf-httpapi-ratelimit-headers-07."""
    if used is None:
        return {}
    return {
        "RateLimit-Limit": str(used.limit),
        "RateLimit-Remaining": str(used.remaining),
        "RateLimit-Reset": str(used.reset_s),
        "RateLimit-Policy": f"{used.limit};w={WINDOW_S}",
    }
