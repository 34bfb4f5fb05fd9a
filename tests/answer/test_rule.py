"""The order of options: probabilities first, then what can be told apart, then the rest by expected cost."""

import math
from dataclasses import replace
from statistics import NormalDist
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.answer.choice import Candidate, apart, arrange
from advisor.answer.choice.alternatives import arranged_by, price_ratio_to_win
from advisor.answer.money.settling import worth
from advisor.answer.money.uncertainty import with_sure_sale
from advisor.engine.search.certainty.joint import Costs
from advisor.engine.terms import Constraints

LEAST, SURE = 0.5, 0.8
DRAWS = 512
NORMAL = np.array([NormalDist().inv_cdf((k + 0.5) / DRAWS) for k in range(DRAWS)])


def spread(usd: float, seed: int = 0, width: float = 0.2) -> np.ndarray:
    """Costs with this mean; different seeds are independent."""
    z = np.random.default_rng(seed).permutation(NORMAL)
    drawn = np.exp(width * z)
    return np.asarray(usd * drawn / drawn.mean())


def one(expected: float, seed: int = 0, **given: Any) -> Candidate:
    fields = {
        "usd": spread(expected, seed),
        "probability": 0.9,
        "seller": (str(seed), "x", "rent"),
        "simplicity": (0.0,),
    }
    return Candidate(**(fields | given))


def test_the_cheapest_is_first_where_the_draws_tell_options_apart() -> None:
    found = arrange([one(200, 1), one(100, 2)], LEAST, SURE)
    assert (found.order, found.tied) == ((1, 0), ())


def test_an_option_below_even_chances_is_never_first() -> None:
    found = arrange([one(100, 1, probability=0.49), one(300, 2, probability=0.5)], LEAST, SURE)
    assert (found.order, found.fails) == ((1, 0), {0})


def test_what_commits_needs_more_than_what_is_rented_by_the_hour() -> None:
    found = arrange([one(100, 1, probability=0.7, commits=True), one(300, 2, probability=0.7)], LEAST, SURE)
    assert (found.order, found.fails) == ((1, 0), {0})


@pytest.mark.parametrize(("usd", "first"), [(109, 1), (112, 0)])
def test_a_sure_option_is_first_up_to_a_tenth_more(usd: float, first: int) -> None:
    same = [one(100, 1, probability=0.6, usd=spread(100, 1)), one(usd, 1, probability=0.85, seller=("2",))]
    assert arrange(same, LEAST, SURE).order[0] == first


def test_an_api_that_nobody_shows_to_meet_the_limits_is_last_and_listed() -> None:
    api = one(10, 3, probability=None, verified=False)
    found = arrange([one(100, 1), api], LEAST, SURE)
    assert (found.order, found.fails) == ((0, 1), {1})


def test_without_limits_an_api_needs_no_probability() -> None:
    assert arrange([one(100, 1), one(10, 3, probability=None)], LEAST, SURE).order == (1, 0)


def test_tied_options_go_by_the_soundness_of_their_price_and_what_keeps_machines_leads() -> None:
    options = [one(100, 1, weakness=1), one(103, 2), one(104, 3, keeps=True, weakness=1)]
    found = arrange(options, LEAST, SURE)
    assert (found.order, found.tied) == ((2, 1, 0), (1, 0))


@given(st.floats(50, 150), st.floats(0, 0.6))
def test_keeping_is_first_unless_something_else_saves_much_and_surely(usd: float, width: float) -> None:
    keep, other = one(100, 1, keeps=True, usd=spread(100, 1, width)), one(usd, 2, usd=spread(usd, 2, width))
    surely = float((other.usd < keep.usd).mean()) >= 0.9
    much = keep.expected_usd > 1.1 * other.expected_usd
    assert (arrange([other, keep], LEAST, SURE).order[0] == 0) == (much and surely)


def test_variants_of_one_choice_are_not_tied_with_each_other() -> None:
    found = arrange([one(100, 1), one(101, 1, usd=spread(101, 5))], LEAST, SURE)
    assert found.tied == ()


def test_an_option_that_the_cheapest_nearly_always_beats_is_not_tied() -> None:
    cheapest = one(100, 1)
    always = replace(cheapest, usd=cheapest.usd * 1.05, seller=("other",))
    assert arrange([always, cheapest], LEAST, SURE).tied == ()


def test_what_nobody_would_order_is_last_and_leads_only_alone() -> None:
    odd = one(10, 1, apart="more than 32 cards of a small chip")
    assert arrange([odd, one(100, 2), one(300, 3, probability=0.1)], LEAST, SURE).order == (1, 2, 0)
    assert arrange([odd], LEAST, SURE).order == (0,)


chances = st.one_of(st.none(), st.floats(0, 1))
options = st.lists(
    st.builds(
        one,
        expected=st.floats(1, 1e6),
        seed=st.integers(0, 5),
        probability=chances,
        commits=st.booleans(),
        keeps=st.booleans(),
        weakness=st.integers(0, 2),
        verified=st.booleans(),
        apart=st.sampled_from(["", "odd"]),
    ),
    min_size=1,
    max_size=8,
)


@given(options)
def test_the_rule_holds_for_any_options(options: list[Candidate]) -> None:
    found = arrange(options, LEAST, SURE)
    assert sorted(found.order) == list(range(len(options)))
    good = [k for k in range(len(options)) if k not in found.fails and not options[k].apart]
    first = options[found.order[0]]
    if not good:
        return
    least = min(options[k].expected_usd for k in good)
    assert found.order[0] in good
    assert first.keeps or first.expected_usd <= least * 1.1 * (1 + 1e-9)
    assert not set(found.tied) & found.fails
    for k in good:  # nothing that is surer, as sound and about as cheap stands behind the first
        c = options[k]
        if c.expected_usd <= least * (1 + 1e-9) and c.verified and (c.probability or 1.0) >= SURE:
            assert first.probability is None or first.probability >= SURE


