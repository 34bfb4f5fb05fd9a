"""The scored rows on disk: written by `fidelity --write-docs`, loaded with the catalog, the same figures in both."""

import re
from pathlib import Path

import pytest
import yaml

from advisor.engine.estimate.simulated import Estimate
from advisor.fidelity.rows import case_of
from advisor.fidelity.scores import scorecard, scoring
from advisor.fidelity.training import rows as training_rows
from advisor.inputs import catalog_resources
from catalog.loading import scored as files
from catalog.loading.fixtures import FixtureError
from catalog.models import Scorecard, ScoredRow
from tests.laboratory import score_files, summaries
from tests.measured_samples import CATALOG, row

pytestmark = pytest.mark.django_db
ROOT = Path(__file__).parents[2]
VALIDATION = {"errors": {"held out": {"one accelerator": {"tpot": 0.11, "throughput": 0.2}}}, "intervals": {}}


def scored(*rows):
    estimate = Estimate(fits=1.0, tpot_mean_s=0.012, ttft_mean_s=0.1, flops_per_s=5e14)
    return scoring.predict(rows, CATALOG, lambda cases: [estimate for _ in cases], {"h100-sxm": "hopper"})


@pytest.fixture
def results():
    return scored(
        row(id="a:tpot"),
        row(id="a:ttft", metric="ttft_ms_mean", value="200"),
        row(id="b:tpot", value="12345.678", accelerator_slug="b200"),
        row(id="c:tpot", concurrency_or_batch="32", source_key="serving_dated"),
        row(id="d", task="training"),
    )


def write(results, directory, disputed=None):
    return score_files.write(results, disputed or {}, VALIDATION, "abc", directory)


def test_what_is_written_is_what_the_pages_sum_up(results, tmp_path):
    assert write(results, tmp_path) == 4
    assert files.load(tmp_path) == (4, 0)
    of_pages, of_command = scorecard.figures(scorecard.card().lines), summaries.summary(results)
    assert of_pages.pop("coverage_90") is of_command.pop("coverage_90") is None
    assert of_pages == pytest.approx(of_command, rel=1e-3)
    assert of_pages["pairs"] == 1
    stored = ScoredRow.objects.get(key="a:ttft")
    assert (stored.measured, stored.predicted, stored.accelerator, stored.layout) == (200, 100, "h100-sxm", "tp1")
    assert stored.replica_chips == 1 and stored.concurrency == 16
    assert Scorecard.objects.get().skipped == {"training is not modeled": 1}


def test_loading_again_changes_nothing_and_a_new_score_replaces_the_old(results, tmp_path):
    write(results, tmp_path)
    files.load(tmp_path)
    assert files.load(tmp_path) == (0, 4)
    write(results[:2], tmp_path)
    assert files.load(tmp_path) == (2, 0)
    assert ScoredRow.objects.count() == 2 and Scorecard.objects.count() == 1
    assert not (tmp_path / "serving_dated.csv").exists()
    assert len(scorecard.card().lines) == 2


def test_figures_under_a_share_alike_licence_stay_at_their_source(tmp_path):
    kernel = {"task": "kernel", "metric": "tflops_per_gpu", "concurrency_or_batch": "4096x4096x4096"}
    results = scored(row(id="k", value="625.5", source_key="mamf", **kernel))
    write(results, tmp_path)
    assert "625.5" not in (tmp_path / "mamf.csv").read_text()
    files.load(tmp_path)
    stored = ScoredRow.objects.get()
    assert stored.measured is None and stored.predicted is None and stored.low is None
    assert scorecard.line_of(stored).point.ape == pytest.approx(results[0].ape, rel=1e-3)


