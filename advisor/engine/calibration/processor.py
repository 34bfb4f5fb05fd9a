"""Efficiency of a processor, from the small shapes that the probe times on one.

A virtual machine has a part of a socket. As for rented instances (spec.SocketShare), its rates are compared with the
same part of the socket's rates.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from advisor.engine.calibration.kernel_samples import HIGH, LOW, Array, Figure, Sample, samples
from advisor.engine.terms import Accelerator

READ_BYTES = 2.0**26  # minimum size of a read that is not mostly overhead; its buffers exceed three caches together
ROWS, PREFILL_TOKENS = 64, 512  # minimum of a matrix multiply and of a prefill that are not mostly overhead
COMPUTE_BOUND = 3.0  # minimum time of a kernel over the time to read its bytes
MAX_SPREAD = 0.3  # (p90 - p10) / median; other tenants share the cores
MAX_OF_PEAK = 1.6  # of a datasheet rate at base clock: what boost clocks reach
MIN_OF_PEAK = 0.01  # a multiply below it has no kernel of its own for the dtype
MAX_OF_BANDWIDTH = 1.05
CLASSES = (("matmul_16_fraction", ("bf16", "fp16")), ("matmul_8_fraction", ("int8", "fp8")))


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """The measured part of a socket."""

    a: Accelerator  # the whole socket
    cores: int
    read_bytes_per_s: float = 0.0  # measured

    @property
    def share(self) -> float:
        return measured_share(self.a, self.cores)

    @property
    def text(self) -> str:
        return "" if self.share == 1.0 else f" on {self.cores} of {self.a.cores} cores"


def measured_share(a: Accelerator, cores: int) -> float:
    """Logical processors over the socket's cores, at most 1. On a part of a socket, two threads per core double it."""
    return min(cores / a.cores, 1.0) if a.cores and cores else 1.0


def measured_cores(document: Mapping[str, Any]) -> int:
    """Logical processors of the machine that measured a result document; 0: unknown."""
    cores = (document.get("host") or {}).get("cores")
    return int(cores) if isinstance(cores, int | float) else 0


def processor_figures(
    results: Iterable[Mapping[str, Any]], a: Accelerator, cores: int, matrix_factor: float = 1.0
) -> tuple[list[Figure], dict[str, str]]:
    """(figures, reasons of those that are not determined) of processor `a`, of which `cores` were measured.

    matmul_*_fraction are of multiplies alone; predictions also apply the kind's matrix_factor, which is fitted to
    served models. Those say little of attention, so attention_fraction is divided by `matrix_factor`: predictions
    then reproduce the measurement.
    """
    kernels = samples(results, MAX_SPREAD)
    part = Part(a=a, cores=cores)
    read, measured_bytes_per_s = _memory(kernels, part)
    part = Part(a=a, cores=cores, read_bytes_per_s=measured_bytes_per_s)
    found: dict[str, Figure | str] = {"memory_fraction": read}
    found |= {name: _matmul(kernels, part, name, dtypes) for name, dtypes in CLASSES}
    found["attention_fraction"] = _attention(kernels, part, matrix_factor)
    figures = [each for each in found.values() if isinstance(each, Figure)]
    return figures, {name: each for name, each in found.items() if isinstance(each, str)}


def _memory(kernels: Sequence[Sample], part: Part) -> tuple[Figure | str, float]:
    """(memory_fraction or why not, the rate at which this part reads, B/s)."""
    reads = [s for s in kernels if s.kind == "memory_read" and s.bytes >= READ_BYTES]
    bandwidth = part.a.memory_bytes_per_s * part.share
    if not reads:
        return f"needs a steady read of at least {READ_BYTES / 2**20:.0f} MiB", bandwidth
    rates = np.array([[s.bytes / _ends(s)[i] for s in reads] for i in range(3)])
    reached = float(np.median(rates[1]))
    if reached > MAX_OF_BANDWIDTH * bandwidth:
        text = f"reads reach {reached / 1e9:.3g} GB/s{part.text}, more than the datasheet's {bandwidth / 1e9:.3g} GB/s"
        why = "a few cores use bandwidth that all cores share" if part.share < 1 else "they come from caches"
        return f"{text}: {why}", reached
    source = f"{len(reads)} reads of {READ_BYTES / 2**20:.0f} MiB and more{part.text}"
    return _figure("memory_fraction", rates / bandwidth, source), reached


