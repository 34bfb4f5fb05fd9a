"""The checks of the claims: for each, the engine's figure and a verdict on the stated one."""

import math

import numpy as np

from advisor.engine.network import parameters
from advisor.engine.network.model import kv_elements
from advisor.engine.terms import overhead, usd_text
from catalog.models import ApiPrice, QuantizationMethod
from tests.claims.claims import LLAMA_8B, LLAMA_70B, Check, Desk, Finding, mean_tpot_ms, rate
from tests.claims.orders import CHECKS as ORDERS
from tests.claims.probes import CHECKS as PROBED
from tests.claims.training import CHECKS as TRAINING

H100, A100, H200, V5E, V6E = "h100-sxm", "a100-80gb-sxm", "h200-sxm", "tpu-v5e", "tpu-v6e"
GB = 1e9
BUSY = {"concurrency": 128}


def agrees(figure: str, reason: str = "") -> Finding:
    return Finding("agrees", figure, reason)


def conditional(figure: str, reason: str) -> Finding:
    return Finding("conditional", figure, reason)


def refuted(figure: str, reason: str) -> Finding:
    return Finding("refuted", figure, reason)


def unknown(reason: str, figure: str = "no figure") -> Finding:
    return Finding("not judged", figure, reason)


# --- memory and roofline ----------------------------------------------------------------------------------------


def weights(desk: Desk) -> Finding:
    total = parameters(desk.model(LLAMA_70B))
    return agrees(f"{2 * total / GB:.0f} GB of {total / 1e9:.1f}e9 parameters", "Two bytes per parameter.")


def one_pass(slug: str, stated_ms: float) -> Check:
    def check(desk: Desk) -> Finding:
        a, size = desk.chip(slug), 2.0 * parameters(desk.model(LLAMA_70B))
        lower_ms = size / a.memory_bytes_per_s * 1e3
        figure = f"{lower_ms:.0f} ms by arithmetic, but {size / GB:.0f} GB do not fit in {a.memory_bytes / GB:.0f} GB"
        if desk.run(slug, weights="bf16").fits:
            return agrees(figure)
        two = mean_tpot_ms(desk.run(slug, tp=2, weights="bf16"))
        return refuted(
            f"{figure}; with two chips a token takes {two:.0f} ms",
            f"The division is right ({stated_ms:g} ms), but no single chip holds the weights.",
        )

    return check


def cache_128k(desk: Desk) -> Finding:
    size = 2.0 * kv_elements(desk.model(LLAMA_70B), 131072)
    each = size / 131072 / 1e3
    return conditional(
        f"{size / GB:.0f} GB, {size / 2**30:.0f} GiB in 16 bits ({each:.0f} KB per token)",
        "40 is right in GiB. 80 is twice that; grouped-query attention keeps an eighth of the keys and values.",
    )


def ridge(desk: Desk) -> Finding:
    a = desk.chip(H100)
    here = a.flops_per_s["bf16"] / a.memory_bytes_per_s
    return refuted(f"{here:.0f} FLOP/byte dense", "The stated rate needs 2:4 sparsity; the dense rate is half.")


def matmul_intensity(desk: Desk) -> Finding:
    n = 4096
    return agrees(
        f"{2 * n**3 / (3 * n**2 * 2):.0f} FLOP/byte", "2 n^3 operations divided by three matrices of two-byte elements."
    )


def linear_flops(desk: Desk) -> Finding:
    return agrees(f"{2 * 512 * 12288**2 / 1e9:.0f} GFLOP", "2 x batch x width squared.")


def cpu_against_gpu(desk: Desk) -> Finding:
    fp32 = desk.chip(H100).flops_per_s["fp32"]
    return agrees(
        f"{fp32 / 1e12:.0f} TFLOPS, {fp32 / 640e9:.0f} times 640 GFLOPS",
        "640 is 16 cores x 16 operations x 2.5 GHz.",
    )


# --- serving ----------------------------------------------------------------------------------------------------


def decode_at(concurrency: int, stated: float) -> Check:
    def check(desk: Desk) -> Finding:
        two, four = (rate(desk.run(H100, tp=tp, weights="bf16", concurrency=concurrency)) for tp in (2, 4))
        figure = f"{two:,.0f} tokens/s on two H100, {four:,.0f} on four ({two / 2:,.0f} and {four / 4:,.0f} per chip)"
        reason = "The number of chips is not stated, and 16-bit weights do not fit in one."
        low, high = min(two / 2, four / 4), max(two, four)
        verdict = conditional if low <= stated <= high else refuted
        tail = "" if verdict is conditional else " No layout of two or four chips comes close."
        return verdict(figure, reason + tail)

    return check


