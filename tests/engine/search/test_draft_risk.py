"""What a lower acceptance does is simulated on the deployment itself: as many requests and conversations at once."""

from dataclasses import replace

import pytest

from advisor.engine.search import Question
from advisor.engine.search.candidates import Catalog
from advisor.engine.search.run import search
from advisor.engine.search.simulated import Scored
from advisor.engine.search.variants.draft_risk import DROP_FRACTION, draft_risk
from advisor.engine.terms import Lengths, Turns, Workload, over_turns
from tests.engine.catalog_sample import catalog, offer, question
from tests.engine.search.test_variants import ABLE, NGRAM, SUMMARIES

FRAMEWORK = replace(ABLE, features=(*ABLE.features, "prefix_caching"))


def conversations(count: int, added: float, wait_s: float, rate: float) -> Workload:
    turns = Turns(
        count=count,
        added_tokens=added,
        wait_s=wait_s,
        first=Lengths(mean_tokens=2000, p95_tokens=2000),
        answer_tokens=200.0,
    )
    lengths, hit, turns = over_turns(turns)
    return replace(
        SUMMARIES,
        input_tokens=lengths,
        prefix_cache_hit_fraction=hit,
        turns=turns,
        requests_per_s_mean=rate / 2,
        requests_per_s_peak=rate,
        variants="adopt",
    )


def drafted(asked: Workload, sold: Catalog) -> Scored:
    found = search(Question(asked, sold))
    shown = [*found.shown, *(s for several in found.variants.values() for s in several)]
    return next(s for s in shown if s.lane.draft is not None)


@pytest.mark.parametrize(("count", "added", "wait_s", "rate"), [(1, 0, 0, 5.0), (8, 500, 6, 2.0), (20, 1500, 20, 1.0)])
def test_at_the_published_acceptance_the_risk_is_that_of_the_deployment(
    count: int, added: float, wait_s: float, rate: float
) -> None:
    asked = (
        question(task="summarisation", variants="adopt") if count == 1 else conversations(count, added, wait_s, rate)
    )
    sold = catalog(acceptances=(NGRAM,), frameworks=(FRAMEWORK,), offers=(offer("big", 4.0),))
    s = drafted(asked, sold)
    risk = draft_risk(Question(asked, sold), s)
    assert risk is not None and risk.break_even is not None  # the deployment meets its limits, so there is such a rate
    assert risk.break_even.accepted_fraction <= s.lane.draft.accepted_fraction
    unchanged = replace(s, lane=replace(s.lane, draft=s.lane.draft.scaled(1 / (1 - DROP_FRACTION))))
    again = draft_risk(Question(asked, sold), unchanged)  # its lower rate is that of the deployment
    assert again is not None
    assert again.lower_verified.ttft_p95_s == pytest.approx(s.verified.ttft_p95_s, rel=0.15)
    assert again.lower_verified.tpot_p95_s == pytest.approx(s.verified.tpot_p95_s, rel=0.15)
