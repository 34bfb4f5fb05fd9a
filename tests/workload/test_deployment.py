"""A fixed deployment: what is concluded from its counts, what is refused with the way out, what is only doubted."""

from dataclasses import replace
from typing import Any

import pytest

from advisor.engine.estimate.simulated import Resources
from advisor.engine.network.blocks import Attention, Block, Ffn
from advisor.engine.network.model import Model
from advisor.engine.terms.software import Framework
from advisor.workload.fixed.deployment import (
    Fixed,
    PoolSpec,
    divisors,
    fixed,
    framework_of,
    parse_deployment,
    parse_pool,
    with_config,
)
from advisor.workload.text import WorkloadError
from tests.engine.catalog_sample import BF16, FP8, INT4, LLAMA_8B, SGLANG, VLLM, chip, rules

FEATURES = ("expert_parallel", "attention_dp", "pipeline_parallel", "disaggregation")
OLD_CHIP = rules("fp8", chips=("old",), weight_only=True)
CAPABLE = replace(
    VLLM,
    weights=(*OLD_CHIP, *VLLM.weights),
    mixers=(*VLLM.mixers, "cross-attention", "speech"),
    features=(*VLLM.features, *FEATURES),
)
EXPERTS = Model(
    slug="experts", hidden=2048, vocab=65536, max_context_tokens=4096,
    blocks=(Block(count=24, mixer=Attention(heads=32, kv_heads=8, head_dim=64),
                  ffn=Ffn(inner=1024, experts=64, top_k=4)),),
)  # fmt: skip
ENCODER = Block(count=4, mixer=Attention(heads=8, kv_heads=8, head_dim=64, causal=False), ffn=None, stage="encoder")
CROSS = Block(count=4, mixer=Attention(heads=8, kv_heads=8, head_dim=64, causal=False, cross=True), ffn=None)
SEQ2SEQ = Model(slug="t5", hidden=512, vocab=32128, blocks=(ENCODER, CROSS), source_tokens=512, max_context_tokens=256)
SPEECH = replace(SEQ2SEQ, slug="whisper", source_tokens=1500, source_s=30.0)
VECTORS = replace(LLAMA_8B, slug="bert", encoder_only=True, max_context_tokens=512)
KNOWN = Resources(
    models={"llama": LLAMA_8B, "experts": EXPERTS, "t5": SEQ2SEQ, "whisper": SPEECH, "bert": VECTORS},
    accelerators={
        "h100": chip("h100"),
        "old": chip("old", flops_per_s={"bf16": 1e14}),
        "amd": chip("amd", stacks=("rocm",), vendor="amd"),
        "board": chip("board", served=False, not_served_reason="runs no serving framework", stacks=("own",)),
    },
    quantizations=(BF16, FP8, replace(INT4, weights_dtype="int4", weight_only=True)),
    frameworks=(CAPABLE, SGLANG),
    scopes={},
)
ASKED = {"model": "llama", "accelerator": "h100", "weights": "bf16", "isl": 1000, "osl": 200}


def built(**changes: Any) -> Fixed:
    return fixed(parse_deployment(ASKED | changes), KNOWN)


def refused(**changes: Any) -> dict[str, tuple[str, str]]:
    with pytest.raises(WorkloadError) as caught:
        built(**changes)
    return {error["field"]: (error["message"], error["allowed"]) for error in caught.value.errors}


def pool(**changes: Any) -> tuple[int, ...]:
    found = built(**changes).case.pool
    assert found is not None
    return found.tp, found.pp, found.ep, found.dp, found.moe_tp, found.replicas


# --- what it becomes --------------------------------------------------------------------------------------------


def test_a_deployment_becomes_a_case():
    case = built(kv="fp8", concurrency=64, max_batched_tokens=4096, tp=2, dp=3).case
    assert (case.model_id, case.accelerator_slug, case.chips, case.weights_dtype) == ("llama", "h100", 6, "bf16")
    assert (case.isl, case.osl, case.concurrency, case.max_batched_tokens) == (1000, 200, 64, 4096)
    assert (case.kv_dtype, case.phase, case.mode, case.framework) == ("fp8", "serving", "agg", "vllm")


def test_as_many_requests_as_fit_are_no_number():
    assert built().case.concurrency is None


