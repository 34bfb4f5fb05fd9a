"""How to run an option: formats by hardware, the JSON of an answer, Markdown and page."""

import json
import xml.etree.ElementTree as ElementTree
from typing import Any

import pytest
from django.test import Client

from advisor import report, workload
from advisor.inputs.from_catalog import take_snapshot
from advisor.result import Answer, Option
from advisor.web.charts import tuning as tuning_charts
from advisor.web.interactive import chart_data
from tests.as_json import recommend
from tests.pages import every_section
from tests.sample_advice import advice, result

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("frozen")]
Json = dict[str, Any]
CHAT = {"input_tokens": {"mean": 2000, "p95": 6000}, "output_tokens": {"mean": 300, "p95": 800}}


def answered(model: str, chip: str, requests_per_s: float, quality: str = "near_lossless", **more: Any) -> Json:
    spec = workload.parse(
        {
            "name": "golden",
            "model": model,
            "traffic": CHAT | {"requests_per_s": requests_per_s, "prefix_cache_hit_rate": 0.3},
            "constraints": {"accelerators": {"allow": [chip]}, "quality": quality, "acquisition": ["rent"]},
            **more,
        }
    )
    return recommend(spec, take_snapshot(spec))


def first(answer: Json) -> Json:
    found: Json = answer["recommendations"][0]["tuning"]
    return found


def named(rows: list[Json], key: str, value: str) -> Json:
    return next(row for row in rows if row[key] == value)


@pytest.fixture(scope="module")
def on_a100(django_db_setup: None, django_db_blocker: Any, frozen: None) -> Json:
    with django_db_blocker.unblock():
        return answered("meta-llama/Llama-3.3-70B-Instruct", "a100-80gb-sxm", 8, slo={"tpot_ms_p95": 50})


@pytest.fixture(scope="module")
def on_a_card(django_db_setup: None, django_db_blocker: Any, frozen: None) -> Json:
    with django_db_blocker.unblock():
        return answered("Qwen/Qwen2.5-14B", "rtx-4090", 0.2, "any", slo={"tokens_per_s_per_user": 15})


def test_an_a100_is_advised_eight_bit_integers_for_weights(on_a100: Json) -> None:
    own = named(first(on_a100)["formats"], "slug", "int8")
    assert own["state"] in ("plan", "advised") and own["native"]
    floats = named(first(on_a100)["formats"], "slug", "fp8")  # runs weight-only, as documented
    assert floats["state"] == "possible" and not floats["native"] and floats["gain_ratio"] < 1.0
    assert "dequantized to 16 bits" in floats["why"]


def test_an_integer_cache_names_the_framework_that_keeps_it(on_a100: Json, on_a_card: Json) -> None:
    """Where the plan's framework cannot, the page says who can; where none can with the plan's weights, it says so."""
    kept = named(first(on_a_card)["cache_formats"], "dtype", "int8")
    assert kept["gain_ratio"] > 1.0 and kept["framework"].startswith("LMDeploy")
    assert "of the plan" in kept["why"] or "the plan's tokens/s" in kept["why"]
    none = named(first(on_a100)["cache_formats"], "dtype", "int8")
    assert none["state"] == "cannot" and "with the plan's weights" in none["why"]


def test_one_card_for_a_few_users_is_advised_four_bits_with_the_warning(on_a_card: Json) -> None:
    found = first(on_a_card)
    (own,) = [f for f in found["formats"] if f["state"] == "advised"] or [
        f for f in found["formats"] if f["state"] == "plan"
    ]
    assert 4 <= own["bits_per_weight"] < 5
    assert "arXiv:2501.03035" in own["warning"] and own["check"] and own["effort"]


def test_a_cpu_is_planned_with_the_format_that_serves_most_and_gguf_stands_beside() -> None:
    traffic = {"input_tokens": 500, "output_tokens": 150, "requests_per_s": 0.05}
    found = first(answered("meta-llama/Llama-3.1-8B", "xeon-8480plus", 1, "any", traffic=traffic))
    own = next(f for f in found["formats"] if f["state"] == "plan")
    assert all(f["gain_ratio"] <= own["gain_ratio"] for f in found["formats"] if f["state"] == "possible")
    gguf = named(found["formats"], "slug", "gguf-q4-k-m")
    assert gguf["framework"].startswith("llama.cpp") and gguf["gain_ratio"] > 0


