"""Kernels timed alone -> the Efficiency figures of their chip that they determine, each with its interval.

Every estimate inverts the formula with which `step.py` predicts the same kernel, so that a prediction of the measured
kernel comes out as it was measured. What the measurements do not determine is left out, never guessed.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from advisor.engine.calibration.kernel_samples import (
    HIGH,
    LOW,
    ROUNDS,
    Array,
    Figure,
    Sample,
    from_line,
    lines,
    median_of,
    samples,
    spread_of,
    together,
)
from advisor.engine.spec import Accelerator
from advisor.engine.step import EXPERT_PADDING_ROWS, EXPERT_TILE_ROWS_MIN, KNEE_END_BYTES, waves

LARGE_ROWS = 2048  # of a matrix multiply that shows what the chip sustains
LARGE_BYTES = 2.0**28  # of a read, or of a collective, that shows the rate of the memory or the link
FEW_ROWS, MANY = 16, 12
FILLING_BYTES = 2.0**24  # of weights; fewer are read by part of the chip and say nothing of either
SEVERAL_HEADS = 1024.0  # sequences x heads of a decode attention that fills a chip
LONG_TOKENS = 4096  # of a prefill whose attention is more than its start
FULL_EXPERT_ROWS = 128
SIXTEEN, EIGHT, FOUR = ("bf16", "fp16"), ("fp8", "int8"), ("fp4", "nvfp4")
PLAIN_SCALES = (None, "tensor", "row")
SHARES, WAVE_ROWS = np.linspace(0.0, 1.0, 21), 64
SETTLED = 5  # rounds; after fewer the figures still tell from where they started
EXPONENTS = np.geomspace(1.0, 8.0, 61)
# Where a figure is needed to invert a formula and was not measured: the engine's defaults.
KNOWN = {"roof_exponent": 2.0, "wave_fraction": 0.0, "kernel_s": 3e-6, "hop_s": 1.5e-6}


@dataclass(frozen=True, slots=True)
class Fitted:
    figures: tuple[Figure, ...]

    def __getitem__(self, name: str) -> Figure:
        return next(f for f in self.figures if f.name == name)

    def __contains__(self, name: str) -> bool:
        return any(f.name == name for f in self.figures)

    def as_values(self) -> dict[str, float]:
        return {f.name: f.value for f in self.figures}


def efficiency_of(results: Iterable[Mapping[str, Any]], a: Accelerator, known: Mapping[str, float] = KNOWN) -> Fitted:
    """What result entries (`assay-probe/1`) say of the chip `a`; `known`: figures taken for what they do not say."""
    found, these = dict(KNOWN) | dict(known), samples(results)
    figures: dict[str, Figure] = {}

    def note(*new: Figure | None) -> None:
        for figure in new:
            if figure is not None:
                figures[figure.name] = figure
                found[figure.name] = figure.value

    note(*kernel(these, a))
    note(*memory(these, a, found))
    for _ in range(SETTLED):  # rates, the exponent of the roof and its waves depend on each other
        note(*(matmul(these, a, found, dtypes, name) for dtypes, name in _CLASSES))
        note(roof_exponent(these, a, found))
        note(wave_fraction(these, a, found))
    note(block_scales(these), experts(these, a, found), attention(these, a, found))
    note(*quantizing(these, a, found))
    note(*collectives(these, a, found))
    return Fitted(tuple(figures.values()))


_CLASSES = ((SIXTEEN, "matmul_16_fraction"), (EIGHT, "matmul_8_fraction"), (FOUR, "matmul_4_fraction"))


def _fastest(these: Iterable[Sample], *axes: str) -> list[Sample]:
    """The best back end of each shape: the one that a framework would pick."""
    best: dict[tuple[Any, ...], Sample] = {}
    for s in these:
        shape = tuple(s.key.get(axis) for axis in axes)
        if shape not in best or s.time_s < best[shape].time_s:
            best[shape] = s
    return list(best.values())


# ------------------------------------------------------------------ one chip


def kernel(these: Sequence[Sample], a: Accelerator) -> list[Figure | None]:
    """Start and tail of one kernel of a step: what is left of multiplies of few rows when their weights are read.

    Kernels that do nothing follow each other in a graph three times faster: such a chain gives the figure only where
    no multiply was timed. The same line through the multiplies gives the rate at which they read weights.
    """
    narrow = _multiplies(these, (*SIXTEEN, "fp8"))
    few = [s for s in narrow if float(s.key["m"]) <= FEW_ROWS and s.bytes >= FILLING_BYTES]
    if len(few) >= MANY:
        columns = np.array([[s.bytes, 1.0] for s in few])
        (per_byte, start_s), draws = lines(columns, np.array([s.time_s for s in few]))
        source = f"{len(few)} matrix multiplies of {FEW_ROWS} rows and fewer"
        with np.errstate(divide="ignore"):
            share, each = 1 / per_byte / a.memory_bytes_per_s, 1 / draws[:, 0] / a.memory_bytes_per_s
        return [
            from_line("kernel_s", start_s, draws[:, 1], len(few), source),
            from_line("memory_fraction", share, each, len(few), source),
        ]
    chains = [s for s in these if s.kind == "launch" and s.key.get("mode") == "graph"]
    if not chains:
        return []
    middle = float(np.median([s.time_s for s in chains]))
    low, high = min(s.low_s for s in chains), max(s.high_s for s in chains)
    source = "one more kernel in a graph"
    return [Figure(name="kernel_s", value=middle, low=low, high=high, count=len(chains), source=source)]


def memory(these: Sequence[Sample], a: Accelerator, found: Mapping[str, float]) -> list[Figure | None]:
    """The memory's rate and what decode attention costs beside it, per sequence and head.

    The rate is the one at which multiplies of few rows read weights, if they were timed (most of what a decode step
    reads); else that of large reads and of decode attention together.
    """
    least = max(LARGE_BYTES, 4 * a.sram_bytes)
    reads = [s for s in these if s.kind == "memory_read" and s.bytes >= least]
    shares = [s.bytes / (s.time_s - found["kernel_s"]) / a.memory_bytes_per_s for s in reads]
    read = median_of("memory_fraction", shares, f"{len(reads)} reads of {least / 2**20:.0f} MiB and more")
    weights = next((f for f in kernel(these, a) if f is not None and f.name == "memory_fraction"), None)
    axes = ("dtype", "batch", "context_tokens", "heads", "kv_heads", "head_dim")
    decode = _fastest((s for s in these if s.kind == "attention_decode" and s.key.get("dtype") in SIXTEEN), *axes)
    if len(decode) < 4:
        return [weights or read]
    rest_s = np.array([s.time_s - found["kernel_s"] for s in decode])
    moved = np.array([s.bytes for s in decode])
    each = np.array([float(s.key["batch"]) * float(s.key["heads"]) for s in decode])
    source = f"decode attention, {len(decode)} shapes, the best back end of each"
    if weights is not None:
        reached = a.memory_bytes_per_s * weights.value
        several = each >= SEVERAL_HEADS  # fewer do not fill the chip: their time is not a sum of parts
        over = np.maximum(rest_s - moved / reached, 0.0) * reached / each
        return [weights, median_of("sequence_head_bytes", over[several], source)]
    (per_byte, per_head), draws = lines(np.stack([moved, each], axis=1), rest_s)
    with np.errstate(divide="ignore", invalid="ignore"):
        share, each_share = 1 / per_byte / a.memory_bytes_per_s, 1 / draws[:, 0] / a.memory_bytes_per_s
        fixed, each_fixed = per_head / per_byte, draws[:, 1] / draws[:, 0]
    seen = from_line("memory_fraction", share, each_share, len(decode), source)
    return [together(read, seen), from_line("sequence_head_bytes", fixed, each_fixed, len(decode), source)]


def _multiplies(these: Iterable[Sample], dtypes: Sequence[str]) -> list[Sample]:
    """Plain matrix multiplies of these dtypes, the best kernel of each shape."""
    plain = (
        s
        for s in these
        if s.kind == "gemm"
        and s.key.get("dtype") in dtypes
        and s.key.get("scaling") in PLAIN_SCALES
        and not {"off", "from_idle_s"} & set(s.key)
    )
    return _fastest(plain, "dtype", "m", "n", "k", "sustained_s")


def peak_of(a: Accelerator, dtype: str) -> float:
    """FLOP/s of the data sheet; NaN where the chip has none in this dtype."""
    name = {"nvfp4": "fp4"}.get(dtype, dtype)
    return float(a.flops_per_s.get(name, float("nan")))


def _compute_s(time_s: float, bytes_s: float, found: Mapping[str, float]) -> float:
    """The arithmetic's own part of a kernel's time under the smooth roof; NaN where the memory explains all of it."""
    p, rest = found["roof_exponent"], time_s - found["kernel_s"]
    left = rest**p - bytes_s**p if rest > 0 else 0.0
    return float(left ** (1 / p)) if left > 0 else float("nan")


def matmul(
    these: Sequence[Sample], a: Accelerator, found: Mapping[str, float], dtypes: Sequence[str], name: str
) -> Figure | None:
    """Of the dense peak. Runs of a second decide where there are any: short ones end before the power limit bites."""
    every = _multiplies(these, dtypes)
    lasting = [s for s in every if s.key.get("sustained_s")]
    large = [s for s in every if float(s.key["m"]) >= LARGE_ROWS and _bytes_s(s, a, found) < _flops_s(s, a) / 3]
    shares = [_share(s, a, found) for s in lasting or large]
    what = "sustained for a second" if lasting else f"of {LARGE_ROWS} rows and more, in short bursts"
    figure = median_of(name, shares, f"{len(lasting or large)} matrix multiplies {what}")
    if figure is None or not lasting or not large:
        return figure
    burst = median_of(name, [_share(s, a, found) for s in large], "")
    low, high = (burst.low, burst.high) if burst else (figure.low, figure.high)
    return Figure(
        name=name,
        value=figure.value,
        low=min(figure.low, low),
        high=max(figure.high, high),
        count=figure.count,
        source=figure.source,
    )


def _share(s: Sample, a: Accelerator, found: Mapping[str, float]) -> float:
    felt = s.flops * float(_felt(s, a, found["wave_fraction"]))
    return felt / _compute_s(s.time_s, _bytes_s(s, a, found), found) / peak_of(a, str(s.key["dtype"]))


def _felt(s: Sample, a: Accelerator, share: Any) -> Any:
    """Factor of a product's part-filled waves, for one share of them that is felt or for several."""
    rows, columns = (np.array(float(s.key[axis])) for axis in "mn")
    return 1.0 + share * (float(waves(rows, columns, np.array(float(a.cores)))) - 1.0)


