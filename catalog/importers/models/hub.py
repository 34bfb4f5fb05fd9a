"""Downloads config.json from the Hugging Face Hub, from one configured host. Off by default."""

import re
import time
from collections.abc import Callable
from http.client import HTTPException
from queue import Empty, SimpleQueue
from threading import BoundedSemaphore, Thread
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from django.conf import settings

from catalog.loading.fixtures import FixtureError

MAX_BYTES = 1_000_000
MAX_REDIRECTS = 3
READ_TIMEOUT_S = 5.0  # between two reads
TOTAL_TIMEOUT_S = 20.0
NAME = r"[A-Za-z0-9][A-Za-z0-9_-]*(?:\.[A-Za-z0-9_-]+)*"  # no leading dot, no two dots in a row
HUB_ID = re.compile(rf"(?=.{{3,200}}\Z){NAME}/{NAME}")
LOOPBACK = ("127.0.0.1", "::1", "localhost")
DISABLED = (
    "This server does not contact the Hugging Face Hub. "
    "Paste or upload config.json, or ask the administrator to set ASSAY_HUB_URL."
)
ALTERNATIVE = "Download config.json and use the file instead."

downloads = BoundedSemaphore(2)  # a slow hub must not block every web thread


class HubDisabled(FixtureError):
    """ASSAY_HUB_URL is not set."""


def config_json(hub_id: str) -> tuple[str, str]:
    """The text of config.json of `owner/name`, and its URL. FixtureError: it cannot be read."""
    if not HUB_ID.fullmatch(hub_id):
        raise FixtureError("not a Hugging Face ID: give owner/name, such as meta-llama/Llama-3.1-8B")
    if not settings.HUB_URL:
        raise HubDisabled(DISABLED)
    address = f"{base()}/{hub_id}/resolve/main/config.json"
    return with_timeout(TOTAL_TIMEOUT_S, lambda: fetch(address)), address


def file_of(hub_id: str, name: str) -> str:
    """The text of another file of the same model; empty if it has none. FixtureError: it cannot be read."""
    address = f"{base()}/{hub_id}/resolve/main/{name}"
    try:
        return with_timeout(TOTAL_TIMEOUT_S, lambda: fetch(address))
    except NotThere:
        return ""


def base() -> str:
    """ASSAY_HUB_URL without a trailing slash. FixtureError: neither https nor http on this host."""
    given = urlsplit(settings.HUB_URL)
    secure = given.scheme == "https" or given.scheme == "http" and given.hostname in LOOPBACK
    if not secure or not given.hostname or "@" in given.netloc or given.query or given.fragment:
        raise FixtureError("ASSAY_HUB_URL must be an https URL such as https://huggingface.co")
    return str(settings.HUB_URL).rstrip("/")


class NotThere(FixtureError):
    """The hub has no such file."""


class SameHost(HTTPRedirectHandler):
    """Follows redirects of renamed models, but none to another host."""

    max_redirections = MAX_REDIRECTS
    max_repeats = 1

    def redirect_request(self, req: Request, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Request | None:
        old, new = urlsplit(req.full_url), urlsplit(newurl)
        if (old.scheme, old.netloc) != (new.scheme, new.netloc):
            raise FixtureError(f"the hub redirected to another host, which is not allowed. {ALTERNATIVE}")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def fetch(address: str) -> str:
    """The text at this URL, at most MAX_BYTES."""
    deadline_s = time.monotonic() + TOTAL_TIMEOUT_S
    request = Request(address, headers={"User-Agent": "assay", "Accept": "application/json"})
    body = bytearray()
    try:
        with build_opener(SameHost).open(request, timeout=READ_TIMEOUT_S) as response:
            while time.monotonic() < deadline_s and (part := response.read1(MAX_BYTES + 1 - len(body))):
                body += part
    except HTTPError as error:
        raise (NotThere if error.code == 404 else FixtureError)(refusal(error.code)) from error
    except (URLError, OSError, HTTPException) as error:
        reason = getattr(error, "reason", error)
        raise FixtureError(f"the hub could not be read: {reason}. {ALTERNATIVE}") from error
    if len(body) > MAX_BYTES:
        raise FixtureError(f"config.json on the hub is larger than {MAX_BYTES:,} bytes")
    try:
        return body.decode()
    except UnicodeDecodeError as error:
        raise FixtureError("config.json on the hub is not UTF-8 text") from error


def refusal(status: int) -> str:
    if status in (401, 403):
        return f"this model requires a login on the hub (HTTP {status}). {ALTERNATIVE}"
    if status == 404:
        return "the hub has no such model, or the model has no config.json (HTTP 404)"
    return f"the hub answered with HTTP {status}. {ALTERNATIVE}"


def with_timeout(seconds: float, work: Callable[[], str]) -> str:
    """The result of `work`, run in a thread; FixtureError if it takes longer than `seconds`.

    Socket timeouts restart with every byte, and name resolution has no timeout; hence the thread.
    """
    outcome: SimpleQueue[str | Exception] = SimpleQueue()

    def run() -> None:
        try:
            outcome.put(work())
        except Exception as error:  # raised again below
            outcome.put(error)
        finally:
            downloads.release()

    if not downloads.acquire(blocking=False):
        raise FixtureError("the server is already reading from the hub; try again in a few seconds")
    Thread(target=run, daemon=True).start()
    try:
        result = outcome.get(timeout=seconds)
    except Empty:
        raise FixtureError(f"the hub did not answer within {seconds:g} seconds. {ALTERNATIVE}") from None
    if isinstance(result, Exception):
        raise result
    return result
