"""What would change the choice: each assumption's range, the cost at both ends, and where another run wins."""

import math
from collections.abc import Iterator

from advisor.answer.money import price_ranges
from advisor.answer.training.question import Question, speed_ratios
from advisor.engine.plans import RENT
from advisor.engine.training_search import Candidate
from advisor.inputs import number, rounded
from advisor.result import SensitivityBar


def sensitivity(q: Question) -> list[SensitivityBar]:
    """Bars of the first choice against the next one on another chip."""
    ranked = q.found.ranked
    if len(ranked) < 2:
        return []
    first, rival = ranked[0], ranked[1]
    return [
        *speed_bar(q, first, rival),
        *price_bar(q, first, rival),
        *goodput_bar(first, rival),
        *deadline_bar(q, first),
    ]


def timed_share(c: Candidate) -> float:
    """Share of the cost that lasts as long as the run."""
    plan = c.planned.plan
    total = math.fsum(plan.total_by_month)
    fixed = sum(float(plan.payments[name].sum()) for name in ("capital", "resale", "commitment"))
    return max(min(1.0 - fixed / total, 1.0), 0.0) if total else 0.0


def speed_bar(q: Question, first: Candidate, rival: Candidate) -> Iterator[SensitivityBar]:
    low, high = speed_ratios(q.snapshot, first.trained.basis)
    share = timed_share(first)
    rest = rival.usd_total / first.usd_total - (1.0 - share)
    at = share / rest if rest > 0 and share > 0 else None
    yield bar(
        "speed of the first choice", "times the estimate", low, high,
        first.usd_total * (1 - share + share / low), first.usd_total * (1 - share + share / high),
        at if at and at < 1 else None, rival,
    )  # fmt: skip


def price_bar(q: Question, first: Candidate, rival: Candidate) -> Iterator[SensitivityBar]:
    low, high = price_ranges(q.snapshot, first.offer)
    plan = first.planned.plan
    moved = float(plan.payments[RENT].sum() + plan.payments["commitment"].sum() + plan.payments["capital"].sum())
    share = min(moved / max(math.fsum(plan.total_by_month), 1e-9), 1.0)
    at = 1.0 + (rival.usd_total / first.usd_total - 1.0) / share if share else None
    yield bar(
        "price of the first choice", "times today's price", low, high, first.usd_total * (1 + share * (low - 1)),
        first.usd_total * (1 + share * (high - 1)), at if at and at > 1 else None, rival,
    )  # fmt: skip


def goodput_bar(first: Candidate, rival: Candidate) -> Iterator[SensitivityBar]:
    r, share = first.goodput_range, timed_share(first)
    if r.high - r.low < 5e-3:
        return
    ends = [first.usd_total * (1 - share + share * first.goodput.fraction / g) for g in (r.low, r.high)]
    yield SensitivityBar(
        assumption="goodput",
        unit="fraction of the time",
        value=rounded(first.goodput.fraction, 4),
        low=rounded(r.low, 4),
        high=rounded(r.high, 4),
        usd_per_month_low=rounded(ends[0], 4),
        usd_per_month_high=rounded(ends[1], 4),
        winner_after=None,
        at_value=None,
        at_change_fraction=None,
        within_range=False,
        detail="failures stop runs on every accelerator alike, so they hardly change the choice",
    )


def deadline_bar(q: Question, first: Candidate) -> Iterator[SensitivityBar]:
    """A cheaper run that a later deadline allows."""
    if q.task.deadline_days is None:
        return
    late = [c for some in q.found.curves.values() for c in some if c.days > q.task.deadline_days]
    cheaper = [c for c in late if c.usd_total < first.usd_total * 0.99]
    if not cheaper:
        return
    best = min(cheaper, key=lambda c: c.days)
    yield SensitivityBar(
        assumption="deadline",
        unit="days",
        value=rounded(q.task.deadline_days, 4),
        low=rounded(q.task.deadline_days, 4),
        high=rounded(best.days, 4),
        usd_per_month_low=rounded(first.usd_total, 4),
        usd_per_month_high=rounded(best.usd_total, 4),
        winner_after=best.trained.accelerator.slug,
        at_value=rounded(best.days, 4),
        at_change_fraction=rounded(best.days / q.task.deadline_days - 1.0, 4),
        within_range=True,
        detail=(
            f"{best.chips:,} x {best.trained.accelerator.name} costs ${best.usd_total:,.0f} if {best.days:,.3g} days "
            "are allowed"
        ),
    )


def bar(
    name: str, unit: str, low: float, high: float, usd_low: float, usd_high: float, at: float | None, rival: Candidate
) -> SensitivityBar:
    chip = rival.trained.accelerator
    inside = at is not None and low <= at <= high
    side = "below" if at is not None and at < 1 else "above"
    return SensitivityBar(
        assumption=name,
        unit=unit,
        value=1.0,
        low=rounded(low, 4),
        high=rounded(high, 4),
        usd_per_month_low=rounded(usd_low, 4),
        usd_per_month_high=rounded(usd_high, 4),
        winner_after=chip.slug if at is not None else None,
        at_value=number(at) if at is not None else None,
        at_change_fraction=number(at - 1.0) if at is not None else None,
        within_range=inside,
        detail=(
            f"{rival.chips:,} x {chip.name} wins {side} {at:.4g} {unit}{'' if inside else ', outside its range'}"
            if at is not None
            else f"no value of the {name} that was tried changes the choice"
        ),
    )
