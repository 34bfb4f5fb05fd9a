"""What to do about a portfolio: the decision from those of its parts, and the bill to expect and to budget."""

from collections.abc import Sequence
from typing import Literal

import numpy as np

from advisor.answer.choice import BUDGET_QUANTILE
from advisor.inputs import rounded
from advisor.result import Answer, Decision

Action = Literal["sign", "keep", "do_not_sign", "get_quote", "no_clear_winner"]
WAITING: tuple[Action, ...] = ("do_not_sign", "get_quote", "no_clear_winner")  # the first that a part has counts


def decided(answer: Answer, parts: Sequence[Answer], drawn: np.ndarray | None = None) -> Answer:
    """The answer of a portfolio with its decision.

    drawn: its monthly cost in each draw, USD; None: not drawn.
    """
    decision = answer.decide()
    if decision is None:
        return answer
    known = [part.decision for part in parts if part.decision is not None]
    action = action_of(answer, [each.action for each in known])
    gate = next((each.gate for each in known if each.action == action and each.gate), None)
    return answer.changed(decision=with_amounts(decision.changed(action=action, gate=gate), drawn))


def action_of(answer: Answer, actions: Sequence[Action]) -> Action:
    """What one part cannot sign holds up the fleet; the fleet is kept where all of its machines are owned.

    On one shared fleet the ties of each part alone say nothing about which fleet is the cheapest.
    """
    shared = answer.portfolio is not None and answer.portfolio.shared is not None
    waiting = WAITING[:2] if shared else WAITING
    for action in waiting:
        if action in actions:
            return action
    money = answer.portfolio.money if answer.portfolio else None
    items = money.items if money else []
    return "keep" if items and not any(item.is_paid for item in items) else "sign"


def with_amounts(decision: Decision, drawn: np.ndarray | None) -> Decision:
    if drawn is None:
        return decision
    return decision.changed(
        expected_usd_per_month=rounded(float(drawn.mean())),
        budget_usd_per_month=rounded(float(np.quantile(drawn, BUDGET_QUANTILE))),
    )
