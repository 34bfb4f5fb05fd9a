"""Predicted against measured: kept once, compared with the interval, told apart from another load, given on as rows."""

import json
from pathlib import Path
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.core.management import CommandError, call_command
from django.test import Client

from advisor import load_tests
from advisor.engine.terms.workloads.case import Case
from advisor.fidelity.rows import case_of
from advisor.load_results import LoadResultError
from advisor.load_tests.records import METRICS
from advisor.models import LoadTest, Option
from tests import links, sample_advice
from tests.laboratory.measurements import unchecked as read
from tests.load_files import FILES, made_run
from tests.pages import every_section
from tests.sample_load_results import aiperf, guidellm, parse, vllm, written

pytestmark = pytest.mark.django_db
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def option() -> Option:
    return sample_advice.advice().options.get(rank=1)


def compared(option: Option, found: Any) -> dict[str, Any]:
    return load_tests.compare(load_tests.predicted(option), parse(written(found)).as_json())


def rows(option: Option, found: Any) -> dict[str, dict[str, Any]]:
    return {r["metric"]: r for r in compared(option, found)["rows"]}


# --- comparing --------------------------------------------------------------------------------------------------


def test_each_figure_stands_beside_its_prediction_and_interval(option: Option) -> None:
    """The sample predicts TTFT 150 ms (110-230), TPOT 18 ms (15.3-21.6), p95 TTFT 240 (300-700)."""
    found = rows(option, vllm(ttft=160, tpot=25))
    assert (found["TTFT mean"]["predicted"], found["TTFT mean"]["measured"]) == (150, 160)
    assert found["TTFT mean"]["inside"] is True and found["TPOT mean"]["inside"] is False
    assert found["TTFT mean"]["error_fraction"] == pytest.approx(150 / 160 - 1)
    assert found["TTFT p95"]["inside"] is True and found["TTFT p99"]["inside"] is None
    assert (found["requests/s"]["predicted"], found["output tokens/s"]["predicted"]) == (6, 1800)


@pytest.mark.parametrize("found", [vllm(), guidellm(), aiperf()], ids=["vllm", "guidellm", "aiperf"])
def test_a_run_of_the_predicted_load_differs_in_nothing(option: Option, found: Any) -> None:
    assert compared(option, found)["differences"] == []


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (vllm(rate=3), "requests/s: 3 measured, 6 predicted for"),
        (vllm(max_concurrency=64), "the run was a closed loop, the prediction is for an open loop"),
        (vllm(total_input_tokens=2000 * 512), "input tokens per request: 512 measured, 2000 predicted for"),
        (vllm(total_output_tokens=2000 * 128), "output tokens per request: 128 measured, 300 predicted for"),
        (vllm(completed=1900, failed=100, total_input_tokens=1900 * 2000), "100 of 2,000 requests failed"),
    ],
)
def test_a_run_of_another_load_says_so_and_calibrates_nothing(option: Option, found: Any, said: str) -> None:
    shown = compared(option, found)
    assert any(said in why for why in shown["differences"]) and {r["inside"] for r in shown["rows"]} == {None}
    with pytest.raises(LoadResultError, match="cannot be used as calibration"):
        load_tests.record(option, written(found), "r.json", calibrates=True)
    assert not LoadTest.objects.exists()
    test, _ = load_tests.record(option, written(found), "r.json")
    with pytest.raises(LoadResultError, match="cannot be used as calibration"):
        load_tests.set_calibrates(test, True)


def test_a_batch_is_compared_by_what_its_seats_give_of_one_replica(option: Option) -> None:
    """3,870 tokens/s (3,000-4,400) of two replicas."""
    option.detail["launch"]["load_test"] |= {"requests_per_s": None, "concurrency": 64}
    found = rows(option, vllm(max_concurrency=64, output_throughput=1600.0))
    assert list(found) == ["output tokens/s"]
    line = found["output tokens/s"]
    assert (line["predicted"], line["low"], line["high"], line["inside"]) == (1935, 1500, 2200, True)


