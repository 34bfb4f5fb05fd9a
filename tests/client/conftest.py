"""A server on a port of its own whose requests for advice are answered at once, and clients of it."""

from collections.abc import Iterator
from typing import Any

import pytest
from django.core.handlers.wsgi import WSGIHandler
from django.db import connections
from django.test.testcases import LiveServerThread

from advisor import advise
from advisor.api import tokens
from advisor.client.calls import Answer, Assay

CHAT = """\
name: help-desk
model: meta-llama/Llama-3.1-8B
traffic: {input_tokens: 800, output_tokens: 200, requests_per_s: 2}
slo: {ttft_ms_p95: 1500, tpot_ms_p95: 60}
constraints: {accelerators: {allow: [l40s]}, frameworks: {allow: [vllm]}, acquisition: [rent], terms: [on_demand]}
variants: "no"
"""
ESTIMATE = {
    "model": "meta-llama/Llama-3.1-8B",
    "accelerator": "l40s",
    "weights": "fp8",
    "isl": 800,
    "osl": 200,
    "concurrency": 8,
}


class Handler(WSGIHandler):
    """What LiveServerThread asks of its static handler, with no static files."""

    def __init__(self, application: Any) -> None:
        super().__init__()


class Thread(LiveServerThread):
    def _create_server(self, connections_override: Any = None) -> Any:
        self.port = self.port or 0
        return super()._create_server(connections_override)


@pytest.fixture(scope="module")
def server(frozen: None, django_db_blocker: Any) -> Iterator[str]:
    """Its address. It shares the connection of the tests, and so the frozen catalog."""
    queue = advise.request

    def answered(*given: Any, **named: Any) -> Any:
        advice = queue(*given, **named)
        advise.run(advice.pk)
        advice.refresh_from_db()
        return advice

    with django_db_blocker.unblock(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(advise, "request", answered)
        shared = connections["default"]
        shared.inc_thread_sharing()
        thread = Thread("127.0.0.1", Handler, connections_override={"default": shared})
        thread.daemon = True
        thread.start()
        thread.is_ready.wait()
        assert not thread.error, thread.error
        yield f"http://127.0.0.1:{thread.port}"
        thread.terminate()
        shared.dec_thread_sharing()


@pytest.fixture(scope="module")
def token(server: str) -> str:
    return tokens.make("laptop", "submit")[0]


@pytest.fixture(scope="module")
def assay(server: str, token: str) -> Iterator[Assay]:
    with Assay(server, token) as client:
        yield client


@pytest.fixture(scope="module")
def answer(assay: Assay) -> Answer:
    """The answer to CHAT, which many tests read."""
    return assay.advise(CHAT)
