"""Time of collectives: fixed cost and hops, transfer over both tiers of links, and the knee of small messages."""

import numpy as np

from advisor.engine.kernels.products import Array
from advisor.engine.kernels.rates import Amount, Rates

KNEE_END_BYTES = 4.0e6


def collective_s(
    x: Rates,
    near_bytes: Amount,
    far_bytes: Amount,
    chips: Amount,
    crosses: Amount,
    start_s: Amount,
) -> Array:
    """Seconds of one collective in which each chip sends these bytes inside its scale-up domain and out of it.

    A square-root term holds for messages too small for the full bandwidth: without it, NCCL all-reduces of 0.5 to 4 MB
    on two H200s were underestimated by 30 %. It stops growing at KNEE_END_BYTES, where the ring is saturated.
    """
    knee = np.sqrt(np.minimum(near_bytes, KNEE_END_BYTES) * x.collective_knee_bytes)
    near_s = (near_bytes + knee) / x.near_bytes_per_s
    far_s = np.where(crosses, far_bytes / x.far_bytes_per_s + x.far_collective_s, 0.0)
    fixed_s = start_s + x.hop_s * np.log2(np.maximum(chips, 1.0))
    return np.asarray(near_s + far_s + fixed_s)
