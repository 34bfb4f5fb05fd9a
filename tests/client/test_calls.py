"""The client of the REST API against a server, and against servers that refuse, are busy or are gone."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.client.calls import Answer, Assay, AssayError, AsyncAssay, Problem
from advisor.models import Advice
from tests.client.conftest import CHAT, ESTIMATE

pytestmark = pytest.mark.django_db
ROOT = Path(__file__).resolve().parents[2]
ADVICE = {"id": "a1", "name": "chat", "state": "done", "error": "", "workload": {}, "links": {"html": "http://h/a1"}}
RESULT = {"verdict": "Two of them.", "recommendations": [{"rank": 1, "label": "2 x A", "usd_per_month": 10.5}]}
Reply = Callable[[httpx.Request], httpx.Response]


def client_of(*replies: Any, tries: int = 5) -> tuple[Assay, list[httpx.Request]]:
    """A client whose requests get these replies in turn: (status, JSON, headers), or an error."""
    asked: list[httpx.Request] = []
    rest = iter(replies)

    def reply(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        one = next(rest)
        if isinstance(one, Exception):
            raise one
        status, body, headers = one
        return httpx.Response(status, json=body, headers=headers)

    return Assay("http://here/", "aat_x", tries=tries, transport=httpx.MockTransport(reply)), asked


@pytest.fixture(autouse=True)
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses that a client would have made."""
    made: list[float] = []
    monkeypatch.setattr("advisor.client.calls.time.sleep", made.append)
    return made


# --- against a server -------------------------------------------------------------------------------------------


def test_a_workload_is_answered(answer: Answer, server: str) -> None:
    assert answer.name == "help-desk" and answer.rows[0]["accelerator"] == "l40s"
    assert answer.url == f"{server}/advice/{answer.id}"
    assert answer.workload["traffic"]["requests_per_s"]["mean"] == 2
    frontier = answer.frontier()
    assert frontier.rows and any(row["frontier"] for row in frontier.rows)
    assert set(answer.frame()["rank"]) == {row["rank"] for row in answer.rows}
    assert len(frontier.frame()) == len(frontier.rows)


def test_the_same_from_a_file_a_path_and_a_dict(assay: Assay, tmp_path: Path) -> None:
    import yaml

    file = tmp_path / "chat.yaml"
    file.write_text(CHAT)
    queued = [assay.advise(each, wait=False, key="same") for each in (file, str(file), CHAT, yaml.safe_load(CHAT))]
    assert len({each["id"] for each in queued}) == 1


def test_each_call_has_a_key_of_its_own() -> None:
    client, asked = client_of(*[(202, ADVICE, {})] * 2)
    for _ in range(2):
        client.advise({"name": "chat"}, wait=False)
    assert len({each.headers["Idempotency-Key"] for each in asked}) == 2
    assert asked[0].headers["Authorization"] == "Bearer aat_x"


def test_an_answer_is_read_again_compared_and_has_documents(assay: Assay, answer: Answer) -> None:
    assert assay.answer(answer.id).result == answer.result
    one, other = assay.compare(answer.id, answer.id)
    assert one == other and one["id"] == answer.id
    assert assay.document(answer.id, "memo.md").startswith(b"#")


def test_estimates_quick_rankings_and_the_catalog(assay: Assay) -> None:
    one = assay.estimate(**ESTIMATE)
    assert one["fits"]
    many = list(assay.estimates([{"concurrency": 8}, {"accelerator": "no-such"}], ESTIMATE))
    assert [each["index"] for each in many] == [0, 1]
    assert many[0]["estimate"] == one and many[1]["problem"]["errors"][0]["field"] == "accelerator"
    assert assay.quick(CHAT)["options"]
    assert [each["slug"] for each in assay.search("accelerators", "l40s")] == ["l40s"]
    assert assay.get("freshness")["catalog"]


def test_async_code_gets_the_same(server: str, token: str, answer: Answer) -> None:
    async def ask() -> tuple[Any, ...]:
        async with AsyncAssay(server, token) as client:
            rows = [row async for row in client.estimates([{}, {"concurrency": 4}], ESTIMATE)]
            return await client.answer(answer.id), await client.estimate(**ESTIMATE), rows

    found, one, rows = asyncio.run(ask())
    assert found.result == answer.result
    assert [row["index"] for row in rows] == [0, 1] and rows[0]["estimate"] == one


