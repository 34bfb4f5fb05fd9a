"""The results: equal to single answers, and the same table as CSV, Parquet and JSON."""

import csv
import io
from typing import Any

import pandas
import pyarrow.parquet
import pytest
from django.test import Client

from advisor import answer, inputs
from advisor.answer import single_estimate
from advisor.models import Study
from advisor.studies import pieces, plan, tables
from advisor.workload import Deployment, WorkloadError, parse
from catalog.models import default_organisation
from tests.clocks import TODAY
from tests.studies import sample

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("frozen")]
PANDAS = {"int64": "Int64", "float64": "Float64", "bool": "boolean", "string": "string"}
ESTIMATES = {
    "kind": "estimates",
    "models": ["meta-llama/Llama-3.1-8B", "meta-llama/Llama-3.3-70B-Instruct"],
    "accelerators": ["l4", "h100-sxm", "tpu-v6e"],
    "weights": ["bf16", "fp8"],
    "isl": 1000,
    "osl": 100,
}


def computed(raw: dict[str, Any]) -> Study:
    study = pieces.request(raw, default_organisation(), awake=False)
    pieces.drain(study.pk, pause_s=0)
    study.refresh_from_db()
    assert (study.state, study.error) == ("done", "")
    return study


@pytest.fixture(scope="module")
def both(frozen: None, django_db_blocker: Any) -> dict[str, tuple[Any, list[Any]]]:
    """Two studies, computed once: their columns and rows."""
    grid = {"traffic.requests_per_s.mean": [2, 400], "objective": ["cost"]}
    tight = {**sample.WORKLOAD, "constraints": {**sample.WORKLOAD["constraints"], "max_usd_per_month": 20_000}}
    asked: dict[str, dict[str, Any]] = {
        "grid": {**sample.GRID, "workload": tight, "grid": grid},
        "estimates": ESTIMATES,
    }
    found = {}
    with django_db_blocker.unblock():
        for name, raw in asked.items():
            study = computed(raw)
            found[name] = (pieces.table_of(study), pieces.Rows(study)[:])
            study.delete()
    return found


def test_a_row_has_the_figures_of_a_single_answer(both: Any) -> None:
    first, second = both["grid"][1]
    spec = parse({**sample.WORKLOAD, "constraints": {**sample.WORKLOAD["constraints"], "max_usd_per_month": 20_000}})
    spec = {**inputs.with_catalog_names(spec), "prices_as_of": TODAY.isoformat()}
    single = answer.recommend(spec, inputs.take_snapshot(spec, default_organisation()))
    option: Any = single.recommendations[0]
    assert (first["feasible"], first["option"], first["decision"]) == (True, option.label, single.verdict)
    assert first["usd_per_month"] == option.usd_per_month and first["tpot_ms_p95"] == option.tpot_ms.p95
    assert first["usd_per_month_low"] <= first["usd_per_month"] <= first["usd_per_month_high"]
    assert (second["feasible"], second.get("option")) == (False, None)
    assert "l40s" in second["why_not"]


def test_an_estimate_is_that_of_the_command(both: Any) -> None:
    rows = {
        (row["set"]["model"], row["set"]["accelerator"], row["set"]["weights"]): row for row in both["estimates"][1]
    }
    assert len(rows) == 12
    big = rows["meta-llama/Llama-3.3-70B-Instruct", "h100-sxm", "fp8"]
    single = single_estimate.answer(
        Deployment.model_validate({
            "model": "meta-llama/Llama-3.3-70B-Instruct", "accelerator": "h100-sxm", "weights": "fp8", "isl": 1000,
            "osl": 100, "concurrency": 32, "tp": big["accelerator_count"],
        })
    )  # fmt: skip
    assert big["fits"] and big["output_tokens_per_s"] == single.output_tokens_per_s
    unsupported = rows["meta-llama/Llama-3.1-8B", "tpu-v6e", "fp8"]
    assert not unsupported["fits"] and "documented support for FP8" in unsupported["why_not"]


