"""What looks like a mistake is held: units, layouts, physics, Little's law, cold starts, dates and lone outliers."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import date
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from advisor.evidence import checks, estimated
from advisor.fidelity import Row
from advisor.inputs import catalog_resources
from tests import measured_samples

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("frozen")]
TODAY = date(2026, 11, 27)
RUN = {"ttft_ms_mean": "90", "ttft_ms_p50": "70", "ttft_ms_p99": "400", "tpot_ms_mean": "7.4", "tpot_ms_p99": "9",
       "output_tokens_per_s": "2130", "total_tokens_per_s": "4260"}  # fmt: skip
BASE = {"accelerator_slug": "h200-sxm", "source_key": "lab", "attention_dp": "1", "framework": "vllm 0.19.0"}


@pytest.fixture(scope="module")
def catalog(frozen: None, django_db_blocker: Any) -> Any:
    with django_db_blocker.unblock():
        return catalog_resources()


def run(figures: Mapping[str, str] = RUN, name: str = "run", **changes: str) -> list[Row]:
    """The figures of one closed loop of 16 users, of Llama-3.1-8B in FP8 on one H200."""
    return [
        measured_samples.row(**{**BASE, "id": f"{name}:{metric}", "metric": metric, "value": value, **changes})
        for metric, value in figures.items()
    ]


def held(
    rows: list[Row], catalog: Any, alike: Mapping[str, str] | None = None, known: checks.Known | None = None
) -> dict[str, str]:
    each, skipped = estimated.scored(rows, catalog, {})
    assert not skipped
    return checks.suspicions([checked for _, checked in each], catalog, alike or {}, known or {}, TODAY)


def test_a_plausible_run_passes(catalog: Any) -> None:
    assert held(run(), catalog) == {}


LOADS = st.fixed_dictionaries(
    {
        "isl": st.sampled_from(["256", "1024", "8192"]),
        "osl": st.sampled_from(["128", "1024"]),
        "concurrency_or_batch": st.sampled_from(["1", "16", "64"]),
        "weights_dtype": st.sampled_from(["fp8", "bf16"]),
        "accelerator_slug": st.sampled_from(["h200-sxm", "mi300x", "b200"]),
        "framework": st.sampled_from(["vllm 0.19.0", "sglang 0.5.9", "an engine of its own 7"]),
    }
)
METRICS = st.sampled_from(
    ["ttft_ms_mean", "ttft_ms_p50", "ttft_ms_p99", "tpot_ms_mean", "tpot_ms_p50", "itl_ms_mean", "output_tokens_per_s"]
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(load=LOADS, metric=METRICS, speed=st.floats(0.02, 50.0), up=st.booleans())
def test_a_row_that_passes_is_held_in_a_unit_1000_times_off(
    load: dict[str, str], metric: str, speed: float, up: bool, catalog: Any
) -> None:
    """Whatever the figure is: it and the same figure in another unit cannot both pass."""
    (row,) = run({metric: "1"}, **load)
    reference = estimated.scored([row], catalog, {})[0][0][1].reference
    assert reference
    row = replace(row, value=reference * speed)
    wrong = replace(row, value=row.value * (1000 if up else 1 / 1000))
    assert held([row], catalog) or held([wrong], catalog)


@pytest.mark.parametrize("metric", ["ttft_ms_mean", "tpot_ms_mean", "output_tokens_per_s", "prefill_tokens_per_s"])
def test_a_row_that_is_as_the_engine_estimates_passes(metric: str, catalog: Any) -> None:
    (row,) = run({metric: "1"})
    reference = estimated.scored([row], catalog, {})[0][0][1].reference
    assert reference and held([replace(row, value=reference)], catalog) == {}


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(load=LOADS, n=st.integers(2, 64))
def test_a_row_that_passes_is_held_with_a_number_of_chips_that_contradicts_its_layout(
    load: dict[str, str], n: int, catalog: Any
) -> None:
    rows = run(**load)
    for tp, dp in ((1, 1), (2, 1), (1, 2)):
        right = [replace(row, tp=f"{tp}", attention_dp=f"{dp}", n_accelerators=f"{tp * dp}") for row in rows]
        assert not [reason for reason in held(right, catalog).values() if "ran on" in reason]
        wrong = [replace(row, n_accelerators=f"{n * tp * dp}") for row in right]
        assert held(wrong, catalog).keys() == {row.id for row in wrong}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"tp": "8", "n_accelerators": "4"}, "ran on 4 accelerators, but tp 8 x pp 1 x dp 1 is 8"),
        ({"tp": "1", "pp": "2", "n_accelerators": "1"}, "ran on 1 accelerators, but tp 1 x pp 2 x dp 1 is 2"),
        ({"n_accelerators": ""}, "does not say how many accelerators"),
        ({"date": "2027-01-01"}, "in the future"),
        ({"date": "2026-13"}, "which is not a valid year, month or day"),
        ({"date": "last week"}, "which is not a valid year, month or day"),
        ({"date": "1999"}, "before any serving engine"),
        ({"model_id": "deepseek-ai/DeepSeek-R1"}, "of weights on 1 x"),
    ],
)
def test_what_contradicts_itself_is_held(changes: dict[str, str], reason: str, catalog: Any) -> None:
    found = held(run({"tpot_ms_mean": "7.4"}, **changes), catalog)
    assert [text for text in found.values() if reason in text]


@pytest.mark.parametrize(
    ("metric", "value", "reason"),
    [
        ("tpot_ms_mean", "1.2", "reading the active weights takes"),
        ("itl_ms_mean", "0.1", "reading the active weights takes"),
        ("output_tokens_per_s", "20000", "16 requests cannot exceed"),
        ("total_tokens_per_s", "500000", "compute at most"),
        ("prefill_tokens_per_s", "400000", "compute at most"),
        ("ttft_ms_p50", "1.5", "compute at most"),
    ],
)
def test_no_row_is_faster_than_memory_and_compute_allow(metric: str, value: str, reason: str, catalog: Any) -> None:
    assert reason in "".join(held(run({metric: value}), catalog).values())


def test_an_impossible_figure_puts_its_whole_run_in_doubt(catalog: Any) -> None:
    found = held(run({**RUN, "tpot_ms_mean": "1.2"}), catalog)
    assert found.keys() == {f"run:{metric}" for metric in RUN}
    assert found["run:ttft_ms_p50"] == "belongs to a run whose tpot_ms_mean is impossible"


def test_the_output_of_a_closed_loop_follows_littles_law(catalog: Any) -> None:
    found = held(run({**RUN, "output_tokens_per_s": "600"}), catalog)
    assert found.keys() == {"run:output_tokens_per_s", "run:ttft_ms_mean", "run:tpot_ms_mean"}
    assert "Little's law" in found["run:output_tokens_per_s"]
    open_loop = {**RUN, "output_tokens_per_s": "600"}
    assert not held(run(open_loop, concurrency_or_batch="qps=0.6"), catalog).keys() & {"run:output_tokens_per_s"}


def test_a_cold_start_is_held_at_few_users(catalog: Any) -> None:
    cold = {"ttft_ms_mean": "700", "ttft_ms_p50": "70"}
    assert "warming up" in held(run(cold, concurrency_or_batch="1"), catalog)["run:ttft_ms_mean"]
    assert held(run(cold, concurrency_or_batch="64"), catalog) == {}  # the first burst of a closed loop


def test_a_median_above_its_99th_percentile_is_held(catalog: Any) -> None:
    assert held(run({"ttft_ms_p50": "500", "ttft_ms_p99": "400"}), catalog).keys() == {
        "run:ttft_ms_p50",
        "run:ttft_ms_p99",
    }


def test_a_lone_outlier_among_alike_runs_is_held(catalog: Any) -> None:
    usual = {1: "4.3", 4: "4.6", 8: "5.2", 16: "7.4", 32: "9", 64: "14"}
    rows = [
        row
        for users, tpot in usual.items()
        for row in run({"tpot_ms_mean": tpot}, f"c{users}", concurrency_or_batch=f"{users}")
    ]
    assert held(rows, catalog) == {}
    odd = run({"tpot_ms_mean": "110"}, "odd", concurrency_or_batch="16")
    assert "runs of this model, chip and engine suggest" in held([*rows, *odd], catalog)["odd:tpot_ms_mean"]


def test_a_lone_run_is_compared_with_those_of_the_catalog(catalog: Any) -> None:
    rows = run({"tpot_ms_mean": "110"})
    group = checks.group_of(estimated.scored(rows, catalog, {})[0][0][1])
    assert held(rows, catalog) == {}
    assert "what 5 runs" in held(rows, catalog, known={group: [0.1, 0.2, 0.3, 0.3, 0.4]})["run:tpot_ms_mean"]


def test_pools_apart_must_add_up(catalog: Any) -> None:
    pools = {"mode": "disagg", "tp": "", "prefill_pool": "workers=1;tp=2", "decode_pool": "workers=2;tp=2"}
    assert held(run({"tpot_ms_mean": "7"}, n_accelerators="6", **pools), catalog) == {}
    wrong = held(run({"tpot_ms_mean": "7"}, n_accelerators="8", **pools), catalog)
    assert wrong == {"run:tpot_ms_mean": "ran on 8 accelerators, but its pools have 2 and 4"}


def test_a_row_of_an_engine_that_the_catalog_lacks_is_checked_and_not_predicted(catalog: Any) -> None:
    rows = run({"tpot_ms_mean": "7.4"}, framework="ATOM 0.1.5")
    ((scored, checked),), _ = estimated.scored(rows, catalog, {})
    assert checked.reference and scored.prediction is None
    assert estimated.columns_of(scored)["note"] == "no prediction: no such framework: atom"
    assert held(run({"tpot_ms_mean": "7400"}, framework="ATOM 0.1.5"), catalog)


def test_the_same_figure_elsewhere_is_held(catalog: Any) -> None:
    found = held(run({"tpot_ms_mean": "7.4"}), catalog, {"run:tpot_ms_mean": "other:tpot"})
    assert found == {"run:tpot_ms_mean": "is identical to other:tpot"}