def _flops_s(s: Sample, a: Accelerator) -> float:
    return s.flops / peak_of(a, str(s.key["dtype"]))


def _bytes_s(s: Sample, a: Accelerator, found: Mapping[str, float]) -> float:
    return s.bytes / (a.memory_bytes_per_s * found.get("memory_fraction", 0.9))


def roof_exponent(these: Sequence[Sample], a: Accelerator, found: Mapping[str, float]) -> Figure | None:
    """How sharp the roof is, from 16-bit multiplies near its ridge: there neither bound explains the time alone."""
    rate = found.get("matmul_16_fraction")
    if rate is None or "memory_fraction" not in found:
        return None
    near = []
    for s in (s for s in _multiplies(these, SIXTEEN) if s.bytes >= FILLING_BYTES):
        flops_s = _flops_s(s, a) / rate * _felt(s, a, found["wave_fraction"])
        bytes_s, rest = _bytes_s(s, a, found), s.time_s - found["kernel_s"]
        if 0.25 < flops_s / bytes_s < 4 and rest > 0 and not s.key.get("sustained_s"):
            near.append((flops_s, bytes_s, rest))
    if len(near) < 8:
        return None
    flops, moved, rest_s = np.array(near).T
    p = EXPONENTS[:, None]
    top = np.maximum(flops, moved)
    errors = np.log(top * ((flops / top) ** p + (moved / top) ** p) ** (1 / p) / rest_s) ** 2
    draws = np.random.default_rng(1).integers(0, len(near), (ROUNDS, len(near)))
    each = EXPONENTS[np.argmin(errors[:, draws].sum(axis=2), axis=0)]
    low, high = np.quantile(each, [LOW, HIGH])
    best = float(EXPONENTS[np.argmin(errors.sum(axis=1))])
    if best in (EXPONENTS[0], EXPONENTS[-1]):  # at the end of its range it explains something else
        return None
    return Figure(
        name="roof_exponent",
        value=best,
        low=float(low),
        high=float(high),
        count=len(near),
        source=f"{len(near)} 16-bit matrix multiplies near the ridge",
    )


