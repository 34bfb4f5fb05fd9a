"""Compares answers with earlier ones of the same workload files, for a check of pull requests."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from advisor.report.screen.machines import short
from advisor.result import Answer, ApiOption, Option, TrainingOption
from advisor.templatetags.units import dollars

NOTHING = "nothing meets the limits"
LIMITS = {
    "ttft_ms_p95": ("ttft_ms", "p95 time to first token"),
    "tpot_ms_p95": ("tpot_ms", "p95 time per output token"),
    "e2e_ms_p95": ("e2e_ms", "p95 time of a request"),
}  # key of slo: attribute of an option, name


@dataclass(frozen=True, kw_only=True, slots=True)
class Record:
    """What is kept of an answer until the next check."""

    first: str  # the first choice: machines, way to pay, seller
    equals: tuple[str, ...] = ()  # choices that cost about the same
    usd: float | None = None
    per: str = "month"  # month or run
    margins: Mapping[str, float] | None = None  # key of slo -> share of the limit that is left; negative: missed
    prices_as_of: str = ""
    engine_version: str = ""

    @classmethod
    def read(cls, stored: Any) -> "Record":
        """Raises ValueError: it is not a record."""
        known = {field.name for field in fields(cls)}
        if not isinstance(stored, dict) or not {"first", "usd"} <= set(stored) <= known:
            raise ValueError("is not an answer that this command wrote")
        return cls(**{**stored, "equals": tuple(stored.get("equals") or ())})

    def stored(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, kw_only=True, slots=True)
class Allowed:
    """How far an answer may move."""

    cost_fraction: float
    margin_points: float  # of a limit: 0.1 is from 30 % to 20 % left


@dataclass(frozen=True, kw_only=True, slots=True)
class Move:
    """One difference between two answers."""

    text: str
    fails: bool


def record(answer: Answer, slo: Mapping[str, Any]) -> Record:
    """What to keep of an answer; slo: of its workload."""
    decision = answer.decision or answer.decide()
    known = Record(
        first=NOTHING,
        prices_as_of=answer.catalog.prices_as_of if answer.catalog else "",
        engine_version=answer.engine_version,
    )
    if decision is None or not answer.recommendations:
        fleet = answer.portfolio.money if answer.portfolio else None
        said = answer.portfolio.said if answer.portfolio and fleet else NOTHING
        return replace(known, first=said, usd=fleet.usd_per_month if fleet else None)
    option = answer.recommendations[0]
    tied = [o for o in answer.recommendations if o.rank in decision.tied_ranks and o is not option]
    monthly = decision.usd_per_run is None
    month = decision.usd_per_month if decision.expected_usd_per_month is None else decision.expected_usd_per_month
    return replace(
        known,
        first=short(option),
        equals=tuple(dict.fromkeys(short(o) for o in tied)),
        usd=month if monthly else decision.usd_per_run,
        per="month" if monthly else "run",
        margins=dict(margins(option, slo)),
    )


def margins(option: Option | ApiOption | TrainingOption, slo: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    for key, (attribute, _) in LIMITS.items():
        reached = getattr(getattr(option, attribute, None), "p95", None)
        if slo.get(key) and reached is not None:
            yield key, round(1.0 - reached / slo[key], 4)


def moves(before: Record, now: Record, allowed: Allowed) -> list[Move]:
    """What differs between two answers, what fails the check first."""
    found = [*of_first(before, now), *of_cost(before, now, allowed), *of_margins(before, now, allowed)]
    return sorted(found, key=lambda move: not move.fails)


def of_first(before: Record, now: Record) -> Iterator[Move]:
    if before.first == now.first:
        return
    equal = now.first in before.equals or before.first in now.equals
    note = ", which costs about the same" if equal else ""
    yield Move(text=f"first choice: {before.first} → {now.first}{note}", fails=not equal)


def of_cost(before: Record, now: Record, allowed: Allowed) -> Iterator[Move]:
    if before.usd is None or now.usd is None or before.per != now.per:
        return
    change = now.usd / before.usd - 1.0 if before.usd else float(now.usd > 0)
    if abs(change) >= 0.0005:
        text = f"cost a {now.per}: {dollars(before.usd)} → {dollars(now.usd)} ({change:+.1%})"
        yield Move(text=text, fails=abs(change) > allowed.cost_fraction)


def of_margins(before: Record, now: Record, allowed: Allowed) -> Iterator[Move]:
    was, left = before.margins or {}, now.margins or {}
    for key in LIMITS:
        if key in was and key in left and abs(was[key] - left[key]) >= 0.005:
            text = f"{LIMITS[key][1]}: {below(was[key])} → {below(left[key])} the limit"
            yield Move(text=text, fails=was[key] - left[key] > allowed.margin_points or left[key] < 0 <= was[key])


def below(margin: float) -> str:
    return f"{abs(margin):.0%} {'below' if margin >= 0 else 'above'}"


def comment(found: Mapping[str, list[Move] | None], now: Mapping[str, Record], allowed: Allowed) -> str:
    """The result of a check as Markdown for a pull request. None instead of moves: the file has no earlier answer."""
    failing = [name for name, each in found.items() if each and any(move.fails for move in each)]
    state = (
        f"{len(failing)} of {len(found)} workloads moved beyond the limits" if failing else "no workload moved beyond"
    )
    lines = [
        f"### Assay: {state}{'' if failing else ' the limits'}",
        "",
        "| workload | first choice | cost | what moved |",
        "|---|---|---:|---|",
    ]
    for name, each in found.items():
        one = now[name]
        cost = "" if one.usd is None else f"{dollars(one.usd)} a {one.per}"
        said = "new" if each is None else "<br>".join(f"{'❌ ' if m.fails else ''}{cell(m.text)}" for m in each) or "–"
        lines.append(f"| {cell(name)} | {cell(one.first)} | {cost} | {said} |")
    lines += [
        "",
        f"Limits: cost ±{allowed.cost_fraction:.0%}, margin to a limit −{allowed.margin_points:.0%} of it, same first "
        f"choice unless the costs are about the same. Prices as of {max(r.prices_as_of for r in now.values())}.",
    ]
    return "\n".join(lines)


def cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
