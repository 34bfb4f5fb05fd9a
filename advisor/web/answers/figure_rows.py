"""The figures of options on pages: the columns of the ranking, and the parts of an option's page."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from advisor.engine.terms import Kind, kind_named
from advisor.result import ApiOption, Figure, Option, Section, TrainingOption, shown_in
from advisor.templatetags import figures
from advisor.templatetags.training import share
from advisor.templatetags.units import dollars, given, in_currency, large, number, per_second, plain, sig, words

Ranked = Option | ApiOption | TrainingOption
NO_RANGE = ("watts",)  # columns too narrow for it


@dataclass(frozen=True, kw_only=True, slots=True)
class Fact:
    """A figure on a page: its label, in parts, its value, and the lines below or beside it."""

    label: str
    text: str
    term: str = ""  # entry of the glossary that the label links to
    hint: str = ""  # behind the label
    notes: tuple[str, ...] = ()
    source: str = ""


# --- the ranking ------------------------------------------------------------------------------------------------


def sorts(kind: Kind) -> dict[str, Figure]:
    """The figures that the ranking can be sorted by, by their key in the address."""
    return {figure.sort: figure for figure in shown_in("sort", kind.makes)}


def ordered(options: Sequence[Ranked], sort: str, kind: Kind) -> list[Ranked]:
    """By a column of the ranking, '-' before it for descending; unknown figures come last."""
    by = sorts(kind).get(sort.removeprefix("-"))
    if by is None:
        return list(options)
    pairs = [(number(option.figure(by.path)), option) for option in options]
    ranked = [(value, option) for value, option in pairs if value is not None]
    ranked.sort(key=lambda pair: pair[0], reverse=sort.startswith("-"))
    return [option for _, option in ranked] + [option for value, option in pairs if value is None]


def headers(sort: str, titles: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """For each sortable column: its title, the link's next value and aria-sort."""
    current = sort if sort.removeprefix("-") in titles else "rank"
    columns = {}
    for name, title in titles.items():
        here = current.removeprefix("-") == name
        state = ("descending" if current.startswith("-") else "ascending") if here else "none"
        columns[name] = {
            "title": in_currency(title),
            "next": f"-{name}" if state == "ascending" else name,
            "aria": state,
        }
    return columns


def titles(kind: Kind) -> dict[str, str]:
    return {name: figure.title or figure.label for name, figure in sorts(kind).items()}


def cell(option: Ranked, figure: Figure, changes: bool) -> Fact:
    value = option.figure(figure.path)
    notes = [] if figure.path in NO_RANGE else [figures.spread(figure, figures.ends(figure, option))]
    if value is None and figure.path.endswith(".p95"):
        value = option.figure(figure.path.replace(".p95", ".p50"))
        notes = ["median"] if value is not None else []
    notes += MORE[figure.path](option, changes) if figure.path in MORE else []
    return Fact(label=figure.label, text=figures.alone(figure, value), notes=tuple(filter(None, notes)))


def row(option: Ranked, wins: Sequence[str], kind: Kind, changes: bool = False) -> dict[str, Any]:
    """One line of the ranking; `changes`: the traffic changes over time."""
    cells = [cell(option, figure, changes) for name, figure in sorts(kind).items() if name != "rank"]
    return {"option": option, "wins": wins, "seller": seller(option), "cells": cells}


def seller(option: Ranked) -> str:
    """From whom it is and where: rented from aws · p5.48xlarge · us-east-1."""
    if isinstance(option, ApiOption):
        return f"hosted API, pay per token · serves from {option.region}"
    way = "already owned" if option.provider == "owned" else "bought" if option.acquisition == "own" else ""
    machine, term = option.instance, ""
    if isinstance(option, TrainingOption):
        machine = f"{plain(option.instances)} × {machine}"
        term = "" if option.term == "on_demand" else f", {words(option.term)}"
    place = "" if option.region in ("any", "own-site") else option.region
    return " · ".join(filter(None, (way or f"rented from {option.provider}{term}", machine, place)))


def payments(option: Ranked, changes: bool) -> list[str]:
    """What the plan buys and still owes, what the month is, and what one run of a batch costs."""
    plan = option.money.plan if option.money else None
    notes = [f"{dollars(plan.capex_usd)} capex"] if plan and plan.capex_usd else []
    notes += [f"{dollars(plan.liability_usd)} liability"] if plan and plan.liability_usd > 0 else []
    notes += ["mean month of the forecast"] if changes and isinstance(option, ApiOption) else []
    batch = option.batch if isinstance(option, Option) else None
    return notes + ([f"{dollars(batch.usd_per_run)} per run"] if batch and batch.usd_per_run else [])


def carbon(option: Ranked, changes: bool) -> list[str]:
    kgco2e = option.figure("kgco2e")
    return [f"{sig(kgco2e)} kg CO₂e"] if kgco2e else []


MORE: dict[str, Callable[[Ranked, bool], list[str]]] = {
    "usd_per_month": payments,
    "usd_per_run": payments,
    "kwh": carbon,
}


