"""vLLM 0.24.0 on two H100s over HTTP: the rows against their result files, the predictions made before, and today's."""

import csv
import json
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest

from advisor.engine.estimate.simulated import Estimate, estimate_all
from advisor.engine.terms.workloads.case import Case
from advisor.fidelity.rows import Catalog, Row, case_of, note_of
from advisor.inputs.current import catalog_resources
from tests.laboratory.measurements import unchecked as read

MEASUREMENTS = Path("fixtures/measurements")
CAMPAIGNS = ("h100x2-serve", "h100x2-serve-2")  # in the order measured; each has its own predictions
ROWS_OF = {name: read(MEASUREMENTS / f"{name}.csv") for name in CAMPAIGNS}
ROWS = [row for rows in ROWS_OF.values() for row in rows]
FIELDS = {  # the result file's field and scale, of the three figures of a point under load
    "output_tokens_per_s": "output_throughput",
    "ttft_ms_mean": "mean_ttft_ms",
    "tpot_ms_mean": "mean_tpot_ms",
}
LOADED = [row for row in ROWS if row.metric in FIELDS]
SAID = {  # median |predicted / measured - 1| in the document: points not held out, points held out
    "h100x2-serve": {
        "output_tokens_per_s": (0.045, 0.021),
        "tpot_ms_mean": (0.060, 0.023),
        "ttft_ms_mean": (0.371, 0.189),
        "ttft_ms": (0.205, 0.110),
    },
    "h100x2-serve-2": {
        "output_tokens_per_s": (0.021, 0.023),
        "tpot_ms_mean": (0.033, 0.029),
        "ttft_ms_mean": (0.462, 0.067),
    },
}


def point_of(row: Row) -> str:
    return row.id.split(":")[0]


def held_out(row: Row) -> bool:
    return "held_out" in note_of(row)


@pytest.mark.parametrize(("name", "points"), [("h100x2-serve", 44), ("h100x2-serve-2", 15)])
def test_every_row_is_that_of_its_result_file_and_no_request_is_missing(name: str, points: int) -> None:
    files = {path.stem: json.loads(path.read_text()) for path in (MEASUREMENTS / name).glob("*.json")}
    loaded = [row for row in ROWS_OF[name] if row.metric in FIELDS]
    assert set(files) == {point_of(row) for row in loaded} and len(files) == points
    for row in loaded:
        found, users = files[point_of(row)], float(row.concurrency_or_batch)
        assert row.value == pytest.approx(found[FIELDS[row.metric]], rel=1e-4), row.id
        assert found["failed"] == 0 and found["completed"] == users * float(note_of(row)["requests_per_user"])
        assert found["total_output_tokens"] == found["completed"] * float(row.osl)
        seconds = (found["mean_ttft_ms"] + (float(row.osl) - 1) * found["mean_tpot_ms"]) / 1e3
        assert found["completed"] / found["duration"] * seconds == pytest.approx(users, rel=0.02), row.id


def errors(rows: list[Row], predicted: dict[tuple[str, str], float]) -> dict[tuple[str, bool], float]:
    """Median |predicted / measured - 1| by metric and whether the point is held out."""
    found = defaultdict(list)
    for row in rows:
        if (value := predicted.get((point_of(row), row.metric))) is not None:
            found[row.metric, held_out(row)].append(abs(value / row.value - 1))
    return {key: float(np.median(values)) for key, values in found.items()}


@pytest.mark.parametrize("name", CAMPAIGNS)
def test_the_predictions_made_before_the_run_are_as_far_off_as_the_document_says(name: str) -> None:
    lines = (MEASUREMENTS / f"{name}-predictions.csv").read_text().splitlines()
    before = {row["point"]: row for row in csv.DictReader(lines)}
    rows = ROWS_OF[name]
    predicted = {
        (point_of(row), row.metric): float(
            before[point_of(row)][row.metric if row.metric in FIELDS else "ttft_ms_mean"]
        )
        for row in rows
    }
    assert all(held_out(row) == (before[point_of(row)]["held_out"] == "1") for row in rows)
    found = errors(rows, predicted)
    for metric, with_held_out in SAID[name].items():
        assert (found[metric, False], found[metric, True]) == pytest.approx(with_held_out, abs=0.0006), metric


