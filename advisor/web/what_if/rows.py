"""The rows of a what-if, each from one source, and what they say: whether the winner changes, and where."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from advisor.inputs import what_if
from advisor.result import ApiOption, Option, QuickOption
from advisor.templatetags.units import dollars, ms, words
from advisor.web.what_if.controls import NUMERIC

SIMULATED = "simulated"
HALVINGS = 5  # of the ratio between the old and the new value
WHOLE = "max_chips"
FIGURES = {  # control without a value in the question -> the figure of the first option that it limits
    "budget": "usd_per_month",
    "ttft": "ttft_ms",
    "tpot": "tpot_ms",
    WHOLE: "accelerator_count",
}
Key = tuple[str, str]


@dataclass(frozen=True, kw_only=True)
class Shown:
    """One option with the figures of one source: a full answer, or the estimates."""

    key: Key  # what stays the same option when prices, limits or load change
    name: str
    label: str
    mark: str  # where its figures come from
    acquisition: str
    term: str
    provider: str
    accelerator: str | None
    price_as_of: str
    price_weakness: str
    accelerator_count: int | None
    usd_per_month: float
    usd_per_mtok: float | None
    ttft_ms: float | None
    tpot_ms: float | None
    watts: float | None
    meets_slo: bool | None

    @property
    def seller(self) -> str:
        """Who is paid, in words."""
        if self.acquisition == "api":
            return "hosted API"
        if self.term == "owned":
            return "already owned"
        if self.acquisition == "own":
            return "bought"
        return f"rented from {self.provider}, {words(self.term)}"


def shown(option: QuickOption | Option | ApiOption) -> Shown:
    if isinstance(option, QuickOption):
        mark, ttft, tpot = option.mark, option.ttft_ms_p95, option.tpot_ms_p95
    else:
        api = isinstance(option, ApiOption)
        mark = "published, not estimated" if api else SIMULATED
        ttft, tpot = (each.p50 if api else each.p95 for each in (option.ttft_ms, option.tpot_ms))
    api, kept = option.acquisition == "api", "owned" if option.term == "owned" else ""
    count = option.accelerator_count
    return Shown(
        key=("api", option.provider) if api else (kept, option.accelerator or ""),
        name=option.label.partition(",")[0] if api else f"{count:,} × {option.accelerator_name}",
        label=option.label,
        mark=mark,
        acquisition=option.acquisition,
        term=option.term,
        provider=option.provider,
        accelerator=option.accelerator,
        price_as_of=option.price_as_of,
        price_weakness=getattr(option, "price_weakness", ""),
        accelerator_count=count,
        usd_per_month=option.usd_per_month,
        usd_per_mtok=option.usd_per_mtok_blended,
        ttft_ms=ttft,
        tpot_ms=tpot,
        watts=option.watts,
        meets_slo=option.meets_slo,
    )


def best_of_each(options: Sequence[QuickOption] | Sequence[Option | ApiOption]) -> list[Shown]:
    """The options in order, without variants of one that stands before them."""
    found: dict[Key, Shown] = {}
    for option in options:
        each = shown(option)
        found.setdefault(each.key, each)
    return list(found.values())


@dataclass(frozen=True, kw_only=True)
class Row:
    """One option beside the same option under the original question, from the same source."""

    option: Shown
    rank: int
    before_rank: int | None  # None: it was not ranked
    more_fraction: float | None  # of the original monthly cost

    @property
    def moved(self) -> int:
        return (self.before_rank or self.rank) - self.rank

    @property
    def more_percent(self) -> float | None:
        return None if self.more_fraction is None else 100.0 * self.more_fraction


def rows_of(now: Sequence[Shown], before: Sequence[Shown]) -> list[Row]:
    old = {each.key: (rank, each) for rank, each in enumerate(before, 1)}
    rows = []
    for rank, each in enumerate(now, 1):
        before_rank, earlier = old.get(each.key, (None, None))
        more = each.usd_per_month / earlier.usd_per_month - 1 if earlier and earlier.usd_per_month else None
        rows.append(Row(option=each, rank=rank, before_rank=before_rank, more_fraction=more))
    return rows


# --- what they say ----------------------------------------------------------------------------------------------


def winner_said(now: Shown | None, before: Shown | None, changes: Sequence[str]) -> str:
    """Whether the winner changes, and at what."""
    at = "; ".join(map(at_value, changes))
    if now is None:
        return f"No option is left at {at}." if before else ""
    if before is None:
        return f"With {at}, {now.name} is first; the original question had no option."
    usd, old = dollars(now.usd_per_month), dollars(before.usd_per_month)
    if now.key != before.key:
        return f"The winner changes from {before.name} to {now.name} at {at}."
    if (now.name, now.provider, usd) == (before.name, before.provider, old):
        return f"The winner stays {now.name} at {usd} a month with {at}."
    return f"The same option wins with {at}: {now.name} at {usd} a month instead of {before.name} at {old}."


def at_value(change: str) -> str:
    """Load: 1 → 2 as it follows "at": load 2 (was 1)."""
    label, _, values = change.partition(": ")
    old, arrow, new = values.partition(" → ")
    if not arrow:
        return change
    return f"{label[:1].lower() + label[1:] if label[1:2].islower() else label} {new} (was {old})"


def answered_said(answered: Shown | None, estimated: Shown) -> str:
    """What the full answer puts first where the estimates for the same question put another option first."""
    if answered is None or answered.key == estimated.key:
        return ""
    return (
        f"The full answer to the original question puts {answered.name} first: it simulates the options and weighs"
        " their probability. Save the changed question and run it in full before you decide."
    )


def verdict_said(first: Shown) -> str:
    """The verdict on the new first option."""
    verdict = f"New verdict: {first.name}, {first.seller}, {dollars(first.usd_per_month)} a month"
    if first.ttft_ms is not None and first.tpot_ms is not None and first.acquisition != "api":
        verdict += f"; p95 TTFT {ms(first.ttft_ms)}, p95 TPOT {ms(first.tpot_ms)}"
    return f"{verdict} ({first.mark})."


@dataclass(frozen=True, kw_only=True)
class Moved:
    """The one control that was changed, with its number before and now; None: no number."""

    control: str
    old: float | None
    new: float | None


def only_number(before: Mapping[str, Sequence[str]], given: Mapping[str, Sequence[str]]) -> Moved | None:
    """The control that was changed, if it is the only one and holds a number."""
    moved = [name for name in given if name in before and words_of(given[name]) != [*before[name]]]
    if len(moved) != 1 or what_if.BY_NAME[moved[0]].reads not in NUMERIC:
        return None
    old, new = (what_if.number_of(words_of(each)) for each in (before[moved[0]], given[moved[0]]))
    return Moved(control=moved[0], old=old, new=new)


def words_of(values: Sequence[str]) -> list[str]:
    return [word.strip() for each in values for word in each.split(",") if word.strip()]


def turning_point(moved: Moved, first: Shown, winner: Callable[[str], Key | None]) -> float | None:
    """The value of a control from which on another option wins; None: it has no value to start from.

    winner: the key of the first option at a value. The original first option still wins at the old value.
    """
    limits = FIGURES.get(moved.control)
    start = moved.old or (getattr(first, limits) if limits else None)
    if not start or not moved.new:
        return None
    holds, changes = float(start), float(moved.new)
    for _ in range(HALVINGS):
        middle = math.sqrt(holds * changes)
        middle = round(middle) if moved.control == WHOLE else middle
        if middle in (holds, changes):
            break
        if winner(f"{middle:.6g}") == first.key:
            holds = middle
        else:
            changes = middle
    return changes
