"""A study file is checked as a whole: its errors name the workload and the field, and nothing is stored."""

from typing import Any

import pytest

from advisor.models import Study, StudyPiece
from advisor.studies import pieces, plan
from advisor.workload import WorkloadError
from catalog.models import default_organisation
from tests.clocks import TODAY
from tests.studies import sample

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("frozen")]


def errors_of(raw: dict[str, Any]) -> list[tuple[str, str]]:
    with pytest.raises(WorkloadError) as refused:
        pieces.request(raw, default_organisation(), awake=False)
    assert not Study.objects.exists() and not StudyPiece.objects.exists()
    return [(each["field"], each["message"]) for each in refused.value.errors]


def test_the_error_of_workload_37_names_it_and_its_field() -> None:
    raw = sample.workloads(60)
    raw["workloads"][37]["traffic"] = {"input_tokens": -5, "output_tokens": 20, "requests_per_s": {"mean": 1}}
    raw["workloads"][41] = {**raw["workloads"][41], "model": "no/such-model"}
    found = errors_of(raw)
    assert [field for field, _ in found] == ["workloads[37].traffic.input_tokens.mean", "workloads[41].model"]


@pytest.mark.parametrize(
    ("raw", "field", "said"),
    [
        ({}, "kind", "is required"),
        ({"kind": "sweep"}, "kind", "is not a kind of study"),
        ({"kind": "workloads", "workloads": []}, "workloads", "has too few entries"),
        ({"kind": "workloads"}, "workloads", "is required"),
        ({"kind": "workloads", "workloads": [sample.WORKLOAD], "wrong": 1}, "wrong", "unknown key"),
        ({"kind": "workloads", "workloads": ["a.yaml"]}, "workloads[0]", "must be"),
        (
            {"kind": "workloads", "workloads": [{"kind": "portfolio"}]},
            "workloads[0].kind",
            "portfolio",
        ),
        ({**sample.GRID, "grid": {}}, "grid", "has too few entries"),
        ({**sample.GRID, "grid": {"traffic.requests_per_s.mean": []}}, "grid.traffic", "has too few"),
        ({**sample.GRID, "grid": {"traffic.nothing": [1]}}, "grid[traffic.nothing=1].traffic.nothing", "unknown key"),
        ({**sample.GRID, "grid": {"model.config": [1]}}, "grid.model.config", "not a section"),
        ({**sample.GRID, "grid": {"seed": list(range(80)), "objective": ["cost"] * 80}}, "grid", "6,400 combinations"),
        ({**sample.GRID, "prices_as_of": "2026-13-01"}, "prices_as_of", "is not a date"),
        ({"kind": "prices", "workload": sample.WORKLOAD, "first_day": "2999-01-01"}, "first_day", "in the future"),
        (
            {"kind": "prices", "workload": sample.WORKLOAD, "first_day": "2026-05-01", "last_day": "2026-04-01"},
            "first_day",
            "is after last_day",
        ),
        ({"kind": "estimates", "models": ["none"], "isl": 100}, "models[0]", "none is not in the catalog"),
        ({"kind": "estimates", "accelerators": ["none"], "isl": 100}, "accelerators[0]", "none is not in the catalog"),
        ({"kind": "estimates"}, "isl", "is required"),
    ],
)
def test_what_a_study_cannot_be(raw: dict[str, Any], field: str, said: str) -> None:
    (found, message), *_ = errors_of(raw)
    assert found.startswith(field) and said in message, (found, message)


def planned(raw: dict[str, Any]) -> plan.Plan:
    return plan.planned(raw, default_organisation())


def test_a_grid_has_every_combination_once() -> None:
    grid = {"traffic.requests_per_s.mean": [1, 2, 4], "slo.tpot_ms_p95": [40, 60]}
    found = planned({**sample.GRID, "grid": grid})
    points = [point for piece in found.phases[1] for point in piece]
    assert [tuple(p["set"].values()) for p in points] == [(r, t) for r in (1, 2, 4) for t in (40, 60)]
    assert [p["asked"]["slo"]["tpot_ms_p95"] for p in points] == [40, 60] * 3
    assert found.axes == (("traffic.requests_per_s.mean", "float64"), ("slo.tpot_ms_p95", "float64"))
    assert {p["asked"]["prices_as_of"] for p in points} == {TODAY.isoformat()}


def test_a_mean_can_be_varied_where_the_workload_has_a_plain_number() -> None:
    found = planned({**sample.GRID, "grid": {"traffic.input_tokens.mean": [500, 1500]}})
    assert [piece[0]["asked"]["traffic"]["input_tokens"]["mean"] for piece in found.phases[1]] == [500, 1500]


def test_workloads_with_the_same_market_read_it_once() -> None:
    found = planned(sample.workloads(50))
    assert [len(piece) for piece in found.phases[0]] == [1, 1]  # one market, one model
    assert len(found.phases[1]) == 50


def test_days_of_a_year() -> None:
    days = {"first_day": "2026-01-31", "last_day": "2026-06-30"}
    found = planned({"kind": "prices", "workload": sample.WORKLOAD, **days})
    shown = [point["set"]["day"] for piece in found.phases[1] for point in piece]
    assert shown == ["2026-01-31", "2026-02-28", "2026-03-31", "2026-04-30", "2026-05-31", "2026-06-30"]
    weekly = planned({"kind": "prices", "workload": sample.WORKLOAD, "every": "week", **days})
    assert weekly.points == 22


def test_all_models_by_all_accelerators_are_packed() -> None:
    found = planned({"kind": "estimates", "isl": 1000, "osl": 100, "weights": ["bf16", "fp8"]})
    assert found.points > 2000 and len(found.phases[1]) == -(-found.points // plan.ESTIMATES)
    assert [point["index"] for piece in found.phases[1] for point in piece] == list(range(found.points))
