"""A workload that cannot be used is refused at its field, with what is allowed."""

from typing import Any

import pytest

from advisor.workload.schema import parse
from advisor.workload.text import WorkloadError

GOOD: dict[str, Any] = {
    "model": "m",
    "traffic": {"input_tokens": 500, "output_tokens": 100, "requests_per_s": 2},
}


def refused(data: Any) -> dict[str, dict[str, str]]:
    with pytest.raises(WorkloadError) as caught:
        parse(data)
    return {error["field"]: error for error in caught.value.errors}


def with_traffic(**traffic: Any) -> dict[str, Any]:
    return {**GOOD, "traffic": {**GOOD["traffic"], **traffic}}


@pytest.mark.parametrize(
    ("data", "field", "says", "allowed"),
    [
        ({**GOOD, "modle": "x"}, "modle", "did you mean model", "traffic"),
        (with_traffic(request_per_s=3), "traffic.request_per_s", "did you mean requests_per_s", "users"),
        ({**GOOD, "objective": "costs"}, "objective", "did you mean cost", "latency"),
        (with_traffic(input_tokens=-4), "traffic.input_tokens.mean", "at least 1", ">= 1"),
        (with_traffic(input_tokens={"mean": 9, "p95": 2}), "traffic.input_tokens.p95", "below the mean", ">= 9"),
        (with_traffic(input_tokens={"mean": 10, "p95": 40}), "traffic.input_tokens.p95", "use a trace", "<= 38.7"),
        (with_traffic(requests_per_s={"mean": 9, "peak": 2}), "traffic.requests_per_s.peak", "below", ">= 9"),
        (with_traffic(input_tokens="many"), "traffic.input_tokens", "must be a number", "{mean, p95}"),
        (with_traffic(input_tokens=True), "traffic.input_tokens", "must be a number", ""),
        (with_traffic(input_tokens=float("nan")), "traffic.input_tokens", "finite", "finite"),
        (with_traffic(input_tokens=10**400), "traffic.input_tokens", "too many digits", "20 digits"),
        ({**GOOD, "model": {"config": {"hidden_size": 10**400}}}, "model.config.hidden_size", "too many digits", ""),
        (with_traffic(requests_per_s=None), "traffic.requests_per_s", "required", "users"),
        (with_traffic(users={"active": 5, "think_s": 1}), "traffic.users", "contradicts", "one of"),
        (with_traffic(load_curve=[1, 2]), "traffic.load_curve", "too few", "168"),
        (with_traffic(load_curve=[0] * 168), "traffic.load_curve", "every hour", "above 0"),
        ({**GOOD, "slo": {"tpot_ms_p95": 0}}, "slo.tpot_ms_p95", "greater than 0", "> 0"),
        ({**GOOD, "team": {"cuad": 3}}, "team.cuad", "did you mean cuda", "rocm"),
        ({**GOOD, "owned": {"a100": 1.5}}, "owned.a100", "whole number", "whole"),
        ({**GOOD, "weights": {"cost": 0}}, "weights", "all zero", "above 0"),
        ({**GOOD, "constraints": {"acquisition": []}}, "constraints.acquisition", "too few", "at least 1"),
        ({**GOOD, "name": "a\x00b"}, "name", "cannot be stored", "Unicode"),
        ({**GOOD, "name": "\ud800"}, "name", "cannot be stored", "Unicode"),
        ({"kind": "training", "model": "m"}, "training", "required for kind training", ""),
        (
            {**GOOD, "training": None, "batch": {"requests": 1, "deadline_hours": 1}},
            "batch",
            "cannot be used",
            "kind: batch",
        ),
        ({}, "traffic", "required", ""),
    ],
)
def test_the_error_names_the_field_and_what_is_allowed(data: Any, field: str, says: str, allowed: str) -> None:
    errors = refused(data)
    assert field in errors, errors
    assert says in errors[field]["message"]
    assert allowed in errors[field]["allowed"]


def test_a_kind_that_trains_asks_for_its_section() -> None:
    for kind in ("training", "finetuning"):
        errors = refused({"kind": kind, "model": "m"})
        assert list(errors) == [kind] and errors[kind]["message"] == f"is required for kind {kind}"


@pytest.mark.parametrize(
    ("section", "field", "says"),
    [
        ({}, "training.tokens", "is required, or budget_usd"),
        ({"tokens": 1e9, "budget_usd": 1e5}, "training.tokens", "either tokens or budget_usd"),
        ({"tokens": 1e9, "global_batch_tokens": 4096}, "training.global_batch_tokens", "less than one sequence"),
        ({"tokens": 1e9, "every_days": 7, "deadline_days": 9}, "training.deadline_days", "runs would overlap"),
        ({"tokens": -1}, "training.tokens", "greater than 0"),
    ],
)
def test_a_run_that_contradicts_itself_is_refused_at_its_field(
    section: dict[str, float], field: str, says: str
) -> None:
    assert says in refused({"kind": "training", "model": "m", "training": section})[field]["message"]


def test_training_needs_machines_and_serves_no_requests() -> None:
    asked = {"kind": "training", "model": "m", "training": {"tokens": 1e9}}
    assert (
        "needs machines"
        in refused({**asked, "constraints": {"acquisition": ["api"]}})["constraints.acquisition"]["message"]
    )
    assert "serves no requests" in refused({**asked, "traffic": GOOD["traffic"]})["traffic"]["message"]


def test_both_allowed_and_denied_is_refused() -> None:
    choice = {"allow": ["nvidia"], "deny": ["nvidia"]}
    assert "both" in refused({**GOOD, "constraints": {"vendors": choice}})["constraints.vendors"]["message"]


def test_all_errors_come_at_once() -> None:
    assert set(refused({**GOOD, "objective": "x", "slo": {"ttft_ms_p95": -1}})) == {"objective", "slo.ttft_ms_p95"}


def test_what_is_not_finite_or_missing_hides_no_other_error() -> None:
    data = {"objective": "x", "traffic": {"input_tokens": float("nan"), "output_tokens": -1}}
    wanted = {"objective", "model", "traffic.input_tokens", "traffic.output_tokens.mean", "traffic.requests_per_s"}
    assert set(refused(data)) == wanted


def test_one_number_blames_its_mean_alone() -> None:
    assert set(refused(with_traffic(input_tokens=-4, requests_per_s=-1))) == {
        "traffic.input_tokens.mean",
        "traffic.requests_per_s.mean",
    }
