"""The scorecard's page, files and REST: narrowed and sorted by the address; and what answers show of it."""

import json

import pytest

from advisor.engine.estimate.simulated import Estimate
from advisor.fidelity import stored
from advisor.fidelity.scores import scorecard, scoring
from catalog.loading import scored as files
from catalog.models import Scorecard, ScoredRow
from tests import sample_advice
from tests.laboratory import peers, score_files
from tests.measured_samples import CATALOG, row
from tests.pages import every_section

pytestmark = pytest.mark.django_db
VALIDATION = {"errors": {"held out": {"one accelerator": {"tpot": 0.11, "throughput": 0.2}}}, "intervals": {}}


@pytest.fixture
def card(tmp_path):
    """Five rows on two chips: TPOT 20 % off on the H100, 40 % on the B200; one is disputed."""
    rows = [
        row(id="a:tpot"),
        row(id="a:ttft", metric="ttft_ms_mean", value="200"),
        row(id="b:tpot", value="20", accelerator_slug="b200"),
        row(id="c:tpot", value="20", accelerator_slug="b200", concurrency_or_batch="32", source_key="serving_dated"),
        row(id="odd:tpot", value="1", concurrency_or_batch="8"),
        row(id="t", task="training"),
    ]
    estimate = Estimate(fits=1.0, tpot_mean_s=0.012, ttft_mean_s=0.1)
    results = scoring.predict(rows, CATALOG, lambda cases: [estimate for _ in cases], {"h100-sxm": "hopper"})
    score_files.write(results, {"odd:tpot": "contradicts itself"}, VALIDATION, "abc", tmp_path)
    files.load(tmp_path)


def text_of(client, address):
    return every_section(client, address)


def test_without_a_scorecard_the_page_says_what_to_do(client):
    assert "load_catalog" in text_of(client, "/fidelity")
    assert client.get("/api/v1/fidelity").status_code == 404


def test_the_page_begins_with_the_rows_like_the_question(client, card):
    """Chip, model and framework together, then less of them; what nobody measured says so."""
    text = text_of(client, "/fidelity?for_accelerator=b200&for_framework=vllm&for_model=none/such")
    assert text.index("For your question") < text.index("Targets")
    first = text[text.index("b200, none/such, vllm") :]
    assert "nobody measured this" in first[: first.index("b200, vllm")]
    assert "40" in first[first.index("b200, vllm") : first.index("Targets")]
    assert "For your question" in text_of(client, "/fidelity")


def test_the_page_says_which_targets_are_missed(client, card):
    text = text_of(client, "/fidelity")
    assert "targets are missed" in text
    assert "TPOT of deployments" in text and "missed" in text
    for said in ("5 measured figures", 'class="chart scatter"', "LLMServingSim", "disputed: contradicts itself"):
        assert said in text, said
    assert "training is not modeled" in text and "BLIS" in text
    assert 'aria-current="page">Accuracy' in text


@pytest.fixture
def other_tool(card, monkeypatch, tmp_path):
    """A tool that answered 9 ms to a:tpot (measured 10, predicted 12) and has no answer to b:tpot."""
    asked = {row.key: peers.question_of(row) for row in ScoredRow.objects.all()}
    answers = (
        peers.Answer(key="a:tpot", question=asked["a:tpot"], tool="one", predicted=9.0, note=""),
        peers.Answer(key="b:tpot", question=asked["b:tpot"], tool="one", predicted=None, note="no such chip"),
    )
    tool = peers.Tool(slug="one", name="Tool One", method="", data="")
    recorded = peers.Recorded(asked_on="2026-11-25", tools=(tool,), not_asked=(), answers=answers)
    head, lines = Scorecard.objects.get(), [scorecard.line_of(row) for row in ScoredRow.objects.all()]
    monkeypatch.setattr(stored, "COMPARED", tmp_path / "compared.yaml")
    peers.write(head.digest, peers.shown(recorded, peers.paired(lines, recorded)), stored.COMPARED)
    stored.peers_on_the_same_rows.cache_clear()
    yield
    stored.peers_on_the_same_rows.cache_clear()


def test_other_tools_are_shown_on_the_rows_that_they_answered(client, other_tool):
    text = text_of(client, "/fidelity")
    assert "Other tools on the same rows" in text
    row_of_tool = text.split('<th scope="row">Tool One</th>', 1)[1].split("</tr>")[0]
    assert row_of_tool.startswith('<td>TPOT</td><td class="num">1</td><td class="num">10.0% / 20.0%</td>')
    assert row_of_tool.endswith('<td class="num">-10.0% / 20.0%</td>')
    (entry,) = client.get("/api/v1/fidelity").json()["peers_on_the_same_rows"]
    assert (entry["tool"], entry["figure"], entry["n"], entry["asked_on"]) == ("Tool One", "TPOT", 1, "2026-11-25")
    assert entry["peer"]["bias"] == pytest.approx(-0.1) and entry["assay"]["bias"] == pytest.approx(0.2)


