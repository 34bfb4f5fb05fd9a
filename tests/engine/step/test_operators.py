"""Each operator of a step against bytes, FLOPs and seconds worked out by hand on a chip with round rates."""

from collections.abc import Iterable
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.engine.kernels import roof, waves
from advisor.engine.network.blocks import Attention, Block, Ffn, LatentAttention, Mixer, Recurrent
from advisor.engine.network.matrices import mixer_matrices
from advisor.engine.network.model import Model
from advisor.engine.step.operators import (
    AttentionCost,
    Layouts,
    Operator,
    all_reduce,
    attention_cost,
    block_operators,
    bound_of,
    context_token,
    distinct_experts,
    elementwise,
    gemm,
    largest_of,
    linear_operators,
    linear_s,
    state_bytes,
)

COMMON = settings(max_examples=50, deadline=None, derandomize=True)
ROUND = {
    "matmul_flops_per_s": 100.0, "expert_flops_per_s": 40.0, "half_flops_per_s": 50.0, "attention_flops_per_s": 25.0,
    "memory_bytes_per_s": 10.0, "near_bytes_per_s": 20.0, "near_chips": 8.0, "far_bytes_per_s": 4.0,
    "exchange_bytes_per_s": 20.0,
    "collective_s": 1.0, "one_shot_s": 1e9, "exchange_s": 2.0, "far_collective_s": 3.0, "hop_s": 0.25,
    "direct_hop_s": 0.25,
    "collective_knee_bytes": 0.0, "kernel_s": 0.5, "cores": 1.0, "wave_fraction": 0.0, "roof_exponent": 1.0,
    "sequence_head_bytes": 0.0, "sample_bytes_per_logit": 0.0, "quantize_kernels": 0.0, "quantize_bytes": 0.0,
    "routing_evenness": 1e6, "vector_rows": 0.0, "adapter_kernel_s": 0.0, "further_adapter_s": 0.0,
}  # fmt: skip


def chips(**changes: float) -> Layouts:
    """One layout of round rates; a kernel's seconds are those of arithmetic and memory together (exponent 1)."""
    values = {f.name: 1.0 for f in fields(Layouts)} | ROUND | changes
    return Layouts(**{name: np.array([value]) for name, value in values.items()})


def model(mixer: Mixer | None, ffn: Ffn | None = None, count: int = 3, **changes: Any) -> Model:
    return Model(slug="small", hidden=8, vocab=20, blocks=(Block(count=count, mixer=mixer, ffn=ffn),), **changes)


def totals(operators: Iterable[Operator]) -> dict[str, tuple[float, float, float]]:
    """(FLOPs, bytes, seconds) by name."""
    return {
        op.name: tuple(float(np.ravel(v)[0]) for v in (op.flops, op.bytes, op.time_s))  # type: ignore[misc]
        for op in operators
    }


def block(m: Model, tokens: float, **changes: float) -> dict[str, tuple[float, float, float]]:
    return totals(block_operators(m, m.blocks[0], chips(**changes).column(), np.array([[tokens]])))


def product(rows: float, columns: float, inner: float, half: bool = False) -> tuple[float, float, float]:
    """One matrix multiply: weights and inputs of one byte (16 bits: two), outputs of two, one kernel."""
    width = 2 if half else 1
    flops = 2 * rows * columns * inner
    moved = width * (columns * inner + rows * inner) + 2 * rows * columns
    return flops, moved, flops / (50 if half else 100) + moved / 10 + 0.5


def moves(size: float, kernels: float) -> tuple[float, float, float]:
    return 0.0, size, size / 10 + kernels * 0.5


def times(count: int, line: tuple[float, float, float]) -> Any:
    return pytest.approx(tuple(count * value for value in line))


NOTHING_SENT = pytest.approx((0.0, 0.0, 0.0))
ATTENTION = Attention(heads=4, kv_heads=2, head_dim=3)
LATENT = LatentAttention(heads=4, q_rank=6, kv_rank=5, nope_dim=3, rope_dim=2, v_dim=4)
INDEXED = replace(LATENT, index_heads=2, index_dim=7, index_top_k=16)


# --- one kernel -------------------------------------------------------------------------------------------------


