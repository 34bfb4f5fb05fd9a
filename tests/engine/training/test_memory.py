"""Memory of a training step: against measured peaks, published formulas, and what must always hold."""

from dataclasses import replace
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.engine.network import Attention, Block, Ffn, LatentAttention, Model, Recurrent, parameters
from advisor.engine.training.memory import (
    ModelStates,
    _stages,
    _stored,
    fits,
    kept_bytes_per_token,
    layer_bytes,
    outside_bytes,
    peak_memory,
)
from advisor.engine.training.run import (
    AMP,
    BF16,
    BF16_MASTER,
    FSDP_MIXED,
    HF,
    LORA16,
    MEGATRON,
    MEGATRON_BF16,
    PLAIN,
    Code,
    Parallel,
    Recipe,
    Run,
)
from tests.engine.training.rows import H200_BYTES, MODELS, Measured, llama, measured

ROWS = measured()


def model_states(model: Model, run: Run) -> ModelStates:
    """What the largest stage stores: ZeRO's model states (arXiv 1910.02054, figure 1)."""
    return max(
        (_stored(run, stage) for stage in _stages(model, run, layer_bytes(model, run))), key=lambda s: s.total_bytes
    )


PEAKS = [row for row in ROWS if row.peak_bytes]


# --- measured peaks ---------------------------------------------------------------------------------------------


def error(predicted: float, value: float | None) -> float:
    assert value
    return predicted / value - 1.0


@pytest.mark.parametrize("row", PEAKS, ids=lambda row: row.id)
def test_the_peak_of_the_allocator_on_h200s(row: Measured):
    assert abs(error(peak_memory(row.model, row.run).allocated_bytes, row.peak_bytes)) < 0.01


def test_the_peaks_together():
    errors = [abs(error(peak_memory(row.model, row.run).allocated_bytes, row.peak_bytes)) for row in PEAKS]
    assert len(errors) == 23 and median(errors) < 0.001


def test_reserved_memory_is_each_stream_s_own_peak():
    """FSDP's gradient shards and gathered weights are in pools of their own; nothing is fitted to these rows."""
    rows = [row for row in ROWS if row.reserved_bytes]
    errors = [abs(error(peak_memory(row.model, row.run).reserved_bytes, row.reserved_bytes)) for row in rows]
    assert len(errors) == 17 and median(errors) < 0.02 and max(errors) < 0.16


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.id)
def test_what_ran_fits_and_what_ran_out_of_memory_does_not(row: Measured):
    assert fits(peak_memory(row.model, row.run), H200_BYTES, outside_bytes(row.run)) == row.fits


def test_a_run_that_ran_out_of_memory_would_have_fitted_without_holes():
    row = next(row for row in ROWS if row.id == "h200t_llama-3.2-1b_amp_2048_16_no_e")
    peak = peak_memory(row.model, row.run)
    assert peak.allocated_bytes + outside_bytes(row.run) < H200_BYTES < peak.allocated_bytes + peak.holes_bytes


SMALL, LARGE = 16384, 128256
LATENT = LatentAttention(heads=16, q_rank=768, kv_rank=512, nope_dim=128, rope_dim=64, v_dim=128)
NORMED = Attention(heads=16, kv_heads=8, head_dim=128, qk_norm=True)
ROUTED = Attention(heads=32, kv_heads=4, head_dim=128, qk_norm=True)
EXPERTS = Ffn(inner=768, experts=32, top_k=8)


def eight(vocab: int) -> Model:
    return llama("eight layers", 8, 2048, 8192, 32, vocab, False, 8)


def layers(count: int, mixer: Attention | LatentAttention, ffn: Ffn) -> Model:
    return Model(slug="layers", hidden=2048, vocab=SMALL, blocks=(Block(count=count, mixer=mixer, ffn=ffn),))


OPERATORS = replace(PLAIN, selective="operators")
LORA_HALF = replace(LORA16, parameter_bytes=2.0, gradient_bytes=2.0, state_bytes=4.0)

