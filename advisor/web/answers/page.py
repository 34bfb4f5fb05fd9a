"""A finished advice made ready to read: what the pages show, and its CSV."""

import csv
import io
from collections.abc import Collection, Container, Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

from django.urls import reverse

from advisor.engine.search import MAX_RANKED
from advisor.engine.terms import kind_named
from advisor.report import distinct, has_changing_traffic, rejected_counts, screen_of
from advisor.result import (
    Answer,
    ApiOption,
    FleetRun,
    Intervals,
    Operator,
    Option,
    ParetoPoint,
    RunHours,
    SharedFleet,
    TrainingIntervals,
    TrainingOption,
    Views,
    csv_columns,
    interval,
)
from advisor.templatetags.units import number
from advisor.web.answers import figure_rows, plan_page, sections, training_page
from advisor.web.charts import plots as charts
from advisor.web.charts import tuning as tuning_charts
from advisor.web.interactive import chart_data, cost_charts, frontier_chart
from advisor.workload import PORTFOLIO
from catalog.lists import export

Ranked = Option | ApiOption | TrainingOption
HOSTED_SHOWN = 8  # endpoints on the page unless all are asked for
RANKED_SHOWN = MAX_RANKED  # options likewise; winners of other goals come behind the ranking
GREEN = ("carbon", "energy")  # objectives that show the carbon and power of each option


def page(
    answer: Answer,
    spec: Mapping[str, Any],
    base: str,
    sort: str = "",
    section: str = "",
    opened: Collection[str] = (),
) -> dict[str, Any]:
    """Everything that a section of the advice page shows of an answer; `base` + rank is an option's address.
    `opened`: the lists to show in full, "ranked" and "hosted"."""
    trains = is_training(spec)
    shown = sections.context(sections_of(answer, spec), section)
    embedding = not trains and not kind_named(spec.get("kind")).generates_tokens
    first = answer.recommendations[0] if answer.recommendations else None
    return {
        "result": answer,
        "screen": screen_of(answer),
        "first": first,
        "embedding": embedding,
        "training": trains,
        "shows_carbon": spec.get("objective") in GREEN,
        "has_deployments": bool(answer.deployments),
        "changing_traffic": has_changing_traffic(answer),
        "by_token_alone": bool(answer.hosted) and acquisition(answer) == ["api"],
        **shown,
        **(training if trains else serving)(answer, spec, base, sort, shown["parts"], opened),
        **grounds(answer, shown["parts"]),
        "glance": cost_charts.at_a_glance(first) if isinstance(first, Option) and shown["is_first"] else "",
        "schedule": schedule(answer.portfolio.shared) if answer.portfolio and answer.portfolio.shared else [],
    }


def is_training(spec: Mapping[str, Any]) -> bool:
    return spec.get("kind") != PORTFOLIO and kind_named(spec.get("kind")).trains


def sections_of(answer: Answer, spec: Mapping[str, Any]) -> tuple[sections.Section, ...]:
    """The sections of this answer: those that say something."""
    if answer.portfolio:
        return tuple(each for each in sections.PORTFOLIO if each.slug != "cost" or answer.portfolio.money)
    if not answer.recommendations:
        return sections.NO_RUN if is_training(spec) else sections.NOTHING
    return sections.TRAINING if is_training(spec) else sections.SERVING


def schedule(fleet: SharedFleet) -> list[tuple[FleetRun, str, RunHours]]:
    """What runs on a fleet and when; hours with the same load and replicas are one row."""
    rows: list[tuple[FleetRun, str, RunHours]] = []
    for run in fleet.runs:
        same: dict[tuple[Any, Any], list[RunHours]] = {}
        for hours in run.hours:
            same.setdefault((hours.replicas, hours.requests_per_s), []).append(hours)
        rows += [(run, "; ".join(each.when for each in found), found[0]) for found in same.values()]
    return rows


