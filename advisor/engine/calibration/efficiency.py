"""Efficiency of a chip from kernel microbenchmarks: each figure that they determine, with its interval.

Every figure inverts the formula in kernels/ or step/operators.py that predicts the same kernel, so that the prediction
reproduces the measurement. Figures that the measurements do not determine are omitted, never guessed.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from advisor.engine.calibration.alignment import alignment
from advisor.engine.calibration.kernel_samples import (
    HIGH,
    LOW,
    ROUNDS,
    Array,
    Figure,
    Sample,
    combined,
    fit_line,
    from_fit,
    median_of,
    samples,
    spread_of,
)
from advisor.engine.kernels import EXPERT_PADDING_ROWS, EXPERT_TILE_ROWS_MIN, KNEE_END_BYTES, waves
from advisor.engine.terms import Accelerator

LARGE_ROWS = 2048  # minimum rows of a GEMM that reaches the sustained rate
LARGE_BYTES = 2.0**28  # minimum size of a read or a collective that reaches the memory's or the link's bandwidth
FEW_ROWS, MIN_KERNELS = 16, 12
SATURATING_BYTES = 2.0**24  # minimum size of weights whose read uses the whole chip
SATURATING_HEADS = 1024.0  # minimum sequences x heads of a decode attention that uses the whole chip
LONG_TOKENS = 4096  # minimum length of a prefill whose attention time is not mostly overhead
FULL_EXPERT_ROWS = 128
SIXTEEN, EIGHT, FOUR = ("bf16", "fp16"), ("fp8", "int8"), ("fp4", "nvfp4")
PLAIN_SCALES = (None, "tensor", "row")
WAVE_FRACTIONS, WAVE_ROWS = np.linspace(0.0, 1.0, 21), 64
FIT_ROUNDS = 5  # with fewer, the results still depend on the starting values
EXPONENTS = np.geomspace(1.0, 8.0, 61)
# The engine's defaults, for figures that a formula needs and that were not measured.
DEFAULTS = {"roof_exponent": 2.0, "wave_fraction": 0.0, "kernel_s": 3e-6, "hop_s": 1.5e-6}


@dataclass(frozen=True, slots=True)
class Fitted:
    """The fitted figures, by name."""

    figures: tuple[Figure, ...]

    def __getitem__(self, name: str) -> Figure:
        return next(f for f in self.figures if f.name == name)

    def __contains__(self, name: str) -> bool:
        return any(f.name == name for f in self.figures)

    def as_values(self) -> dict[str, float]:
        """Figure name -> value."""
        return {f.name: f.value for f in self.figures}


def efficiency_of(
    results: Iterable[Mapping[str, Any]], a: Accelerator, known: Mapping[str, float] = DEFAULTS
) -> Fitted:
    """Efficiency figures of chip `a` from result entries (`assay-probe/1`).

    `known`: values of figures that the results do not determine.
    """
    values, kernels = dict(DEFAULTS) | dict(known), samples(results)
    figures: dict[str, Figure] = {}

    def note(*new: Figure | None) -> None:
        for figure in new:
            if figure is not None:
                figures[figure.name] = figure
                values[figure.name] = figure.value

    note(*kernel(kernels, a))
    note(*memory(kernels, a, values))
    for _ in range(FIT_ROUNDS):  # rates, the roofline's exponent and the wave fraction depend on each other
        note(*(matmul(kernels, a, values, dtypes, name) for dtypes, name in _CLASSES))
        note(roof_exponent(kernels, a, values))
        note(wave_fraction(kernels, a, values))
    note(block_scales(kernels), experts(kernels, a, values), attention(kernels, a, values))
    note(*quantizing(kernels, a, values))
    note(*alignment(kernels, a, values))
    note(*collectives(kernels, a, values))
    return Fitted(tuple(figures.values()))


_CLASSES = ((SIXTEEN, "matmul_16_fraction"), (EIGHT, "matmul_8_fraction"), (FOUR, "matmul_4_fraction"))


def _fastest(kernels: Iterable[Sample], *axes: str) -> list[Sample]:
    """The fastest back end for each shape, which a framework would use."""
    best: dict[tuple[Any, ...], Sample] = {}
    for s in kernels:
        shape = tuple(s.key.get(axis) for axis in axes)
        if shape not in best or s.time_s < best[shape].time_s:
            best[shape] = s
    return list(best.values())


# ------------------------------------------------------------------ one chip


def kernel(kernels: Sequence[Sample], a: Accelerator) -> list[Figure | None]:
    """Fixed time of one kernel (launch and tail), and the rate at which GEMMs of few rows read weights.

    Both come from a line through the times of GEMMs of few rows over their bytes. Empty kernels in a CUDA graph follow
    each other three times faster, so a chain of them is used only if no GEMM was timed.
    """
    narrow = _multiplies(kernels, (*SIXTEEN, "fp8"))
    few = [s for s in narrow if float(s.key["m"]) <= FEW_ROWS and s.bytes >= SATURATING_BYTES]
    if len(few) >= MIN_KERNELS:
        columns = np.array([[s.bytes, 1.0] for s in few])
        (per_byte, start_s), draws = fit_line(columns, np.array([s.time_s for s in few]))
        source = f"{len(few)} matrix multiplies of {FEW_ROWS} rows and fewer"
        with np.errstate(divide="ignore"):
            share, shares = 1 / per_byte / a.memory_bytes_per_s, 1 / draws[:, 0] / a.memory_bytes_per_s
        return [
            from_fit("kernel_s", start_s, draws[:, 1], len(few), source),
            from_fit("memory_fraction", share, shares, len(few), source),
        ]
    chains = [s for s in kernels if s.kind == "launch" and s.key.get("mode") == "graph"]
    if not chains:
        return []
    middle = float(np.median([s.time_s for s in chains]))
    low, high = min(s.low_s for s in chains), max(s.high_s for s in chains)
    source = "chain of empty kernels in a CUDA graph"
    return [Figure(name="kernel_s", value=middle, low=low, high=high, count=len(chains), source=source)]


def memory(kernels: Sequence[Sample], a: Accelerator, values: Mapping[str, float]) -> list[Figure | None]:
    """Achieved memory bandwidth, and the fixed cost of decode attention per sequence and head.

    The bandwidth is that of GEMMs of few rows if they were timed (weights are most of what a decode step reads), else
    that of large reads and decode attention combined.
    """
    least = max(LARGE_BYTES, 4 * a.sram_bytes)
    reads = [s for s in kernels if s.kind == "memory_read" and s.bytes >= least]
    shares = [s.bytes / (s.time_s - values["kernel_s"]) / a.memory_bytes_per_s for s in reads]
    read = median_of("memory_fraction", shares, f"{len(reads)} reads of {least / 2**20:.0f} MiB and more")
    weights = next((f for f in kernel(kernels, a) if f is not None and f.name == "memory_fraction"), None)
    axes = ("dtype", "batch", "context_tokens", "heads", "kv_heads", "head_dim")
    decode = _fastest((s for s in kernels if s.kind == "attention_decode" and s.key.get("dtype") in SIXTEEN), *axes)
    if len(decode) < 4:
        return [weights or read]
    rest_s = np.array([s.time_s - values["kernel_s"] for s in decode])
    moved = np.array([s.bytes for s in decode])
    heads = np.array([float(s.key["batch"]) * float(s.key["heads"]) for s in decode])
    source = f"decode attention, {len(decode)} shapes, the best back end of each"
    if weights is not None:
        reached = a.memory_bytes_per_s * weights.value
        saturating = heads >= SATURATING_HEADS  # fewer heads do not use the whole chip, so their times do not add up
        extra_bytes = np.maximum(rest_s - moved / reached, 0.0) * reached / heads
        return [weights, median_of("sequence_head_bytes", extra_bytes[saturating], source)]
    (per_byte, per_head), draws = fit_line(np.stack([moved, heads], axis=1), rest_s)
    with np.errstate(divide="ignore", invalid="ignore"):
        share, each_share = 1 / per_byte / a.memory_bytes_per_s, 1 / draws[:, 0] / a.memory_bytes_per_s
        fixed, each_fixed = per_head / per_byte, draws[:, 1] / draws[:, 0]
    from_decode = from_fit("memory_fraction", share, each_share, len(decode), source)
    return [combined(read, from_decode), from_fit("sequence_head_bytes", fixed, each_fixed, len(decode), source)]


def _multiplies(kernels: Iterable[Sample], dtypes: Sequence[str]) -> list[Sample]:
    """GEMMs of these dtypes without block scales, the fastest kernel of each shape."""
    plain = (
        s
        for s in kernels
        if s.kind == "gemm"
        and s.key.get("dtype") in dtypes
        and s.key.get("scaling") in PLAIN_SCALES
        and not {"off", "from_idle_s"} & set(s.key)
    )
    return _fastest(plain, "dtype", "m", "n", "k", "sustained_s")


def peak_of(a: Accelerator, dtype: str) -> float:
    """Datasheet peak in FLOP/s; NaN if the chip does not support this dtype."""
    name = {"nvfp4": "fp4"}.get(dtype, dtype)
    return float(a.flops_per_s.get(name, float("nan")))


def _compute_s(time_s: float, bytes_s: float, values: Mapping[str, float]) -> float:
    """Compute part of a kernel's time under the smooth roofline, seconds; NaN if memory time explains all of it."""
    p, rest = values["roof_exponent"], time_s - values["kernel_s"]
    left = rest**p - bytes_s**p if rest > 0 else 0.0
    return float(left ** (1 / p)) if left > 0 else float("nan")


