"""What holds of every training estimate: order of methods, of recomputation, of hosts, and intervals."""

from collections.abc import Iterator
from typing import Any

import pytest

from advisor.answer.estimates import training_estimate
from advisor.engine.network import Model, parameters
from advisor.engine.step import has_experts
from advisor.engine.terms import Accelerator, efficiency
from advisor.engine.training import (
    Parallel,
    Recipe,
    Run,
    Shape,
    code_of,
    peak_memory,
    rates_of,
    recipe_of,
    step_time,
    straggler_factor,
)
from advisor.inputs import catalog_resources
from advisor.result import TrainingEstimate
from advisor.workload import TrainingRun, parse_estimate

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("shipped")]
CHIPS = ("h100-sxm", "a100-80gb-sxm", "b200", "mi300x", "tpu-v6e")
EAGER_CHIPS = ("h100-sxm", "a100-80gb-sxm", "b200", "mi300x")
LARGE = 7e9  # parameters; in small models the kernels of adapters take longer than the gradients that they save


@pytest.fixture
def known() -> Any:
    return catalog_resources()


def decoders(known: Any, least: float = 0.0) -> Iterator[Model]:
    for model in known.models.values():
        if not (model.diffusion or model.encoder_only or model.source_tokens) and parameters(model) >= least:
            yield model


def step_s(known: Any, chip: Accelerator, model: Model, run: Run) -> float:
    reached = efficiency(known.scopes, chip.slug, chip.family, chip.kind)
    return float(step_time(model, Shape.of(run), rates_of(chip, reached, run.recipe, run.code), run).step_s)


def tuned(model: Model, method: Any, chips: int = 1, **changes: Any) -> Run:
    p = Parallel(dp=chips, zero=3 if chips > 1 else 0)
    recipe: Recipe = recipe_of("bf16", method, 16, "adamw", "hf", p.zero, model)
    return Run(**{"sequence_tokens": 2048, "recipe": recipe, "parallel": p, "code": code_of("hf", False, p), **changes})


@pytest.mark.parametrize("slug", EAGER_CHIPS)
@pytest.mark.parametrize("chips", [1, 8])
def test_lora_takes_less_time_than_full_fine_tuning_of_a_large_dense_model(known: Any, slug: str, chips: int) -> None:
    chip, tried = known.accelerators[slug], 0
    for model in decoders(known, LARGE):
        if has_experts(model):
            continue
        lora, full = (step_s(known, chip, model, tuned(model, method, chips)) for method in ("lora", "full"))
        assert lora < full, model.slug
        tried += 1
    assert tried > 20


@pytest.mark.parametrize("slug", CHIPS)
@pytest.mark.parametrize("chips", [1, 8, 64])
def test_qlora_is_never_faster_than_lora(known: Any, slug: str, chips: int) -> None:
    for model in decoders(known):
        qlora, lora = (
            step_s(known, known.accelerators[slug], model, tuned(model, method, chips)) for method in ("qlora", "lora")
        )
        assert qlora > lora, model.slug


@pytest.mark.parametrize("code", ["hf", "plain", "megatron"])
def test_recomputation_never_needs_more_memory(known: Any, code: Any) -> None:
    for model in decoders(known):
        made = code_of(code, False, Parallel())
        recipe = recipe_of("bf16", "full", 16, "adamw", code, 0, model)
        none, selective, full = (
            peak_memory(model, tuned(model, "full", recompute=kind, recipe=recipe, code=made)).allocated_bytes
            for kind in ("none", "selective", "full")
        )
        assert full <= none and selective <= none, model.slug


