"""The name of a question that its planner did not name: its model and its load."""

from collections.abc import Mapping
from typing import Any

from advisor.engine.terms import usd_text

UNNAMED = (None, "", "untitled")  # the last in questions of earlier versions
LONGEST = 120  # characters of a name
MANY = 4  # workloads of a fleet that are not all named
SIZES = ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k"))
METHODS = {"full": "full", "lora": "LoRA", "qlora": "QLoRA"}


def title_of(spec: Mapping[str, Any]) -> str:
    """Of a validated workload: Llama-3.3-70B-Instruct, 4 requests/s."""
    if members := spec.get("workloads"):
        names = [str(each["name"] if isinstance(each, Mapping) else each) for each in members]
        shown = names if len(names) < MANY else [*names[: MANY - 2], f"{len(names) - MANY + 2} more"]
        return _cut(f"{' and '.join([', '.join(shown[:-1]), shown[-1]] if shown[1:] else shown)} on one fleet")
    return _cut(f"{_model(spec.get('model'))}, {_load(spec)}")


def is_derived(spec: Mapping[str, Any]) -> bool:
    """Whether the name follows from the model and the load, and changes with them."""
    return spec.get("name") in UNNAMED or spec["name"] == title_of(spec)


def unnamed(spec: Mapping[str, Any]) -> dict[str, Any]:
    """The question without a derived name, so that it gets another one when its model or load has changed."""
    return {**spec, "name": None} if is_derived(spec) else dict(spec)


def named(spec: dict[str, Any]) -> dict[str, Any]:
    """The question with a name."""
    return {**spec, "name": title_of(spec)} if spec.get("name") in UNNAMED else spec


def _model(model: Any) -> str:
    return model.rpartition("/")[2] if isinstance(model, str) else "own model"


def _load(spec: Mapping[str, Any]) -> str:
    if batch := spec.get("batch"):
        return f"{_number(batch['requests'])} requests in {_number(batch['deadline_hours'])} h"
    if training := spec.get("training"):
        return f"training{_on(training)}"
    if tuning := spec.get("finetuning"):
        goal = f" ({tuning['objective'].upper()})" if tuning.get("objective") not in (None, "sft") else ""
        return f"{METHODS.get(tuning['method'], tuning['method'])} fine-tuning{goal}{_on(tuning)}"
    traffic = spec.get("traffic") or {}
    if users := traffic.get("users"):
        return f"{_number(users['active'])} users"
    if audio := traffic.get("audio"):
        return f"{_number(audio['hours_per_hour'])} hours of audio per hour"
    if per_hour := (traffic.get("turns") or {}).get("conversations_per_hour"):
        return f"{_number(per_hour)} conversations per hour"
    rate = (traffic.get("requests_per_s") or {}).get("mean") or 0
    return f"{_number(rate)} request{'' if rate == 1 else 's'}/s"


def _on(section: Mapping[str, Any]) -> str:
    """The tokens of a run, or what it may cost."""
    if tokens := section.get("tokens"):
        size, letter = next((each for each in SIZES if tokens >= each[0]), (1, ""))
        return f" on {tokens / size:.3g}{letter} tokens"
    return f" for {usd_text(section['budget_usd'])}" if section.get("budget_usd") else ""


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"
