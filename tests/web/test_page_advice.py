"""The advice page in each of its states, from a sample answer."""

import csv
import io
from typing import Any

import pytest
from django.test import Client

from advisor.models import Advice
from tests import links, sample_advice
from tests.pages import every_section

pytestmark = pytest.mark.django_db


def text_of(client: Client, path: str, **headers: str) -> str:
    return every_section(client, path, **headers)


def test_a_done_advice_shows_every_part(client: Client) -> None:
    advice = sample_advice.advice()
    text = text_of(client, f"/advice/{advice.pk}")
    for said in (
        "4 x H200 SXM in FP8",  # the verdict in full
        "Rent one server of 4 × H200 SXM at nebius by the hour.",
        "$1.61–$2.28",  # interval
        "measured on this chip",
        '<svg class="chart pareto"',
        "SLO 40 ms",
        "Memory per chip",
        "best TPOT p95 61 ms &gt; 40 ms at TP8",
        "qualifies with a TPOT p95 limit of 62 ms",
        "https://example.org/pue",
        "price 120 d old",
        "vllm serve meta-llama",
        "1 deployment cannot be shown",
        "Near misses",
        "qualifies with a TTFT p95 limit of 1,090 ms",
        "MI300X wins once it is 12% dearer",
    ):
        assert said in text, said
    assert text.count("data-copy") == 1


def test_a_sorted_table_says_so_and_puts_the_unknown_last(client: Client) -> None:
    answer = sample_advice.result()
    for option, watts in zip(answer["recommendations"], (None, 1900.0, 2600.0, 2200.0), strict=True):
        option["watts"] = watts
    advice = sample_advice.advice(answer)
    text = text_of(client, f"/advice/{advice.pk}?sort=-power")
    body = text.split("Ranked deployments")[1].split("</table>")[0]
    order = [body.index(name) for name in ("4 x H100", "4 x Gaudi 3", "4 x MI300X", "4 x H200")]
    assert order == sorted(order)
    assert 'aria-sort="descending"' in body and "&amp;sort=power#" in body


def test_nothing_feasible_says_the_nearest_miss(client: Client) -> None:
    advice = sample_advice.advice(sample_advice.infeasible())
    text = text_of(client, f"/advice/{advice.pk}")
    assert "Nothing meets this: the nearest, L40S, reaches TPOT p95" in text
    assert "<details open>" in text


@pytest.mark.parametrize("missing", ["pareto", "views", "assumptions", "step", "interval", "near_misses"])
def test_a_missing_part_leaves_the_rest_readable(client: Client, missing: str) -> None:
    answer = sample_advice.result()
    answer.pop(missing, None)
    for option in answer["recommendations"]:
        option.pop(missing, None)
    advice = sample_advice.advice(answer)
    assert "4 x H200 SXM" in text_of(client, f"/advice/{advice.pk}")
    assert "4 x H200 SXM" in text_of(client, f"/advice/{advice.pk}/options/1")


def test_an_answer_that_cannot_be_read_can_be_re_run_and_exported(client: Client) -> None:
    answer = sample_advice.result()
    del answer["recommendations"][0]["memory"]
    advice = sample_advice.advice(answer)
    link = links.shared(client, advice)
    for path in ("", "/options/1"):
        text = text_of(client, f"/advice/{advice.pk}{path}")
        assert "stored by another version and cannot be displayed" in text
        assert f'action="/advice/{advice.pk}/rescore"' in text and "Re-run with today’s catalog" in text
    for path in ("", "/options/1"):
        text = text_of(client, f"/s/{link}{path}")
        assert "stored by another version and cannot be displayed" in text and "rescore" not in text
    for name in ("options.csv", "advice.md", "documents/memo.md"):
        response = client.get(f"/advice/{advice.pk}/{name}")
        assert response.status_code == 404 and "cannot be displayed" in response.content.decode()
    assert client.get(f"/api/v1/advice/{advice.pk}/documents/memo.md").status_code == 404
    assert client.get(f"/advice/{advice.pk}/result.json").json() == advice.result
    assert client.post(f"/advice/{advice.pk}/rescore").status_code == 302


def test_a_running_advice_shows_its_progress_and_looks_again(client: Client) -> None:
    advice = sample_advice.advice(state="running", stage="searching", progress_fraction=0.4, attempt=2)
    text = text_of(client, f"/advice/{advice.pk}")
    assert "Searching" in text and 'value="0.400"' in text and "attempt 2" in text
    assert '<noscript><meta http-equiv="refresh"' in text and 'hx-trigger="every 1s"' in text
    assert 'aria-live="polite"' in text


