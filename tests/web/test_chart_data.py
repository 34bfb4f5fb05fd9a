"""The data of interactive charts: every figure is one of the answer, whatever the version of the answer."""

import json
from typing import Any

import pytest

from advisor.result import Answer, CostPath, CostRanges, WaterfallStep
from advisor.web.answers.page import ranked_once
from advisor.web.interactive import chart_data, cost_charts, frontier_chart
from catalog.models import Scorecard, ScoredRow
from tests import sample_money

SPEC: dict[str, Any] = {
    "model": "none",
    "slo": {"ttft_ms_p95": 800, "tpot_ms_p95": 40},
    "constraints": {"max_usd_per_month": 20000},
}
HOSTED = {
    "provider": "acme", "name": "m", "accelerator": None, "as_of": "2026-11-01", "source": "s", "acquisition": "api",
    "basis": "published, not estimated", "usd_per_mtok_input": 0.1, "usd_per_mtok_cached_input": None,
    "usd_per_mtok_output": 0.4, "usd_per_mtok_blended": 0.2, "usd_per_month": 500.0, "discount_fraction": 0,
    "max_input_tokens": None, "published_output_tokens_per_s": 50.0, "speed_source": "s", "within_budget": True,
    "rank_by_cost": None, "break_even_tokens_per_month": None, "break_even_with": None,
    "break_even_within_capacity": None, "warnings": [],
}  # fmt: skip


def answer(**more: Any) -> Answer:
    return Answer.read({**sample_money.result(), "hosted": [HOSTED], **more})


def chart(found: Answer) -> dict[str, Any]:
    points = ranked_once(found.pareto, found.deployments)
    return frontier_chart.chart(found, SPEC, "/advice/1/options/", points).short


@pytest.mark.django_db
def test_the_frontier_chart_has_the_points_of_the_answer_and_their_ranges() -> None:
    found = answer()
    data = json.loads(json.dumps(chart(found)))
    keys = [metric["key"] for metric in data["metrics"]]
    ranked = {row["rank"]: row for row in data["rows"] if row.get("rank")}
    assert sorted(ranked) == [option.rank for option in found.deployments]
    for option in found.deployments:
        figures = dict(zip(keys, ranked[option.rank]["figures"], strict=True))
        assert figures["usd_per_mtok_output"] == pytest.approx(option.usd_per_mtok_output)
        assert ranked[option.rank]["ranges"]["tpot_ms"] == pytest.approx(option.interval.tpot_ms_p95)
        low, high = ranked[option.rank]["ranges"]["output_tokens_per_s_per_user"]
        assert low < 1000 / (option.tpot_ms.mean or 1) < high + 40
    assert {row["state"] for row in data["rows"]} == {"ranked", "estimate", "missed", "api"}
    assert "usd_per_month" not in keys, "an answer of an earlier version has no such figure in its points"


@pytest.mark.django_db
def test_a_hosted_api_is_drawn_by_its_published_figures_and_is_not_a_p95() -> None:
    data = chart(answer())
    (row,) = [row for row in data["rows"] if row["state"] == "api"]
    figures = dict(zip([metric["key"] for metric in data["metrics"]], row["figures"], strict=True))
    assert (figures["tpot_ms"], figures["usd_per_mtok_output"]) == (20, 0.4)
    assert "not a p95" in row["note"] and "rank" not in row
    slow = chart(answer(hosted=[{**HOSTED, "published_output_tokens_per_s": 5.0}]))
    assert not [row for row in slow["rows"] if row["state"] == "api"], "far slower than the SLO"


@pytest.mark.django_db
def test_machines_that_are_owned_have_a_shape_of_their_own() -> None:
    options = sample_money.result()["recommendations"]
    options[1]["term"] = "owned"
    data = chart(answer(recommendations=options))
    assert {row["rank"]: row["state"] for row in data["rows"] if row.get("rank")}[2] == "owned"


def test_limits_are_those_of_the_workload() -> None:
    assert frontier_chart.limit_of("tpot_ms", SPEC) == {"value": 40, "name": "SLO"}
    assert frontier_chart.limit_of("output_tokens_per_s_per_user", SPEC) == {"value": 25, "name": "SLO"}
    assert frontier_chart.limit_of("usd_per_month", SPEC) == {"value": 20000, "name": "budget"}
    assert frontier_chart.limit_of("watts", SPEC) is None


