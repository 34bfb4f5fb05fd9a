"""An answer in at most 4 kB: the decision, its gate, the first option with its cost, the runner-up, what else there is.

The full JSON of an answer has one or two megabytes. The sentences are those of the first screen.
"""

import json
from typing import Any

from advisor.report.screen import screen_of
from advisor.result import (
    Answer,
    AnswerSummary,
    ApiOption,
    Gate,
    Option,
    SummaryCost,
    SummaryFact,
    SummaryGate,
    SummaryLinks,
    SummaryOption,
    TrainingOption,
)

MAX_BYTES = 4096
SPARE_BYTES = 64  # encoders write numbers and line separators in different lengths
MAX_LABEL, MAX_SAID = 160, 400  # characters
SHORTER = (300, 100, 50, 20)  # characters of any text, of names that leave no room for the whole sentence
Ranked = Option | ApiOption | TrainingOption


def summary_of(answer: Answer, advice_id: str, name: str, links: SummaryLinks) -> AnswerSummary:
    """The summary, with as many lines of the first screen as fit into MAX_BYTES of JSON."""
    screen, decision = screen_of(answer), answer.decision or answer.decide()
    options = answer.recommendations[:2]
    found = AnswerSummary(
        id=advice_id,
        name=name,
        title=short(screen.title),
        question=short(screen.question, MAX_SAID),
        action=decision.action if decision else None,
        said=screen.todo,
        best_probability=decision.best_probability if decision else None,
        facts=[SummaryFact(label=short(fact.label), text=short(fact.text, MAX_SAID)) for fact in screen.facts],
        gate=gate_of(decision.gate) if decision and decision.gate else None,
        first=option_of(options[0]) if options else None,
        cost=SummaryCost(
            usd_per_month=decision.usd_per_month,
            usd_per_month_range=decision.usd_per_month_range,
            expected_usd_per_month=decision.expected_usd_per_month,
            budget_usd_per_month=decision.budget_usd_per_month,
            usd_per_run=decision.usd_per_run,
            usd_per_run_range=decision.usd_per_run_range,
            price_as_of=decision.price_as_of,
            price_origin=decision.price_origin,
        )
        if decision
        else None,
        runner_up=option_of(options[1]) if len(options) > 1 else None,
        option_count=len(answer.recommendations),
        rejected_count=len(answer.rejected),
        prices_as_of=answer.catalog.prices_as_of if answer.catalog else "",
        engine_version=answer.engine_version,
        links=links,
    )
    while size(found) > MAX_BYTES - SPARE_BYTES and found.facts:
        found = found.changed(facts=found.facts[:-1])
    for most in SHORTER:
        if size(found) > MAX_BYTES - SPARE_BYTES:
            found = AnswerSummary.read(cut(found.to_json(), most))
    return found


def cut(value: Any, most: int) -> Any:
    """The same with texts of at most so many characters, apart from IDs and links."""
    if isinstance(value, dict):
        return {key: each if key in ("id", "links") else cut(each, most) for key, each in value.items()}
    return short(value, most) if isinstance(value, str) else value


def size(summary: AnswerSummary) -> int:
    """Bytes of its JSON as the API sends it."""
    return len(json.dumps(summary.to_json(), ensure_ascii=False, separators=(",", ":")).encode())


def short(text: str, most: int = MAX_LABEL) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def gate_of(gate: Gate) -> SummaryGate:
    return SummaryGate(
        kind=gate.kind, metric=short(gate.metric), value=gate.value, unit=gate.unit, said=short(gate.said, MAX_SAID)
    )


def option_of(option: Ranked) -> SummaryOption:
    def figure(path: str) -> Any:
        name = path.partition(".")[0]
        return option.figure(path) if option.has(name) else None

    return SummaryOption(
        rank=option.rank or 1,
        label=short(option.label),
        accelerator=figure("accelerator"),
        accelerator_count=figure("accelerator_count"),
        provider=short(option.provider),
        region=short(option.region),
        acquisition=option.acquisition,
        framework=figure("framework"),
        weights_dtype=figure("weights_dtype"),
        replicas=figure("replicas"),
        ttft_ms_p95=figure("ttft_ms.p95"),
        tpot_ms_p95=figure("tpot_ms.p95"),
        slo_probability=figure("deadline_probability" if isinstance(option, TrainingOption) else "slo_probability"),
        capacity_requests_per_s=figure("capacity_requests_per_s"),
        usd_per_month=option.usd_per_month,
        usd_per_mtok_blended=figure("usd_per_mtok_blended"),
        warning_count=len(option.warnings),
    )
