"""Checks of the claims about training, with closed-form formulas."""

from advisor.engine.network import parameters
from advisor.engine.terms import tick_text
from catalog.models import Assumption
from tests.claims.claims import LLAMA_70B, Check, Desk, Finding

H100, A100 = "h100-sxm", "a100-80gb-sxm"
GB, TB = 1e9, 1e12
MIXED_BYTES = 16.0  # per parameter: 16-bit weights and gradients, FP32 master copy and two moments


def agrees(figure: str, reason: str) -> Finding:
    return Finding("agrees", figure, reason)


def conditional(figure: str, reason: str) -> Finding:
    return Finding("conditional", figure, reason)


def refuted(figure: str, reason: str) -> Finding:
    return Finding("refuted", figure, reason)


def trained_for(slug: str, usd: float) -> Check:
    """The tokens that a budget pays for: 6 x parameters x tokens FLOPs at the usual MFU."""

    def check(desk: Desk) -> Finding:
        mfu = Assumption.objects.get(key="training-mfu-fraction").value
        rent, size = desk.rent(slug), parameters(desk.model(LLAMA_70B))
        tokens = usd / rent * 3600 * desk.chip(slug).flops_per_s["bf16"] * mfu / (6 * size)
        llama = usd * 15e12 / tokens
        figure = (
            f"{tick_text(usd)} pay for training on {tokens / TB:.1f} T tokens at {desk.rent_text(slug)} and "
            f"{mfu:.0%} MFU; 15 T would cost {tick_text(llama)}"
        )
        return conditional(figure, "The number of tokens is not stated, and the bill is proportional to it.")

    return check


def gpt3(desk: Desk) -> Finding:
    return agrees(f"{6 * 175e9 * 300e9:.3g} FLOPs", "6 x parameters x tokens.")


def adam(desk: Desk) -> Finding:
    return agrees(f"{3 * 175e9 * 4 / TB:.1f} TB", "Two moments and one copy of the weights, four bytes each.")


def all_reduce(link: str, stated_gb_per_s: float, one_way_gb_per_s: float) -> Check:
    def check(desk: Desk) -> Finding:
        moved = 2 * 7 / 8 * 175e9 * 2 / GB
        figure = f"{moved:.0f} GB, {moved / one_way_gb_per_s:.2g} s at {one_way_gb_per_s:g} GB/s each way"
        return refuted(
            figure, f"{stated_gb_per_s:g} GB/s is the sum of both directions of {link}; a ring sends in one."
        )

    return check


def layout(desk: Desk) -> Finding:
    each = MIXED_BYTES * parameters(desk.model(LLAMA_70B)) / 64 / GB
    return conditional(
        f"{each:.0f} GB of weights, gradients and optimizer state per chip; 8 x 8 x 8 = 512",
        "It fits. This version does not search training layouts, so it may not be the best.",
    )


def checkpointing(desk: Desk) -> Finding:
    return agrees(
        f"+{1 / 3:.0%} compute; {34 / 2:.0f} times less for activations",
        "One extra forward pass for every three; 34 against 2 bytes per token and hidden unit in 16 bits with fused "
        "attention (Korthikanti et al. 2022).",
    )


def on_one_a100(desk: Desk) -> Finding:
    size = parameters(desk.model(LLAMA_70B))
    needs, has = MIXED_BYTES * size / GB, desk.chip(A100).memory_bytes / GB
    return refuted(
        f"{needs:,.0f} GB of weights ({2 * size / GB:.0f}), gradients ({2 * size / GB:.0f}) and "
        f"optimizer state ({12 * size / GB:.0f}); an A100 has {has:.0f}",
        "Recomputation saves activations, but the weights alone do not fit.",
    )


def ledger(desk: Desk) -> Finding:
    size = parameters(desk.model(LLAMA_70B))
    figure = (
        f"FP32 {16 * size / GB:,.0f} GB: weights {4 * size / GB:.0f}, gradients "
        f"{4 * size / GB:.0f}, moments {8 * size / GB:.0f}; mixed {MIXED_BYTES * size / GB:,.0f}"
    )
    return refuted(
        figure,
        "The stated figures omit parts, and mixed precision does not halve them: it keeps an FP32 copy and both "
        "moments.",
    )


def bubble(desk: Desk) -> Finding:
    def share(stages: int, batches: int, chunks: int = 1) -> float:
        return (stages - 1) / (batches * chunks + stages - 1)

    figure = (
        f"(p-1)/(m v + p-1): 8 stages lose {share(8, 8):.0%} with 8 micro-batches, "
        f"{share(8, 32):.0%} with 32, {share(8, 32, 4):.0%} interleaved"
    )
    return refuted(figure, "It depends on the number of micro-batches; 1/stages needs (p-1) squared of them.")


def deepl(desk: Desk) -> Finding:
    most = desk.efficiency(H100).matmul_16_fraction
    return conditional(
        f"67 / 44.6 = {67 / 44.6:.2f}; large matrix products reach {most:.0%} of the dense peak here",
        "The ratio agrees. 80 % for the whole step is more than matrix products alone reach, so "
        "it must refer to another peak.",
    )


CHECKS: dict[str, Check] = {
    "c13": trained_for(H100, 2.0e6), "c14": trained_for("tpu-v5p", 1.5e6), "c42": deepl, "c43": gpt3,
    "c44": adam, "c45": all_reduce("NVLink", 900, 450), "c46": all_reduce("PCI Express 5", 128, 64), "c47": layout,
    "c48": checkpointing, "c49": on_one_a100, "c50": ledger, "c51": bubble,
}  # fmt: skip