@pytest.mark.parametrize("kind", ["grid", "estimates"])
def test_csv_and_parquet_read_back_alike(both: Any, kind: str) -> None:
    table, rows = both[kind]
    stored = pyarrow.parquet.read_table(io.BytesIO(tables.parquet(table, rows)))
    types = {column.name: PANDAS[column.type] for column in table}
    of_csv = pandas.read_csv(io.StringIO(tables.csv_text(table, rows)), dtype=types)
    of_parquet = stored.to_pandas().astype(types)
    pandas.testing.assert_frame_equal(of_csv, of_parquet)
    assert list(of_csv.columns) == [column.name for column in table] and len(of_csv) == len(rows)
    assert stored.schema.field("cpu_s").metadata[b"unit"] == b"s"
    assert tables.objects(table, rows) == stored.to_pylist()


def test_no_text_of_the_csv_is_a_formula() -> None:
    table = tables.columns("grid", [("name", "string")])
    row = {
        "point": 0,
        "set": {"name": "=1+1"},
        "state": "failed",
        "error": "@SUM(A1)",
        "workload": "+w",
        "usd_per_run": -1,
    }
    (found,) = csv.DictReader(io.StringIO(tables.csv_text(table, [row])))
    assert (found["set_name"], found["error"], found["workload"]) == ("'=1+1", "'@SUM(A1)", "'+w")
    assert found["usd_per_run"] == "-1.0"


def test_every_row_has_columns_alone_and_every_figure_a_unit(both: Any) -> None:
    for table, rows in both.values():
        names = {column.name for column in table} | {"set"}
        assert {name for row in rows for name in row} <= names
        unitless = [c.name for c in table if c.type == "float64" and not c.unit and not c.name.startswith(tables.SET)]
        assert unitless == []


def test_results_are_available_while_a_study_runs(client: Client) -> None:
    study = pieces.request({**ESTIMATES, "models": ["meta-llama/Llama-3.1-8B"]}, default_organisation(), awake=False)
    pieces.drain_reads(study.pk)
    url = f"/api/v1/studies/{study.pk}"
    assert client.get(f"{url}/results").json()["count"] == 0
    assert client.get(f"{url}/results.csv").content.decode().count("\n") == 1
    pieces.drain(study.pk, pause_s=0)
    page = client.get(f"{url}/results?limit=4&offset=1").json()
    assert page["count"] == 6 and [row["point"] for row in page["results"]] == [1, 2, 3, 4]
    assert client.get(f"{url}/results.csv").content.decode().count("\n") == 7
    parquet = client.get(f"{url}/results.parquet")
    assert pyarrow.parquet.read_table(io.BytesIO(parquet.content)).num_rows == 6


def test_a_row_in_closed_form_is_the_first_of_the_ranking_by_formulas() -> None:
    raw = {
        **sample.GRID,
        "method": "closed_form",
        "grid": {"traffic.requests_per_s.mean": [2, 3], "objective": ["cost"]},
    }
    study = computed(raw)
    assert pieces.progress(study).pieces == 1  # shares lanes
    rows = pieces.Rows(study)[:]
    assert [row["point"] for row in rows] == [0, 1] and study.points == 2
    for row in rows:
        changes = row["set"]
        spec = inputs.with_catalog_names(parse(plan.changed(raw["workload"], changes)), default_organisation())
        first = answer.quick.quick_answer(spec, default_organisation()).options[0]
        figures = ("usd_per_month", "ttft_ms_p95", "tpot_ms_p95", "accelerator", "provider", "replicas")
        assert {name: row[name] for name in figures} == {name: getattr(first, name) for name in figures}
        assert row["feasible"] and "not simulated" in row["decision"]


def test_what_has_no_ranking_is_refused_before_anything_is_stored() -> None:
    training = {"kind": "finetuning", "model": "meta-llama/Llama-3.1-8B", "finetuning": {"tokens": 1_000_000}}
    with pytest.raises(WorkloadError, match="no quick ranking"):
        pieces.request(
            {"kind": "workloads", "method": "closed_form", "workloads": [training]}, default_organisation(), awake=False
        )
    assert not Study.objects.exists()
