"""How sure the order is, and what would change it: chances follow the intervals, the tornado what is asked again."""

import numpy as np
import pytest
import yaml
from django.conf import settings

from advisor.answer import ranking
from advisor.engine.search import NEAR_FRACTION, Question
from advisor.engine.search.certainty import rank_uncertainty
from advisor.engine.search.certainty.sensitivity import Standing
from advisor.engine.search.run import prepare_question, search
from advisor.engine.terms import CERTAIN, SURE_CONFIDENCE, around_estimate
from advisor.inputs.from_catalog import take_snapshot
from advisor.inputs.to_engine import catalog_of, workload_of
from advisor.workload.schema import parse
from advisor.workload.text import set_path
from catalog.models import Calibration
from tests.answer.choices import choice_of
from tests.as_json import recommend

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("frozen")]
CHIPS = ("b200", "b300")  # rented in units of known size, they cost about the same


@pytest.fixture(scope="module")
def question() -> dict:
    spec = yaml.safe_load((settings.BASE_DIR / "fixtures/workloads/support-chat.yaml").read_text())
    # asked again, a chip may take another framework or draft; the tornado keeps its deployment
    only = {"accelerators": {"allow": list(CHIPS)}, "frameworks": {"allow": ["vllm"]}, "acquisition": ["rent"]}
    return {**spec, "variants": "no", "constraints": only}


def answer(question: dict, *changes: tuple[str, str]):
    for key, value in changes:
        question = set_path(question, key, value)
    spec = parse(question)
    return recommend(spec, take_snapshot(spec))


def test_chances_add_up_and_the_better_is_never_the_less_likely_to_win(question: dict):
    options = answer(question)["recommendations"]
    of_seller = {(r["accelerator"], r["provider"], r["acquisition"]): r["first_probability"] for r in options}
    assert sum(of_seller.values()) == pytest.approx(1, abs=1e-3)
    assert [len(r["beats"]) for r in options] == list(range(len(options) - 1, -1, -1))
    beats = {b["rank"]: b["probability"] for b in options[0]["beats"]}
    dearer = [r for r in options if r["usd_per_month"] > 1.01 * options[0]["usd_per_month"]]  # others count as equal
    assert dearer and all(0.5 <= beats[r["rank"]] <= 1 for r in dearer)


def test_what_two_options_share_is_drawn_once(question: dict):
    spec = parse(question)
    asked = prepare_question(Question(workload_of(spec), catalog_of(spec, take_snapshot(spec))))
    found = search(asked)
    one, wide = found.ranked[0], (0.5, 2.0)
    drawn = around_estimate(wide)
    spread = rank_uncertainty.Spread(throughput_fraction=drawn, latency_fraction=drawn, price_fraction=wide)
    twice = rank_uncertainty.scores(asked.workload, found.scale, [one, one], [spread, spread])
    assert np.array_equal(twice[0], twice[1]) and rank_uncertainty.pairwise_win_probability(twice)[0, 1] == 0.5
    apart = rank_uncertainty.scores(asked.workload, found.scale, list(found.ranked[:2]), [spread, spread])
    assert 0.5 < rank_uncertainty.pairwise_win_probability(apart)[0, 1] < 1
    sure = rank_uncertainty.Spread(throughput_fraction=CERTAIN, latency_fraction=CERTAIN, price_fraction=(1, 1))
    assert (
        rank_uncertainty.pairwise_win_probability(
            rank_uncertainty.scores(asked.workload, found.scale, list(found.ranked[:2]), [sure, sure])
        )[0, 1]
        == 1
    )
    again = rank_uncertainty.scores(asked.workload, found.scale, list(found.ranked[:2]), [spread, spread])
    assert np.array_equal(apart, again)


def test_a_price_beyond_the_one_told_ends_the_tie_with_the_other(question: dict):
    result = answer(question)
    (bar,) = [b for b in result["sensitivity"] if b["assumption"].startswith("price of")]
    first = result["recommendations"][0]
    candidates = choice_of(parse(question)).candidates
    other = min(c.expected_usd for c in candidates if c.seller[0] == bar["winner_after"])
    priced = sum(p["usd_per_month"] for p in first["money"]["parts"] if p["group"] == "rent")
    # in a tie, the surer one is taken: the first up to the end of the tie, or only before it begins
    surer = (candidates[0].probability or 0.0) >= SURE_CONFIDENCE
    tie = 1 + NEAR_FRACTION if surer else 1 / (1 + NEAR_FRACTION)
    more = tie * other / candidates[0].expected_usd - 1
    assert bar["at_value"] == pytest.approx(1 + more * first["usd_per_month"] / priced, rel=0.03)  # staff as today
    assert bar["usd_per_month_low"] < first["usd_per_month"] < bar["usd_per_month_high"]


def host_bar(result: dict) -> str:
    return f"host time of {result['recommendations'][0]['accelerator_name']}"


def test_a_host_whose_speed_is_given_or_measured_has_no_bar(question: dict):
    given = answer(question, ("tco.host-speed-ratio", "1.5"))
    assert host_bar(given) not in {b["assumption"] for b in given["sensitivity"]}
    for chip in CHIPS:
        Calibration.objects.create(
            name=f"accelerator:{chip}", values={"host_factor": 1.2}, basis="datasheet", fitted_on="probe result 1",
            engine_version="1", as_of="2026-11-25",
        )  # fmt: skip
    probed = answer(question)
    assert host_bar(probed) not in {b["assumption"] for b in probed["sensitivity"]}


def test_the_tornado_names_what_an_answer_asked_again_names(question: dict):
    result = answer(question)
    bars = {b["assumption"]: b for b in result["sensitivity"]}
    assert {"load", "output length", "prefix cache hit rate"} < set(bars) and len(bars) == 6
    assert (bars[host_bar(result)]["low"], bars[host_bar(result)]["high"]) == (0.6, 2)
    first = result["recommendations"][0]["accelerator"]
    (bar,) = [b for b in result["sensitivity"] if b["assumption"].startswith("price of")]

    def winner_at(times: float) -> str:
        spec = parse(question)
        snapshot = take_snapshot(spec)
        for price in snapshot.prices:
            if price["accelerator"] == first and price["usd_per_hour"]:
                price["usd_per_hour"] *= times
        return recommend(spec, snapshot)["recommendations"][0]["accelerator"]

    assert bar["winner_after"] != first
    assert winner_at(bar["at_value"]) == bar["winner_after"]
    assert winner_at(1 + 0.5 * (bar["at_value"] - 1)) == first  # asked again, another size may win earlier
    widths = [abs(b["usd_per_month_high"] - b["usd_per_month_low"]) for b in result["sensitivity"]]
    assert widths == sorted(widths, reverse=True)


def test_a_contender_within_the_tie_does_not_win():
    usd = np.array([1.0, 1.0])
    near = [Standing(usd_per_hour=usd, score=np.array([1.0, s]), equal_fraction=0.01).winner for s in (0.995, 0.98)]
    assert near == [0, 1]


def test_no_change_is_said_as_such():
    spread = {"name": "load", "unit": "times", "value": 1.0, "low": 0.8, "high": 1.25}
    bar = ranking.Bar(**spread, low_usd_per_month=1.0, high_usd_per_month=1.0, at=None, winner_after=None)
    assert ranking.sensitivity_bar((), bar).detail == "no value that was tried changes the winner"
