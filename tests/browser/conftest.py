"""Chromium on a live server; whatever it complains about fails the test."""

import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from advisor.answer import quick
from tests.conftest import FOUND

ARGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    before = os.environ.get("DJANGO_ALLOW_ASYNC_UNSAFE")
    os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "1"  # Playwright's loop runs in the thread that makes the rows
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=FOUND["browser"], args=ARGS)
        yield browser
        browser.close()
    if before is None:
        del os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"]


@pytest.fixture(autouse=True)
def no_estimates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Models of these tests have no layers, which a live estimate needs."""

    def refuse(*_: object) -> None:
        raise quick.Busy

    monkeypatch.setattr(quick, "quick_answer", refuse)


@pytest.fixture
def open_page(chromium: Any, live_server: Any) -> Iterator[Callable[..., Any]]:
    """Opens a path in a fresh context; console errors, page errors and blocked content fail at the end."""
    complaints: list[str] = []
    contexts = []

    def complain(message: Any) -> None:
        refused_form = "status of 422" in message.text  # Chromium reports every refused page as an error
        left = message.text.startswith(("htmx:afterRequest", "htmx:sendAbort", "htmx:sendError"))  # at a navigation
        elsewhere = not message.location["url"].startswith(live_server.url)  # such as an identity provider's icon
        lost = elsewhere and message.text.startswith("Failed to load resource: net::ERR_CONNECTION")
        if message.type in ("error", "warning") and not (refused_form or left or lost):
            complaints.append(message.text)

    def open_one(path: str, **options: Any) -> Any:
        context = chromium.new_context(base_url=live_server.url, **options)
        contexts.append(context)
        page = context.new_page()
        page.on("console", complain)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(path)
        return page

    yield open_one
    for context in contexts:
        context.close()
    assert complaints == []
