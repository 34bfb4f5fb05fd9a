"""Errors, bias, intervals, groups and the order of chips, on predictions chosen by hand."""

import json
import math
from dataclasses import replace
from types import SimpleNamespace

import pytest

from advisor.engine.estimate.simulated import Estimate
from advisor.fidelity.scores import scoring
from tests.laboratory import summaries
from tests.measured_samples import CATALOG, row

MEASURED = SimpleNamespace(
    models=CATALOG.models,
    accelerators=CATALOG.accelerators,
    scopes={"interval:measured": {"tpot_low_ratio": 0.75, "tpot_high_ratio": 1.25}},
)


def scored(rows, *estimates):
    asked = []

    def estimator(cases):
        asked.extend(cases)
        return estimates if len(estimates) == len(cases) else [estimates[0]] * len(cases)

    return scoring.predict(rows, CATALOG, estimator), asked


def one(estimate, **changes):
    (only,), _ = scored([row(**changes)], estimate)
    return only


def test_the_error_is_relative_to_what_was_measured():
    s = one(Estimate(fits=1.0, tpot_mean_s=0.012), value="10")
    assert s.ape == pytest.approx(0.2) and s.ratio == pytest.approx(1.2)


@pytest.mark.parametrize(
    ("metric", "estimate", "expected"),
    [
        ("ttft_ms_p99", {"ttft_p99_s": 0.5}, 500),
        ("itl_ms_mean", {"itl_mean_s": 0.01}, 10),
        ("e2e_latency_s", {"e2e_s": 7.0}, 7),
        ("output_tokens_per_s_per_gpu", {"output_tokens_per_s": 800.0}, 100),
        ("weights_gib_per_accelerator", {"weights_bytes_per_chip": 2.0**31}, 2),
        ("kv_capacity_tokens", {"kv_capacity_tokens": 1e6}, 1e6),
        ("tflops_per_gpu", {"flops_per_s": 7e14}, 700),
    ],
)
def test_metrics_are_read_in_their_units(metric, estimate, expected):
    s = one(Estimate(fits=1.0, **estimate), metric=metric, n_accelerators="8", tp="8")
    assert s.prediction is not None and s.prediction.value == pytest.approx(expected)


def test_every_row_of_one_run_shares_one_estimate():
    rows = [row(id="a"), row(id="b", metric="ttft_ms_mean"), row(id="c", concurrency_or_batch="32")]
    _, asked = scored(rows, Estimate(fits=1.0, tpot_mean_s=0.01, ttft_mean_s=0.1))
    assert len(asked) == 2


def test_what_is_not_modelled_is_skipped_by_name():
    assert one(Estimate(fits=1.0, tpot_mean_s=math.nan)).skipped == "metric not modeled: tpot_ms_mean"
    assert one(Estimate(problem="no such framework: x")).skipped == "no such framework: x"


def test_a_run_said_not_to_fit_is_wholly_wrong():
    s = one(Estimate(fits=0.0, problem="does not fit"))
    assert s.ape == 1.0 and not s.skipped


def test_fits_compares_zero_and_one():
    fit = {"metric": "fits_in_memory", "source_key": "gpu_bench_llamacpp", "tp": ""}
    assert one(Estimate(fits=1.0), value="1", **fit).ape == 0
    assert one(Estimate(fits=1.0), value="0", **fit).ape == 1
    assert one(Estimate(fits=0.0), value="0", **fit).ape == 0


def test_an_interval_covers_or_does_not():
    rows = [row(id="in", value="10"), row(id="out", value="20"), row(id="none", metric="prefill_tokens_per_s")]
    estimate = Estimate(fits=1.0, tpot_mean_s=0.012, prefill_tokens_per_s=9.0, basis="measured")
    inside, outside, no_interval = scoring.predict(rows, MEASURED, lambda cases: [estimate] * len(cases))
    assert (inside.prediction.low, inside.prediction.high) == pytest.approx((9, 15))
    assert [s.in_interval for s in (inside, outside, no_interval)] == [True, False, None]


def test_without_a_calibrated_interval_of_its_basis_a_figure_has_none():
    estimate = Estimate(fits=1.0, tpot_mean_s=0.012, basis="datasheet")
    (only,) = scoring.predict([row()], MEASURED, lambda cases: [estimate])
    assert only.prediction.low is None and only.in_interval is None


