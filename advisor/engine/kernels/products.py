"""Time of matrix multiplies: a smooth roofline, wave quantization, alignment, and the padding of grouped ones."""

import numpy as np
from numpy.typing import NDArray

from advisor.engine.kernels.rates import Amount, Rates

Array = NDArray[np.float64]
EXPERT_PADDING_ROWS = 150.0  # grouped bf16 GEMM on an H200: r rows per expert achieve r / (r + 150) of a dense GEMM
EXPERT_TILE_ROWS_MIN = 16  # smallest tensor-core tile
FEW_CORES = 8  # our limit: chips with at most this many cores (TPUs, NPUs) have no wave quantization or tile padding
TILE_ROWS, TILE_COLUMNS = 128, 128  # most common GEMM tile; determines wave quantization
ALIGNED_ELEMENTS = 8  # 16 bytes of 16-bit elements


def roof(flops_s: Amount, bytes_s: Amount, exponent: Amount) -> Array:
    """Smooth roofline, seconds: a p-norm of compute and memory time (exponent 1: no overlap, inf: the maximum)."""
    larger = np.maximum(np.maximum(flops_s, bytes_s), 1e-30)  # factored out to prevent underflow of the powers
    smooth: Array = larger * ((flops_s / larger) ** exponent + (bytes_s / larger) ** exponent) ** (1.0 / exponent)
    return smooth


def waves(rows: Amount, columns: Amount, cores: Amount) -> Array:
    """Wave quantization: factor (>= 1) of the last, partly filled wave of tiles; 1 below one wave (split-K)."""
    tiles = np.ceil(rows / TILE_ROWS) * np.ceil(columns / TILE_COLUMNS)
    return np.asarray(np.where((tiles > cores) & (cores > FEW_CORES), np.ceil(tiles / cores) * cores / tiles, 1.0))


def mean_waves(rows: Amount, columns: Amount, cores: Amount) -> Array:
    """As `waves`, of a kernel that never splits K, the mean over similar row counts: half a wave more, at least one.

    Tiles of few rows are made for them: no loss.
    """
    filled = np.ceil(rows / TILE_ROWS) * np.ceil(columns / TILE_COLUMNS) / np.maximum(cores, 1)
    some = (rows > TILE_ROWS) & (cores > FEW_CORES)
    return np.asarray(np.where(some, np.maximum(filled + 0.5, 1.0) / filled, 1.0))


def aligned_fractions(x: Rates, columns: Amount, inner: Amount) -> tuple[Amount, Amount]:
    """(compute, read) rate of a GEMM of these sizes per chip, relative to one whose rows start on 16 bytes.

    Tensor cores load 16 bytes at a time. A row of `inner` or `columns` elements that is not a multiple of 8 needs
    other kernels: at 2,048 rows an H200 takes 6 to 8 times as long for odd sizes and 3 times for multiples of 2 or 4
    (fixtures/measurements/gemm-alignment.csv). Measured in 16 bits; FP8 kernels refuse such sizes.
    """
    # a size that the chips do not divide is padded by the frameworks that accept it
    misaligned = (columns % ALIGNED_ELEMENTS != 0) & (columns % 1 == 0)
    misaligned = misaligned | (inner % ALIGNED_ELEMENTS != 0) & (inner % 1 == 0)
    if not np.any(misaligned):  # most models
        return 1.0, 1.0
    odd = (columns % 2 == 1) | (inner % 2 == 1)
    matmul = np.where(odd, x.odd_matmul_fraction, np.where(misaligned, x.misaligned_matmul_fraction, 1.0))
    return matmul, np.where(odd, x.odd_read_fraction, np.where(misaligned, x.misaligned_read_fraction, 1.0))


def gemm_times(
    x: Rates,
    flops_per_s: Amount,
    rows: Amount,
    columns: Amount,
    inner: Amount,
    moved_bytes: Amount,
    fractions: tuple[Amount, Amount] = (1.0, 1.0),
) -> tuple[Array, Array]:
    """(compute, memory) seconds of one GEMM (rows, inner) x (inner, columns); `roof` and a kernel make its time.

    fractions: those of `aligned_fractions`; 1: the sizes are padded to round ones.
    """
    fraction = x.wave_fraction
    waved = bool(fraction) if isinstance(fraction, float) else np.any(fraction)  # counting the tiles takes long
    wave_factor = 1.0 + x.wave_fraction * (waves(rows, columns, x.cores) - 1.0) if waved else 1.0
    flops_s = 2.0 * rows * columns * inner * wave_factor / (flops_per_s * fractions[0])
    return flops_s, moved_bytes / (x.memory_bytes_per_s * fractions[1])


def padded_rows(x: Rates, rows: Amount, experts: Amount) -> Array:
    """Rows that a grouped GEMM computes: each expert adds rows for its partly filled tiles, sized by the load."""
    padding = np.clip(rows / np.maximum(experts, 1e-9), EXPERT_TILE_ROWS_MIN / 2, EXPERT_PADDING_ROWS)
    return np.asarray(rows + np.where(x.cores > FEW_CORES, experts * padding, 0.0))
