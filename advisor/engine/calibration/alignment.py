"""Rates of matrix multiplies whose rows do not start on 16 bytes, relative to those of the next round size.

They invert operators.aligned_fractions: predicted slowdowns reproduce the measured ones.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from advisor.engine.calibration.kernel_samples import HIGH, LOW, ROUNDS, Array, Figure, Sample
from advisor.engine.kernels import ALIGNED_ELEMENTS, waves
from advisor.engine.terms import Accelerator

CLASSES = ("odd", "misaligned")
PARTS = ("matmul", "read")
FRACTIONS: Array = np.geomspace(0.02, 1.0, 80)
NEAR = 0.02  # maximum relative difference of a size and the round one that it is compared with
MANY_ROWS, FEW_ROWS = 512, 64  # multiplies of at least and at most so many rows determine the two rates
MIN_SHAPES = 3
RATES = ("matmul_16_fraction", "memory_fraction")
NEEDS = f"needs {MIN_SHAPES} steady 16-bit multiplies, "
NEEDED = {
    "matmul": f"{NEEDS}of at least {MANY_ROWS} rows, of sizes that are {{}}, and the round size next to each",
    "read": f"{NEEDS}of at most {FEW_ROWS} rows, of sizes that are {{}}, and the round size next to each",
}
SIZES = {"odd": "odd", "misaligned": "multiples of 2 or 4 but not of 8"}


def alignment(kernels: Sequence[Sample], a: Accelerator, values: Mapping[str, float]) -> list[Figure]:
    """odd_* and misaligned_* fractions of chip `a`, where enough 16-bit multiplies determine them."""
    gemms = [s for s in kernels if s.kind == "gemm" and s.key.get("dtype") == "bf16" and "sustained_s" not in s.key]
    if any(name not in values for name in RATES) or "bf16" not in a.flops_per_s:
        return []
    figures = []
    for name in CLASSES:
        pairs = [(s, base) for s in gemms if _class(s) == name and (base := _round_size(s, gemms)) is not None]
        figures += _fit(name, pairs, a, values)
    return figures


def _sizes(s: Sample) -> tuple[float, float, float]:
    return float(s.key["m"]), float(s.key["n"]), float(s.key["k"])


def _class(s: Sample) -> str:
    """odd | misaligned; empty for multiples of 8."""
    _, n, k = _sizes(s)
    if n % 2 or k % 2:
        return "odd"
    return "misaligned" if n % ALIGNED_ELEMENTS or k % ALIGNED_ELEMENTS else ""


def _round_size(s: Sample, gemms: Sequence[Sample]) -> Sample | None:
    """The aligned multiply of the same rows with almost the same sizes; None without one."""
    m, n, k = _sizes(s)

    def apart(other: Sample) -> float:
        _, columns, inner = _sizes(other)
        return max(abs(columns / n - 1), abs(inner / k - 1))

    near = [b for b in gemms if not _class(b) and _sizes(b)[0] == m and apart(b) <= NEAR]
    return min(near, key=apart, default=None)


def _fit(
    name: str, pairs: Sequence[tuple[Sample, Sample]], a: Accelerator, values: Mapping[str, float]
) -> list[Figure]:
    enough = {
        "matmul": sum(_sizes(s)[0] >= MANY_ROWS for s, _ in pairs) >= MIN_SHAPES,
        "read": sum(_sizes(s)[0] <= FEW_ROWS for s, _ in pairs) >= MIN_SHAPES,
    }
    if not all(enough.values()):  # each rate needs the other: most multiplies depend on both
        return []
    slow, whole = FRACTIONS[:, None], np.ones((1, 1))
    errors = np.array(
        [
            np.log(_time_s(s, a, values, slow, FRACTIONS) / _time_s(base, a, values, whole, whole[0]))
            - np.log(s.time_s / base.time_s)
            for s, base in pairs
        ]
    )
    squares = (errors**2).reshape(len(pairs), -1)
    weights = np.random.default_rng(1).multinomial(len(pairs), np.full(len(pairs), 1 / len(pairs)), ROUNDS)
    best = int(np.argmin(squares.sum(axis=0)))
    draws = np.argmin(weights @ squares, axis=1)
    shape = errors.shape[1:]
    figures = []
    for part, at, each in zip(PARTS, np.unravel_index(best, shape), np.unravel_index(draws, shape), strict=True):
        low, high = np.quantile(FRACTIONS[each], [LOW, HIGH])
        value = float(FRACTIONS[at])
        if at > 0:  # at the lowest fraction, it fits some other effect
            figures.append(
                Figure(
                    name=f"{name}_{part}_fraction",
                    value=value,
                    low=min(float(low), value),
                    high=max(float(high), value),
                    count=len(pairs),
                    source=f"{len(pairs)} 16-bit multiplies of {SIZES[name]} sizes against round ones",
                )
            )
    return figures


def _time_s(s: Sample, a: Accelerator, values: Mapping[str, float], matmul: Array, read: Array) -> Array:
    """Predicted time of a multiply with these relative rates, as in operators.gemm."""
    m, n, _ = _sizes(s)
    filled = 1.0 + values["wave_fraction"] * (float(waves(np.array(m), np.array(n), np.array(float(a.cores)))) - 1.0)
    flops_s = s.flops * filled / (a.flops_per_s["bf16"] * values["matmul_16_fraction"] * matmul)
    bytes_s = s.bytes / (a.memory_bytes_per_s * values["memory_fraction"] * read)
    p = values["roof_exponent"]
    return np.asarray((flops_s**p + bytes_s**p) ** (1.0 / p) + values["kernel_s"])