def matmul(
    kernels: Sequence[Sample], a: Accelerator, values: Mapping[str, float], dtypes: Sequence[str], name: str
) -> Figure | None:
    """Achieved fraction of the dense peak.

    From runs of about a second, if there are any, because short runs end before power throttling.
    """
    every = _multiplies(kernels, dtypes)
    lasting = [s for s in every if s.key.get("sustained_s")]
    large = [s for s in every if float(s.key["m"]) >= LARGE_ROWS and _bytes_s(s, a, values) < _flops_s(s, a) / 3]
    shares = [_peak_fraction(s, a, values) for s in lasting or large]
    what = "sustained for a second" if lasting else f"of {LARGE_ROWS} rows and more, in short bursts"
    figure = median_of(name, shares, f"{len(lasting or large)} matrix multiplies {what}")
    if figure is None or not lasting or not large:
        return figure
    burst = median_of(name, [_peak_fraction(s, a, values) for s in large], "")
    low, high = (burst.low, burst.high) if burst else (figure.low, figure.high)
    return Figure(
        name=name,
        value=figure.value,
        low=min(figure.low, low),
        high=max(figure.high, high),
        count=figure.count,
        source=figure.source,
    )


def _peak_fraction(s: Sample, a: Accelerator, values: Mapping[str, float]) -> float:
    flops = s.flops * float(_wave_factor(s, a, values["wave_fraction"]))
    return flops / _compute_s(s.time_s, _bytes_s(s, a, values), values) / peak_of(a, str(s.key["dtype"]))


