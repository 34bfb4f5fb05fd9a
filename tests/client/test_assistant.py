"""Assay's tools for AI assistants, asked with the client of the SDK: in memory, over stdio and over HTTP."""

import asyncio
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

from advisor.client import assistant
from advisor.client.calls import Answer
from tests.client.conftest import CHAT

pytestmark = pytest.mark.django_db
ROOT = Path(__file__).resolve().parents[2]
WORKLOAD = {
    "name": "help-desk",
    "model": "meta-llama/Llama-3.1-8B",
    "traffic": {"input_tokens": 800, "output_tokens": 200, "requests_per_s": 2},
    "slo": {"ttft_ms_p95": 1500, "tpot_ms_p95": 60},
    "constraints": {"accelerators": {"allow": ["l40s"]}, "frameworks": {"allow": ["vllm"]}},
}
ESTIMATE = {
    "model": "meta-llama/Llama-3.1-8B",
    "accelerator": "l40s",
    "weights": "fp8",
    "input_tokens": 800,
    "output_tokens": 200,
}
UNKNOWN = "00000000-0000-0000-0000-000000000000"
Call = tuple[str, dict[str, Any]]


def asked(target: Any, *calls: Call) -> list[tuple[bool, Any]]:
    """Whether each call of a tool was refused, and what it said."""

    async def ask() -> list[Any]:
        async with Client(target) as client:
            return [await client.call_tool(name, given) for name, given in calls]

    found = []
    for result in asyncio.run(ask()):
        [content] = result.content
        assert len(content.text.encode()) <= assistant.MOST_BYTES, content.text
        assert result.structured_content is None
        found.append((result.is_error, content.text if result.is_error else json.loads(content.text)))
    return found


