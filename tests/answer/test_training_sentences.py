"""What a training answer says besides figures: budgets, repeated and bought runs, spot, sizes that gain."""

import re
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from typing import Any

import pytest

from advisor import report
from advisor.advise import default_organisation
from advisor.answer.sentences import likely
from advisor.engine.terms import usd_text
from advisor.inputs import take_snapshot
from advisor.result import Answer
from advisor.workload import parse
from tests.as_json import recommend
from tests.sample_training import result

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("frozen")]
Json = dict[str, Any]
ONE = {"accelerators": {"allow": ["h200-sxm"]}}
MODEL = "meta-llama/Llama-3.1-8B"
ASKED: dict[str, Json] = {
    "spot": {
        "kind": "training", "training": {"tokens": 1e12}, "constraints": {**ONE, "terms": ["spot", "on_demand"]},
    },
    "large budget": {
        "kind": "training", "training": {"budget_usd": 5e6, "deadline_days": 10},
        "constraints": {**ONE, "max_accelerators": 32},
    },
    "adapters": {"kind": "finetuning", "finetuning": {"method": "lora", "tokens": 5e7}, "constraints": ONE},
    "owned": {
        "kind": "finetuning", "finetuning": {"tokens": 1e9}, "owned": {"h200-sxm": 8},
        "constraints": {**ONE, "acquisition": ["own"]},
    },
}  # fmt: skip


@cache
def answered(name: str) -> Json:
    spec = parse({"name": "question", "model": MODEL, **ASKED[name]})
    return recommend(spec, take_snapshot(spec, default_organisation()))


def test_a_budget_is_spent_on_the_cheapest_run_whatever_the_objective() -> None:
    found = result("budget")
    first, budget = found["recommendations"][0], found["token_budget"]
    assert 0.99 * 20_000 <= first["usd_per_run"] <= 20_000
    assert budget["tokens"] == first["tokens"]
    assert budget["optimal_tokens"] / budget["optimal_parameters"] == pytest.approx(20, rel=1e-4)
    unused = {item["field"]: item["instead"] for item in found["not_used"]}
    assert "ranked by cost" in unused["objective"]


def test_a_budget_that_no_deadline_lets_one_spend_says_so() -> None:
    found = answered("large budget")
    first = found["recommendations"][0]
    assert first["days"] <= 10 and first["usd_per_run"] < 0.95 * 5e6
    assert "more tokens take longer than 10 days" in found["verdict"]


@pytest.mark.parametrize("name", ["pretrain", "weekly", "bought", "budget", "grpo", "late", "large budget"])
def test_a_verdict_states_the_probability_of_its_deadline(name: str) -> None:
    found = answered(name) if name in ASKED else result(name)
    kind = found["workload"]["kind"]
    limit, options = found["workload"][kind].get("deadline_days"), found["recommendations"]
    if limit is None or not options:
        assert "It meets the deadline" not in found["verdict"]
        return
    chance = options[0]["deadline_probability"]
    assert 0.0 <= chance <= 1.0 and options[0]["days"] <= limit
    assert f"It meets the deadline of {limit:g} days with {likely(chance)} probability." in found["verdict"]
    assert found["decision"]["slo_probability"] == chance


@pytest.mark.parametrize("written", [report.markdown, report.table, lambda a: report.documents.memo(a, 1).verdict])
def test_the_probability_is_in_every_document(written: Callable[[Answer], str]) -> None:
    answer = Answer.read(result("pretrain"))
    assert "It meets the deadline of 30 days with " in " ".join(written(answer).split())


def test_spot_says_how_little_is_known_and_how_many_interruptions_are_too_many() -> None:
    first = answered("spot")["recommendations"][0]
    assert first["term"] == "spot" and "as spot instances" in answered("spot")["verdict"]
    (said,) = [w for w in first["warnings"] if w.startswith("spot:")]
    assert "interrupted every 227 hours" in said  # 1 / 0.0044
    assert "every 3.6 to every 14,286 hours" in said and "tco.spot-interruptions-per-instance-hour" in said
    assert "costs less" in said


def test_bought_machines_of_repeated_runs_are_kept_and_of_one_run_are_sold() -> None:
    said = result("bought")["verdict"]
    assert "bought for 24 months of runs" in said and "Purchases: $" in said
    assert (
        "months, and the first run starts then" in said
        and "Delivery takes about" in said
        and "purchase-lead-months" not in said
    )


def test_the_time_between_runs_is_the_longest_run() -> None:
    assert "up to 7 days, the time between two of them, are considered" in result("weekly")["verdict"]


def test_a_short_run_is_not_told_of_a_dollar_for_its_team() -> None:
    assert "minimum team" not in answered("adapters")["verdict"]


def test_a_size_that_gains_more_than_its_share_says_why() -> None:
    first = answered("adapters")["recommendations"][0]
    speeds = [point["tokens_per_s_per_accelerator"] for point in first["scaling"]]
    gains = any(more > 1.02 * fewer for fewer, more in pairwise(speeds))
    assert ("faster than each of" in first["scaling_said"]) == gains


@pytest.mark.parametrize("name", ["adapters", "spot", "large budget"])
def test_a_size_costs_the_same_in_the_sentence_and_in_the_table(name: str) -> None:
    first = answered(name)["recommendations"][0]
    said = re.search(r"Beyond ([\d,]+) accelerators \([^$]*(\$[\d,.]+)\)", first["scaling_said"])
    rows = {f"{point['accelerator_count']:,}": usd_text(point["usd_per_run"]) for point in first["scaling"]}
    assert said is None or rows[said[1]] == said[2]


def test_machines_that_are_owned_need_nothing_signed() -> None:
    found = answered("owned")
    first = found["recommendations"][0]
    assert first["provider"] == "owned" and first["accelerator_count"] <= 8
    assert "which you own" in found["verdict"] and first["money"]["plan"]["capex_usd"] == 0


@pytest.mark.parametrize(("method", "offered"), [("full", "method: lora"), ("lora", "method: qlora"), ("qlora", "")])
def test_where_nothing_fits_a_lighter_method_is_offered(method: str, offered: str) -> None:
    asked = {"method": method, "tokens": 1e7, "sequence_length": 131_072, "global_batch_tokens": 131_072}
    spec = parse(
        {
            "name": "long",
            "model": MODEL,
            "kind": "finetuning",
            "finetuning": asked,
            "constraints": {"accelerators": {"allow": ["rtx-4090"]}, "max_accelerators": 1},
        }  # fmt: skip
    )
    said = str(recommend(spec, take_snapshot(spec, default_organisation())))
    assert "Less memory is needed with" in said
    assert ("method: " in said) == bool(offered) and offered in said