def test_ranks_of_attention_data_parallelism_share_the_mode_and_the_time_of_a_step() -> None:
    found = list(csv.DictReader((MEASUREMENTS / "h100x2-dp-steps.csv").read_text().splitlines()))
    outside = [row for row in found if row["mode"] == "NONE"]
    assert len(outside) == 55
    for row in found:
        largest = max(int(row["tokens_a"]), int(row["tokens_b"]))
        assert (row["mode"] == "NONE") == (largest > 512), row  # one rank above the graphs takes the other along
    spans = [(float(row["gpu_ms_a"]), float(row["gpu_ms_b"])) for row in found if row["gpu_ms_a"] and row["gpu_ms_b"]]
    assert all(a == pytest.approx(b, rel=0.06) for a, b in spans)
    one_sided = [row for row in outside if "0" not in (row["tokens_a"], row["tokens_b"])]
    one_sided = [row for row in one_sided if "0" in (row["prompts_a"], row["prompts_b"])]
    spans = [(float(row["gpu_ms_a"]), float(row["gpu_ms_b"])) for row in one_sided]
    assert len(spans) == 11 and np.median([max(pair) for pair in spans]) == pytest.approx(88, abs=1)


def test_the_host_is_busy_for_the_whole_of_a_step_outside_graphs() -> None:
    found = list(csv.DictReader((MEASUREMENTS / "h100x2-host-steps.csv").read_text().splitlines()))
    outside = [row for row in found if row["graph_mode"] == "NONE"]
    assert len(outside) > 50
    for row in outside:  # CPU time of the main thread is its wall-clock time: it waits for nothing
        assert float(row["host_cpu_ms"]) == pytest.approx(float(row["host_ms"]), rel=0.03), row
    rounds = [row for row in found if row["run"] == "b" and row["varied"].startswith("reference, round")]

    def median(server: str) -> float:
        return float(np.median([float(row["host_ms"]) for row in rounds if row["server"] == server]))

    compiled = median("16 layers FP8, HTTP")
    assert median("16 layers FP8, HTTP, --enforce-eager") / compiled == pytest.approx(0.80, abs=0.01)
    assert median("16 layers BF16, HTTP") / compiled == pytest.approx(0.78, abs=0.01)


@pytest.mark.django_db
@pytest.mark.usefixtures("shipped")
def test_todays_predictions_stay_near_those() -> None:
    known = catalog_resources(sorted({row.model_id for row in ROWS}))

    class Known(Catalog):
        models, accelerators = known.models, {"h100-sxm"}

    cases = {point_of(row): case_of(row, Known()) for row in LOADED}
    assert all(isinstance(case, Case) and case.routing_evenness == 1e6 for case in cases.values())
    for row in LOADED:
        case = cases[point_of(row)]
        assert isinstance(case, Case) and case.client.kind == "burst"
        assert case.client.requests_per_user == float(note_of(row)["requests_per_user"])
    found: list[Estimate] = estimate_all(list(cases.values()), known)
    predicted = {}
    for point, e in zip(cases, found, strict=True):
        predicted[point, "output_tokens_per_s"] = e.output_tokens_per_s
        predicted[point, "tpot_ms_mean"] = e.tpot_mean_s * 1e3
        predicted[point, "ttft_ms_mean"] = e.ttft_mean_s * 1e3
    now = errors(ROWS_OF["h100x2-serve"], predicted)
    assert now["output_tokens_per_s", True] < 0.03 and now["output_tokens_per_s", False] < 0.06
    assert now["tpot_ms_mean", True] < 0.035 and now["tpot_ms_mean", False] < 0.075
    assert now["ttft_ms_mean", True] < 0.25 and now["ttft_ms_mean", False] < 0.45
    now = errors(ROWS_OF["h100x2-serve-2"], predicted)
    assert max(now["output_tokens_per_s", True], now["output_tokens_per_s", False]) < 0.05
    assert max(now["tpot_ms_mean", True], now["tpot_ms_mean", False]) < 0.06