def test_a_source_that_nobody_described_is_refused_before_anything_is_written(results, tmp_path):
    with pytest.raises(FixtureError, match=r"does not describe elsewhere: add a line"):
        write([*results, *scored(row(id="x", source_key="elsewhere"))], tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_was_cut_is_refused(results, tmp_path):
    write(results, tmp_path)
    (tmp_path / "serving_dated.csv").unlink()
    with pytest.raises(FixtureError, match="states 4 rows, but the files have 3"):
        files.load(tmp_path)
    assert not ScoredRow.objects.exists()


def test_a_cell_that_is_no_number_is_named(results, tmp_path):
    write(results, tmp_path)
    path = tmp_path / "serving_nightly.csv"
    path.write_text(path.read_text().replace(",200,", ",fast,"))
    with pytest.raises(FixtureError, match=r"a:ttft.*fast"):
        files.load(tmp_path)


@pytest.mark.parametrize(
    ("layout", "chips"), [("tp8 ep8 x2", 8), ("tp4 pp2", 8), ("dp8 ep8", 8), ("tp1 x8 | tp2 dp4", 8), ("", None)]
)
def test_chips_of_a_replica_follow_from_the_layout(layout, chips):
    assert files.replica_chips(layout) == chips


def test_a_disputed_row_carries_its_reason(results, tmp_path):
    write(results, tmp_path, {"a:tpot": "contradicts itself"})
    files.load(tmp_path)
    stored = ScoredRow.objects.get(key="a:tpot")
    assert (stored.circumstance, stored.note) == ("disputed", "contradicts itself")


def test_the_shipped_rows_are_those_of_the_published_report():
    head = yaml.safe_load((score_files.DIRECTORY / files.HEAD).read_text())
    report = (ROOT / "docs" / "reference" / "fidelity.md").read_text()
    assert f"Engine {head['engine_version']}, calibration {head['calibration']}." in report
    served, timed = (
        int(re.search(rf"\| {name} \| (\d+) \|", report)[1]) for name in ("all rows", "step time and tokens/s")
    )
    paths = [path for path in score_files.DIRECTORY.glob("*.csv") if path.name != files.SOURCES]
    rows = [stored for path in paths for stored in files.scored_rows(path)]
    trained = [stored for stored in rows if stored["phase"] == "training"]
    assert served == len(rows) - len(trained) and len(rows) == head["rows"]
    assert timed == sum(stored["metric"] in training_rows.TIMES for stored in trained)


def test_no_shipped_row_has_a_figure_of_a_source_that_keeps_its_own():
    kept = [s["source_key"] for s in files.sources(score_files.DIRECTORY / files.SOURCES) if s["figures"] == "kept out"]
    assert "mamf" in kept
    for key in kept:
        for stored in files.scored_rows(score_files.DIRECTORY / f"{key}.csv"):
            assert stored["measured"] is None and stored["predicted"] is None and stored["low"] is None


@pytest.mark.usefixtures("shipped")
def test_most_shipped_rows_of_serving_say_enough_to_be_predicted_again():
    """Their case is the one that was scored: framework, version, format, layout and phase are those of the row."""
    known = catalog_resources()
    files.load(score_files.DIRECTORY)
    served = [stored for stored in ScoredRow.objects.exclude(phase="training") if stored.client != "poisson"]
    found, left = score_files.published(served, known)
    assert len(found) > 6000 and len(found) + sum(left.values()) == len(served)
    by_key = {stored.key: stored for stored in served}
    for restored in found[::50]:
        case, stored = case_of(restored, known), by_key[restored.id]
        assert (case.chips, case.isl, case.osl, case.model_id) == (stored.chips, stored.isl, stored.osl, stored.model)
        assert case.client.kind == stored.client


def test_a_row_that_its_columns_do_not_describe_is_counted_and_not_predicted(results, tmp_path):
    write(results, tmp_path)
    files.load(tmp_path)
    ScoredRow.objects.filter(key="a:ttft").update(layout="tp3 of something")
    ScoredRow.objects.filter(key="c:tpot").update(client="poisson")
    found, left = score_files.published(ScoredRow.objects.order_by("pk"), CATALOG)
    assert {row.id for row in found} == {"a:tpot", "b:tpot"} and sum(left.values()) == 2
