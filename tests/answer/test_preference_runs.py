"""`advise` on DPO and GRPO: the whole iteration is ranked, as `estimate` composes it for the same layout."""

from functools import cache
from typing import Any

import pytest

from advisor.advise import default_organisation
from advisor.answer import recommend
from advisor.answer.estimates import training_estimate
from advisor.inputs import take_snapshot
from advisor.result import Answer, TrainingOption
from advisor.workload import parse, parse_estimate

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("frozen")]
MODEL = "meta-llama/Llama-3.1-8B"
GRPO: dict[str, Any] = {"objective": "grpo", "iterations": 500, "response_tokens": 1024}
DPO: dict[str, Any] = {"objective": "dpo", "pairs": 60_000, "sequence_length": 2048}
QUESTIONS: dict[str, dict[str, Any]] = {
    "grpo": GRPO,
    "long": {**GRPO, "response_tokens": 2048},
    "no reference": {**GRPO, "reference": "no"},
    "scored": {**GRPO, "reward_model": MODEL},
    "adapters": {**GRPO, "method": "lora"},
    "dpo": DPO,
    "precomputed": {**DPO, "reference": "precomputed"},
}
OF_LAYOUT = (
    "accelerator", "micro_batch", "micro_batches", "dp", "tp", "pp", "cp", "ep", "zero", "virtual_stages",
    "sequence_parallel", "recompute", "precision", "optimizer", "code", "sequence_length",
)  # fmt: skip


@cache
def answered(name: str) -> Answer:
    asked = {
        "name": "tune", "kind": "finetuning", "model": MODEL, "finetuning": QUESTIONS[name],
        "constraints": {"accelerators": {"allow": ["h200-sxm"]}, "max_accelerators": 4},
    }  # fmt: skip
    spec = parse(asked)
    return recommend(spec, take_snapshot(spec, default_organisation()))


def first(name: str) -> TrainingOption:
    return answered(name).training_runs[0]


def seconds(run: TrainingOption) -> dict[str, float]:
    return {phase.name: phase.time_s for phase in run.phases}


def test_the_iteration_is_that_of_estimate_for_the_same_layout() -> None:
    for name in ("grpo", "dpo"):
        run = first(name)
        lengths = {"response_tokens": 1024, "longest_response_tokens": 2048, "prompt_tokens": 512}
        layout = {key: getattr(run, key) for key in OF_LAYOUT} | {"compile": bool(run.compile)}
        raw = {"kind": "finetuning", "model": MODEL, "objective": name, **layout, **(lengths if name == "grpo" else {})}
        e = training_estimate.answer(parse_estimate(raw))  # type: ignore[arg-type]
        assert [(p.name, p.time_s) for p in e.phases] == [
            (p.name, pytest.approx(p.time_s, rel=1e-6)) for p in run.phases
        ]
        assert run.step_s == pytest.approx(e.iteration_s, rel=1e-5)
        assert run.reference_gib == pytest.approx(e.reference_gib)
        share = seconds(run)["policy update"] / sum(seconds(run).values())
        assert run.mfu == pytest.approx((e.mfu or 0) * share, rel=1e-4)


def test_days_and_shares_are_those_of_all_phases() -> None:
    run = first("grpo")
    assert run.steps == 500
    assert run.days > 500 * sum(seconds(run).values()) / 86_400
    assert sum(p.fraction or 0 for p in run.phases) == pytest.approx(1.0, abs=1e-4)
    assert run.tokens == 500 * 256 * (512 + 1024) and run.sequence_length == 512 + 2048


def test_longer_responses_cost_more() -> None:
    assert first("long").usd_per_run > 1.5 * first("grpo").usd_per_run


def test_a_run_without_a_reference_costs_less_and_holds_less() -> None:
    run = first("no reference")
    assert "reference forward" not in seconds(run) and run.reference_gib == 0
    assert run.usd_per_run < first("grpo").usd_per_run


def test_a_reward_model_takes_memory_and_time() -> None:
    run = first("scored")
    assert seconds(run)["reward model"] > 0 and run.usd_per_run > first("grpo").usd_per_run
    assert run.reference_gib > 14  # a whole copy of 8 billion weights in 16 bits


def test_the_frozen_base_of_adapters_is_their_reference() -> None:
    run = first("adapters")
    assert run.reference_gib == 0 and "reference forward" in seconds(run)


def test_dpo_generates_nothing_and_counts_pairs() -> None:
    run = first("dpo")
    assert list(seconds(run)) == ["reference forward", "policy update"] and run.generation_fraction is None
    assert run.tokens == 60_000 * 2 * 2048 and run.global_batch % 2 == 0
    assert "60,000 preference pairs take" in answered("dpo").verdict


def test_precomputed_log_probabilities_leave_the_update_and_say_what_they_take() -> None:
    run = first("precomputed")
    assert list(seconds(run)) == ["policy update"] and run.reference_gib == 0
    assert any("log-probabilities of the reference is not part of the run: about" in w for w in run.warnings)


def test_ranges_combine_those_of_training_and_serving() -> None:
    run, update = first("grpo"), first("precomputed")
    low, high = run.interval.step_s or (0, 0)
    alone_low, alone_high = update.interval.step_s or (0, 0)
    assert low and high and alone_low and alone_high
    assert high / run.step_s > alone_high / update.step_s  # serving is less certain than training on this chip
    assert low / run.step_s < alone_low / update.step_s


def test_the_answer_says_what_is_not_checked_and_that_there_is_no_launch_file() -> None:
    run = first("grpo")
    said = " ".join(run.warnings)
    assert "no published measurement checks this composition" in said
    assert "no launch file is written for GRPO" in said and run.launch.command == "" and not run.launch.files
    assert "longest response is assumed to have 2 times the mean" in said


def test_supervised_runs_have_no_phases() -> None:
    spec = parse(
        {
            "name": "tune", "kind": "finetuning", "model": MODEL, "finetuning": {"tokens": 1e7},
            "constraints": {"accelerators": {"allow": ["h200-sxm"]}, "max_accelerators": 1},
        }
    )  # fmt: skip
    run = recommend(spec, take_snapshot(spec, default_organisation())).training_runs[0]
    assert run.phases == [] and run.objective == "sft" and run.policy_update_s == run.step_s
