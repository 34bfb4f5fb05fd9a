"""A result file for a named accelerator, and the report of what each result changes, or why nothing."""

import json
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.test import Client

from catalog.models import Accelerator, Calibration
from probes.fitted import fitting
from probes.models import Result
from probes.received import results
from tests.people import member
from tests.probes import samples

pytestmark = pytest.mark.django_db
EPYC = Path(__file__).parents[2] / "fixtures/measurements/probes/amd-epyc-two-shared-cores.json"
DEFAULTS = {
    "matrix_factor": 0.2, "weight_only_fraction": 0.9, "routing_evenness": 3.0, "sample_bytes_per_logit": 30.0,
    "far_link_fraction": 0.7, "far_collective_s": 2e-5, "matmul_4_fraction": 0.5, "block_8_fraction": 0.6,
} | dict.fromkeys(samples.TRUE, 0.5)  # fmt: skip


@pytest.fixture
def epyc(db: None) -> Accelerator:
    Calibration.objects.create(
        name="default", values=DEFAULTS, basis="datasheet", fitted_on="a file", engine_version="1", as_of="2026-01-01"
    )
    return Accelerator.objects.create(
        slug="epyc-9755", name="EPYC 9755 (128c)", vendor="amd", family="epyc", kind="cpu", memory_gib=9216,
        memory_gb_per_s=614, dense_tflops={"fp32": 22.1, "bf16": 44.2, "int8": 88.5}, cores=128, sram_mib=512,
        pcie_gb_per_s=63, tdp_watts=500, as_of="2026-11-21", form_factor="socket",
    )  # fmt: skip


@pytest.fixture
def steady(tmp_path: Path) -> Path:
    """The measured result of two shared cores, without the rows that other work disturbed."""
    document = json.loads(EPYC.read_text())
    document["results"] = [
        e for e in document["results"]
        if e["kind"] != "softmax" and e["time_s"]["p90"] - e["time_s"]["p10"] <= 0.25 * e["time_s"]["median"]
    ]  # fmt: skip
    path = tmp_path / "r.json"
    path.write_text(json.dumps(document))
    return path


def run(capsys: pytest.CaptureFixture[str], *args: object) -> str:
    call_command("import_probe", *map(str, args))
    return capsys.readouterr().out


def row(result: Result, figure: str) -> dict[str, Any]:
    return next(r for r in result.report["figures"] if r["figure"] == figure)


def test_a_processor_that_hides_its_model_is_not_matched_and_the_command_says_what_to_do(
    epyc: Accelerator, capsys: pytest.CaptureFixture[str]
) -> None:
    out = run(capsys, EPYC)
    assert "Changes nothing: AMD EPYC with 23.54 GiB matches no accelerator of the catalog" in out
    assert "--accelerator SLUG, for example epyc-9755" in out