def test_a_matrix_multiply_reads_weights_and_inputs_once_and_writes_16_bits():
    """3 x 7 times 7 x 5: 210 FLOPs; 35 weights and 21 inputs of a byte, 15 outputs of two."""
    found = gemm(chips(), "any", 2, np.array([3.0]), np.array([5.0]), 7.0, "quantized")
    assert totals([found])["any"] == pytest.approx((420, 2 * 86, 2 * (2.1 + 8.6 + 0.5)))
    found = gemm(chips(), "any", 2, np.array([3.0]), np.array([5.0]), 7.0, "half")
    assert totals([found])["any"] == pytest.approx((420, 2 * 142, 2 * (4.2 + 14.2 + 0.5)))


def test_quantizing_inputs_on_the_fly_adds_kernels_and_bytes_to_quantized_products_alone():
    x = chips(quantize_kernels=2.0, quantize_bytes=4.0)
    quantized, half = (
        totals([gemm(x, "any", 1, np.array([3.0]), np.array([5.0]), 7.0, kind)])["any"]
        for kind in ("quantized", "half")
    )
    assert quantized[2] == pytest.approx(2.1 + 8.6 + 0.5 + 2 * 0.5 + 21 * 4 / 10)
    assert half[2] == pytest.approx(4.2 + 14.2 + 0.5)


def test_a_part_filled_wave_of_tiles_costs_a_whole_one():
    ten = np.array([10.0])
    assert waves(np.array([11 * 128.0]), np.array([1.0]), ten) == pytest.approx(20 / 11)
    assert waves(np.array([2 * 128.0]), np.array([5.5 * 128.0]), ten) == pytest.approx(20 / 12)
    assert waves(np.array([20 * 128.0]), np.array([128.0]), ten) == 1
    assert waves(np.array([9 * 128.0]), np.array([128.0]), ten) == 1  # less than one wave: kernels split differently
    assert waves(np.array([10 * 128.0]), np.array([128.0]), np.array([9.0])) == pytest.approx(18 / 10)
    assert waves(np.array([1e5]), np.array([1e5]), np.array([8.0])) == 1  # a few large arrays have no such tiles


def test_the_felt_share_of_a_part_filled_wave_slows_arithmetic_alone():
    x = chips(cores=10.0, wave_fraction=0.5)
    flops, moved, time_s = totals([gemm(x, "any", 1, np.array([1408.0]), np.array([1.0]), 1.0, "half")])["any"]
    assert flops == 2816
    assert time_s == pytest.approx(2816 / 50 * (1 + 0.5 * 9 / 11) + moved / 10 + 0.5)


def test_elementwise_work_moves_bytes_and_starts_kernels():
    found = elementwise(chips(), "norm", 4, np.array([[50.0]]), 3)
    assert totals([found])["norm"] == pytest.approx((0, 200, 4 * (5 + 1.5)))


@pytest.mark.parametrize(("flops_s", "bytes_s", "kernel_s", "bound"), [
    (3.0, 2.0, 1.0, "compute"), (2.0, 3.0, 1.0, "memory"), (1.0, 2.0, 3.0, "launch"),
])  # fmt: skip
def test_an_operator_is_bound_by_its_largest_part(flops_s, bytes_s, kernel_s, bound):
    assert bound_of(np.array([flops_s]), np.array([bytes_s]), np.array([kernel_s])) == bound


@COMMON
@given(st.floats(1e-9, 10), st.floats(1e-9, 10), st.sampled_from([1.0, 2.0, 4.0, 12.0]))
def test_a_roof_lies_between_the_larger_part_and_the_sum(flops_s, bytes_s, exponent):
    found = roof(np.array(flops_s), np.array(bytes_s), np.array(exponent))
    assert max(flops_s, bytes_s) * (1 - 1e-12) <= found <= (flops_s + bytes_s) * (1 + 1e-12)
    assert found == pytest.approx((flops_s**exponent + bytes_s**exponent) ** (1 / exponent))
    assert roof(np.array(0.0), np.array(0.0), np.array(exponent)) == pytest.approx(0, abs=1e-29)


# --- links ------------------------------------------------------------------------------------------------------


def sent(size: float, n: float, **changes: float) -> float:
    return totals([all_reduce(chips(**changes), "sum", 1, np.array([size]), np.array([n]))])["sum"][2]