def _matmul(kernels: Sequence[Sample], part: Part, name: str, dtypes: Sequence[str]) -> Figure | str:
    """The fraction of the peak that the multiplies with the most rows reach."""
    every = [s for s in kernels if s.kind == "gemm" and s.key.get("dtype") in dtypes]
    timed = [s for s in every if float(s.key["m"]) >= ROWS and _computes(s, part)]
    if not timed:
        needs = f"steady {' or '.join(dtypes)} multiplies of at least {ROWS} rows that are compute-bound"
        return f"needs {needs}; of those that are steady, {len(every)} have other sizes" if every else f"needs {needs}"
    own = [s for s in timed if _peak(part, s)]
    if not own:
        return f"the datasheet of {part.a.name} gives no rate for {' or '.join(dtypes)}"
    most = max(float(s.key["m"]) for s in own)
    own = [s for s in own if float(s.key["m"]) == most]
    found = sorted({str(s.key["dtype"]) for s in own})
    source = f"{' and '.join(found)} multiplies of {most:.0f} rows ({len(own)}){part.text}"
    figure = _plausible(_figure(name, _fractions(own, part), source))
    if isinstance(figure, Figure) and figure.value < MIN_OF_PEAK:
        return f"{source}: {figure.value:.2%} of the datasheet's rate; the library has no fast kernel for this dtype"
    return figure


def _attention(kernels: Sequence[Sample], part: Part, matrix_factor: float) -> Figure | str:
    """Prefill attention over the longest prompt, with the fastest back end."""
    prefills = [s for s in kernels if s.kind == "attention_prefill" and s.key.get("dtype") in CLASSES[0][1]]
    long = [s for s in prefills if float(s.key["tokens"]) >= PREFILL_TOKENS]
    if not long:
        return f"needs a steady causal prefill of at least {PREFILL_TOKENS} tokens"
    longest = max(float(s.key["tokens"]) for s in long)
    fastest = max((s for s in long if float(s.key["tokens"]) == longest), key=lambda s: s.flops / s.time_s)
    if not _peak(part, fastest):
        return f"the datasheet of {part.a.name} gives no rate for {fastest.key['dtype']}"
    fractions = _fractions([fastest], part)
    source = f"a causal prefill of {longest:.0f} tokens ({fastest.key.get('backend')}){part.text}"
    plain = _plausible(_figure("attention_fraction", fractions, source))
    if isinstance(plain, str):
        return plain
    return _figure("attention_fraction", fractions / matrix_factor, f"{source}, over matrix_factor {matrix_factor:.4g}")


def _computes(s: Sample, part: Part) -> bool:
    return s.time_s >= COMPUTE_BOUND * s.bytes / part.read_bytes_per_s


def _peak(part: Part, s: Sample) -> float:
    """Datasheet rate of the part at this dtype, FLOP/s; 0: unsupported."""
    return float(part.a.flops_per_s.get(str(s.key["dtype"]), 0.0)) * part.share


def _ends(s: Sample) -> tuple[float, float, float]:
    return s.high_s, s.time_s, s.low_s


def _fractions(kernels: Sequence[Sample], part: Part) -> Array:
    """(slowest, median, fastest) of each kernel's runs as a fraction of the peak, shape (3, kernels)."""
    return np.array([[s.flops / _ends(s)[i] / _peak(part, s) for s in kernels] for i in range(3)])


def _figure(name: str, fractions: Array, source: str) -> Figure:
    """The median over kernels; the interval also covers the spread of each kernel's runs."""
    low, high = float(np.quantile(fractions[0], LOW)), float(np.quantile(fractions[2], HIGH))
    value, count = float(np.median(fractions[1])), fractions.shape[1]
    return Figure(name=name, value=value, low=min(low, value), high=max(high, value), count=count, source=source)


def _plausible(figure: Figure) -> Figure | str:
    """The figure, or why it cannot be that of this processor."""
    if figure.value <= MAX_OF_PEAK:
        return figure
    return f"{figure.source}: {figure.value:.3g} times the datasheet's rate; another processor, or more cores"