def test_the_time_to_first_token_of_an_unknown_client_has_an_interval_of_its_own():
    case = scoring.case_of(row(metric="ttft_ms_mean"), CATALOG)
    unknown = scoring.case_of(row(metric="ttft_ms_mean", source_key="elsewhere"), CATALOG)
    assert scoring.interval_kind("ttft_ms_mean", case) == "ttft"
    assert scoring.interval_kind("ttft_ms_mean", unknown) == "ttft_unknown_client"


@pytest.mark.parametrize("figure", ["ttft", "tpot"])
def test_only_means_of_closed_loops_make_the_interval_that_answers_use(figure):
    case = scoring.case_of(row(metric=f"{figure}_ms_mean"), CATALOG)
    assert scoring.interval_kind(f"{figure}_ms_mean", case) == figure
    assert {scoring.interval_kind(f"{figure}_ms_{at}", case) for at in ("p50", "p99")} == {f"{figure}_percentile"}
    for phase in ("prefill", "static", "offline"):
        assert scoring.interval_kind(f"{figure}_ms_mean", replace(case, phase=phase)) == f"{figure}_{phase}"


def test_summary_gives_median_tail_and_bias():
    rows = [row(id=str(i), value=value, concurrency_or_batch=str(i)) for i, value in enumerate(("10", "8", "5"), 1)]
    results, _ = scored(rows, Estimate(fits=1.0, tpot_mean_s=0.01))
    figures = summaries.summary(results)
    assert figures["n"] == 3
    assert figures["median_ape"] == pytest.approx(0.25)
    assert figures["p90_ape"] == pytest.approx(0.85)
    assert figures["bias"] == pytest.approx(0.25)


def test_a_large_group_counts_once_among_groups():
    many = [row(id=f"m{i}", value="10", concurrency_or_batch=str(i)) for i in range(1, 10)]
    other = [row(id="o", value="5", accelerator_slug="b200")]
    results, _ = scored(many + other, Estimate(fits=1.0, tpot_mean_s=0.01))
    figures = summaries.summary(results)
    assert figures["median_ape"] == 0 and figures["group_median_ape"] == pytest.approx(0.5)


def pair(measured, predicted):
    chips = ("h100-sxm", "b200")
    rows = [row(id=chip, accelerator_slug=chip, value=str(value)) for chip, value in zip(chips, measured, strict=True)]
    results, _ = scored(rows, *(Estimate(fits=1.0, tpot_mean_s=value / 1e3) for value in predicted))
    return summaries.ordered_pairs(results)


def test_pairs_of_chips_are_ordered_right_or_wrong():
    assert pair((20, 10), (15, 14)) == (1, 1)
    assert pair((20, 10), (14, 15)) == (0, 1)
    assert pair((20, 10), (15, 15)) == (0, 1)


def test_chips_that_measure_alike_are_no_pair():
    assert pair((10.5, 10), (1, 2)) == (0, 0)


def test_different_lengths_are_no_pair():
    rows = [row(id="a", value="20"), row(id="b", accelerator_slug="b200", value="10", isl="8192")]
    results, _ = scored(rows, Estimate(fits=1.0, tpot_mean_s=0.01))
    assert summaries.ordered_pairs(results) == (0, 0)


def test_groups_carry_their_columns_and_count_what_they_skip():
    rows = [row(id="a"), row(id="b", accelerator_slug="b200"), row(id="c", task="training")]
    results, _ = scored(rows, Estimate(fits=1.0, tpot_mean_s=0.01))
    groups = summaries.grouped(results, ["accelerator_slug", "phase"])
    assert [(g["accelerator_slug"], g["phase"], g["n"], g["skipped"]) for g in groups] == [
        ("b200", "serving", 1, 0),
        ("h100-sxm", "serving", 1, 0),
        ("h100-sxm", "", 0, 1),
    ]


def test_the_report_is_strict_json_and_leaves_disputed_rows_out_on_the_second_line():
    rows = [row(id="good", value="10"), row(id="odd", value="1", concurrency_or_batch="8"), row(id="bad", value="nan")]
    results, _ = scored(rows, Estimate(fits=1.0, tpot_mean_s=0.01))
    figures = summaries.report(results, ["source_key"], {"odd": "contradicts itself"})
    json.dumps(figures, allow_nan=False)
    assert (figures["overall"]["n"], figures["undisputed"]["n"], figures["undisputed"]["disputed"]) == (2, 1, 1)
    assert figures["overall"]["skipped"] == 1 and figures["skipped_reasons"] == {"the value is not a number": 1}
    assert set(figures["rows"][0]) >= {
        "id", "metric", "measured", "predicted", "ape", "low", "high", "in_interval", "skipped"
    }  # fmt: skip
