"""Roofline of a plan: where prefill and decode lie relative to the chip's limits, and what would speed them up."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from advisor.engine.kernels import rate_of
from advisor.engine.search import Scored
from advisor.engine.step import (
    Lanes,
    Line,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Phase:
    """One step of a phase on one chip, all operators added, without host time."""

    name: str
    flops: float
    bytes: float
    time_s: float  # device time
    weights_bytes: float  # weight part of `bytes`; independent of the batch size
    sequences: float  # batch size

    @property
    def flops_per_byte(self) -> float:
        return self.flops / self.bytes if self.bytes else math.nan

    @property
    def flops_per_s(self) -> float:
        return self.flops / self.time_s if self.time_s else math.nan


@dataclass(frozen=True, kw_only=True, slots=True)
class Roofline:
    """Datasheet and achieved limits of one chip, and both phases of the plan."""

    dtype: str  # of most matrix multiplies
    datasheet_flops_per_s: float
    datasheet_bytes_per_s: float
    reached_flops_per_s: float  # sustained by kernels
    reached_bytes_per_s: float
    basis: str  # measured | relative | datasheet
    phases: tuple[Phase, ...]
    sentences: tuple[str, ...]

    @property
    def ridge_flops_per_byte(self) -> float:
        return self.reached_flops_per_s / self.reached_bytes_per_s


def roofline_of(s: Scored, built: Lanes, prefill: Sequence[Line], decode: Sequence[Line]) -> Roofline:
    """The roofline from the operator ledgers of both phases; `decode` is empty for models that generate no tokens."""
    c, x, i = s.lane.choice, built.layouts, s.row_index
    running = max(s.verified.running_requests_mean, 1.0)
    phases = [_phase("prefill", prefill, 1.0, s)] + ([_phase("decode", decode, running, s)] if decode else [])
    limits = dict(
        datasheet_flops_per_s=rate_of(c.accelerator, c.quantization.activations_dtype) or math.nan,
        datasheet_bytes_per_s=c.accelerator.memory_bytes_per_s,
        reached_flops_per_s=float(x.matmul_flops_per_s[i]),
        reached_bytes_per_s=float(x.memory_bytes_per_s[i]),
    )
    ridge = limits["reached_flops_per_s"] / limits["reached_bytes_per_s"]
    sentences = [_limits_sentence(c.quantization.activations_dtype, limits, c.efficiency.basis)]
    sentences += [_position_sentence(p, ridge) for p in phases] + [
        _ridge_sentence(p, ridge) for p in phases if p.name == "decode"
    ]
    return Roofline(
        dtype=c.quantization.activations_dtype,
        basis=c.efficiency.basis,
        phases=tuple(phases),
        sentences=(*sentences, *_speedup_sentences(phases, ridge, s)),
        **limits,
    )


BASIS_TEXT = {
    "measured": "measured on this chip",
    "relative": "extrapolated from a related chip",
    "datasheet": "datasheet times the efficiency measured on other chips",
}


def _limits_sentence(dtype: str, limits: dict[str, float], basis: str) -> str:
    def pair(which: str) -> str:
        flops, rate = limits[f"{which}_flops_per_s"], limits[f"{which}_bytes_per_s"]
        return f"{flops / 1e12:,.0f} TFLOP/s and {rate / 1e12:.2f} TB/s"

    sheet = "no rate" if math.isnan(limits["datasheet_flops_per_s"]) else pair("datasheet")
    return f"Limits in {dtype}: {sheet} (datasheet), {pair('reached')} achieved by kernels ({BASIS_TEXT[basis]})."


def _phase(name: str, lines: Sequence[Line], sequences: float, s: Scored) -> Phase:
    device = [line for line in lines if line.bound != "host"]
    moved = sum(line.bytes for line in device if line.bound != "communication")
    cache = sum(line.bytes for line in device if line.operator.endswith(("/kv_read", "/scores")))
    return Phase(
        name=name,
        flops=sum(line.flops for line in device),
        bytes=moved,
        time_s=sum(line.time_s for line in device),
        weights_bytes=min(s.memory.weights_bytes, moved - cache),
        sequences=sequences,
    )


def _position_sentence(p: Phase, ridge: float) -> str:
    side = "above" if p.flops_per_byte >= ridge else "below"
    bound = "compute" if side == "above" else "memory"
    return (
        f"A {p.name} step does {p.flops_per_byte:,.0f} FLOP per byte read, {side} the ridge point of {ridge:,.0f}: "
        f"it is {bound}-bound and achieves {p.flops_per_s / 1e12:,.0f} TFLOP/s per chip."
    )


def _ridge_sentence(p: Phase, ridge: float) -> str:
    """The decode batch size at which compute becomes the bound, as a sentence."""
    flops, cache = p.flops / p.sequences, (p.bytes - p.weights_bytes) / p.sequences
    spare = flops - ridge * cache
    if p.flops_per_byte >= ridge:
        return "A smaller batch would make each request faster without losing much throughput."
    if spare <= 0:
        return (
            "No batch size reaches the ridge point: each request adds "
            f"{cache / 1e6:,.1f} MB of KV cache to read per token and chip."
        )
    need = ridge * p.weights_bytes / spare
    return (
        f"Weights are read once per step for the whole batch: the ridge point needs a batch of about {need:,.0f}, "
        f"and the peak has {p.sequences:,.0f}."
    )


def _speedup_sentences(phases: Sequence[Phase], ridge: float, s: Scored) -> list[str]:
    sentences = []
    for p in phases:
        waits = p.flops_per_byte < ridge
        share = p.weights_bytes / p.bytes if p.bytes else 0.0
        if waits and p.name == "decode":
            lever = "fewer bits per weight" if share >= 0.5 else "a smaller KV-cache format or shorter contexts"
            sentences.append(
                f"To speed up decode: weights are {share:.0%} of the bytes read, so first {lever}, then larger "
                "batches or speculative decoding."
            )
        elif waits:
            sentences.append(
                "To speed up prefill: longer chunks or several prompts per step, so that each weight read serves "
                "more tokens."
            )
        else:
            bits = s.lane.choice.quantization.activations_dtype
            sentences.append(
                f"To speed up {p.name}: a format with a higher matrix rate than {bits}, prefix caching, or more "
                "chips; more memory bandwidth does not help."
            )
    return sentences
