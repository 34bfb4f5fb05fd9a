"""A mix by length of prompt: classes that add up, parts that hold in simulation, cheaper than any single choice."""

import math
from dataclasses import replace

import pytest

from advisor.engine.fleet.length_classes import length_classes
from advisor.engine.fleet.mix import Mix, find_mix
from advisor.engine.scheduler.sampling import token_lengths
from advisor.engine.search import Question
from advisor.engine.search.run import SearchResult, search
from advisor.engine.terms.workloads.workload import Constraints, Lengths, Slo, Workload
from tests.engine.catalog_sample import catalog, offer, question

OFFERS = (offer("big", 4.0), offer("small", 0.40))


def asked(**changes: object) -> Workload:
    lengths = {"input_tokens": Lengths(mean_tokens=3000, p95_tokens=10000)}
    rates = {"requests_per_s_mean": 13.0, "requests_per_s_peak": 40.0}
    return question(**{**lengths, **rates, "slo": Slo(ttft_p95_s=3.0, tpot_p95_s=0.06), **changes})


def answered(workload: Workload) -> tuple[SearchResult, Mix]:
    there = catalog(offers=OFFERS)
    answer = search(Question(workload, there))
    return answer, find_mix(Question(workload, there), answer)


@pytest.fixture(scope="module")
def found() -> tuple[SearchResult, Mix]:
    return answered(asked())


@pytest.mark.parametrize(("mean", "p95"), [(2000, 6000), (1000, 1100), (500, 1900)])
def test_classes_add_up_to_all_requests(mean: float, p95: float) -> None:
    classes = length_classes(Lengths(mean_tokens=mean, p95_tokens=p95))
    assert sum(c.share_fraction for c in classes) == pytest.approx(1)
    assert sum(c.share_fraction * c.input_tokens.mean_tokens for c in classes) == pytest.approx(mean)
    for c in classes:
        assert c.low_tokens <= c.input_tokens.mean_tokens <= c.input_tokens.p95_tokens <= c.high_tokens


@pytest.mark.parametrize("recorded", [[5], [7, 7, 7, 7], [*range(1, 101)], [10] * 95 + [9000] * 5])
def test_classes_of_a_trace_are_its_own_prompts(recorded: list[int]) -> None:
    classes = length_classes(Lengths(mean_tokens=2000, p95_tokens=6000), recorded)
    assert sum(c.share_fraction for c in classes) == pytest.approx(1)
    mean = sum(recorded) / len(recorded)
    assert sum(c.share_fraction * c.input_tokens.mean_tokens for c in classes) == pytest.approx(mean)
    for c in classes:
        own = [x for x in recorded if c.low_tokens <= x < c.high_tokens]
        assert len(own) / len(recorded) == pytest.approx(c.share_fraction) and c.input_tokens.p95_tokens <= max(own)


def test_the_means_of_the_classes_are_those_of_drawn_lengths() -> None:
    import numpy as np

    lengths = Lengths(mean_tokens=2000, p95_tokens=6000)
    drawn = token_lengths(lengths, 1.0, 1.0, np.random.default_rng(1).random(400_000))
    for c in length_classes(lengths):
        here = drawn[(drawn >= c.low_tokens) & (drawn < c.high_tokens)]
        assert len(here) / len(drawn) == pytest.approx(c.share_fraction, abs=0.005)
        assert here.mean() == pytest.approx(c.input_tokens.mean_tokens, rel=0.02)


def test_a_mix_that_is_advised_is_cheaper_and_holds(found: tuple[SearchResult, Mix]) -> None:
    answer, mix = found
    assert mix.parts, mix.reason
    assert mix.usd_per_hour < answer.ranked[0].usd_per_hour == mix.single_usd_per_hour
    assert mix.ttft_p95_s <= 3.0 and mix.tpot_p95_s <= 0.06
    assert mix.usd_per_hour == pytest.approx(sum(p.usd_per_hour for p in mix.parts))
    assert sum(p.requests_per_s for p in mix.parts) == pytest.approx(40)
    for p in mix.parts:
        assert p.usd_per_hour == pytest.approx(p.instances * p.offer.usd_per_hour)


def test_every_class_is_sent_somewhere_as_a_whole(found: tuple[SearchResult, Mix]) -> None:
    shares: dict[float, float] = {}
    for p in found[1].parts:
        for c, share in p.classes:
            shares[c.low_tokens] = shares.get(c.low_tokens, 0) + share
    assert len(shares) == 3 and all(s == pytest.approx(1) for s in shares.values())


def test_the_same_question_has_the_same_mix(found: tuple[SearchResult, Mix]) -> None:
    assert answered(asked())[1] == found[1]


def test_the_inventory_holds_for_the_single_choice_and_for_the_mix() -> None:
    answer, mix = answered(asked(constraints=Constraints(inventory_chips={"small": 10, "big": 12})))
    taken: dict[str, int] = {}
    for p in mix.parts:
        slug = p.lane.choice.accelerator.slug
        taken[slug] = taken.get(slug, 0) + p.chips
    assert taken and taken.get("small", 0) <= 10 and taken.get("big", 0) <= 12
    refused = {r.accelerator: r for r in answer.rejections}
    assert refused["small"].reason == "too_many" and refused["small"].limit == 10
    assert "inventory.small >= " in refused["small"].smallest_change


def test_a_change_of_inventory_that_is_named_is_enough() -> None:
    answer, _ = answered(asked(constraints=Constraints(inventory_chips={"small": 10})))
    (refused,) = [r for r in answer.rejections if r.accelerator == "small"]
    enough = int(refused.smallest_change.rsplit(" ", 1)[1])
    again, _ = answered(asked(constraints=Constraints(inventory_chips={"small": enough})))
    assert "small" in [s.lane.choice.accelerator.slug for s in again.ranked]


def test_a_mix_may_hold_where_no_single_choice_does() -> None:
    answer, mix = answered(asked(constraints=Constraints(inventory_chips={"small": 20, "big": 3})))
    assert answer.ranked == () and math.isinf(mix.single_usd_per_hour)
    assert {p.lane.choice.accelerator.slug for p in mix.parts} == {"big", "small"}
    assert mix.ttft_p95_s <= 3.0 and mix.tpot_p95_s <= 0.06


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"input_tokens": Lengths(mean_tokens=1000, p95_tokens=1000)}, "the same length"),
        ({"objective": "latency"}, "objective cost"),
        ({"constraints": Constraints(max_watts=5000.0)}, "power"),
        ({"slo": Slo(ttft_p95_s=1e-6)}, "limits"),
    ],
)
def test_no_mix_says_why(changes: dict[str, object], why: str) -> None:
    mix = answered(replace(asked(), **changes))[1]  # type: ignore[arg-type]
    assert mix.parts == () and why in mix.reason
