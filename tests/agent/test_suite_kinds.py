"""Every kind computes what it says it times: built small on the CPU, checked against float64, and seen to fail."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from probes.agent import facts
from probes.agent.axes import Heads
from probes.agent.kinds import answers, attention, decode, experts, gemm, launch, layers, memory, network
from probes.agent.measure import Device, Skip, Work

MIB = 1 << 20


@pytest.fixture
def device() -> Device:
    return replace(facts.detect(1 << 28), l2_bytes=1 << 16)


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(7)


def passes(work: Work) -> bool:
    assert work.check is not None
    return work.check().ok


def test_the_known_answer_is_met_and_a_wrong_digit_seen(device: Device) -> None:
    assert passes(answers.build(device))
    product = answers.matrix(device, 7) @ answers.matrix(device, 11)
    assert answers.check(device, product).ok
    product[3, 5] += 1
    assert not answers.check(device, product).ok


MEMORY: dict[str, Callable[[Device], Work]] = {
    "read": lambda device: memory.read(device, MIB),
    "write": lambda device: memory.write(device, MIB),
    "copy": lambda device: memory.copy(device, MIB),
    "strided": lambda device: memory.strided(device, MIB, run_bytes=32, stride_bytes=64),
    "gather": lambda device: memory.gather(device, MIB, row_bytes=256, share=4),
    "cached": lambda device: memory.cached(device, MIB),
}


@pytest.mark.parametrize("name", MEMORY)
def test_what_memory_kinds_move_arrives(device: Device, name: str) -> None:
    assert passes(MEMORY[name](device))


@pytest.mark.parametrize(
    ("name", "moved"), [("read", MIB), ("write", MIB), ("copy", 2 * MIB), ("strided", MIB), ("gather", MIB // 2)]
)
def test_bytes_count_what_is_read_and_what_is_written(device: Device, name: str, moved: int) -> None:
    assert MEMORY[name](device).bytes == moved


def test_gathered_rows_are_taken_at_most_once(device: Device) -> None:
    out = memory.gather(device, MIB, row_bytes=256, share=1).calls[0]()
    assert len({tuple(row) for row in out.view(torch.int16).tolist()}) == len(out)


SHAPE = gemm.Shape(48, 256, 512)
PRECISIONS: list[tuple[str, dict[str, Any]]] = [
    ("fp32", {}), ("bf16", {}), ("fp16", {}), ("int8", {}), ("int4", {}), ("fp8", {"scaling": "tensor"}),
]  # fmt: skip


@pytest.mark.parametrize(("dtype", "axes"), PRECISIONS, ids=[name for name, _ in PRECISIONS])
def test_products_of_every_precision_meet_float64(device: Device, dtype: str, axes: dict[str, Any]) -> None:
    work = gemm.build(device, dtype, SHAPE, axes)
    assert passes(work)
    assert work.flops == 2 * 48 * 256 * 512


def test_a_product_of_other_weights_fails_its_check(device: Device) -> None:
    one = gemm.plain_operands(device, SHAPE, "fp32")
    other = gemm.plain_operands(device, SHAPE, "fp32")
    assert gemm.verify(device, one, SHAPE, 1e-5).ok
    assert not gemm.verify(device, replace(one, right=other.right), SHAPE, 1e-5).ok


def test_a_product_that_leaves_one_element_unwritten_fails_its_check(device: Device) -> None:
    one = gemm.plain_operands(device, SHAPE, "bf16")

    def call() -> Any:
        out = one.call().clone()
        out[47, 255] = float("nan")
        return out

    assert not gemm.verify(device, replace(one, call=call), SHAPE, 1e-2).ok


def test_fp8_without_fp8_units_is_a_reference_and_nvfp4_is_refused(device: Device) -> None:
    ampere = replace(device, backend="cuda", capability=(8, 0))
    assert gemm.maker(ampere, "fp8", {})[1] == "reference"
    assert gemm.maker(replace(ampere, capability=(9, 0)), "fp8", {})[1] == "native"
    with pytest.raises(Skip, match="compute capability"):
        gemm.block_scaled_operands(ampere, SHAPE, "nvfp4")


def test_bytes_of_a_product_count_narrow_weights_and_their_scales() -> None:
    assert gemm.traffic_bytes("bf16", SHAPE) == 2 * (48 * 512 + 256 * 512 + 48 * 256)
    assert gemm.traffic_bytes("int4", SHAPE) == 2 * 48 * 512 + 256 * 512 // 2 + 4 * 256 * 4 + 2 * 48 * 256


@pytest.mark.parametrize("backend", ["flash", "math"])
def test_prefill_attention_is_causal_over_grouped_heads(device: Device, backend: str) -> None:
    qkv = attention._qkv(device, Heads(4, 2, 32), 96)
    out = attention.sdpa(device, backend, *qkv, True)()
    assert attention.verify(device, out, qkv).ok
    assert not attention.verify(device, attention.sdpa(device, backend, *qkv, False)(), qkv).ok


@pytest.mark.parametrize("backend", ["flash_grouped", "math"])
def test_decode_attention_meets_float64(device: Device, backend: str) -> None:
    assert passes(decode.through_torch(device, decode.Shape(3, 80, Heads(4, 2, 32)), "bf16", backend))


@pytest.mark.parametrize("element", [torch.bfloat16, torch.float8_e4m3fn])
def test_scattered_pages_give_back_their_tokens_in_order(device: Device, element: torch.dtype) -> None:
    shape = decode.Shape(2, 40, Heads(4, 2, 32))
    cache = decode.Paged.random(device, shape, element)
    keys, _ = cache.dense()
    token, head = 37, 1
    page = cache.table[1, token // decode.PAGE]
    expected = cache.k[page, token % decode.PAGE, head].float() * cache.scales[0]
    assert torch.equal(keys[1, head, token], expected)


def test_splits_fill_the_chip_and_hold_two_blocks(device: Device) -> None:
    chip = replace(device, multiprocessors=132)
    for batch, context in ((1, 32768), (1, 100), (64, 2048), (256, 1024)):
        splits = decode.split_count(chip, decode.Shape(batch, context, Heads(32, 8, 128)))
        assert 1 <= splits <= max(1, -(-context // (2 * decode.BLOCK)))
    assert decode.split_count(chip, decode.Shape(1, 32768, Heads(32, 8, 128))) * 8 >= 4 * 132


def test_experts_get_every_token_once(device: Device) -> None:
    assert sum(experts.sizes(device, 8, 5)) == 40
    work = experts._builder(8, 5, 64, 32, "bf16", 1, 1)(device)
    assert passes(work)
    assert work.path == "reference"


@pytest.mark.parametrize(("kind", "at"), [(kind, at) for kind, made in layers.PARTS.items() for at in range(len(made))])
def test_parts_of_a_layer_meet_float64(device: Device, kind: str, at: int) -> None:
    part = layers.PARTS[kind][at](torch, 16, 64, 4, 2, 32, 128, 512)
    assert passes(layers._builder(part, fused=False)(device))


TINY = network.Net("tiny", 64, Heads(4, 2, 16), 96, layers=2, vocab=128)
SPARSE = replace(TINY, experts=replace(experts.SMALL, hidden=64, inner=96), vocab=0)


@pytest.mark.parametrize("phase", ["decode", "prefill"])
@pytest.mark.parametrize("net", [TINY, SPARSE], ids=["dense", "experts"])
def test_a_whole_pass_meets_float64(device: Device, net: network.Net, phase: str) -> None:
    assert passes(network._builder(net, phase, 2 if phase == "decode" else 1, 24, "eager")(device))


def test_the_cost_of_a_pass_counts_weights_once_and_every_product() -> None:
    flops, size = network.cost(replace(TINY, vocab=0, layers=1), "decode", 3, 10)
    values = 64 * 16 * (2 * 4 + 2 * 2) + 3 * 64 * 96
    assert flops == 2 * 3 * values + 4 * 3 * 10 * 4 * 16
    assert size == 2 * (values + 2 * 3 * 10 * 2 * 16)


def test_launches_are_counted_so_that_none_is_lost(device: Device) -> None:
    assert passes(launch.eager(device))
    assert passes(launch.round_trip(device))
    with pytest.raises(Skip, match="no graphs"):
        launch.graph(device)
