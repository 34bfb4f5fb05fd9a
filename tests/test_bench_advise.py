"""`manage.py bench_advise`: its parts belong together, and they are of the advice that is given."""

import io
import json

import pytest
from django.core.management import CommandError, call_command

from advisor.management.commands import bench_advise

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("shipped")]


def test_the_parts_add_up_and_are_of_the_simulations_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_advise, "process_cpu_s", lambda file: 0.0)  # it would read the database of a person
    out = io.StringIO()
    call_command("bench_advise", "clinic-edge", "--runs", "1", "--format", "json", stdout=out)
    (row,) = json.loads(out.getvalue())
    parts = [row[f"{name}_s"] for name in (*bench_advise.PARTS, "rest")]
    assert sum(parts) == pytest.approx(row["cpu_s"])
    assert all(part >= 0 for part in parts)
    assert row["simulations"] > 10
    assert 0 < row["simulated_s"] < row["cpu_s"]
    assert "clinic-edge" in bench_advise.table([row])


def test_an_unknown_workload_is_named() -> None:
    with pytest.raises(CommandError, match="no such shipped workload: nowhere"):
        call_command("bench_advise", "nowhere")
