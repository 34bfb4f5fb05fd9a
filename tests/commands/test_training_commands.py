"""`manage.py training_layouts` and `calibrate_training`: what they print and write."""

import csv
import io
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import yaml
from django.core.management import call_command

from advisor.engine.terms import SHARES
from advisor.engine.terms.ratio_distribution import quantile_key
from advisor.fidelity import Row
from catalog.management.errors import BadInput
from tests.fidelity.test_training_rows import BRIDGE, MLPERF

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("shipped")]
MODELS = ("Qwen/Qwen3-235B-A22B", "deepseek-ai/DeepSeek-V3", "openai/gpt-oss-120b")


def written(path: Path, *rows: Row) -> str:
    with path.open("w", newline="") as file:
        out = csv.DictWriter(file, fieldnames=list(asdict(rows[0])))
        out.writeheader()
        out.writerows(asdict(row) for row in rows)
    return str(path)


def test_the_speed_of_the_search_and_published_layouts(tmp_path: Path) -> None:
    out = io.StringIO()
    call_command("training_layouts", measurements=[written(tmp_path / "rows.csv", BRIDGE)], stdout=out)
    assert "per second" in out.getvalue() and "found: " in out.getvalue()
    assert "1 published layouts over the fastest found" in out.getvalue()


def test_intervals_are_written_where_there_are_enough_groups(tmp_path: Path) -> None:
    rows = [
        replace(BRIDGE, id=f"row-{i}", model_id=model, value=7000.0, date="2026-06") for i, model in enumerate(MODELS)
    ]
    out = io.StringIO()
    call_command("calibrate_training", measurements=[[written(tmp_path / "rows.csv", *rows, MLPERF)]], out=tmp_path,
                 stdout=out)  # fmt: skip
    scope = yaml.safe_load((tmp_path / "interval-training-relative.yaml").read_text())
    assert set(scope["values"]) == {quantile_key("experts_stated_step", share) for share in SHARES}
    assert list(scope["values"].values()) == sorted(scope["values"].values())
    assert scope["values"]["experts_stated_step_low_ratio"] <= scope["values"]["experts_stated_step_high_ratio"]
    assert "experts_stated_step" in out.getvalue()


def test_files_without_training_rows_are_refused(tmp_path: Path) -> None:
    served = written(tmp_path / "rows.csv", replace(BRIDGE, task="offline_throughput"))
    with pytest.raises(BadInput, match="no training rows in these files"):
        call_command("calibrate_training", measurements=[[served]], out=tmp_path)
