"""vLLM 0.33.0 on one H200: the rows agree with each other and with what the document says of the predictions."""

import csv
import lzma
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest

from tests.laboratory.measurements import unchecked as read

MEASUREMENTS = Path("fixtures/measurements")
HELD_OUT = read(MEASUREMENTS / "h200-vllm-033-held-out.csv")
ROWS = [*read(MEASUREMENTS / "h200-vllm-033.csv"), *HELD_OUT]
SAID = {  # median |predicted / measured - 1| of closed loops in the document: not held out, held out
    "output_tokens_per_s": (0.055, 0.177),
    "tpot_ms_mean": (0.046, 0.168),
    "ttft_ms_mean": (0.165, 0.109),
}


def table(name: str) -> dict[str, dict[str, str]]:
    return {row["point"]: row for row in csv.DictReader((MEASUREMENTS / name).read_text().splitlines())}


BEFORE = table("hopper-vllm-033-predictions.csv")


def test_the_users_of_a_point_are_its_requests_in_flight() -> None:
    points: dict[str, dict[str, float]] = defaultdict(dict)
    for row in ROWS:
        if float(row.osl) > 1:
            points[row.id.split(":")[0]][row.metric] = row.value
    assert len(points) == 24
    for point, found in points.items():
        users, osl = float(BEFORE[point]["concurrency"]), float(BEFORE[point]["osl"])
        seconds = (found["ttft_ms_mean"] + (osl - 1) * found["tpot_ms_mean"]) / 1e3
        assert found["output_tokens_per_s"] / osl * seconds == pytest.approx(users, rel=0.06), point


def test_the_predictions_made_before_the_run_are_as_far_off_as_the_document_says() -> None:
    errors = defaultdict(list)
    for row in ROWS:
        before = BEFORE[row.id.split(":")[0]]
        held_out = row in HELD_OUT
        assert held_out == (before["held_out"] == "1"), row.id
        if float(row.osl) > 1:
            errors[row.metric, held_out].append(abs(float(before[row.metric]) / row.value - 1))
    for metric, said in SAID.items():
        found = tuple(float(np.median(errors[metric, held_out])) for held_out in (False, True))
        assert found == pytest.approx(said, abs=0.0006), metric


def test_every_open_loop_was_predicted() -> None:
    measured = table("h200-vllm-033-open-loop.csv")
    before = table("hopper-vllm-033-open-loop-predictions.csv")
    assert len(measured) == 3
    assert all(before[point]["held_out"] == row["held_out"] for point, row in measured.items())


def test_the_further_open_loops_were_predicted_and_are_as_far_off_as_the_document_says() -> None:
    before = table("hopper-vllm-033-open-loop-predictions.csv") | table("hopper-vllm-033-open-loop-2-predictions.csv")
    errors = defaultdict(list)
    for point, row in table("hopper-vllm-033-open-loop-2.csv").items():
        assert before[point]["held_out"] == row["held_out"], point
        for metric in ("ttft_ms_p50", "ttft_ms_p95", "tpot_ms_p50", "tpot_ms_p95"):
            errors[row["held_out"]].append((metric, abs(float(before[point][metric]) / float(row[metric]) - 1)))
    for held_out, said in (("0", (0.26, 0.16, 0.08, 0.043)), ("1", (0.31, 0.11, 0.33, 0.18))):
        found = [np.median([e for metric, e in errors[held_out] if metric == name]) for name in dict(errors[held_out])]
        assert found == pytest.approx(said, abs=0.006), held_out


@pytest.mark.parametrize("name", ["hopper-vllm-033-open-loop-2", "hopper-vllm-033-open-loop-3"])
def test_the_percentiles_of_the_further_open_loops_follow_from_their_requests(name: str) -> None:
    requests = defaultdict(list)
    with lzma.open(MEASUREMENTS / f"{name}-requests.csv.xz", "rt") as file:
        for row in csv.DictReader(file):
            if row.get("phase", "window") == "window":
                requests[row["point"]].append(float(row["ttft_ms"]))
    for point, row in table(f"{name}.csv").items():
        assert len(requests[point]) == int(row["requests"]), point
        assert np.percentile(requests[point], 95) == pytest.approx(float(row["ttft_ms_p95"]), rel=1e-3), point


def test_the_last_open_loops_were_predicted_and_are_as_far_off_as_the_document_says() -> None:
    before = table("hopper-vllm-033-open-loop-3-predictions.csv")
    metrics = ("ttft_ms_p50", "ttft_ms_p95", "tpot_ms_p50", "tpot_ms_p95")
    errors = defaultdict(list)
    for point, row in table("hopper-vllm-033-open-loop-3.csv").items():
        predicted = before[f"{point}@0.0" if "ngram" in point else point]
        assert predicted["held_out"] == row["held_out"], point
        errors[row["held_out"]].append([abs(float(predicted[m]) / float(row[m]) - 1) for m in metrics])
    assert {held_out: len(rows) for held_out, rows in errors.items()} == {"0": 11, "1": 8}
    for held_out, said in (("0", (0.30, 0.28, 0.056, 0.072)), ("1", (0.38, 0.28, 0.17, 0.22))):
        assert np.median(errors[held_out], axis=0) == pytest.approx(said, abs=0.006), held_out
