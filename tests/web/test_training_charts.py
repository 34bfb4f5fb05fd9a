"""The pictures of a training run: where its marks stand, and what they say without being seen."""

import re
from typing import Any

import pytest

from advisor.result import Answer, TrainingOption
from advisor.web.answers import training_page
from advisor.web.charts import plots as charts
from advisor.web.charts import training as training_charts
from catalog.charts import apart
from tests import sample_training

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("frozen")]


def runs(name: str = "pretrain") -> list[TrainingOption]:
    return Answer.read(sample_training.result(name)).training_runs


def widths(svg: str) -> list[float]:
    return [float(width) for width in re.findall(r'<rect[^>]* width="([\d.]+)"', svg)]


def test_a_dearer_run_stands_higher_and_a_longer_one_farther_right() -> None:
    svg = training_charts.cost_chart(runs(), "/o/").svg
    places = {
        int(rank): (float(x), float(y))
        for rank, x, y in re.findall(r'href="/o/(\d+)".*?cx="([\d.]+)" cy="([\d.]+)"', svg)
    }
    by_rank = {run.rank: run for run in runs()}
    assert places.keys() == by_rank.keys()
    by_cost = sorted(by_rank, key=lambda rank: by_rank[rank].usd_per_run)
    assert [places[rank or 0][1] for rank in by_cost] == sorted((y for _, y in places.values()), reverse=True)
    by_days = sorted(by_rank, key=lambda rank: by_rank[rank].days)
    assert [places[rank or 0][0] for rank in by_days] == sorted(x for x, _ in places.values())


def test_every_size_of_the_first_choice_is_drawn_and_late_ones_are_crossed() -> None:
    first = runs()[0]
    tips = re.findall("<title>(.*?)</title>", training_charts.cost_chart(runs()).svg)
    for size in first.scaling:
        late = first.deadline_days is not None and size.days > first.deadline_days
        assert any(f"{size.accelerator_count:,} x {first.accelerator_name}" in tip and ("misses" in tip) == late
                   for tip in tips)  # fmt: skip


@pytest.mark.parametrize(("name", "unit"), [("pretrain", "days"), ("weekly", "minutes")])
def test_the_time_axis_has_the_unit_of_the_longest_run(name: str, unit: str) -> None:
    assert f"{unit} of the run (log)" in training_charts.cost_chart(runs(name)).svg


def test_labels_that_would_cover_each_other_are_left_out() -> None:
    assert apart([(0, 0), (10, 5), (40, 5), (45, 60)]) == {(0, 0), (40, 5), (45, 60)}


def test_no_runs_no_picture() -> None:
    assert training_charts.cost_chart([]).svg == "" and training_charts.points_of([]) == []


def test_memory_parts_fill_the_accelerator() -> None:
    run = runs()[0]
    rows = training_charts.memory_rows(run.memory)
    assert sum(row["value_gib"] for row in rows) == pytest.approx(run.usable_gib, rel=1e-3)
    assert sum(row["share"] for row in rows) == pytest.approx(1, rel=1e-3)
    assert len(widths(training_charts.memory_bar(run.memory))) == len(rows)


def test_operators_and_the_wait_for_the_slowest_rank_add_up_to_the_step() -> None:
    for run in runs():
        lines = training_page.operators(run)
        assert sum(line.time_s or 0 for line in lines) == pytest.approx(run.step_s, rel=1e-3)
        assert sum(row["share"] for row in training_page.phase_rows(lines)) == pytest.approx(1)
        shares = [row["share"] for row in training_page.step_rows(lines)]
        assert shares == sorted(shares, reverse=True)


def test_goodput_parts_add_up_to_the_time() -> None:
    for run in runs():
        assert sum(row["share"] for row in training_charts.goodput_rows(run.goodput)) == pytest.approx(1, abs=2e-3)


def without_names(svg: str) -> Any:
    return re.findall(r'<svg class="[^"]*"[^>]*aria-label="([^"]+)"', svg)


def test_every_picture_has_a_name() -> None:
    run = runs()[0]
    made = (
        training_charts.cost_chart(runs()).svg, training_charts.memory_bar(run.memory),
        charts.step_bar(run.step, "training"), training_charts.goodput_bar(run.goodput),
    )  # fmt: skip
    assert all(without_names(svg) for svg in made)