def test_a_refusal_names_the_keys(assay: Assay) -> None:
    with pytest.raises(Problem, match="traffic") as refused:
        assay.advise({"name": "x", "model": "meta-llama/Llama-3.1-8B", "traffic": {"input_tokens": -1}})
    assert refused.value.status == 422
    assert "traffic.input_tokens.mean" in {each["field"] for each in refused.value.errors}


@pytest.mark.parametrize("path", ["advice/00000000-0000-0000-0000-000000000000", "nothing-here"])
def test_what_is_not_there_is_a_problem(assay: Assay, path: str) -> None:
    with pytest.raises(Problem) as refused:
        assay.get(path)
    assert refused.value.status == 404 and str(refused.value)


def test_a_token_that_is_not_known(server: str) -> None:
    with Assay(server, "aat_wrong") as client, pytest.raises(Problem) as refused:
        client.get("advice")
    assert refused.value.status == 401


def test_a_token_that_may_only_read_cannot_ask(server: str) -> None:
    from advisor.api import tokens

    with Assay(server, tokens.make("reader", "read")[0]) as client, pytest.raises(Problem) as refused:
        client.advise(CHAT)
    assert refused.value.status == 403
    assert not Advice.objects.filter(made_by="token reader").exists()


# --- against others ---------------------------------------------------------------------------------------------


def test_it_waits_as_long_as_the_server_says(pauses: list[float]) -> None:
    running = {**ADVICE, "state": "running"}
    client, asked = client_of(
        (429, {}, {"Retry-After": "7"}), (202, {**ADVICE, "state": "queued"}, {}), (503, {}, {}),
        (200, running, {"Retry-After": "3"}), (200, ADVICE, {}), (202, {}, {"Retry-After": "9999"}), (200, RESULT, {}),
    )  # fmt: skip
    answer = client.advise({"name": "chat"})
    assert pauses == [7.0, 2.0, 3.0, 60.0]
    assert answer.rows == RESULT["recommendations"]
    assert len({each.headers["Idempotency-Key"] for each in asked[:2]}) == 1


def test_a_lost_connection_is_tried_again(pauses: list[float]) -> None:
    client, asked = client_of(httpx.ConnectError("refused"), httpx.ReadTimeout("late"), (200, {"ok": True}, {}))
    assert client.get("freshness") == {"ok": True}
    assert pauses == [2.0, 4.0]


def test_a_server_that_is_gone_or_stays_busy(pauses: list[float]) -> None:
    client, _ = client_of(*[httpx.ConnectError("refused")] * 2, tries=2)
    with pytest.raises(AssayError, match="http://here does not answer: refused"):
        client.get("freshness")
    client, _ = client_of(*[(429, {}, {})] * 2, tries=2)
    with pytest.raises(Problem) as refused:
        client.get("freshness")
    assert refused.value.status == 429 and len(pauses) == 2


@pytest.mark.parametrize("state", ["failed", "cancelled"])
def test_advice_without_an_answer(state: str) -> None:
    client, _ = client_of((200, {**ADVICE, "state": state, "error": "The worker was lost."}, {}))
    with pytest.raises(AssayError, match=f"is {state}. The worker was lost."):
        client.answer("a1")


def test_an_answer_that_is_late() -> None:
    client, _ = client_of((200, {**ADVICE, "state": "queued"}, {}))
    with pytest.raises(AssayError, match="not finished"):
        client.answer("a1", timeout_s=-1)


def test_a_page_of_something_else_is_not_an_answer() -> None:
    reply = httpx.MockTransport(lambda request: httpx.Response(302, headers={"Location": "https://elsewhere"}))
    with pytest.raises(Problem, match="answered 302"):
        Assay("http://here", "", transport=reply).get("freshness")