def test_a_poll_gets_the_progress_alone_and_a_reload_at_the_end(client: Client) -> None:
    advice = sample_advice.advice(state="queued")
    assert "<html" not in text_of(client, f"/advice/{advice.pk}", HX_Request="true")
    Advice.objects.update(state="cancelled")
    assert client.get(f"/advice/{advice.pk}", headers={"HX-Request": "true"})["HX-Refresh"] == "true"


def test_a_failed_advice_says_why(client: Client) -> None:
    advice = sample_advice.advice(state="failed", error="The calculation took longer than 540 s.")
    assert "took longer than 540 s" in text_of(client, f"/advice/{advice.pk}")


def test_cancel_and_ask_again(client: Client) -> None:
    advice = sample_advice.advice(state="queued")
    assert client.get(f"/advice/{advice.pk}/cancel").status_code == 405
    assert client.post(f"/advice/{advice.pk}/cancel")["Location"] == f"/advice/{advice.pk}"
    assert "Canceled" in text_of(client, f"/advice/{advice.pk}")
    again = client.post(f"/advice/{advice.pk}/rescore")["Location"]
    assert Advice.objects.get(pk=again.split("/")[-1]).supersedes_id == advice.pk


def test_an_option_has_its_page_and_others_do_not(client: Client) -> None:
    advice = sample_advice.advice()
    text = text_of(client, f"/advice/{advice.pk}/options/2")
    assert "4 x MI300X" in text and "serve.sh" in text and "One replica less misses TTFT" in text and "8,192" in text
    assert client.get(f"/advice/{advice.pk}/options/9").status_code == 404


def test_exports_hold_every_option(client: Client) -> None:
    advice = sample_advice.advice()
    assert client.get(f"/advice/{advice.pk}/result.json").json() == advice.result
    rows = list(csv.DictReader(io.StringIO(client.get(f"/advice/{advice.pk}/options.csv").content.decode())))
    assert [row["accelerator"] for row in rows] == ["h200-sxm", "mi300x", "h100-sxm", "gaudi3"]
    assert float(rows[0]["ttft_ms_p95"]) == pytest.approx(240)
    assert "| 4 x H200 SXM" in client.get(f"/advice/{advice.pk}/advice.md").content.decode()


def test_a_cell_cannot_be_a_formula(client: Client) -> None:
    answer = sample_advice.result()
    answer["recommendations"][0]["instance"] = "=HYPERLINK(1)"
    advice = sample_advice.advice(answer)
    assert "'=HYPERLINK(1)" in client.get(f"/advice/{advice.pk}/options.csv").content.decode()


def test_nothing_to_export_before_the_end(client: Client) -> None:
    advice = sample_advice.advice(state="queued")
    for name in ("result.json", "options.csv", "advice.md", "options/1"):
        assert client.get(f"/advice/{advice.pk}/{name}").status_code == 404


def test_what_the_catalog_no_longer_has_cannot_be_asked_again(client: Client) -> None:
    advice = sample_advice.advice()
    advice.workload.spec["constraints"]["providers"]["allow"] = ["gone-cloud"]
    advice.workload.save()
    said = client.post(f"/advice/{advice.pk}/rescore", {"prices": "then"}, follow=True).content.decode()
    assert "cannot be re-run" in said and "gone-cloud is not in the catalog" in said
    assert not advice.successors.exists()


def test_nothing_is_asked_again_while_too_many_wait(client: Client, settings: Any) -> None:
    settings.ADVICE_MAX_QUEUED = 0
    advice = sample_advice.advice()
    said = client.post(f"/advice/{advice.pk}/rescore", follow=True).content.decode()
    assert "Too many requests are waiting" in said and not advice.successors.exists()


def test_the_list_shows_state_and_first_choice(client: Client) -> None:
    assert "No requests yet" in text_of(client, "/advice")
    sample_advice.advice()
    sample_advice.advice(state="failed", error="x")
    text = text_of(client, "/advice")
    assert "state-failed" in text and "4 x H200 SXM" in text and "$10,220" in text


def test_text_from_outside_is_escaped(client: Client) -> None:
    answer = sample_advice.result()
    answer["recommendations"][0]["label"] = answer["verdict"] = "<script>alert(1)</script>"
    answer["recommendations"][0]["launch"]["command"] = "</code><script>"
    advice = sample_advice.advice(answer)
    for path in ("", "/options/1"):
        assert "<script>alert" not in text_of(client, f"/advice/{advice.pk}{path}")
        assert "</code><script>" not in text_of(client, f"/advice/{advice.pk}{path}")
