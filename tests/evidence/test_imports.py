"""Importing: each figure has one outcome, a file read again changes nothing, and a person decides on what is held."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command

from advisor import evidence
from advisor.evidence import EvidenceError, Imported, NotHeld, Source
from catalog.management.errors import BadInput
from catalog.models import AuditEvent, EvidenceImport, EvidenceRow, HeldEvidence, ScoredRow
from tests import measured_samples
from tests.evidence import samples

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("frozen")]
ON_H200 = {"accelerator": "h200-sxm", "n_accelerators": "1", "framework": "vllm 0.19.0", "weights_dtype": "fp8"}
SOURCES = {
    "lab": Source(key="lab", name="A lab", place="example.org @1", client="vllm bench serve 0.19", licence="MIT")
}


def add(path: Path, options: Mapping[str, str] = ON_H200, only: str = "lab", **rest: Any) -> Imported:
    done = evidence.add(path, "", rest.get("sources", SOURCES), only, options, "alice")
    assert done.read == done.new + done.changed + done.confirmed + done.held + sum(done.skipped.values())
    return done


def rows(tmp_path: Path, *changes: Mapping[str, str]) -> Path:
    """A file of measured rows: closed loops of 16 users of Llama-3.1-8B in FP8 on an H200."""
    base = {"accelerator_slug": "h200-sxm", "accelerator": "H200", "source_key": "lab", "attention_dp": "1"}
    return measured_samples.write(
        tmp_path / "rows.csv", *(measured_samples.record(**{**base, **each}) for each in changes)
    )  # fmt: skip


def test_the_figures_of_a_run_are_stored_with_source_client_license_and_prediction(tmp_path: Path) -> None:
    done = add(samples.write(tmp_path / "r.json", samples.vllm()))
    assert (done.new, done.held, done.skipped) == (9, 0, {})
    row = EvidenceRow.objects.select_related("evidence_import").get(metric="tpot_ms_mean")
    assert (row.measured, row.model, row.accelerator, row.chips) == (9.0, samples.MODEL, "h200-sxm", 1)
    assert (row.framework, row.framework_version, row.weights_dtype) == ("vllm", "0.19.0", "fp8")
    assert row.predicted and row.bias_fraction == pytest.approx(row.predicted / 9.0 - 1)
    about = row.evidence_import
    assert (about.source_key, about.client, about.licence, about.made_by) == (
        "lab",
        "vllm bench serve 0.19",
        "MIT",
        "alice",
    )
    assert about.as_of.isoformat() == "2026-01-29" and about.counts["new"] == 9


def test_reading_a_file_again_confirms_every_figure(tmp_path: Path) -> None:
    path = samples.write(tmp_path / "r.jsonl", samples.sglang(), samples.sglang(max_concurrency=8), lines=True)
    first = add(path, {**ON_H200, "framework": "sglang 0.5.7", "date": "2026-02-01"})
    again = add(path, {**ON_H200, "framework": "sglang 0.5.7", "date": "2026-02-01"})
    assert first.new + first.held == first.read == again.confirmed + again.held
    assert (again.new, again.changed) == (0, 0)
    assert HeldEvidence.objects.count() == first.held


def test_a_corrected_figure_of_the_same_run_replaces_the_old_one(tmp_path: Path) -> None:
    add(rows(tmp_path, {}))
    done = add(rows(tmp_path, {"value": "11"}))
    assert (done.new, done.changed) == (0, 1)
    assert EvidenceRow.objects.get().measured == 11.0


def test_a_rounded_figure_is_the_same_one(tmp_path: Path) -> None:
    add(rows(tmp_path, {"value": "10.0042"}))
    assert add(rows(tmp_path, {"value": "10.004"})).confirmed == 1


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"model_id": "acme/unknown", "model": "unknown"}, "model not in the catalog: acme/unknown"),
        ({"accelerator_slug": "", "accelerator": "Acme One"}, "accelerator not in the catalog: Acme One"),
        ({"weights_dtype": "iq2_xxs"}, "weight format not in the catalog: iq2_xxs"),
        ({"kv_dtype": "q3_x"}, "cache format not in the catalog: q3_x"),
        ({"metric": "furlongs_per_fortnight"}, "unknown metric: furlongs_per_fortnight"),
        ({"value": "nan"}, "the value is not a number"),
        ({"isl": "", "osl": ""}, "token lengths not stated"),
        ({"task": "training"}, "training is not modeled"),
        ({"confidence": "C"}, "ambiguous metric"),
        ({"source_key": "../x"}, "names no source (source_key)"),
        ({"n_accelerators": "1e999"}, "cannot be read"),
    ],
)
def test_what_cannot_be_used_is_counted_by_its_reason(changes: dict[str, str], reason: str, tmp_path: Path) -> None:
    done = add(rows(tmp_path, changes), {}, only="", sources=SOURCES)
    assert (done.new, done.held) == (0, 0)
    assert [name for name in done.skipped if name.startswith(reason)]


def test_the_same_row_twice_counts_once_and_another_value_is_held(tmp_path: Path) -> None:
    run = samples.vllm()
    same = add(samples.write(tmp_path / "same.json", run, run))
    assert (same.new, same.skipped) == (9, {"is in the file twice": 9})
    EvidenceRow.objects.all().delete()
    other = add(samples.write(tmp_path / "other.json", run, {**run, "mean_tpot_ms": 9.9}))
    assert (other.new, other.held) == (9, 1)
    assert "second value" in HeldEvidence.objects.get().reason


def test_the_same_figure_under_another_source_is_held(tmp_path: Path) -> None:
    add(rows(tmp_path, {}))
    done = add(
        rows(tmp_path, {"id": "copy:tpot", "source_key": "copy"}), {}, only="copy", sources={"copy": Source(key="copy")}
    )
    assert done.held == 1
    assert HeldEvidence.objects.get().reason == "is identical to run:tpot"


def test_an_id_of_another_source_or_of_the_scorecard_is_left_alone(tmp_path: Path) -> None:
    add(rows(tmp_path, {}))
    ScoredRow.objects.create(
        key="run:ttft", source_key="x", metric="ttft_ms_mean", accelerator="h200-sxm", chips=1, framework="vllm",
        mode="agg", isl=1, osl=1, client="steady", client_known=True, phase="serving",
    )  # fmt: skip
    other = rows(tmp_path, {"source_key": "b"}, {"id": "run:ttft", "metric": "ttft_ms_mean", "source_key": "b"})
    done = add(other, {}, only="b", sources={"b": Source(key="b")})
    assert done.skipped == {"has the ID of a row of another source": 1, "is already a row of the scorecard": 1}


# --- decisions ----------------------------------------------------------------------------------------------------


def held_one(tmp_path: Path) -> HeldEvidence:
    assert add(rows(tmp_path, {"value": "10000"})).held == 1
    return HeldEvidence.objects.get()


def test_a_released_figure_counts_and_is_confirmed_when_it_is_read_again(tmp_path: Path) -> None:
    held = held_one(tmp_path)
    assert not EvidenceRow.objects.exists()
    evidence.release([held.pk], "bob")
    assert EvidenceRow.objects.get().measured == 10000.0
    assert AuditEvent.objects.get(action="evidence_decision").who == "bob"
    assert add(rows(tmp_path, {"value": "10000"})).confirmed == 1
    with pytest.raises(NotHeld, match="no held figure"):
        evidence.release([held.pk], "bob")


def test_a_discarded_figure_is_not_held_again_but_another_value_is(tmp_path: Path) -> None:
    evidence.discard([held_one(tmp_path).pk], "bob")
    assert add(rows(tmp_path, {"value": "10000"})).skipped == {"was discarded by a person earlier": 1}
    assert add(rows(tmp_path, {"value": "20000"})).held == 1


def test_decisions_are_all_or_none(tmp_path: Path) -> None:
    held = held_one(tmp_path)
    for act in (evidence.release, evidence.discard):
        with pytest.raises(NotHeld):
            act([held.pk, 999], "bob")
    assert HeldEvidence.objects.get().state == "held" and not EvidenceRow.objects.exists()


# --- what the file does not say -----------------------------------------------------------------------------------


def test_what_no_run_says_is_refused_with_the_options(tmp_path: Path) -> None:
    path = samples.write(tmp_path / "r.json", samples.vllm(model_id=None))
    with pytest.raises(EvidenceError, match=r"model \(--model\).*accelerator \(--accelerator\).*--chips.*--engine"):
        add(path, {})
    with pytest.raises(EvidenceError, match=r"layout of several accelerators \(--tp\)"):
        add(path, {**ON_H200, "model": samples.MODEL, "n_accelerators": "8"})
    assert not EvidenceImport.objects.exists()


def test_an_option_must_not_contradict_the_file(tmp_path: Path) -> None:
    path = samples.write(tmp_path / "r.json", samples.inferencex())
    with pytest.raises(EvidenceError, match="says n_accelerators 1, and --chips says 8"):
        add(path, {"n_accelerators": "8"})
    assert add(path, {"n_accelerators": "1"}).new == 9


def test_a_model_of_the_file_by_path_and_a_format_by_its_name(tmp_path: Path) -> None:
    add(
        samples.write(tmp_path / "r.json", samples.vllm(model_id="/models/Llama-3.1-8B-FP8")),
        {**ON_H200, "weights_dtype": ""},
    )
    assert set(EvidenceRow.objects.values_list("model", "weights_dtype")) == {(samples.MODEL, "fp8")}


def test_a_neighboring_model_is_another_model(tmp_path: Path) -> None:
    done = add(samples.write(tmp_path / "r.json", samples.vllm(model_id="meta-llama/Llama-3.1-8B-Turbo")))
    assert done.skipped == {"model not in the catalog: meta-llama/Llama-3.1-8B-Turbo": 9}


def test_llama_bench_on_part_of_the_layers_is_left_out(tmp_path: Path) -> None:
    done = add(samples.write(tmp_path / "r.json", samples.llama_bench(n_gpu_layers=20)), {})
    assert done.skipped == {"ran at least partly on the host CPU": 1}
    assert add(samples.write(tmp_path / "r.json", samples.llama_bench(n_gpu_layers=99)), {}).new == 1


def test_rows_without_a_described_source_are_refused(tmp_path: Path) -> None:
    with pytest.raises(EvidenceError, match="source lab, which nothing describes"):
        add(rows(tmp_path, {}), {}, only="", sources={})
    add(rows(tmp_path, {}))
    assert add(rows(tmp_path, {}), {}, only="", sources={}).confirmed == 1  # described by the earlier import


# --- the command --------------------------------------------------------------------------------------------------


def run(*words: str) -> None:
    call_command("evidence", *words)


def test_the_command_imports_shows_decides_and_exports(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = str(samples.write(tmp_path / "r.json", samples.vllm(mean_tpot_ms=9000.0)))
    run("import", file, "--source", "lab", "--client", "vllm bench serve", "--weights", "fp8", *samples.OPTIONS)
    told = capsys.readouterr().out
    assert "r.json (vllm; lab): 6 new, 0 changed, 0 confirmed, 3 held, 0 skipped of 9 figures read" in told
    assert "license not known: lab" in told
    run("held")
    assert "tpot_ms_mean 9000" in capsys.readouterr().out
    run("release", str(HeldEvidence.objects.order_by("pk")[0].pk))
    run("discard", *map(str, HeldEvidence.objects.filter(state="held").values_list("pk", flat=True)))
    run("status")
    assert "lab: 7 figures to 2026-01-29, 0 held; license not known; client vllm bench serve" in capsys.readouterr().out
    run("export", "--rows", str(tmp_path / "out.csv"))
    assert len((tmp_path / "out.csv").read_text().splitlines()) == 8


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["import", "{tmp}/none.json", "--source", "lab"], "cannot be read"),
        (["import", "{tmp}/r.json"], "does not name its source; give --source KEY"),
        (["import", "{tmp}/r.json", "--source", "a b"], "use letters"),
        (["import", "{tmp}/r.json", "--source", "lab"], "does not say the accelerator"),
        (["import", "{tmp}/r.json", "--source", "lab", "--as-of", "2099-01-01"], "in the future"),
        (["import", "{tmp}/r.json", "--source", "lab", "--as-of", "soon"], "YYYY-MM-DD"),
        (
            ["import", "{tmp}/r.json", "--source", "lab", "--from", "aiperf"],
            "not a result of AIPerf or GenAI-Perf; it is one of vllm bench serve",
        ),
        (["export"], "--to DIR"),
        (["release", "999"], "no held figure 999"),
    ],
)
def test_bad_input_says_what_to_give(words: list[str], said: str, tmp_path: Path) -> None:
    (tmp_path / "r.json").write_text(json.dumps(samples.vllm()))
    with pytest.raises(BadInput, match=said):
        run(*(word.format(tmp=tmp_path) for word in words))
    assert not EvidenceRow.objects.exists() and not EvidenceImport.objects.exists()


def test_a_list_of_sources_describes_rows_that_name_theirs(tmp_path: Path) -> None:
    (tmp_path / "sources.csv").write_text("source_key,where,license,client,rows\nlab,example.org,MIT,a client,7\n")
    run("import", str(rows(tmp_path, {})), "--sources", str(tmp_path / "sources.csv"))
    about = EvidenceImport.objects.get()
    assert (about.place, about.licence, about.client) == ("example.org", "MIT", "a client")
