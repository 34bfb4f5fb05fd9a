"""The roofline lesson: where prefill and decode of this plan sit under the chip's roofs, and what would move them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from advisor.engine.search import Scored
from advisor.engine.step import Lanes, Line, rate_of


@dataclass(frozen=True, kw_only=True, slots=True)
class Phase:
    """One step of one phase on one chip, all operators together; waiting for the host is left out."""

    name: str
    flops: float
    bytes: float
    time_s: float  # of the device
    weights_bytes: float  # of the bytes, those of weights: the same however many share the step
    sequences: float

    @property
    def flops_per_byte(self) -> float:
        return self.flops / self.bytes if self.bytes else math.nan

    @property
    def flops_per_s(self) -> float:
        return self.flops / self.time_s if self.time_s else math.nan


@dataclass(frozen=True, kw_only=True, slots=True)
class Roofline:
    dtype: str  # that most of it is multiplied in
    datasheet_flops_per_s: float
    datasheet_bytes_per_s: float
    reached_flops_per_s: float  # by kernels, sustained
    reached_bytes_per_s: float
    basis: str  # measured | relative | datasheet
    phases: tuple[Phase, ...]
    sentences: tuple[str, ...]

    @property
    def ridge_flops_per_byte(self) -> float:
        return self.reached_flops_per_s / self.reached_bytes_per_s


def roofline_of(s: Scored, built: Lanes, prefill: Sequence[Line], decode: Sequence[Line]) -> Roofline:
    """From the two ledgers of an answer; without lines of decode: a model that generates nothing."""
    c, x, i = s.lane.choice, built.layouts, s.row_index
    running = max(s.verified.running_requests_mean, 1.0)
    phases = [_phase("prefill", prefill, 1.0, s)] + ([_phase("decode", decode, running, s)] if decode else [])
    roofs = dict(
        datasheet_flops_per_s=rate_of(c.accelerator, c.quantization.activations_dtype) or math.nan,
        datasheet_bytes_per_s=c.accelerator.memory_bytes_per_s,
        reached_flops_per_s=float(x.matmul_flops_per_s[i]),
        reached_bytes_per_s=float(x.memory_bytes_per_s[i]),
    )
    ridge = roofs["reached_flops_per_s"] / roofs["reached_bytes_per_s"]
    sentences = [_roofs(c.quantization.activations_dtype, roofs, c.efficiency.basis)]
    sentences += [_where(p, ridge) for p in phases] + [_ridge_words(p, ridge) for p in phases if p.name == "decode"]
    return Roofline(
        dtype=c.quantization.activations_dtype,
        basis=c.efficiency.basis,
        phases=tuple(phases),
        sentences=(*sentences, *_movers(phases, ridge, s)),
        **roofs,
    )


WHENCE = {
    "measured": "measured on this chip",
    "relative": "taken from a measured relative",
    "datasheet": "the data sheet times what kernels reach on other chips",
}


def _roofs(dtype: str, roofs: dict[str, float], basis: str) -> str:
    def pair(which: str) -> str:
        flops, rate = roofs[f"{which}_flops_per_s"], roofs[f"{which}_bytes_per_s"]
        return f"{flops / 1e12:,.0f} TFLOP/s and {rate / 1e12:.2f} TB/s"

    sheet = "no rate" if math.isnan(roofs["datasheet_flops_per_s"]) else pair("datasheet")
    return f"Roofs in {dtype}: {sheet} on the data sheet, {pair('reached')} that kernels reach ({WHENCE[basis]})."


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


def _where(p: Phase, ridge: float) -> str:
    side = "above" if p.flops_per_byte >= ridge else "below"
    binds = "arithmetic" if side == "above" else "memory"
    return (
        f"A {p.name} step does {p.flops_per_byte:,.0f} FLOP for each byte it reads, {side} the ridge of {ridge:,.0f}: "
        f"{binds} binds, and it reaches {p.flops_per_s / 1e12:,.0f} TFLOP/s a chip."
    )


def _ridge_words(p: Phase, ridge: float) -> str:
    """How many requests would have to share a decode step until arithmetic binds."""
    flops, cache = p.flops / p.sequences, (p.bytes - p.weights_bytes) / p.sequences
    spare = flops - ridge * cache
    if p.flops_per_byte >= ridge:
        return "Fewer requests at once would make each of them faster without losing much of the rate."
    if spare <= 0:
        return (
            "No number of requests reaches the ridge: with each come "
            f"{cache / 1e6:,.1f} MB of its own cache to read a token on a chip."
        )
    need = ridge * p.weights_bytes / spare
    sharing = f"about {need:,.0f} requests would share a step at the ridge; {p.sequences:,.0f} do at the peak"
    return f"Weights are read once for all: {sharing}."


def _movers(phases: Sequence[Phase], ridge: float, s: Scored) -> list[str]:
    sentences = []
    for p in phases:
        waits = p.flops_per_byte < ridge
        share = p.weights_bytes / p.bytes if p.bytes else 0.0
        if waits and p.name == "decode":
            lever = "fewer bits a weight" if share >= 0.5 else "a narrower cache or shorter contexts"
            sentences.append(
                f"What moves decode: weights are {share:.0%} of what it reads, so {lever} first; then more "
                "requests at once, or drafts to verify."
            )
        elif waits:
            sentences.append(
                "What moves prefill: longer chunks or several prompts in a step, so that weights are read for "
                "more tokens."
            )
        else:
            bits = s.lane.choice.quantization.activations_dtype
            sentences.append(
                f"What moves {p.name}: a format that multiplies faster than {bits}, a shared prefix, or more "
                "chips; more bandwidth does not."
            )
    return sentences
