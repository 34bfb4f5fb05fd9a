"""Imported figures are shown where measured rows are, with source and license; the scorecard stays."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from advisor import evidence
from advisor.engine.terms import Correction, correction
from advisor.evidence import Source
from advisor.fidelity import nearest_rows, scorecard, scoring
from advisor.inputs import catalog_resources, measured
from advisor.report import estimate_text
from catalog.details import freshness
from catalog.loading import scored as files
from catalog.models import EvidenceRow
from tests.evidence import samples
from tests.fidelity.test_evidence import HERE
from tests.laboratory import score_files
from tests.measured_samples import row

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("frozen")]
ASKED = replace(HERE, accelerator="h200-sxm", framework="vllm")
OPTIONS = {"accelerator": "h200-sxm", "n_accelerators": "1", "framework": "vllm 0.19.0", "weights_dtype": "fp8"}


@pytest.fixture
def card(tmp_path: Path) -> None:
    """A scorecard with one run on an H100."""
    known = catalog_resources()
    from advisor.engine.estimate import estimate_all

    results = scoring.predict([row(id="scored:tpot")], known, lambda cases: estimate_all(cases, known))
    score_files.write(results, {}, None, "abc", tmp_path / "card")
    files.load(tmp_path / "card")


def import_run(tmp_path: Path, **options: str) -> None:
    path = samples.write(tmp_path / "r.json", samples.vllm())
    source = Source(key="lab", name="A lab", place="example.org", client="vllm bench serve", licence="MIT")
    evidence.add(path, "", {"lab": source}, "lab", OPTIONS | options, "alice")


def test_an_imported_run_is_the_nearest_measurement_with_its_source(card: None, tmp_path: Path) -> None:
    assert [each.accelerator for each in nearest_rows.evidence(ASKED)] == ["h100-sxm"]
    import_run(tmp_path)
    first = nearest_rows.evidence(ASKED)[0]
    assert (first.accelerator, first.distance, first.source) == ("h200-sxm", 0.0, "A lab (imported)")
    assert first.predicted and first.error_fraction == pytest.approx(abs(first.predicted / first.measured - 1))
    assert first.url.startswith("/catalog/evidence?key=")


def test_a_row_without_a_prediction_says_so(card: None, tmp_path: Path) -> None:
    import_run(tmp_path, framework="ATOM 0.1.5")
    first = nearest_rows.evidence(ASKED)[0]
    assert (first.predicted, first.error_fraction) == (None, None)
    assert "(not predicted); A lab (imported)" in "\n".join(estimate_text.evidence_lines([first]))
    assert EvidenceRow.objects.filter(note="no prediction: no such framework: atom").count() == 9


def test_a_discarded_import_is_gone_from_answers_at_once(card: None, tmp_path: Path) -> None:
    import_run(tmp_path)
    assert nearest_rows.runs_of_model(samples.MODEL)[-1].situation.accelerator == "h200-sxm"
    EvidenceRow.objects.all().delete()
    assert {each.accelerator for each in nearest_rows.evidence(ASKED)} == {"h100-sxm"}


def test_nothing_imported_counts_in_the_scorecard_or_changes_a_calibration(card: None, tmp_path: Path) -> None:
    def state() -> Any:
        found = scorecard.card()
        assert found is not None
        return len(found.lines), found.head.digest, catalog_resources().scopes

    before = state()
    import_run(tmp_path)
    assert EvidenceRow.objects.count() == 9 and state() == before


def test_an_imported_run_corrects_exactly_its_stack_where_the_scorecard_has_none(card: None, tmp_path: Path) -> None:
    def of(chip: str, framework: str = "vllm", version: str = "0.19.0") -> Correction:
        scopes = measured.scopes_for(samples.MODEL, 1024, 1024)
        return correction(scopes, chip, framework, version, ("fp8",), (1, 1, 1, 1))

    scored = of("h100-sxm")
    assert not of("h200-sxm").rows
    import_run(tmp_path)
    found = of("h200-sxm")
    assert (found.rows, found.imported, found.by_owner) == (1, True, False)
    assert of("h200-sxm", version="0.33.0") == found  # of any release
    (tpot,) = EvidenceRow.objects.filter(metric="tpot_ms_mean")
    assert 1.0 < found.time_factor < tpot.measured / tpot.predicted or 1.0 > found.time_factor
    assert not of("b200").rows and not of("h200-sxm", "sglang").rows and of("h100-sxm") == scored
    EvidenceRow.objects.update(mode="disagg")
    assert not of("h200-sxm").rows


def test_the_page_the_file_and_the_rest_list_have_source_and_license(tmp_path: Path, client: Client) -> None:
    import_run(tmp_path)
    page = client.get("/catalog/evidence", {"metric": "tpot_ms_mean", "accelerator": "h200-sxm"}).content.decode()
    assert (
        "Imported measurements" in page and "MIT" in page and '<td class="num">9</td>' in page and "1,680" not in page
    )
    key = EvidenceRow.objects.get(metric="tpot_ms_mean").key
    assert client.get("/catalog/evidence", {"key": f"{key},none", "format": "csv"}).content.decode().count("\n") == 2
    answer = client.get("/api/v1/evidence", {"key": key}).json()
    (found,) = answer["results"]
    assert (found["measured"], found["licence"], found["load_generator"]) == (9.0, "MIT", "vllm bench serve")
    assert found["source_name"] == "A lab" and found["source_key"] == "lab"


def test_the_page_of_an_accelerator_links_to_its_imported_figures(tmp_path: Path, client: Client) -> None:
    assert "imported serving measurements" not in client.get("/catalog/accelerators/h200-sxm").content.decode()
    import_run(tmp_path)
    page = client.get("/catalog/accelerators/h200-sxm").content.decode()
    assert '<a href="/catalog/evidence?accelerator=h200-sxm">9 imported serving measurements</a>' in page


def test_freshness_counts_what_was_imported_and_what_is_held(tmp_path: Path) -> None:
    import_run(tmp_path)
    kind = next(each for each in freshness.kinds() if each.name == "imported measurements")
    assert (kind.rows, kind.newest, kind.said) == (9, "2026-01-29", "9 figures of 1 sources; 0 held")