def by_format(desk: Desk) -> Finding:
    figure = []
    for name, dtype in (("16 bits", "bf16"), ("INT8", "int8"), ("INT4", "int4"), ("FP8", "fp8")):
        chips = next(tp for tp in (1, 2, 4) if desk.run(H100, tp=tp, weights=dtype).fits)
        figure.append(f"{name} {rate(desk.run(H100, tp=chips, weights=dtype)):.0f} on {chips}")
    reason = (
        "Only INT4 fits one H100 with room for a KV cache. INT8 and FP8 read the same number of bytes, so nothing "
        "explains 35 against 40."
    )
    return refuted(", ".join(figure) + " chips, tokens/s", reason)


def naive_to_optimised(desk: Desk) -> Finding:
    naive = rate(desk.run(H100, tp=4, weights="bf16")) / 4
    best = rate(desk.run(H100, tp=1, weights="int4", concurrency=16))
    reason = (
        "20 to 200 is a factor of ten; the stated steps (2 x 2 x 3) give twelve. Most of it is "
        "batching, which has no fixed factor."
    )
    return conditional(
        f"{naive:.0f} per chip for 1 request in 16 bits, {best:.0f} in INT4 with 16 ({best / naive:.0f} times)", reason
    )


def paging(desk: Desk) -> Finding:
    mean, reserved, block = 600.0, 2048.0, 16.0
    waste, paged = 1 - mean / reserved, (block / 2) / (mean + block / 2)
    figure = f"{waste:.0%} and {paged:.1%} with a mean of 600 tokens, 2,048 reserved, blocks of 16"
    return agrees(figure, "Paging wastes half a block per request; without it the waste depends on the lengths.")


def against_naive(desk: Desk) -> Finding:
    llama = {"model": "meta-llama/Llama-2-70b-hf", "tp": 4, "weights": "bf16"}
    one, many = (rate(desk.run(A100, **llama, concurrency=c)) for c in (1, "max"))
    figure = f"{many / one:.0f} times one request at a time, on four A100"
    return conditional(
        figure, "The factor is that of the batch that fits. Compared with static batching it is far smaller."
    )


def batching(desk: Desk) -> Finding:
    lengths = np.random.default_rng(0).lognormal(math.log(300) - 0.32, 0.8, (2000, 32))
    share = float(np.mean(lengths.mean(axis=1) / lengths.max(axis=1)))
    figure = f"{share:.0%} of the slots are busy in static batches of 32; all of them with continuous batching"
    return agrees(
        figure, "A static batch waits for its longest answer (log-normal lengths, p95 about 2.7 times the mean)."
    )


def frameworks(desk: Desk) -> Finding:
    vllm, sglang = (
        rate(desk.run(H100, model=LLAMA_8B, weights="bf16", framework=name, concurrency=256))
        for name in ("vllm", "sglang")
    )
    figure = (
        f"SGLang {sglang:,.0f}, vLLM {vllm:,.0f} tokens/s for 8B on an H100 with 256 requests "
        f"({sglang / vllm - 1:+.0%})"
    )
    return conditional(
        figure, "16,215 is 29 % above 12,553. Model, chip and version are not stated, and the order changes with each."
    )


def speculation(desk: Desk) -> Finding:
    def leviathan(a: float, k: int, cost: float) -> float:
        return (1 - a ** (k + 1)) / (1 - a) / (k * cost + 1)

    low, high = leviathan(0.7, 8, 0.1), leviathan(0.9, 8, 0.05)
    claimed = 0.8 * 5 / (0.8 * 5 * 0.1 + 1)
    figure = (
        f"{low:.1f} to {high:.1f} times by Leviathan et al. 2023 with a draft at 5 to 10 % of "
        f"the cost; the formula of the text gives {claimed:.2f}, theirs gives {leviathan(0.8, 5, 0.1):.2f}"
    )
    return conditional(
        figure,
        "True for one request at a time; large batches remove the gain. The text's formula is not the paper's.",
    )


def speculation_most(desk: Desk) -> Finding:
    need = next(a for a in np.arange(0.5, 1.0, 0.01) if (1 - a**6) / (1 - a) / (5 * 0.05 + 1) >= 3.6)
    return conditional(
        f"needs an acceptance of {need:.0%} with 5 drafted tokens at 5 % of the cost",
        "Only predictable text reaches this acceptance, which is not stated.",
    )


def prompt_caching(desk: Desk) -> Finding:
    rows = ApiPrice.objects.filter(usd_per_mtok_cached_input__isnull=False, usd_per_mtok_input__gt=0)
    saved = [1 - float(p.usd_per_mtok_cached_input or 0) / float(p.usd_per_mtok_input) for p in rows]
    middle, most = float(np.median(saved)), float(np.max(saved))
    figure = f"cached input costs {middle:.0%} less at the median of {len(saved)} endpoints, {most:.0%} at most"
    return conditional(
        figure,
        "90 is the best offer on the market. Latency falls by the share of the prompt that is "
        "cached, which is not stated.",
    )


