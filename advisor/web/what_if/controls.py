"""What-if: the question of an answer as controls, its lineage, and a ranking beside that of the original question."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.shortcuts import get_object_or_404

from advisor.engine.terms import kind_named
from advisor.inputs import what_if
from advisor.models import Advice
from advisor.result import ApiOption, QuickOption, QuickRanking
from advisor.result import Option as Recommended
from advisor.templatetags.units import number_to_type, objective
from advisor.workload import PORTFOLIO
from catalog.models import Accelerator

Json = dict[str, Any]
NUMERIC = ("number", "ratio")
LABELS = (  # of the controls and their choices, in inputs/what_if.py
    *("Budget, USD per month", "Regions", "Vendors", "Classes", "Accelerators"),
    *("Maximum number of accelerators", "TTFT p95 limit, ms", "TPOT p95 limit, ms"),
    *("End-to-end p95 limit, ms", "Load, times today's", "Rank by"),
    *("On-demand prices, times today's", "Spot prices, times today's"),
    *("1-year commitment prices, times today's", "3-year commitment prices, times today's"),
    *("Capacity block prices, times today's", "Purchase prices, times today's"),
    *(
        "Hosted API prices, times today's",
        "analytical estimate, not simulated",
    ),
    *("data center", "workstation", "consumer", "edge", "complete computer"),
)


def applies(spec: Mapping[str, Any]) -> bool:
    """Whether a question has a quick ranking: training runs and portfolios have none yet."""
    return spec.get("kind") != PORTFOLIO and not kind_named(spec.get("kind")).trains


FIRST = ("budget", "load", "ttft", "tpot", "objective")  # always in view; without tokens, e2e takes the place of two


def form_context(spec: Json, url: str, given: what_if.Values | None = None, errors: Json | None = None) -> Json:
    """The controls with the question's values, or those given; those used most come first, the others are closed."""
    before = what_if.values_of(spec)
    values = {**before, **{name: [word for word in words if word] for name, words in (given or {}).items()}}
    vendors = sorted({*values["vendor"], *Accelerator.objects.filter(served=True).values_list("vendor", flat=True)})
    choices = {
        "vendor": [(vendor, vendor) for vendor in vendors],
        "class": [(name, label) for name, label in what_if.CLASSES.items()],
        "objective": [(name, objective(name)) for name in what_if.OBJECTIVES],
    }
    controls = [
        {
            "name": c.name,
            "label": c.label,
            "several": c.name in ("vendor", "class"),
            "choices": choices.get(c.name, []),
            "values": values[c.name],
            "text": ", ".join(map(number_to_type, values[c.name]) if c.reads in NUMERIC else values[c.name]),
            "numeric": c.reads in NUMERIC,
            "error": (errors or {}).get(c.name, ""),
        }
        for c in what_if.shown_controls(spec)
    ]
    names = [c["name"] for c in controls]
    first = FIRST if "ttft" in names else ("budget", "load", "e2e", "objective")
    rest = [c for c in controls if c["name"] not in first]
    return {
        "what_if_url": url,
        "what_if_controls": controls,
        "what_if_first": [controls[names.index(name)] for name in first],
        "what_if_rest": rest,
        "what_if_rest_open": any(c["error"] or c["text"] != ", ".join(before[c["name"]]) for c in rest),
    }


@dataclass(frozen=True, kw_only=True)
class Row:
    """One option beside the same option under the original question."""

    option: QuickOption
    rank: int
    before_rank: int | None  # in the closed-form ranking of the original question; None: it was not ranked
    more_fraction: float | None  # of the original monthly cost
    simulated: Recommended | ApiOption | None = None

    @property
    def moved(self) -> int:
        return (self.before_rank or self.rank) - self.rank

    @property
    def more_percent(self) -> float | None:
        return None if self.more_fraction is None else 100.0 * self.more_fraction


def key_of(option: QuickOption | Recommended | ApiOption) -> tuple[str, str]:
    """What stays the same option when prices, limits or load change."""
    if option.acquisition == "api":
        return "api", option.provider
    return ("owned" if option.term == "owned" else "", option.accelerator or "")


def rows_of(
    ranking: QuickRanking, before: QuickRanking, simulated: Sequence[Recommended | ApiOption] = ()
) -> list[Row]:
    """The ranking beside that of the original question; simulated options first, in the order of their ranks."""
    old = {key_of(o): o for o in reversed(before.options)}
    exact: dict[tuple[str, str], Recommended | ApiOption] = {}
    for full in simulated:
        exact.setdefault(key_of(full), full)
    order = {key: place for place, key in enumerate(exact)}
    options = sorted(ranking.options, key=lambda o: (order.get(key_of(o), len(order)), o.rank or 0))
    rows = []
    for rank, option in enumerate(options, 1):
        earlier = old.get(key_of(option))
        rows.append(
            Row(
                option=option,
                rank=rank,
                before_rank=earlier.rank if earlier else None,
                more_fraction=option.usd_per_month / earlier.usd_per_month - 1
                if earlier and earlier.usd_per_month
                else None,
                simulated=exact.get(key_of(option)),
            )
        )
    return rows


def lineage(advice: Advice) -> Json:
    """The newest answer to the same question, and the changed questions that came from this one, with what differs;
    and the answer that this one was changed from, or that it renews."""
    newer, asked_since = None, []
    for other in advice.successors.select_related("workload").defer("result", "snapshot").order_by("-created_at")[:20]:
        if what_if.same_question(advice.workload.spec, other.workload.spec):
            newer = newer or other
        else:
            changes = what_if.differences(advice.workload.spec, other.workload.spec)
            asked_since.append({"advice": other, "changes": changes})
    parent = None
    if advice.supersedes_id:
        first = get_object_or_404(
            Advice.objects.select_related("workload").only("pk", "workload", "created_at"), pk=advice.supersedes_id
        )
        parent = {"advice": first, "changes": what_if.differences(first.workload.spec, advice.workload.spec)}
    return {"successor": newer, "what_ifs": asked_since, "parent": parent}
