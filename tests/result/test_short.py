"""What the JSON of an answer leaves out by default."""

import json
from typing import Any

import pytest

from advisor.result import EXTRAS, extras_named, short


def option(rank: int) -> dict[str, Any]:
    return {"rank": rank, "money": {"usd": 1}, "step": [1], "tuning": {"formats": []}, "launch": {"command": "x"}}


ANSWER = {
    "verdict": "Rent.",
    "views": {"cheapest": 1, "fastest": 7, "greenest": None},
    "recommendations": [option(rank) for rank in range(1, 10)],
    "pareto": [1, 2],
    "assumptions": [3],
    "hosted": list(range(9)),
    "rejected": [4],
    "near_misses": [option(0)],
}


def test_the_first_option_the_runners_up_and_the_winners_of_views_stay() -> None:
    found = short(ANSWER)
    assert [o["rank"] for o in found["recommendations"]] == [1, 2, 3, 7]
    assert [sorted(o) for o in found["recommendations"][:2]] == [
        ["launch", "money", "rank", "step"],
        ["launch", "rank"],
    ]
    assert sorted(found["near_misses"][0]) == ["launch", "rank"]
    assert found.keys() == ANSWER.keys() - {"pareto", "assumptions"} and found["hosted"] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("part", EXTRAS)
def test_each_part_adds_something_and_all_parts_are_the_whole(part: str) -> None:
    assert len(json.dumps(short(ANSWER, {part}))) > len(json.dumps(short(ANSWER)))
    assert short(ANSWER, EXTRAS) == short(ANSWER, extras_named("all")) == ANSWER


def test_an_answer_without_these_parts_is_unchanged() -> None:
    assert short({"recommendations": [], "verdict": "Nothing fits."}) == {
        "recommendations": [],
        "verdict": "Nothing fits.",
    }


def test_an_unknown_part_is_named() -> None:
    assert extras_named(" pareto , hosted,") == {"pareto", "hosted"}
    with pytest.raises(ValueError, match="unknown part paretto; use pareto, options"):
        extras_named("paretto,hosted")