def tensor_cores(desk: Desk) -> Finding:
    return agrees(
        f"{desk.efficiency(H100).matmul_16_fraction:.0%} of the dense peak in large sustained matrix products",
        "Small or unaligned shapes are at the low end; see the ledger of a decode step.",
    )


def flash(desk: Desk) -> Finding:
    new, old = desk.efficiency(H100).attention_fraction, desk.efficiency(A100).attention_fraction
    return conditional(
        f"{old:.0%} on A100 and {new:.0%} on H100, as calibrated for serving",
        "The stated shares are for long sequences without other work. No framework here uses FlashAttention 1.",
    )


def graphs(desk: Desk) -> Finding:
    r = desk.run(H100, model="meta-llama/Llama-2-7b-hf", weights="bf16")
    eager_s = overhead(desk.scopes, r.framework, r.framework_version).eager_s_per_layer * 32
    ratio = max(eager_s * 1e3 / mean_tpot_ms(r), 1.0)
    return conditional(
        f"{ratio:.1f} times: {eager_s * 1e3:.0f} ms to launch 32 layers, "
        f"{mean_tpot_ms(r):.1f} ms per token with graphs on an H100",
        "Only if the host is slower than the chip: one request, a small model.",
    )


def int4_8b(desk: Desk) -> Finding:
    wide, narrow = (desk.run(A100, model=LLAMA_8B, weights=w) for w in ("bf16", "int4"))
    saved = 1 - narrow.memory.weights_gib / wide.memory.weights_gib
    return conditional(
        f"{rate(narrow) / rate(wide):.2f} times and {saved:.0%} less memory for weights, one request on an A100",
        "True at batch 1. With large batches 4-bit weights gain nothing, because the product runs in 16 bits.",
    )


def int4_warns(desk: Desk) -> Finding:
    lossy = QuantizationMethod.objects.filter(settings__quality="lossy").count()
    return agrees(
        f"{lossy} formats carry a warning",
        "The claim has no figure. Every answer in such a format warns and says what to compare before shipping.",
    )


def fused_mlp(desk: Desk) -> Finding:
    layer = 1024 * 4096 * 4
    return conditional(
        f"{layer / 2**20:.0f} MiB per layer and {80 * layer / 2**20:,.0f} for 80 layers in FP32; half of that in BF16",
        "One tensor of 1,024 x 4,096. Frameworks free it after its layer, so serving never holds it for 80 layers "
        "at once.",
    )


def formats_by_hardware(desk: Desk) -> Finding:
    a, c = desk.chip(A100), desk.chip("rtx-4090")
    size = 0.5 * parameters(desk.model(LLAMA_8B)) / GB
    figure = (
        f"A100 multiplies INT8 and has {'an' if 'fp8' in a.flops_per_s else 'no'} FP8; an RTX "
        f"4090 has {c.memory_bytes / GB:.0f} GB (8B in INT4: {size:.0f} GB)"
    )
    return agrees(figure, "Rankings on these chips agree. FP8 on the 4090 is as good if the model is small.")


# --- money and energy -------------------------------------------------------------------------------------------


def cost_of(slug: str, chips: int, dtype: str, low: float, high: float) -> Check:
    def check(desk: Desk) -> Finding:
        full = desk.usd_per_mtok(slug, chips, weights=dtype, **BUSY)
        third, out = (
            full / 0.3,
            desk.rent(slug) * chips / (rate(desk.run(slug, tp=chips, weights=dtype, **BUSY)) * 3600) * 1e6,
        )
        figure = (
            f"{usd_text(full)} per million tokens at full load, {usd_text(third)} at 30 % load, {usd_text(out)} "
            f"counting output tokens only ({chips} chips, {dtype}, {desk.rent_text(slug)} per chip)"
        )
        reason = "Neither the load nor whether prompts count is stated, and both matter more than the chip."
        return (conditional if full <= high and out >= low else refuted)(figure, reason)

    return check


def tpu_cheaper(desk: Desk) -> Finding:
    tpu, gpu = desk.usd_per_mtok(V6E, 8, weights="bf16", **BUSY), desk.usd_per_mtok(H100, 4, weights="bf16", **BUSY)
    figure = (
        f"TPU v6e {usd_text(tpu)} ({desk.rent_text(V6E)}), H100 {usd_text(gpu)} ({desk.rent_text(H100)}) per million "
        "tokens, 70B "
        f"in 16 bits, both at full load: {gpu / tpu:.2g} times"
    )
    good = 2 <= gpu / tpu <= 4
    return (agrees if good else refuted)(
        figure, "Only Google rents out TPUs, at list prices, while many providers compete for GPUs."
    )


