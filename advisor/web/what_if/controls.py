"""What-if: the question of an answer as controls, and its lineage."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from django.db.models import Q
from django.shortcuts import get_object_or_404

from advisor.engine.terms import kind_named
from advisor.inputs import what_if
from advisor.models import Advice
from advisor.templatetags.units import decimal_comma, number_to_type, objective
from advisor.web.form_fields.values import quantity
from advisor.workload import PORTFOLIO, Quantity, Style, quantity_of, text_of
from catalog.models import Accelerator, Organisation, ServedModel

Json = dict[str, Any]
NUMERIC = ("number", "ratio")
RATIO = replace(quantity_of("price_ratio"), high=1000.0)  # 1.234 is no 1,234 times


def applies(spec: Mapping[str, Any]) -> bool:
    """Whether a question has a quick ranking: training runs and portfolios have none yet."""
    return spec.get("kind") != PORTFOLIO and not kind_named(spec.get("kind")).trains


def can_change(spec: Mapping[str, Any], seen_by: Organisation | None) -> bool:
    """Whether an answered question can be ranked again: its model still exists, and is shared or the organization's."""
    name = spec.get("model")
    if not applies(spec) or not isinstance(name, str):
        return applies(spec)
    return ServedModel.objects.first_named(seen_by, Q(hf_id=name) | Q(slug=name)) is not None


FIRST = ("budget", "load", "ttft", "tpot", "objective")  # always in view; without tokens, e2e takes the place of two


def meant_by(c: what_if.Control) -> Quantity:
    """What a number of the control stands for."""
    return RATIO if c.reads == "ratio" else quantity(c.path)


def text_in(c: what_if.Control, words: Sequence[str], is_typed: bool) -> str:
    """What the control shows: what was typed, or the question's value so that it reads back."""
    if c.reads not in NUMERIC or not words:
        return ", ".join(words)
    if is_typed:
        return ", ".join(map(number_to_type, words))
    return text_of(float(words[0]), meant_by(c), Style(comma=decimal_comma()))


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
            "text": text_in(c, values[c.name], is_typed=c.name in (given or {})),
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
