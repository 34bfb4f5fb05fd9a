"""Requests to URLs that users give: only to public addresses, checked at the moment of the connection.

The name is resolved once, and the connection goes to the address that was checked, so that a name server cannot answer
with another one in between. No proxy, no redirects, a time limit for the whole request; the answer's body is not read.
"""

import http.client
import socket
import ssl
from collections.abc import Mapping, Sequence
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from threading import Timer
from urllib.parse import SplitResult, urlsplit

from django.conf import settings

CONNECT_S, TOTAL_S = 6, 10
MOST_ADDRESSES = 2  # of one name
MAX_URL = 500
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
    try:
        parts = checked(url)
        connection = connected(parts)
    except (RefusedUrl, OSError, UnicodeError) as error:
        return None, described(error)
    over = Timer(TOTAL_S, end, [connection.sock])  # a slow answer may reset the timeout of each read
    over.daemon = True
    over.start()
    try:
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        connection.request("POST", target, body, dict(headers))
        status = connection.getresponse().status
    except (OSError, http.client.HTTPException) as error:
        return None, described(error)
    finally:
        over.cancel()
        connection.close()
    if 300 <= status < 400:
        return status, "redirects are not followed; give the final URL"
    return status, "" if 200 <= status < 300 else f"HTTP {status}"


def connected(parts: SplitResult) -> http.client.HTTPConnection:
    """A connection to an address of the host that was checked; https checks the certificate for the host's name."""
    host = parts.hostname or ""
    port = parts.port or (443 if parts.scheme == "https" else 80)
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    for *_, place in found:  # all of them, so that none of a mixed answer is reached by chance
        refuse(ip_address(str(place[0]).partition("%")[0]), parts.scheme)
    connection = http.client.HTTPConnection(host, port)
    connection.sock = opened([str(place[0]) for *_, place in found], port)
    try:
        if parts.scheme == "https":
            connection.sock = ssl.create_default_context().wrap_socket(connection.sock, server_hostname=host)
            connection.default_port = 443  # so that the Host header leaves it out
        connection.sock.settimeout(TOTAL_S)
    except BaseException:
        connection.sock.close()
        raise
    return connection


def opened(addresses: Sequence[str], port: int) -> socket.socket:
    """A connection to the first address that accepts one; to all of them within CONNECT_S."""
    for n, address in enumerate(addresses[:MOST_ADDRESSES], start=1):
        try:
            return socket.create_connection((address, port), CONNECT_S / MOST_ADDRESSES)
        except OSError:
            if n == min(len(addresses), MOST_ADDRESSES):
                raise
    raise OSError("the name has no address")


def end(sock: socket.socket) -> None:
    try:
        sock.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass  # closed already


def described(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return f"no answer within {TOTAL_S} s"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the certificate is not valid: {error.verify_message}"[:200]
    return str(error)[:200] if isinstance(error, RefusedUrl) else f"{type(error).__name__}: {error}"[:200]
