"""Owned machines are always an option: what they do alone, what they cost and what is missing."""

import pytest

from tests.answer.test_demand_road import BIG, BUSY, answer, traffic

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("frozen")]
ONE = {**BIG, "acquisition": ["own"]}


def test_machines_that_do_not_suffice_say_how_much_they_carry_and_how_many_more_it_takes() -> None:
    (few,) = answer(constraints=ONE, traffic=traffic(**BUSY), owned={"h100-sxm": 8})["owned"]
    assert few["suffices"] is False and few["rank"] is None
    assert 0 < few["carried_fraction"] < 1 and few["usd_per_month"] > 0 and few["hosts_used"] <= few["hosts"] == 1
    assert few["more_accelerators"] == 8 * few["more_hosts"] > 0
    assert f"{few['more_hosts']} more server" in few["missing"]
    there = answer(constraints=ONE, traffic=traffic(**BUSY), owned={"h100-sxm": 8 + few["more_accelerators"]})
    (enough,) = there["owned"]
    assert enough["suffices"] and enough["carried_fraction"] == 1 and not enough["missing"]
    option = there["recommendations"][enough["rank"] - 1]
    assert option["term"] == "owned" and option["usd_per_month"] == pytest.approx(enough["usd_per_month"], rel=1e-3)
    assert enough["usd_per_month"] > few["usd_per_month"]


def test_machines_that_suffice_are_an_option_wherever_they_rank() -> None:
    found = answer(
        constraints={**BIG, "accelerators": {"allow": ["h100-sxm", "a100-80gb-sxm"]}},
        objective="latency",
        owned={"a100-80gb-sxm": 8},
    )
    (owned,) = found["owned"]
    assert owned["suffices"] and owned["rank"]
    option = found["recommendations"][owned["rank"] - 1]
    assert (option["accelerator"], option["term"]) == ("a100-80gb-sxm", "owned")
    assert option["usd_per_month"] == owned["usd_per_month"]


def test_a_chip_that_cannot_hold_the_model_has_its_running_cost_and_the_reason() -> None:
    found = answer(constraints={**BIG, "accelerators": {"allow": ["h100-sxm", "t4"]}}, owned={"t4": 1})
    (owned,) = found["owned"]
    assert owned["suffices"] is False and owned["carried_fraction"] == 0 and owned["usd_per_month"] > 0
    assert "no number of these servers" in owned["missing"] and not owned["label"]