@pytest.fixture
def tools(server: str, token: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("ASSAY_URL", server)
    monkeypatch.setenv("ASSAY_TOKEN", token)
    return assistant.server()


def test_there_are_at_most_ten_tools_and_each_is_described(tools: Any) -> None:
    async def listed() -> Any:
        async with Client(tools) as client:
            return (await client.list_tools()).tools

    found = asyncio.run(listed())
    assert len(found) <= 10
    assert {"search_catalog", "estimate", "advise", "compare", "explain", "what_to_test_next"} <= {
        t.name for t in found
    }
    assert all(each.description and len(each.description) < 160 for each in found)
    assert {each.name for each in found if not each.annotations.read_only_hint} == {"advise"}
    assert all("ctx" not in each.input_schema["properties"] for each in found)


def test_every_tool_answers_with_links(tools: Any, answer: Answer, server: str) -> None:
    one = {"advice_id": answer.id}
    explained = ("verdict", "option", "rejected", "sensitivity", "assumptions")
    calls: list[Call] = [
        *(("search_catalog", {"kind": kind}) for kind in ("accelerators", "models", "prices", "api-prices", "regions")),
        ("search_catalog", {"kind": "frameworks", "text": "vllm", "limit": 20}),
        ("estimate", ESTIMATE), ("rank_quickly", {"workload": WORKLOAD}), ("get_answer", one), ("list_answers", {}),
        *(("explain", {**one, "about": about}) for about in explained),
        ("compare", {"first_id": answer.id, "second_id": answer.id}), ("what_to_test_next", one),
    ]  # fmt: skip
    found = dict(zip((f"{name} {given}" for name, given in calls), asked(tools, *calls), strict=True))
    assert {name: said for name, (refused, said) in found.items() if refused} == {}
    for _, said in found.values():
        assert all(link.startswith(server) for link in said["links"].values())
        assert all(httpx.get(link, follow_redirects=False).status_code < 500 for link in said["links"].values())


def test_a_decision_is_that_of_the_answer(tools: Any, answer: Answer, server: str) -> None:
    [(_, told), (_, option), (_, side), (_, test)] = asked(
        tools,
        ("get_answer", {"advice_id": answer.id}),
        ("explain", {"advice_id": answer.id, "about": "option", "name": "1"}),
        ("compare", {"first_id": answer.id, "second_id": answer.id}),
        ("what_to_test_next", {"advice_id": answer.id}),
    )
    decision, first = answer.result["decision"], answer.rows[0]
    assert told["action"] == decision["action"] and told["links"]["page"] == answer.url
    assert told["cost"]["usd_per_month"] == pytest.approx(decision["usd_per_month"], rel=1e-3)
    assert option["label"] == first["label"] and option["links"]["option"] == f"{answer.url}/options/1"
    assert side["usd_per_month_change"] == 0.0
    assert test["said"].startswith((decision["gate"] or decision["settle"])["said"][:30])
    assert httpx.get(told["links"]["page"]).status_code in (200, 302)


def test_advise_asks_as_the_token(tools: Any) -> None:
    from advisor.models import Advice

    [(refused, told)] = asked(tools, ("advise", {"workload": WORKLOAD}))
    assert not refused and told["first"]["accelerator"] == "l40s"
    assert Advice.objects.get(pk=told["id"]).made_by == "token laptop"


def test_refusals_say_what_to_do(tools: Any, monkeypatch: pytest.MonkeyPatch, server: str) -> None:
    said = [
        each
        for _, each in asked(
            tools,
            ("estimate", {**ESTIMATE, "accelerator": "h900"}),
            ("advise", {"workload": {"model": "acme/none", "traffic": {"requests_per_s": "x" * 3000}}}),
            ("get_answer", {"advice_id": UNKNOWN}),
            ("get_answer", {"advice_id": "../tokens"}),
            ("explain", {"advice_id": UNKNOWN, "about": "weather"}),
            ("estimate", {}),
        )
    ]
    assert "accelerator: " in said[0] and "traffic.requests_per_s" in said[1]
    assert all(isinstance(each, str) and "Traceback" not in each for each in said)
    monkeypatch.setenv("ASSAY_TOKEN", "aat_wrong")
    [(refused, text)] = asked(tools, ("list_answers", {}))
    assert refused and "token" in text.lower()


def test_a_token_that_reads_cannot_ask(tools: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from advisor.api import tokens

    monkeypatch.setenv("ASSAY_TOKEN", tokens.make("reader", "read")[0])
    [(refused, _), (listed, _)] = asked(tools, ("advise", {"workload": WORKLOAD}), ("list_answers", {}))
    assert refused and not listed


def test_why_not_an_accelerator_that_is_among_the_options(tools: Any, answer: Answer) -> None:
    best = answer.rows[0]
    for name in (best["accelerator"], best["accelerator"].upper(), best["accelerator_name"]):
        [(_, said)] = asked(tools, ("explain", {"advice_id": answer.id, "about": "rejected", "name": name}))
        assert said["ranked"][0] == {key: pytest.approx(best[key], rel=1e-3) if key == "usd_per_month" else best[key]
                                     for key in ("rank", "label", "usd_per_month")}  # fmt: skip


def test_a_decision_is_said_in_full(tools: Any, answer: Answer) -> None:
    [(_, told), (_, why)] = asked(
        tools, ("get_answer", {"advice_id": answer.id}), ("explain", {"advice_id": answer.id, "about": "verdict"})
    )
    assert "…" not in json.dumps([told["said"], told.get("check_first"), told["first"]], ensure_ascii=False)
    assert why["verdict"] == answer.result["verdict"]


def test_prices_come_lowest_first(tools: Any) -> None:
    [(_, said)] = asked(tools, ("search_catalog", {"kind": "prices", "text": "l40s", "limit": 10}))
    prices = [row["usd_per_chip_hour"] for row in said["results"] if isinstance(row, dict)]
    assert len(prices) > 2 and prices == sorted(prices)
    assert all(
        {"provider", "region", "term", "as_of"} <= row.keys() for row in said["results"] if isinstance(row, dict)
    )


def test_what_to_test_names_what_would_change_the_choice(tools: Any, answer: Answer) -> None:
    [(_, said)] = asked(tools, ("what_to_test_next", {"advice_id": answer.id}))
    within = [row["detail"] for row in answer.result["sensitivity"] if row["within_range"]]
    assert said["said"] and said["changes_the_choice"] == within


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=3000),
    lambda inner: st.lists(inner, max_size=30) | st.dictionaries(st.text(max_size=300), inner, max_size=30),
    max_leaves=60,
)