@pytest.mark.parametrize(("asked", "kind", "users", "rate", "phase"), [
    ("steady", "steady", 10, None, "serving"), ("burst:25", "burst", 25, None, "serving"),
    ("poisson:2.5", "poisson", 10, 2.5, "serving"), ("static", "static", 10, None, "static"),
])  # fmt: skip
def test_a_client_is_read_with_its_figure(asked, kind, users, rate, phase):
    found = built(client=asked).case
    assert (found.client.kind, found.client.requests_per_user, found.client.rate_per_s) == (kind, users, rate)
    assert found.phase == phase


def test_lengths_spread_between_two_shares():
    client = built(length_spread="0.5:0.75").case.client
    assert (client.length_low_fraction, client.length_high_fraction) == (0.5, 0.75)
    with pytest.raises(WorkloadError):
        parse_deployment(ASKED | {"length_spread": "0.9:0.8"})
    with pytest.raises(WorkloadError):
        parse_deployment(ASKED | {"length_spread": "0:0.8"})
    assert built(length_spread="0.8:0.8").case.client.length_low_fraction == 0.8


def test_an_embedding_counts_one_vector():
    assert [built(model="bert", isl=100, osl=osl).case.osl for osl in (0, 1)] == [1, 1]


# --- layouts ----------------------------------------------------------------------------------------------------


def test_a_count_alone_means_replicas_and_says_so():
    found = built(count=8, tp=2)
    assert found.case.pool and found.case.pool.replicas == 4
    assert found.doubts[0] == "count 8 gives 4 independent replicas of 2 (dp 4)"
    assert built(count=2, tp=2).doubts == built(tp=2).doubts == ()


def test_a_count_must_be_the_product_of_the_sizes():
    message, allowed = refused(count=6, tp=2, pp=2)["count"]
    assert message == "6 is not tp 2 x pp 2 x attention_dp 1 x dp 1" and allowed == "remove count, or use 4"
    assert refused(count=8, tp=2, dp=3)["count"][1] == "remove count, or use 6"
    assert pool(count=6, tp=2, dp=3) == (2, 1, 1, 1, 2, 3)


def test_stages_ranks_and_experts_are_those_asked_for():
    assert pool(model="experts", weights="bf16", tp=4, attention_dp=2, ep=4, pp=3) == (4, 3, 4, 2, 2, 1)
    assert pool(model="experts", tp=4, ep=4, moe_tp=1) == (4, 1, 4, 1, 1, 1)


@pytest.mark.parametrize(("sizes", "field", "says", "allowed"), [
    ({"tp": 3}, "tp", "32 attention heads cannot be split 3 ways", "1, 2, 4, 8, 16, 32"),
    ({"pp": 25}, "pp", "the model has 24 layers", "at most 24"),
    ({"tp": 3, "ep": 3, "attention_dp": 1}, "tp", "cannot be split", ""),
    ({"ep": 3, "attention_dp": 3}, "ep", "64 experts cannot be split 3 ways", "1, 2, 4, 8, 16, 32, 64"),
    ({"tp": 2, "ep": 4}, "ep", "must be tp x attention_dp = 2", "one of 1, 2"),
    ({"tp": 4, "ep": 2, "moe_tp": 4}, "moe_tp", "must be tp x attention_dp = 4", "one of 1, 2, 4"),
])  # fmt: skip
def test_a_layout_that_cannot_be_started_is_refused_with_those_that_can(sizes, field, says, allowed):
    found = refused(model="experts", **sizes)
    assert says in found[field][0] and allowed in found[field][1]


def test_as_many_stages_as_layers_can_be_started_and_a_dense_model_has_no_experts():
    assert pool(model="experts", pp=24)[1] == 24
    assert refused(ep=2)["ep"] == ("the model has no experts", "1")
    assert divisors(12) == "1, 2, 3, 4, 6, 12"


PREFILL, DECODE = {"tp": 2, "workers": 3}, {"tp": 4, "batch": 16}


def test_two_pools_add_up():
    found = built(prefill_pool=PREFILL, decode_pool=DECODE, count=10)
    case = found.case
    assert (case.mode, case.chips, case.pool) == ("disagg", 10, None)
    assert case.prefill_pool and (case.prefill_pool.tp, case.prefill_pool.replicas) == (2, 3)
    assert case.decode_pool and (case.decode_pool.tp, case.decode_pool.replicas, case.decode_pool.max_batch) == (
        4,
        1,
        16,
    )
    assert found.pools == (case.prefill_pool, case.decode_pool)
    assert built().pools == (built().case.pool,)
    assert built(prefill_pool={"replicas": 5}, decode_pool={}).case.prefill_pool.replicas == 5


