"""The closed-form ranking: it agrees with the full answer's candidates and prices, and follows its rules."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from advisor.answer import quick, recommend
from advisor.answer.quick import kept
from advisor.inputs import take_snapshot, what_if
from advisor.result import QuickRanking
from advisor.workload import WorkloadError, parse

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("frozen")]
CHIPS = ["h100-sxm", "mi300x", "l40s"]
COST_RATIO = 2.5  # the estimate plans for the mean of bursts; a simulated answer may need more replicas
TRAFFIC = {"input_tokens": 1000, "output_tokens": 200, "requests_per_s": 2}


def small(**values: Any) -> dict[str, Any]:
    raw = {
        "name": "small",
        "model": "meta-llama/Llama-3.1-8B",
        "traffic": TRAFFIC,
        "slo": {"ttft_ms_p95": 2000, "tpot_ms_p95": 60},
        "variants": "no",
        "constraints": {"accelerators": {"allow": CHIPS}, "frameworks": {"allow": ["vllm"]}},
    }
    return parse(raw | values)


def ranked(spec: dict[str, Any]) -> QuickRanking:
    return quick.quick_answer(spec)


def chips(ranking: QuickRanking) -> list[str]:
    return [o.accelerator for o in ranking.options if o.accelerator_count]


def test_the_options_are_those_of_the_full_answer_at_the_same_prices() -> None:
    spec = small()
    snapshot = take_snapshot(spec)
    full = {o.accelerator: o for o in reversed(recommend(spec, snapshot).deployments)}  # the best of each chip
    estimated = {o.accelerator: o for o in quick.quick_ranking(spec, snapshot).options if o.accelerator_count}
    assert full and set(full) <= set(estimated)
    for slug, option in full.items():
        other = estimated[slug]
        assert option.usd_per_month / COST_RATIO <= other.usd_per_month <= option.usd_per_month * COST_RATIO
        if (option.provider, option.instance) == (other.provider, other.instance):
            assert option.price_as_of == other.price_as_of


def test_hosted_apis_cost_what_they_cost_in_the_full_answer() -> None:
    spec = small(constraints={"accelerators": {"allow": []}, "acquisition": ["api"]}, slo={})
    snapshot = take_snapshot(spec)
    full = {o.provider: o.usd_per_month for o in recommend(spec, snapshot).serving_options}
    quickly = {o.provider: o.usd_per_month for o in quick.quick_ranking(spec, snapshot).options}
    assert full and quickly == full


def test_what_is_kept_gives_the_same_ranking_as_a_snapshot() -> None:
    spec = small()
    ranked(small(slo={"ttft_ms_p95": 900}))  # its lanes are kept
    assert ranked(spec).options == quick.quick_ranking(spec, take_snapshot(spec)).options


def test_more_budget_never_removes_an_option() -> None:
    first = ranked(small()).options[0].usd_per_month
    found: set[str] = set()
    for budget in (first * 0.5, first * 1.2, first * 3, first * 50):
        limits = {"accelerators": {"allow": CHIPS}, "frameworks": {"allow": ["vllm"]}, "max_usd_per_month": budget}
        ranking = ranked(small(constraints=limits))
        assert all(o.usd_per_month <= budget for o in ranking.options)
        assert found <= set(chips(ranking))
        found = set(chips(ranking))
    assert len(found) == len(CHIPS)


def test_a_vendor_filter_holds() -> None:
    ranking = ranked(what_if.changed(small(), {"vendor": ["amd"]}))
    assert chips(ranking) == ["mi300x"]
    assert {r.reason for r in ranking.rejected if r.accelerator == "h100-sxm"} == {"excluded"}


def test_more_load_never_costs_less() -> None:
    costs = [
        {o.accelerator: o.usd_per_month for o in ranked(what_if.changed(small(), {"load": [load]})).options}
        for load in ("1", "10", "40")
    ]
    for less, more in zip(costs, costs[1:], strict=False):
        assert less.keys() == more.keys()
        assert all(more[slug] >= less[slug] for slug in less)
    assert costs[2]["h100-sxm"] > costs[0]["h100-sxm"]


def test_prices_of_a_term_move_what_is_bought_at_them() -> None:
    constraints = small()["constraints"] | {"acquisition": ["rent"], "terms": ["on_demand"]}
    spec = small(constraints=constraints)
    before = {o.accelerator: o for o in ranked(spec).options}
    after = {o.accelerator: o for o in ranked(what_if.changed(spec, {"price_on_demand": ["2"]})).options}
    for slug, option in after.items():
        rent = after[slug].usd_per_month - before[slug].usd_per_month  # what does not follow the price stays
        assert 0 < rent <= before[slug].usd_per_month * 1.001, option.label


def test_owned_machines_are_listed_whether_they_suffice_or_not() -> None:
    enough, too_few = (
        ranked(small(owned={"h100-sxm": 8})),
        ranked(small(owned={"l40s": 1}, traffic={**TRAFFIC, "requests_per_s": 60})),
    )
    assert [(o.accelerator, o.suffices) for o in enough.owned] == [("h100-sxm", True)]
    assert any(o.term == "owned" for o in enough.options)
    assert [o.suffices for o in too_few.owned] == [False]
    assert "you own 1" in too_few.owned[0].detail or "latency limit" in too_few.owned[0].detail


def test_training_has_no_quick_ranking() -> None:
    run = parse({"kind": "finetuning", "model": "meta-llama/Llama-3.1-8B", "finetuning": {"tokens": 1e8}})
    with pytest.raises(WorkloadError, match="no quick ranking"):
        quick.quick_answer(run)


def test_it_needs_neither_numba_nor_torch() -> None:
    code = (
        "import os, sys, django\nos.environ['DJANGO_SETTINGS_MODULE'] = 'advisor.settings'\ndjango.setup()\n"
        "from advisor.engine.search import estimated_ranking\nfrom advisor.answer import quick\n"
        "sys.exit(', '.join(n for n in ('numba', 'torch', 'pandas') if n in sys.modules) or 0)"
    )
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_what_a_question_lacks_is_said() -> None:
    assert quick.missing_from({"kind": "serving"}) == [
        "model", "mean input tokens", "mean output tokens", "requests per second or users",
    ]  # fmt: skip


def test_memory_counts_the_requests_that_fit() -> None:
    for option in ranked(small()).options:
        held = option.memory
        assert held and held.requests_that_fit > 0 and held.context_tokens > 0
        assert 0 < held.used_gib <= held.limit_gib


def test_what_is_kept_of_one_model_does_not_correct_another(monkeypatch: pytest.MonkeyPatch) -> None:
    def scopes(spec: dict[str, Any], model: str, organisation: object) -> dict[str, Any]:
        return {f"conditioned:{model}:{spec.get('use_measurements')}": {}}

    monkeypatch.setattr("advisor.inputs.measured.scopes_of_spec", scopes)
    kept.forget()
    asked = [small(), small(model="Qwen/Qwen3-8B"), small(use_measurements="no")]
    found = [
        [name for name in kept.prepared(spec, None, "now").catalog.scopes if name.startswith("conditioned:")]
        for spec in asked
    ]
    kept.forget()
    assert found == [
        ["conditioned:meta-llama/Llama-3.1-8B:yes"],
        ["conditioned:Qwen/Qwen3-8B:yes"],
        ["conditioned:meta-llama/Llama-3.1-8B:no"],
    ]
