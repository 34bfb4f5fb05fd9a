"""options.csv has the 90% interval of each figure beside it."""

import csv
import io

import pytest
from django.test import Client

from advisor.result import Answer
from tests import sample_advice, sample_training
from tests.web import sample_plan

pytestmark = pytest.mark.django_db


def rows_of(client: Client, advice: object) -> list[dict[str, str]]:
    text = client.get(f"/advice/{advice.pk}/options.csv").content.decode()  # type: ignore[attr-defined]
    return list(csv.DictReader(io.StringIO(text)))


def test_a_figure_with_an_interval_has_its_ends_beside_it(client: Client) -> None:
    answer = sample_plan.result()
    for row, option in zip(rows_of(client, sample_advice.advice(answer)), answer["recommendations"], strict=True):
        for name in ("ttft_ms_p95", "tpot_ms_p95", "usd_per_mtok_output"):
            assert [float(row[f"{name}_{end}"]) for end in ("low", "high")] == option["interval"][name]
        if ranges := (option.get("money") or {}).get("ranges"):
            low, _, high = ranges["usd_per_month"]
            assert (float(row["usd_per_month_low"]), float(row["usd_per_month_high"])) == (low, high)


def test_an_absent_interval_is_an_empty_cell(client: Client) -> None:
    row = rows_of(client, sample_advice.advice())[0]
    assert row["watts"] and row["watts_low"] == row["watts_high"] == ""


@pytest.mark.usefixtures("frozen")
def test_runs_have_the_interval_of_their_days(client: Client) -> None:
    advice = sample_training.advice("pretrain")
    run = Answer.read(advice.answer).training_runs[0]
    row = rows_of(client, advice)[0]
    assert run.interval.days and [float(row["days_low"]), float(row["days_high"])] == pytest.approx(run.interval.days)
