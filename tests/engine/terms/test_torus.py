"""Collectives on a torus have the bandwidth of the slice's shape, checked with Google's figures of a v5e pod."""

import pytest

from advisor.engine.terms import Link

SHAPES = ((1, 1), (2, 2), (2, 4), (4, 4), (4, 8), (8, 8), (16, 16))
V5E = Link(
    name="ICI", bytes_per_s=200e9, latency_s=0.0, chips=256, topology="torus", shapes=SHAPES, wraps_from=16
)  # four links of 50 GB/s
V5P = Link(
    name="ICI", bytes_per_s=600e9, latency_s=0.0, chips=8960, topology="torus", wraps_from=4,
    shapes=((2, 2, 1), (2, 2, 2), (4, 4, 4)),
)  # fmt: skip


def test_a_pod_reaches_the_published_all_reduce_and_bisection_bandwidth() -> None:
    """docs.cloud.google.com/tpu/docs/v5e: all-reduce 51.2 TB/s, bisection 1.6 TB/s of 256 chips."""
    assert 256 * V5E.bytes_per_s * V5E.ring_fraction(256) == pytest.approx(51.2e12)
    # half of what a chip sends in an all-to-all crosses the bisection, from either side
    assert 256 / 2 * V5E.bytes_per_s * V5E.exchange_fraction(256) / 2 == pytest.approx(1.6e12)


@pytest.mark.parametrize(
    ("chips", "links"), [(1, 4), (2, 1), (4, 2), (8, 2), (16, 2), (256, 4)]
)  # open axes use one link each; two chips are a line
def test_an_open_slice_uses_one_link_of_each_axis(chips: int, links: int) -> None:
    assert V5E.ring_fraction(chips) == links / 4


def test_a_cube_is_closed_and_smaller_slices_are_not() -> None:
    assert V5P.ring_fraction(64) == 1.0
    assert V5P.ring_fraction(4) == 2 / 6 and V5P.ring_fraction(8) == 3 / 6


def test_an_exchange_is_slower_on_a_long_axis() -> None:
    assert V5E.exchange_fraction(8) == pytest.approx(4 / 4 / 4) and V5E.exchange_fraction(64) == pytest.approx(
        4 / 8 / 4
    )
    assert V5E.exchange_fraction(4) == V5E.ring_fraction(4)


def test_links_without_shapes_are_unchanged() -> None:
    switch = Link(name="NVLink", bytes_per_s=9e11, latency_s=0.0, chips=72)
    assert switch.ring_fraction(72) == switch.exchange_fraction(72) == 1.0
