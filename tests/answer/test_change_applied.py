"""The change that a rejection names is applied: the rejection disappears, or the next one has another reason."""

from typing import Any

import pytest

from advisor import workload
from advisor.inputs.from_catalog import take_snapshot
from catalog.models import Accelerator, Price
from tests.as_json import recommend
from tests.clocks import TODAY

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("frozen")]
CHIPS = ["h100-sxm", "mi300a", "trainium2", "gb10-dgx-spark", "v100-sxm2-16gb", "jetson-orin-nano-super-8gb", "l4",
         "inferentia1", "tpu-v3"]  # fmt: skip
QUESTION: dict[str, Any] = {
    "model": "Qwen/Qwen3-8B",
    "traffic": {"input_tokens": 1000, "output_tokens": 200, "requests_per_s": 2},
    "slo": {"ttft_ms_p95": 800, "tpot_ms_p95": 30},
    "constraints": {
        "accelerators": {"allow": CHIPS},
        "vendors": {"deny": ["amd"]},
        "acquisition": ["rent"],
        "formats": {"allow": ["fp8", "bf16", "fp8-w8a8"]},
    },
}


def sold(**values: Any) -> None:
    """A price of today for a whole host of AWS."""
    usual = {"provider": "aws", "accelerators": 16, "region": "us", "term": "on_demand", "kind": "vm"}
    Price.objects.create(**usual | values, as_of=TODAY, source="sample")


def asked(raw: dict[str, Any]) -> dict[str, Any]:
    spec = workload.parse(raw)
    return recommend(spec, take_snapshot(spec))


def only(change: dict[str, Any], *slugs: str) -> dict[str, Any]:
    """The question with the change, for these chips."""
    return workload.with_changes(QUESTION, {**change, "constraints.accelerators.allow": list(slugs)})


@pytest.fixture(scope="module")
def answer(frozen: None, django_db_blocker: Any) -> dict[str, Any]:
    with django_db_blocker.unblock():
        return asked(QUESTION)


def rejections(answer: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {item["accelerator"]: item for item in answer["rejected"]}


def test_each_kind_of_rejection_is_met_by_the_change_that_it_names(answer: dict[str, Any]) -> None:
    before = rejections(answer)
    tried = [before[slug] for slug in CHIPS if slug in before and before[slug]["change"]]
    assert len({item["reason"] for item in tried}) >= 3
    for item in tried:
        after = asked(only(item["change"], item["accelerator"]))
        left = rejections(after).get(item["accelerator"])
        assert left is None or (left["reason"], left["change"]) != (item["reason"], item["change"]), item
        assert left is None or left["change"] or left["dead_end"]


def test_a_dead_end_has_its_reason(answer: dict[str, Any]) -> None:
    before = rejections(answer)
    assert before["inferentia1"]["dead_end"] == "the current Neuron serving libraries need Inferentia2 or later"
    assert (
        before["tpu-v3"]["dead_end"] == "current TPU serving frameworks start at v4" and not before["tpu-v3"]["change"]
    )


def test_up_to_the_price_that_is_named_the_chip_is_first_and_above_it_only_where_costs_are_tied() -> None:
    slug, field = "mi300a", "usd_per_accelerator_hour.mi300a"
    raw = only({"constraints.vendors.deny": []}, "h100-sxm", slug)
    named = rejections(asked(raw))[slug]["change"]
    assert list(named) == [field]

    def at(factor: float) -> tuple[str, float, float]:
        """The first chip, and the lowest cost of each chip, USD per month."""
        found = asked(workload.with_changes(raw, {field: named[field] * factor}))["recommendations"]
        own, other = (
            min(r["usd_per_month"] for r in found if (r["provider"] == "assumed") is assumed)
            for assumed in (True, False)
        )
        return found[0]["accelerator"], own, other

    first, own, other = at(1.0)
    assert first == slug and 0.98 * other < own <= other
    _, own, other = at(1.05)
    assert own > other  # as good as tied
    assert at(1.4)[0] == "h100-sxm"


def test_a_capacity_block_is_suggested_where_it_is_cheaper_than_what_is_rented_by_the_hour() -> None:
    sold(instance="trn1.32xlarge", accelerator=Accelerator.objects.get(slug="trainium1"), usd_per_hour=21.5)
    sold(
        instance="trn2.48xlarge (capacity block)", accelerator=Accelerator.objects.get(slug="trainium2"),
        usd_per_hour=35.76, term="capacity_block", kind="capacity_block",
    )  # fmt: skip
    raw = workload.with_changes(QUESTION, {
        "model": "meta-llama/Llama-3.3-70B-Instruct",
        "traffic": {"input_tokens": 2000, "output_tokens": 300, "requests_per_s": {"mean": 4, "peak": 12}},
        "slo": {"ttft_ms_p95": 3000, "tpot_ms_p95": 60},
        "constraints": {"accelerators": {"allow": ["trainium1", "trainium2"]}, "acquisition": ["rent"]},
    })  # fmt: skip
    answer = asked(raw)
    booked = answer["bookable"][0]
    assert booked == min(answer["bookable"], key=lambda item: item["usd_per_month"])
    assert answer["recommendations"][0]["accelerator"] == "trainium1" and booked["accelerator"] == "trainium2"
    assert booked["saving_fraction"] > 0.5 and "at most 182 days" in booked["booking"]
    assert booked["change"] == rejections(answer)["trainium2"]["change"]
    ranked = asked(workload.with_changes(raw, booked["change"]))["recommendations"]
    assert (ranked[0]["accelerator"], ranked[0]["term"]) == ("trainium2", "capacity_block")
    assert ranked[0]["usd_per_month"] == pytest.approx(booked["usd_per_month"], rel=1e-3)
