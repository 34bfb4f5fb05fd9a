"""The one thing that would settle the doubt is the input that changes the first choice most often."""

import numpy as np
import pytest

from advisor.answer.money import NORMAL, VALUES, Input, Moved, settle
from advisor.result import Answer
from tests import sample_advice

OPTIONS = Answer.read(sample_advice.result()).deployments
STILL = np.ones(VALUES)


def moved(name: str, first: np.ndarray, second: np.ndarray, chip: str = "", way: str = "") -> Moved:
    rest = np.full((len(OPTIONS) - 2, VALUES), 9.0)
    scores = np.vstack([first, second, rest])
    return Moved(input=Input(name=name, chip=chip, way=way), scores=scores, ratios=np.exp(0.2 * NORMAL))


def test_the_input_that_flips_the_winner_most_often_is_named_with_its_break_point() -> None:
    price = moved("price", np.exp(0.2 * NORMAL), 1.2 * STILL, "h200-sxm", "rent")  # flips above 1.2 times
    load = moved("load", np.exp(0.2 * NORMAL), 1.5 * STILL)  # flips above 1.5 times
    found = settle(OPTIONS, 0, [load, price], 0.0)
    assert (found.kind, found.winner_after_rank) == ("quote", 2)
    assert found.input == "price of 4 x H200 SXM at nebius"
    assert found.at_ratio == pytest.approx(1.2, rel=0.01)
    assert found.flips_fraction == pytest.approx(float((np.exp(0.2 * NORMAL) > 1.2).mean()), abs=1e-3)
    assert found.said.startswith("Get a written quote for 4 x H200 SXM at nebius. Above 1.2")


def test_a_faster_rival_is_a_measurement_of_that_rival() -> None:
    rival = moved("performance", STILL, 1.1 / np.exp(0.2 * NORMAL), "mi300x")
    found = settle(OPTIONS, 0, [rival], 0.0)
    assert found.kind == "measurement" and found.said.startswith("Load-test 4 x MI300X. Above 1.1")


def test_nothing_is_named_where_no_input_changes_the_choice_by_more_than_the_tie() -> None:
    near = moved("load", 1.005 * STILL, STILL)
    found = settle(OPTIONS, 0, [near], 0.01)
    assert (found.kind, found.flips_fraction, found.input) == ("none", 0.0, "")