def test_many_estimates_are_sent_in_calls_of_a_thousand() -> None:
    sizes: list[int] = []

    def reply(request: httpx.Request) -> httpx.Response:
        count = len(json.loads(request.content)["estimates"])
        sizes.append(count)
        lines = [json.dumps({"index": n, "estimate": {}, "problem": None}) for n in range(count)]
        return httpx.Response(200, text="\n".join(lines))

    client = Assay("http://here", "", transport=httpx.MockTransport(reply))
    assert [row["index"] for row in client.estimates({} for _ in range(2001))] == list(range(2001))
    assert sizes == [1000, 1000, 1]


def test_the_first_estimate_is_there_before_the_last_is_computed() -> None:
    sent: list[int] = []

    class Slow(httpx.SyncByteStream):
        def __iter__(self) -> Iterator[bytes]:
            for n in range(3):
                sent.append(n)
                yield json.dumps({"index": n, "estimate": {}, "problem": None}).encode() + b"\n"

    client = Assay("http://here", "", transport=httpx.MockTransport(lambda _: httpx.Response(200, stream=Slow())))
    assert next(client.estimates([{}] * 3))["index"] == 0
    assert len(sent) < 3


def test_an_address_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ASSAY_URL", raising=False)
    for url in ("", "assay.example", "file:///etc"):
        with pytest.raises(ValueError, match="ASSAY_URL"):
            Assay(url)
    monkeypatch.setenv("ASSAY_URL", "https://assay.example/")
    assert Assay().url == "https://assay.example"


@given(st.dictionaries(st.sampled_from(["detail", "title", "errors", "x"]), st.none() | st.text()))
def test_any_problem_document_is_readable(said: dict[str, Any]) -> None:
    said = {**said, "errors": [{"field": "a.b", "message": "is wrong", "allowed": ""}]}
    response = httpx.Response(422, json=said, headers={"Content-Type": "application/problem+json"})
    response.request = httpx.Request("GET", "http://here/")
    problem = Problem(response, response.text)
    assert problem.detail and "a.b: is wrong" in str(problem)


def test_it_needs_neither_django_nor_pandas() -> None:
    heavy = ("django", "pandas", "pydantic", "yaml", "rest_framework")
    code = f"import sys; sys.modules.update(dict.fromkeys({heavy!r})); import advisor.client.calls"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_client_stays_small() -> None:
    assert len((ROOT / "advisor/client/calls.py").read_text().splitlines()) < 200


@pytest.mark.parametrize("path", ["https://evil.example/x", "http://here:81/api/v1/x", "http://here.evil/api/v1/x"])
def test_the_token_is_sent_to_no_other_server(path: str) -> None:
    assay, asked = client_of((200, {}, {}))
    with pytest.raises(ValueError, match="Give a path below"):
        assay.get(path)
    assert asked == []


@pytest.mark.parametrize("content", [b"[1]", b"<html>"])
def test_a_problem_that_is_none_is_told_by_its_status(content: bytes) -> None:
    headers = {"Content-Type": "application/problem+json"}
    reply = httpx.MockTransport(lambda request: httpx.Response(400, content=content, headers=headers))
    with pytest.raises(Problem, match="answered 400"):
        Assay("http://here/", "aat_x", transport=reply).get("x")


@pytest.mark.parametrize("call", ["get", "advise", "answer", "estimate", "search", "compare"])
def test_a_sign_in_page_is_no_answer(call: str) -> None:
    reply = httpx.MockTransport(lambda request: httpx.Response(200, html="<html>Sign in</html>"))
    given = {"advise": [{"name": "chat"}], "estimate": []}.get(call, ["a1"])
    with pytest.raises(AssayError, match=r"http://here/api/v1/.* did not answer with JSON"):
        getattr(Assay("http://here", "", transport=reply), call)(*given)


def test_a_refusal_says_each_thing_once(assay: Assay) -> None:
    with pytest.raises(Problem) as refused:
        assay.advise({"name": "x"})
    lines = str(refused.value).splitlines()
    assert lines == ["model: is required for kind serving", "traffic: is required for kind serving"]
    with pytest.raises(Problem, match="/api/v1/advice/none: "):
        assay.answer("none")


def test_an_answer_says_what_it_is_at_a_prompt(answer: Answer) -> None:
    for shown in (answer, answer.frontier()):
        assert repr(shown) == f"<{type(shown).__name__} {shown.title!r}, rows: {len(shown.rows)}, {answer.url}>"