def test_a_ring_sends_twice_all_but_its_own_share_with_a_hop_for_each_doubling():
    """1,000 bytes over 4 chips: 1,500 bytes at 20 bytes/s, one start, two hops."""
    assert sent(1000, 4) == pytest.approx(75 + 1 + 0.5)
    assert sent(1000, 1) == 0


def test_a_small_message_is_sent_in_one_shot_where_that_is_faster():
    """Every chip reads the other three: 3 bytes; in two stages it sends 1.5, but waits for the others twice."""
    assert sent(1, 4, one_shot_s=0.1, collective_s=500.0) == pytest.approx(0.15 + 0.1 + 0.5)
    assert sent(1000, 16, one_shot_s=0.0, collective_s=500.0) > 500  # beyond the domain there is no such way


def test_a_medium_message_is_summed_in_two_stages_where_that_is_faster():
    """1,500 bytes as in a ring, with two waits of 0.5 s and the launch of the framework's own kernel."""
    assert sent(1000, 4, one_shot_s=0.1, collective_s=500.0) == pytest.approx(75 + 0.1 + 2 * 0.5)
    assert sent(1000, 8, one_shot_s=0.0, collective_s=500.0) == pytest.approx(87.5 + 2 * 0.75)


def test_an_all_reduce_over_hosts_waits_for_the_network_too():
    assert sent(1000, 16, far_reduce_s=50.0) - sent(1000, 16, far_reduce_s=0.0) == pytest.approx(50)
    assert sent(1000, 8, far_reduce_s=50.0) == sent(1000, 8, far_reduce_s=0.0)


def test_a_message_above_the_limit_of_the_own_kernel_takes_the_ring():
    size = 8.0 * 2**20 + 1
    assert sent(size, 4, one_shot_s=0.0, collective_s=500.0) == pytest.approx(1.5 * size / 20 + 500 + 0.5)


def test_the_all_reduce_of_vllm_is_as_fast_as_measured_in_a_cuda_graph():
    """vLLM 0.24.0's CustomAllreduce on four H200s: bytes -> microseconds (docs/explanation/accuracy.md)."""
    measured = {4096: 4.86, 65536: 5.65, 262144: 7.32, 524288: 10.78, 1048576: 12.4, 2097152: 18.02, 6291456: 41.65}
    link = {"near_bytes_per_s": 450e9 * 0.6636, "direct_hop_s": 1.5e-6, "one_shot_s": 1.86e-6, "collective_s": 1.447e-5}
    for size, microseconds in measured.items():
        assert sent(size, 4, **link) * 1e6 == pytest.approx(microseconds, rel=0.10)


def test_beyond_the_domain_each_chip_crosses_with_its_share_of_the_data():
    """16 chips in domains of 8: 1,875 bytes inside, an eighth of them over the far link; all wait for the network."""
    assert sent(1000, 16) == pytest.approx(1875 / 20 + 1875 / 8 / 4 + 3 + 1 + 1 + 4 * 0.25)


def test_messages_around_the_knee_are_slower_until_the_ring_is_full():
    """The square root of volume times knee is added: 100 bytes for 100 x 100; it stops growing at 4 MB."""
    assert sent(100, 2, collective_knee_bytes=100.0) == pytest.approx((100 + 100) / 20 + 1.25)
    assert sent(8e6, 2, collective_knee_bytes=100.0) == pytest.approx((8e6 + 20_000) / 20 + 1.25)


# --- experts ----------------------------------------------------------------------------------------------------


def test_even_routing_leaves_each_expert_untouched_by_chance():
    """Two of eight experts a token: three tokens leave (3/4)^3 of them."""
    assert distinct_experts(8, 2, np.array([0.0, 1.0, 3.0])) == pytest.approx([0, 2, 8 * (1 - 0.75**3)], rel=1e-4)
    assert distinct_experts(4, 4, np.array([1.0])) == pytest.approx([4])


