"""What-if: state in the address, errors beside their controls, without scripts, and the full question."""

import dataclasses
import json
from typing import Any

import pytest
from django.test import Client

from advisor.models import Advice
from advisor.web.what_if import rows, views
from tests import links, sample_advice

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("frozen")]
ACCEPT = {"headers": {"accept": "application/json"}}


@pytest.fixture
def advice() -> Advice:
    made = sample_advice.advice()
    spec = {**made.workload.spec, "variants": "no"}  # without drafts it ranks faster
    spec["constraints"] = {**spec["constraints"], "accelerators": {"allow": ["h100-sxm", "mi300x"], "deny": []}}
    type(made.workload).objects.filter(pk=made.workload.pk).update(spec=spec)
    return Advice.objects.get(pk=made.pk)


def test_the_answer_has_a_form_with_the_values_of_the_question(client: Client, advice: Advice) -> None:
    text = client.get(f"/advice/{advice.pk}").content.decode()
    assert f'action="/advice/{advice.pk}/what-if"' in text and 'method="get"' in text
    limit = advice.workload.spec["slo"]["ttft_ms_p95"]
    assert f'name="ttft" type="text" value="{limit:g}"' in text


def test_it_works_without_a_script_and_the_address_holds_the_state(client: Client, advice: Advice) -> None:
    page = client.get(f"/advice/{advice.pk}/what-if?vendor=amd&load=2")
    text = page.content.decode()
    assert page.status_code == 200 and "<html" in text
    assert 'name="load" type="text" value="2"' in text
    assert 'value="amd" checked' in text
    assert "vendors amd (was not set)" in text
    assert "MI300X" in text and "analytical estimate, not simulated" in text


def test_a_script_gets_a_fragment_and_going_back_a_page(client: Client, advice: Advice) -> None:
    url = f"/advice/{advice.pk}/what-if?vendor=amd"
    assert "<html" not in client.get(url, headers={"hx-request": "true"}).content.decode()
    again = client.get(url, headers={"hx-request": "true", "hx-history-restore-request": "true"})
    assert "<html" in again.content.decode()


@pytest.mark.parametrize(
    ("query", "control", "said"),
    [
        ("budget=lots", "budget", "lots is not a number"),
        ("budget=-1", "budget", "must be greater than 0"),
        ("max_chips=1.5", "max_chips", "whole number"),
        ("load=0.00001", "load", "out of range"),
        ("objective=fun", "objective", "not a valid choice"),
        ("region=atlantis", "region", "atlantis is not in the catalog"),
        ("chips=h100-xyz", "chips", "h100-xyz is not in the catalog"),
    ],
)
def test_an_error_stands_beside_its_control(
    client: Client, advice: Advice, query: str, control: str, said: str
) -> None:
    page = client.get(f"/advice/{advice.pk}/what-if?{query}")
    after = page.content.decode().split(f'id="what-if-{control}-error">')[1]
    assert page.status_code == 422 and said in after.split("</p>")[0]
    problem = client.get(f"/advice/{advice.pk}/what-if?{query}", **ACCEPT)
    assert (problem.status_code, problem["Content-Type"]) == (422, "application/problem+json")
    assert [e["field"] for e in problem.json()["errors"]] == [control]


def test_json_has_the_ranking_and_how_it_moved(client: Client, advice: Advice) -> None:
    data = client.get(f"/advice/{advice.pk}/what-if?load=3", **ACCEPT).json()
    assert data["ranking"]["mark"] == "analytical estimate, not simulated"
    assert data["compared"] and all(row["rank_before"] for row in data["compared"])
    assert any(row["cost_difference_fraction"] > 0 for row in data["compared"])


