"""Keep or sell: the forgone sale is counted, and there is one team for all ways."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.engine.fleet.portfolio import spared_team_usd_by_month
from advisor.engine.plans import STAFF
from advisor.engine.search import Question
from advisor.engine.search.planned import team_usd_per_hour
from advisor.engine.search.run import search
from advisor.engine.terms import usd_text
from advisor.engine.terms.machines.offer import Part
from tests.answer.test_demand_road import BIG, BUSY, answer, traffic
from tests.engine.catalog_sample import ASSUMED, catalog, chip, offer, question

SETTINGS = settings(max_examples=8, deadline=None, derandomize=True)
CHIPS = (chip("big"), chip("other"))
ASKED = question(requests_per_s_mean=1.0, requests_per_s_peak=2.0, variants="no", drafts=False)


def held(usd_per_hour: float, sale_usd: float = 0.0, later_usd: float = 0.0, count: int = 1):
    return replace(
        offer("big", usd_per_hour, 8, acquisition="own", term="owned"),
        held_instances=count,
        sale_usd=sale_usd,
        later_sale_usd=later_usd,
    )


def test_the_forgone_sale_is_what_selling_today_brings_more_than_selling_later() -> None:
    found = search(Question(ASKED, catalog(accelerators=CHIPS, offers=(held(2.0, 100_000.0, 40_000.0),)))).ranked[0]
    plan = found.planned.plan
    later = 40_000.0 * float(plan.prices.present(plan.prices.months))
    assert plan.forgone_usd == pytest.approx(100_000.0 - later)
    assert found.economic_usd_per_hour - found.usd_per_hour == pytest.approx(
        plan.forgone_usd / plan.prices.annuity / 730
    )
    assert not any("forgone" in name for name, _ in plan.part_payments)  # it is no payment


def test_a_sale_that_brings_much_lets_the_same_chip_be_rented_instead() -> None:
    rent = replace(offer("big", 8.0, 8), instance="rented")
    for sale, way in ((0.0, "owned"), (500_000.0, "on_demand")):
        assert search(Question(ASKED, catalog(offers=(held(5.0, sale), rent)))).ranked[0].offer.term == way


@given(st.integers(1, 40), st.sampled_from([0.0, 900.0, 5_000.0]))
@SETTINGS
def test_rented_and_owned_machines_have_the_same_team(machines: int, monthly: float) -> None:
    a = replace(ASSUMED, own_team_usd_per_month=monthly, rented_team_usd_per_month=monthly, rented_staff_ratio=1.0)
    staff = (Part(name="staff", usd_per_hour=0.3, group="running"),)
    own, rent = (replace(o, parts=staff) for o in (held(2.0), offer("big", 3.0, 8)))
    sold = catalog(offers=(own, rent), assumptions=a)
    teams = {team_usd_per_hour(Question(ASKED, sold), [(o, machines)]) for o in (own, rent)}
    assert teams == {max(monthly / 730 - 0.3 * machines, 0.0)}


def test_plans_that_share_a_team_pay_for_the_largest_one_only() -> None:
    prices = SimpleNamespace(months=3)
    plans = [
        SimpleNamespace(
            prices=prices,
            payments={STAFF: np.array([0.0, team, team, team])},
            part_payments={("minimum team", "running"): np.array([0.0, *[team - staff] * 3])},
        )
        for team, staff in ((1000.0, 100.0), (1000.0, 300.0), (1000.0, 0.0))
    ]
    spared = spared_team_usd_by_month(plans)
    assert sum(s[1] for s in spared) == pytest.approx(3 * 1000.0 - 1000.0)
    assert all(s[0] == 0.0 for s in spared)


@pytest.mark.django_db
@pytest.mark.usefixtures("frozen")
def test_one_of_two_servers_is_enough_and_the_answer_says_what_the_other_is_worth() -> None:
    found = answer(constraints={**BIG, "acquisition": ["own"]}, owned={"h100-sxm": 16}, traffic=traffic(**BUSY))
    (owned,) = found["owned"]
    if owned["idle_hosts"]:
        assert owned["advice"] == "keep" and "one of your two servers is enough" in owned["said"]
    assert owned["advice"] in ("keep", "sell")
    first = found["recommendations"][0]
    low, high = first["interval"]["usd_per_mtok_output"]
    assert f"({usd_text(low)[1:]} to {usd_text(high)[1:]}) per million output" in found["verdict"]  # one interval
    assert (first["term"] == "owned") == (owned["advice"] == "keep")
    team = found["team"]
    bill = sum(p["usd_per_month"] for p in first["money"]["parts"] if p["name"] in ("staff", "minimum team"))
    assert team["usd_per_month"] == pytest.approx(bill, abs=0.02)
