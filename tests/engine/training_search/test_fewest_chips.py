"""The number of accelerators below which no size is searched is a true lower bound."""

import pytest

from advisor.engine.search import Question
from advisor.engine.training_search.search import BEST_MFU, fewest_chips
from tests.engine.training_search.sample import BIG, asked, found_for, rented, sold

DAY_S = 86_400.0


@pytest.mark.parametrize("tokens", [1e10, 1e11, 4e11])
@pytest.mark.parametrize("days", [1.0, 10.0])
def test_no_smaller_size_could_end_within_twice_the_deadline(tokens: float, days: float) -> None:
    workload = asked(tokens=tokens, deadline_days=days)
    least = fewest_chips(Question(workload, sold(rented())), BIG)
    found = found_for(asked(tokens=tokens, deadline_days=None, every_days=None), rented(fabric=512))
    for c in found.curves["big"]:
        if c.days <= 2 * days:
            assert c.chips >= least
    parameters = 7.5e9  # less than Llama 8B has without its input embedding
    most = BIG.flops_per_s["fp8"] * BEST_MFU * 2 * days * DAY_S
    assert least >= int(6 * parameters * tokens / most)


def test_adapters_need_two_thirds_at_least() -> None:
    full, lora = (
        fewest_chips(Question(asked(tokens=1e13, method=m, adapter_rank=r), sold(rented())), BIG)
        for m, r in (("full", 0), ("lora", 16))
    )
    assert lora == pytest.approx(full * 2 / 3, abs=1)