@given(options, st.floats(0, 0.5))
def test_a_lower_bar_never_makes_the_first_choice_dearer(options: list[Candidate], bar: float) -> None:
    """Only among options that are alike in all but cost and probability."""
    alike = [replace(c, weakness=0, keeps=False, commits=False, apart="", verified=True) for c in options]
    strict, loose = (arrange(alike, least, 0.0) for least in (0.5, bar))
    if set(strict.fails) == set(range(len(alike))):
        return
    cost = [alike[a.order[0]].expected_usd for a in (strict, loose)]
    assert cost[1] <= cost[0] * 1.1 * (1 + 1e-9)


def test_the_worth_of_a_test_has_its_closed_form() -> None:
    """One option costs a known amount a, the other m + s z with z standard normal.

    Knowing z saves s (phi(d) - d (1 - Phi(d))) with d = |m - a| / s.
    """
    values, a, m, s = 20_001, 100.0, 104.0, 10.0
    z = np.array([NormalDist().inv_cdf((k + 0.5) / values) for k in range(values)])
    d, normal = abs(m - a) / s, NormalDist()
    exact = s * (normal.pdf(d) - d * (1 - normal.cdf(d)))
    assert worth(np.array([np.full(values, a), m + s * z])) == pytest.approx(exact, rel=1e-3)


@given(st.floats(1, 100), st.floats(0, 0.9))
def test_a_test_that_changes_no_choice_is_worth_nothing(usd: float, width: float) -> None:
    one = usd * np.exp(width * NORMAL)
    assert worth(np.array([one, one * 1.01])) == pytest.approx(0.0, abs=1e-9 * usd)
    assert math.isclose(worth(np.array([one])), 0.0)


# --- the price at which a quote would win -------------------------------------------------------------------------


def asked(most_usd: float | None = None) -> Any:
    slo = SimpleNamespace(confidence=LEAST, sure_confidence=SURE)
    constraints = SimpleNamespace(max_usd_per_month=most_usd)
    return SimpleNamespace(workload=SimpleNamespace(slo=slo, constraints=constraints, objective="cost"))


@settings(max_examples=30)
@given(options, st.floats(0.05, 1.0), st.one_of(st.none(), st.floats(10, 1e6)))
def test_up_to_the_price_to_win_an_option_is_first_and_above_it_is_not(
    options: list[Candidate], share: float, most_usd: float | None
) -> None:
    arranged = arranged_by("cost", options, LEAST, SURE)[1]
    if arranged.order[0] in arranged.fails:
        return
    ordered = [options[k] for k in arranged.order]
    ratio = price_ratio_to_win(asked(most_usd), SimpleNamespace(candidates=ordered), share)

    def first_at(ratio: float) -> bool:
        moved = replace(ordered[0], usd=ordered[0].usd * (1 + share * (ratio - 1)))
        within = most_usd is None or moved.expected_usd <= most_usd
        return within and arranged_by("cost", [moved, *ordered[1:]], LEAST, SURE)[1].order[0] == 0

    if ratio is None:
        assert first_at(100.0)
    elif ratio > 1e-2:
        assert first_at(ratio * (1 - 1e-6)) and not first_at(ratio * (1 + 1e-6))


def test_an_option_that_nothing_else_can_replace_wins_up_to_the_budget() -> None:
    alone = SimpleNamespace(candidates=[one(100, 1, apart="its price is over a year old"), one(50, 2, probability=0.1)])
    assert price_ratio_to_win(asked(), alone, 0.5) is None
    assert price_ratio_to_win(asked(150.0), alone, 0.5) == pytest.approx(2.0)


def test_what_exceeds_the_budget_is_never_first_while_something_does_not() -> None:
    found = arrange([one(100, 1, over_budget=True), one(300, 2)], LEAST, SURE)
    assert (found.order, found.fails) == ((1, 0), frozenset({0}))
    assert arrange([one(100, 1, over_budget=True)], LEAST, SURE).fails == frozenset({0})


def test_a_sale_counts_at_what_it_surely_brings() -> None:
    """Worked example: 100 to 1,100 forgone in equal steps, of which four of five draws bring at least 300."""
    paid, forgone = np.full(1001, 50.0), np.linspace(100.0, 1100.0, 1001)
    drawn = Costs(present_usd=paid, total_usd=paid, usd_per_month=paid, economic_usd_per_month=paid + forgone)
    assert with_sure_sale(drawn) == pytest.approx(np.full(1001, 350.0))


@pytest.mark.parametrize(("chassis", "instances", "asked", "set_apart"), [
    ("computer", 3, Constraints(), True),
    ("computer", 2, Constraints(), False),
    ("server", 3, Constraints(), False),
    ("computer", 3, Constraints(accelerators_allow=("board",)), False),
])  # fmt: skip
def test_a_rack_of_small_computers_is_ordered_only_by_name(chassis, instances, asked, set_apart) -> None:
    chip = SimpleNamespace(slug="board", chassis=chassis, memory_bytes=8e9)
    choice = SimpleNamespace(accelerator=chip, efficiency=SimpleNamespace(basis="measured"))
    offer = SimpleNamespace(term="purchase", over_a_year_old=False, orderable=True)
    option = SimpleNamespace(
        lane=SimpleNamespace(choice=choice), offer=offer, instances=instances, chips=instances, planned=None
    )
    assert bool(apart(option, asked)) is set_apart
