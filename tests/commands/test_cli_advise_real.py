"""`manage.py advise` with the shipped catalog and the real engine."""

import json
from pathlib import Path

import pytest
from django.core.management import call_command

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("frozen")]
WORKLOAD = Path(__file__).resolve().parents[2] / "fixtures" / "workloads" / "support-chat.yaml"
ONE_CHIP = ["--set", "constraints.accelerators.allow=[h100-sxm]"]


def advise(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str]:
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        call_command("advise", str(WORKLOAD), *args)
    return int(ended.value.code or 0), capsys.readouterr().out


def test_the_demos_question_is_answered_alike_from_one_snapshot(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    kept = [*ONE_CHIP, "--snapshot", str(tmp_path / "snapshot.json"), "--canonical"]
    code, first = advise(capsys, *kept)
    assert code == 0
    assert advise(capsys, *kept) == (0, first)
    best = json.loads(first)["recommendations"][0]
    assert best["accelerator"] == "h100-sxm"
    assert best["ttft_ms"]["p95"] <= 1000 and best["tpot_ms"]["p95"] <= 40
    assert best["accelerator_count"] == best["replicas"] * best["tp"] * best["pp"] * best["dp"]


def test_a_question_that_nothing_answers_ends_with_3_and_reasons(capsys: pytest.CaptureFixture[str]) -> None:
    code, output = advise(capsys, "--set", "constraints.accelerators.allow=[t4]", "--format", "json")
    answer = json.loads(output)
    assert (code, answer["recommendations"]) == (3, [])
    (t4,) = [item for item in answer["rejected"] if item["accelerator"] == "t4"]
    assert t4["reason"] != "excluded" and t4["detail"]