def serving(
    answer: Answer,
    spec: Mapping[str, Any],
    base: str,
    sort: str,
    parts: Sequence[sections.Section],
    opened: Collection[str],
) -> dict[str, Any]:
    """What the sections of a serving answer show beside what every section has."""
    options, kind = answer.serving_options, kind_named(spec.get("kind"))
    found: dict[str, Any] = {"options": []}
    if sections.needs(parts, "why"):
        found |= {
            "has_options": bool(options),
            **frontier(answer, spec, base, not kind.generates_tokens),
        }
    if sections.needs(parts, "performance", "cost", "run", "confidence") and answer.deployments:
        found["best"] = option_context(answer.deployments[0], answer, spec)
        found |= cost_charts.page(answer.deployments[0], answer)
    if sections.needs(parts, "cost", "confidence"):
        found["certainty"] = plan_page.certainty(answer)
    if sections.needs(parts, "confidence"):
        found["tornado_chart"] = chart_data.sensitivity(answer.sensitivity)
    if sections.needs(parts, "alternatives"):
        few = answer.hosted if "hosted" in opened else answer.hosted[:HOSTED_SHOWN]
        found |= {
            **ranking(answer, options, spec, sort, opened),
            "ranked_by": OBJECTIVES.get(str(spec.get("objective")), spec.get("objective")),
            "has_plans": any(option.money and option.money.plan for option in answer.deployments),
            "hosted_shown": few,
            "hosted_left": len(answer.hosted) - len(few),
            "hosted_open": "hosted" in opened,
        }
    return found


def frontier(answer: Answer, spec: Mapping[str, Any], base: str, embedding: bool) -> dict[str, Any]:
    """The chart of price and speed, with the same as a table."""
    points = ranked_once(answer.pareto, answer.deployments)
    slo_ms = number((spec.get("slo") or {}).get("e2e_ms_p95" if embedding else "tpot_ms_p95"))
    return {
        "frontier_chart": frontier_chart.chart(answer, spec, base, points),
        "pareto_rows": notable(points),
        "left_out": charts.in_view(points, slo_ms)[1],
    }


def training(
    answer: Answer,
    spec: Mapping[str, Any],
    base: str,
    sort: str,
    parts: Sequence[sections.Section],
    opened: Collection[str],
) -> dict[str, Any]:
    """The same of a training answer."""
    return {
        **ranking(answer, answer.training_runs, spec, sort, opened),
        **training_page.answer_context(answer, base, spec),
    }


def ranking(
    answer: Answer,
    options: Sequence[Ranked],
    spec: Mapping[str, Any],
    sort: str,
    opened: Collection[str],
) -> dict[str, Any]:
    """The table of ranked options; the first of them unless all are asked for."""
    kind = kind_named(spec.get("kind"))
    ranked = figure_rows.ordered(distinct(options), sort, kind)
    shown = ranked if "ranked" in opened else ranked[:RANKED_SHOWN]
    return {
        "options": [
            figure_rows.row(each, wins(each, answer.views), kind, has_changing_traffic(answer)) for each in shown
        ],
        "options_left": len(ranked) - len(shown),
        "options_open": "ranked" in opened,
        "headers": figure_rows.headers(sort, figure_rows.titles(kind)),
        "rejected_counts": rejected_counts(answer.rejected),
    }


def grounds(answer: Answer, parts: Sequence[sections.Section]) -> dict[str, Any]:
    """Where prices come from."""
    if not sections.needs(parts, "confidence"):
        return {}
    return {"price_dates": price_dates(answer.recommendations), "price_days": plan_page.price_days_of(answer)}


OBJECTIVES = {
    "cost": "cost",
    "latency": "latency",
    "throughput": "throughput per chip",
    "energy": "energy",
    "carbon": "carbon",
    "balanced": "a balance of cost, latency, energy and the declared scores",
    "simplicity": "simplicity (fewest chips first)",
}


def acquisition(answer: Answer) -> Any:
    """How the workload lets capacity be paid for: a list of rent, own and api."""
    workload = answer.workload if isinstance(answer.workload, Mapping) else {}
    return (workload.get("constraints") or {}).get("acquisition")


def wins(option: Option | ApiOption | TrainingOption, views: Views) -> list[str]:
    """The views that this option wins."""
    return [view for view, rank in views.ranks().items() if rank == option.rank]


def accuracy_url(option: Option, spec: Mapping[str, Any]) -> str:
    """The accuracy page at the rows that are like this question."""
    model = spec.get("model")
    like = {"for_accelerator": option.accelerator, "for_framework": option.framework}
    return f"{reverse('fidelity')}?{urlencode(like | ({'for_model': model} if isinstance(model, str) else {}))}"