@pytest.mark.parametrize(("changes", "field", "says"), [
    ({"prefill_pool": PREFILL}, "decode_pool", "required when the other pool is set"),
    ({"decode_pool": DECODE}, "prefill_pool", "required when the other pool is set"),
    ({"prefill_pool": PREFILL, "decode_pool": DECODE, "pp": 2}, "pp", "inside prefill_pool and decode_pool"),
    ({"prefill_pool": PREFILL, "decode_pool": DECODE, "moe_tp": 2}, "moe_tp", "inside prefill_pool and decode_pool"),
    ({"prefill_pool": PREFILL, "decode_pool": DECODE, "count": 9}, "count", "the pools have 10 accelerators"),
    ({"prefill_pool": PREFILL, "decode_pool": {"tp": 5}}, "decode_pool.tp", "cannot be split 5 ways"),
    ({"prefill_pool": PREFILL, "decode_pool": DECODE, "client": "static"}, "client", "no static batches"),
    ({"prefill_pool": PREFILL, "decode_pool": DECODE, "model": "t5", "isl": 100}, "prefill_pool", "decoder-only"),
    ({"decode_pool": DECODE, "model": "bert", "osl": 0}, "prefill_pool", "decoder-only"),
])  # fmt: skip
def test_pools_that_contradict_the_rest_are_refused_at_their_field(changes, field, says):
    assert says in refused(**changes)[field][0]


def test_workers_may_be_called_replicas_and_are_written_once():
    assert PoolSpec.model_json_schema()["not"] == {"required": ["workers", "replicas"]}
    assert parse_deployment(ASKED | {"decode_pool": {"replicas": 2}}).decode_pool == PoolSpec(workers=2)
    with pytest.raises(WorkloadError):
        parse_deployment(ASKED | {"decode_pool": {"replicas": 2, "workers": 2}})


def test_sizes_of_one_beside_pools_are_the_defaults_and_pass():
    assert built(prefill_pool=PREFILL, decode_pool=DECODE, tp=1, dp=1, client="burst:3").case.mode == "disagg"


# --- requests ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("changes", "field", "says"), [
    ({"model": "bert", "osl": 2}, "osl", "one vector per request"),
    ({"osl": 0}, "osl", "at least 1"),
    ({"model": "whisper", "isl": 1501}, "isl", "one 30 s window"),
    ({"client": "poisson:0"}, "client", "above 0"),
    ({"client": "burst:11", "concurrency": 100_000}, "client", "too many requests"),
    ({"concurrency": 100_001}, "concurrency", "at most 100000"),
    ({"concurrency": "some"}, "concurrency", "or max"),
    ({"client": "sometimes"}, "client", "not a valid value"),
    ({"length_spread": "1:2"}, "length_spread", "not a valid value"),
])  # fmt: skip
def test_requests_that_the_model_or_the_simulation_cannot_have_are_refused(changes, field, says):
    assert says in refused(**changes)[field][0]


def test_the_largest_requests_that_can_be_had_pass():
    assert built(model="whisper", isl=1500).case.source_tokens == 1500
    assert built(client="burst:10", concurrency=100_000).case.concurrency == 100_000
    assert built(client="burst:20", concurrency=50_000).case.client.requests_per_user == 20


# --- names ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("changes", "field", "says"), [
    ({"model": "lama"}, "model", "did you mean llama"),
    ({"accelerator": "h10"}, "accelerator", "did you mean h100"),
    ({"accelerator": "board"}, "accelerator", "runs no serving framework"),
    ({"weights": "fp9"}, "weights", "did you mean fp8"),
    ({"kv": "fp9"}, "kv", "did you mean fp8"),
    ({"framework": "vlm"}, "framework", "did you mean vllm"),
    ({"accelerator": "amd", "framework": "vllm"}, "framework", "vllm does not run on AMD"),
    ({"accelerator": "amd"}, "framework", "no serving framework in the catalog runs on AMD"),
])  # fmt: skip
def test_names_that_are_not_there_are_refused_with_the_nearest(changes, field, says):
    assert says in refused(**changes)[field][0]


