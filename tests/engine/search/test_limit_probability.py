"""The probability of meeting a limit follows the stored quantiles, moved through the response to the load."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import yaml

from advisor.engine.search import Question, limits
from advisor.engine.search.run import search
from advisor.engine.search.simulated import Scored
from advisor.engine.terms import SHARES
from advisor.engine.terms.ratio_distribution import quantile_key
from advisor.engine.terms.workloads.workload import Slo
from tests.engine.catalog_sample import CALIBRATION, catalog, question

BASES = ("measured", "relative", "datasheet")
MULTIPLES = (0.6, 0.8, 1.0, 1.25, 1.6, 2.0)
STORED = {
    f"interval:{basis}": yaml.safe_load((CALIBRATION / f"interval-{basis}.yaml").read_text())["values"]
    for basis in BASES
}
SHIPPED = replace(catalog(), scopes={**catalog().scopes, **STORED})


def stored_share(basis: str, figure: str, ratio: float) -> tuple[float, float]:
    """The shares between which the probability of at most this ratio lies, from the file alone."""
    row = STORED[f"interval:{basis}"]
    below = [share for share in SHARES if row[quantile_key(figure, share)] <= ratio]
    above = [share for share in SHARES if row[quantile_key(figure, share)] > ratio]
    return max(below, default=0.0), min(above, default=1.0)


def holds(share: float, ends: Sequence[float]) -> bool:
    return ends[0] - 0.01 <= share <= ends[1] + 0.01


def on_basis(s: Scored, basis: str) -> Scored:
    efficiency = replace(s.lane.choice.efficiency, basis=basis)
    return replace(s, lane=replace(s.lane, choice=replace(s.lane.choice, efficiency=efficiency)))


@pytest.fixture(scope="module")
def first() -> Scored:
    return search(Question(question(slo=Slo(ttft_p95_s=5.0, tpot_p95_s=0.5)), SHIPPED)).ranked[0]


@pytest.mark.parametrize("basis", BASES)
@pytest.mark.parametrize("multiple", MULTIPLES)
def test_a_limit_at_a_multiple_of_the_printed_value_has_the_stored_share(
    first: Scored, basis: str, multiple: float
) -> None:
    """With the same requests in flight, as in the closed loops that the quantiles come from."""
    s = on_basis(first, basis)
    v, drawn = replace(s.verified, response=None), limits.factors_of(SHIPPED.scopes, s.lane)
    ttft = replace(question(), slo=Slo(ttft_p95_s=multiple * v.ttft_p95_s))
    tpot = replace(question(), slo=Slo(tpot_p95_s=multiple * v.tpot_p95_s))
    assert holds(limits.slo_probability(ttft, drawn, v) or 0.0, stored_share(basis, "ttft", multiple))
    assert holds(limits.slo_probability(tpot, drawn, v) or 0.0, stored_share(basis, "tpot", multiple))
    batch = replace(question(), slo=Slo(), deadline_s=1.0)
    late = replace(v, late_fraction=1.0 / multiple)
    slower, faster = stored_share(basis, "throughput", 1.0 / multiple)
    assert holds(limits.slo_probability(batch, drawn, late) or 0.0, (1.0 - faster, 1.0 - slower))


@pytest.mark.parametrize("basis", ["relative", "datasheet"])
def test_an_estimate_at_the_limit_is_about_as_likely_to_hold_as_not(first: Scored, basis: str) -> None:
    """The median of the held-out groups is within 2.5 % of the prediction; of measured chips it is 3.4 % above.

    With the same requests in flight: on a full server, slower steps lengthen TTFT by more than faster ones shorten it.
    """
    s = on_basis(first, basis)
    v = replace(s.verified, response=None)
    asked = replace(question(), slo=Slo(ttft_p95_s=v.ttft_p95_s))
    reached = limits.slo_probability(asked, limits.factors_of(SHIPPED.scopes, s.lane), v)
    assert reached is not None and 0.45 <= reached <= 0.6


@pytest.mark.parametrize("multiple", [0.8, 1.0, 1.25, 2.0])
def test_every_option_of_an_answer_states_the_stored_share_of_the_steps_that_reach_its_limit(
    first: Scored, multiple: float
) -> None:
    asked = question(slo=Slo(tpot_p95_s=multiple * first.verified.tpot_p95_s))
    found = search(Question(asked, SHIPPED)).ranked
    assert found
    slower = np.geomspace(1e-3, 1e4, 40_001)
    for s in found:
        assert s.verified.response is not None
        reached = s.verified.tpot_p95_s * slower * s.verified.response.at("tpot_p95_s", slower)
        steps = slower[np.searchsorted(reached, asked.slo.tpot_p95_s)]
        ends = stored_share(s.lane.choice.efficiency.basis, "tpot", float(steps))
        assert s.slo_probability is not None and holds(s.slo_probability, ends)


def test_an_interval_and_the_probability_of_a_limit_at_its_end_are_one_statement(first: Scored) -> None:
    drawn = limits.factors_of(SHIPPED.scopes, first.lane)
    assert drawn is not None
    for key, figure, limit in (("ttft_p95", "ttft_p95_s", "ttft_p95_s"), ("tpot_p95", "tpot_p95_s", "tpot_p95_s")):
        ends = limits.latency_ranges(drawn, first.verified.response)[key]
        for end, share in zip(ends, (0.05, 0.95), strict=True):
            asked = replace(question(), slo=Slo(**{limit: end * getattr(first.verified, figure)}))
            assert limits.slo_probability(asked, drawn, first.verified) == pytest.approx(share, abs=0.002)


def test_where_kernels_and_host_were_timed_their_own_errors_count(first: Scored) -> None:
    s = on_basis(first, "measured")
    choice = replace(s.lane.choice, overhead=replace(s.lane.choice.overhead, timed=True))
    narrow = {key: 1.0 + (value - 1.0) / 2 for key, value in STORED["interval:measured"].items()}
    known = SHIPPED.scopes | {limits.TIMED: narrow}
    timed, other = (limits.interval_ratios(known, "measured", c)["tpot"] for c in (choice, s.lane.choice))
    assert other[0] < timed[0] < timed[1] < other[1]
    assert limits.interval_ratios(known, "relative", choice) == limits.interval_ratios(
        SHIPPED.scopes, "relative", choice
    )


@pytest.mark.parametrize("basis", BASES)
def test_ttft_and_tpot_go_together_as_far_as_the_rows_say(first: Scored, basis: str) -> None:
    s = on_basis(first, basis)
    drawn = limits.factors_of(SHIPPED.scopes, s.lane)
    assert drawn is not None
    ranks = [np.argsort(np.argsort(each)) for each in (drawn.ttft, drawn.tpot)]
    stored = STORED[f"interval:{basis}"][limits.CORRELATION]
    spearman = 6 / np.pi * np.arcsin(stored / 2)  # of a Gaussian copula
    assert np.corrcoef(ranks[0], ranks[1])[0, 1] == pytest.approx(spearman, abs=0.05)
    v = s.verified
    one = [replace(question(), slo=Slo(ttft_p95_s=v.ttft_p95_s)), replace(question(), slo=Slo(tpot_p95_s=v.tpot_p95_s))]
    both = replace(question(), slo=Slo(ttft_p95_s=v.ttft_p95_s, tpot_p95_s=v.tpot_p95_s))
    each = [limits.slo_probability(asked, drawn, v) or 0.0 for asked in one]
    together = limits.slo_probability(both, drawn, v) or 0.0
    assert each[0] * each[1] < together < min(each)


@pytest.mark.parametrize("correlation", [-0.9, 0.0, 0.35, 1.0])
def test_a_correlation_does_not_change_how_likely_each_value_is(correlation: float) -> None:
    drawn = limits.correlated_normal(
        *map(limits.standard_normal, ("performance of big", "first tokens of big")), correlation
    )
    common = limits.standard_normal("performance of big")
    assert np.array_equal(np.sort(drawn), np.sort(common))
    assert np.corrcoef(drawn, common)[0, 1] == pytest.approx(correlation, abs=0.05)
