"""LoRA adapters: their bytes by hand, what they add to a step, who can serve them, and merged copies beside them."""

from dataclasses import replace

import numpy as np
import pytest
import yaml

from advisor.engine.fleet.card_sharing import merged_copies
from advisor.engine.launch.command import launch
from advisor.engine.network.blocks import Attention, Ffn, LatentAttention
from advisor.engine.network.model import Adapters
from advisor.engine.search import Question
from advisor.engine.search.run import search
from advisor.engine.step.adapters import (
    adapted,
    adapter_bytes,
    adapter_operators,
    adapters_unsupported,
    launched_kernels,
    resident_bytes,
    served_rank,
    swap_s,
)
from advisor.engine.step.compatibility.support import supports_model
from advisor.engine.step.lane import lanes
from advisor.engine.step.layout import layouts
from advisor.engine.step.ledger import decode_ledger
from advisor.engine.step.operators import distinct_experts
from tests.engine.catalog_sample import (
    BF16,
    LLAMA_8B,
    SGLANG,
    VLLM,
    catalog,
    chip,
    host_times,
    lane,
    question,
    software,
)
from tests.engine.step.test_operators import chips, model

MIB = 2.0**20
TUNED = replace(VLLM, features=("lora",))
QUERY_ALONE = Attention(heads=4, kv_heads=0, head_dim=3)


def with_adapters(count=50, active=8, rank=16, model=LLAMA_8B, attention_only=False):
    given = Adapters(count=count, rank=rank, active=active, attention_only=attention_only)
    return replace(model, adapters=given)


def at(tp=1, **changes):
    return layouts(LLAMA_8B, [lane(chip("big", **changes), BF16, tp=tp).choice])


def test_rank_16_on_llama_3_1_8b_takes_80_mib():
    # in + out of each matrix of a layer: q 4096+4096, k and v 4096+1024, o 4096+4096, gate and up 4096+14336,
    # down 14336+4096: 8192 + 2*5120 + 8192 + 3*18432 = 81920; times rank 16, 32 layers, 2 bytes
    assert adapter_bytes(with_adapters(), at())[0] == 81920 * 16 * 32 * 2 == 80 * MIB


def test_attention_alone_takes_less():
    assert adapter_bytes(with_adapters(attention_only=True), at())[0] == (8192 + 2 * 5120 + 8192) * 16 * 32 * 2


def test_tensor_parallelism_splits_half_of_each_pair():
    # over 2 ranks: column-parallel q, k, v, gate, up keep their A (4096) and half of B, row-parallel o and down keep B
    columns = 3 * 4096 + (4096 + 1024 + 1024) / 2 + 2 * (4096 + 14336 / 2)
    rows = (4096 / 2 + 4096) + (14336 / 2 + 4096)
    assert adapter_bytes(with_adapters(), at(tp=2))[0] == (columns + rows) * 16 * 32 * 2
    assert adapter_bytes(with_adapters(), at(tp=2))[0] > 40 * MIB


def test_slots_are_as_large_as_the_least_rank_that_a_server_takes():
    assert [served_rank(r) for r in (1, 8, 9, 16, 300, 512)] == [8, 8, 16, 16, 320, 512]
    assert adapter_bytes(with_adapters(rank=9), at())[0] == 80 * MIB


def test_resident_adapters_are_part_of_the_weights_and_leave_less_for_the_cache():
    plain, tuned = (lanes(m, [lane(chip("big"))]).memory for m in (LLAMA_8B, with_adapters(active=8)))
    assert tuned.weights_bytes[0] - plain.weights_bytes[0] == 8 * 80 * MIB
    assert plain.kv_bytes[0] - tuned.kv_bytes[0] == 8 * 80 * MIB


def test_no_adapters_change_nothing():
    plain = lanes(LLAMA_8B, [lane(chip("big"))])
    assert not list(adapter_operators(LLAMA_8B, at(), np.array([1.0])))
    assert resident_bytes(LLAMA_8B, at())[0] == swap_s(LLAMA_8B, at(), np.array([6.4e10]))[0] == 0
    assert (lanes(replace(LLAMA_8B, adapters=None), [lane(chip("big"))]).times.linear_s == plain.times.linear_s).all()