def test_the_changed_question_runs_in_full_and_keeps_its_lineage(
    client: Client, advice: Advice, woken: list[str]
) -> None:
    moved = client.post(f"/advice/{advice.pk}/what-if", {"vendor": "amd", "budget": "50000"})
    child = Advice.objects.exclude(pk=advice.pk).get()
    assert moved.status_code == 302 and moved["Location"].endswith(f"run={child.pk}")
    assert child.supersedes_id == advice.pk
    assert child.workload.spec["constraints"]["vendors"]["allow"] == ["amd"]
    assert child.workload.spec["constraints"]["max_usd_per_month"] == 50000
    waiting = client.get(moved["Location"]).content.decode()
    assert 'hx-trigger="every 2s"' in waiting and f"/advice/{child.pk}" in waiting
    parent = client.get(f"/advice/{advice.pk}").content.decode()
    assert "Vendors: not set → amd" in parent and "A newer answer" not in parent
    Advice.objects.filter(pk=child.pk).update(state="cancelled")
    assert "Changed from" in client.get(f"/advice/{child.pk}").content.decode()


def test_a_saved_what_if_has_a_name_and_is_found_again_beside_the_original(
    client: Client, advice: Advice, woken: list[str]
) -> None:
    client.post(f"/advice/{advice.pk}/what-if", {"load": "2", "name": "Twice the load"})
    child = Advice.objects.exclude(pk=advice.pk).get()
    assert child.workload.name == child.workload.spec["name"] == "Twice the load"
    text = client.get(f"/advice/{advice.pk}/what-if").content.decode()
    assert "Saved what-ifs of this answer" in text and f'name="item" value="{child.pk}"' in text
    assert "Twice the load" in client.get("/advice?q=twice").content.decode()


def test_every_row_has_the_figures_of_one_source(client: Client, advice: Advice) -> None:
    estimated = client.get(f"/advice/{advice.pk}/what-if?load=2").context["rows"]
    assert estimated and {row.option.mark for row in estimated} == {"analytical estimate, not simulated"}
    for row in client.get(f"/advice/{advice.pk}/what-if").context["rows"]:
        full = next(o for o in sample_advice.result()["recommendations"] if o["label"] == row.option.label)
        assert row.option.usd_per_month == full["usd_per_month"] and row.option.watts == full["watts"]
        assert row.option.ttft_ms == full["ttft_ms"]["p95"]
        assert row.moved == 0 and not row.more_fraction, "nothing changed"


def test_it_says_from_what_to_what_the_winner_changes_and_where(client: Client, advice: Advice) -> None:
    url = f"/advice/{advice.pk}/what-if"
    first = client.get(url, {"load": "1.0001"}).context["rows"][0].option
    budget = f"{first.usd_per_month * 0.5:.0f}"
    shown = client.get(url, {"budget": budget})
    text = shown.content.decode()
    if shown.context["rows"]:
        assert f"The winner changes from {first.name} to {shown.context['rows'][0].option.name} at" in text
        turn = client.get(url, {"budget": budget, "turn": "1"}).content.decode()
        assert f"{first.name} stops being first at about" in turn
    else:
        assert "No option is left at budget" in text
    same = client.get(url, {"budget": f"{first.usd_per_month * 50:.0f}"})
    assert f"The winner stays {first.name}" in same.content.decode()


def row_of(chip: str, usd: float) -> rows.Shown:
    return rows.Shown(
        key=("", chip), name=chip, label=chip, mark=rows.SIMULATED, acquisition="rent", term="on_demand", provider="x",
        accelerator=chip, price_as_of="2026-01-01", price_weakness="", accelerator_count=1, usd_per_month=usd,
        usd_per_mtok=1.0, ttft_ms=100.0, tpot_ms=10.0, watts=None, meets_slo=True,
    )  # fmt: skip


