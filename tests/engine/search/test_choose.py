"""The choice is the same without what explains it, takes less work, and its work does not grow with the offers."""

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.engine.scheduler import percentiles
from advisor.engine.search import Catalog, Question, candidates, planned
from advisor.engine.search.rejected.why_not import explain, may_be_near, remembered, without_budgets
from advisor.engine.search.run import SearchResult, choose, search
from advisor.engine.search.variants.pools_and_drafts import RESCUE_EXCESS
from advisor.engine.terms.workloads.workload import Constraints, Slo
from tests.engine.catalog_sample import catalog, offer, question

ASKED = {
    "slo": st.builds(
        Slo, ttft_p95_s=st.sampled_from([0.02, 0.2, 1.0, 5.0]), tpot_p95_s=st.sampled_from([0.002, 0.01, 0.04, 0.2])
    ),
    "constraints": st.builds(Constraints, max_accelerators=st.sampled_from([None, 1, 8])),
    "objective": st.sampled_from(["cost", "latency", "balanced"]),
    "variants": st.sampled_from(["adopt", "show", "no"]),
    "requests_per_s_peak": st.floats(2.0, 60.0),
}


def told(found: SearchResult) -> list[tuple[Any, ...]]:
    return [
        (s.lane.choice.accelerator.slug, s.replicas, s.usd_per_hour, s.verified.ttft_p95_s, s.slo_probability)
        for s in found.shown
    ]


@settings(max_examples=12, deadline=None, derandomize=True)
@given(st.fixed_dictionaries(ASKED))
def test_the_choice_is_the_same_without_the_reasons(asked: dict[str, Any]) -> None:
    chosen = choose(Question(question(**asked), catalog()))
    work = chosen.result.effort.spent
    whole = chosen.explain(chosen.result.shown)
    assert told(chosen.result) == told(whole) and chosen.result.views == whole.views
    assert whole.effort.spent >= work
    every = {r.accelerator for r in whole.rejections} | {s.lane.choice.accelerator.slug for s in whole.shown}
    assert every == {"big", "board", "small", "tiny", "unsold"}
    if not chosen.result.ranked:
        assert {r.reason for r in chosen.result.rejections} <= {r.reason for r in whole.rejections} | {"unpriced"}


def test_what_cannot_be_near_is_not_near(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = Counter[bool]()

    def checked(workload: Any, simulations: Any, slug: str, ask: Any, candidates: Any) -> Any:
        found = explain(workload, simulations, slug, ask, candidates)
        near = found[1] is not None and found[1].excess_fraction <= RESCUE_EXCESS
        expected = may_be_near(workload, ask(without_budgets(workload)), RESCUE_EXCESS)
        assert expected or not near
        seen[expected] += 1
        return found

    monkeypatch.setattr("advisor.engine.search.run.explain", checked)
    for tpot_s in (0.001, 0.006, 0.011, 0.016, 0.022):
        search(Question(question(slo=Slo(tpot_p95_s=tpot_s), variants="no"), catalog()))
    assert seen[True] and seen[False]


def test_each_workload_is_asked_once() -> None:
    asked = []
    ask = remembered(lambda workload: asked.append(workload) or len(asked))  # type: ignore[arg-type, func-returns-value]
    first, other = question(), question(requests_per_s_peak=9.0)
    assert [ask(first), ask(replace(first)), ask(other), ask(first)] == [1, 1, 2, 1]


def counted(monkeypatch: pytest.MonkeyPatch, asked: Question) -> Counter[str]:
    """How often a question simulates, plans and checks an offer."""
    found: Counter[str] = Counter()

    def counting(module: Any, name: str) -> None:
        inner = getattr(module, name)

        def count(*given: Any, **named: Any) -> Any:
            found[name] += 1
            return inner(*given, **named)

        monkeypatch.setattr(module, name, count)

    with monkeypatch.context() as monkeypatch:
        counting(percentiles, "simulate")
        counting(planned, "best_plan")
        counting(candidates, "allowed")
        counting(planned, "allowed")
        search(asked)
    return found


def test_ten_times_the_offers_take_no_more_simulations_or_plans(monkeypatch: pytest.MonkeyPatch) -> None:
    few = catalog()
    dearer = (
        replace(o, provider=f"cloud {n}", usd_per_hour=o.usd_per_hour * (1 + n / 10))
        for o in few.offers
        for n in range(1, 10)
    )
    once = counted(monkeypatch, Question(question(), few))
    many = counted(monkeypatch, Question(question(), replace(few, offers=(*few.offers, *dearer))))
    assert many["simulate"] == once["simulate"]
    assert many["best_plan"] <= 3 * once["best_plan"]
    assert many["allowed"] <= 10 * once["allowed"]


def several(copies: int, offers: int) -> Catalog:
    """So many copies of every accelerator, each 50% dearer than the one before, with so many offers for one."""
    few = catalog()
    sold = tuple(
        replace(o, accelerator=f"{o.accelerator}-{n}", provider=f"{k}", usd_per_hour=o.usd_per_hour * (1 + n / 2 + k))
        for o in few.offers
        for n in range(copies)
        for k in range(offers)
    )
    alike = tuple(replace(a, slug=f"{a.slug}-{n}") for a in few.accelerators for n in range(copies))
    return replace(few, accelerators=alike, offers=sold)


def test_five_times_the_accelerators_with_ten_times_the_offers_take_at_most_three_times_the_work(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    once, many = (
        counted(monkeypatch, Question(question(variants="no"), each)) for each in (several(4, 1), several(20, 2))
    )
    assert once["simulate"] < many["simulate"] <= 3 * once["simulate"]
    assert many["best_plan"] <= 3 * once["best_plan"]


def test_offers_of_other_accelerators_are_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    few = catalog()
    foreign = tuple(offer(f"other {n}", 1.0) for n in range(50))
    assert few.offers_of("big") == replace(few, offers=(*foreign, *few.offers)).offers_of("big")
    assert few.offers_of("unsold") == []