# Bytes that each token adds to the peak of torch.cuda.max_memory_allocated: 8192 against 4096 tokens, PyTorch 2.11,
# transformers 5, peft and bitsandbytes 0.50 on one H100 and one H200, 2026-11-25.
TOKENS = [
    (eight(SMALL), BF16, HF, "none", 1_082_444),
    (eight(LARGE), BF16, HF, "none", 2_424_908),
    (eight(SMALL), BF16, PLAIN, "none", 943_180),
    (eight(SMALL), BF16, OPERATORS, "selective", 476_172),
    (eight(SMALL), BF16, replace(OPERATORS, compiled="block"), "selective", 443_404),
    (eight(SMALL), BF16, replace(HF, compiled="block"), "none", 820_300),
    (eight(SMALL), AMP, replace(HF, compiled="block"), "none", 857_164),
    (eight(SMALL), AMP, replace(HF, compiled="full"), "none", 832_604),
    (eight(LARGE), AMP, replace(HF, compiled="full"), "none", 1_503_836),
    (eight(SMALL), BF16, replace(HF, compiled="full"), "none", 767_068),
    (layers(8, NORMED, Ffn(inner=6144)), BF16, HF, "none", 1_115_468),
    (layers(4, ROUTED, EXPERTS), BF16, HF, "none", 990_044),
    (layers(4, ROUTED, EXPERTS), BF16, replace(HF, compiled="block"), "none", 801_468),
    (layers(4, LATENT, Ffn(inner=6144)), BF16, HF, "none", 696_652),
    (eight(SMALL), LORA16, HF, "none", 1_462_856),
    (eight(SMALL), LORA_HALF, HF, "none", 1_002_312),
    (eight(SMALL), replace(LORA_HALF, adapter_dropout=True), HF, "none", 1_291_080),
    (eight(SMALL), replace(LORA_HALF, method="qlora", frozen_bytes=0.5625), HF, "none", 1_002_312),
]


@pytest.mark.parametrize(("model", "recipe", "code", "recompute", "bytes_per_token"), TOKENS)
def test_the_peak_of_each_further_token(model, recipe, code, recompute, bytes_per_token):
    small, large = (
        peak_memory(model, Run(sequence_tokens=2048, micro_batch=n, recipe=recipe, code=code, recompute=recompute))
        for n in (2, 4)
    )
    assert small.phase == large.phase == "loss"
    each = (large.allocated_bytes - small.allocated_bytes) / 4096
    assert each == pytest.approx(bytes_per_token, rel=0.011)


# --- published formulas -----------------------------------------------------------------------------------------

HIDDEN, HEADS, SEQUENCE = 1024, 16, 2048
GPT = Model(
    slug="gpt",
    hidden=HIDDEN,
    vocab=50304,
    blocks=(Block(count=8, mixer=Attention(heads=16, kv_heads=16, head_dim=64), ffn=Ffn(inner=4096, matrices=2)),),
)
STORED = replace(MEGATRON, attention="math")
ZERO = Recipe(parameter_bytes=2.0, gradient_bytes=2.0, state_bytes=8.0, master_bytes=4.0, reduce_bytes=2.0)


@pytest.mark.parametrize(
    ("ranks", "stage_1", "stage_2", "stage_3"),
    [(4, 52.5, 41.3, 30.0), (16, 35.6, 21.6, 7.5), (64, 31.4, 16.6, 1.88), (256, 30.4, 15.4, 0.47)],
)
def test_the_table_of_zero(ranks, stage_1, stage_2, stage_3):
    """GB per rank of 7.5 billion weights in 16 bytes each: arXiv 1910.02054, table 1 and figure 1; 120 unsharded."""
    for zero, expected in enumerate((120.0, stage_1, stage_2, stage_3)):
        run = Run(sequence_tokens=1, recipe=ZERO, parallel=Parallel(dp=ranks, zero=zero))
        states = model_states(GPT, run).total_bytes * 7.5 / parameters(GPT)
        assert states == pytest.approx(expected, rel=0.006)


def kept(**layout) -> float:
    recompute = layout.pop("recompute", "none")
    run = Run(sequence_tokens=SEQUENCE, code=STORED, recompute=recompute, recipe=MEGATRON_BF16)
    return kept_bytes_per_token(GPT, GPT.blocks[0], replace(run, parallel=Parallel(**layout)))


def test_the_formula_of_megatron_s_layer():
    """Bytes per token of Korthikanti et al. 2022, table 2, less dropout: two masks, and 3 of the 5 bytes per score."""
    scores = 2 * HEADS * SEQUENCE
    assert kept() == 32 * HIDDEN + scores
    assert kept(tp=4) == (8 + 24 / 4) * HIDDEN + scores / 4
    assert kept(tp=4, sequence_parallel=True) == (32 * HIDDEN + scores) / 4
    assert kept(tp=4, sequence_parallel=True, recompute="selective") == 32 * HIDDEN / 4
    assert kept(recompute="full") == 2 * HIDDEN


