"""Layouts that an engine refuses when it starts, and 16-bit formats of chips without BF16."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.engine.network.blocks import Attention, Block, Ffn
from advisor.engine.network.model import Model
from advisor.engine.search import Question
from advisor.engine.search.candidates import enumerate_lanes
from advisor.engine.step.compatibility.start_checks import start_fault
from advisor.engine.step.layout import unsupported
from advisor.engine.terms.software import FFN_WIDTH, KV_HEADS, Framework, Quantization, StartRule
from tests.engine.catalog_sample import BF16, FP8, LLAMA_8B, VLLM, catalog, chip, offer, question

STRICT = replace(VLLM, start_checks=(StartRule(refuses=(KV_HEADS, FFN_WIDTH)),))
H100 = chip("h100")
OLD = chip("old", flops_per_s={"fp16": 1e14, "fp32": 1e13})
FP16 = replace(BF16, slug="fp16", name="FP16", weights_dtype="fp16", activations_dtype="fp16")


def model(heads: int, kv_heads: int, inner: int, experts: int = 1) -> Model:
    block = Block(
        count=4,
        mixer=Attention(heads=heads, kv_heads=kv_heads, head_dim=64),
        ffn=Ffn(inner=inner, experts=experts, top_k=min(experts, 2)),
    )
    return replace(LLAMA_8B, hidden=heads * 64, blocks=(block,))


@pytest.mark.parametrize(("kv_heads", "tp", "starts"), [
    (10, 2, True), (10, 4, False), (10, 8, False), (10, 20, True), (8, 16, True), (2, 8, True), (1, 8, True),
    (3, 2, False),
])  # fmt: skip
def test_key_value_heads_are_split_or_copied_evenly(kv_heads: int, tp: int, starts: bool) -> None:
    """Worked example: the 10 key-value heads of Phi-3-medium split 2 ways; 20 ranks hold 2 copies of each."""
    fault = start_fault(STRICT, H100, model(kv_heads * 16, kv_heads, 64 * 80), tp=tp, moe_tp=1)
    assert (fault is None) == starts
    if fault is not None:
        assert f"{kv_heads} key-value heads" in fault.reason and tp not in fault.allowed and 1 in fault.allowed


@given(heads=st.integers(1, 64), groups=st.integers(1, 8), inner=st.integers(1, 4096), tp=st.integers(1, 32))
def test_a_refused_size_names_sizes_that_start(heads: int, groups: int, inner: int, tp: int) -> None:
    m = model(heads * groups, heads, inner)
    if fault := start_fault(STRICT, H100, m, tp=tp, moe_tp=1):
        assert all(start_fault(STRICT, H100, m, tp=n, moe_tp=1) is None for n in fault.allowed)
        assert start_fault(VLLM, H100, m, tp=tp, moe_tp=1) is None  # nobody read what this framework refuses
    else:
        assert heads * groups % tp == 0 and inner % tp == 0 and (heads % tp == 0 or tp % heads == 0)


def test_an_expert_is_split_by_its_own_size_alone() -> None:
    m = model(64, 8, inner=96, experts=8)
    assert start_fault(STRICT, H100, m, tp=64, moe_tp=1) is None
    divisors = tuple(n for n in range(1, 64) if 96 % n == 0)
    found = start_fault(STRICT, H100, m, tp=1, moe_tp=64)
    assert found == ("moe_tp", "an expert width of 96 cannot be split 64 ways", divisors)


def test_a_rule_of_some_chips_leaves_the_others_alone() -> None:
    only = replace(VLLM, start_checks=(StartRule(refuses=(KV_HEADS,), chips=("rocm",)),))
    m = model(30, 10, 640)
    assert start_fault(only, H100, m, tp=3, moe_tp=1) is None
    assert start_fault(only, chip("amd", stacks=("rocm",)), m, tp=3, moe_tp=1)


def test_the_search_offers_no_layout_that_the_engine_refuses() -> None:
    uneven = model(40, 10, 17920)
    free, strict = (sizes(uneven, framework) for framework in (VLLM, STRICT))
    assert {4, 8} <= free and strict == {1, 2}


def sizes(m: Model, framework: Framework) -> set[int]:
    world = catalog(model=m, frameworks=(framework,))
    lanes, _ = enumerate_lanes(Question(question(), world), world.accelerators)
    return {lane.choice.tp for lane in lanes}


def test_a_chip_without_bf16_runs_the_checkpoint_in_fp16() -> None:
    assert "serve the checkpoint in FP16" in unsupported(OLD, BF16)
    assert not unsupported(OLD, FP16) and not unsupported(H100, BF16) and not unsupported(H100, FP16)


@pytest.mark.parametrize(("native", "on_new"), [("bf16", "bf16"), ("fp16", "fp16")])
def test_a_16_bit_checkpoint_is_searched_once_as_published_where_the_chip_can(native: str, on_new: str) -> None:
    assert formats(native, ("bf16", "fp16", "fp8")) == {"h100": {on_new, "fp8"}, "old": {"fp16"}}


@pytest.mark.parametrize(("native", "allowed"), [("bf16", "fp16"), ("fp16", "bf16")])
def test_the_other_16_bit_format_can_be_asked_for(native: str, allowed: str) -> None:
    found = formats(native, (allowed,))
    assert found["h100"] == {allowed}
    assert found.get("old", set()) == ({"fp16"} if allowed == "fp16" else set())


def formats(native: str, allowed: tuple[str, ...]) -> dict[str, set[str]]:
    """Weight formats by chip."""
    known: tuple[Quantization, ...] = (BF16, FP16, FP8)
    slugs = tuple(q.slug for q in known)
    framework = replace(VLLM, weights=(replace(VLLM.weights[0], formats=slugs, chips=()),))
    world = catalog(
        model=replace(LLAMA_8B, native_dtype=native), frameworks=(framework,), quantizations=known,
        accelerators=(H100, OLD), offers=(offer("h100", 4.0), offer("old", 1.0)),
    )  # fmt: skip
    asked = question()
    asked = replace(asked, constraints=replace(asked.constraints, formats_allow=allowed, quality="any"))
    lanes, _ = enumerate_lanes(Question(asked, world), world.accelerators)
    found: dict[str, set[str]] = {}
    for lane in lanes:
        found.setdefault(lane.choice.accelerator.slug, set()).add(lane.choice.quantization.slug)
    return found