def option_context(option: Option, answer: Answer, spec: Mapping[str, Any]) -> dict[str, Any]:
    """One option with its charts; `answer`: where it comes from, for the comparison with hosted APIs."""
    return {
        "option": option,
        "accuracy_url": accuracy_url(option, spec),
        "embedding": option.is_embedding,
        "memory_chart": chart_data.memory(charts.memory_bar(option.memory), charts.memory_parts(option.memory)),
        "memory_rows": charts.memory_parts(option.memory),
        "steps": [steps for phase in ("prefill", "decode") if (steps := step_context(option, phase))],
        "plan": figure_rows.deployment(option),
        "facts": figure_rows.facts(option, spec),
        "paying": plan_page.of_option(option),
        "price_days": plan_page.price_days([option]),
        "waterfall_chart": chart_data.cost_waterfall(option.money.waterfall) if option.money else None,
        **cost_charts.page(option, answer),
        "techniques_chart": chart_data.techniques(option.tuning.plan) if option.tuning else None,
        "roofline_chart": chart_data.roofline(option.tuning.roofline) if option.tuning else None,
        **tuning_charts.page(option),
    }


def step_context(option: Option, phase: str) -> dict[str, Any] | None:
    """One phase's operators, the slowest first, with their share of the step."""
    operators = sorted((o for o in option.step if o.phase == phase), key=lambda o: -(o.time_s or 0))
    total_s = sum(o.time_s or 0 for o in operators)
    if not total_s:
        return None
    longest_s = operators[0].time_s or 0
    rows = [{"operator": o, "share": (o.time_s or 0) / total_s, "bar": bar(o, longest_s)} for o in operators]
    chart = chart_data.step_time(charts.step_bar(operators, phase), operators, phase)
    return {"phase": phase, "chart": chart, "rows": rows, "total_s": total_s}


def bar(operator: Operator, longest_s: float) -> str:
    return charts.share_bar((operator.time_s or 0) / longest_s, charts.bound_css(operator.bound))


def ranked_once(points: Sequence[ParetoPoint], options: Sequence[Option]) -> list[ParetoPoint]:
    """Each rank on one point, the nearest in price and speed to its option; other points lose theirs."""
    marked = list(points)
    for option in options:
        same = [i for i, point in enumerate(points) if point.rank == option.rank]
        same.sort(key=lambda i: distance(points[i], option))  # noqa: B023 (used at once)
        for i in same[1:]:
            marked[i] = points[i].changed(rank=None)
    return marked


def distance(point: ParetoPoint, option: Option) -> float:
    """How far a point is from an option, as a sum of ratios."""
    values = [(point.usd_per_mtok_output, option.usd_per_mtok_output), (point.tpot_ms, option.tpot_ms.mean)]
    if option.latency_ms:
        values = [(point.usd_per_mtok_input, option.usd_per_mtok_input), (point.latency_ms, option.latency_ms.mean)]
    ratios = [max(a / b, b / a) for a, b in values if a and b and a > 0 and b > 0]
    return sum(ratios) if len(ratios) == len(values) else float("inf")


def notable(points: Sequence[ParetoPoint], most: int = 60) -> list[ParetoPoint]:
    """The frontier and the ranked, fastest first: the picture as a table."""
    rows = [point for point in points if point.frontier or point.rank]
    return sorted(rows, key=lambda point: point.response_ms or float("inf"))[:most]


def price_dates(options: Sequence[Option | ApiOption | TrainingOption]) -> list[dict[str, str]]:
    """Each price that the options use, once: provider, date, source."""
    prices = {price for option in options for price in plan_page.prices_of(option)}
    return [
        {"provider": provider, "as_of": as_of, "source": source} for provider, as_of, source in sorted(prices, key=str)
    ]


# --- exports ----------------------------------------------------------------------------------------------------


def kind_of(answer: Answer) -> Any:
    """The kind of the workload."""
    return answer.workload.get("kind") if isinstance(answer.workload, Mapping) else None


def csv_text(answer: Answer) -> str:
    """One line an option; units are in the column names. Figures with a 90% interval have its ends beside them."""
    out = io.StringIO()
    writer = csv.writer(out)
    trains = kind_named(kind_of(answer)).trains
    ranged = TrainingIntervals.model_fields if trains else Intervals.model_fields
    columns = csv_columns(trains)
    writer.writerow(name for each in columns for name in (each.column, *with_ends(each.column, ranged)))
    for option in answer.recommendations:
        row: list[Any] = []
        for each in columns:
            row.append(export.cell(option.figure(each.path)))
            if each.column in ranged:
                row += [export.cell(end) for end in interval(option, each)]
        writer.writerow(row)
    return out.getvalue()


def with_ends(name: str, ranged: Container[str]) -> tuple[str, ...]:
    return (f"{name}_low", f"{name}_high") if name in ranged else ()
