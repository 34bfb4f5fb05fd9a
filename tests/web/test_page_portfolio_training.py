"""A portfolio's page shows its training runs: machines, hours, days, cost, and what sharing saves."""

import re

from django.template.loader import render_to_string
from django.utils.html import strip_tags

from advisor.result import Portfolio, RunOnFleet
from advisor.templatetags.training import week_bar

IDLE = RunOnFleet(
    workload="weekly-lora", service="chat", way="idle_hours", accelerator="h100-sxm", accelerator_count=8, days=3.5,
    hours_per_week=84.0, usd_total=120.0, saving_usd=880.0, said="It trains at night.",
)  # fmt: skip
OWN = IDLE.changed(workload="pretrain", way="alone", hours_per_week=None, saving_usd=0.0, days=20.0, usd_total=5000.0)


def page(*runs: RunOnFleet) -> str:
    portfolio = Portfolio.model_construct(alone=[], shared=None, packed=None, money=None, training=list(runs))
    return render_to_string("advisor/_portfolio.html", {"result": {"portfolio": portfolio}})


def test_a_run_in_idle_hours_names_its_service_hours_days_and_saving() -> None:
    text = re.sub(r"\s+", " ", strip_tags(page(IDLE)).replace("\u00a0", " "))
    for said in ("weekly-lora", "8 × h100-sxm", "of chat", "84 idle hours of chat a week", "3.5 days", "$120", "$880"):
        assert said in text
    assert "around the clock" not in text


def test_a_run_by_itself_trains_around_the_clock_on_its_own_machines() -> None:
    text = re.sub(r"\s+", " ", strip_tags(page(OWN)).replace("\u00a0", " "))
    assert "its own" in text and "around the clock" in text and "20 days" in text and "–" in text


def test_the_bar_is_the_share_of_the_week() -> None:
    assert 'width="50.00"' in week_bar(84.0) and 'width="100.00"' in week_bar(None)


def test_a_portfolio_without_training_has_no_such_section() -> None:
    assert "Training runs" not in page()
