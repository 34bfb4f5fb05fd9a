"""Pages show what the last run of `make examples` answered, and every shipped workload was asked."""

import copy
import json
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.examples import STORE, WORKLOADS, Ask, asks, commands, facts, pages, stored
from tests.examples.changes import change
from tests.examples.render import rendered
from tests.examples.summary import summary

ANSWER: dict[str, Any] = {
    "catalog": {"prices_as_of": "2026-11-01"},
    "workload": {"kind": "serving"},
    "decision": {"label": "2 x H100", "ways": ["rent"], "provider": "acme", "usd_per_month": 4000.0,
                 "usd_per_run": None, "slo_probability": 0.7, "price_as_of": "2026-10-01"},
    "recommendations": [
        {"rank": 1, "label": "2 x H100", "accelerator": "h100-sxm", "provider": "acme", "acquisition": "rent",
         "framework": "vllm", "weights_dtype": "fp8", "usd_per_month": 4000.0, "slo_probability": 0.7,
         "price_as_of": "2026-10-01", "price_weakness": "", "ttft_ms": {"p95": 800.0}, "tpot_ms": {"p95": 30.0}},
    ],
    "rejected": [],
}  # fmt: skip


def test_the_pages_are_written_from_the_stored_answers() -> None:
    answers = stored()
    stale = [page.name for page in pages() if rendered(page.read_text(), answers) != page.read_text()]
    assert not stale, "run make examples (or python -m tests.examples --pages)"


def test_every_shipped_workload_and_every_question_of_a_page_is_stored() -> None:
    known = stored()
    assert {ask.key for ask in asks()} | {*commands()} == set(known)
    assert {file.stem for file in WORKLOADS.glob("*.yaml")} <= {key.split()[0] for key in known}


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        ({}, None),
        ({"usd_per_month": 5000.0}, "still 2 x H100, +25%"),
        ({"accelerator": "b200", "label": "1 x B200"}, "2 x H100 ($4,000) -> 1 x B200"),
    ],
)
def test_a_change_of_the_first_choice_is_told_with_its_reason(edit: dict[str, Any], said: str | None) -> None:
    before, now = summary(ANSWER), copy.deepcopy(ANSWER)
    now["recommendations"][0].update(edit)
    now["decision"].update({k: v for k, v in edit.items() if k in now["decision"]})
    if "accelerator" in edit:
        now["recommendations"].append(ANSWER["recommendations"][0] | {"rank": 2, "slo_probability": 0.4})
    line = change("chat", before, summary(now), now)
    assert (line is None) if said is None else (line is not None and said in line)
    if "accelerator" in edit:
        assert line is not None and "It is now #2: probability 70% -> 40%." in line


def test_a_page_shows_the_figures_that_it_asks_for() -> None:
    page = "<!-- answers\n- {ask: chat, says: At the usual load}\n-->\nold\n<!-- end -->\n"
    known = {"chat": summary(ANSWER, ["recommendations[0].ttft_ms.p95"])}
    text = rendered(page, known)
    assert "| At the usual load | 2 x H100 at acme | $4,000 a month | 800 ms | 30 ms | 70% |" in text
    assert "old" not in text and rendered(text, known) == text
    shown = rendered(
        "<!-- figures {ask: chat, rows: {TTFT: 'recommendations[0].ttft_ms.p95'}} -->\n<!-- end -->", known
    )
    assert "| TTFT | 800 |" in shown


@pytest.mark.parametrize(
    ("ways", "days", "old"),
    [
        (["rent"], 120, False),
        (["rent"], 121, True),
        (["reserve"], 300, True),
        (["buy"], 300, False),
        (["api"], 9, False),
    ],
)
def test_a_first_choice_on_an_old_rent_is_named(
    ways: list[str], days: int, old: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    store = tmp_path / "answers.json"
    given = json.loads(STORE.read_text())
    for kept in given["answers"].values():
        kept["first"] = None
    first = summary(ANSWER)["first"] or {}
    dated = {"ways": ways, "price_as_of": str(date.fromisoformat(given["asked_on"]) - timedelta(days=days))}
    given["answers"]["support-chat"]["first"] = first | dated
    store.write_text(json.dumps(given))
    monkeypatch.setattr(facts, "STORE", store)
    assert facts.old_rents() == (["`support-chat`"] if old else [])
    assert [row[4] for row in facts.deciding_ages()] == [str(days)]


def test_the_command_of_a_question_is_the_one_to_run() -> None:
    ask = Ask("chat", ("slo.tpot_ms_p95=20",))
    assert ask.command == "manage.py advise fixtures/workloads/chat.yaml --set slo.tpot_ms_p95=20"
