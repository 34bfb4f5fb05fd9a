"""Which measured rows correct predictions, and that load tests stay with their organization."""

import math
from types import SimpleNamespace
from typing import Any

import pytest

from advisor import load_tests
from advisor.engine.calibration import Observed, Pooling, conditioning
from advisor.engine.search.limits import distributions
from advisor.engine.terms import LAYOUT, STACK, Place, correction
from advisor.inputs import measured
from advisor.load_tests import records
from advisor.models import LoadTest, Option
from catalog.models import EvidenceRow, Organisation, ScoredRow
from tests import sample_advice
from tests.sample_load_results import vllm, written

pytestmark = pytest.mark.django_db


def scored(**changes: Any) -> ScoredRow:
    values: dict[str, Any] = {
        "key": "row", "source_key": "lab", "metric": "tpot_ms_mean", "measured": 20.0, "predicted": 25.0,
        "bias_fraction": 0.25, "accelerator": "h200-sxm", "chips": 2, "model": "a/model", "framework": "vllm",
        "framework_version": "0.24.0", "weights_dtype": "fp8", "mode": "agg", "layout": "tp2 ep2", "isl": 1024.0,
        "osl": 256.0, "concurrency": 64.0, "client": "steady", "client_known": True, "phase": "serving",
    }  # fmt: skip
    return ScoredRow(**(values | changes))


@pytest.mark.parametrize(("changes", "wanted"), [
    ({}, "tpot"),
    ({"metric": "itl_ms_mean", "client": "burst"}, "tpot"),
    ({"metric": "ttft_ms_mean"}, "ttft"),
    ({"metric": "output_tokens_per_s", "phase": "offline", "client": "offline"}, "offline"),
    ({"metric": "output_tokens_per_s", "phase": "static", "client": "static"}, "static"),
    ({"metric": "tpot_ms_p99"}, ""),
    ({"client_known": False}, ""),
    ({"client": "poisson"}, ""),
    ({"layout": ""}, ""),
    ({"layout": "tp4 | dp8 ep8", "mode": "disagg"}, ""),
    ({"circumstance": "disputed"}, ""),
    ({"bias_fraction": None}, ""),
])  # fmt: skip
def test_only_rows_whose_situation_is_known_correct_predictions(changes, wanted):
    assert measured.class_of(scored(**changes)) == wanted


def test_an_error_is_that_of_a_time_also_for_throughput():
    slow, fast = scored(), scored(metric="output_tokens_per_s", phase="offline", client="offline")
    (time,) = measured.observed_of([slow], "tpot", {})
    (rate,) = measured.observed_of([fast], "offline", {})
    assert time.log_error == pytest.approx(math.log(20 / 25))
    assert rate.log_error == pytest.approx(math.log(25 / 20))
    assert time.place.layout == (2, 1, 2, 1)


def test_one_measurement_under_two_names_counts_once():
    """DeepSeek-V3 and DeepSeek-R1 have one shape; two sources published the same run under both names."""
    rows = [scored(model="a/v3"), scored(key="other", model="a/r1", source_key="lab2")]
    assert len(measured.observed_of(rows, "tpot", {"a/v3": "a/v3", "a/r1": "a/v3"})) == 1
    assert len(measured.observed_of(rows, "tpot", {})) == 2


def test_scopes_hold_each_stack_and_layout():
    place = Place(
        framework="vllm",
        version="0.24.0",
        model="m",
        chip="h200-sxm",
        format="fp8",
        layout=(2, 1, 1, 1),
        lengths=(20, 16),
    )
    rows = [Observed(key=str(i), place=place, log_error=0.2, group="g") for i in range(50)]
    pooling = Pooling(variances={STACK: 0.02, LAYOUT: 0.02}, noise=0.01, levels=(STACK, LAYOUT))
    scopes = measured.scopes_of(conditioning.Evidence(rows, pooling), (20, 16))
    here = correction(scopes, "h200-sxm", "vllm", "0.24.7", ("fp8",), (2, 1, 1, 1))
    beside = correction(scopes, "h200-sxm", "vllm", "0.24.7", ("fp8",), (8, 1, 1, 1))
    assert here.time_factor == pytest.approx(math.exp(0.2), rel=0.01)
    assert 1.0 < beside.time_factor < here.time_factor
    assert beside.log_sd > here.log_sd and here.level == LAYOUT and beside.level == STACK
    assert correction(scopes, "h100-sxm", "vllm", "0.24.0", ("fp8",), (2, 1, 1, 1)).time_factor == 1.0