@COMMON
@given(st.integers(1, 8), st.floats(0.5, 100), st.floats(1, 1e4), st.floats(1.01, 4))
def test_favoured_experts_mean_fewer_of_them_and_one_token_touches_its_own(top_k, evenness, tokens, more):
    even, uneven = (float(distinct_experts(64, top_k, np.array(tokens), e)) for e in (np.inf, evenness))
    assert top_k * (1 - 1e-6) <= uneven <= even * (1 + 1e-6) <= 64 * (1 + 2e-6)
    assert float(distinct_experts(64, top_k, np.array(1.0), evenness)) == pytest.approx(top_k)
    assert float(distinct_experts(64, top_k, np.array(tokens * more), evenness)) >= uneven


def test_the_largest_of_normal_loads_is_that_of_tables():
    """Expected maximum of n standard normals: 0.564 of two, 1.424 of eight; between powers of two on a line."""
    assert largest_of(np.array([0.0, 1.0, 2.0, 8.0, 128.0, 4096.0])) == pytest.approx(
        [0, 0, 0.564, 1.424, 2.594, 2.594]
    )
    assert largest_of(np.array([2**0.5])) == pytest.approx([0.282])


# --- layers -----------------------------------------------------------------------------------------------------


def test_a_dense_layer_adds_up_by_hand_on_two_chips():
    """Hidden 8; 4 heads of 3 and 2 KV heads, half of each here; inner 10, 5 of it here; 5 tokens, 3 layers."""
    found = block(model(ATTENTION, Ffn(inner=10)), 5, tp=2.0)
    sum_s = 80 / 20 + 1 + 0.25  # 5 x 8 numbers of 2 bytes: a ring of two sends them once
    assert found == {
        "attention/norm": times(3, moves(6 * 5 * 8, 1)),
        "attention/qkv": times(3, product(5, 2 * 3 + 1 * 6, 8)),
        "attention/rotary_and_cache": times(3, moves(4 * 5 * 12, 2)),
        "attention/output": times(3, product(5, 8, 2 * 3)),
        "attention/kernel": times(3, moves(2 * 5 * 2 * 6, 2.5)),
        "attention/all_reduce": times(3, (0, 80, sum_s)),
        "ffn/norm": times(3, moves(6 * 5 * 8, 1)),
        "ffn/up": times(3, product(5, 2 * 5, 8)),
        "ffn/activation": times(3, moves(2 * 5 * 5 * 3, 1)),
        "ffn/down": times(3, product(5, 8, 5)),
        "ffn/all_reduce": times(3, (0, 80, sum_s)),
    }


def test_a_gate_is_as_wide_as_the_query_and_query_norms_are_one_more_kernel():
    plain, gated = (block(model(a), 5) for a in (ATTENTION, replace(ATTENTION, output_gate=True, qk_norm=True)))
    assert plain["attention/qkv"] == times(3, product(5, 12 + 12, 8))
    assert gated["attention/qkv"] == times(3, product(5, 12 + 12 + 12, 8))
    assert gated["attention/rotary_and_cache"] == times(3, moves(4 * 5 * 36, 3))


def test_kv_heads_are_copied_to_chips_beyond_their_number():
    found = block(model(ATTENTION), 5, tp=4.0)
    assert found["attention/qkv"] == times(3, product(5, 1 * 3 + 1 * 6, 8))


def test_cross_attention_projects_no_keys_and_values_in_a_step():
    found = block(model(replace(ATTENTION, cross=True)), 5)
    assert found["cross_attention/qkv"] == times(3, product(5, 4 * 3, 8))
    assert {name.partition("/")[0] for name in found} == {"cross_attention"}


def test_latent_attention_adds_up_by_hand():
    """4 heads of 3 + 2 query and 4 value numbers over a latent of 5, queries of rank 6; 5 tokens, 3 layers."""
    found = block(model(LATENT), 5)
    assert found == {
        "attention/norm": times(3, moves(6 * 5 * 8, 1)),
        "attention/down": times(3, product(5, 6 + 5 + 2, 8)),
        "attention/q_up": times(3, product(5, 4 * 5, 6)),
        "attention/rotary_and_cache": times(3, moves(4 * 5 * (13 + 20), 3)),
        "attention/absorb_k": times(3, product(5, 4 * 5, 3, half=True)),
        "attention/absorb_v": times(3, product(5, 4 * 4, 5, half=True)),
        "attention/output": times(3, product(5, 8, 4 * 4)),
        "attention/kernel": times(3, moves(2 * 5 * 4 * (5 * 2 + 2), 2.5)),
        "attention/all_reduce": NOTHING_SENT,
    }