@given(st.dictionaries(st.text(max_size=300), JSON, max_size=30), st.text(max_size=100))
def test_an_answer_has_at_most_2_kb_whatever_it_is_made_of(found: dict[str, Any], name: str) -> None:
    links = {"page": f"https://assay.example/catalog?search={name}"[:300].encode("ascii", "ignore").decode()}
    text = assistant.within_limit(found, links)
    assert len(text.encode()) <= assistant.MOST_BYTES
    assert json.loads(text)["links"] == links


def test_over_standard_input_and_output(server: str, token: str, tmp_path: Path) -> None:
    env = {"PATH": os.environ["PATH"], "ASSAY_URL": server, "ASSAY_TOKEN": token, "ASSAY_VAR": str(tmp_path / "var")}
    command = StdioServerParameters(
        command=sys.executable, args=["-m", "advisor", "mcp"], env=env | {"PYTHONPATH": str(ROOT)}, cwd=tmp_path
    )
    [(refused, told)] = asked(command, ("search_catalog", {"kind": "accelerators", "text": "l40s"}))
    assert not refused and told["results"][0]["slug"] == "l40s"


@pytest.fixture
def http(server: str, tmp_path: Path) -> Iterator[str]:
    """The address of `assay mcp --http`, whose own environment has a token that nobody may use."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    env = {**os.environ, "ASSAY_URL": server, "ASSAY_TOKEN": "aat_own", "ASSAY_VAR": str(tmp_path / "var")}
    command = [sys.executable, "-m", "advisor", "mcp", "--http", f"127.0.0.1:{port}"]
    process = subprocess.Popen(command, cwd=ROOT, env=env, stderr=subprocess.PIPE)
    address = f"http://127.0.0.1:{port}/mcp"
    for _ in range(600):
        try:
            httpx.get(address.removesuffix("/mcp"))
            break
        except httpx.TransportError:
            assert process.poll() is None, process.stderr and process.stderr.read()
            time.sleep(0.1)
    yield address
    process.terminate()
    process.wait(timeout=30)


def test_over_http_each_caller_has_its_own_token(http: str, token: str) -> None:
    import httpx2

    def with_token(text: str) -> list[tuple[bool, Any]]:
        headers = {"Authorization": f"Bearer {text}"} if text else {}
        client = httpx2.AsyncClient(headers=headers)
        return asked(streamable_http_client(http, http_client=client), ("list_answers", {"limit": 1}))

    assert with_token(token)[0][0] is False
    assert with_token("aat_wrong")[0][0] is True
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
    accept = {"Accept": "application/json, text/event-stream"}
    for headers in ({"Origin": "https://evil.example"}, {"Host": "evil.example"}):
        assert httpx.post(http, json=body, headers={**accept, **headers}).status_code in (403, 421)


def test_a_caller_without_a_token_does_not_borrow_one(monkeypatch: pytest.MonkeyPatch) -> None:
    from types import SimpleNamespace

    monkeypatch.setenv("ASSAY_URL", "http://here")
    monkeypatch.setenv("ASSAY_TOKEN", "aat_own")
    for headers, sent in (
        ({}, None),
        ({"authorization": "Basic x"}, None),
        ({"authorization": "Bearer a"}, "Bearer a"),
    ):
        context: Any = SimpleNamespace(request_context=SimpleNamespace(request=SimpleNamespace(headers=headers)))
        assert assistant.client_of(context)._http.headers.get("Authorization") == sent


def test_the_example_workload_is_what_the_tool_takes() -> None:
    import yaml

    assert assistant.Workload.model_validate(yaml.safe_load(CHAT)).model_dump()["variants"] == "no"
