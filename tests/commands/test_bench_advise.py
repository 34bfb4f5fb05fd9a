"""`manage.py bench_advise`: its parts belong together, and they are of the advice that is given."""

import io
import json
import re
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from tests.laboratory.commands import bench_advise

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("frozen")]


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


def test_the_published_page_is_what_the_command_writes() -> None:
    """The rows are read back from the page, so its text, heads and sums must be those of the generator."""
    path = Path(__file__).resolve().parents[2] / "docs" / "reference" / "performance.md"
    text, rows = path.read_text(encoding="utf-8"), []
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 5 + len(bench_advise.COLUMNS) and cells[1].replace(".", "").isdigit():
            cpu_s = float(cells[2])
            shares = zip(bench_advise.COLUMNS, cells[5:], strict=True)
            rows.append(
                {"workload": cells[0], "elapsed_s": float(cells[1]), "cpu_s": cpu_s, "process_cpu_s": float(cells[3])}
                | {"simulations": float(cells[4])}
                | {f"{name}_s": int(share.rstrip("%")) / 100 * cpu_s for name, share in shares}
            )
    measured_on, runs = re.search(r"^Measured (.+)\. Medians of (\d+) runs\.$", text, flags=re.MULTILINE).groups()
    assert len(rows) == len(bench_advise.shipped())
    assert bench_advise.page(rows, measured_on, int(runs)) == text
