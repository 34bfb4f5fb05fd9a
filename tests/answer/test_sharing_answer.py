"""Parts of a card, adapters and packed models on every way in: workload file, answer, text, page; and hostile input."""

import json
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from advisor import advise, report
from advisor.inputs.from_catalog import take_snapshot
from advisor.inputs.to_engine import partitions_of
from advisor.result import Answer, SharingWay
from advisor.workload.schema import parse
from advisor.workload.text import WorkloadError
from catalog.loading.fixtures import FixtureError, accelerator
from tests import sample_advice
from tests.as_json import recommend
from tests.conftest import SHIPPED, load_once
from tests.pages import every_section

FILES = Path(__file__).resolve().parents[2] / "fixtures"
TRAFFIC = {"input_tokens": 800, "output_tokens": 200, "requests_per_s": {"mean": 1, "peak": 2}}
ASKED: dict[str, Any] = {
    "name": "tuned",
    "model": "meta-llama/Llama-3.1-8B",
    "traffic": TRAFFIC,
    "slo": {"ttft_ms_p95": 2000, "tpot_ms_p95": 80},
    "constraints": {
        "acquisition": ["rent"],
        "accelerators": {"allow": ["h100-sxm", "l4"]},
        "frameworks": {"allow": ["vllm"]},
    },
}


def answered(**changes: Any) -> dict[str, Any]:
    spec = parse({**ASKED, **changes})
    return recommend(spec, take_snapshot(spec))


@pytest.fixture
def catalog(db: None) -> None:
    load_once(SHIPPED)


def limits(**changes: Any) -> dict[str, Any]:
    return {**ASKED["constraints"], **changes}


@pytest.mark.usefixtures("catalog")
def test_required_partitions_are_ranked_and_the_rest_is_refused_with_the_reason() -> None:
    found = answered(constraints=limits(partitions="required"), variants="no")  # cards are compared without drafts
    first = found["recommendations"][0]
    assert first["accelerator"] == "h100-sxm" and first["partition"]["way"] == "MIG"
    assert first["accelerator_count"] == first["replicas"] * first["tp"] * first["pp"] * first["dp"]
    assert first["memory"]["weights_gib"] + first["memory"]["kv_gib"] < first["partition"]["gib"]
    assert "nvidia-smi mig -cgi" in first["launch"]["files"]["partition.sh"]
    (l4,) = [r for r in found["rejected"] if r["accelerator"] == "l4"]
    assert "no hardware partitions" in l4["detail"]
    whole, *parts = found["sharing"]["ways"]
    assert whole["kind"] == "whole" and {p["kind"] for p in parts} == {"hardware", "time slices"}
    for render in (report.table, report.markdown):
        assert found["sharing"]["said"] in render(Answer.read(found))


@pytest.mark.usefixtures("catalog")
def test_adapters_are_told_with_their_bytes_and_the_price_of_merged_copies() -> None:
    found = answered(adapters={"count": 20, "active": 4})
    told, first = found["adapters"], found["recommendations"][0]
    assert told["mib_each_per_accelerator"] == 80 and told["resident_gib_per_accelerator"] == 4 * 80 / 1024
    assert first["memory"]["adapters_gib"] == told["resident_gib_per_accelerator"]
    assert told["merged"]["deployments"] == 20
    assert told["merged"]["usd_per_month"] > first["usd_per_month"]
    assert 0 < told["decode_step_fraction"] < 0.5
    assert found["hosted"] == []  # hosted endpoints serve the base model alone
    assert any("adapters" in w for w in first["warnings"])
    assert told["said"] in report.table(Answer.read(found))


@pytest.mark.usefixtures("catalog")
def test_no_adapters_is_the_same_as_none_at_all() -> None:
    none, plain = answered(adapters={"count": 0}), answered()
    assert "adapters" not in none and none["recommendations"] == plain["recommendations"]


@pytest.mark.usefixtures("catalog")
def test_a_model_whose_adapters_are_not_modelled_has_no_answer_and_the_reason() -> None:
    found = answered(model="deepseek-ai/DeepSeek-R1", adapters={"count": 2})
    assert not found["recommendations"]
    (h100,) = [r for r in found["rejected"] if r["accelerator"] == "h100-sxm"]
    assert h100["reason"] == "unsupported" and "latent" in h100["detail"]


@pytest.mark.usefixtures("catalog")
def test_small_models_are_packed_and_the_page_shows_which_is_where(client: Client) -> None:
    parts = [
        {**ASKED, "name": name, "constraints": limits(accelerators={"allow": ["h100-sxm"]})} for name in ("one", "two")
    ]
    spec = parse({"name": "both", "kind": "portfolio", "workloads": parts})
    found = recommend(spec, take_snapshot(spec))
    told = found["portfolio"]["packed"]
    assert told["processes"]["accelerator_count"] == told["instances"]["accelerator_count"] == 1
    assert [t["workload"] for t in told["processes"]["cards"][0]["tenants"]] == ["one", "two"]
    assert told["processes"]["usd_per_month"] < found["portfolio"]["alone_usd_per_month"]
    assert told["said"] in found["verdict"]
    advice = advise.request(spec)
    advice.state, advice.result = "done", found
    advice.save()
    text = every_section(client, f"/advice/{advice.pk}")
    assert "Sharing GPUs" in text and "--gpu-memory-utilization" in text and "In hardware instances" in text
    assert "processes, card 1: one" in report.table(Answer.read(found))