def _wave_factor(s: Sample, a: Accelerator, wave_fraction: Any) -> Any:
    """Factor for the partly filled wave of a GEMM, for one wave fraction or an array of them."""
    rows, columns = (np.array(float(s.key[axis])) for axis in "mn")
    return 1.0 + wave_fraction * (float(waves(rows, columns, np.array(float(a.cores)))) - 1.0)


def _flops_s(s: Sample, a: Accelerator) -> float:
    return s.flops / peak_of(a, str(s.key["dtype"]))


def _bytes_s(s: Sample, a: Accelerator, values: Mapping[str, float]) -> float:
    return s.bytes / (a.memory_bytes_per_s * values.get("memory_fraction", 0.9))


def roof_exponent(kernels: Sequence[Sample], a: Accelerator, values: Mapping[str, float]) -> Figure | None:
    """Exponent of the smooth roofline, from 16-bit GEMMs near its ridge point, where both bounds matter."""
    rate = values.get("matmul_16_fraction")
    if rate is None or "memory_fraction" not in values:
        return None
    near = []
    for s in (s for s in _multiplies(kernels, SIXTEEN) if s.bytes >= SATURATING_BYTES):
        flops_s = _flops_s(s, a) / rate * _wave_factor(s, a, values["wave_fraction"])
        bytes_s, rest = _bytes_s(s, a, values), s.time_s - values["kernel_s"]
        if 0.25 < flops_s / bytes_s < 4 and rest > 0 and not s.key.get("sustained_s"):
            near.append((flops_s, bytes_s, rest))
    if len(near) < 8:
        return None
    flops, moved, rest_s = np.array(near).T
    p = EXPONENTS[:, None]
    top = np.maximum(flops, moved)
    errors = np.log(top * ((flops / top) ** p + (moved / top) ** p) ** (1 / p) / rest_s) ** 2
    draws = np.random.default_rng(1).integers(0, len(near), (ROUNDS, len(near)))
    resampled = EXPONENTS[np.argmin(errors[:, draws].sum(axis=2), axis=0)]
    low, high = np.quantile(resampled, [LOW, HIGH])
    best = float(EXPONENTS[np.argmin(errors.sum(axis=1))])
    if best in (EXPONENTS[0], EXPONENTS[-1]):  # at a bound, the exponent fits some other effect
        return None
    return Figure(
        name="roof_exponent",
        value=best,
        low=float(low),
        high=float(high),
        count=len(near),
        source=f"{len(near)} 16-bit matrix multiplies near the ridge",
    )