def test_latent_queries_without_a_rank_come_straight_from_the_hidden_state():
    found = block(model(replace(LATENT, q_rank=0)), 5)
    assert found["attention/q_and_down"] == times(3, product(5, 4 * 5 + 5 + 2, 8))
    assert "attention/down" not in found and "attention/q_up" not in found


def test_an_indexer_projects_its_queries_and_picks_the_best_keys():
    found = block(model(INDEXED), 5)
    assert found["indexer/query"] == times(3, product(5, 2 * 7, 6, half=True))
    assert found["indexer/key"] == times(3, product(5, 7 + 2, 8, half=True))
    assert found["indexer/top_k"] == times(3, moves(4 * 5 * 2 * 7, 4))
    assert found["attention/q_up"] == block(model(LATENT), 5)["attention/q_up"]


def test_the_matrices_of_latent_attention_are_those_of_its_parameters():
    """2 FLOPs a weight and token; absorption meets each weight of the up-projection once, too. Norms are vectors."""
    found = block(model(LATENT, count=1), 5)
    assert sum(flops for flops, _, _ in found.values()) == 2 * 5 * sum(m.elements for m in mixer_matrices(LATENT, 8))


@pytest.mark.parametrize(("kind", "width"), [
    ("mamba1", 2 * 12), ("mamba2", 2 * 12 + 2 * 2 * 5 + 3), ("gated_delta", 2 * 12 + 2 * 2 * 5 + 2 * 3),
])  # fmt: skip
def test_a_recurrent_layer_adds_up_by_hand(kind, width):
    """Inner 12, state 5, 3 heads, 2 groups, convolution over 4: the state is in fp32, the convolution in 16 bits."""
    mixer = Recurrent(kind=kind, inner=12, state=5, heads=3, head_dim=4, groups=2, dt_rank=4)
    convolved = 12 if kind == "mamba1" else 12 + 2 * 2 * 5
    assert state_bytes(mixer) == 12 * 5 * 4 + convolved * 3 * 2
    scan = 6 * 5 * 12 * 5
    found = block(model(mixer), 5)
    if kind == "mamba1":  # rank 4 of the step, which is projected with input and output state
        assert found.pop("recurrent/select") == times(3, product(5, 4 + 2 * 5, 12))
        assert found.pop("recurrent/dt") == times(3, product(5, 12, 4))
    assert found == {
        "recurrent/norm": times(3, moves(6 * 5 * 8, 1)),
        "recurrent/input": times(3, product(5, width, 8)),
        "recurrent/scan": times(3, (scan, 6 * 5 * width, scan / 25 + 6 * 5 * width / 10 + 6 * 0.5)),
        "recurrent/output": times(3, product(5, 8, 12)),
        "recurrent/all_reduce": NOTHING_SENT,
    }


def test_two_chips_halve_a_recurrent_layer_and_sum_its_output():
    mixer = Recurrent(kind="mamba2", inner=12, state=5, heads=4, head_dim=3, groups=2)
    one, two = (block(model(mixer), 5, tp=n) for n in (1.0, 2.0))
    for name in ("recurrent/input", "recurrent/scan", "recurrent/output"):
        assert two[name][0] == one[name][0] / 2
    assert two["recurrent/all_reduce"] == times(3, (0, 80, 80 / 20 + 1 + 0.25))


EXPERTS = Ffn(inner=10, experts=8, top_k=2)


def test_experts_add_up_by_hand_where_every_one_is_touched():
    """1,000 tokens, two of eight experts each: 2,000 rows; all eight are read. Few cores: no padding of tiles."""
    found = block(model(None, EXPERTS), 1000)
    flops = 2 * 2000 * 8 * 10 * 3
    moved = 8 * 8 * 10 * 3 + 2000 * (2 * 8 + 3 * 10) * 2
    assert found == {
        "ffn/norm": times(3, moves(6 * 1000 * 8, 1)),
        "moe/router": times(3, product(1000, 8, 8, half=True)),
        "moe/permute": times(3, moves(8 * 1000 * 8 * 2, 4)),
        "moe/experts": times(3, (flops, moved, flops / 40 + moved / 10 + 3 * 0.5)),
        "moe/all_reduce": NOTHING_SENT,
        "moe/all_to_all": NOTHING_SENT,
    }