def per_watt(desk: Desk) -> Finding:
    figure = []
    for slug in (A100, H100, "tpu-v5p", "b100"):
        a = desk.chip(slug)
        figure.append(
            f"{a.name} {a.flops_per_s['bf16'] / a.watts / 1e12:.2f}" if math.isfinite(a.watts) else f"{a.name} unknown"
        )
    return conditional(
        ", ".join(figure), "The power of a TPU v5p is not published; its figure uses the 250 W that the claim assumes."
    )


def h100_rate(desk: Desk) -> Finding:
    return refuted(
        f"{desk.chip(H100).flops_per_s['bf16'] / 1e12:.0f} TFLOPS dense",
        "1,979 is the rate with 2:4 sparsity, which no served model uses.",
    )


def v5e_rate(desk: Desk) -> Finding:
    a = desk.chip(V5E)
    return refuted(
        f"{a.flops_per_s['bf16'] / 1e12:.0f} TFLOPS in BF16, {a.flops_per_s['int8'] / 1e12:.0f} in INT8",
        "197 is its BF16 rate; it has no FP8.",
    )


def v7_power(desk: Desk) -> Finding:
    watts = desk.chip("tpu-v7").watts
    return refuted(
        "not published" if math.isnan(watts) else f"{watts:.0f} W",
        "Two figures in one text contradict each other, so at least one is wrong. Google publishes none.",
    )


def v7_tco(desk: Desk) -> Finding:
    each = {s: desk.rent(s) / desk.chip(s).flops_per_s["fp8"] * 1e15 for s in ("tpu-v7", "gb200")}
    less = 1 - each["tpu-v7"] / each["gb200"]
    figure = (
        f"for rent, a dense FP8 PFLOP/s costs {usd_text(each['tpu-v7'])} an hour on v7 and "
        f"{usd_text(each['gb200'])} on GB200 ({less:+.0%} saved)"
    )
    return conditional(figure, "The claim is about Google's own cost, which is not public. Customers pay rent.")


def b200_rates(desk: Desk) -> Finding:
    a = desk.chip("b200").flops_per_s
    return refuted(
        f"{a['fp4'] / 1e15:.0f} and {a['fp8'] / 1e15:.1f} PFLOPS dense",
        "Both figures include sparsity. Dense FP4 is twice dense FP8, not 2.2 times.",
    )


def million_a_day(desk: Desk) -> Finding:
    usd = desk.usd_per_mtok(H100, 4, weights="bf16", **BUSY)
    tokens = 1e6 / usd * 1e6
    chips = 1e6 / 24 / desk.rent(H100)
    figure = f"true at {tokens / 1e12:.2g} T tokens per day: {tokens / 1200 / 1e9:.2g} G requests on {chips:,.0f} H100"
    return conditional(
        figure,
        "The volume is not stated. The figure is the bill of a very large service, not of one model at some scale.",
    )


def order_of_steps(desk: Desk) -> Finding:
    return unknown("Advice on training, which is not modeled.")


CHECKS: dict[str, Check] = {
    **TRAINING, **PROBED, **ORDERS,
    "c01": weights, "c02": one_pass(H100, 42), "c03": one_pass(A100, 70),
    "c04": decode_at(1, 20), "c05": decode_at(32, 400), "c06": decode_at(128, 800), "c07": by_format,
    "c08": cost_of(H100, 4, "bf16", 0.5, 1.0), "c09": cost_of(A100, 4, "bf16", 0.8, 1.5),
    "c10": cost_of(V5E, 8, "int8", 0.3, 0.6), "c11": cost_of(H200, 2, "bf16", 0.4, 0.8),
    "c12": tpu_cheaper, "c16": per_watt, "c17": h100_rate, "c18": v5e_rate, "c19": v7_power,
    "c20": v7_tco, "c21": naive_to_optimised, "c22": paging, "c23": cache_128k, "c24": against_naive, "c25": batching,
    "c26": frameworks,
    "c28": speculation, "c29": speculation_most, "c30": prompt_caching, "c31": flash, "c32": tensor_cores,
    "c33": graphs,
    "c37": fused_mlp, "c38": int4_8b,
    "c40": int4_warns, "c41": b200_rates,
    "c52": ridge, "c53": matmul_intensity, "c54": linear_flops, "c55": cpu_against_gpu,
    "c57": formats_by_hardware, "c58": order_of_steps, "c63": million_a_day,
}  # fmt: skip