def wave_fraction(kernels: Sequence[Sample], a: Accelerator, values: Mapping[str, float]) -> Figure | None:
    """Cost of a partly filled wave of tiles, from 16-bit GEMMs that use the whole chip.

    The fraction with the smallest scatter of errors, whatever their common rate.
    """
    rate = values.get("matmul_16_fraction")
    own = [s for s in _multiplies(kernels, SIXTEEN) if s.bytes >= SATURATING_BYTES and not s.key.get("sustained_s")]
    own = [s for s in own if float(s.key["m"]) >= WAVE_ROWS]
    if rate is None or "memory_fraction" not in values or len(own) < MIN_KERNELS:
        return None
    p, errors = values["roof_exponent"], []
    for s in own:
        flops_s, bytes_s = _flops_s(s, a) / rate * _wave_factor(s, a, WAVE_FRACTIONS), _bytes_s(s, a, values)
        errors.append(np.log((flops_s**p + bytes_s**p) ** (1 / p) / (s.time_s - values["kernel_s"])))
    scatter = np.array(errors)
    draws = np.random.default_rng(1).integers(0, len(own), (ROUNDS, len(own)))
    resampled = WAVE_FRACTIONS[np.argmin(scatter[draws].std(axis=1), axis=1)]
    source = f"{len(own)} 16-bit matrix multiplies of {WAVE_ROWS} rows and more"
    return spread_of("wave_fraction", WAVE_FRACTIONS[np.argmin(scatter.std(axis=0))], resampled, len(own), source)


def quantizing(kernels: Sequence[Sample], a: Accelerator, values: Mapping[str, float]) -> list[Figure | None]:
    """Cost of dynamic FP8 quantization for the four matrices of a layer: quantize_bytes and quantize_kernels.

    From compiled norms (twice) and activations with FP8 output less those with 16-bit output, and one kernel that only
    quantizes.
    """
    plain, norm = _fused(kernels, "norm", None), _fused(kernels, "norm", "fp8")
    gated, activation = _fused(kernels, "activation", "fp8"), _fused(kernels, "activation", None)
    alone = _fused(kernels, "norm", "fp8", "nothing")
    tokens = sorted(set(plain) & set(norm) & set(gated) & set(activation) & set(alone))
    if len(tokens) < 2 or "memory_fraction" not in values:
        return []
    extra_s = [2 * (norm[t][0] - plain[t][0]) + gated[t][0] - activation[t][0] + alone[t][0] for t in tokens]
    elements = [2 * norm[t][1] + gated[t][1] + alone[t][1] for t in tokens]
    line, draws = fit_line(np.array([[v, 1.0] for v in elements]), np.array(extra_s))
    scale = np.array([a.memory_bytes_per_s * values["memory_fraction"], 1 / (4 * values["kernel_s"])])
    source = f"compiled kernels into FP8 at {len(tokens)} sizes"
    both = zip(("quantize_bytes", "quantize_kernels"), line * scale, (draws * scale).T, strict=True)
    return [spread_of(name, value, each, len(tokens), source) for name, value, each in both]


def _fused(
    kernels: Sequence[Sample], kind: str, into: str | None, after: str | None = None
) -> dict[float, tuple[float, float]]:
    """Tokens -> (seconds, elements) of one compiled, fused part of a layer."""
    own = [s for s in kernels if s.kind == kind and s.key.get("fused")]
    return {
        float(s.key["tokens"]): (s.time_s, float(s.key["tokens"]) * float(s.key.get("inner", s.key.get("hidden", 0))))
        for s in own
        if (s.key.get("into"), s.key.get("after")) == (into, after)
    }


def block_scales(kernels: Sequence[Sample]) -> Figure | None:
    """Rate of FP8 GEMMs with 128 x 128 block scales relative to one scale per tensor or row, by shape."""
    wide = [s for s in kernels if s.kind == "gemm" and s.key.get("dtype") == "fp8" and float(s.key["m"]) >= 1024]
    axes = ("m", "n", "k")
    plain = {tuple(s.key[x] for x in axes): s.time_s for s in _fastest(_multiplies(wide, ("fp8",)), *axes)}
    pairs = [(tuple(s.key[x] for x in axes), s.time_s) for s in wide if s.key.get("scaling") == "block128"]
    ratios = [plain[shape] / time_s for shape, time_s in pairs if shape in plain]
    return median_of("block_8_fraction", ratios, f"{len(ratios)} shapes with both kinds of scales")


