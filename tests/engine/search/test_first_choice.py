"""The rule for what goes first, and the worth of a test: closed forms, and worlds in which the truth is known."""

from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.answer.choice import Candidate
from advisor.answer.choice.alternatives import arranged_by
from tests.laboratory.decisions import first_choice as rule
from tests.laboratory.decisions.first_choice import Sizing, Table

NORMAL = NormalDist()
DRAWS = 4096


def table(*settings: tuple[str, float, float]) -> Table:
    """(option, probability, cost) of each setting; safer settings hold wherever less safe ones do."""
    place = (np.arange(DRAWS) + 0.5) / DRAWS
    return Table(
        options=[option for option, _, _ in settings],
        holds=np.array([place <= probability for _, probability, _ in settings]),
        cost=np.array([np.full(DRAWS, cost) for _, _, cost in settings]),
    )


@pytest.mark.parametrize(
    ("settings", "first"),
    [
        ([("a", 0.49, 1.0), ("b", 0.3, 0.5)], None),  # nothing is likely enough
        ([("a", 0.6, 1.0), ("a", 0.9, 1.5)], 0),  # 0.6 x 1.0 + 0.3 x 1.5 + ... is over 10 % below 1.5
        ([("a", 0.6, 1.0), ("a", 0.9, 1.05)], 1),  # certainty for 5 %
        ([("a", 0.75, 1.0), ("b", 0.95, 1.05)], 1),
        ([("a", 0.85, 1.0), ("b", 0.95, 1.05)], 0),  # cheaper in over 90 % of the draws, so no tie
        ([("a", 0.7, 1.0), ("a", 0.75, 1.5), ("b", 0.99, 1.08)], 2),
        ([("a", 0.99, 1.0), ("b", 0.99, 0.5), ("c", 0.4, 0.1)], 1),
        ([("a", 0.9, 1.0), ("a", 0.8, 2.0)], 0),  # dearer and less sure: never
        ([("a", 1.0, 1.0), ("b", 1.0, 1.05)], 0),  # the cheapest beats it in every draw, so no tie
    ],
)
def test_which_setting_is_first(settings: list[tuple[str, float, float]], first: int | None) -> None:
    choice = rule.first_choice(table(*settings))
    assert (choice and choice.setting) == first
    if choice is not None:
        assert choice.tests[0] == first and sorted(choice.tests) == list(range(len(settings)))


def test_a_miss_costs_as_much_as_the_next_setting_that_holds() -> None:
    sizing = Sizing(table(("a", 0.5, 1.0), ("a", 0.75, 2.0), ("a", 1.0, 4.0), ("b", 1.0, 3.0)))
    assert sizing.cost(0).mean() == pytest.approx(0.5 * 1 + 0.25 * 2 + 0.25 * 4)  # stays with its option
    alone = Sizing(table(("a", 0.5, 1.0), ("b", 0.75, 3.0)))
    assert alone.cost(0).mean() == pytest.approx(0.5 * 1 + 0.25 * 3 + 0.25 * 3)  # nothing holds: the dearest


@pytest.mark.parametrize(("bars", "first"), [((), 0), ((0.7, 0.8), 1), ((0.9, 0.9), 2), ((0.99, 0.99), None)])
def test_the_probabilities_can_be_stated(bars: tuple[float, ...], first: int | None) -> None:
    choice = rule.first_choice(table(("a", 0.6, 1.0), ("a", 0.85, 1.4), ("a", 0.95, 2.0)), *bars)
    assert (choice and choice.setting) == first


# --- as in answers ------------------------------------------------------------------------------------------------


@st.composite
def sizes(draw: st.DrawFn) -> tuple[Table, tuple[float, float]]:
    """(chips with one or two sizes, the less safe first; the probabilities asked for)."""
    seed, chips, count = draw(st.integers(0, 2**32 - 1)), draw(st.integers(1, 5)), 64
    random = np.random.default_rng(seed)
    options, holds, cost = [], [], []
    for chip in range(chips):
        slow, usd = random.normal(0, 0.3, count), draw(st.floats(1, 3))
        bars = sorted(draw(st.lists(st.floats(-0.8, 0.8), min_size=1, max_size=2)))
        for step, bar in enumerate(bars):
            options.append(chip)
            holds.append(slow <= bar)
            cost.append(usd * draw(st.floats(1.0, 1.6)) ** step * np.exp(draw(st.floats(0, 0.5)) * slow))
    least = draw(st.sampled_from([0.3, 0.5, 0.8]))
    return Table(options=options, holds=np.array(holds), cost=np.array(cost)), (least, max(least, 0.8))


@given(sizes())
def test_answers_and_the_track_record_choose_the_same(asked: tuple[Table, tuple[float, float]]) -> None:
    found, (least, sure) = asked
    sizing = Sizing(found)
    choice = rule.first_choice(found, least, sure)
    options = [
        Candidate(
            usd=sizing.cost(s), probability=float(found.holds[s].mean()), seller=(str(found.options[s]), "x", "rent")
        )
        for s in sizing.frontier
    ]
    first = arranged_by("cost", options, least, sure)[1]
    answered = None if first.order[0] in first.fails else sizing.frontier[first.order[0]]
    assert (choice and choice.setting) == answered


# --- after a miss -------------------------------------------------------------------------------------------------


