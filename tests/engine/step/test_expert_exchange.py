"""The all-to-all of expert parallelism over a network, against the figures that DeepEP publishes.

deepseek-ai/DeepEP at 0297fc80, read 2026-11-23: 7,168 hidden, top-8 experts, one byte a value to the experts, hosts of
eight GPUs with one 400 Gb/s port (50 GB/s) each.
"""

import numpy as np
import pytest

from advisor.engine.step.operators import _far_copies

HIDDEN, TOP_K, PORT_BYTES_PER_S = 7168, 8.0, 50e9


def far_s(tokens: float, ranks: int, link_fraction: float) -> float:
    copies = _far_copies(np.array(tokens), np.array(TOP_K), np.array(ranks / 8))
    return float(tokens * HIDDEN * copies / (PORT_BYTES_PER_S * link_fraction))


@pytest.mark.parametrize(
    ("ranks", "dispatch_us"), [(16, 118), (32, 155), (64, 173), (128, 192), (256, 194)]
)  # docs/legacy.md, low-latency kernels, 128 tokens
def test_decode_batches_reach_the_published_latency(ranks: int, dispatch_us: float) -> None:
    assert far_s(128, ranks, 0.85) * 1e6 == pytest.approx(dispatch_us, rel=0.28)
    assert far_s(128, ranks, 1.0) * 1e6 < dispatch_us  # the port is the limit


@pytest.mark.parametrize(("ranks", "logical_gb_per_s"), [(16, 90), (32, 61)])  # README.md, 8K tokens
def test_prefill_batches_reach_the_published_bandwidth(ranks: int, logical_gb_per_s: float) -> None:
    """The published bandwidth counts one copy for each host of a token's experts, the sender's own included."""
    hosts = ranks / 8
    copies = hosts * (1 - (1 - 1 / hosts) ** TOP_K)
    published_s = 8192 * HIDDEN * copies / (logical_gb_per_s * 1e9)
    assert far_s(8192, ranks, 0.9) == pytest.approx(published_s, rel=0.03)