def wave_fraction(these: Sequence[Sample], a: Accelerator, found: Mapping[str, float]) -> Figure | None:
    """How much of a part-filled wave of tiles is felt, from 16-bit multiplies that fill the chip: the share at which
    their errors scatter least, whatever their common rate."""
    rate = found.get("matmul_16_fraction")
    own = [s for s in _multiplies(these, SIXTEEN) if s.bytes >= FILLING_BYTES and not s.key.get("sustained_s")]
    own = [s for s in own if float(s.key["m"]) >= WAVE_ROWS]
    if rate is None or "memory_fraction" not in found or len(own) < MANY:
        return None
    p, errors = found["roof_exponent"], []
    for s in own:
        flops_s, bytes_s = _flops_s(s, a) / rate * _felt(s, a, SHARES), _bytes_s(s, a, found)
        errors.append(np.log((flops_s**p + bytes_s**p) ** (1 / p) / (s.time_s - found["kernel_s"])))
    scatter = np.array(errors)
    draws = np.random.default_rng(1).integers(0, len(own), (ROUNDS, len(own)))
    each = SHARES[np.argmin(scatter[draws].std(axis=1), axis=1)]
    source = f"{len(own)} 16-bit matrix multiplies of {WAVE_ROWS} rows and more"
    return spread_of("wave_fraction", SHARES[np.argmin(scatter.std(axis=0))], each, len(own), source)