@pytest.mark.parametrize("code", ["hf", "megatron"])
def test_more_hosts_are_never_more_efficient(known: Any, code: Any) -> None:
    """Each rank has the same work on 8 to 1,024 H100s."""
    chip, model = known.accelerators["h100-sxm"], known.models["meta-llama/Llama-3.1-8B"]
    steps = []
    for chips in (8, 16, 64, 256, 1024):
        p = Parallel(dp=chips // 2, tp=2, zero=3 if code == "hf" else 1, sequence_parallel=True)
        recipe = recipe_of("bf16", "full", 0, "adamw", code, p.zero, model)
        run = Run(sequence_tokens=4096, recipe=recipe, parallel=p, code=code_of(code, False, p), micro_batches=4)
        steps.append(step_s(known, chip, model, run) * straggler_factor(chips))
    assert steps == sorted(steps)


# --- estimates --------------------------------------------------------------------------------------------------


def estimated(**asked: Any) -> TrainingEstimate:
    run = parse_estimate({"sequence_length": 4096, "micro_batches": 4, **asked})
    assert isinstance(run, TrainingRun)
    return training_estimate.answer(run)


LLAMA = {"kind": "finetuning", "model": "meta-llama/Llama-3.1-8B"}
ASKED = [
    {**LLAMA, "accelerator": "h200-sxm", "count": 8},
    {**LLAMA, "accelerator": "h200-sxm", "count": 16},
    {**LLAMA, "accelerator": "mi300x", "count": 8, "method": "lora"},
    {**LLAMA, "accelerator": "rtx-4090", "method": "qlora", "recompute": "full"},
    {**LLAMA, "accelerator": "tpu-v6e", "count": 64, "recompute": "full"},
    {**LLAMA, "accelerator": "h100-sxm", "count": 8, "objective": "grpo"},
    {"kind": "training", "model": "Qwen/Qwen3-30B-A3B", "accelerator": "b200", "count": 16, "ep": 8},
    {"kind": "training", "model": "meta-llama/Llama-3.1-8B", "accelerator": "gaudi3", "count": 8, "tp": 2},
]


@pytest.mark.parametrize("asked", ASKED, ids=lambda a: f"{a['accelerator']} {a.get('count', 1)}")
def test_every_estimate_has_intervals_that_contain_it(asked: dict[str, Any]) -> None:
    e = estimated(**asked)
    assert e.fits and e.interval is not None
    names = ["step_s", "tokens_per_s", "tokens_per_s_per_accelerator", "peak_allocated_gib"]
    for name in [*names, *(["iteration_s"] if e.iteration_s else [])]:
        low, high = getattr(e.interval, name)
        assert low <= getattr(e, name) <= high and low < high, name


def test_a_run_beyond_a_scale_up_domain_does_not_rest_on_measurements_inside_it() -> None:
    one, two = (estimated(**LLAMA, accelerator="h200-sxm", count=count) for count in (8, 16))
    assert (one.basis, two.basis) == ("measured", "relative")
    assert any("no run on more than 8 of them" in w for w in two.warnings)
    widths = [e.interval.step_s[1] / e.interval.step_s[0] for e in (one, two)]  # type: ignore[operator,union-attr,index]
    assert widths[0] < widths[1]


def test_megatron_overlaps_only_what_its_script_switches_on() -> None:
    """Qwen2.5-32B with tp 4 and pp 2 on two hosts of H200s was seen at 420 TFLOP/s (Megatron-LM issue 1565)."""
    asked = {
        "kind": "training", "model": "Qwen/Qwen2.5-32B", "accelerator": "h200-sxm", "count": 16, "tp": 4, "pp": 2,
        "zero": 1, "micro_batches": None, "global_batch": 128, "sequence_parallel": True,
    }  # fmt: skip
    plain, script = estimated(**asked), estimated(**asked, framework="megatron-bridge")
    assert (plain.exposed_communication_s or 0) > 2 * (script.exposed_communication_s or 0)
    low, high = plain.interval.tokens_per_s  # type: ignore[union-attr,misc]
    ratio = (plain.tflops_per_accelerator or 0) / (plain.tokens_per_s or 1)
    assert low * ratio < 420 < high * ratio
    assert plain.tflops_per_accelerator == pytest.approx(420, rel=0.15)


def test_pure_bf16_is_offered_where_fp32_copies_do_not_fit() -> None:
    """Llama 2 70B on 8 A100s with 8-bit AdamW takes about 51 GB (torchtune issue 987, optimizer states paged)."""
    asked = {
        "kind": "finetuning", "model": "meta-llama/Llama-2-70b-hf", "accelerator": "a100-80gb-sxm", "count": 8,
        "sequence_length": 2048, "micro_batches": 1, "recompute": "full", "optimizer": "adamw_8bit", "code": "plain",
    }  # fmt: skip
    mixed, pure = estimated(**asked), estimated(**asked, precision="bf16_pure")
    assert not mixed.fits and "precision bf16_pure" in (mixed.smallest_change or [])
    assert pure.fits
    assert pure.memory.weights_gib == pytest.approx(pure.parameters * 2 / 8 / 2**30, rel=0.01)
    assert pure.memory.gradients_gib == pytest.approx(pure.memory.weights_gib, rel=0.05)


def test_data_of_all_lengths_need_more_memory_than_packed_ones() -> None:
    """Qwen2.5-32B, sequences up to 20k, 4 A100s: out of memory in transformers' trainer (accelerate issue 3647)."""
    asked = {
        "kind": "finetuning", "model": "Qwen/Qwen2.5-32B", "accelerator": "a100-80gb-sxm", "count": 4,
        "sequence_length": 20480, "micro_batches": 1, "recompute": "full", "offload": "all",
    }  # fmt: skip
    assert not estimated(**asked, code="hf").fits
    assert estimated(**asked, code="plain").fits  # sequences of one length


def test_recomputation_that_saves_nothing_says_so() -> None:
    flash = estimated(**LLAMA, accelerator="h200-sxm", recompute="selective")
    full = estimated(**LLAMA, accelerator="h200-sxm", recompute="full")
    assert any("saves no memory" in w for w in flash.warnings)
    assert not any("saves no memory" in w for w in full.warnings)


def test_grpo_trains_on_prompts_and_responses_without_padding_and_holds_the_longest() -> None:
    asked = {**LLAMA, "accelerator": "h200-sxm", "count": 8, "sequence_length": 4096, "micro_batches": 8}
    lengths = {"prompt_tokens": 1024, "response_tokens": 512, "longest_response_tokens": 3072}
    sft, grpo = estimated(**asked), estimated(**asked, objective="grpo", **lengths)
    assert grpo.global_batch_tokens == grpo.global_batch * (1024 + 512)
    assert grpo.memory.activations_gib == pytest.approx(sft.memory.activations_gib)
    assert (grpo.step_s or 0) < 0.55 * (sft.step_s or 0)
