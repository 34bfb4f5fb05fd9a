"""A portfolio that trains and serves: idle hours are used once, costs add up, and a run that fits nowhere says so."""

from typing import Any

import pytest

from advisor.answer import recommend
from advisor.inputs import check_catalog, take_snapshot, with_catalog_names
from advisor.result import Answer
from advisor.workload import parse

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("frozen")]
CHAT: dict[str, Any] = {
    "name": "chat",
    "model": "meta-llama/Llama-3.3-70B-Instruct",
    "traffic": {
        "input_tokens": 1500,
        "output_tokens": 400,
        "requests_per_s": {"mean": 12, "peak": 40},
        "load_curve": "office_hours",
    },
    "slo": {"ttft_ms_p95": 2000, "tpot_ms_p95": 50},
    "constraints": {"acquisition": ["own"], "accelerators": {"allow": ["h200-sxm", "mi300x"]}},
}
TUNE: dict[str, Any] = {
    "name": "tune",
    "kind": "finetuning",
    "model": "meta-llama/Llama-3.3-70B-Instruct",
    "finetuning": {"method": "lora", "tokens": 2e8, "every_days": 30},
    "constraints": {"accelerators": {"allow": ["h200-sxm", "mi300x"]}},
}
ON_B200 = {"accelerators": {"allow": ["b200"]}}


def answered(*parts: dict[str, Any]) -> Answer:
    spec = with_catalog_names(parse({"name": "both", "kind": "portfolio", "workloads": list(parts)}))
    check_catalog(spec)
    return recommend(spec, take_snapshot(spec))


@pytest.fixture(scope="module")
def both(django_db_setup: None, django_db_blocker: Any) -> Answer:
    with django_db_blocker.unblock():
        return answered(CHAT, TUNE, {**TUNE, "name": "tune-again"})


def test_runs_use_the_idle_hours_of_machines_that_are_paid_for(both: Answer) -> None:
    assert both.portfolio is not None
    first, second = both.portfolio.training
    assert {first.way, second.way} == {"idle_hours"} and first.service == "chat"
    assert first.hours_per_week is not None and second.hours_per_week is not None
    assert second.hours_per_week < first.hours_per_week  # what the first needs is taken
    assert 0 < first.usd_total < 100 and first.days < 30


def test_a_run_alone_pays_for_its_machines_and_saves_them_on_the_fleet(both: Answer) -> None:
    assert both.portfolio is not None
    by_name = {a.name: a for a in both.portfolio.alone}
    for run in both.portfolio.training:
        option = by_name[run.workload].option
        assert option is not None and option.usd_total is not None
        assert run.usd_total + run.saving_usd == pytest.approx(option.usd_total, abs=0.02)


def test_costs_of_all_workloads_alone_add_up(both: Answer) -> None:
    p = both.portfolio
    assert p is not None and p.money is not None
    options = [a.option for a in p.alone]
    assert p.alone_usd_per_month == pytest.approx(sum(o.usd_per_month for o in options if o), rel=1e-9)
    assert p.money.usd_per_month == pytest.approx(p.alone_usd_per_month, abs=0.05)
    assert sum(f.present_usd for f in p.money.cash_flow) == pytest.approx(p.money.npv_usd, abs=0.5)
    assert {item.for_workload for item in p.money.items} == {"chat", "tune", "tune-again"}


def test_a_run_that_fits_on_no_machine_of_the_service_stays_by_itself() -> None:
    p = answered(CHAT, {**TUNE, "constraints": ON_B200}).portfolio
    assert p is not None
    (run,) = p.training
    assert run.way == "alone" and run.saving_usd == 0 and "stays by itself" in run.said


def test_runs_without_a_service_are_added() -> None:
    answer = answered(TUNE, {**TUNE, "name": "other", "constraints": ON_B200})
    p = answer.portfolio
    assert p is not None and p.training == [] and p.shared is None and answer.is_feasible
    assert p.money is not None
    assert p.money.npv_usd == pytest.approx(sum(a.option.usd_total or 0 for a in p.alone if a.option), abs=0.05)