def test_two_experts_are_a_mixture_and_one_is_a_dense_layer():
    assert "moe/router" in block(model(None, Ffn(inner=10, experts=2)), 5)
    assert "moe/router" not in block(model(None, Ffn(inner=10, experts=1)), 5)


def test_experts_pad_their_rows_on_chips_with_many_cores():
    """8 touched experts of 250 rows each: 150 padded rows each; of 20 rows each, 20; of few, half a tile of 16."""
    rows = {
        tokens: block(model(None, EXPERTS, count=1), tokens, cores=132.0)["moe/experts"][0] / (2 * 8 * 10 * 3)
        for tokens in (1000, 80)
    }
    assert rows == pytest.approx({1000: 2000 + 8 * 150, 80: 160 + 8 * 20})
    touched = float(distinct_experts(8, 2, np.array(2.0), 1e6))
    few = block(model(None, EXPERTS, count=1), 2, cores=132.0)["moe/experts"][0] / (2 * 8 * 10 * 3)
    assert few == pytest.approx(4 + touched * 8)


def test_quantizing_inputs_of_experts_adds_two_launches_of_each_kernel():
    plain, more = (block(model(None, EXPERTS), 10, quantize_kernels=n)["moe/experts"][2] for n in (0.0, 2.0))
    assert more - plain == pytest.approx(3 * 2 * 2 * 0.5)


def test_the_fullest_of_several_ranks_of_experts_holds_more_than_the_mean():
    """1,000 of 2,000 rows on each of two ranks: 0.564 of a deviation more, 1/1000 by chance and 2/(8 x 4) by favour."""
    found = block(model(None, EXPERTS, count=1), 1000, ep=2.0, routing_evenness=4.0)["moe/experts"]
    rows = 1000 * (1 + 0.564 * (1 / 1000 + 2 / 32) ** 0.5)
    assert found[0] == pytest.approx(2 * rows * 8 * 10 * 3)
    touched = float(distinct_experts(8, 2, np.array(1000.0), 4.0)) / 2
    assert found[1] == pytest.approx(touched * 8 * 10 * 3 + rows * (2 * 8 + 3 * 10) * 2)


def test_no_rank_of_experts_holds_more_than_twice_the_mean():
    found = block(model(None, EXPERTS, count=1), 1, ep=8.0, routing_evenness=1e-3)["moe/experts"]
    assert found[0] == pytest.approx(2 * (2 * 2 / 8) * 8 * 10 * 3)


def test_experts_shared_by_all_tokens_are_a_dense_layer_beside_them():
    found = block(model(None, replace(EXPERTS, shared_inner=6)), 5, tp=2.0)
    assert found["moe/shared/up"] == times(3, product(5, 3 * 2, 8))
    assert found["moe/shared/activation"] == times(3, moves(2 * 5 * 3 * 3, 1))
    assert found["moe/shared/down"] == times(3, product(5, 8, 3))
    assert found["moe/all_reduce"] == times(3, (0, 80, 80 / 20 + 1 + 0.25))


def test_attention_ranks_send_each_token_to_its_experts_and_back():
    """Two attention ranks, experts on both: 5 x 8 numbers to two ranks, a byte out and two back, half of it elsewhere.

    Experts see the tokens of both ranks; each rank gathers its own.
    """
    found = block(model(None, EXPERTS), 5, dp=2.0, ep=2.0)
    size = 5 * 8 * 2 * 3
    assert found["moe/all_to_all"] == times(6, (0, size / 2 / 2, size / 2 / 2 / 20 + 2 + 0.25))
    assert found["moe/all_reduce"] == NOTHING_SENT
    assert found["moe/permute"] == times(3, moves(8 * 5 * 2 * 8 * 2 / 2, 4))
    assert found["moe/experts"][0] > block(model(None, EXPERTS), 5, ep=2.0)["moe/experts"][0]