def test_the_track_record_is_shown_as_it_is_stored(client, card):
    record = client.get("/api/v1/fidelity").json()["track_record"]
    text = text_of(client, "/fidelity")
    assert '<h2 id="track-record-title">Track record</h2>' in text
    for knowledge, methods in record["methods"].items():
        for method in ("rule", "cheapest predicted", "always B200"):
            assert f"{methods[method]['all']['met'] * 100:.1f}%" in text, (knowledge, method)
    for tested in record["one_load_test"].values():
        before, after = (f"{tested[when]['extra_mean'] * 100:.1f}%" for when in ("before", "after"))
        assert f"lowers the mean extra cost from {before} to {after}" in text


def test_without_a_track_record_the_page_has_none(client, card, monkeypatch):
    monkeypatch.setattr(stored, "track_record", dict)
    assert "Track record" not in text_of(client, "/fidelity")


def test_answers_to_rows_of_another_scorecard_are_not_shown(client, card):
    assert "Other tools on the same rows" not in text_of(client, "/fidelity")
    assert client.get("/api/v1/fidelity").json()["peers_on_the_same_rows"] == []


@pytest.mark.parametrize(
    ("query", "keys"),
    [
        ("accelerator=b200", {"b:tpot", "c:tpot"}),
        ("metric=ttft_ms_mean", {"a:ttft"}),
        ("source=serving_dated", {"c:tpot"}),
        ("disputed=only", {"odd:tpot"}),
        ("disputed=without&accelerator=h100-sxm", {"a:tpot", "a:ttft"}),
        ("id=a:tpot,c:tpot,nothing", {"a:tpot", "c:tpot"}),
    ],
)
def test_page_files_and_rest_are_narrowed_by_one_address(client, card, query, keys):
    assert f"{len(keys)} of 5 rows" in text_of(client, f"/fidelity?{query}")
    saved = json.loads(text_of(client, f"/fidelity?{query}&format=json"))
    assert {found["id"] for found in saved["results"]} == keys and saved["count"] == len(keys)
    lines = text_of(client, f"/fidelity?{query}&format=csv").splitlines()
    assert lines[0].startswith("id,metric,measured,predicted") and len(lines) == 1 + len(keys)
    rest = client.get(f"/api/v1/fidelity/rows?{query}").json()
    assert {found["id"] for found in rest["results"]} == keys
    assert client.get(f"/api/v1/fidelity?{query}").json()["overall"]["n"] == len(keys)


def test_what_nothing_fits_says_so(client, card):
    assert "No rows match" in text_of(client, "/fidelity?accelerator=b200&metric=ttft_ms_mean")


def test_an_unknown_value_is_told_beside_its_field_and_refused_over_rest(client, card):
    text = text_of(client, "/fidelity?accelerator=nope")
    assert "nope is not one of the available choices" in text and "5 of 5 rows" in text
    refused = client.get("/api/v1/fidelity?accelerator=nope")
    assert refused.status_code == 422 and refused.json()["errors"][0]["field"] == "accelerator"


def test_groups_are_sorted_by_the_address(client, card):
    groups = client.get("/api/v1/fidelity?disputed=without&sort=-median_ape").json()["groups"]["accelerator"]
    assert [group["name"] for group in groups] == ["b200", "h100-sxm"]
    groups = client.get("/api/v1/fidelity?disputed=without&sort=median_ape").json()["groups"]["accelerator"]
    assert [group["name"] for group in groups] == ["h100-sxm", "b200"]
    text = text_of(client, "/fidelity?sort=-median_ape")
    assert 'aria-sort="descending"><a href="?sort=median_ape#by-metric"' in text


def test_a_target_needs_the_unseen_error_within_its_limit_too(client, card):
    targets = {target["name"]: target for target in client.get("/api/v1/fidelity").json()["targets"]}
    assert targets["TPOT, chip held out"]["met"] is True
    assert targets["Throughput, chip held out"]["met"] is False
    assert targets["Wrong out-of-memory predictions"]["met"] is None
    assert targets["TPOT of deployments"]["validated"] == 0.11


def test_an_option_shows_the_measured_rows_nearest_to_it(client, card):
    advice = sample_advice.advice()
    text = text_of(client, f"/advice/{advice.pk}/options/1")
    assert "Nearest measurements" in text and "No similar measurement exists" in text
    assert 'href="/fidelity?id=' in text


def test_an_option_of_a_model_whose_layers_are_unknown_is_still_shown(client, card):
    from catalog.models import ServedModel

    name = "meta-llama/Llama-3.3-70B-Instruct"
    ServedModel.objects.create(slug="m", hf_id=name, family="f", native_dtype="bf16", shape={}, as_of="2026-01-01")
    assert "Nearest measurements" in text_of(client, f"/advice/{sample_advice.advice().pk}/options/1")


def test_an_option_says_when_there_is_no_scorecard(client):
    assert "No scorecard is loaded" in text_of(client, f"/advice/{sample_advice.advice().pk}/options/1")


def test_the_answer_shows_the_warnings_of_each_recommendation(client):
    answer = sample_advice.result()
    answer["recommendations"][0]["warnings"] = ["its fabric is thin", "weights on one socket"]
    answer["recommendations"][1]["warnings"] = []
    text = text_of(client, f"/advice/{sample_advice.advice(answer).pk}")
    assert "2 warnings" in text and "its fabric is thin" in text
    assert text.count("weights on one socket") == 1  # in the ranking