def imported(**changes: Any) -> EvidenceRow:
    row = scored()
    values = {field: getattr(row, field) for field in ("metric", "accelerator", "model", "framework", "weights_dtype")}
    values |= {"mode": "agg", "layout": "tp2", "isl": 1024.0, "osl": 256.0, "concurrency": 1.0, "phase": "serving"}
    return EvidenceRow(**{"key": "row", "client": "steady", "measured": 40.0, "predicted": 10.0, **values, **changes})


@pytest.mark.parametrize(("changes", "error"), [
    ({}, math.log(4)),
    ({"metric": "tpot_ms_p50"}, math.log(4)),
    ({"metric": "output_tokens_per_s"}, -math.log(4)),
    ({"measured": 400.0}, math.log(4)),  # a mistake or another situation: no more than this
    ({"metric": "output_tokens_per_s", "concurrency": 64.0}, None),
    ({"metric": "ttft_ms_mean"}, None),
    ({"client": "poisson"}, None),
    ({"mode": "disagg"}, None),
    ({"layout": ""}, None),
    ({"predicted": None}, None),
    ({"accelerator": "mi300x", "model": "MiniMaxAI/MiniMax-M2.7", "source_key": "sglang_docs_cells"}, None),
])  # fmt: skip
def test_which_imported_figures_correct_predictions(changes: dict[str, Any], error: float | None):
    found = measured.imported_of([imported(**changes)], {})
    assert [o.log_error for o in found] == ([] if error is None else [pytest.approx(error)])


def test_a_run_counts_once_with_its_mean_time_per_token():
    rows = [imported(key=m, metric=m, measured=v) for m, v in (("tpot_ms_p50", 30.0), ("tpot_ms_mean", 20.0))]
    (found,) = measured.imported_of(rows, {})
    assert found.key == "tpot_ms_mean" and found.log_error == pytest.approx(math.log(2))


@pytest.mark.parametrize("ratio", [0.4, 0.9, 1.0, 1.2, 2.0, 4.0])
def test_a_contradiction_moves_the_prediction_and_widens_its_interval(ratio: float):
    """The interval of a corrected stack has the measured figure, and is the wider the further that is away."""
    pooling = measured.poolings()[measured.IMPORTED]

    def corrected(measured_ms: float) -> Any:
        rows = measured.imported_of([imported(measured=measured_ms)], {})
        scopes = measured.scopes_of(conditioning.Evidence(rows, pooling), (20, 16))
        scopes = {scope: values | {"imported": True} for scope, values in scopes.items()}
        return correction(scopes, "h200-sxm", "vllm", "0.33.0", ("fp8",), (2, 1, 1, 1))

    found, agreeing = corrected(10.0 * ratio), corrected(10.0)
    assert min(1.0, ratio) <= found.time_factor <= max(1.0, ratio)
    assert found.log_sd >= agreeing.log_sd and found.imported
    low, high = found.ratios
    assert low * found.time_factor < ratio < high * found.time_factor
    stored = {"interval:measured": {"tpot_low_ratio": 0.9, "tpot_high_ratio": 1.3}}
    timed = SimpleNamespace(timed=False, releases_since=9)
    lane: Any = SimpleNamespace(uncertain_ratio=2.0, correction=found, overhead=timed)
    known = distributions(stored, "measured", lane)
    assert known["tpot"].ends[1] / known["tpot"].ends[0] == pytest.approx(high / low, rel=0.01)


# --- an organization's own load tests ---------------------------------------------------------------------------


@pytest.fixture
def option() -> Option:
    return sample_advice.advice().options.get(rank=1)


def test_a_load_test_of_the_predicted_load_counts_for_its_organization_alone(option: Option) -> None:
    test, _ = load_tests.record(option, written(vllm(ttft=160, tpot=25)), "result.json")
    assert LoadTest.objects.get(pk=test.pk).comparable
    advice, model = option.advice, option.advice.workload.spec["model"]
    (own,) = measured.own_observed(model, advice.organisation)
    assert own.log_error == pytest.approx(math.log(25 / 18))
    assert own.place.site == measured.OWN
    other = Organisation.objects.create(name="Another", slug="another")
    assert measured.own_observed(model, other) == []


def test_a_load_test_of_another_load_counts_for_nobody_and_says_why(option: Option) -> None:
    test, _ = load_tests.record(option, written(vllm(rate=3)), "result.json")
    assert measured.own_observed(option.advice.workload.spec["model"], option.advice.organisation) == []
    effect = records.effect(test)
    assert effect["rows"] == []
    assert "another load" in effect["why_nothing"] and "requests/s: 3 measured, 6 predicted" in effect["why_nothing"]
