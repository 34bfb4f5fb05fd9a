"""config.json of a model on the Hugging Face Hub: one configured host, off by default."""

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
MOST_REDIRECTS = 3
READ_TIMEOUT_S = 5.0  # without a byte
TOTAL_TIMEOUT_S = 20.0
NAME = r"[A-Za-z0-9][A-Za-z0-9_-]*(?:\.[A-Za-z0-9_-]+)*"  # no leading dot, no two dots in a row
HUB_ID = re.compile(rf"(?=.{{3,200}}\Z){NAME}/{NAME}")
LOOPBACK = ("127.0.0.1", "::1", "localhost")
DISABLED = (
    "This server does not contact the Hugging Face Hub. "
    "Paste or upload config.json, or ask the administrator to set ASSAY_HUB_URL."
)
INSTEAD = "Download config.json and use the file instead."

at_once = BoundedSemaphore(2)  # a slow hub must not hold every web thread


class HubDisabled(FixtureError):
    """ASSAY_HUB_URL is not set."""


def config_json(hub_id: str) -> tuple[str, str]:
    """The text of config.json of `owner/name`, and the address it came from."""
    if not HUB_ID.fullmatch(hub_id):
        raise FixtureError("not a Hugging Face ID: give owner/name, such as meta-llama/Llama-3.1-8B")
    if not settings.HUB_URL:
        raise HubDisabled(DISABLED)
    address = f"{base()}/{hub_id}/resolve/main/config.json"
    return within(TOTAL_TIMEOUT_S, lambda: fetch(address)), address


def base() -> str:
    """ASSAY_HUB_URL, checked: https, or http to this machine."""
    given = urlsplit(settings.HUB_URL)
    secure = given.scheme == "https" or given.scheme == "http" and given.hostname in LOOPBACK
    if not secure or not given.hostname or "@" in given.netloc or given.query or given.fragment:
        raise FixtureError("ASSAY_HUB_URL must be an https address such as https://huggingface.co")
    return str(settings.HUB_URL).rstrip("/")


class SameHost(HTTPRedirectHandler):
    """Follows a renamed model on the hub, and nothing to another host."""

    max_redirections = MOST_REDIRECTS
    max_repeats = 1

    def redirect_request(self, req: Request, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Request | None:
        old, new = urlsplit(req.full_url), urlsplit(newurl)
        if (old.scheme, old.netloc) != (new.scheme, new.netloc):
            raise FixtureError(f"the hub redirected to another host, which is not followed. {INSTEAD}")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def fetch(address: str) -> str:
    """The text at this address: at most MAX_BYTES."""
    ends_s = time.monotonic() + TOTAL_TIMEOUT_S
    request = Request(address, headers={"User-Agent": "assay", "Accept": "application/json"})
    body = bytearray()
    try:
        with build_opener(SameHost).open(request, timeout=READ_TIMEOUT_S) as answer:
            while time.monotonic() < ends_s and (part := answer.read1(MAX_BYTES + 1 - len(body))):
                body += part
    except HTTPError as error:
        raise FixtureError(refusal(error.code)) from error
    except (URLError, OSError, HTTPException) as error:
        reason = getattr(error, "reason", error)
        raise FixtureError(f"the hub could not be read: {reason}. {INSTEAD}") from error
    if len(body) > MAX_BYTES:
        raise FixtureError(f"config.json on the hub is larger than {MAX_BYTES:,} bytes")
    try:
        return body.decode()
    except UnicodeDecodeError as error:
        raise FixtureError("config.json on the hub is not UTF-8 text") from error


def refusal(status: int) -> str:
    if status in (401, 403):
        return f"the hub does not show this model without a login (HTTP {status}). {INSTEAD}"
    if status == 404:
        return "the hub has no such model, or the model has no config.json (HTTP 404)"
    return f"the hub answered with HTTP {status}. {INSTEAD}"


def within(seconds: float, work: Callable[[], str]) -> str:
    """What `work` returns, or FixtureError after so many seconds, whatever it waits for.

    Socket timeouts start again with every byte, and name resolution has none; hence a thread.
    """
    outcome: SimpleQueue[str | Exception] = SimpleQueue()

    def run() -> None:
        try:
            outcome.put(work())
        except Exception as error:  # raised again by the caller
            outcome.put(error)
        finally:
            at_once.release()

    if not at_once.acquire(blocking=False):
        raise FixtureError("the server is already reading from the hub; try again in a few seconds")
    Thread(target=run, daemon=True).start()
    try:
        found = outcome.get(timeout=seconds)
    except Empty:
        raise FixtureError(f"the hub did not answer within {seconds:g} seconds. {INSTEAD}") from None
    if isinstance(found, Exception):
        raise found
    return found