def test_a_waterfall_ends_at_the_sum_of_its_parts() -> None:
    steps = [WaterfallStep(name=name, usd_per_mtok=usd) for name, usd in (("rent", 0.25), ("spare replicas", 0.5))]
    found = chart_data.cost_waterfall(steps)
    assert [(row["from"], row["to"]) for row in found.data["rows"]] == [(0, 0.25), (0.25, 0.75), (0, 0.75)]
    assert found.rows[-1] == ("a million tokens", "$0.75")


def test_payments_to_date_are_those_of_the_answer_with_the_range_of_the_plan() -> None:
    found = answer()
    money = found.deployments[0].money
    assert money
    paths = [
        CostPath(name="rent on_demand", cumulative_usd=[0, 10, 20]),
        CostPath(name="own", cumulative_usd=[50, 51, 40]),
    ]
    ranges = CostRanges.model_construct(total_usd=[10.0, 20.0, 40.0], usd_per_month=[1.0, 2.0, 4.0])
    option = found.deployments[0].changed(
        money=money.changed(paths=paths, ranges=ranges, usd_over_horizon=20.0), acquisition="rent"
    )
    made = cost_charts.break_even(option, found)
    assert made is not None and "<svg" in made.svg
    series = {each["name"]: each["points"] for each in made.data["series"]}
    assert [point[1] for point in series["rent by the hour"]] == [0, 10, 20]
    assert [point[1] for point in series["buy"]] == [50, 51, 40]
    assert series["rent by the hour, 90% range"][-1] == [2, 10, 40]
    assert made.columns == ("Month", "Rent by the hour", "Buy") and made.rows[-1] == ("2", "$20.00", "$40.00")
    assert all(f">{name}</text>" in cost_charts.at_a_glance(option) for name in ("Rent the same", "Buy"))
    kept = option.changed(provider="owned")
    assert ">Keep</text>" in cost_charts.at_a_glance(kept) and ">Buy</text>" not in cost_charts.at_a_glance(kept)
    assert cost_charts.break_even(option.changed(money=money), found) is None, "an answer of an earlier version"


def test_cost_over_the_load_passes_through_the_answers_own_figures() -> None:
    found = answer()
    option = found.deployments[0]
    made = cost_charts.cost_of_load(option, found)
    assert made is not None
    series = {each["name"]: each["points"] for each in made.data["series"]}
    ((tokens, usd, _),) = series["your load"]
    assert usd == option.usd_per_mtok_blended and tokens * usd / 1e6 == pytest.approx(option.usd_per_month)
    assert series["this option"][-1][1] == pytest.approx(option.usd_per_mtok_blended_at_capacity)
    assert {point[1] for point in series["API of acme"]} == {0.2}
    assert cost_charts.cost_of_load(option.changed(usd_per_mtok_blended_at_capacity=None), found) is None


@pytest.mark.django_db
def test_measured_runs_of_the_model_are_points_without_a_price() -> None:
    Scorecard.objects.create(digest="charts", engine_version="x", calibration="x", as_of="2026-11-01")
    known = {
        "source_key": "s", "accelerator": "h200-sxm", "chips": 4, "replica_chips": 4, "model": "acme/one", "isl": 1000,
        "framework": "vllm", "mode": "agg", "osl": 200, "concurrency": 8, "client": "closed", "client_known": True,
        "phase": "serving",
    }  # fmt: skip
    for number, (metric, measured) in enumerate((("tpot_ms_mean", 20.0), ("output_tokens_per_s", 400.0))):
        ScoredRow.objects.create(key=f"charts-{number}", metric=metric, measured=measured, predicted=1.0, **known)
    ScoredRow.objects.create(key="other", metric="tpot_ms_mean", measured=1.0, **known | {"model": "acme/two"})
    (row,) = frontier_chart.measured(answer(), {"model": "acme/one", "traffic": {}})
    figures = {key: figure for key, figure in row["figures"].items() if figure}
    per_chip = "output_tokens_per_s_per_accelerator_at_capacity"
    assert figures == {"tpot_ms": 20, "output_tokens_per_s_per_user": 50, per_chip: 100}
    assert row["state"] == "measured" and row["href"].startswith("/fidelity?id=charts-")