def test_the_sentence_names_both_winners_and_the_change() -> None:
    a, b, cheaper = row_of("A", 100.0), row_of("B", 90.0), row_of("A", 80.0)
    assert rows.winner_said(b, a, ["Load: 1 → 2"]) == "The winner changes from A to B at load 2 (was 1)."
    assert rows.winner_said(a, a, ["x"]) == "The winner stays A at $100 a month with x."
    assert "A at $80.00 a month instead of A at $100" in rows.winner_said(cheaper, a, ["x"])
    assert rows.winner_said(None, a, ["x"]) == "No option is left at x."
    moved = rows.rows_of([b, a], [a, b])
    assert [row.moved for row in moved] == [1, -1] and [row.more_fraction for row in moved] == [0.0, 0.0]


def test_the_turning_point_is_where_another_option_wins() -> None:
    moved = rows.Moved(control="load", old=1.0, new=8.0)
    found = rows.turning_point(moved, row_of("A", 100.0), lambda value: ("", "A" if float(value) < 3 else "B"))
    assert found is not None and 3.0 <= found < 3.3
    budget = rows.Moved(control="budget", old=None, new=10.0)
    found = rows.turning_point(budget, row_of("A", 100.0), lambda value: ("", "A" if float(value) >= 100 else "B"))
    assert found is not None and 90.0 < found <= 100.0
    assert rows.turning_point(rows.Moved(control="e2e", old=None, new=5.0), row_of("A", 1.0), lambda _: None) is None


def test_simulated_figures_replace_the_estimates(client: Client, advice: Advice) -> None:
    result: dict[str, Any] = json.loads(json.dumps(sample_advice.result()))
    text = client.get(f"/advice/{advice.pk}/what-if").content.decode()  # nothing changed: the answer itself
    simulated = next(o for o in result["recommendations"] if o["accelerator"] == "mi300x")
    assert simulated["label"] in text and '<span class="sub">simulated</span>' in text


def test_a_shared_answer_has_a_what_if_without_the_full_question(client: Client, advice: Advice) -> None:
    token = links.shared(client, advice)
    page = client.get(f"/s/{token}/what-if?vendor=amd")
    text = page.content.decode()
    assert "MI300X" in text and "Run this question" not in text and f"/advice/{advice.pk}" not in text
    assert "noindex" in page["X-Robots-Tag"]


def test_too_many_rankings_are_refused(client: Client, advice: Advice, settings: Any) -> None:
    settings.QUICK_PER_MINUTE = 1
    url = f"/advice/{advice.pk}/what-if?vendor=amd"
    elsewhere: dict[str, Any] = {"REMOTE_ADDR": "198.51.100.7"}
    assert [client.get(url, **elsewhere).status_code for _ in range(2)] == [200, 429]
    assert client.post("/api/v1/quick", {}, content_type="application/json", **elsewhere).status_code == 429


def test_a_training_run_has_no_what_if(client: Client, advice: Advice) -> None:
    spec = {**advice.workload.spec, "kind": "training"}
    type(advice.workload).objects.filter(pk=advice.workload.pk).update(spec=spec)
    assert client.get(f"/advice/{advice.pk}/what-if").status_code == 404


def test_rest_ranks_a_workload(client: Client, advice: Advice) -> None:
    body = {
        "model": "meta-llama/Llama-3.1-8B",
        "traffic": {"input_tokens": 500, "output_tokens": 100, "requests_per_s": 1},
        "constraints": {"accelerators": {"allow": ["l40s"]}},
        "variants": "no",
    }
    answer = client.post("/api/v1/quick", body, content_type="application/json")
    assert answer.status_code == 200 and answer.json()["options"][0]["mark"]
    wrong = client.post("/api/v1/quick", {**body, "slo": {"ttft_ms_p95": -1}}, content_type="application/json")
    assert wrong.status_code == 422 and wrong.json()["errors"][0]["field"] == "slo.ttft_ms_p95"


def test_the_form_gets_the_first_options_or_what_is_missing(client: Client) -> None:
    filled = {
        "model": "meta-llama/Llama-3.1-8B",
        "traffic.input_tokens.mean": "500",
        "traffic.output_tokens.mean": "100",
    }
    text = client.post("/quick-estimate", filled).content.decode()
    assert "fill in: requests per second or users" in text
    text = client.post("/quick-estimate", {**filled, "traffic.requests_per_s.mean": "1"}).content.decode()
    assert "Analytical estimate, not simulated" in text and text.count('<th scope="row">') == 3


