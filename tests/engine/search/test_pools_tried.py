"""Separate pools are chosen with the errors of their own estimates, and the answer says why or why not."""

import numpy as np
import pytest

from advisor.answer.options.pools import sentence
from advisor.engine.search.limits import Factors
from advisor.engine.search.variants.pools_and_drafts import NORMAL_MEDIAN, TPOT_ERROR, TTFT_ERROR, of_pools

NARROW = np.exp(np.random.default_rng(0).normal(0.0, 0.05, 20_000))


def test_latencies_of_pools_are_as_uncertain_as_their_rows() -> None:
    """Half of the draws miss the median by the median error of the rows that were kept back."""
    wide = of_pools(Factors(ttft=NARROW, tpot=NARROW, duration=1.0))
    assert wide is not None
    for draws, error in ((wide.ttft, TTFT_ERROR), (wide.tpot, TPOT_ERROR)):
        misses = np.abs(np.log(np.asarray(draws)))
        assert np.exp(np.median(misses)) - 1 == pytest.approx(error, rel=0.05)
        assert float(np.median(draws)) == pytest.approx(float(np.median(NARROW)), rel=1e-6)


def test_draws_that_are_wider_stay() -> None:
    wider = NARROW**40
    found = of_pools(Factors(ttft=wider, tpot=wider, duration=1.0))
    assert found is not None and np.allclose(np.asarray(found.ttft), wider)
    assert float(np.std(np.log(wider))) > np.log1p(TTFT_ERROR) / NORMAL_MEDIAN


@pytest.mark.parametrize(
    ("chosen", "chips", "probability", "says"),
    [
        (True, 64, 0.7, "separate pools, because together they need 128"),
        (False, 0, None, "no fewer"),
        (False, 96, 0.41, "96 accelerators meet the limits only with 41"),
    ],
)
def test_one_sentence_says_why(chosen: bool, chips: int, probability: float | None, says: str) -> None:
    assert says in sentence(chosen, 128, chips, probability)
