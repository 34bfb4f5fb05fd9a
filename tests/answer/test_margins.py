"""What a question that states no margin is answered with: the decision, its margins in dollars, and its gate."""

from typing import Any

import pytest

from advisor.inputs import take_snapshot
from advisor.inputs.check import check_catalog
from advisor.workload import parse
from tests.as_json import recommend

pytestmark = [pytest.mark.margins, pytest.mark.django_db, pytest.mark.usefixtures("frozen")]
ASKED: dict[str, Any] = {
    "name": "chat",
    "model": "meta-llama/Llama-3.1-8B",
    "traffic": {
        "input_tokens": {"mean": 1000, "p95": 2000},
        "output_tokens": {"mean": 200, "p95": 400},
        "requests_per_s": {"mean": 4, "peak": 8},
    },
    "slo": {"ttft_ms_p95": 1500, "tpot_ms_p95": 60},
    "constraints": {
        "accelerators": {"allow": ["h100-sxm", "l40s", "a100-80gb-sxm"]},
        "acquisition": ["rent", "own", "api"],
    },
    "variants": "no",
    "speculative": "no",
}
MARGINS_OFF = {"slo": {**ASKED["slo"], "availability": "n", "confidence": "none"}}
ONE_CHIP = {"constraints": {"accelerators": {"allow": ["l40s"]}, "acquisition": ["rent"]}}


def answered(**changes: Any) -> dict[str, Any]:
    spec = parse({**ASKED, **changes})
    check_catalog(spec)
    return recommend(spec, take_snapshot(spec))


@pytest.fixture(scope="module")
def kept() -> dict[str, Any]:
    return {}


def usual(kept: dict[str, Any]) -> dict[str, Any]:
    """The answer of several tests, computed once."""
    if not kept:
        kept.update(answered())
    return kept


def test_the_first_choice_reaches_its_probability_and_the_decision_says_what_to_do(kept: dict[str, Any]) -> None:
    found = usual(kept)
    decision, first = found["decision"], found["recommendations"][0]
    assert decision["action"] in ("sign", "no_clear_winner")
    assert first["slo_probability"] >= 0.5
    assert decision["expected_usd_per_month"] >= 0.9 * decision["usd_per_month"]
    assert decision["budget_usd_per_month"] >= decision["expected_usd_per_month"] * 0.99
    assert decision["tied_ranks"] == sorted(set(decision["tied_ranks"]) - {1})


def test_the_margins_are_printed_in_dollars_smallest_first(kept: dict[str, Any]) -> None:
    found = usual(kept)
    ladder = found["decision"]["ladder"]
    assert [step["name"] for step in ladder][:3] == ["mean_traffic", "stated_peak", "one_host_lost"]
    included = [step for step in ladder if step["included"]]
    costs = [step["usd_per_month"] for step in included]
    assert costs == sorted(costs)
    assert costs[-1] == pytest.approx(found["decision"]["usd_per_month"], rel=0.02)
    assert {step["switch"] for step in ladder} >= {"slo.availability", "slo.confidence"}


def test_a_spare_host_is_included_and_switched_off() -> None:
    with_spare, without = answered(**ONE_CHIP), answered(**ONE_CHIP, slo={**ASKED["slo"], "availability": "n"})
    spare, plain = (found["recommendations"][0] for found in (with_spare, without))
    assert spare["spare_replicas"] > 0 and plain["spare_replicas"] == 0
    assert with_spare["decision"]["ladder"][2]["included"] and not without["decision"]["ladder"][2]["included"]
    assert spare["usd_per_month"] > plain["usd_per_month"]


def test_with_both_margins_off_the_cheapest_size_that_is_estimated_to_hold_is_taken() -> None:
    off, on = answered(**ONE_CHIP | MARGINS_OFF), answered(**ONE_CHIP)
    first = off["recommendations"][0]
    assert first["spare_replicas"] == 0 and first["meets_slo"]
    assert first["usd_per_month"] <= on["recommendations"][0]["usd_per_month"]
    assert [step["name"] for step in off["decision"]["ladder"]] == ["mean_traffic", "stated_peak", "one_host_lost"]


def test_a_margin_that_nobody_asked_for_makes_nothing_infeasible() -> None:
    plain = answered(**ONE_CHIP, slo={**ASKED["slo"], "availability": "n"})["recommendations"][0]
    bound = {"constraints": {**ONE_CHIP["constraints"], "max_usd_per_month": plain["usd_per_month"] * 1.01}}
    found = answered(**bound)
    assert found["recommendations"] and found["recommendations"][0]["spare_replicas"] == 0
    stated = answered(**bound, slo={**ASKED["slo"], "availability": "n+1"})
    assert not stated["recommendations"]


def test_a_purchase_alone_that_is_too_unsure_is_not_signed() -> None:
    """Limits that a single chip meets with little more than even chances."""
    own = {"constraints": {"accelerators": {"allow": ["l40s"]}, "acquisition": ["own"]}}
    usual = answered(**own)["recommendations"][0]
    tight = usual["tpot_ms"]["p50"] * 0.75
    found = answered(**own, slo={"tpot_ms_p95": round(tight, 1)})
    if not found["recommendations"]:
        pytest.skip("no size of this chip comes near the limit")
    chance, decision = found["recommendations"][0]["slo_probability"], found["decision"]
    assert (decision["action"] == "do_not_sign") == (chance < 0.8)
    if chance < 0.8:
        assert decision["gate"]["metric"] == "p95 TPOT" and decision["gate"]["value"] == round(tight, 1)