def test_a_list_of_allowed_names_holds_what_can_be_used():
    assert refused(accelerator="x")["accelerator"][1] == "amd, board, h100, old"
    assert refused(weights="x")["weights"][1] == "awq, bf16, fp8"
    assert refused(weights="x", accelerator="old")["weights"][1] == "awq, bf16"
    assert refused(accelerator="amd", framework="vllm")["framework"][1] == "none"


def chosen(known: tuple[Framework, ...], **changes: Any) -> str:
    asked = parse_deployment(ASKED | changes)
    return framework_of(asked, KNOWN.accelerators["h100"], LLAMA_8B, [FP8], known).slug


def test_the_preferred_framework_that_loads_the_format_is_chosen():
    """vLLM is preferred in the reference data; where it does not load the format, the next one is taken."""
    assert VLLM.launch and SGLANG.launch and VLLM.launch.preference < SGLANG.launch.preference
    assert chosen((SGLANG, VLLM)) == "vllm"
    assert chosen((SGLANG, replace(VLLM, weights=rules("bf16")))) == "sglang"
    assert chosen((replace(VLLM, launch=None), SGLANG)) == "sglang"
    assert chosen((replace(VLLM, mixers=()), SGLANG)) == "sglang"
    assert chosen((replace(SGLANG, weights=()), replace(VLLM, weights=()))) == "sglang"  # none: the first


def test_a_framework_answers_to_its_other_names_in_any_case():
    assert chosen((VLLM, replace(SGLANG, aliases=("sgl",))), framework="SGL") == "sglang"
    assert chosen((VLLM, SGLANG), framework="SGLang") == "sglang"


# --- doubts -----------------------------------------------------------------------------------------------------


def doubted(**changes: Any) -> str:
    return "; ".join(built(**changes).doubts)


def test_a_plain_deployment_is_not_doubted():
    assert built().doubts == built(weights="fp8", kv="fp8").doubts == ()


@pytest.mark.parametrize(("changes", "says"), [
    ({"weights": "awq", "framework": "sglang"}, "H100 computes with awq weights in 16 bits (weight-only quantization)"),
    ({"weights": "fp8", "accelerator": "old"}, "OLD computes with fp8 weights in 16 bits (weight-only quantization)"),
    ({"model": "t5", "isl": 513}, "513 tokens exceed the model's maximum source length of 512"),
    ({"framework": "vllm", "framework_version": "9.9"}, "the catalog has no vLLM 9.9"),
])  # fmt: skip
def test_what_the_catalog_does_not_know_is_said(changes, says):
    assert says in doubted(**changes)


@pytest.mark.parametrize(("changes", "field", "says"), [
    ({"model": "experts", "isl": 4000, "osl": 97}, "isl", "4,097 tokens exceed the model's context length of 4,096"),
    ({"model": "t5", "isl": 100, "osl": 256}, "osl", "257 tokens exceed the model's context length of 256"),
    ({"model": "bert", "isl": 513, "osl": 0}, "isl", "513 tokens exceed the model's context length of 512"),
])  # fmt: skip
def test_requests_beyond_the_context_are_refused_and_the_longest_that_fit_are_not(changes, field, says):
    with pytest.raises(WorkloadError) as refusal:
        built(**changes)
    assert refusal.value.errors[0]["field"] == field and says in refusal.value.errors[0]["message"]
    part = "osl" if changes["osl"] else "isl"
    assert not any("context" in doubt for doubt in built(**(changes | {part: changes[part] - 1})).doubts)


MX = replace(FP8, slug="mxfp4", name="MXFP4", weights_dtype="mxfp4", experts_only="always")
PLAIN = replace(VLLM, weights=rules("bf16", "int4"), caches=rules("bf16", "fp8"), features=())
OTHER = replace(CAPABLE, slug="other", name="Other", aliases=(), weights=rules("bf16", "fp8", "mxfp4"))