@pytest.mark.parametrize("more", [{"active": 16}, {"rank": 64}])
def test_a_step_takes_longer_with_adapters_and_longer_with_more_of_them(more):
    def step_s(model):
        return lanes(model, [lane(chip("big"))]).times.linear_s[0]

    assert (step_s(LLAMA_8B) < step_s(with_adapters())).all()
    assert (step_s(with_adapters()) <= step_s(with_adapters(**more))).all()
    assert step_s(with_adapters())[6] < step_s(with_adapters(**more))[6]


def test_one_token_costs_what_punica_published_for_a_7b_model():
    given = host_times()
    kernels = replace(
        at(), adapter_kernel_s=np.array([given["adapter_kernel_s"]]),
        further_adapter_s=np.array([given["further_adapter_s"]]),
    )  # fmt: skip
    extra_s = sum(op.time_s[0, 0] for op in adapter_operators(with_adapters(), kernels, np.array([1.0])))
    assert 2.0e-3 < extra_s < 2.2e-3  # arXiv 2310.18547: 2 ms a token; and one adapter is read once


def test_a_step_reads_each_distinct_adapter_once():
    def moved(tokens):
        return sum(op.bytes[0, 0] for op in adapter_operators(with_adapters(active=4), at(), np.array([tokens])))

    activations = moved(2000.0) - moved(1000.0)
    assert moved(1000.0) - activations == pytest.approx(4 * 80 * MIB, rel=0.01)


def test_shrink_and_expand_of_each_matrix_add_up_by_hand():
    """Query 8 x 12 by columns and output 12 x 8 by rows, on two chips; rank 4, three adapters, 5 tokens, 2 layers."""
    small = replace(
        model(Attention(heads=4, kv_heads=0, head_dim=3), count=2), adapters=Adapters(count=9, rank=4, active=3)
    )
    x = chips(tp=2.0, adapter_kernel_s=0.75, further_adapter_s=0.125)
    query, _, _, output = adapter_operators(small, x, np.array([5.0]))
    touched = float(distinct_experts(3, 1, np.array(5.0)))
    for found, wide, narrow in ((query, 8, 6), (output, 6, 8)):
        flops = 2 * 5 * 4 * (wide + narrow)
        moved = 2 * (touched * 4 * (wide + narrow) + 5 * (wide + 2 * narrow + 2 * 4))
        assert found.flops.item() == 2 * flops and found.bytes.item() == pytest.approx(2 * moved)
        launch_s = 2 * (0.75 + 0.125 * (touched - 1))
        assert found.time_s.item() == pytest.approx(2 * (flops / 50 + moved / 10 + launch_s))
        assert found.bound == "memory"


def test_one_adapter_is_launched_as_the_chips_own_kernels_at_least_and_read_where_a_token_runs():
    small = replace(
        model(Attention(heads=4, kv_heads=0, head_dim=3), count=1), adapters=Adapters(count=1, rank=4, active=1)
    )
    first = next(adapter_operators(small, chips(), np.array([5.0])))
    assert first.bytes.item() == 2 * (4 * 20 + 5 * (8 + 24 + 8))
    assert first.time_s.item() == pytest.approx(2 * 5 * 4 * 20 / 50 + first.bytes.item() / 10 + 2 * 0.5)
    half = next(adapter_operators(small, chips(), np.array([0.5])))
    assert half.bytes.item() == 2 * (0.5 * 4 * 20 + 0.5 * (8 + 24 + 8))


def test_outside_graphs_the_host_launches_two_kernels_for_each_input_of_a_layer():
    # queries, keys and values share an input, and so do gate and up; output and down have their own: 4 pairs, 32 layers
    assert launched_kernels(with_adapters()) == 32 * 4 * 2
    assert launched_kernels(with_adapters(attention_only=True)) == 32 * 2 * 2
    assert launched_kernels(LLAMA_8B) == 0
    plain = lane(chip("big"), BF16)
    slow = replace(plain, choice=replace(plain.choice, overhead=replace(plain.choice.overhead, adapter_launch_s=1e-4)))
    floors = lanes(with_adapters(), [plain, slow]).times.eager_floor_s
    assert floors[1] - floors[0] == pytest.approx(256 * 1e-4)


def test_a_gated_query_is_adapted_at_twice_its_width():
    given = Adapters(count=1, rank=4, active=1)
    gated = replace(model(replace(QUERY_ALONE, output_gate=True)), adapters=given)
    first = adapted(gated, gated.blocks[0])[0]
    assert (first.inner, first.columns, first.split) == (8, 24, "columns")


