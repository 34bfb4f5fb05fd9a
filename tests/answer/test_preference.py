"""DPO and GRPO: phases add up, a frozen base needs no second model, and what cannot be generated is refused."""

from typing import Any

import pytest

from advisor.answer.estimates import training_estimate
from advisor.result import TrainingEstimate
from advisor.workload import WorkloadError, parse_estimate

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("frozen")]
ASKED: dict[str, Any] = {
    "kind": "finetuning",
    "model": "meta-llama/Llama-3.1-8B",
    "accelerator": "h200-sxm",
    "count": 8,
    "sequence_length": 4096,
    "micro_batch": 2,
    "global_batch": 256,
    "zero": 3,
    "recompute": "full",
}


def estimate(**changes: Any) -> TrainingEstimate:
    return training_estimate.answer(parse_estimate({**ASKED, **changes}))  # type: ignore[arg-type]


def seconds(e: TrainingEstimate) -> dict[str, float]:
    return {phase.name: phase.time_s for phase in e.phases}


def test_supervised_tuning_has_one_step_and_no_phases() -> None:
    plain = estimate()
    assert plain.phases == [] and plain.iteration_s is None and plain.reference_gib == 0


def test_a_dpo_step_is_an_update_and_a_forward_pass_of_the_reference() -> None:
    e, plain = estimate(objective="dpo"), estimate()
    parts = seconds(e)
    assert list(parts) == ["reference forward", "policy update"]
    assert e.iteration_s == pytest.approx(sum(parts.values()), rel=1e-4)
    assert parts["policy update"] == pytest.approx(plain.step_s)
    # with full recomputation an update is four forward passes of work, and a forward pass about one
    assert 0.15 < parts["reference forward"] / parts["policy update"] < 0.35
    assert e.reference_gib == pytest.approx(2 * 8.03e9 / 8 / 2**30, rel=0.01)


def test_adapters_need_no_second_model() -> None:
    e = estimate(objective="dpo", method="lora")
    assert e.reference_gib == 0 and "frozen base" in e.phases[0].said


def test_a_grpo_iteration_generates_before_it_trains() -> None:
    e = estimate(objective="grpo", response_tokens=1024)
    parts = seconds(e)
    assert list(parts) == [
        "weights to the generator",
        "generation",
        "longest responses",
        "reference forward",
        "policy update",
    ]
    assert e.iteration_s == pytest.approx(sum(parts.values()), rel=1e-5)
    generates = parts["generation"] + parts["longest responses"]
    assert e.generation_fraction == pytest.approx(generates / e.iteration_s, rel=1e-4)
    assert seconds(estimate(objective="grpo", response_tokens=512))["generation"] < parts["generation"]


@pytest.mark.parametrize(
    ("changes", "field", "says"),
    [
        ({"kind": "training", "objective": "dpo"}, "objective", "fine-tunes a model"),
        ({"objective": "dpo", "response_tokens": 100}, "response_tokens", "nothing is generated"),
        ({"objective": "grpo", "response_tokens": 4000}, "response_tokens", "exceed sequence_length"),
        ({"objective": "dpo", "global_batch": 15, "count": 5, "micro_batch": 1}, "global_batch", "odd"),
    ],
)
def test_contradictions_are_refused_at_their_field(changes: dict[str, Any], field: str, says: str) -> None:
    with pytest.raises(WorkloadError) as caught:
        estimate(**changes)
    assert caught.value.errors[0]["field"] == field and says in caught.value.errors[0]["message"]
