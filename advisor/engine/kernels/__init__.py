"""Kernels that serving and training share: achieved rates, matrix multiplies and collectives."""

from advisor.engine.kernels.collectives import KNEE_END_BYTES, collective_s
from advisor.engine.kernels.products import (
    ALIGNED_ELEMENTS,
    EXPERT_PADDING_ROWS,
    EXPERT_TILE_ROWS_MIN,
    Array,
    aligned_fractions,
    gemm_times,
    mean_waves,
    padded_rows,
    roof,
    waves,
)
from advisor.engine.kernels.rates import HALF, Amount, Rates, chip_rates, rate_of
