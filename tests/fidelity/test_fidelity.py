"""The command `fidelity`: JSON, table, documents, and its complaints, over an engine that answers by hand."""

import io
import json
from types import SimpleNamespace

import pytest
import yaml
from django.core.management import CommandError, call_command

from advisor.engine.estimate.simulated import Estimate
from advisor.fidelity.scores import scoring
from tests.laboratory import report
from tests.laboratory.commands import fidelity
from tests.measured_samples import CATALOG, record, row, write


@pytest.fixture
def engine(monkeypatch):
    known = SimpleNamespace(models=CATALOG.models, accelerators=CATALOG.accelerators)

    def estimator(cases):
        return [Estimate(fits=1.0, tpot_mean_s=0.012, ttft_mean_s=0.1) for _ in cases]

    monkeypatch.setattr(fidelity, "catalog_estimator", lambda: (known, estimator, {"h100-sxm": "hopper"}))
    monkeypatch.setattr(fidelity.disputed, "impossible", lambda rows, resources: ())
    monkeypatch.setattr(report, "calibrations", list)


@pytest.fixture
def measurements(tmp_path):
    return write(
        tmp_path / "rows.csv",
        record(id="a"),
        record(id="b", metric="ttft_ms_mean", value="200"),
        record(id="c", task="training"),
    )


def run(*arguments):
    out = io.StringIO()
    call_command("fidelity", *map(str, arguments), stdout=out)
    return out.getvalue()


def test_json_has_rows_groups_and_overall(engine, measurements):
    figures = json.loads(run("--measurements", measurements, "--format", "json", "--by", "family,metric"))
    assert [r["skipped"] for r in figures["rows"]] == [
        None,
        None,
        "training: tpot_ms_mean follows from other rows of the same run",
    ]
    assert figures["rows"][0]["ape"] == pytest.approx(0.2)
    assert {(g["family"], g["metric"]) for g in figures["groups"]} == {
        ("hopper", "tpot_ms_mean"),
        ("hopper", "ttft_ms_mean"),
    }
    assert figures["overall"]["n"] == 2 and figures["overall"]["skipped"] == 1


def test_the_table_names_groups_totals_and_skips(engine, measurements):
    text = run("--measurements", measurements)
    assert "serving_nightly" in text and "ALL" in text and "training: tpot_ms_mean follows from" in text


def test_several_files_are_one_set(engine, measurements, tmp_path):
    more = write(tmp_path / "more.csv", record(id="d", concurrency_or_batch="4"))
    figures = json.loads(run("--measurements", measurements, "--measurements", more, "--format", "json"))
    assert len(figures["rows"]) == 4


def test_limit_takes_the_first_rows(engine, measurements):
    assert len(json.loads(run("--measurements", measurements, "--limit", 1, "--format", "json"))["rows"]) == 1


def test_an_unknown_column_is_refused(engine, measurements):
    with pytest.raises(CommandError, match="unknown column colour"):
        run("--measurements", measurements, "--by", "colour")


def test_a_bad_file_is_refused(engine, tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("id,value\n1,2\n")
    with pytest.raises(CommandError, match="missing columns"):
        run("--measurements", path)


@pytest.mark.django_db
def test_the_document_says_what_is_wrong_and_why(engine, measurements, tmp_path):
    path = tmp_path / "fidelity.md"
    run("--measurements", measurements, "--write-docs", path, "--rows-to", tmp_path / "rows")
    text = path.read_text()
    assert (tmp_path / "rows" / "serving_nightly.csv").exists()
    for heading in (
        "## Overall",
        "## Targets",
        "## By source",
        "## Worst rows",
        "## Skipped",
        "## Disputed",
        "## Published errors of other tools",
    ):
        assert heading in text
    assert "No calibration is loaded" in text


@pytest.mark.django_db
def test_the_published_report_is_not_written_without_the_rows_that_other_tools_answered(
    engine, measurements, tmp_path, monkeypatch
):
    monkeypatch.setattr(fidelity.score_files, "DIRECTORY", tmp_path / "rows")
    with pytest.raises(CommandError, match=r"answers.csv: \d+ rows are no longer scored"):
        run("--measurements", measurements, "--write-docs", tmp_path / "fidelity.md")
    assert not (tmp_path / "fidelity.md").exists() and not (tmp_path / "rows").exists()


@pytest.mark.django_db
def test_the_track_record_alone_is_written_from_the_loaded_scorecard(measurements, tmp_path, monkeypatch):
    from advisor import inputs

    stored, asked = fidelity.stored.track_record(), []
    monkeypatch.setattr(inputs, "catalog_resources", lambda: CATALOG)
    monkeypatch.setattr(fidelity.disputed, "find", lambda rows, known: {})
    monkeypatch.setattr(fidelity.decision_record, "record", lambda rows, *rest: asked.extend(rows) or stored)
    monkeypatch.setattr(fidelity.decision_document, "TRACK_RECORD", tmp_path / "record.yaml")
    text = run("--measurements", measurements, "--write-track-record", tmp_path / "page.md")
    assert "the first choice met its limits in" in text
    assert [r.id for r in asked] == ["a", "b"]  # no training
    assert (tmp_path / "page.md").read_text().startswith("# Track record")
    assert yaml.safe_load((tmp_path / "record.yaml").read_text()) == stored


def test_likely_reasons_follow_their_rules():
    estimates = [Estimate(fits=1.0, tpot_mean_s=0.012, saturating=True)]
    (busy,) = scoring.predict([row()], CATALOG, lambda cases: estimates)
    assert "saturated" in report.likely_reason(busy, {}, set())
    assert report.likely_reason(busy, {"run:tpot": "odd"}, set()) == "disputed: odd"
    (guess,) = scoring.predict([row(source_key="elsewhere")], CATALOG, lambda cases: estimates)
    assert "client" in report.likely_reason(guess, {}, set())


def test_rows_of_one_case_that_disagree_are_noted():
    rows = [row(id="a", value="10"), row(id="b", value="14")]
    results = scoring.predict(rows, CATALOG, lambda cases: [Estimate(fits=1.0, tpot_mean_s=0.012) for _ in cases])
    repeats = report.noisy_cases(results)
    assert "differ by more than 25 %" in report.likely_reason(results[0], {}, repeats)


@pytest.mark.django_db
def test_calibrations_are_the_newest_of_each_name():
    from datetime import date

    from catalog.models import Calibration

    for day in (1, 2):
        Calibration.objects.create(
            name="engine",
            values={"a": 1.0, "b": 2.0},
            basis="measured",
            fitted_on=f"rows of day {day}",
            engine_version="0.1.0",
            as_of=date(2026, 11, day),
        )
    (fit,) = report.calibrations()
    assert (fit.parameters, fit.fitted_on, fit.as_of) == (2, "rows of day 2", "2026-11-02")