def experts(kernels: Sequence[Sample], a: Accelerator, values: Mapping[str, float]) -> Figure | None:
    """Rate of grouped GEMMs relative to dense ones, with enough rows per expert to be compute-bound."""
    if "matmul_16_fraction" not in values:
        return None
    shares = []
    for s in _fastest(
        (s for s in kernels if s.kind == "grouped_gemm" and s.key.get("dtype") in SIXTEEN),
        "dtype", "experts", "tokens_per_expert", "n", "k",
    ):  # fmt: skip
        rows = float(s.key["tokens_per_expert"])
        padded = s.flops * (rows + min(max(rows, EXPERT_TILE_ROWS_MIN / 2), EXPERT_PADDING_ROWS)) / rows
        if rows >= FULL_EXPERT_ROWS and _bytes_s(s, a, values) < padded / peak_of(a, str(s.key["dtype"])):
            reached = padded / _compute_s(s.time_s, _bytes_s(s, a, values), values)
            shares.append(reached / peak_of(a, str(s.key["dtype"])) / values["matmul_16_fraction"])
    return median_of(
        "expert_fraction", shares, f"{len(shares)} grouped multiplies of {FULL_EXPERT_ROWS} rows and more each"
    )


def attention(kernels: Sequence[Sample], a: Accelerator, values: Mapping[str, float]) -> Figure | None:
    """Prefill attention with the fastest back end, as a fraction of the dense 16-bit peak."""
    axes = ("dtype", "tokens", "batch", "heads", "kv_heads", "head_dim")
    best = _fastest((s for s in kernels if s.kind == "attention_prefill" and s.key.get("dtype") in SIXTEEN), *axes)
    long = [s for s in best if float(s.key["tokens"]) >= LONG_TOKENS]
    shares = [s.flops / (s.time_s - values["kernel_s"]) / peak_of(a, "bf16") for s in long]
    backends = ", ".join(sorted({str(s.key.get("backend")) for s in long}))
    return median_of(
        "attention_fraction", shares, f"{len(long)} causal prefills of {LONG_TOKENS} tokens and more ({backends})"
    )


# ------------------------------------------------------------------ several chips of a host


def collectives(kernels: Sequence[Sample], a: Accelerator, values: Mapping[str, float]) -> list[Figure | None]:
    """Link bandwidth, knee, fixed cost and hop cost of collectives, from all-reduces.

    The largest messages give the bandwidth; the hop cost needs more than one number of chips. Sample bytes are those
    that cross the link: 2 (n-1)/n of the message.
    """
    all_reduces = [s for s in kernels if s.kind == "all_reduce" and s.bytes > 0]
    peak = a.links[0].bytes_per_s if a.links else a.pcie_bytes_per_s
    large = [s for s in all_reduces if s.bytes >= LARGE_BYTES]
    link = median_of(
        "link_fraction", [s.bytes / s.time_s / peak for s in large], f"{len(large)} all-reduces of 256 MiB and more"
    )
    if link is None or len(all_reduces) < 6:
        return [link]
    volume = np.array([s.bytes for s in all_reduces])
    hops = np.log2([float(s.key["devices"]) for s in all_reduces])
    several = len(set(hops)) > 1
    rest_s = np.array([s.time_s for s in all_reduces])
    columns = [volume, np.sqrt(np.minimum(volume, KNEE_END_BYTES)), np.ones(len(all_reduces))]
    table = np.stack([*columns, hops] if several else columns, axis=1)
    line, draws = fit_line(table, rest_s)
    latency_s = a.links[0].latency_s if a.links else 0.0
    fixed_s = latency_s + (0.0 if several else values["hop_s"] * float(hops[0]))
    chips = ", ".join(sorted({str(s.key["devices"]) for s in all_reduces}))
    source = f"{len(all_reduces)} all-reduces over {chips} chips"

    def figure(name: str, fits: Array) -> Figure | None:
        return from_fit(name, float(fits[0]), fits[1:], len(all_reduces), source)

    every = np.concatenate([line[None, :], draws])
    with np.errstate(divide="ignore", invalid="ignore"):
        rate, knee = 1 / every[:, 0] / peak, (every[:, 1] / every[:, 0]) ** 2
    return [
        figure("link_fraction", rate) or link,
        figure("collective_knee_bytes", knee),
        figure("collective_s", every[:, 2] - fixed_s),
        figure("hop_s", every[:, 3]) if several else None,
    ]