@pytest.mark.parametrize("virtual_stages", [2, 4])
def test_interleaved_stages_keep_more(virtual_stages):
    """1 + (p - 1) / (p v) times the activations of 1F1B on the first rank (Korthikanti et al. 2022)."""
    model = replace(GPT, blocks=(replace(GPT.blocks[0], count=32),), vocab=128)
    run = Run(sequence_tokens=SEQUENCE, micro_batches=64, recompute="full", recipe=MEGATRON_BF16)
    plain, interleaved = (
        peak_memory(model, replace(run, parallel=Parallel(pp=4, virtual_stages=v))) for v in (1, virtual_stages)
    )
    one_stage = 8 * 2 * HIDDEN * SEQUENCE
    added = interleaved.activations_bytes - plain.activations_bytes
    assert plain.stage == interleaved.stage == 0 and plain.phase == "backward"
    assert added == pytest.approx(one_stage * 4 * 3 / (4 * virtual_stages))


# --- parts ------------------------------------------------------------------------------------------------------

EIGHT_B = MODELS["llama-3.1-8b"]


def run(parallel: Parallel | None = None, **rest) -> Run:
    values = {"recipe": FSDP_MIXED, "code": HF, "sequence_tokens": 4096} | rest
    return Run(parallel=parallel or Parallel(dp=4, zero=3), **values)


def test_the_parts_add_up():
    peak = peak_memory(EIGHT_B, run())
    parts = ("parameters", "gradients", "states", "master", "gathered", "activations", "logits", "buffers")
    assert peak.allocated_bytes == sum(getattr(peak, f"{part}_bytes") for part in parts)
    assert peak.logits_bytes == 12 * 4096 * EIGHT_B.vocab
    assert peak.parameters_bytes == 4 * parameters(EIGHT_B) / 4 and peak.states_bytes == 2 * peak.parameters_bytes
    assert peak.reserved_bytes == peak.allocated_bytes + peak.holes_bytes + peak.pools_bytes


def test_the_moment_of_the_peak():
    assert peak_memory(EIGHT_B, run()).phase == "loss"
    assert peak_memory(EIGHT_B, run(recompute="full")).phase == "backward"  # the reduction of both tables in FP32
    short = run(Parallel(), sequence_tokens=8, recipe=BF16_MASTER, code=PLAIN)
    assert peak_memory(EIGHT_B, short).phase == "optimizer"  # gradients copied to FP32
    assert peak_memory(EIGHT_B, short).gradients_bytes == 4 * parameters(EIGHT_B)


def test_the_last_stage_needs_most_where_the_vocabulary_is_large():
    wide = replace(EIGHT_B, vocab=600_000)
    base = run(Parallel(pp=4), micro_batches=8, recipe=BF16_MASTER, code=PLAIN)
    assert peak_memory(EIGHT_B, base).stage == 0
    assert peak_memory(wide, base).stage == 3
    assert peak_memory(wide, replace(base, micro_batch=4)).phase == "loss"


def test_fused_and_chunked_losses_need_less():
    def logits(loss: str) -> float:
        return peak_memory(EIGHT_B, run(micro_batch=4, code=replace(HF, loss=loss))).logits_bytes

    assert logits("upcast") > 2 * logits("chunked") > 4 * logits("fused_linear")


def test_context_parallel_ranks_share_the_tokens():
    whole, half = peak_memory(EIGHT_B, run()), peak_memory(EIGHT_B, run(Parallel(dp=2, cp=2, zero=3)))
    assert half.activations_bytes == whole.activations_bytes / 2 and half.logits_bytes == whole.logits_bytes / 2
    assert half.parameters_bytes == whole.parameters_bytes


def test_hybrid_sharding_stores_more():
    full = peak_memory(EIGHT_B, run(Parallel(dp=64, zero=3)))
    hybrid = peak_memory(EIGHT_B, run(Parallel(dp=64, zero=3, shard=8)))
    assert hybrid.states_bytes == 8 * full.states_bytes and hybrid.gathered_bytes == full.gathered_bytes


