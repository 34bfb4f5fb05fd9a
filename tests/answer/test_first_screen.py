"""The first screen of an answer without the sections that it does not show, and the simulations that it takes."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from advisor import report
from advisor.answer import recommend, verdict_first
from advisor.engine.scheduler import percentiles
from advisor.inputs.check import check_catalog
from advisor.inputs.from_catalog import take_snapshot
from advisor.result import SECTIONS, sections_in, with_sections
from tests.answer.test_demand_road import BIG, BUSY, FEW, asked, traffic

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("frozen")]
SOME = {"accelerators": {"allow": ["h100-sxm", "a100-80gb-sxm", "l4", "t4", "mi300x"]}, **FEW}
QUESTIONS: dict[str, dict[str, Any]] = {
    "several accelerators": {"constraints": SOME},
    "rent or buy": {"constraints": {**SOME, "acquisition": ["rent", "own", "api"]}},
    "owned machines": {"constraints": {**BIG, "acquisition": ["own", "rent"]}, "owned": {"h100-sxm": 8}},
    "a limit that few meet": {"constraints": SOME, "slo": {"tpot_ms_p95": 12}},
    "a limit that none meets": {"constraints": SOME, "slo": {"tpot_ms_p95": 0.5}},
    "a budget that none keeps": {"constraints": {**SOME, "max_usd_per_month": 100}, "traffic": traffic(**BUSY)},
    "the fastest": {"constraints": SOME, "objective": "latency"},
}


@pytest.fixture
def simulated(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Requests of each simulation."""
    counts: list[int] = []
    inner = percentiles._verified

    def counted(*given: Any) -> Any:
        counts.append(given[-1])
        return inner(*given)

    monkeypatch.setattr(percentiles, "_verified", counted)
    yield counts


@pytest.mark.parametrize("name", QUESTIONS)
def test_the_first_screen_is_that_of_the_complete_answer(name: str, simulated: list[int]) -> None:
    spec = asked(**QUESTIONS[name])
    check_catalog(spec)
    snapshot = take_snapshot(spec)
    begun = verdict_first(spec, snapshot)
    first, alone = begun.answer, sum(simulated)
    rest = begun.complete() if begun.complete else first
    both = sum(simulated)
    whole = recommend(spec, snapshot)
    shown = [report.screen_text(report.screen_of(each), "") for each in (first, whole)]
    assert shown[0] == shown[1]
    assert first.is_feasible == whole.is_feasible == (begun.complete is not None)
    assert json.dumps(first.to_json().get("decision")) == json.dumps(whole.to_json().get("decision"))
    assert json.dumps(rest.to_json()) == json.dumps(whole.to_json())
    assert 0 < alone <= both == sum(simulated) - both  # what is computed in two steps takes no more
    later = sections_in(whole.to_json())
    assert json.dumps(with_sections(first.to_json(), later)) == json.dumps(whole.to_json())
    assert later.keys() == SECTIONS.keys()
    labels = {option.rank: option.label for option in whole.deployments}
    assert [p.label for p in whole.pareto if p.rank and not labels[p.rank].startswith(p.label.split(",")[0])] == []
