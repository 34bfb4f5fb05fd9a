"""Speculative decoding in the headline, ties, and the probability of meeting the SLO, on the shipped catalog."""

import json
import shlex

import pytest

from advisor.inputs.from_catalog import take_snapshot
from advisor.workload import WorkloadError
from advisor.workload.schema import parse
from tests.as_json import recommend

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("frozen")]
CHIPS = ["mi300x", "mi355x", "b200"]


def question(**changes) -> dict:
    """70B at 180 tokens/s for each user: 5.6 ms a token."""
    return {
        "name": "fast",
        "kind": "serving",
        "model": "meta-llama/Llama-3.3-70B-Instruct",
        "traffic": {
            "input_tokens": {"mean": 1000, "p95": 3000},
            "output_tokens": {"mean": 400, "p95": 1000},
            "requests_per_s": {"mean": 0.5, "peak": 1.0},
        },
        "slo": {"tokens_per_s_per_user": 180},
        "constraints": {"accelerators": {"allow": CHIPS}, "acquisition": ["rent", "own"]},
        **changes,
    }


def answer(spec: dict) -> dict:
    parsed = parse(spec)
    return recommend(parsed, take_snapshot(parsed))


@pytest.fixture(scope="module")
def fast(django_db_blocker, frozen) -> dict:
    with django_db_blocker.unblock():
        return answer(question())


def test_a_speed_that_only_a_draft_reaches_is_recommended_with_its_draft(fast):
    assert answer(question(speculative="no"))["recommendations"] == []
    first = fast["recommendations"][0]
    assert first["meets_slo"] and first["tpot_ms"]["p95"] <= 1000 / 180
    assert all(option["speculative"] for option in fast["recommendations"])
    assert first["speculative"]["meets_slo_without"] is False
    assert first["speculative"]["tpot_ms_p95_without"] > 1000 / 180


def test_its_command_starts_the_draft_that_was_estimated(fast):
    for option in fast["recommendations"]:
        if option["framework"] != "vllm":
            continue
        words, draft = shlex.split(option["launch"]["command"]), option["speculative"]
        config = json.loads(words[words.index("--speculative-config") + 1])
        assert config["num_speculative_tokens"] == draft["k"] and config["model"] == draft["draft"]


def test_it_shows_the_acceptance_its_source_and_what_a_drop_does(fast):
    draft = fast["recommendations"][0]["speculative"]
    lower = draft["lower_acceptance"]
    assert draft["source"] and draft["acceptance_low"] <= draft["acceptance"] <= draft["acceptance_high"]
    assert lower["acceptance"] == pytest.approx(0.8 * draft["acceptance"], rel=1e-3)
    assert lower["tpot_ms_p95"] > fast["recommendations"][0]["tpot_ms"]["p95"]
    assert lower["meets_slo"] == (lower["acceptance"] >= draft["break_even_acceptance"])
    assert 0 < draft["break_even_acceptance"] <= draft["acceptance"]
    assert any(draft["source"] in line for line in fast["recommendations"][0]["reasons"])
    assert f"{draft['acceptance']:.2f}" in fast["verdict"]


def test_the_verdict_states_both_probabilities_and_names_the_ties(fast):
    options = fast["recommendations"]
    first = options[0]
    assert f"meets the limits with {first['slo_probability']:.0%} probability" in fast["verdict"]
    assert f"is the best of the {len(options)} deployments with {first['first_probability']:.0%}" in fast["verdict"]
    others = {options[rank - 1]["accelerator_name"] for rank in first["tied_with"]} - {first["accelerator_name"]}
    assert ("within the margin of error" in fast["verdict"]) == bool(others)
    assert len(others) > 3 or all(name in fast["verdict"] for name in others)
    for option in options:
        for rank in option["tied_with"]:
            assert option["rank"] in options[rank - 1]["tied_with"]
    beaten = {b["rank"]: b["probability"] for b in first["beats"]}
    assert all((0.1 < p < 0.9) == (rank in first["tied_with"]) for rank, p in beaten.items())


def test_no_two_ranks_differ_only_in_an_inner_setting(fast):
    keys = ["accelerator", "provider", "instance", "region", "term", "framework", "framework_version", "quantization",
            "tp", "pp", "ep", "dp", "replicas"]  # fmt: skip
    seen = [tuple(option[key] for key in keys) for option in fast["recommendations"]]
    assert len(set(seen)) == len(seen)


def test_a_chip_below_the_confidence_names_the_one_that_it_reaches():
    refused = answer(question(slo={"tokens_per_s_per_user": 180, "confidence": 0.99}))
    (miss,) = [r for r in refused["rejected"] if r["accelerator"] == "mi300x"]
    assert miss["change"].keys() == {"slo.confidence"} and miss["reached"] < miss["limit"] == 0.99
    assert "99% are asked for" in miss["detail"]
    asked = question(slo={"tokens_per_s_per_user": 180, "confidence": miss["change"]["slo.confidence"]})
    options = answer(asked)["recommendations"]
    assert "mi300x" in [option["accelerator"] for option in options]
    assert all(option["slo_probability"] >= asked["slo"]["confidence"] for option in options)


@pytest.mark.parametrize("value", [0, 1, 1.5, "high"])
def test_a_confidence_outside_zero_to_one_is_refused_with_the_field(value):
    with pytest.raises(WorkloadError) as refused:
        parse(question(slo={"confidence": value}))
    assert [error["field"] for error in refused.value.errors] == ["slo.confidence"]