def test_a_token_is_copied_to_at_most_its_experts_and_each_split_of_them():
    """Eight ranks of experts, two a token: two copies; experts split over 2 x 2 chips: two copies of each half."""
    eight = block(model(None, EXPERTS), 5, dp=8.0, ep=8.0)["moe/all_to_all"]
    assert eight[1] == pytest.approx(6 * 5 * 8 * 2 * 3 / 2 * 7 / 8)
    split = block(model(None, EXPERTS), 5, dp=4.0, ep=2.0, moe_tp=2.0)["moe/all_to_all"]
    assert split[1] == pytest.approx(6 * 5 * 8 * 4 * 3 / 2 * 3 / 4)


# --- a whole pass -----------------------------------------------------------------------------------------------


def passes(m: Model, tokens: float, **changes: float) -> dict[str, tuple[float, float, float]]:
    return totals(linear_operators(m, chips(**changes), np.array([tokens])))


def test_embedding_and_output_head_of_a_pass():
    """The head runs on one row here: sampling pays for the others. 20 words on two chips; 4 bytes a number embedded."""
    found = passes(model(None), 5, tp=2.0)
    assert found["embedding"] == pytest.approx(moves(5 * 8 * 4, 2))
    assert found["lm_head"] == pytest.approx(product(1, 10, 8, half=True))
    assert passes(model(None), 0.5)["lm_head"] == pytest.approx(product(0.5, 20, 8, half=True))
    assert "lm_head" not in passes(model(None, encoder_only=True), 5)


def test_a_pipeline_hands_its_activations_on_and_starts_each_stage():
    found = passes(model(None), 5, pp=3.0)
    size = 2 * 5 * 8
    assert found["pipeline/transfer"] == pytest.approx(
        (0, 2 * size * 2 / 3, 2 * size * 2 / 3 / 20 + 1 + 0.25 * np.log2(3))
    )
    assert found["pipeline/launch"] == pytest.approx((0, 0, 2 * 0.5 * 4))
    assert passes(model(None), 5)["pipeline/transfer"] == passes(model(None), 5)["pipeline/launch"] == NOTHING_SENT


def test_the_time_of_a_pass_is_the_sum_of_its_operators():
    m, x = model(ATTENTION, Ffn(inner=10)), chips()
    sizes = np.array([1.0, 5.0])
    apart = [sum(line[2] for line in passes(m, size).values()) for size in sizes]
    assert linear_s(m, x, sizes)[0] == pytest.approx(apart)


# --- what context costs -----------------------------------------------------------------------------------------


def costs(m: Model, source_tokens: float = 0.0, **changes: float) -> AttentionCost:
    return attention_cost(m, chips(**changes), source_tokens)


def first(values: Any) -> float:
    return float(values[0])


def test_a_cached_token_of_grouped_heads_is_read_once_and_met_by_every_head():
    """4 heads x 6 x 2 FLOPs at 25 FLOP/s; 2 KV heads x 6 numbers of a byte at 10 bytes/s; on two chips half of both."""
    read_s, pair_s, heads = context_token(ATTENTION, chips())
    assert (first(read_s), first(pair_s), first(heads)) == pytest.approx((48 / 25 + 1.2, 48 / 25, 4))
    read_s, pair_s, heads = context_token(ATTENTION, chips(tp=2.0))
    assert (first(read_s), first(pair_s), first(heads)) == pytest.approx((24 / 25 + 0.6, 24 / 25, 2))
    read_s, _, _ = context_token(ATTENTION, chips(tp=4.0))
    assert first(read_s) == pytest.approx(12 / 25 + 0.6)


def test_a_latent_is_read_whole_on_every_chip_and_decoded_without_expanding_it():
    """Decode: 4 heads x (2 x 5 + 2) x 2; prefill: 4 x (3 + 2 + 4) x 2; 5 + 2 numbers are read."""
    read_s, pair_s, heads = context_token(LATENT, chips(tp=2.0))
    assert first(read_s) == pytest.approx(2 * 2 * 12 / 25 + 0.7)
    assert first(pair_s) == pytest.approx(2 * 2 * 9 / 25)
    assert first(heads) == 2