def test_experts_are_spread_over_their_ranks():
    model = layers(4, ROUTED, Ffn(inner=768, experts=32, top_k=8))
    base = Run(sequence_tokens=4096, recipe=MEGATRON_BF16, code=MEGATRON)
    one, spread = (model_states(model, replace(base, parallel=Parallel(dp=8, ep=ep))) for ep in (1, 8))
    experts = 4 * 32 * 3 * 2048 * 768
    assert one.parameters_bytes - spread.parameters_bytes == 2 * experts * 7 / 8
    assert model_states(model, replace(base, parallel=Parallel(dp=8, ep=8, zero=1))).states_bytes == pytest.approx(
        8 * parameters(model) / 8
    )


def test_each_chosen_expert_keeps_a_copy_of_a_token():
    def bytes_of(top_k: int) -> float:
        model = layers(1, ROUTED, Ffn(inner=768, experts=32, top_k=top_k))
        return kept_bytes_per_token(model, model.blocks[0], Run(sequence_tokens=4096, recipe=BF16, code=HF))

    each = 2 * 2048 + 8 * 768 + 2 * 2048 + 24  # its input, gate and product, its result, the router's choice
    assert bytes_of(8) - bytes_of(2) == 6 * each


def test_a_recurrent_layer_keeps_its_projections_and_states():
    mixer = Recurrent(kind="mamba2", inner=4096, state=128, heads=64, head_dim=64)
    block = Block(count=4, mixer=mixer, ffn=None, norms=1)
    model = Model(slug="recurrent", hidden=2048, vocab=SMALL, blocks=(block,))
    inward = 2 * 4096 + 2 * 128 + 64
    per_token = kept_bytes_per_token(model, block, Run(sequence_tokens=4096, recipe=BF16, code=PLAIN))
    assert per_token == pytest.approx(2 * 2 * 2048 + 2 * (2 * inward + 3 * 4096), rel=0.01)  # and its convolution


def test_transformer_engine_keeps_eight_bit_inputs_and_torchao_does_not():
    half, narrow = MEGATRON_BF16, replace(MEGATRON_BF16, matmul_dtype="fp8")

    def bytes_of(recipe: Recipe, code: Code) -> float:
        return kept_bytes_per_token(EIGHT_B, EIGHT_B.blocks[0], Run(sequence_tokens=4096, recipe=recipe, code=code))

    assert bytes_of(half, MEGATRON) - bytes_of(narrow, MEGATRON) == 2 * 4096 + 14336 - 4096  # and attention's result
    assert bytes_of(half, PLAIN) == bytes_of(narrow, PLAIN)


def test_offloading_takes_the_states_and_then_everything_stored():
    none, states, everything = (
        peak_memory(EIGHT_B, run(offload=offload, recompute="full")) for offload in ("none", "optimizer", "all")
    )
    assert states.states_bytes == 0 and states.parameters_bytes == none.parameters_bytes
    assert everything.parameters_bytes == everything.gradients_bytes == 0 and everything.gathered_bytes > 0
    assert none.allocated_bytes > states.allocated_bytes > everything.allocated_bytes


def test_ddp_holds_its_first_buckets_until_the_third_step():
    alone, two = (
        peak_memory(EIGHT_B, run(Parallel(dp=n), recipe=AMP, sequence_tokens=2048)).buffers_bytes for n in (1, 2)
    )
    assert two - alone == 2 * 4 * parameters(EIGHT_B)
    megatron = run(Parallel(dp=2), recipe=MEGATRON_BF16, code=MEGATRON)
    assert peak_memory(EIGHT_B, megatron).gradients_bytes == 4 * parameters(EIGHT_B)  # always there, reduced in place
    assert peak_memory(EIGHT_B, megatron).buffers_bytes == alone


def test_a_process_alone_has_no_buffers_of_nccl():
    assert outside_bytes(run(Parallel())) < outside_bytes(run())
    peak = peak_memory(EIGHT_B, run())
    need = peak.allocated_bytes + peak.holes_bytes
    assert fits(peak, need + 1e9, 1e9) and not fits(peak, need + 1e9, 1.1e9)


# --- what must always hold --------------------------------------------------------------------------------------

widths = st.sampled_from([512, 1024, 4096])
recipes = st.sampled_from([AMP, BF16, FSDP_MIXED, MEGATRON_BF16, LORA16])
codes = st.sampled_from([HF, PLAIN, MEGATRON, OPERATORS, replace(HF, compiled="block"), replace(HF, loss="chunked")])