def test_a_named_processor_gets_the_figures_that_the_file_determines(
    epyc: Accelerator, steady: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = run(capsys, steady, "--accelerator", "epyc-9755", "--approve")
    result = Result.objects.get()
    assert result.state == "accepted" and result.accelerator == epyc and "named epyc-9755" in result.remarks[0]
    written = Calibration.objects.get(name="accelerator:epyc-9755")
    assert set(written.measured) == {"matmul_16_fraction", "matmul_8_fraction", "attention_fraction"}
    assert written.basis == "datasheet"  # its memory was not measured, so its ranges stay wide
    used, unused = row(result, "matmul_16_fraction"), row(result, "memory_fraction")
    assert used["used"] and used["before"] == 0.5 and used["after"] == pytest.approx(0.562, abs=1e-3)
    assert used["low"] < used["after"] < used["high"]
    assert not unused["used"] and unused["after"] == 0.5 and "2 of 128 cores" in unused["reason"]
    assert "used, 0.500 -> 0.562" in out and "2 of 128 cores" in out and "memory_write" in out


def test_the_same_file_may_be_given_another_accelerator_until_it_calibrates_one(
    epyc: Accelerator, steady: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(capsys, steady)
    run(capsys, steady, "--accelerator", "epyc-9755", "--approve")
    assert Result.objects.get().accelerator == epyc
    Accelerator.objects.create(
        slug="epyc-9965", name="EPYC 9965", vendor="amd", family="epyc", kind="cpu", memory_gib=9216, cores=192,
        memory_gb_per_s=614, dense_tflops={"bf16": 55.3}, as_of="2026-11-21", form_factor="socket",
    )  # fmt: skip
    with pytest.raises(CommandError, match="calibrates epyc-9755; undo that first: manage.py calibrations undo"):
        run(capsys, steady, "--accelerator", "epyc-9965")


def test_a_name_that_cannot_be_right_is_refused_with_suggestions(
    epyc: Accelerator, h200: Accelerator, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(CommandError, match="no accelerator epyc-9756 in the catalog; did you mean epyc-9755"):
        run(capsys, EPYC, "--accelerator", "epyc-9756")
    with pytest.raises(CommandError, match="h200-sxm is a gpu; nearest: epyc-9755"):
        run(capsys, EPYC, "--accelerator", "h200-sxm")
    gpu = tmp_path / "gpu.json"
    gpu.write_bytes(samples.body(samples.document()))
    with pytest.raises(CommandError, match="epyc-9755 is a cpu; nearest: h200-sxm"):
        run(capsys, gpu, "--accelerator", "epyc-9755")
    intel = tmp_path / "intel.json"
    document = json.loads(EPYC.read_text())
    document["device"]["name"] = "Intel(R) Xeon(R) Processor"
    intel.write_text(json.dumps(document))
    Accelerator.objects.create(
        slug="xeon-6787p", name="Xeon 6787P", vendor="intel", family="xeon", kind="cpu", memory_gib=4096, cores=86,
        memory_gb_per_s=409.6, dense_tflops={"bf16": 352.3}, as_of="2026-11-21", form_factor="socket",
    )  # fmt: skip
    with pytest.raises(CommandError, match="is not made by amd, and epyc-9755 is; nearest: xeon-6787p"):
        run(capsys, intel, "--accelerator", "epyc-9755")
    assert not Result.objects.exists()


def test_a_noisy_file_is_used_once_a_person_releases_it_and_says_which_rows_it_drops(
    epyc: Accelerator, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document, path = json.loads(EPYC.read_text()), tmp_path / "r.json"
    for e in document["results"]:
        if e["kind"] in ("memory_write", "memory_copy", "memory_strided", "memory_gather", "norm", "rotary", "gemm"):
            e["time_s"]["p90"] = 2 * e["time_s"]["median"]
    path.write_text(json.dumps(document))
    out = run(capsys, path, "--accelerator", "epyc-9755", "--approve")
    assert "spread by more than 30%" in out and "import it again with --release" in out
    assert "accepted" in run(capsys, path, "--release")
    result = Result.objects.get()
    assert row(result, "attention_fraction")["used"]
    assert "7 rows of gemm are too unsteady" in row(result, "matmul_16_fraction")["reason"]


def test_a_quarantined_file_shows_what_it_would_determine(
    h200: Accelerator, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "r.json"
    path.write_bytes(samples.body(samples.document()))
    out = run(capsys, path)
    assert "0 of" in out and "the result is quarantined" in out and "import it again with --approve" in out
    assert row(Result.objects.get(), "memory_fraction")["measured"] == pytest.approx(0.92, rel=0.02)


def test_a_second_equal_result_says_that_its_values_are_in_use_already(h200: Accelerator) -> None:
    for minutes in (0, 30):
        found = results.import_file(samples.body(samples.document(started_at=samples.begun(minutes))), approve=True)
        fitting.run(found.pk)
    found.refresh_from_db()
    figure = row(found, "matmul_16_fraction")
    assert figure["used"] and "has this value already" in figure["reason"]


def test_a_launch_probe_changes_the_speed_of_the_host(h200: Accelerator) -> None:
    slow = samples.entry("launch", {"mode": "eager"}, 2 * 1.20387e-5)
    found = results.import_file(samples.body(samples.document(results=[samples.known(), slow])), approve=True)
    written = fitting.run(found.pk)
    assert written and written.values["host_factor"] == pytest.approx(2.0, rel=1e-3)
    assert written.basis == "datasheet"  # the chip's kernels are not measured
    found.refresh_from_db()
    assert row(found, "host_factor")["used"] and "needs" in row(found, "attention_fraction")["reason"]


def test_the_page_and_the_api_show_the_report(client: Client, h200: Accelerator) -> None:
    found = results.import_file(samples.body(samples.document()), approve=True)
    fitting.run(found.pk)
    client.force_login(member("operator"))
    page = client.get(f"/workers/results/{found.pk}").content.decode()
    assert "What it changes" in page and "no probe measures it" in page
    shown = client.get(f"/api/v1/probe-results/{found.pk}").json()
    assert {r["figure"]: r["used"] for r in shown["report"]["figures"]}["memory_fraction"] is True
    assert "report" not in client.get("/api/v1/probe-results").json()["results"][0]
