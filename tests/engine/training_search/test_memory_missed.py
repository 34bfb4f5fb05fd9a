"""A chip whose memory is too small says how much is missing, and which smaller run fits."""

from dataclasses import replace

import pytest

from advisor.engine.search import Question
from advisor.engine.training_search.search import Found, search
from tests.engine.catalog_sample import GIB, catalog
from tests.engine.training_search.sample import BIG, RELIABILITY, asked, rented


def found(gib: float, **task: object) -> Found:
    small = replace(BIG, memory_bytes=gib * GIB)
    return search(
        Question(asked(deadline_days=100.0, **task), catalog(accelerators=(small,), offers=(rented(fabric=8),))),
        RELIABILITY,
    )


@pytest.mark.parametrize(("gib", "change"), [(18, "lora"), (10, "qlora")])
def test_the_smallest_change_lets_the_run_fit(gib: float, change: str) -> None:
    (rejection,) = found(gib).rejections
    assert rejection.reason == "does_not_fit" and rejection.limit == gib
    assert rejection.reached is not None and rejection.reached > gib
    assert f"of {gib} GiB" in rejection.detail
    assert rejection.smallest_change == f"finetuning.method: {change}"
    assert found(gib, method=change, adapter_rank=16).ranked


def test_a_chip_that_nothing_fits_has_a_dead_end() -> None:
    (rejection,) = found(2).rejections
    assert rejection.changes == () and "connected holds the model" in rejection.dead_end
