"""The figures of docs/how-to/train-a-model.md that the shipped catalog decides."""

from dataclasses import replace
from pathlib import Path

import pytest

from advisor.engine import training
from advisor.engine.terms import efficiency
from advisor.engine.training import Job, Layout, Parallel, Run, Shape, code_of, recipe_of
from advisor.engine.training.parallel.layouts import SIZES
from advisor.inputs import catalog_resources

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("frozen")]
PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "train-a-model.md").read_text()
LLAMA_70B, LLAMA_8B = "meta-llama/Llama-3.1-70B", "meta-llama/Llama-3.1-8B"


def row(first: str) -> list[str]:
    """The cells of the row of a table that starts so."""
    line = next(line for line in PAGE.splitlines() if line.startswith(f"| {first} |"))
    return [cell.strip() for cell in line.strip("| ").split("|")]


def job(chip: str, chips: int, zeros: tuple[int, ...]) -> Job:
    """Llama 3.1 70B in BF16: 512 sequences of 8,192 tokens a step."""
    known = catalog_resources()
    a, model = known.accelerators[chip], known.models[LLAMA_70B]
    return Job(
        model=model, accelerator=a, efficiency=efficiency(known.scopes, a.slug, a.family, a.kind), chips=chips,
        sequence_tokens=8192, global_batch=512, zeros=zeros, sizes=("tp", "cp", "ep") if a.kind == "tpu" else SIZES,
        recipe=recipe_of("bf16", "full", 16, "adamw", "megatron", zeros[-1], model),
        code=code_of("megatron", False, Parallel(dp=chips, zero=zeros[-1])),
    )  # fmt: skip


def fastest(asked: Job) -> Layout:
    return training.fastest(asked, count=1).layouts[0]


def mfu(asked: Job, layout: Layout) -> float:
    rate = training.model_flops(asked.model, layout.run) / layout.step_s / asked.chips
    return float(rate / asked.accelerator.flops_per_s["bf16"])


def published(asked: Job) -> tuple[Run, float]:
    run = Run(
        sequence_tokens=8192, micro_batch=1, micro_batches=64, recipe=asked.recipe, code=asked.code,
        parallel=Parallel(dp=8, tp=8, pp=8, zero=1, sequence_parallel=True),
    )  # fmt: skip
    rates = training.rates_of(asked.accelerator, asked.efficiency, asked.recipe, asked.code)
    return run, float(training.step_time(asked.model, Shape.of(run), rates, run).step_s)


def test_eight_by_eight_by_eight_against_the_best_layout() -> None:
    asked = job("h100-sxm", 512, (1, 3))
    best, (run, step_s) = fastest(asked), published(asked)
    p, used = best.run.parallel, training.peak_memory(asked.model, run).allocated_bytes
    assert row("TP8 × PP8 × DP8")[1:] == [f"{step_s:.2f} s", f"{used / 2**30:.1f} GiB"]
    assert row("best layout")[1:] == [f"{best.step_s:.2f} s", f"{best.memory.allocated_bytes / 2**30:.1f} GiB"]
    said = f"is TP{p.tp} × CP{p.cp} × PP{p.pp} × DP{p.dp} with {p.virtual_stages} interleaved stages per pipeline rank"
    said += f" and micro-batches of {best.run.micro_batch}"
    assert p.ep == 1 and said in PAGE.replace("\n", " ")
    assert f"{step_s / best.step_s - 1.0:.0%} longer" in PAGE.replace("\n", " ")


def test_70b_on_h100_and_on_tpu_v5p() -> None:
    for chip, name, zeros in (("h100-sxm", "H100", (1, 3)), ("tpu-v5p", "TPU v5p", (3,))):
        asked = job(chip, 256, zeros)
        found = fastest(asked)
        assert row(name)[1:] == [
            f"{found.step_s:.2f} s", f"{found.tokens_per_s / 256:,.0f}", f"{mfu(asked, found):.1%}"
        ]  # fmt: skip


@pytest.mark.parametrize(("name", "method"), [("LoRA", "lora"), ("QLoRA", "qlora"), ("all weights", "full")])
def test_an_adapter_on_one_card_of_24_gb(name: str, method: str) -> None:
    known = catalog_resources()
    model, card = known.models[LLAMA_8B], known.accelerators["rtx-4090"]
    recipe = recipe_of("bf16", method, 16, "adamw", "hf", 0, model)  # type: ignore[arg-type]
    run = Run(sequence_tokens=1024, recipe=recipe, code=code_of("hf", False, Parallel()), recompute="full")
    run = replace(run, micro_batch=1, micro_batches=1)
    peak = training.peak_memory(model, run)
    fits = training.fits(peak, card.memory_bytes, training.outside_bytes(run))
    assert row(name)[1:] == [f"{peak.allocated_bytes / 2**30:.1f} GiB", "fits" if fits else "does not fit"]