@pytest.mark.parametrize(
    ("control", "written", "value"),
    [
        ("budget", "$40k", "40000"), ("budget", "40,000 USD", "40000"), ("ttft", "2 s", "2000"),
        ("ttft", "500ms", "500"), ("tpot", "30 ms", "30"), ("e2e", "1 min", "60000"), ("load", "2x", "2"),
        ("load", "150%", "1.5"), ("price_purchase", "80%", "0.8"), ("max_chips", "2 x 8", "16"),
        ("max_chips", "16 GPUs", "16"), ("budget", "", ""), ("budget", "lots", "lots"),
    ],
)  # fmt: skip
def test_controls_read_the_numbers_and_units_of_the_form(control: str, written: str, value: str) -> None:
    assert views.in_digits(control, written) == value


def test_every_control_that_holds_a_number_reads_one_back() -> None:
    for name in views.NUMBERS:
        for number in ("1", "12", "1.5", "250"):
            assert views.in_digits(name, number) == number, name


def test_units_change_the_same_question(client: Client, advice: Advice) -> None:
    url = f"/advice/{advice.pk}/what-if"
    plain, units = (
        client.get(url, {"budget": budget, "ttft": ttft}).context["changes"]
        for budget, ttft in (("30000", "1500"), ("$30k", "1.5 s"))
    )
    assert plain == units and len(plain) == 2


def test_a_change_is_told_as_a_value_with_the_earlier_one() -> None:
    assert rows.at_value("Requests/s at the peak: 15 → 60") == "requests/s at the peak 60 (was 15)"
    assert rows.at_value("TTFT p95 limit, ms: 2,000 → 500") == "TTFT p95 limit, ms 500 (was 2,000)"
    assert rows.at_value("Accelerators without a value") == "Accelerators without a value"


def test_the_first_choice_of_the_full_answer_is_named_where_the_estimates_have_another() -> None:
    a, b = row_of("A", 100.0), row_of("B", 90.0)
    assert rows.answered_said(a, a) == rows.answered_said(None, a) == ""
    assert rows.answered_said(b, a).startswith("The full answer to the original question puts B first")


def test_the_verdict_has_no_configuration() -> None:
    first = dataclasses.replace(row_of("6 × B200", 100.0), label="6 x B200, FP8 W8A8, TP1, vLLM 0.24.0")
    assert "TP1" not in rows.verdict_said(first) and "6 × B200" in rows.verdict_said(first)


def test_the_name_of_a_saved_what_if_has_whole_changes_and_the_new_load(advice: Advice) -> None:
    spec = {**advice.workload.spec, "name": None}
    changes = [f"Limit {n}, ms: 1 → {n}" for n in range(1, 40)]
    name = views.name_of(spec, changes)
    told = name.count("limit")
    assert len(name) <= views.MOST_NAMED and name.endswith(f"limit {told}, ms {told}"), name
    assert views.name_of(spec, ["x" * 200]) == views.name_of(spec, []) and "requests/s" in views.name_of(spec, [])


@pytest.mark.parametrize(
    "asked",
    [
        {
            "kind": "image_generation", "model": "black-forest-labs/FLUX.1-dev", "traffic.requests_per_s.mean": "0.2",
            "traffic.image_output.width_px": "1024", "traffic.image_output.height_px": "1024",
        },
        {"kind": "serving", "model": "openai/whisper-large-v3", "traffic.audio.hours_per_hour": "20"},
    ],
    ids=["images", "speech"],
)  # fmt: skip
def test_the_form_estimates_every_question_that_it_accepts(client: Client, asked: dict[str, str]) -> None:
    text = client.post("/quick-estimate", asked).content.decode()
    assert "fill in" not in text and "Analytical estimate, not simulated" in text