def test_after_a_miss_the_next_test_is_of_what_does_not_share_its_error() -> None:
    """Both settings of a fail together; of b nothing is known from them. Without a miss, a's second would be next."""
    z, w = np.random.default_rng(5).standard_normal((2, DRAWS))
    holds = np.array([z < 0.8, z < 0.9, w < 0.7])
    cost = np.array([np.full(DRAWS, usd) for usd in (1.0, 1.2, 1.5)])
    choice = rule.first_choice(Table(options=["a", "a", "b"], holds=holds, cost=cost))
    assert choice is not None and choice.tests == (0, 2, 1)


@given(sizes())
def test_each_setting_is_tested_once_the_first_choice_first(asked: tuple[Table, tuple[float, float]]) -> None:
    found, (least, sure) = asked
    choice = rule.first_choice(found, least, sure)
    if choice is not None:
        assert choice.tests[0] == choice.setting
        assert sorted(choice.tests) == list(range(len(found.options)))


# --- worlds in which the truth is known ---------------------------------------------------------------------------


def world(draw: np.random.Generator, count: int) -> tuple[Table, np.ndarray, np.ndarray]:
    """(the draws, whether each setting really holds, what it really costs): one more draw of the same model.

    Three chips with six sizes. The error of a chip is partly that of all chips.
    """
    sizes, chips = 6, 3
    base = np.exp(draw.normal(0, 0.2, chips)).repeat(sizes) * np.tile(1.25 ** np.arange(sizes), chips)
    price = np.exp(draw.normal(0, 0.2, chips)).repeat(sizes) / np.tile(1.2 ** np.arange(sizes), chips)
    shared, own = draw.normal(0, 0.1, count + 1), draw.normal(0, 0.1, (chips, count + 1)).repeat(sizes, axis=0)
    slower = np.exp(shared + own + draw.normal(0, 0.05, (chips * sizes, count + 1)))
    holds = base[:, None] * slower <= draw.uniform(1.2, 2.5)
    cost = price[:, None] * slower
    options = np.repeat(np.arange(chips), sizes).tolist()
    return Table(options=options, holds=holds[:, 1:], cost=cost[:, 1:]), holds[:, 0], cost[:, 0]


def test_first_choices_meet_limits_and_cost_as_often_and_as_much_as_stated() -> None:
    draw = np.random.default_rng(7)
    stated, met, expected, paid = [], [], [], []
    for _ in range(600):
        asked, holds, cost = world(draw, 512)
        choice = rule.first_choice(asked)
        if choice is None:
            continue
        stated.append(choice.probability)
        met.append(holds[choice.setting])
        order = [choice.setting, *Sizing(asked).next_ones(choice.setting)]
        held = [s for s in order if holds[s]]
        expected.append(choice.expected_cost)
        paid.append(cost[held[0]] if held else cost[order].max())
    error = np.std(met) / np.sqrt(len(met))
    assert np.mean(met) == pytest.approx(np.mean(stated), abs=3 * error)
    assert len(met) > 400 and 0.75 < np.mean(stated) < 0.95
    off = np.array(paid) / np.array(expected)
    assert off.mean() == pytest.approx(1.0, abs=3 * off.std() / np.sqrt(len(off)) + 0.005)


# --- the worth of a test ------------------------------------------------------------------------------------------


def unit_loss(u: float) -> float:
    return NORMAL.pdf(u) - u * NORMAL.cdf(-u)


@pytest.mark.parametrize("reliability", [1.0, 0.6, 0.0])
@pytest.mark.parametrize("ahead", [0.0, 0.5, 2.0])
def test_two_options_have_the_value_of_the_closed_form(reliability: float, ahead: float) -> None:
    """One option costs 10 for certain, the other 10 + ahead with a standard deviation of 1.

    A test whose result has this correlation with the cost is worth the unit normal loss integral (Raiffa and
    Schlaifer, Applied Statistical Decision Theory, 1961): s L(ahead / s) with s = the correlation.
    """
    draw = np.random.default_rng(3)
    z, noise = draw.standard_normal((2, 1 << 17))
    cost = np.array([np.full(len(z), 10.0), 10.0 + ahead + z])
    result = reliability * z + np.sqrt(1 - reliability**2) * noise
    expected = reliability * unit_loss(ahead / reliability) if reliability else 0.0
    assert rule.value_of_result(cost, result) == pytest.approx(expected, abs=0.006)


def test_a_result_that_changes_no_plan_is_worth_nothing() -> None:
    z = np.random.default_rng(1).standard_normal(DRAWS)
    cheaper_in_every_draw = np.array([5.0 + 0.1 * np.tanh(z), 7.0 + 0.1 * z])
    assert rule.value_of_result(cheaper_in_every_draw, z) == 0.0
    assert rule.value_of_result(np.array([5.0 + z]), z) == 0.0  # one plan
    assert rule.value_of_result(np.array([np.full(DRAWS, 9.0), 9.0 + z]), np.zeros(DRAWS)) < 0.02  # always the same


def test_a_result_is_worth_what_it_allows_beside_the_required_probability() -> None:
    """The cheap plan holds in 40 % of the draws, and a test tells which: until then it must not be first."""
    z = np.random.default_rng(2).standard_normal(1 << 16)
    holds = np.array([z <= NORMAL.inv_cdf(0.4), np.ones(len(z), bool)])
    cost = np.array([np.where(holds[0], 6.0, 10.0), np.full(len(z), 10.0)])
    assert rule.value_of_result(cost, z, holds) == pytest.approx(0.4 * 4.0, abs=0.02)
    assert rule.value_of_result(cost, np.random.default_rng(4).permutation(z), holds) < 0.05
