"""vLLM 0.33.0 on one H200: the rows agree with each other and with what the document says of the predictions."""

import csv
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest

from advisor.fidelity.rows import read

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