@st.composite
def models(draw) -> Model:
    hidden, experts = draw(widths), draw(st.sampled_from([1, 8]))
    mixer = Attention(heads=hidden // 64, kv_heads=draw(st.sampled_from([4, 8])), head_dim=64)
    if draw(st.booleans()):
        mixer = replace(LATENT, q_rank=draw(st.sampled_from([0, 256])))
    ffn = Ffn(inner=4 * hidden, experts=experts, top_k=min(experts, 2), shared_inner=64 if experts > 1 else 0)
    blocks = (Block(count=draw(st.integers(2, 24)), mixer=mixer, ffn=ffn),)
    vocab = draw(st.sampled_from([1024, 128256]))
    return Model(slug="drawn", hidden=hidden, vocab=vocab, blocks=blocks, tied_embeddings=draw(st.booleans()))


@st.composite
def runs(draw) -> Run:
    return Run(
        sequence_tokens=draw(st.sampled_from([512, 4096, 32768])),
        micro_batch=draw(st.integers(1, 4)),
        micro_batches=draw(st.sampled_from([1, 2, 16])),
        recipe=draw(recipes),
        code=draw(codes),
        recompute=draw(st.sampled_from(["none", "selective", "full"])),
        parallel=Parallel(
            dp=draw(st.sampled_from([2, 8])),
            pp=draw(st.sampled_from([1, 2, 4])),
            tp=draw(st.sampled_from([1, 2])),
            zero=draw(st.integers(0, 3)),
            sequence_parallel=True,
        ),
    )


def need(model: Model, run: Run) -> float:
    return peak_memory(model, run).allocated_bytes * (1 - 1e-12)


@given(models(), runs())
def test_more_ranks_that_share_the_states_never_need_more(model, run):
    wider = replace(run, parallel=replace(run.parallel, dp=2 * run.parallel.dp))
    assert need(model, wider) <= peak_memory(model, run).allocated_bytes


@given(models(), runs())
def test_later_stages_of_zero_never_store_more(model, run):
    stored = [
        model_states(model, replace(run, parallel=replace(run.parallel, zero=zero))).total_bytes for zero in range(4)
    ]
    assert stored == sorted(stored, reverse=True)


@given(models(), runs())
def test_recomputing_more_never_needs_more(model, run):
    none, selective, full = (need(model, replace(run, recompute=r)) for r in ("none", "selective", "full"))
    assert none >= selective * (1 - 1e-9) >= full * (1 - 1e-8)


@given(models(), runs())
def test_tensor_parallel_ranks_need_less(model, run):
    split = replace(run, parallel=replace(run.parallel, tp=2 * run.parallel.tp))
    assert need(model, split) <= peak_memory(model, run).allocated_bytes


@given(models(), runs())
def test_sequence_parallel_norms_never_need_more(model, run):
    whole = replace(run, parallel=replace(run.parallel, sequence_parallel=False))
    assert need(model, run) <= peak_memory(model, whole).allocated_bytes


@given(models(), runs())
def test_more_tokens_never_need_less(model, run):
    assert need(model, run) <= peak_memory(model, replace(run, micro_batch=run.micro_batch + 1)).allocated_bytes


@given(models(), runs())
def test_quantizing_the_base_never_stores_more(model, run):
    lora = replace(run, recipe=LORA16)
    qlora = replace(run, recipe=replace(LORA16, method="qlora", frozen_bytes=0.5625))
    assert model_states(model, qlora).total_bytes <= model_states(model, lora).total_bytes


@given(models(), runs())
def test_offloading_never_needs_more(model, run):
    none, states = (peak_memory(model, replace(run, offload=o)).allocated_bytes for o in ("none", "optimizer"))
    assert states <= none


def test_layers_whose_activations_are_offloaded_leave_their_share() -> None:
    model = MODELS["llama-3.1-8b"]
    run = Run(sequence_tokens=8192, recipe=MEGATRON_BF16, code=MEGATRON)
    kept = 8192 * sum(b.count * kept_bytes_per_token(model, b, run) for b in model.blocks)
    whole, half = (peak_memory(model, replace(run, offloaded_layers=n)).activations_bytes for n in (0, 16))
    assert whole - half == pytest.approx(kept / 2, rel=0.01)
    assert peak_memory(model, replace(run, offloaded_layers=99)) == peak_memory(
        model, replace(run, offloaded_layers=32)
    )
