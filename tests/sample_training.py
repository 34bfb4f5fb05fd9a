"""Answers to training questions from the shipped catalog, for the pages; tests use the `shipped` fixture with them."""

from functools import cache
from typing import Any

from advisor import advise
from advisor.answer import recommend
from advisor.inputs import take_snapshot
from advisor.models import Advice, Option, Workload
from advisor.stored import RESULT_VERSION
from advisor.workload.schema import parse

CHIPS = {"accelerators": {"allow": ["h100-sxm", "h200-sxm", "mi300x"]}, "acquisition": ["rent", "own"]}
QUESTIONS: dict[str, dict[str, Any]] = {
    "pretrain": {
        "name": "pretrain-70b",
        "kind": "training",
        "model": "meta-llama/Llama-3.3-70B-Instruct",
        "training": {"tokens": 1e11, "deadline_days": 30},
        "team": {"cuda": 4, "rocm": 1},
        "constraints": CHIPS,
    },
    "weekly": {
        "name": "lora-8b",
        "kind": "finetuning",
        "model": "meta-llama/Llama-3.1-8B",
        "finetuning": {"method": "lora", "tokens": 5e7, "every_days": 7},
        "constraints": CHIPS,
    },
    "bought": {
        "name": "own-8b",
        "kind": "training",
        "model": "meta-llama/Llama-3.1-8B",
        "training": {"tokens": 1e11, "every_days": 15},
        "tco": {"horizon_months": 24, "income-tax-fraction": 0.25},
        "constraints": {**CHIPS, "acquisition": ["own"], "max_usd_per_month": 500_000},
    },
    "budget": {
        "name": "budget-8b",
        "kind": "training",
        "model": "meta-llama/Llama-3.1-8B",
        "training": {"budget_usd": 20_000},
        "constraints": CHIPS,
        "objective": "latency",
    },
    "grpo": {
        "name": "grpo-8b",
        "kind": "finetuning",
        "model": "meta-llama/Llama-3.1-8B",
        "finetuning": {"objective": "grpo", "iterations": 500, "response_tokens": 1024},
        "constraints": {"accelerators": {"allow": ["h200-sxm"]}, "max_accelerators": 2},
    },
    "late": {
        "name": "too-late",
        "kind": "training",
        "model": "meta-llama/Llama-3.3-70B-Instruct",
        "training": {"tokens": 1e13, "deadline_days": 3},
        "constraints": {**CHIPS, "max_accelerators": 64},
    },
}


@cache
def result(name: str) -> dict[str, Any]:
    """The answer's JSON; computed once a session."""
    spec = parse(QUESTIONS[name])
    return recommend(spec, take_snapshot(spec)).to_json()


def advice(name: str, changed: dict[str, Any] | None = None) -> Advice:
    """A finished advice with the answer, or with `changed` in its place."""
    spec, organisation = parse(QUESTIONS[name]), advise.default_organisation()
    answer = changed or result(name)
    workload = Workload.objects.create(organisation=organisation, name=spec["name"], spec=spec)
    done = {"state": "done", "result_version": RESULT_VERSION, "progress_fraction": 1}
    made = Advice.objects.create(organisation=organisation, workload=workload, result=answer, **done)
    options = advise.Answer.read(answer).recommendations
    Option.objects.bulk_create(advise.option_row(made.pk, rank, option) for rank, option in enumerate(options, 1))
    return made