# --- the page of an option --------------------------------------------------------------------------------------

PARTS = ("tiles", "costs", "energy", "confidence")


def facts(option: Option | TrainingOption, spec: Mapping[str, Any]) -> dict[str, list[Fact]]:
    """The figures of each part of the page; those that the answer does not have are left out."""
    rows = [each for each in shown_in("page", kind_named(spec.get("kind")).makes) if has(option, each)]
    return {part: [fact(option, each, part, spec) for each in rows if part in each.page.split()] for part in PARTS}


def has(option: Section, figure: Figure) -> bool:
    """Whether the answer has the figure; null is an unknown one, but no probability and not in a section."""
    if "." in figure.path or figure.unit == "probability":
        return option.figure(figure.path) is not None
    return figure.path in option.model_fields_set


def fact(option: Option | TrainingOption, figure: Figure, part: str, spec: Mapping[str, Any]) -> Fact:
    value = option.figure(figure.path)
    notes = [figures.spread(figure, figures.ends(figure, option))] if part == "tiles" else []
    label, hint = label_of(option, figure.path, part, spec)
    made = Fact(
        label=label or figure.label,
        text=figures.shown(figure, value),
        term=figure.term,
        hint=hint or figure.hint if figure.hint or hint else "",
        notes=tuple(filter(None, [*notes, note_of(option, figure.path, part)])),
    )
    return powers(made, option) if figure.path == POWERS else made


POWERS = "money.energy.power_said"


def powers(made: Fact, option: Option | TrainingOption) -> Fact:
    """The power of a chip by what it does, and where that is from."""
    energy = option.money.energy if option.money else None
    if energy is None:
        return made
    said = "%(prefill)s W during prefill, %(decode)s W during decode, %(idle)s W idle"
    values = {name: sig(getattr(energy, f"chip_{name}_watts")) for name in ("prefill", "decode", "idle")}
    return replace(made, text=said % values, source=energy.power_said)


def label_of(option: Option | TrainingOption, path: str, part: str, spec: Mapping[str, Any]) -> tuple[str, str]:
    """(label, hint) where they depend on the option; empty: those of the figure."""
    every = option.every_days if isinstance(option, TrainingOption) else None
    if isinstance(option, Option) and option.batch and option.batch.every_hours and path == "usd_per_month":
        run = f"a run every {given(option.batch.every_hours)} h"
        return f"Per month, {run}", ""
    if isinstance(option, Option) and option.batch and path == "output_tokens_per_s":
        return "Output, average between runs", ""
    if path == "money.usd_over_horizon" and option.money:
        n = option.money.horizon_months
        return ("Total over %(n)s month" if n == 1 else "Total over %(n)s months") % {"n": n}, ""
    if path == "tco_usd" and (every or isinstance(option, Option)):
        n = option.money.horizon_months if option.money else spec["tco"]["horizon_months"]
        return "", ("over %(n)s month" if n == 1 else "over %(n)s months") % {"n": n}
    if path == "usd_per_run" and every:
        return "Cost of one run" + (f", every {given(every)} days" if part == "costs" else ""), ""
    if path == "watts" and isinstance(option, TrainingOption):
        return "Average power, including hosts and cooling", ""
    if path == "days" and isinstance(option, TrainingOption) and option.deadline_days:
        return "", f"(deadline {given(option.deadline_days)} days)"
    return "", "of a run" if every and part == "costs" and path in OF_A_RUN else ""


OF_A_RUN = ("accelerator_hours", "model_flops", "kwh", "kgco2e")


def note_of(option: Option | TrainingOption, path: str, part: str) -> str:
    """What stands beside the figure and is no range."""
    if isinstance(option, Option):
        if path != "requests_per_s" or not option.capacity_requests_per_s:
            return ""
        return f"of {per_second(option.capacity_requests_per_s)}"
    if path == "trained_parameters" and option.trained_parameters != option.parameters:
        return f"of {large(option.parameters)}"
    if part != "tiles":
        return ""
    goodput, steps = option.goodput, "iterations" if option.objective == "grpo" else "steps"
    return {
        "tokens": f"{plain(option.steps)} {steps}",
        "mfu": f"{sig(option.tflops_per_accelerator)} TFLOP/s each",
        "goodput_fraction": f"{share(goodput.low_fraction)}–{share(goodput.high_fraction)}",
        "kwh": f"{sig(option.kgco2e)} kg CO₂e" if option.kgco2e else "" if option.kwh else "power not published",
    }.get(path, "")


def deployment(option: Option) -> list[tuple[str, Any]]:
    """(label, value) of what is started; a section as its JSON."""
    rows = [each for each in shown_in("page", "tokens") if each.page == "deployment"]
    values = [(each.label, option.figure(each.path)) for each in rows]
    return [
        (label, value.to_json() if isinstance(value, Section) else value)
        for label, value in values
        if value not in (None, "")
    ]
