"""Checks of claims about an order of steps or with unstated conditions, by the gain of each step."""

from advisor.engine.network import decoder_blocks, parameters
from advisor.engine.step.drafts.speculative import tokens_per_step
from advisor.engine.terms import overhead
from catalog.models import Assumption, QuantizationMethod
from tests.claims.claims import LLAMA_8B, LLAMA_70B, Check, Desk, Finding, mean_tpot_ms, rate

H100, A100, RTX, V6E = "h100-sxm", "a100-80gb-sxm", "rtx-4090", "tpu-v6e"
GB = 1e9
BUSY = {"concurrency": 256}
DRAFTS = 3


def conditional(figure: str, reason: str) -> Finding:
    return Finding("conditional", figure, reason)


def assumed(key: str) -> float:
    return float(Assumption.objects.get(key=key).value)


def hybrid(desk: Desk) -> Finding:
    """The saving on everything is (1 - share of training) x saving on serving."""
    busy = {"weights": "bf16", "concurrency": "max"}
    tpu, gpu = desk.usd_per_mtok(V6E, 8, **busy), desk.usd_per_mtok(H100, 4, **busy)
    saved = 1 - tpu / gpu
    figure = f"serving 70B on TPU v6e costs {tpu / gpu:.2f} times what it costs on H100"
    if saved < 0.4:
        return Finding(
            "refuted",
            figure,
            "The saving on all compute cannot exceed the saving on serving, so 40 % is impossible at these prices.",
        )
    most = 1 - 0.4 / saved
    return conditional(
        figure, f"40 % of everything is saved if training is at most {most:.0%} of it, which is not stated."
    )


def liger(desk: Desk) -> Finding:
    """Bytes per token of logits (16 bits, FP32 copy, gradient), against one state per layer with recomputation."""
    model = desk.model(LLAMA_8B)
    layers = sum(b.count for b in decoder_blocks(model))
    logits, states = model.vocab * 10.0, layers * model.hidden * 2.0
    share, small = logits / (logits + states), 32_000 * 10.0 / (32_000 * 10.0 + states)
    return conditional(
        f"logits are {share:.0%} of the activations of 8B with its vocabulary, {small:.0%} with one of 32,000",
        "The memory saving holds if layers are recomputed and the vocabulary is large, because cross entropy in chunks "
        "never stores all logits. Weights and optimizer state do not change. Throughput is not modeled.",
    )


def four_bit_quality(desk: Desk) -> Finding:
    return conditional(
        "published: Llama-3 in AWQ and GPTQ loses 11 % on average, up to 32 % on MATH (arXiv:2501.03035); competitive "
        "with 8-bit integers on Llama 3.1 benchmarks (arXiv:2411.02355)",
        "Not computed here. Losses are small for large models with short answers; measure your own task.",
    )


def for_latency(desk: Desk) -> Finding:
    r = desk.run(H100, model=LLAMA_8B, weights="bf16")
    tpot_s = mean_tpot_ms(r) / 1e3
    layers = sum(b.count for b in decoder_blocks(desk.model(LLAMA_8B)))
    eager_s = overhead(desk.scopes, r.framework, r.framework_version).eager_s_per_layer * layers
    other = mean_tpot_ms(desk.run(H100, model=LLAMA_8B, weights="bf16", framework="tensorrt-llm")) / 1e3
    waits_s = (assumed("draft-step-ms") + DRAFTS * assumed("draft-pass-ms")) / 1e3
    tokens = tokens_per_step(assumed("acceptance-eagle-chat"), DRAFTS)
    drafts = tokens * tpot_s / (tpot_s * (1 + DRAFTS / layers) + waits_s)
    figure = (
        f"one user of 8B on an H100: graphs {max(eager_s / tpot_s, 1):.1f} times, three EAGLE-3 drafts {drafts:.1f}, "
        f"TensorRT-LLM {tpot_s / other:.2f}"
    )
    return conditional(
        figure,
        "The gains suggest another order: for few users, drafts gain more than the framework.",
    )


def for_throughput(desk: Desk) -> Finding:
    def at(weights: str) -> float:
        return rate(desk.run(H100, model=LLAMA_8B, weights=weights, **BUSY))

    wide, eight, four = at("bf16"), at("fp8"), at("int4")
    return conditional(
        f"8B on an H100 with 256 requests: FP8 {eight / wide:.2f} times BF16, INT4 {four / wide:.2f}",
        "The frameworks agree. At full batches 4-bit weights are multiplied in 16 bits, so FP8 comes first if the chip "
        "has it.",
    )


def for_the_edge(desk: Desk) -> Finding:
    wide, narrow = (rate(desk.run(RTX, model=LLAMA_8B, weights=w)) for w in ("bf16", "int8"))
    return conditional(
        f"INT8 {narrow / wide:.1f} times BF16 for one user of 8B on an RTX 4090",
        "INT8 agrees. ExecuTorch is for phones and laptops; on a card or a Mac the servers here are faster. ONNX "
        "Runtime "
        "has no launch file.",
    )


def for_little_memory(desk: Desk) -> Finding:
    size = parameters(desk.model(LLAMA_70B)) / GB
    bits = {
        slug: float(QuantizationMethod.objects.get(slug=slug).settings["bits_per_weight"])
        for slug in ("awq", "int4-sparse")
    }
    figure = (
        f"70B: {2 * size:.0f} GB, {bits['awq'] / 8 * size:.0f} in INT4, {bits['int4-sparse'] / 8 * size:.0f} with 2:4"
    )
    return conditional(
        figure,
        "INT4 first agrees. Liger saves memory only in training, and 2:4 sparsity needs training to keep quality.",
    )


def cold_start(desk: Desk) -> Finding:
    large, small = (2.0 * parameters(desk.model(name)) / GB for name in (LLAMA_70B, LLAMA_8B))
    return conditional(
        f"40 s are {large / 40:.1f} GB/s for the {large:.0f} GB of 70B, {small / 40:.1f} for the {small:.0f} GB of 8B",
        "Neither model nor storage is stated: a disk with 3 GB/s takes longer for 70B alone. Compile time is not "
        "modeled; in a published case it fell by about half (route179.dev, 2026-06-30). This claim is the default of "
        "tco.cold-start-s.",
    )


CHECKS: dict[str, Check] = {
    "c15": hybrid, "c36": liger, "c39": four_bit_quality, "c59": for_latency, "c60": for_throughput,
    "c61": for_the_edge, "c62": for_little_memory, "c64": cold_start,
}  # fmt: skip
