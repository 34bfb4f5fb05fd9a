"""The client address of a request, as used by rate and login limits."""

from ipaddress import IPv6Address, ip_address, ip_network

from django.conf import settings
from django.http import HttpRequest
from rest_framework.request import Request


def address(request: Request | HttpRequest) -> str:
    """The client's address. X-Forwarded-For is trusted only for the entries that ASSAY_PROXIES proxies added."""
    forwarded = [part.strip() for part in request.META.get("HTTP_X_FORWARDED_FOR", "").split(",") if part.strip()]
    trusted = settings.PROXIES
    return forwarded[-trusted] if 0 < trusted <= len(forwarded) else str(request.META.get("REMOTE_ADDR", ""))


def network(request: Request | HttpRequest) -> str | None:
    """The IPv4 address, or the /64 network of an IPv6 address, which is one customer. None if it is not an address."""
    text = address(request)
    if text.count(":") == 1 or text.startswith("["):  # some proxies add the port
        text = text.rpartition(":")[0].strip("[]") if not text.endswith("]") else text.strip("[]")
    try:
        parsed = ip_address(text)
    except ValueError:
        return None
    if not isinstance(parsed, IPv6Address):
        return str(parsed)
    return str(parsed.ipv4_mapped or ip_network((parsed, 64), strict=False).network_address)
