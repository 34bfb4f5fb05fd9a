"""Layouts that Megatron's users publish are among the fastest that the search finds."""

from dataclasses import replace

import pytest

from advisor.engine import training
from advisor.engine.network import Attention, Block, Ffn, Model
from advisor.engine.training import MEGATRON, MEGATRON_BF16, Job, Parallel, Run, Shape
from advisor.engine.training.parallel.layouts import COLUMNS, candidates, least_bytes, run_of, shape_of
from tests.engine.training.test_step_time import EFFICIENCY, H200

H100 = replace(H200, slug="h100-sxm", name="H100", memory_bytes=79.65 * 2**30, memory_bytes_per_s=3.35e12)
LLAMA3_70B = Model(
    slug="llama-3-70b", hidden=8192, vocab=128256,
    blocks=(Block(count=80, mixer=Attention(heads=64, kv_heads=8, head_dim=128), ffn=Ffn(inner=28672)),),
)  # fmt: skip
QWEN3_30B = Model(
    slug="qwen3-30b-a3b", hidden=2048, vocab=151936,
    blocks=(Block(count=48, mixer=Attention(heads=32, kv_heads=4, head_dim=128, qk_norm=True),
                  ffn=Ffn(inner=768, experts=128, top_k=8)),),
)  # fmt: skip
RECIPE = replace(MEGATRON_BF16, reduce_bytes=2.0)


def job(model: Model, chips: int, length: int, batch: int, dtype: str) -> Job:
    return Job(
        model=model, accelerator=H100, efficiency=EFFICIENCY, chips=chips, sequence_tokens=length, global_batch=batch,
        recipe=replace(RECIPE, matmul_dtype=dtype), code=MEGATRON, zeros=(1,),
    )  # fmt: skip


def step_s(asked: Job, run: Run) -> float:
    rates = training.rates_of(asked.accelerator, asked.efficiency, asked.recipe, asked.code)
    return float(training.step_time(asked.model, Shape.of(run), rates, run).step_s)


PUBLISHED = {  # NeMo 24.07 and Megatron-LM (LLAMA3-70B on 64 H100, FP8); Megatron-Bridge 26.02 (16 H100, FP8)
    "NeMo, Llama 3 70B": (LLAMA3_70B, 64, 8192, 128, "fp8", Parallel(dp=2, tp=4, pp=4, cp=2, zero=1, virtual_stages=5)),
    "Megatron-LM, Llama 3 70B": (LLAMA3_70B, 64, 8192, 128, "fp8",
                                 Parallel(dp=2, tp=4, pp=8, zero=1, virtual_stages=5)),
    "Megatron-Bridge, Qwen3 30B": (QWEN3_30B, 16, 4096, 1024, "fp8",
                                   Parallel(dp=8, pp=2, ep=8, zero=1, virtual_stages=12)),
}  # fmt: skip


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_published_layout_is_near_the_fastest(name: str) -> None:
    """Within 8%: the search finds shorter pipelines with more interleaved stages, which leave less memory free."""
    model, chips, length, batch, dtype, parallel = PUBLISHED[name]
    asked = job(model, chips, length, batch, dtype)
    found = training.fastest(asked, count=1)
    run = Run(
        sequence_tokens=length, micro_batch=1, micro_batches=batch // parallel.dp, recipe=asked.recipe, code=MEGATRON,
        parallel=replace(parallel, sequence_parallel=parallel.tp > 1),
    )  # fmt: skip
    assert found.layouts[0].step_s <= step_s(asked, run) * (1 + 1e-9)
    assert step_s(asked, run) <= 1.08 * found.layouts[0].step_s


def test_candidates_use_all_chips_and_the_whole_batch() -> None:
    asked = job(QWEN3_30B, 16, 4096, 64, "bf16")
    table = candidates(asked)
    assert len(table) == len({tuple(row) for row in table.tolist()}) > 1000
    for row in table[::97]:
        c = dict(zip(COLUMNS, row.tolist(), strict=True))
        assert c["dp"] * c["tp"] * c["pp"] * c["cp"] == 16
        assert c["dp"] * c["micro_batch"] * c["micro_batches"] == 64
        assert run_of(asked, row).global_tokens == 64 * 4096


def test_the_lower_bound_of_memory_is_one() -> None:
    for model in (LLAMA3_70B, QWEN3_30B):
        asked = job(model, 16, 4096, 64, "bf16")
        table = candidates(asked)
        bound = least_bytes(asked, table, shape_of(asked, table))
        for i in range(0, len(table), 41):
            assert bound[i] <= training.peak_memory(model, run_of(asked, table[i])).allocated_bytes * 1.02


def test_the_search_times_its_layouts_like_one_run() -> None:
    asked = job(LLAMA3_70B, 64, 4096, 128, "bf16")
    for layout in training.fastest(asked, count=5).layouts:
        assert layout.step_s == pytest.approx(step_s(asked, layout.run))
        assert layout.tokens_per_s == pytest.approx(128 * 4096 / layout.step_s)


def test_nothing_fits_on_a_single_small_chip() -> None:
    found = training.fastest(job(LLAMA3_70B, 1, 4096, 1, "bf16"), count=1)
    assert found.layouts == () and found.too_large == found.candidates > 0
