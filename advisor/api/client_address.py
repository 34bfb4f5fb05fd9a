"""Where a request comes from, as the limits count it."""

from ipaddress import IPv6Address, ip_address, ip_network

from django.conf import settings
from django.http import HttpRequest
from rest_framework.request import Request


def address(request: Request | HttpRequest) -> str:
    """Behind ASSAY_PROXIES proxies: what the outermost of them saw. A header that anybody can write is not believed."""
    passed = [part.strip() for part in request.META.get("HTTP_X_FORWARDED_FOR", "").split(",") if part.strip()]
    trusted = settings.PROXIES
    return passed[-trusted] if 0 < trusted <= len(passed) else str(request.META.get("REMOTE_ADDR", ""))


def network(request: Request | HttpRequest) -> str | None:
    """The address as sign-in counts it: one customer has a whole /64 of IPv6. None: it is no address."""
    text = address(request)
    if text.count(":") == 1 or text.startswith("["):  # some proxies write the port, too
        text = text.rpartition(":")[0].strip("[]") if not text.endswith("]") else text.strip("[]")
    try:
        found = ip_address(text)
    except ValueError:
        return None
    if not isinstance(found, IPv6Address):
        return str(found)
    return str(found.ipv4_mapped or ip_network((found, 64), strict=False).network_address)
