"""Collectives against hand arithmetic, and what hides them."""

from dataclasses import replace

import pytest

from advisor.engine import training
from advisor.engine.network import Attention, Block, Ffn, Model
from advisor.engine.training import MEGATRON, MEGATRON_BF16, Parallel, Run, Shape
from advisor.engine.training.communication import exchange_s
from tests.engine.training.test_step_time import EFFICIENCY, H200, model, step

PLAIN = replace(MEGATRON, dispatch="alltoall", tp_overlap=False)
EXPERTS = Model(
    slug="experts", hidden=4096, vocab=32000,
    blocks=(Block(count=8, mixer=Attention(heads=32, kv_heads=8, head_dim=128),
                  ffn=Ffn(inner=1536, experts=128, top_k=8)),),
)  # fmt: skip
RATES = replace(
    training.rates_of(H200, EFFICIENCY, MEGATRON_BF16, MEGATRON), near_bytes_per_s=300e9, far_bytes_per_s=35e9,
    far_link_bytes_per_s=50e9, collective_s=0.0, far_collective_s=0.0, hop_s=0.0, collective_knee_bytes=0.0,
)  # fmt: skip


def shape(**sizes: int) -> Shape:
    return Shape.of(Run(sequence_tokens=4096, recipe=MEGATRON_BF16, parallel=Parallel(**sizes)))


def test_an_all_to_all_sends_each_copy_over_the_network_of_its_chip() -> None:
    """32 chips on 4 hosts, 4,096 tokens of 8 KiB to 8 experts each: 3/4 of 268 MB leave the host, at 35 GB/s."""
    seconds = float(exchange_s(RATES, shape(dp=32, ep=32), 4096.0, 8.0, 8192.0, PLAIN))
    assert seconds == pytest.approx(4096 * 8 * 8192 * 0.75 / 35e9)


def test_one_copy_for_each_host_saves_most_of_the_network() -> None:
    """A token's 8 experts are on 3 x (1 - (3/4)^8) = 2.70 of the 3 other hosts instead of 6 copies."""
    one = float(exchange_s(RATES, shape(dp=32, ep=32), 4096.0, 8.0, 8192.0, MEGATRON))
    assert one == pytest.approx(4096 * 8192 * 3 * (1 - 0.75**8) / (0.88 * 50e9))
    assert float(exchange_s(RATES, shape(dp=8), 4096.0, 8.0, 8192.0, MEGATRON)) == 0.0


def test_every_eighth_chip_is_alone_on_its_host() -> None:
    """A ring over chips 0, 8, 16 ... has no neighbor on its host: all of (n - 1) / n goes over the network."""
    assert float(training.ring_s(RATES, 4.0, 1e9, stride=8.0)) == pytest.approx(0.75e9 / 35e9)
    assert float(training.ring_s(RATES, 4.0, 1e9)) == pytest.approx(0.75e9 / 300e9)


def test_tensor_parallelism_in_parts_shows_only_its_first_part() -> None:
    run = Run(sequence_tokens=8192, recipe=MEGATRON_BF16, parallel=Parallel(tp=4, sequence_parallel=True))
    whole, parts = (step(model("llama-70b", 4), replace(run, code=c)) for c in (PLAIN, replace(PLAIN, tp_overlap=True)))
    assert float(parts.exposed_s) == pytest.approx(float(whole.exposed_s) / 4)
    assert float(parts.step_s) < float(whole.step_s)


def test_keys_and_values_hide_behind_long_attention() -> None:
    run = Run(sequence_tokens=65536, recipe=MEGATRON_BF16, parallel=Parallel(cp=4, zero=1))
    ring, gather = (
        step(model("llama-8b", 4), replace(run, code=replace(PLAIN, context=c))) for c in ("ring", "gather")
    )
    assert float(ring.exposed_s) < float(gather.exposed_s)
    # 3/4 of keys and values of 4 layers, three times: 65,536 x 2,048 x 2 bytes
    sent = 3 * 4 * 0.75 * 65536 * 2048 * 2
    rates = training.rates_of(H200, EFFICIENCY, run.recipe, run.code)
    assert float(gather.exposed_s - ring.exposed_s) == pytest.approx(sent / rates.near_bytes_per_s, rel=0.13)


def test_an_exchange_beside_computation_costs_less() -> None:
    run = Run(sequence_tokens=4096, micro_batches=8, recipe=MEGATRON_BF16, parallel=Parallel(dp=8, ep=8, zero=1))
    serial, beside = (step(EXPERTS, replace(run, code=replace(MEGATRON, exchange_overlap=o))) for o in (False, True))
    assert float(beside.step_s) < float(serial.step_s)