@pytest.mark.parametrize(("changes", "field", "message", "instead"), [
    ({"model": "t5", "isl": 100}, "framework", "support for this kind of model (cross-attention)", "other"),
    ({"weights": "fp8"}, "weights", "no documented support for FP8", "bf16"),
    ({"kv": "fp4"}, "kv", "no documented support for a KV cache in fp4", "bf16, fp8"),
    ({"model": "experts", "tp": 2, "ep": 2}, "ep", "no documented expert parallelism", "1, or use other"),
    ({"model": "experts", "attention_dp": 2}, "attention_dp", "no documented attention data parallelism", "use other"),
    ({"pp": 2}, "pp", "no documented pipeline parallelism", "use other"),
    ({"prefill_pool": {"tp": 1}, "decode_pool": {"tp": 1}}, "prefill_pool", "no documented disaggregated", "other"),
])  # fmt: skip
def test_a_combination_without_a_source_is_refused_with_the_nearest_that_works(changes, field, message, instead):
    known = replace(KNOWN, frameworks=(PLAIN, OTHER))
    with pytest.raises(WorkloadError) as caught:
        fixed(parse_deployment(ASKED | {"framework": "vllm"} | changes), known)
    [error] = caught.value.errors
    assert error["field"] == field and message in error["message"] and instead in error["allowed"]


def test_a_format_of_expert_layers_is_refused_for_a_dense_model():
    known = replace(KNOWN, quantizations=(*KNOWN.quantizations, MX), frameworks=(OTHER,))
    assert fixed(parse_deployment(ASKED | {"model": "experts", "weights": "mxfp4"}), known).quantization == MX
    with pytest.raises(WorkloadError) as caught:
        fixed(parse_deployment(ASKED | {"weights": "mxfp4"}), known)
    [error] = caught.value.errors
    assert "kernels for expert layers only" in error["message"] and "mxfp4" not in error["allowed"]


def test_llama_cpp_splits_layers_over_the_chips_of_a_host():
    split = replace(KNOWN, frameworks=(replace(PLAIN, features=("layer_split",)),))
    assert fixed(parse_deployment(ASKED | {"pp": 2}), split).case.pool.pp == 2


def test_a_chip_that_is_not_sold_is_estimated_where_a_framework_runs_on_it():
    b100 = chip("b100", served=False, not_served_reason="never broadly shipped")
    sold = replace(KNOWN, accelerators={"b100": b100})
    found = fixed(parse_deployment(ASKED | {"accelerator": "b100"}), sold)
    assert any("never broadly shipped" in doubt for doubt in found.doubts)


def test_lengths_up_to_the_limits_are_not_doubted():
    assert doubted(model="experts", isl=4000, osl=96) == ""
    assert "exceed" not in doubted(model="t5", isl=512, osl=255) + doubted(model="bert", isl=512, osl=0)


# --- texts ------------------------------------------------------------------------------------------------------


def test_a_pool_is_written_as_keys_and_numbers():
    assert parse_pool("prefill_pool", "tp=8; workers =2;") == {"tp": 8, "workers": 2}
    for text in ("tp", "tp=", "tp=x", "tp=-1"):
        with pytest.raises(WorkloadError) as caught:
            parse_pool("prefill_pool", text)
        assert caught.value.errors[0]["field"] == "prefill_pool"
        assert "KEY=NUMBER" in caught.value.errors[0]["message"]


def test_a_model_of_ones_own_takes_the_place_of_the_catalogs():
    config = {
        "model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, "intermediate_size": 128, "vocab_size": 1000,
    }  # fmt: skip
    known = with_config(KNOWN, "mine", config)
    assert list(known.models) == ["mine"] and known.models["mine"].hidden == 64
    asked = parse_deployment(ASKED | {"model": {"config": config}})
    assert fixed(asked, known).case.model_id == "mine"
    with pytest.raises(WorkloadError) as caught:
        with_config(KNOWN, "mine", {"model_type": "llama"})
    assert caught.value.errors[0]["field"] == "model.config"


def test_a_format_that_no_framework_has_is_not_blamed_on_one():
    """If no framework supports a format, the error names all of them; if another does, only the requested one."""
    bare = [replace(f, weights=rules("bf16")) for f in (VLLM, SGLANG)]
    known = replace(KNOWN, frameworks=tuple(bare))
    with pytest.raises(WorkloadError) as caught:
        fixed(parse_deployment(ASKED | {"weights": "fp8"}), known)
    said = caught.value.errors[0]["message"]
    assert "no framework has documented support for FP8" in said and VLLM.name in said and SGLANG.name in said
    with pytest.raises(WorkloadError) as caught:
        one = replace(KNOWN, frameworks=(bare[0], SGLANG))
        fixed(parse_deployment(ASKED | {"weights": "fp8", "framework": "vllm"}), one)
    assert "no framework" not in caught.value.errors[0]["message"]
