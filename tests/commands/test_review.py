"""`manage.py review`: a check of pull requests that change workload files."""

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from hypothesis import given
from hypothesis import strategies as st

from advisor.report import review

Run = Callable[..., tuple[int, str, str]]
WORKLOAD = """\
# chat of the help desk
model: meta-llama/Llama-3.1-8B
traffic: {input_tokens: 800, output_tokens: 200, requests_per_s: 2}
slo: {ttft_ms_p95: 1500, tpot_ms_p95: 60}
constraints: {accelerators: {allow: [l40s]}, frameworks: {allow: [vllm]}, acquisition: [rent], terms: [on_demand]}
usd_per_accelerator_hour: {l40s: 0.5}
variants: no
tco: {minimum-engineers-rented: 0}
"""


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A git repository with a folder of workloads and their answers."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "workloads").mkdir()
    (tmp_path / "workloads" / "chat.yaml").write_text(WORKLOAD)
    return tmp_path


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def call(*args: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            call_command("review", *(args or ("workloads",)))
        output, errors = capsys.readouterr()
        return int(ended.value.code or 0), output, errors

    return call


@pytest.mark.django_db
@pytest.mark.usefixtures("frozen")
def test_a_higher_price_fails_and_a_changed_comment_passes(repository: Path, run: Run) -> None:
    file = repository / "workloads" / "chat.yaml"
    git = ["git", "-C", str(repository), "-c", "user.name=a", "-c", "user.email=a@example.com"]
    assert run("workloads", "--update")[0] == 0
    for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "answers"]):
        subprocess.run([*git, *command], check=True)
    file.write_text(WORKLOAD.replace("help desk", "service desk"))
    code, said, _ = run()
    assert code == 0 and "no workload moved beyond the limits" in said
    file.write_text(WORKLOAD.replace("l40s: 0.5", "l40s: 0.6"))
    code, said, _ = run()
    assert code == 1 and "1 of 1 workloads moved" in said and "❌ cost a month" in said
    change = re.search(r"\(\+([\d.]+)%\)", said)
    assert change and 15 < float(change[1]) <= 20.1  # services beside the machines cost the same
    assert run("workloads", "--cost", "25")[0] == 0
    moved = json.loads(run("workloads", "--format", "json")[1])
    assert moved["fails"] and moved["workloads"]["workloads/chat.yaml"]["usd"] > 0
    changed = subprocess.run([*git, "status", "--short"], check=True, capture_output=True, text=True).stdout
    assert changed == " M workloads/chat.yaml\n"  # a check writes nothing


@pytest.mark.django_db
@pytest.mark.usefixtures("frozen")
def test_a_new_file_is_said_and_a_deleted_one_is_forgotten(repository: Path, run: Run) -> None:
    (repository / "assay-answers.json").write_text(json.dumps({"workloads/gone.yaml": {"first": "x", "usd": 1.0}}))
    code, said, _ = run("workloads", "--update")
    assert code == 0 and "| new |" in said
    assert list(json.loads((repository / "assay-answers.json").read_text())) == ["workloads/chat.yaml"]


@pytest.mark.parametrize(("answers", "said"), [
    (None, "no such file of answers"), ("[]", "not a JSON object"), ("{", "not JSON"),
    ('{"a": 1}', "not an answer that this command wrote; write it anew with --update"),
    ('{"a": {"first": "x", "usd": 1, "what": 2}}', "not an answer that this command wrote"),
])  # fmt: skip
def test_answers_that_cannot_be_read_are_refused(repository: Path, run: Run, answers: str | None, said: str) -> None:
    if answers is not None:
        (repository / "assay-answers.json").write_text(answers)
    code, _, errors = run()
    assert code == 2 and said in errors


@pytest.mark.django_db
@pytest.mark.usefixtures("frozen")
def test_a_wrong_workload_names_its_file_and_nothing_is_written(repository: Path, run: Run) -> None:
    (repository / "workloads" / "b.yaml").write_text("model: no/such")
    code, _, errors = run("workloads", "--update")
    assert code == 2 and "workloads/b.yaml: " in errors and not (repository / "assay-answers.json").exists()
    (repository / "empty").mkdir()
    assert run("empty", "--update")[0] == 2


def one(**given_fields: Any) -> review.Record:
    return review.Record(**({"first": "2 × A", "usd": 100.0, "margins": {"ttft_ms_p95": 0.3}} | given_fields))


ALLOWED = review.Allowed(cost_fraction=0.05, margin_points=0.1)


@pytest.mark.parametrize(("before", "now", "fails", "words"), [
    (one(), one(), [], ""),
    (one(), one(usd=104.0), [False], "$100 → $104 (+4.0%)"),
    (one(), one(usd=94.0), [True], "(-6.0%)"),
    (one(), one(first="3 × B"), [True], "2 × A → 3 × B"),
    (one(equals=("3 × B",)), one(first="3 × B"), [False], "costs about the same"),
    (one(), one(margins={"ttft_ms_p95": 0.15}), [True], "30% below → 15% below the limit"),
    (one(), one(margins={"ttft_ms_p95": 0.25}), [False], "25% below"),
    (one(margins={"ttft_ms_p95": 0.02}), one(margins={"ttft_ms_p95": -0.02}), [True], "2% above the limit"),
    (one(), one(first=review.NOTHING, usd=None, margins=None), [True], review.NOTHING),
])  # fmt: skip
def test_what_fails(before: review.Record, now: review.Record, fails: list[bool], words: str) -> None:
    found = review.moves(before, now, ALLOWED)
    assert [move.fails for move in found] == fails
    assert words in " ".join(move.text for move in found)


@given(usd=st.none() | st.floats(0, 1e9), left=st.dictionaries(st.sampled_from(list(review.LIMITS)), st.floats(-2, 1)))
def test_a_record_is_read_as_it_was_kept_and_equals_itself(usd: float | None, left: dict[str, float]) -> None:
    kept = one(usd=usd, margins=left)
    assert review.Record.read(json.loads(json.dumps(kept.stored()))) == kept
    assert review.moves(kept, kept, ALLOWED) == []
