"""The decision of a portfolio: from its parts, with the budget of the drawn total."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.answer.portfolios.decision import action_of, with_amounts
from advisor.result import Answer
from tests.stored_answers import answers

ACTIONS = ("sign", "keep", "do_not_sign", "get_quote", "no_clear_winner")


def portfolio(shared: bool, owned: list[bool]) -> Answer:
    """A stored portfolio with these machines, owned or paid."""
    answer = next(a for a in answers().values() if a.portfolio and a.portfolio.money and a.portfolio.shared)
    assert answer.portfolio and answer.portfolio.money
    money = answer.portfolio.money
    items: list[Any] = [money.items[0].changed(action="keep" if kept else "rent") for kept in owned]
    fleet = answer.portfolio.shared if shared else None
    return answer.changed(portfolio=answer.portfolio.changed(money=money.changed(items=items), shared=fleet))


@given(st.lists(st.sampled_from(ACTIONS), max_size=4), st.booleans(), st.lists(st.booleans(), min_size=1, max_size=3))
def test_a_part_that_cannot_be_signed_holds_up_the_portfolio(
    actions: list[Any], shared: bool, owned: list[bool]
) -> None:
    found = action_of(portfolio(shared, owned), actions)
    assert (found == "do_not_sign") == ("do_not_sign" in actions)
    if found == "get_quote":
        assert "get_quote" in actions
    assert (found == "no_clear_winner") <= (not shared)
    if not set(actions) & {"do_not_sign", "get_quote", "no_clear_winner"}:
        assert found == ("keep" if all(owned) else "sign")


def test_the_budget_is_enough_in_four_of_five_draws() -> None:
    decision = portfolio(True, [False]).decide()
    assert decision is not None
    drawn = np.random.default_rng(3).lognormal(10.0, 0.4, 4096)
    found = with_amounts(decision, drawn)
    assert found.expected_usd_per_month == pytest.approx(drawn.mean(), rel=1e-3)
    assert (drawn <= found.budget_usd_per_month).mean() == pytest.approx(0.8, abs=0.001)
    assert with_amounts(decision, None).budget_usd_per_month is None
