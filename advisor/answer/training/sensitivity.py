"""What moves the cost and the days of the first choice, over which range, and where another run wins."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from advisor.answer.money import price_ranges
from advisor.answer.training.certainty import turning_ratio
from advisor.answer.training.question import Question, name_of
from advisor.answer.training.sentences import count
from advisor.engine.plans import RENT
from advisor.engine.search import outward
from advisor.engine.terms import usd_text
from advisor.engine.training import goodput, spot_goodput
from advisor.engine.training_search import Candidate, cluster_of, deadline_days, duration
from advisor.inputs import number, rounded
from advisor.result import SensitivityBar

SPOT = "spot"
TOKENS = (0.5, 2.0)  # times the tokens of the question: what if, not a range of uncertainty
STEADY = 1e-3  # of the cost or the days: less is no bar


@dataclass(frozen=True, kw_only=True, slots=True)
class Moved:
    """The first choice at one end of a range."""

    usd: float  # present value
    days: float
    per_run: float  # payments for one run over the present value

    @property
    def usd_per_run(self) -> float:
        """As the verdict states it."""
        return self.usd * self.per_run


def paid_ratio(c: Candidate) -> float:
    return c.usd_per_run / c.usd_total if c.usd_total else 0.0


def sensitivity(q: Question, mfu: float) -> list[SensitivityBar]:
    """Bars of the first choice, with the values at which another run costs less. mfu: of the first choice."""
    ranked = q.found.ranked
    if not ranked:
        return []
    first = ranked[0]
    return [
        *speed_bar(q, first, mfu),
        *price_bar(q, first),
        *failure_bar(q, first),
        *goodput_bar(first),
        *tokens_bar(q, first),
        *deadline_bar(q, first),
    ]


def timed_share(c: Candidate) -> float:
    """Share of the cost that lasts as long as the run."""
    plan = c.planned.plan
    total = math.fsum(plan.total_by_month)
    fixed = sum(float(plan.payments[name].sum()) for name in ("capital", "resale", "commitment"))
    return max(min(1.0 - fixed / total, 1.0), 0.0) if total else 0.0


def longer(c: Candidate, ratio: float) -> Moved:
    """The run when it takes `ratio` times as long."""
    share = timed_share(c)
    usd = c.usd_total * (1 - share + share * ratio)
    return Moved(usd=usd, days=c.days * ratio, per_run=paid_ratio(c))


def turn(q: Question, name: str, chip: str = "") -> tuple[float | None, Candidate | None]:
    found = turning_ratio(q, name, chip)
    return (found[0], q.found.ranked[found[1]]) if found else (None, None)


def speed_bar(q: Question, first: Candidate, mfu: float) -> Iterator[SensitivityBar]:
    low, high = q.speed_distribution(first).ends
    at, rival = turn(q, "performance", first.trained.accelerator.slug)
    yield bar(
        "utilization (MFU) of the first choice", "model FLOPs over peak", (mfu, mfu * low, mfu * high),
        longer(first, 1 / low), longer(first, 1 / high), at if mfu else None, rival,
        f"{mfu * low:.1%} to {mfu * high:.1%} MFU", lambda at: f"{at * 100:.3g}% MFU",
    )  # fmt: skip


def price_bar(q: Question, first: Candidate) -> Iterator[SensitivityBar]:
    low, high = price_ranges(q, first.offer)
    plan = first.planned.plan
    moved = float(plan.payments[RENT].sum() + plan.payments["commitment"].sum() + plan.payments["capital"].sum())
    share = min(moved / max(math.fsum(plan.total_by_month), 1e-9), 1.0)
    at, rival = turn(q, "hardware" if first.offer.acquisition == "own" else "rent", first.trained.accelerator.slug)
    ends = [
        Moved(usd=first.usd_total * (1 + share * (r - 1)), days=first.days, per_run=paid_ratio(first))
        for r in (low, high)
    ]
    yield bar(
        "price of the first choice", "times today's price", (1.0, low, high), ends[0], ends[1], at, rival,
        f"{low:.3g} to {high:.3g} times today's price", "{:.3g} times today's price".format,
    )  # fmt: skip


def failure_bar(q: Question, first: Candidate) -> Iterator[SensitivityBar]:
    """Failures stop runs on every accelerator alike, so no break point is sought."""
    rate = q.reliability.failures.failures_per_chip_day
    low, high = (longer(first, first.goodput.fraction / failing(q, first, each)) for each in (rate.low, rate.high))
    if abs(high.days / low.days - 1.0) < STEADY:
        return
    yield bar(
        "failure rate", "failures per accelerator-day", (rate.value, rate.low, rate.high), low, high, None, None,
        f"{rate.low * 1e3:.2g} to {rate.high * 1e3:.2g} failures per 1,000 accelerator-days", str,
    )  # fmt: skip


def failing(q: Question, c: Candidate, failures_per_chip_day: float) -> float:
    """Goodput at another failure rate."""
    cluster = cluster_of(c.trained, (c.offer,), q.reliability, c.spare_hosts)
    cluster = replace(cluster, failures_per_chip_day=failures_per_chip_day)
    if c.offer.term == SPOT:
        return spot_goodput(cluster, q.reliability.spot, c.checkpoint).fraction
    return goodput(cluster, c.checkpoint).fraction


def goodput_bar(first: Candidate) -> Iterator[SensitivityBar]:
    r = first.goodput_range
    if r.high - r.low < 5e-3:
        return
    low, high = (longer(first, first.goodput.fraction / g) for g in (r.low, r.high))
    yield bar(
        "goodput", "fraction of the time", (first.goodput.fraction, r.low, r.high), low, high, None, None,
        f"{r.low:.1%} to {r.high:.1%}, with failures, repairs, restarts and storage at their ends", str,
    )  # fmt: skip


def tokens_bar(q: Question, first: Candidate) -> Iterator[SensitivityBar]:
    """Half and twice the tokens on the same machines, and the most tokens that end in time."""
    tokens, (at, rival) = q.task.tokens, turn(q, "load")
    low, high = (longer(first, ratio) for ratio in TOKENS)
    most = tokens * (deadline_days(q.workload) - first.delivery_days) / first.days
    limit = f"; up to {count(most)} tokens end within {deadline_days(q.workload):g} days"
    in_time = limit if most < tokens * TOKENS[1] else ""
    yield bar(
        "tokens", "tokens", (tokens, tokens * TOKENS[0], tokens * TOKENS[1]), low, high,
        at, rival, f"half to twice the tokens{in_time}",
        lambda at: f"{count(at)} tokens",
    )  # fmt: skip


def deadline_bar(q: Question, first: Candidate) -> Iterator[SensitivityBar]:
    """A cheaper run that a later deadline allows."""
    limit = q.task.deadline_days
    if limit is None:
        return
    late = [c for some in q.found.curves.values() for c in some if c.end_days > limit]
    cheaper = [c for c in late if c.usd_total < first.usd_total * 0.99]
    if not cheaper:
        return
    best = min(cheaper, key=lambda c: c.end_days)
    yield SensitivityBar(
        assumption="deadline",
        unit="days",
        value=rounded(limit, 4),
        low=rounded(limit, 4),
        high=rounded(best.end_days, 4),
        usd_per_month_low=rounded(first.usd_total, 4),
        usd_per_month_high=rounded(best.usd_total, 4),
        days_low=rounded(first.days, 4),
        days_high=rounded(best.days, 4),
        winner_after=best.trained.accelerator.slug,
        at_value=rounded(best.end_days, 4),
        at_change_fraction=rounded(best.end_days / limit - 1.0, 4),
        within_range=True,
        detail=f"{name_of(best)} costs {usd_text(best.usd_per_run)} if {best.end_days:,.3g} days are allowed",
    )


def bar(
    name: str, unit: str, values: tuple[float, float, float], low: Moved, high: Moved, ratio: float | None,
    rival: Candidate | None, span: str, said: Callable[[float], str],
) -> SensitivityBar:  # fmt: skip
    """values: used, low and high. ratio: to the used one, where the rival wins. span, said: range, value in words."""
    value, least, most = values
    at = None if ratio is None or rival is None else outward(value * ratio, value)
    inside = at is not None and least <= at <= most
    moves = f"{span}: {money_text(low, high)}{days_text(low, high)}"
    wins = ""
    if at is not None and rival is not None:
        beyond = "" if inside else ", outside this range"
        wins = f"; {name_of(rival)} wins {'below' if at < value else 'above'} {said(at)}{beyond}"
    return SensitivityBar(
        assumption=name,
        unit=unit,
        value=rounded(value, 4),
        low=rounded(least, 4),
        high=rounded(most, 4),
        usd_per_month_low=rounded(low.usd, 4),
        usd_per_month_high=rounded(high.usd, 4),
        days_low=rounded(low.days, 4),
        days_high=rounded(high.days, 4),
        winner_after=rival.trained.accelerator.slug if at is not None and rival is not None else None,
        at_value=number(at) if at is not None else None,
        at_change_fraction=number(ratio - 1.0) if at is not None and ratio is not None else None,
        within_range=inside,
        detail=f"{moves}{wins}",
    )


def money_text(low: Moved, high: Moved) -> str:
    """Both costs in the order of the range, which may fall."""
    return f"{usd_text(low.usd_per_run)} to {usd_text(high.usd_per_run)} per run"


def days_text(low: Moved, high: Moved) -> str:
    if abs(low.days / high.days - 1.0) < STEADY:
        return ""
    return f", {duration(low.days)} to {duration(high.days)}"
