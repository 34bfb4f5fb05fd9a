"""What the option page shows of how to run it: the optimization plan and the formats."""

from collections.abc import Sequence
from typing import Any

from advisor.result import CacheFormatChoice, FormatChoice, Option

FORMATS_SHOWN = 3  # in view; the others are closed
LOSS = 0.995  # a smaller gain is a loss


STATES = {
    "base": "start",
    "used": "in the plan",
    "possible": "possible",
    "hours": "fewer paid hours",
    "cited": "cited only",
    "not_here": "not applicable",
}
FORMAT_STATES = {
    "advised": "advised",
    "plan": "in the plan",
    "possible": "possible",
    "outside": "below your quality limit",
    "retrained": "needs training",
    "cannot": "does not run here",
}


def page(option: Option) -> dict[str, Any]:
    """What the option page shows of `tuning`; answers of earlier versions have none."""
    tuning = option.tuning
    plan = tuning.plan if tuning else None
    formats = with_state(tuning.formats) if tuning else []
    return {
        "tuning": tuning,
        "plan_losses": [s for s in plan.steps if s.state == "used" and (s.gain_ratio or 1) < LOSS and s.because]
        if plan
        else [],
        "tuning_steps": [(step, STATES[step.state]) for step in plan.steps] if plan else [],
        "formats": formats,
        "formats_first": formats[:FORMATS_SHOWN],
        "formats_rest": formats[FORMATS_SHOWN:],
        "cache_formats": with_state(tuning.cache_formats) if tuning else [],
    }


def with_state(choices: Sequence[FormatChoice | CacheFormatChoice]) -> list[tuple[Any, str]]:
    """Each choice with its state in words."""
    return [(choice, FORMAT_STATES[choice.state]) for choice in choices]
