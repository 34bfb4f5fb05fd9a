"""Answers, options and scenarios side by side: the rows of the comparison, what differs, and which value is best."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from advisor.engine.terms import kind_named
from advisor.inputs import what_if
from advisor.models import Advice
from advisor.report import ORIGINS, screen_of
from advisor.result import (
    FIGURES,
    GROUPS,
    Answer,
    ApiOption,
    Decision,
    Figure,
    Option,
    Scenario,
    ScenarioCost,
    TrainingOption,
)
from advisor.templatetags import figures
from advisor.templatetags.units import UNKNOWN, age_days, number, sig, words
from advisor.web.answers.plan_page import SCENARIOS
from advisor.web.form_fields import FIELDS
from advisor.workload import PORTFOLIO

Ranked = Option | ApiOption | TrainingOption
LETTERS = "ABCD"
LEAST, MOST = 2, len(LETTERS)
MAKES = {
    "tokens": "generates tokens",
    "vectors": "returns embeddings",
    "scores": "scores documents",
    "images": "generates images",
    "weights": "trains a model",
    PORTFOLIO: "shares a fleet among several workloads",
}


@dataclass(frozen=True, kw_only=True)
class Item:
    """One column: an answer with its first choice, one of its options, or an option in one scenario."""

    letter: str
    key: str  # in the address
    advice: Advice
    answer: Answer | None  # None: not finished
    rank: int | None = None  # None: the answer itself
    scenario: Scenario | None = None

    @property
    def option(self) -> Ranked | None:
        return self.answer.option(self.rank or 1) if self.answer else None

    @property
    def decision(self) -> Decision | None:
        """Of a portfolio, which ranks no options."""
        return self.answer.decide() if self.answer and self.answer.portfolio else None

    @property
    def scenario_cost(self) -> ScenarioCost | None:
        costs = self.scenario.costs if self.scenario else []
        return next((cost for cost in costs if cost.rank == (self.rank or 1)), None)

    @property
    def spec(self) -> dict[str, Any]:
        spec: dict[str, Any] = self.advice.workload.spec
        return spec

    @property
    def is_portfolio(self) -> bool:
        return bool(self.spec.get("kind") == PORTFOLIO)

    @property
    def is_job(self) -> bool:
        """Whether it works through a batch, whose requests all wait at the start."""
        return not self.is_portfolio and kind_named(self.spec.get("kind")).has_deadline

    @property
    def makes(self) -> str:
        return PORTFOLIO if self.is_portfolio else kind_named(self.spec.get("kind")).makes

    @property
    def kind_title(self) -> str:
        return "portfolio" if self.is_portfolio else kind_named(self.spec.get("kind")).title

    @property
    def part(self) -> str:
        """Which part of the answer it is."""
        said = "first choice" if self.rank in (None, 1) else f"option {self.rank}"
        return f"{said}, scenario {scenario_name(self.scenario)}" if self.scenario else said

    @property
    def assumed(self) -> str:
        """The ratios of the scenario; empty: none differ from the expected case."""
        ratios = self.scenario.ratios if self.scenario else {}
        return ", ".join(f"{words(name)} × {sig(ratio)}" for name, ratio in ratios.items())

    @property
    def trouble(self) -> str:
        """Why the column has no figures; empty: it has."""
        if self.answer is None:
            return f"This answer is {self.advice.state}; it has no figures yet."
        return "" if self.option or self.decision else "Nothing is feasible for this question."


def scenario_name(scenario: Scenario) -> str:
    return SCENARIOS.get(scenario.name, scenario.name).lower()


WAYS = {"own": "buy", "api": "use a hosted API"}  # the others are called by their names


def ways(item: Item) -> str:
    option, decision = item.option, item.decision
    if option:
        plan = option.money.plan if option.money else None
        steps = sorted(plan.steps, key=lambda step: -step.usd) if plan else []
        found = [step.action for step in steps] or [option.acquisition]
        if option.provider == "owned":
            found = found if steps else ["keep"]
    else:
        found = decision.ways if decision else []
    return " and ".join(dict.fromkeys(WAYS.get(way, way) for way in found))


def layout(item: Item) -> str:
    option = item.option
    if not isinstance(option, Option):
        return ""
    sizes = [("TP", option.tp), ("PP", option.pp), ("EP", option.ep), ("DP", option.dp)]
    return ", ".join(f"{name}{size}" for name, size in sizes if size > 1) or "one accelerator per replica"


def origin(item: Item) -> str:
    option = item.option
    if isinstance(option, ApiOption):
        return ORIGINS["api"]
    found = option.price_origin if option else item.decision.price_origin if item.decision else ""
    return ORIGINS.get(found, "not recorded")


def price_day(item: Item) -> str:
    day = item.option.price_as_of if item.option else item.decision.price_as_of if item.decision else ""
    return f"{day} ({age_days(day)} days old)" if day else ""


READ: dict[str, Callable[[Item], Any]] = {  # by the figure's path: what a reader compares in place of a field
    "ways": ways,
    "layout": layout,
    "price_origin": origin,
    "price_as_of": price_day,
}
IN_DECISION = {"first_probability": "best_probability"}  # other names of figures in the decision of a portfolio


def applies(figure: Figure, item: Item) -> bool:
    return figure.applies(item.makes) and (figure.jobs is None or figure.jobs is item.is_job)


def value_of(figure: Figure, item: Item) -> Any:
    """The figure of an item; None where it has none, such as most figures of a scenario."""
    if item.scenario and not figure.fixed:
        return getattr(item.scenario_cost, figure.scenario, None) if figure.scenario else None
    if figure.path in READ:
        return READ[figure.path](item)
    source, path = item.option or item.decision, figure.path
    if source is None:
        return None
    try:
        return source.figure(path if item.option else IN_DECISION.get(path, path))
    except KeyError:
        return None


def ends_of(figure: Figure, item: Item) -> tuple[float, float] | None:
    """Its 90% interval."""
    if item.scenario or item.option:
        return None if item.scenario or item.option is None else figures.ends(figure, item.option)
    pair = getattr(item.decision, f"{figure.path}_range", None)
    return (pair[0], pair[-1]) if pair else None


@dataclass(frozen=True, kw_only=True, slots=True)
class Cell:
    text: str
    value: Any = None
    ends: tuple[float, float] | None = None
    range: str = ""
    change: str = ""  # to the first column
    best: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    label: str
    cells: list[Cell]
    differs: bool


def rows(chosen: Sequence[Figure], items: Sequence[Item]) -> list[Row]:
    """The rows that say something about one of the items."""
    found = []
    one_work = len({item.makes for item in items}) == 1
    for each in chosen:
        values = [value_of(each, item) if applies(each, item) and not item.trouble else None for item in items]
        if all(value in (None, "", []) for value in values):
            continue
        ends = [ends_of(each, item) if value is not None else None for item, value in zip(items, values, strict=True)]
        best = best_of(each, values, ends) if one_work else [""] * len(values)
        texts = [shown(each, item, value) for item, value in zip(items, values, strict=True)]
        known = {said for said, value in zip(texts, values, strict=True) if value is not None}
        cells = [
            Cell(
                text=said,
                value=value,
                ends=pair,
                range=figures.spread(each, pair),
                change=change(values[0], value) if each.is_compared and place else "",
                best=mark,
            )
            for place, (said, value, pair, mark) in enumerate(zip(texts, values, ends, best, strict=True))
        ]
        found.append(Row(label=each.label, cells=cells, differs=len(known) > 1))
    return found


def shown(each: Figure, item: Item, value: Any) -> str:
    if value not in (None, "", []):
        return figures.shown(each, value)
    if item.trouble:
        return UNKNOWN
    if not applies(each, item):
        return "does not apply"
    if item.scenario and not each.fixed:
        return "not computed in a scenario"
    if isinstance(item.option, ApiOption):
        return "not published"
    return "not stated" if each.is_compared or each.better else "none"


def change(base: Any, value: Any) -> str:
    """How far a figure is from that of the first column: 12% less, 3.1 times."""
    old, new = number(base), number(value)
    if not old or new is None or isinstance(value, bool):
        return ""
    ratio = new / old
    if abs(ratio - 1) < 0.005:
        return ""
    if ratio >= 2:
        return f"{sig(ratio, 2)} times A"
    return f"{abs(ratio - 1):.0%} {'more' if ratio > 1 else 'less'} than A"


def best_of(each: Figure, values: Sequence[Any], ends: Sequence[tuple[float, float] | None]) -> list[str]:
    """The mark of the best value, which says if the 90% ranges of others reach it; none where all are equal."""
    known = {place: figure for place, value in enumerate(values) if (figure := number(value)) is not None}
    if not each.better or len(known) < LEAST or len({figures.shown(each, figure) for figure in known.values()}) == 1:
        return [""] * len(values)
    top = (min if each.better == "low" else max)(known.values())
    word = "lowest" if each.better == "low" else "highest"
    winners = {place for place, figure in known.items() if figures.shown(each, figure) == figures.shown(each, top)}
    pairs = [pair for place, pair in enumerate(ends) if pair and place in known]
    close = len(pairs) == len(known) and overlap(ends, winners)
    return [f"{word}, but the ranges overlap" if close and p in winners else word if p in winners else ""
            for p in range(len(values))]  # fmt: skip


def overlap(ends: Sequence[tuple[float, float] | None], winners: set[int]) -> bool:
    ours = [pair for place, pair in enumerate(ends) if pair and place in winners]
    others = [pair for place, pair in enumerate(ends) if pair and place not in winners]
    return any(a[0] <= b[1] and b[0] <= a[1] for a in ours for b in others)


def question(items: Sequence[Item], show_all: bool) -> list[Row]:
    """The fields of the questions: those that differ, or every one that is set."""
    return [
        Row(label=label_of(each.path), cells=[Cell(text=value, value=value) for value in each.values],
            differs=each.differs)
        for each in what_if.fields(asked(items))
        if show_all or each.differs
    ]  # fmt: skip


def asked(items: Sequence[Item]) -> list[dict[str, Any]]:
    """The questions; beside another kind, a portfolio by the names of its workloads."""
    if all(item.is_portfolio for item in items):
        return [item.spec for item in items]
    names = {item.key: [part["name"] for part in item.spec["workloads"]] for item in items if item.is_portfolio}
    return [item.spec | ({"workloads": names[item.key]} if item.key in names else {}) for item in items]


def label_of(path: str) -> str:
    """A field as the form calls it, else its path in the workload file."""
    return FIELDS[path].label if path in FIELDS else what_if.label_of(path) or path


def verdicts(items: Sequence[Item]) -> list[Row]:
    """The first screens of whole answers, line by line: what to sign, its cost, speed and evidence."""
    told = [verdict(item) for item in items]
    labels = dict.fromkeys(label for each in told for label in each)
    texts = [(label, [each.get(label, UNKNOWN) for each in told]) for label in labels]
    return [
        Row(label=label, cells=[Cell(text=text, value=text) for text in cells], differs=len(set(cells)) > 1)
        for label, cells in texts
    ]


def verdict(item: Item) -> dict[str, str]:
    """Label -> text; empty for anything but the first choice of a finished answer."""
    if item.answer is None or item.rank not in (None, 1) or item.scenario:
        return {}
    screen = screen_of(item.answer)
    lines: dict[str, list[str]] = {"What to sign": [screen.todo]}
    for fact in screen.facts:
        lines.setdefault(fact.label.removesuffix(" (p95)"), []).append(fact.text)
    return {label: " ".join(texts) for label, texts in lines.items()}


def groups(items: Sequence[Item]) -> list[tuple[str, list[Row]]]:
    """The groups of figures that have rows, the verdicts first."""
    grouped = [(title, [figure for figure in FIGURES if figure.group == title]) for title in GROUPS]
    told = verdicts(items)
    return [
        *([("Verdict", told)] if told else []),
        *((title, found) for title, chosen in grouped if (found := rows(chosen, items))),
    ]


def cautions(items: Sequence[Item]) -> list[str]:
    """What a reader must know before comparing these figures."""
    found = []
    if len({item.makes for item in items}) > 1:
        work = ", ".join(f"{item.letter} {MAKES[item.makes]}" for item in items)
        found.append(
            f"The items do different work: {work}. A row that does not apply to one of them says so, and no value is "
            "marked as the best."
        )
    elif any(each.differs for each in what_if.fields([item.spec for item in items])):
        found.append("The questions differ: a lower cost may pay for less work. See the first rows.")
    if any(item.scenario for item in items):
        found.append("A scenario computes costs alone. What to run is what the answer plans for the expected case.")
    if len({item.is_job for item in items}) > 1:
        found.append("A batch has no latency limits: its requests wait from the start. Latencies are left out there.")
    if len({item.spec.get("tco", {}).get("horizon_months") for item in items}) > 1:
        found.append("The horizons differ, and with them the months that totals and present values cover.")
    versions = {item.advice.engine_version for item in items if item.answer}
    if len(versions) > 1:
        found.append(f"Computed by engine versions {', '.join(sorted(versions))}. Re-run the older answers to compare.")
    days = sorted({str(item.advice.prices_as_of) for item in items if item.answer and item.advice.prices_as_of})
    if len(days) > 1:
        found.append(f"Prices are of different days: {', '.join(days)}.")
    return found


def table(items: Sequence[Item]) -> tuple[list[str], list[list[Any]]]:
    """Header and lines of the CSV: unrounded values with the ends of their 90% ranges."""
    names = ["group", "figure", "differs"]
    names += [f"{item.letter} {end}".strip() for item in items for end in ("", "low", "high", "best")]
    named = [each for item in items for each in (f"{item.advice.workload.name}: {item.part}", "", "", "")]
    lines: list[list[Any]] = [["", "item", "", *named]]
    for title, found in [("Question", question(items, show_all=True)), *groups(items)]:
        for row in found:
            cells = [each for cell in row.cells for each in (csv_value(cell), *(cell.ends or ("", "")), cell.best)]
            lines.append([title, row.label, "yes" if row.differs else "no", *cells])
    return names, lines


def csv_value(cell: Cell) -> Any:
    return cell.value if isinstance(cell.value, int | float) and not isinstance(cell.value, bool) else cell.text


def as_json(items: Sequence[Item]) -> dict[str, Any]:
    """The same for programs: unrounded values, with the texts of the page."""
    found = [("Question", question(items, show_all=True)), *groups(items)]
    return {
        "items": [
            {
                "letter": item.letter, "key": item.key, "advice": str(item.advice.pk),
                "name": item.advice.workload.name, "part": item.part, "trouble": item.trouble,
            }
            for item in items
        ],
        "cautions": cautions(items),
        "groups": [{"title": title, "rows": [row_json(row) for row in each]} for title, each in found],
    }  # fmt: skip


def row_json(row: Row) -> dict[str, Any]:
    cells = [
        {
            "value": csv_value(cell), "text": cell.text, "range": list(cell.ends) if cell.ends else None,
            "change": cell.change, "best": cell.best,
        }
        for cell in row.cells
    ]  # fmt: skip
    return {"label": row.label, "differs": row.differs, "cells": cells}
