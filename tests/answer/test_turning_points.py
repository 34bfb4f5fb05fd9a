"""Every turning point that an answer prints, put back, changes the first choice, and one digit before it does not."""

import math
from typing import Any

import pytest

from advisor import workload
from advisor.advise import default_organisation
from advisor.answer import recommend
from advisor.answer.training import certainty
from advisor.engine.search.certainty import sensitivity
from advisor.inputs import take_snapshot
from tests.engine.catalog_sample import FIXTURES

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("frozen")]
INPUTS = {  # of the sensitivity chart; the same of what would settle the choice
    "performance of": "performance", "utilization (MFU)": "speed", "price of": "price", "host time of": "host time",
}  # fmt: skip


def before(at: float, value: float) -> float:
    """The last printable value at which nothing may change."""
    unit = 10.0 ** (math.floor(math.log10(abs(at))) - sensitivity.DIGITS + 1)
    return at + unit * (1 if at < value else -1)


@pytest.mark.parametrize("name", ["call-transcripts", "startup-budget", "dpo-8b", "pretrain-8b"])
def test_a_turning_point_changes_the_choice_and_is_the_same_everywhere(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[tuple[Any, float, int, tuple[float, int]]] = []
    search = sensitivity.turning_point

    def noted(winner_at: Any, value: float, ends: Any, even: bool = False, halvings: int = 14) -> Any:
        found = search(winner_at, value, ends, even, halvings)
        if found:
            tried.append((winner_at, value, halvings, found))
        return found

    monkeypatch.setattr(sensitivity, "turning_point", noted)
    monkeypatch.setattr(certainty, "turning_point", noted)
    spec = workload.parse((FIXTURES / "workloads" / f"{name}.yaml").read_bytes())
    answer = recommend(spec, take_snapshot(spec, default_organisation()))
    assert tried
    for winner_at, value, halvings, (at, winner) in tried:
        assert winner_at(value) == 0 and winner_at(at) == winner != 0
        assert halvings < sensitivity.EXACT_HALVINGS or winner_at(before(at, value)) == 0
    bars = [bar for bar in answer.sensitivity if bar.at_value is not None]
    found = {at for *_, (at, _) in tried}
    for bar in bars:
        assert bar.assumption == "deadline" or {bar.at_value, round(1 + (bar.at_change_fraction or 0), 6)} & found
    settle = answer.decision.settle if answer.decision else None
    same = [
        round(1 + bar.at_change_fraction, 6)
        for bar in bars
        if settle is not None and settle.at_ratio is not None and bar.at_change_fraction is not None
        and settle.input.startswith(f"{named(bar.assumption)} of")
        and answer.recommendations[0].accelerator_name in settle.input
        and (bar.at_change_fraction < 0) == (settle.at_ratio < 1)
    ]  # fmt: skip
    assert all(settle is not None and settle.at_ratio == ratio for ratio in same)
    assert same or name in ("startup-budget", "dpo-8b")  # there no bar of the first choice changes it


def named(assumption: str) -> str:
    """What would settle the choice, by the name of a bar."""
    return next((other for start, other in INPUTS.items() if assumption.startswith(start)), assumption)