def quantizing(these: Sequence[Sample], a: Accelerator, found: Mapping[str, float]) -> list[Figure | None]:
    """What dynamic FP8 scales add to the four matrices of a layer: the compiled norm (twice) and activation into FP8
    less the same into 16 bits, and a kernel that only quantizes; as bytes an activation and kernel starts a matrix."""
    plain, norm = _fused(these, "norm", None), _fused(these, "norm", "fp8")
    gated, activation = _fused(these, "activation", "fp8"), _fused(these, "activation", None)
    alone = _fused(these, "norm", "fp8", "nothing")
    tokens = sorted(set(plain) & set(norm) & set(gated) & set(activation) & set(alone))
    if len(tokens) < 2 or "memory_fraction" not in found:
        return []
    extra_s = [2 * (norm[t][0] - plain[t][0]) + gated[t][0] - activation[t][0] + alone[t][0] for t in tokens]
    values = [2 * norm[t][1] + gated[t][1] + alone[t][1] for t in tokens]
    line, draws = lines(np.array([[v, 1.0] for v in values]), np.array(extra_s))
    scale = np.array([a.memory_bytes_per_s * found["memory_fraction"], 1 / (4 * found["kernel_s"])])
    source = f"compiled kernels into FP8 at {len(tokens)} sizes"
    both = zip(("quantize_bytes", "quantize_kernels"), line * scale, (draws * scale).T, strict=True)
    return [spread_of(name, value, each, len(tokens), source) for name, value, each in both]


def _fused(
    these: Sequence[Sample], kind: str, into: str | None, after: str | None = None
) -> dict[float, tuple[float, float]]:
    """Tokens -> (seconds, values) of one compiled part of a layer."""
    own = [s for s in these if s.kind == kind and s.key.get("fused")]
    return {
        float(s.key["tokens"]): (s.time_s, float(s.key["tokens"]) * float(s.key.get("inner", s.key.get("hidden", 0))))
        for s in own
        if (s.key.get("into"), s.key.get("after")) == (into, after)
    }


def block_scales(these: Sequence[Sample]) -> Figure | None:
    """FP8 with a scale for each 128 x 128 block against one for the matrix or the row, shape by shape."""
    wide = [s for s in these if s.kind == "gemm" and s.key.get("dtype") == "fp8" and float(s.key["m"]) >= 1024]
    axes = ("m", "n", "k")
    plain = {tuple(s.key[x] for x in axes): s.time_s for s in _fastest(_multiplies(wide, ("fp8",)), *axes)}
    pairs = [(tuple(s.key[x] for x in axes), s.time_s) for s in wide if s.key.get("scaling") == "block128"]
    ratios = [plain[shape] / time_s for shape, time_s in pairs if shape in plain]
    return median_of("block_8_fraction", ratios, f"{len(ratios)} shapes with both kinds of scales")


