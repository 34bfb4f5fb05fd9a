"""The order of options: the objective; where it is equal within 1 %, the probability of the SLO, then simplicity."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from advisor.engine.search import Question, limits
from advisor.engine.search.certainty.rank_uncertainty import is_tie
from advisor.engine.search.objective import EQUAL_FRACTION, ordered
from advisor.engine.search.run import SearchResult, search
from advisor.engine.search.simulated import Scored, excess
from advisor.engine.search.views import same
from advisor.engine.step.drafts.speculative import Acceptance, drafts_of
from advisor.engine.terms.workloads.workload import Slo
from tests.engine.catalog_sample import LLAMA_8B, catalog, question

LIMITED = question(slo=Slo(ttft_p95_s=1.0, tpot_p95_s=0.04))
INTERVALS = {
    f"interval:{basis}": {
        f"{name}_{end}_ratio": value for name in limits.METRICS for end, value in (("low", 0.8), ("high", 1.6))
    }
    for basis in ("measured", "relative", "datasheet")
}
UNSURE = replace(catalog(), scopes={**catalog().scopes, **INTERVALS})


@pytest.fixture(scope="module")
def found() -> SearchResult:
    return search(Question(LIMITED, UNSURE))


def dearer(s: Scored, times: float, **changes: object) -> Scored:
    parts = tuple(replace(p, usd_per_hour=p.usd_per_hour * times) for p in s.parts)
    return replace(s, parts=parts, **changes)  # type: ignore[arg-type]


def order(found: SearchResult, options: Sequence[Scored]) -> list[int]:
    ranked = ordered(LIMITED, options, found.scale, LLAMA_8B)
    return [next(k for k, s in enumerate(options) if s is r) for r in ranked]


def test_within_one_percent_the_likelier_to_meet_the_slo_comes_first(found: SearchResult) -> None:
    s = replace(found.ranked[0], slo_probability=0.6)
    assert order(found, [s, dearer(s, 1 + 0.9 * EQUAL_FRACTION, slo_probability=0.8)]) == [1, 0]
    assert order(found, [s, dearer(s, 1 + 1.2 * EQUAL_FRACTION, slo_probability=0.8)]) == [0, 1]


def test_then_the_simpler_one(found: SearchResult) -> None:
    s = found.ranked[0]
    split = replace(s, lane=replace(s.lane, choice=replace(s.lane.choice, tp=2, dp=2)))
    draft = next(drafts_of(LLAMA_8B, Acceptance(method="ngram", task="any", accepted_fraction=0.5)))
    drafted = replace(s, lane=replace(s.lane, draft=draft))
    cheaper = dearer(drafted, 0.995)
    assert order(found, [drafted, split, s]) == [2, 1, 0]
    assert order(found, [cheaper, s]) == [1, 0]


def test_a_chain_of_small_steps_does_not_move_a_dearer_option_to_the_front(found: SearchResult) -> None:
    s = replace(found.ranked[0], slo_probability=0.5)
    steps = [dearer(s, 1 + 0.008 * k, slo_probability=0.5 + 0.1 * k) for k in range(4)]
    assert order(found, steps) == [1, 0, 3, 2]


def test_options_that_differ_in_inner_settings_are_one(found: SearchResult) -> None:
    s = found.ranked[0]
    lane = replace(s.lane, max_running_requests=7, choice=replace(s.lane.choice, kv_dtype="fp8"))
    assert same(s, replace(s, concurrency=7, row_index=99, lane=lane))
    assert not same(s, replace(s, replicas=s.replicas + 1))


def test_probability_and_confidence_are_one_statement(found: SearchResult) -> None:
    s = found.ranked[0]
    drawn = limits.factors_of(UNSURE.scopes, s.lane)
    assert drawn is not None
    asked = replace(LIMITED, slo=Slo(ttft_p95_s=1.5 * s.verified.ttft_p95_s, tpot_p95_s=1.2 * s.verified.tpot_p95_s))
    reached = limits.slo_probability(asked, drawn, s.verified)
    assert reached is not None and 0.1 < reached < 0.9
    for confidence in (0.05, reached - 0.001, reached + 0.001, 0.99):
        sure = limits.with_confidence(asked, s.verified, drawn, confidence)
        assert (excess(asked, sure) <= 1) == (confidence <= reached)


@pytest.mark.parametrize("confidence", [0.05, 0.5, 0.8, 0.99])
def test_margins_are_the_quantiles_of_the_draws(found: SearchResult, confidence: float) -> None:
    lane = found.ranked[0].lane
    drawn = limits.factors_of(UNSURE.scopes, lane)
    assert drawn is not None and lane.draft is None
    draws = (np.quantile(each, confidence, method="higher") for each in (drawn.ttft, drawn.tpot))
    assert limits.latency_margins(UNSURE.scopes, lane, confidence) == pytest.approx(tuple(draws), rel=1e-12)


def test_every_option_has_the_confidence_asked_for_and_costs_no_less(found: SearchResult) -> None:
    sure = search(Question(replace(LIMITED, slo=replace(LIMITED.slo, confidence=0.95)), UNSURE))
    assert sure.ranked and all((s.slo_probability or 0.0) >= 0.95 for s in sure.ranked)
    assert min(s.slo_probability or 0.0 for s in found.ranked) < 0.95
    assert sure.ranked[0].usd_per_hour >= found.ranked[0].usd_per_hour


def test_the_draws_of_a_cause_do_not_depend_on_the_other_options() -> None:
    z = limits.standard_normal("performance of big")
    assert (
        z is limits.standard_normal("performance of big")
        and abs(z.mean()) < 1e-9
        and z.std() == pytest.approx(1, abs=0.01)
    )
    assert abs(np.corrcoef(z, limits.standard_normal("performance of small"))[0, 1]) < 0.06


def test_a_lower_acceptance_is_drawn_from_the_published_range() -> None:
    row = Acceptance(method="ngram", task="any", accepted_fraction=0.6, low=0.5, high=0.65)
    draft = next(d for d in drafts_of(LLAMA_8B, row) if d.tokens == 3)
    share = np.asarray(limits.accepted_share(draft)) * draft.shown_tokens
    assert np.quantile(share, [0.05, 0.95]) == pytest.approx(draft.shown_range, rel=0.01)
    assert draft.scaled(1.0) == draft and draft.scaled(0.0).shown_tokens == 1.0


def test_ties_are_pairs_that_neither_wins_in_nine_of_ten_draws() -> None:
    assert [is_tie(p) for p in (0.05, 0.11, 0.5, 0.89, 0.95)] == [False, True, True, True, False]
