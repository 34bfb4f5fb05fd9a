"""Formats training runs for people: the question, days, ranges."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from django import template
from django.utils.html import format_html

from advisor.engine.terms import kind_named
from advisor.engine.training_search import duration
from advisor.templatetags.units import (
    COUNTED,
    UNKNOWN,
    dollars,
    given,
    localized,
    number,
    objective,
    percent,
    percent_text,
    span,
)

register = template.Library()
RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
WEEK_HOURS = 168.0
GOALS = {"latency": "fewest days", "throughput": "fewest days"}  # others: the objective's name
METHODS = {
    "full": "fine-tuning of all weights",
    "lora": "LoRA fine-tuning",
    "qlora": "QLoRA fine-tuning",
}

MEASURED = {
    "tokens_per_s_per_accelerator": "tokens/s per accelerator",
    "tokens_per_s": "tokens/s",
    "samples_per_s": "sequences/s",
    "step_time_s": "seconds per step",
    "peak_allocated_gib": "peak memory, allocated, GiB",
    "peak_reserved_gib": "peak memory, reserved, GiB",
}


@register.filter
def measured_name(metric: str) -> str:
    """A metric of a measured run in words."""
    return MEASURED.get(metric, metric)


@register.filter
def week_bar(hours: object) -> str:
    """A bar of the hours of a week in which a run trains; none given: all of them. For tables, beside the number."""
    figure = number(hours)
    share = 100.0 if figure is None else max(0.0, min(figure / WEEK_HOURS, 1.0)) * 100.0
    return format_html(
        '<svg class="cell-bar" viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true" focusable="false">'
        '<rect class="bound-compute" width="{}" height="8"/></svg>',
        f"{share:.2f}",
    )


@register.filter
def trains(kind: object) -> bool:
    """Of the kind's name in a workload file."""
    return kind_named(kind).trains


@register.filter
def run_time(days: object) -> str:
    """9.62 days, 7.20 hours, 12 minutes"""
    figure = number(days)
    return UNKNOWN if figure is None else duration(figure).replace(" ", "\u00a0")


@register.filter
def run_times(days: object) -> str:
    """Both ends of a range: 8.94–12.6 days; empty without a range."""
    return joined(days, run_time)


@register.filter
def times_beside(days: object) -> str:
    """The same beside the time itself: 8.94–12.6, without the unit that both ends share with it."""
    low, _, high = run_times(days).partition("–")
    return f"{low}–{high}" if "\u00a0" in low else f"{low}–{high.partition(chr(0xA0))[0]}" if high else ""


@register.filter
def dollar_range(usd: object) -> str:
    """Both ends of a range of costs, with cents where the run costs little."""
    return joined(usd, dollars)


def joined(values: object, show: Any) -> str:
    """low–high; the low end without its unit where both have the same one."""
    ends = list(values) if isinstance(values, Sequence) and not isinstance(values, str) else []
    return span(show(ends[0]), show(ends[1])) if len(ends) == 2 and None not in ends else ""


@register.filter
def share(fraction: object) -> str:
    """A share of the time: 99.7%, 0.15%; near 1 with the digits that tell it from 1."""
    figure = number(fraction)
    if figure is not None and 0.9995 <= figure < 1:
        return f">\u00a0{percent_text(localized('99.9'))}"
    if figure == 1:
        return percent_text("100")
    return (
        percent_text(localized(f"{figure * 100:.1f}"))
        if figure is not None and 0.1 <= figure <= 1
        else percent(fraction)
    )


@register.filter
def expected(count: object) -> str:
    """An expected number: 0.21, 12, 4,100; below 0.01 as such."""
    figure = number(count)
    if figure is None:
        return UNKNOWN
    return localized("<\u00a00.01" if 0 < figure < 0.01 else f"{figure:.2g}" if figure < 10 else f"{figure:,.0f}")


@register.filter
def scientific(value: object) -> str:
    """A very large number: 4.49 × 10²²"""
    figure = number(value)
    if figure is None or figure <= 0:
        return UNKNOWN
    mantissa, _, exponent = f"{figure:.2e}".partition("e")
    return f"{localized(mantissa)}\u00a0×\u00a010{str(int(exponent)).translate(RAISED)}"


@register.filter
def run_question(spec: Mapping[str, Any]) -> str:
    """What is trained, on what, until when: pre-training on 100 billion tokens · sequences of 8,192 tokens · …"""
    section, what = spec.get(str(spec.get("kind"))) or {}, training_said(spec)
    if not kind_named(spec.get("kind")).trains_whole_model and section.get("method") != "full":
        what += " (rank {})".format(section.get("rank"))
    asked = str(spec.get("objective"))
    goal = GOALS[asked] if asked in GOALS else objective(asked)
    tokens, budget = section.get("tokens"), section.get("budget_usd")
    said = [
        f"{what} on {amount(tokens)} tokens" if tokens else f"{what} with a budget of {dollars(budget)}",
        "sequences of {} tokens".format(given(section.get("sequence_length"))),
        "{} tokens per step".format(amount(section.get("global_batch_tokens"))),
    ]
    return " · ".join([*said, *dates_said(section), f"objective {goal}"])


def training_said(spec: Mapping[str, Any]) -> str:
    """What is done to the model: continued pre-training, LoRA fine-tuning."""
    section = spec.get(str(spec.get("kind"))) or {}
    if kind_named(spec.get("kind")).trains_whole_model:
        return "continued pre-training" if section.get("continued") == "yes" else "pre-training"
    return METHODS.get(str(section.get("method")), "fine-tuning")


def dates_said(section: Mapping[str, Any]) -> Iterator[str]:
    """Until when, and how often."""
    if section.get("deadline_days"):
        yield f"within {days_text(section['deadline_days'])}"
    if section.get("every_days"):
        yield f"again every {days_text(section['every_days'])}"


@register.filter
def amount(value: object) -> str:
    """A number that somebody chose, as short as is exact: 4 million, 100 billion, 4,194,304."""
    figure = number(value)
    if figure is None:
        return UNKNOWN
    for size, name in COUNTED["en"]:
        if figure >= size and float(f"{figure / size:.3g}") * size == figure:
            return f"{localized(f'{figure / size:.3g}')}\u00a0{name}"
    return given(figure)


def days_text(days: float) -> str:
    return ("%(n)s day" if (1 if days == 1 else 2) == 1 else "%(n)s days") % {"n": given(days)}
