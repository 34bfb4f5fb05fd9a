"""Requests to URLs that users give: only to public addresses, checked at the moment of the connection.

The name is resolved once, and the connection goes to the address that was checked, so that a name server cannot answer
with another one in between. No proxy, no redirects, a time limit for the whole request; the answer's body is not read.
"""

import http.client
import socket
import ssl
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from threading import BoundedSemaphore, Thread, Timer
from typing import Any
from urllib.parse import SplitResult, urlsplit

from django.conf import settings

CONNECT_S, TOTAL_S = 6, 10
MOST_ADDRESSES = 2  # of one name
MAX_URL = 500
LOOKUP = "webhook lookup"
lookups = BoundedSemaphore(8)  # of names at a time in one process: those that hang hold up no more threads
OF_CLOUDS = (ip_address("168.63.129.16"),)  # public addresses that answer inside a cloud's own network
# Special networks that some versions of Python call global: protocol assignments, site-local, documentation.
SPECIAL = tuple(map(ip_network, ("192.0.0.0/24", "192.88.99.0/24", "fec0::/10", "3fff::/20", "5f00::/16")))
TRANSLATED = ip_network("64:ff9b::/96")  # the last 32 bits are an IPv4 address
Address = IPv4Address | IPv6Address


class RefusedUrl(ValueError):
    """A URL that must not be called, with what to change."""


def checked(url: str) -> SplitResult:
    """The parts of an http(s) URL. RefusedUrl: another form, or a literal address that must not be called."""
    if len(url) > MAX_URL or not url.isascii() or any(c.isspace() or not c.isprintable() for c in url):
        raise RefusedUrl(f"Give a URL of at most {MAX_URL} ASCII characters without blanks.")
    try:
        parts = urlsplit(url)
        port, host = parts.port, parts.hostname
    except ValueError:
        raise RefusedUrl("This is not a URL; give one such as https://example.com/hook.") from None
    if parts.scheme not in ("https", "http") or not host or port == 0:
        raise RefusedUrl("Give a URL that starts with https://, such as https://example.com/hook.")
    if parts.username is not None or parts.password is not None or parts.fragment:
        raise RefusedUrl("Leave user name, password and #fragment out of the URL; requests are signed instead.")
    if parts.scheme == "http" and not any(network.is_loopback for network in settings.WEBHOOK_NETWORKS):
        raise RefusedUrl("Use https://; http:// is only for loopback addresses that ASSAY_WEBHOOK_NETWORKS allows.")
    try:
        literal = ip_address(host)
    except ValueError:
        return parts
    refuse(literal, parts.scheme)
    return parts


def named(url: str) -> str:
    """Scheme and host: path and query may hold what only the receiver knows."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


def refuse(address: Address, scheme: str) -> None:
    """RefusedUrl if requests of this scheme must not go to the address."""
    inner = carried(address)
    allowed = any(inner.version == network.version and inner in network for network in settings.WEBHOOK_NETWORKS)
    if scheme == "http" and not (allowed and inner.is_loopback):
        raise RefusedUrl("Use https://; http:// is only for loopback addresses that ASSAY_WEBHOOK_NETWORKS allows.")
    is_special = inner in OF_CLOUDS or any(inner in network for network in SPECIAL)
    is_public = inner.is_global and not (inner.is_multicast or inner.is_reserved or is_special)
    if inner.is_link_local or not (is_public or allowed):
        raise RefusedUrl(
            f"{address} is not a public address; ASSAY_WEBHOOK_NETWORKS can allow networks of this installation."
        )


def carried(address: Address) -> Address:
    """The IPv4 address inside an IPv6 one, if it has one."""
    if isinstance(address, IPv4Address):
        return address
    if address in TRANSLATED:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    teredo = address.teredo[1] if address.teredo else None
    return address.ipv4_mapped or address.sixtofour or teredo or address


def post(url: str, body: bytes, headers: Mapping[str, str]) -> tuple[int | None, str]:
    """Sends a body. Returns (the HTTP status, None if there was none; what went wrong, empty for a 2xx status)."""
    until = time.monotonic() + TOTAL_S
    try:
        parts = checked(url)
        connection = opened(parts, until)
    except (RefusedUrl, OSError, UnicodeError) as error:
        return None, described(error)
    over = Timer(max(until - time.monotonic(), 0), end, [connection])  # slow bytes may reset the timeout of each read
    over.daemon = True
    over.start()
    try:
        if parts.scheme == "https":
            secure(connection, until)
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        connection.request("POST", target, body, dict(headers))
        status = connection.getresponse().status
        rest_s(until)  # a line that `end` cut off reads like a whole one
    except (OSError, http.client.HTTPException) as error:
        return None, described(TimeoutError() if time.monotonic() >= until else error)
    finally:
        over.cancel()
        connection.close()
    if 300 <= status < 400:
        return status, "redirects are not followed; give the final URL"
    return status, "" if 200 <= status < 300 else f"HTTP {status}"


def rest_s(until: float) -> float:
    """The seconds that are left. TimeoutError: none."""
    if (left := until - time.monotonic()) <= 0:
        raise TimeoutError
    return left


def opened(parts: SplitResult, until: float) -> http.client.HTTPConnection:
    """A connection, without TLS yet, to the first address of the host that accepts one, after all were checked."""
    host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
    found = [str(place[0]) for *_, place in resolved(host, port, until)]
    for address in found:  # all of them, so that none of a mixed answer is reached by chance
        refuse(ip_address(address.partition("%")[0]), parts.scheme)
    for n, address in enumerate(found[:MOST_ADDRESSES], start=1):
        try:
            connection = http.client.HTTPConnection(host, port)
            connection.sock = socket.create_connection((address, port), min(CONNECT_S / MOST_ADDRESSES, rest_s(until)))
            connection.sock.settimeout(TOTAL_S)
            return connection
        except OSError:
            if n == min(len(found), MOST_ADDRESSES):
                raise
    raise OSError("the name has no address")


def resolved(host: str, port: int, until: float) -> Sequence[Any]:
    """What getaddrinfo says, which has no time limit of its own. A lookup that hangs keeps its thread until it ends."""
    found: list[Any] = []

    def look_up() -> None:
        try:
            found.append(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
        except (OSError, UnicodeError) as error:
            found.append(error)
        finally:
            lookups.release()

    if not lookups.acquire(timeout=rest_s(until)):
        raise TimeoutError
    thread = Thread(target=look_up, name=LOOKUP, daemon=True)
    thread.start()
    thread.join(rest_s(until))
    if not found:
        raise TimeoutError
    if isinstance(found[0], Exception):
        raise found[0]
    return list(found[0])


def secure(connection: http.client.HTTPConnection, until: float) -> None:
    """Starts TLS, and checks the certificate for the host's name."""
    context = ssl.create_default_context()
    connection.sock = context.wrap_socket(
        connection.sock, server_hostname=connection.host, do_handshake_on_connect=False
    )
    rest_s(until)  # from here on `end` ends it
    connection.sock.do_handshake()
    connection.default_port = 443  # so that the Host header leaves it out


def end(connection: http.client.HTTPConnection) -> None:
    with suppress(OSError, AttributeError):  # closed already
        connection.sock.shutdown(socket.SHUT_RDWR)


def described(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return f"no answer within {TOTAL_S} s"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the certificate is not valid: {error.verify_message}"[:200]
    return str(error)[:200] if isinstance(error, RefusedUrl) else f"{type(error).__name__}: {error}"[:200]
