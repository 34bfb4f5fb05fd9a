"""A run's document: every case measured or skipped with a reason, whatever stops it."""

import json
import math
from typing import Any

import pytest

from probes.agent import facts, suite
from probes.agent.axes import KINDS, SHARES
from probes.agent.axes import KINDS as CLOSED_LIST
from probes.agent.measure import Case, Check, Device, Skip, Work, summary
from probes.agent.spec import SpecError, spec_hash

FIELDS = "kind key path kernel time_s flops bytes check power_w clock_hz temperature_c throttled note".split()


def fake(kind: str, at: int, **more: Any) -> Case:
    timing = summary([1e-3, 2e-3, 3e-3])
    check = Check(0.001, 0.01)
    build = lambda device: Work([], flops=10**9, bytes=10**6, check=lambda: check, timing=timing)  # noqa: E731
    return Case(kind, {"at": at}, more.pop("build", build), setup_s=0.0, **more)


@pytest.fixture
def faked(monkeypatch: pytest.MonkeyPatch) -> list[Case]:
    """The cases that the run will find for `norm`."""
    cases: list[Case] = []
    monkeypatch.setattr(suite, "cases_of", lambda kind, name, device: cases)
    monkeypatch.setattr(suite, "_estimated_rates", lambda device: (1e9, 1e9))
    return cases


SPEC = {"suite": "custom", "kinds": ["norm"]}


def test_every_kind_of_the_closed_list_has_a_module_a_share_and_cases() -> None:
    assert set(KINDS) == set(CLOSED_LIST) == set(SHARES) == set(suite.MODULES)
    device = facts.detect()
    for name in ("quick", "full"):
        assert all(suite.cases_of(kind, name, device) for kind in KINDS)


def test_keys_tell_every_case_from_every_other_on_cpu_and_gpu() -> None:
    cpu = facts.detect()
    gpu = Device("cuda", cpu.torch, cpu.device, 141 << 30, 60 << 20, 132, (9, 0), 112 << 30, count=4)
    for device in (cpu, gpu):
        for name in ("quick", "full"):
            keys = [
                (step["kind"], json.dumps(step["key"], sort_keys=True)) for step in suite.plan({"suite": name}, device)
            ]
            assert len(set(keys)) == len(keys)


def test_a_real_run_gives_the_documented_fields() -> None:
    found = suite.run({"suite": "custom", "kinds": ["known_answer"], "max_s": 60})
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert (found["schema"], found["library"], found["skipped"]) == ("assay-probe/1", "torch", [])
    assert found["spec_hash"] == spec_hash(found["spec"])
    (row,) = found["results"]
    assert list(row) == FIELDS
    assert row["check"] == {"error": 0.0, "limit": 0.0, "against": "exact", "ok": True}
    assert row["time_s"]["p10"] <= row["time_s"]["median"] <= row["time_s"]["p90"]


def test_a_refusal_of_the_library_is_a_reason_and_not_the_end(faked: list[Case]) -> None:
    def refuse(error: Exception) -> Any:
        def build(device: Device) -> Work:
            raise error

        return build

    faked += [fake("norm", 0, build=refuse(RuntimeError("CUDA out of memory\nmore"))), fake("norm", 1)]
    faked += [fake("norm", 2, build=refuse(Skip("no fp4 units"))), fake("norm", 3)]
    found = suite.run(SPEC)
    assert [row["key"]["at"] for row in found["results"]] == [1, 3]
    assert [one["reason"] for one in found["skipped"]] == ["RuntimeError: CUDA out of memory", "no fp4 units"]


def test_a_device_that_failed_ends_the_run_with_the_reason(faked: list[Case], monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(device: Device) -> Any:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    faked += [fake("norm", 0), fake("norm", 1, build=fail), fake("norm", 2), fake("norm", 3)]
    monkeypatch.setattr(Device, "synchronize", fail)
    found = suite.run(SPEC)
    assert [row["key"]["at"] for row in found["results"]] == [0]
    assert ["device failed" in one["reason"] for one in found["skipped"]] == [False, True, True]


def test_cancelling_ends_the_run_there_and_names_what_is_left(faked: list[Case]) -> None:
    faked += [fake("norm", at) for at in range(4)]
    asked: list[tuple[str, int, int]] = []

    def progress(stage: str, done: int, total: int) -> bool:
        asked.append((stage, done, total))
        return done < 2

    found = suite.run(SPEC, progress=progress)
    assert asked == [("norm", done, 4) for done in range(3)]
    assert len(found["results"]) == 2
    assert {one["reason"] for one in found["skipped"]} == {"cancelled"}


def test_when_the_time_is_over_the_rest_is_skipped(faked: list[Case], monkeypatch: pytest.MonkeyPatch) -> None:
    faked += [fake("norm", at) for at in range(3)]
    for at, case in enumerate(faked):
        faked[at] = Case(case.kind, case.key, case.build, setup_s=1e6)
    found = suite.run({**SPEC, "max_s": 1})
    assert found["results"] == []
    assert {one["reason"] for one in found["skipped"]} == {"time budget"}


def test_a_case_larger_than_the_memory_allowed_is_not_begun(faked: list[Case]) -> None:
    faked += [fake("norm", 0, needs_bytes=1 << 30), fake("norm", 1)]
    found = suite.run({**SPEC, "max_bytes": 1 << 24})
    assert [row["key"]["at"] for row in found["results"]] == [1]
    assert "needs 1.00 GiB" in found["skipped"][0]["reason"]


def test_a_bad_spec_is_refused_before_anything_runs() -> None:
    for spec in (
        {"suite": "fast"},
        {"suite": "custom"},
        {"suite": "quick", "kinds": ["rm"]},
        {"suite": "quick", "max_s": -1},
    ):
        with pytest.raises(SpecError):
            suite.run(spec)


def test_an_infinite_error_is_written_as_a_finite_number_that_fails() -> None:
    found = suite._check(Check(math.inf, 1.0))
    assert found is not None and not found["ok"] and math.isfinite(found["error"])


def test_the_table_shows_rates_shares_of_the_datasheet_and_failed_checks(faked: list[Case]) -> None:
    wrong = Work([], flops=10**9, check=lambda: Check(0.5, 0.01), timing=summary([1e-3]))
    faked += [fake("norm", 0), fake("norm", 1, build=lambda device: wrong)]
    text = "\n".join(suite.table(suite.run(SPEC), {"memory": 1e12}))
    assert "checks that failed: 1" in text
    assert "norm at=1" in text


def test_the_command_writes_the_document_and_lists_a_plan(
    tmp_path: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "r.json"
    assert suite.main(["--suite", "custom", "--kinds", "known_answer", "--out", str(out)]) == 0
    assert json.loads(out.read_text())["results"][0]["kind"] == "known_answer"
    assert suite.main(["--suite", "quick", "--dry-run"]) == 0
    assert "cases, about" in capsys.readouterr().out