def test_layers_with_a_window_are_counted_apart_as_parts_of_the_widest_window():
    two = model(replace(ATTENTION, window_tokens=64))
    wide = Block(count=2, mixer=replace(ATTENTION, window_tokens=96), ffn=None)
    full = Block(count=1, mixer=ATTENTION, ffn=None)
    found = costs(replace(two, blocks=(wide, *two.blocks, full)))
    assert first(found.window_tokens) == 96
    assert first(found.window_s_per_context_token) == pytest.approx((2 + 3 * 64 / 96) * (48 / 25 + 1.2))
    assert first(found.window_prefill_s_per_pair) == pytest.approx((2 + 3 * 64 / 96) * 48 / 25)
    assert first(found.decode_s_per_context_token) == pytest.approx(48 / 25 + 1.2)
    assert first(found.prefill_s_per_pair) == pytest.approx(48 / 25)


def test_an_indexer_scores_every_key_and_attention_meets_the_best_of_them():
    found = costs(model(INDEXED))
    assert first(found.window_tokens) == 16
    assert first(found.window_prefill_s_per_pair) == pytest.approx(3 * 4 * 9 * 2 / 25)
    assert first(found.decode_s_per_context_token) == pytest.approx(3 * 7 / 10)
    assert first(found.prefill_s_per_pair) == pytest.approx(3 * 2 * 2 * 7 / 100)
    assert first(costs(model(LATENT)).window_tokens) == 0


def test_a_token_that_looks_both_ways_meets_twice_the_pairs():
    found = costs(model(replace(ATTENTION, causal=False)))
    assert first(found.prefill_s_per_pair) == pytest.approx(3 * 2 * 48 / 25)


def test_a_source_is_read_by_every_sequence_in_every_step():
    found = costs(model(replace(ATTENTION, cross=True, causal=False)), source_tokens=100.0)
    assert first(found.decode_s_per_sequence) == pytest.approx(3 * 100 * (48 / 25 + 1.2))
    assert first(found.prefill_s_per_pair) == first(found.decode_s_per_context_token) == 0


def test_a_recurrent_layer_reads_and_writes_its_state_whatever_the_context():
    mixer = Recurrent(kind="mamba1", inner=12, state=5, heads=3, head_dim=4)
    found = costs(model(mixer), tp=2.0)
    assert first(found.decode_s_per_sequence) == pytest.approx(3 * 2 * (240 + 12 * 3 * 2) / 2 / 10)
    assert first(found.decode_s_per_context_token) == first(found.prefill_s_per_pair) == 0


def test_each_head_of_a_sequence_has_a_fixed_cost():
    found = costs(model(ATTENTION), sequence_head_bytes=20.0, tp=2.0)
    assert first(found.decode_s_per_sequence) == pytest.approx(3 * 2 * 20 / 10)


def test_layers_without_a_mixer_cost_no_context():
    found = costs(model(None, Ffn(inner=10)))
    assert all(first(getattr(found, f.name)) == 0 for f in fields(found) if f.name != "sample_s_per_sequence")


def test_choosing_a_token_multiplies_the_head_and_reads_the_logits():
    """20 words on two chips: 10 x 2 x 8 FLOPs at 50, 10 x 12 bytes at 10. A vector is pooled: nothing is chosen."""
    found = costs(model(None), tp=2.0, sample_bytes_per_logit=12.0)
    assert first(found.sample_s_per_sequence) == pytest.approx(10 * 16 / 50 + 10 * 12 / 10)
    assert first(costs(model(None, encoder_only=True), sample_bytes_per_logit=12.0).sample_s_per_sequence) == 0


@COMMON
@given(tokens=st.integers(1, 8), top_k=st.integers(1, 8))
def test_matrix_vector_kernels_compute_no_padding(tokens: int, top_k: int) -> None:
    """With at most `vector_rows` rows for each expert, the experts' FLOPs are those of their rows."""
    moe, m = Ffn(inner=16, experts=128, top_k=top_k), np.array([float(tokens)])
    plain, vectors = (
        totals(block_operators(model(None, moe), model(None, moe).blocks[0], chips(cores=100.0, vector_rows=rows), m))
        for rows in (0.0, 8.0)
    )
    exact = 3 * 2.0 * tokens * top_k * 3 * 8 * 16  # three layers, three matrices of 8 x 16
    assert vectors["moe/experts"][0] == pytest.approx(exact)
    assert plain["moe/experts"][0] >= 2 * exact
