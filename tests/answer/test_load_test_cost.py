"""The cost of a load test is that of the option it names, wherever hosted APIs stand in the ranking."""

from types import SimpleNamespace
from typing import Any

import pytest

from advisor.answer.choice.signing import load_test_usd
from advisor.engine.search import Question, packing_of
from advisor.engine.search.run import search
from advisor.workload import LOAD_TEST_HOURS
from tests.engine.catalog_sample import catalog, chip, offer, question


@pytest.mark.parametrize("ranks", [(1, 2), (2, 4), (1, 3)])
def test_the_machines_of_the_named_option_are_paid(ranks: tuple[int, int]) -> None:
    sold = catalog(accelerators=(chip("big"), chip("other")), offers=(offer("big", 3.0), offer("other", 5.0)))
    shown = search(Question(question(variants="no", drafts=False), sold)).shown
    assert len(shown) >= 2
    options: Any = SimpleNamespace(deployments=[SimpleNamespace(rank=rank, scale_to_zero=None) for rank in ranks])
    choice: Any = SimpleNamespace(outcome=SimpleNamespace(shown=shown))
    for rank, s in zip(ranks, shown, strict=False):
        machines = packing_of(s.lane.choice, s.offer).each
        assert load_test_usd(options, choice, rank) == pytest.approx(machines * s.offer.usd_per_hour * LOAD_TEST_HOURS)
    assert load_test_usd(options, choice, 99) is None