def test_an_answer_from_before_there_were_load_tests_says_so(option: Option) -> None:
    del option.detail["launch"]["load_test"]
    assert "has no load test" in compared(option, vllm())["differences"][0]


def test_drift_is_what_moved_by_more_than_a_tenth_between_runs_of_the_predicted_load(option: Option) -> None:
    for found in (vllm(ttft=150), vllm(ttft=400, rate=1), vllm(ttft=152), vllm(ttft=180, tpot=18.5)):
        load_tests.record(option, written(found), "r.json")
    moved = load_tests.shown(option)["drift"]
    assert [m["metric"] for m in moved] == ["TTFT mean", "TTFT p50", "TTFT p95", "TTFT p99"]
    assert moved[0]["change_fraction"] == pytest.approx(0.2)


def test_one_run_has_no_drift(option: Option) -> None:
    load_tests.record(option, written(vllm()), "r.json")
    assert load_tests.shown(option)["drift"] == []


def test_the_same_file_is_one_result(option: Option) -> None:
    first, is_new = load_tests.record(option, written(vllm()), "a.json")
    again, is_new_again = load_tests.record(option, written(vllm()), "b.json", calibrates=True)
    assert (first.pk, is_new, is_new_again) == (again.pk, True, False)
    assert LoadTest.objects.get().calibrates  # the planner said so the second time


def test_of_a_sweep_the_run_with_the_predicted_load_is_used(option: Option, tmp_path: Path, capsys: Any) -> None:
    path = tmp_path / "runs.json"
    path.write_text("\n".join(json.dumps(vllm(rate=rate, request_rate=rate)) for rate in (2.0, 6.0, 12.0)))
    call_command("import_loadtest", str(option.pk), str(path), "--calibration")
    assert "used run 2 (6 requests/s) of 3 runs" in capsys.readouterr().out
    test = LoadTest.objects.get()
    assert test.measured["requests_per_s"] == 6 and test.calibrates


def test_a_sweep_without_the_predicted_load_is_refused_with_its_runs(option: Option) -> None:
    runs = "\n".join(json.dumps(vllm(rate=rate, request_rate=rate)) for rate in (2.0, 12.0)).encode()
    with pytest.raises(LoadResultError, match=r"2 runs, none with the predicted load: run 1 \(2 requests/s\); run 2"):
        load_tests.record(option, runs, "r.json")
    assert not LoadTest.objects.exists()


def test_a_file_that_does_not_say_how_requests_were_sent_calibrates_nothing(option: Option) -> None:
    """The CSV of AIPerf has no settings: an open and a closed loop look alike."""
    test, _ = load_tests.record(option, FILES["aiperf csv"](made_run(1, 30)).encode(), "r.csv")
    with pytest.raises(LoadResultError, match="does not say how requests were sent"):
        load_tests.set_calibrates(test, True)
    assert "does not say how requests were sent" in load_tests.correct(test)["why_nothing"]


# --- command line -----------------------------------------------------------------------------------------------


def test_the_command_records_and_prints_the_comparison(option: Option, tmp_path: Path, capsys: Any) -> None:
    path = tmp_path / "result.json"
    path.write_bytes(written(vllm(tpot=25)))
    call_command("import_loadtest", str(option.pk), str(path))
    call_command("import_loadtest", f"{option.advice_id}/1", str(path))
    said = capsys.readouterr().out
    assert "recorded" in said and "already recorded" in said and "OUTSIDE the interval" in said
    assert LoadTest.objects.get().file_name == "result.json"


@pytest.mark.parametrize("given", ["0", "999999", "x", f"{'0' * 36}/1", "1/2/3", "9" * 30])
def test_an_unknown_option_is_told(given: str, tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="no such option"):
        call_command("import_loadtest", given, str(tmp_path / "r.json"))


