"""finetuning.objective: what each one needs, and what it refuses with a way out."""

from typing import Any

import pytest

from advisor.inputs.training import task_of
from advisor.workload import WorkloadError, parse

BASE = {"name": "tune", "kind": "finetuning", "model": "m"}
GRPO: dict[str, Any] = {"objective": "grpo", "iterations": 10, "response_tokens": 1000}


def errors_of(section: dict[str, Any]) -> dict[str, str]:
    with pytest.raises(WorkloadError) as caught:
        parse({**BASE, "finetuning": section})
    return {e["field"].removeprefix("finetuning."): e["message"] for e in caught.value.errors}


@pytest.mark.parametrize(
    ("section", "field", "says"),
    [
        ({}, "tokens", "required for objective sft"),
        ({"objective": "dpo"}, "pairs", "required for objective dpo"),
        ({"objective": "grpo", "response_tokens": 100}, "iterations", "required for objective grpo"),
        ({"objective": "grpo", "iterations": 5}, "response_tokens", "decides how long an iteration takes"),
        ({"tokens": 1e7, "pairs": 5}, "pairs", "not used with objective sft"),
        ({"tokens": 1e7, "reference": "no"}, "reference", "supervised tuning has no reference model"),
        ({**GRPO, "tokens": 1e7}, "tokens", "not used with objective grpo"),
        ({**GRPO, "sequence_length": 8192}, "sequence_length", "follows from prompt_tokens"),
        ({**GRPO, "global_batch_tokens": 1e6}, "global_batch_tokens", "follows from prompts_per_iteration"),
        ({**GRPO, "longest_response_tokens": 999}, "longest_response_tokens", "less than the mean, 1,000"),
        ({**GRPO, "reference": "precomputed"}, "reference", "new in each iteration"),
        ({"objective": "dpo", "pairs": 5, "reference": "no"}, "reference", "compares with a reference model"),
        ({**GRPO, "samples_per_prompt": 1}, "samples_per_prompt", "at least 2"),
        ({**GRPO, "objective": "ppo"}, "objective", "not a valid choice"),
    ],
)
def test_what_is_missing_or_foreign_is_named(section: dict[str, Any], field: str, says: str) -> None:
    found = errors_of(section)
    assert list(found) == [field] and says in found[field]


def test_a_parsed_question_can_be_parsed_again() -> None:
    for section in ({"tokens": 1e7}, {"objective": "dpo", "pairs": 5, "reference": "precomputed"}, GRPO):
        spec = parse({**BASE, "finetuning": section})
        assert parse(spec) == spec


def test_an_iteration_trains_on_the_mean_response_and_holds_the_longest() -> None:
    task = task_of(parse({**BASE, "finetuning": {**GRPO, "prompts_per_iteration": 4}}))
    assert task.global_batch == 4 * 8 and task.sequence_tokens == 1520  # 512 + 1,000, a multiple of 16
    assert task.tokens == 10 * 32 * 1520 and task.longest_tokens == 2512
    assert task.tuning is not None and task.tuning.rollout is not None
    assert task.tuning.rollout.longest_response_tokens == 2000 and task.tuning.reference == "kept"


def test_yaml_booleans_are_read_as_yes_and_no() -> None:
    spec = parse({**BASE, "finetuning": {**GRPO, "reference": False}})
    assert spec["finetuning"]["reference"] == "no"


def test_dpo_trains_on_whole_pairs() -> None:
    section = {"objective": "dpo", "pairs": 7, "sequence_length": 1000, "global_batch_tokens": 5000}
    task = task_of(parse({**BASE, "finetuning": section}))
    assert task.global_batch == 4 and task.tokens == 14_000