@pytest.mark.django_db
def test_the_page_shows_parts_of_a_card_and_adapters(client: Client) -> None:
    answer = sample_advice.result()
    way = {
        **dict.fromkeys(SharingWay.model_fields),
        "way": "2 x <3g>", "kind": "hardware", "isolation": "apart", "meets_slo": False, "reason": "too slow",
    }  # fmt: skip
    adapters = {"count": 50, "rank": 16, "served_rank": 16, "active": 8, "targets": "all", "merged": None}
    answer["sharing"] = {"accelerator": "h", "accelerator_name": "H", "said": "Isolation costs 8%", "ways": [way]}
    answer["adapters"] = {**adapters, "said": "8 of 50 adapters"}
    text = every_section(client, f"/advice/{sample_advice.advice(answer).pk}")
    assert "Isolation costs 8%" in text and "8 of 50 adapters" in text and "too slow" in text
    assert "2 x &lt;3g&gt;" in text


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"adapters": {"count": -1}}, "adapters.count"),
        ({"adapters": {"count": 10**9}}, "adapters.count"),
        ({"adapters": {"count": 2.5}}, "adapters.count"),
        ({"adapters": {"count": 4, "rank": 0}}, "adapters.rank"),
        ({"adapters": {"count": 4, "rank": float("nan")}}, "adapters.rank"),
        ({"adapters": {"count": 4, "active": 5}}, "adapters.active"),
        ({"adapters": {"count": 4, "targets": "mlp; rm"}}, "adapters.targets"),
        ({"adapters": {"count": 4, "path": "/etc/passwd"}}, "adapters.path"),
        ({"adapters": {"rank": 8}}, "adapters.count"),
        ({"adapters": "many"}, "adapters"),
        ({"adapters": {"count": 4}, "kind": "embedding"}, "adapters"),
        ({"constraints": {"partitions": "maybe"}}, "constraints.partitions"),
        ({"constraints": {"partitions": ["yes"]}}, "constraints.partitions"),
    ],
)
def test_what_cannot_be_is_refused_at_its_field(changes: dict[str, Any], field: str) -> None:
    raw = {**ASKED, **changes}
    if changes.get("kind") == "embedding":
        raw["traffic"] = {k: v for k, v in TRAFFIC.items() if k != "output_tokens"}
    with pytest.raises(WorkloadError) as refused:
        parse(raw)
    assert field in [item["field"] for item in refused.value.errors]


def test_yes_and_no_of_yaml_are_words() -> None:
    assert parse({**ASKED, "constraints": {"partitions": True}})["constraints"]["partitions"] == "yes"
    assert parse({**ASKED, "constraints": {"partitions": False}})["constraints"]["partitions"] == "no"
    assert parse(ASKED)["constraints"]["partitions"] == "auto"


CUT = [path for path in sorted((FILES / "accelerators").glob("*.yaml")) if "\npartitions:" in path.read_text()]


@pytest.mark.parametrize("path", CUT, ids=[path.stem for path in CUT])
def test_profiles_of_a_chip_never_hold_more_than_the_chip(path: Path) -> None:
    row = accelerator(path)
    assert row["sources"]["partitions"]["source"]
    for given, p in zip(row["partitions"]["profiles"], partitions_of(row), strict=True):
        assert given["gib"] * p.instances <= row["memory_gib"]
        assert p.cores * p.instances <= row["cores"]
        assert p.bandwidth_fraction * p.instances <= 1 and p.compute_fraction * p.instances <= 1


def test_there_are_profiles_of_the_chips_that_the_guides_name() -> None:
    named = {"a30", "a100-80gb-sxm", "h100-sxm", "h100-nvl", "h200-sxm", "gh200-96gb", "b200", "mi300x"}
    assert named | {"rtx-pro-6000-blackwell"} <= {path.stem for path in CUT}
    assert not {"l4", "gaudi3", "arc-pro-b60"} & {path.stem for path in CUT}


def test_a_profile_that_takes_more_slices_than_there_are_is_refused(tmp_path: Path) -> None:
    text = (FILES / "accelerators" / "h100-sxm.yaml").read_text()
    wrong = tmp_path / "h100-sxm.yaml"
    wrong.write_text(text.replace("instances: 7", "instances: 8"))
    with pytest.raises(FixtureError, match="more compute_slices than the chip has"):
        accelerator(wrong)


def test_a_snapshot_from_before_partitions_is_still_read() -> None:
    row = accelerator(FILES / "accelerators" / "h100-sxm.yaml")
    del row["partitions"]
    assert partitions_of(json.loads(json.dumps(row, default=str))) == ()