def test_a_bad_file_is_told_and_nothing_kept(option: Option, tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    with pytest.raises(CommandError, match="no such file"):
        call_command("import_loadtest", str(option.pk), str(path))
    path.write_text("{}")
    with pytest.raises(CommandError, match="not a result of vllm bench serve"):
        call_command("import_loadtest", str(option.pk), str(path))
    assert not LoadTest.objects.exists()


# --- page and REST ----------------------------------------------------------------------------------------------


def address(option: Option) -> str:
    return f"/advice/{option.advice_id}/options/1"


def test_the_page_takes_a_result_and_shows_it_as_evidence(option: Option, client: Client) -> None:
    before = client.get(f"{address(option)}?section=run").content.decode()
    assert "vllm bench serve --num-prompts 2000" in before and f"import_loadtest {option.pk} FILE" in before
    assert "All options checked against vllm 0.24.0" in before
    file = SimpleUploadedFile("<b>r.json", written(vllm(tpot=25)))
    said = client.post(f"{address(option)}/load-tests", {"result": file}, follow=True).content.decode()
    assert "Load test added." in said and "<strong>outside</strong>" in said and "inside" in said
    assert "<b>r.json" not in said and "Use as calibration" in said


def test_the_page_says_what_is_wrong_with_a_file(option: Option, client: Client) -> None:
    for given, why in (({"result": SimpleUploadedFile("r", b"x")}, "not JSON"), ({}, "Choose the result file")):
        said = client.post(f"{address(option)}/load-tests", given, follow=True).content.decode()
        assert why in said
    assert not LoadTest.objects.exists()


def test_the_switch_marks_a_result_and_leaves_the_prediction_alone(option: Option, client: Client) -> None:
    test, _ = load_tests.record(option, written(vllm()), "r.json")
    before = Option.objects.get(pk=option.pk).detail
    url = f"{address(option)}/load-tests/{test.pk}"
    client.post(url, {"calibrates": "on"})
    assert LoadTest.objects.get().calibrates and Option.objects.get(pk=option.pk).detail == before
    client.post(url, {"calibrates": "off"})
    assert not LoadTest.objects.get().calibrates
    assert client.post(f"{address(option)}/load-tests/{test.pk + 1}", {}).status_code == 404
    assert client.get(url).status_code == 405


def test_a_shared_page_shows_results_without_controls(option: Option, client: Client) -> None:
    load_tests.record(option, written(vllm()), "r.json")
    token = links.shared(client, option.advice)
    said = every_section(client, f"/s/{token}/options/1")
    assert "Predicted vs. measured" in said
    assert "<form" not in said.split('id="load-test"')[1].split("</main>")[0]


def test_the_api_takes_the_file_as_it_is(option: Option, client: Client) -> None:
    url = f"/api/v1/advice/{option.advice_id}/options/1/load-tests"
    made = client.post(url, written(vllm()), content_type="application/json")
    assert made.status_code == 201 and made.json()["measured"]["tool"] == "vllm" and made.json()["rows"]
    assert client.post(url, written(vllm()), content_type="application/json").status_code == 200
    listed = client.get(url).json()
    assert len(listed["tests"]) == 1 and listed["drift"] == []


@pytest.mark.parametrize(
    ("query", "content", "status", "said"),
    [
        ("", b"{}", 400, "not a result of vllm"),
        ("?calibration=perhaps", written(vllm()), 400, "true or false"),
        ("?calibration=true", written(vllm(rate=1)), 400, "cannot be used as calibration"),
    ],
)
def test_the_api_refuses_with_a_problem(
    option: Option, client: Client, query: str, content: bytes, status: int, said: str
) -> None:
    url = f"/api/v1/advice/{option.advice_id}/options/1/load-tests{query}"
    refused = client.post(url, content, content_type="application/json")
    assert refused.status_code == status and refused["Content-Type"] == "application/problem+json"
    assert said in json.dumps(refused.json()) and not LoadTest.objects.exists()


def test_an_unknown_option_of_the_api_is_not_found(option: Option, client: Client) -> None:
    url = f"/api/v1/advice/{option.advice_id}/options/77/load-tests"
    assert client.get(url).status_code == client.post(url, b"{}", content_type="application/json").status_code == 404


# --- giving on --------------------------------------------------------------------------------------------------


def test_marked_results_become_measured_rows_that_fidelity_reads(option: Option, tmp_path: Path) -> None:
    load_tests.record(option, written(vllm()), "marked.json", calibrates=True)
    load_tests.record(option, written(guidellm()), "not marked.json")
    path = tmp_path / "own.csv"
    call_command("export_loadtests", "--out", str(path))
    found = read(path)
    values = {r.metric: r.value for r in found}
    assert values == {"ttft_ms_p50": 144, "tpot_ms_mean": 18, "tpot_ms_p50": 18, "output_tokens_per_s": 1800}
    row = found[0]
    assert (row.n_accelerators, row.tp, row.concurrency_or_batch, row.source_key) == ("2", "2", "qps=6", "load_test")

    class Everything:
        accelerators = models = {row.accelerator_slug, row.model_id}

    case = case_of(row, Everything())
    assert isinstance(case, Case) and case.client.kind == "poisson" and case.client.rate_per_s == 6
    assert (case.framework, case.framework_version, case.chips, case.isl, case.osl) == ("vllm", "0.24.0", 2, 2000, 300)
    assert case.client.known is False


def spec_with(option: Option, **traffic: Any) -> None:
    workload = option.advice.workload
    workload.spec["traffic"] |= traffic
    workload.save()


def test_of_constant_lengths_means_and_tails_become_rows_too(option: Option) -> None:
    spec_with(option, input_tokens={"mean": 2000, "p95": 2000}, output_tokens=300)
    load_tests.record(option, written(vllm()), "r.json", calibrates=True)
    rows = load_tests.measured_rows(LoadTest.objects.all())
    assert {r["metric"] for r in rows} == {*METRICS, "output_tokens_per_s"}
    assert rows[0]["notes"] == "own load test"


def test_a_run_with_shared_prefixes_is_evidence_yet_no_calibration(option: Option) -> None:
    spec_with(option, prefix_cache_hit_rate=0.3)
    with pytest.raises(LoadResultError, match="share prefixes, which a measured row cannot describe"):
        load_tests.record(option, written(vllm()), "r.json", calibrates=True)
    assert load_tests.record(option, written(vllm()), "r.json")[1]
    assert load_tests.shown(option)["tests"][0]["differences"] == []


def test_nothing_marked_is_told(option: Option) -> None:
    load_tests.record(option, written(vllm()), "r.json")
    with pytest.raises(CommandError, match="No load test is marked"):
        call_command("export_loadtests")


def test_the_markdown_names_the_list_of_options_and_the_load_test(option: Option, client: Client) -> None:
    said = client.get(f"/advice/{option.advice_id}/advice.md").content.decode()
    assert "Options checked against vllm 0.24.0, options read on 2026-11-21." in said
    assert (
        "Load test at the predicted load (run load_trace.py first):\n\n```sh\nvllm bench serve --num-prompts 2000\n```"
        in said
    )


def test_an_option_that_serves_nothing_is_told_and_nothing_kept(option: Option, tmp_path: Path) -> None:
    """Training runs and hosted APIs have other fields than a deployment."""
    answer = option.advice.result
    answer["recommendations"] = [{"rank": 1, "kind": "training", "accelerator": "h100-sxm"}]
    option.advice.save()
    path = tmp_path / "result.json"
    path.write_bytes(written(vllm()))
    with pytest.raises(CommandError, match="a training run or a hosted API. Give an option that serves"):
        call_command("import_loadtest", str(option.pk), str(path))
    assert not LoadTest.objects.exists()