def test_another_chip_gives_another_waterfall(on_a100: Json) -> None:
    theirs = first(answered("meta-llama/Llama-3.3-70B-Instruct", "h100-sxm", 8, slo={"tpot_ms_p95": 50}))["plan"]
    assert theirs["gain_ratio"] != pytest.approx(first(on_a100)["plan"]["gain_ratio"], rel=0.05)


def test_frameworks_stand_side_by_side_at_named_versions(on_a100: Json) -> None:
    rows = first(on_a100)["frameworks"]
    assert len([row for row in rows if row["output_tokens_per_s_per_accelerator"]]) >= 3
    assert all(row["version"] and row["effort"] and row["maturity"] for row in rows)
    assert sum(row["best"] for row in rows) == 1


def test_the_drafts_of_the_catalog_name_their_source(on_a100: Json) -> None:
    step = named(first(on_a100)["plan"]["steps"], "technique", "speculative_decoding")
    assert step["state"] in ("used", "possible")
    assert "batch size of about" in step["because"] or "every batch size" in step["because"]
    assert "arXiv" in step["because"] or "model card" in step["because"]


def test_the_answer_is_plain_json_and_embeddings_have_pitfalls_alone(on_a100: Json) -> None:
    assert json.loads(json.dumps(on_a100)) == on_a100
    traffic = {"input_tokens": 300, "requests_per_s": 20}
    vectors = answered("BAAI/bge-m3", "l4", 1, kind="embedding", traffic=traffic)["recommendations"][0]["tuning"]
    assert vectors["plan"] is None and vectors["formats"] == [] and vectors["pitfalls"]


def test_markdown_tells_the_first_plans_way(on_a100: Json) -> None:
    text = report.markdown(Answer.read(on_a100))
    for title in ("### Optimization plan", "### Weight formats", "### Frameworks", "### Pitfalls"):
        assert title in text


def test_the_pictures_are_well_formed_and_the_page_shows_them(on_a100: Json, client: Client) -> None:
    option = on_a100["recommendations"][0]
    tuning = Option.read(option).tuning
    assert tuning and tuning.plan
    bars = [n for n in ElementTree.fromstring(chart_data.techniques(tuning.plan).svg).iter() if n.tag == "rect"]
    assert len(bars) == len(
        [s for s in option["tuning"]["plan"]["steps"] if s["state"] in ("base", "used", "possible")]
    )
    picture = ElementTree.fromstring(chart_data.roofline(tuning.roofline).svg)
    assert len([n for n in picture.iter() if n.tag == "g" and n.find("circle") is not None]) == 2
    page = every_section(client, f"/advice/{advice({**result(), **on_a100}).pk}/options/1")
    assert "Optimization plan" in page and "Pitfalls" in page and "KV cache format" in page


def test_a_finalist_with_drafts_is_an_option_of_its_own_beside_the_plan(client: Client) -> None:
    """A published head of this model: its acceptance, its source and the option that starts it."""
    chat = {"task": "chat", "slo": {"tpot_ms_p95": 50}, "variants": "show"}
    answer = answered("meta-llama/Llama-3.3-70B-Instruct", "h200-sxm", 2, **chat)
    plan = answer["recommendations"][0]
    assert plan["speculative"] is None and plan["disaggregated"] is None
    (other,) = plan["variants"]
    assert other["speculative"]["method"] == "eagle" and "eagle3" in other["speculative"]["draft"]
    assert 0 < other["speculative"]["acceptance"] < 1 and other["speculative"]["source"]
    assert other["tpot_ms"]["p95"] < plan["tpot_ms"]["p95"] and other["cost_ratio"] <= 1
    assert "speculat" in other["launch"]["command"] + str(other["launch"]["files"])
    assert any("acceptance rate was published for" in warning for warning in other["warnings"])
    assert "### Variants, simulated" in report.markdown(Answer.read(answer))
    page = every_section(client, f"/advice/{advice({**result(), **answer}).pk}/options/1")
    assert "Simulated variants" in page
    adopted = answered("meta-llama/Llama-3.3-70B-Instruct", "h200-sxm", 2, **chat | {"variants": "adopt"})
    assert adopted["recommendations"][0]["speculative"]["method"] == "eagle"


def test_an_answer_of_an_earlier_version_has_no_such_section() -> None:
    shown = tuning_charts.page(Option.read(result()["recommendations"][0]))
    assert (shown["tuning"], shown["formats"]) == (None, [])