def experts(these: Sequence[Sample], a: Accelerator, found: Mapping[str, float]) -> Figure | None:
    """Grouped against dense, where every expert has rows enough to be bound by its arithmetic."""
    if "matmul_16_fraction" not in found:
        return None
    shares = []
    for s in _fastest(
        (s for s in these if s.kind == "grouped_gemm" and s.key.get("dtype") in SIXTEEN),
        "dtype", "experts", "tokens_per_expert", "n", "k",
    ):  # fmt: skip
        rows = float(s.key["tokens_per_expert"])
        padded = s.flops * (rows + min(max(rows, EXPERT_TILE_ROWS_MIN / 2), EXPERT_PADDING_ROWS)) / rows
        if rows >= FULL_EXPERT_ROWS and _bytes_s(s, a, found) < padded / peak_of(a, str(s.key["dtype"])):
            reached = padded / _compute_s(s.time_s, _bytes_s(s, a, found), found)
            shares.append(reached / peak_of(a, str(s.key["dtype"])) / found["matmul_16_fraction"])
    return median_of(
        "expert_fraction", shares, f"{len(shares)} grouped multiplies of {FULL_EXPERT_ROWS} rows and more each"
    )


def attention(these: Sequence[Sample], a: Accelerator, found: Mapping[str, float]) -> Figure | None:
    """Long causal prefill with the best back end, of the dense 16-bit peak."""
    axes = ("dtype", "tokens", "batch", "heads", "kv_heads", "head_dim")
    best = _fastest((s for s in these if s.kind == "attention_prefill" and s.key.get("dtype") in SIXTEEN), *axes)
    long = [s for s in best if float(s.key["tokens"]) >= LONG_TOKENS]
    shares = [s.flops / (s.time_s - found["kernel_s"]) / peak_of(a, "bf16") for s in long]
    backends = ", ".join(sorted({str(s.key.get("backend")) for s in long}))
    return median_of(
        "attention_fraction", shares, f"{len(long)} causal prefills of {LONG_TOKENS} tokens and more ({backends})"
    )


# ------------------------------------------------------------------ several chips of a host


def collectives(these: Sequence[Sample], a: Accelerator, found: Mapping[str, float]) -> list[Figure | None]:
    """All-reduces by size: the link's rate from the largest, then the knee, the fixed cost and (from several counts
    of chips) the cost of a hop. `bytes` is what crosses the link: 2 (n-1)/n of the message."""
    sums = [s for s in these if s.kind == "all_reduce" and s.bytes > 0]
    peak = a.links[0].bytes_per_s if a.links else a.pcie_bytes_per_s
    large = [s for s in sums if s.bytes >= LARGE_BYTES]
    link = median_of(
        "link_fraction", [s.bytes / s.time_s / peak for s in large], f"{len(large)} all-reduces of 256 MiB and more"
    )
    if link is None or len(sums) < 6:
        return [link]
    volume = np.array([s.bytes for s in sums])
    hops = np.log2([float(s.key["devices"]) for s in sums])
    several = len(set(hops)) > 1
    rest_s = np.array([s.time_s for s in sums])
    columns = [volume, np.sqrt(np.minimum(volume, KNEE_END_BYTES)), np.ones(len(sums))]
    table = np.stack([*columns, hops] if several else columns, axis=1)
    line, draws = lines(table, rest_s)
    latency_s = a.links[0].latency_s if a.links else 0.0
    unseen_s = latency_s + (0.0 if several else found["hop_s"] * float(hops[0]))
    source = f"{len(sums)} all-reduces over {', '.join(sorted({str(s.key['devices']) for s in sums}))} chips"

    def figure(name: str, values: Array) -> Figure | None:
        return from_line(name, float(values[0]), values[1:], len(sums), source)

    every = np.concatenate([line[None, :], draws])
    with np.errstate(divide="ignore", invalid="ignore"):
        rate, knee = 1 / every[:, 0] / peak, (every[:, 1] / every[:, 0]) ** 2
    return [
        figure("link_fraction", rate) or link,
        figure("collective_knee_bytes", knee),
        figure("collective_s", every[:, 2] - unseen_s),
        figure("hop_s", every[:, 3]) if several else None,
    ]