def test_layers_without_softmax_attention_carry_no_adapters():
    given = Adapters(count=1, rank=4, active=1)
    assert not adapted(model(None), model(None).blocks[0])
    assert not adapted(replace(model(None), adapters=given), model(None).blocks[0])


def test_what_is_not_resident_comes_over_pci_express():
    pcie = np.array([6.4e10])
    assert swap_s(with_adapters(count=8, active=8), at(), pcie)[0] == 0
    assert swap_s(with_adapters(count=16, active=8), at(), pcie)[0] == pytest.approx(0.5 * 80 * MIB / 6.4e10)
    assert swap_s(with_adapters(), at(), np.array([np.nan]))[0] == 0


def test_the_ledger_has_a_line_for_them():
    built = lanes(with_adapters(), [lane(chip("big"))])
    line = next(x for x in decode_ledger(with_adapters(), built, 0, 8.0, 1000.0) if x.operator == "adapters")
    assert line.time_s > 0 and line.flops == pytest.approx(8 * 2 * 81920 * 16 * 32)


def test_only_frameworks_that_serve_adapters_are_taken_and_the_others_are_told_so():
    assert (
        supports_model(TUNED, with_adapters())
        and not supports_model(SGLANG, with_adapters())
        and supports_model(SGLANG, LLAMA_8B)
    )
    found = search(Question(question(), catalog(model=with_adapters(), frameworks=(TUNED, SGLANG))))
    assert {s.lane.framework.slug for s in found.ranked} == {"vllm"}
    none = search(Question(question(), catalog(model=with_adapters(), frameworks=(SGLANG,))))
    assert not none.ranked and "LoRA adapters" in next(r.detail for r in none.rejections if r.accelerator == "big")


def test_models_whose_adapters_are_not_modelled_are_refused():
    latent = LatentAttention(heads=32, q_rank=0, kv_rank=512, nope_dim=128, rope_dim=64, v_dim=128)
    block = replace(LLAMA_8B.blocks[0], mixer=latent)
    assert "latent" in adapters_unsupported(with_adapters(model=replace(LLAMA_8B, blocks=(block,))))
    assert adapters_unsupported(with_adapters()) == adapters_unsupported(LLAMA_8B) == ""


def test_experts_carry_no_adapters():
    sparse = replace(LLAMA_8B, blocks=(replace(LLAMA_8B.blocks[0], ffn=Ffn(inner=1024, experts=8, top_k=2)),))
    assert adapter_bytes(with_adapters(model=sparse), at())[0] == (8192 + 2 * 5120 + 8192) * 16 * 32 * 2


def test_the_command_names_slots_rank_and_what_the_host_keeps():
    model = with_adapters(rank=12)
    best = search(Question(question(), catalog(model=model, frameworks=(TUNED,)))).ranked[0]
    command = launch("m", best, model, question())["command"]
    assert "--enable-lora --max-loras 8 --max-lora-rank 16 --max-cpu-loras 50" in command
    assert "lora" not in launch("m", best, LLAMA_8B, question())["command"]


def test_tensorrt_llm_reads_the_same_from_its_options_file():
    model = with_adapters(attention_only=True)
    trt = replace(
        TUNED,
        slug="tensorrt-llm",
        name="TensorRT-LLM",
        version="1.0",
        scheduler="mixed",
        memory_policy="free",
        **software("tensorrt-llm"),
    )
    best = search(Question(question(), catalog(model=model, frameworks=(trt,)))).ranked[0]
    options = yaml.safe_load(launch("m", best, model, question())["files"]["trtllm-options.yaml"])
    assert options["lora_config"] == {
        "max_lora_rank": 16, "max_loras": 8, "max_cpu_loras": 50,
        "lora_target_modules": ["attn_q", "attn_k", "attn_v", "attn_dense"],
    }  # fmt: skip


def test_merged_copies_cost_at_least_one_deployment_each():
    w, many = question(), catalog(model=with_adapters(), frameworks=(TUNED,))
    found = search(Question(w, many))
    copies = merged_copies(Question(w, many), found)
    assert copies is not None and copies.each is not None
    assert copies.usd_per_hour == pytest.approx(50 * copies.each.usd_per_hour)
    assert copies.usd_per_hour > found.ranked[0].usd_per_hour
    assert copies.packed_usd_per_hour == pytest.approx(copies.usd_per_hour / copies.side_by_side_replicas)
    assert merged_copies(Question(w, catalog()), found) is None
