"""Downloads price data: retried with growing pauses, conditional on the ETag of the last download, and bounded."""

from collections.abc import Mapping
from dataclasses import dataclass

import requests
from requests.adapters import HTTPAdapter
from urllib3.util.retry import Retry

MAX_MIB = 1024  # AWS publishes 300 to 500 MiB per region
TIMEOUT_S = (10, 120)  # to connect, and between two reads
RETRIES = 4
BACKOFF_S = 1.0  # doubles with each attempt
JITTER_S = 1.0  # at most, added to each pause, so that many installations do not ask together
BUSY = (429, 500, 502, 503, 504)


class Unreachable(Exception):
    """A source could not be read; the message says what to do."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Page:
    """One downloaded page. `text` is None if it has not changed since the given ETag."""

    text: str | None
    etag: str


def session() -> requests.Session:
    """An HTTP session that retries; it uses the proxies and the CA bundle that the environment names."""
    retry = Retry(
        total=RETRIES,
        backoff_factor=BACKOFF_S,
        backoff_jitter=JITTER_S,
        status_forcelist=BUSY,
        allowed_methods=["GET"],
        raise_on_status=False,
    )
    opened = requests.Session()
    opened.mount("https://", HTTPAdapter(max_retries=retry))
    opened.mount("http://", HTTPAdapter(max_retries=retry))
    opened.headers["User-Agent"] = "assay-price-sync"
    return opened


def get(opened: requests.Session, url: str, etag: str = "", secret: Mapping[str, str] | None = None) -> Page:
    """The page at this URL. `secret` are headers, which no message and no log repeats. Raises Unreachable."""
    body, etag = get_bytes(opened, url, etag, secret, MAX_MIB << 20)
    try:
        return Page(text=None if body is None else body.decode("utf-8"), etag=etag)
    except UnicodeDecodeError as error:
        raise Unreachable(f"{url} is not text in UTF-8; nothing was changed") from error


def get_bytes(
    opened: requests.Session, url: str, etag: str, secret: Mapping[str, str] | None, most: int
) -> tuple[bytes | None, str]:
    """(the file at this URL, None if it has not changed since the given ETag; its ETag). Raises Unreachable.

    most: bytes.
    """
    headers = dict(secret or {}) | ({"If-None-Match": etag} if etag else {})
    try:
        with opened.get(url, headers=headers, timeout=TIMEOUT_S, stream=True) as answer:
            if answer.status_code == requests.codes.not_modified:
                return None, etag
            if not answer.ok:
                raise Unreachable(f"{url} answered with HTTP {answer.status_code}; nothing was changed")
            return _body(answer, url, most), answer.headers.get("ETag", "")
    except requests.RequestException as error:
        raise Unreachable(
            f"{url} cannot be reached ({type(error).__name__}); nothing was changed. Check the network or the proxy, "
            "or download the file elsewhere and give it with --file."
        ) from error


def _body(answer: requests.Response, url: str, most: int) -> bytes:
    body = bytearray()
    for part in answer.iter_content(1 << 20):
        body += part
        if len(body) > most:
            raise Unreachable(f"{url} is larger than {most >> 20} MiB; nothing was changed")
    return bytes(body)
