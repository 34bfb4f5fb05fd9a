"""A child that hangs, dies, eats memory or writes nonsense ends with a code, and leaves nothing behind."""

import dataclasses
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from probes.agent import sandbox
from tests.agent import stub_suite

REQUEST: dict[str, Any] = {"ask": "run", "spec": {"suite": "quick"}, "library": "torch"}
LIMITS = sandbox.limits_for(60.0)


def run(behaviour: str, *given: object, limits: sandbox.Limits = LIMITS, **more: Any) -> sandbox.Outcome:
    return sandbox.run(REQUEST, limits, command=stub_suite.command(behaviour, *given), **more)


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def eventually(true: Callable[[], bool]) -> bool:
    """Poll until true; the bound only ends a test that would hang."""
    for _ in range(600):
        if true():
            return True
        time.sleep(0.05)
    return False


def test_the_answer_and_the_progress_come_back() -> None:
    told: list[tuple[str, int, int]] = []
    outcome = run("good", progress=lambda *step: told.append(step))
    assert (outcome.code, outcome.answer["spec"]) == ("ok", {"suite": "quick"})
    assert told == [("gemm", 0, 2), ("norm", 1, 2)]
    assert "a library that prints" in outcome.log


def test_the_child_sees_devices_and_paths_but_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ASSAY_TOKEN", "AWS_SECRET_ACCESS_KEY", "HTTPS_PROXY", "LD_PRELOAD", "PYTHONSTARTUP"):
        monkeypatch.setenv(name, "secret")
    for name in ("CUDA_VISIBLE_DEVICES", "NCCL_NVLS_ENABLE", "TORCH_SYMM_MEM_DISABLE_MULTICAST", "TPU_VISIBLE_CHIPS"):
        monkeypatch.setenv(name, "kept")
    folder = Path(tempfile.gettempdir())
    seen = sandbox.environment(folder, os.environ)
    assert "secret" not in seen.values()
    assert [name for name, value in seen.items() if value == "kept"] == [
        name for name in os.environ if os.environ[name] == "kept"
    ]


def test_the_child_lives_in_a_session_and_a_folder_of_its_own() -> None:
    seen = run("environment").answer
    assert seen["group"] == seen["pid"] != os.getpgrp()
    assert seen["environment"]["HOME"] == seen["environment"]["TMPDIR"] == seen["folder"]
    assert not Path(seen["folder"]).exists()


def test_a_child_that_hangs_ends_at_its_wall_time() -> None:
    assert run("hang", limits=sandbox.limits_for(0.5)).code == "timeout"


def test_a_deaf_child_and_its_own_child_are_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "GRACE_S", 0.3)
    pids, cancel = tmp_path / "pids", threading.Event()

    def progress(stage: str, done: int, total: int) -> None:
        cancel.set()

    assert run("deaf", pids, progress=progress, cancel=cancel).code == "cancelled"
    for pid in map(int, pids.read_text().split()):
        assert eventually(lambda pid=pid: not alive(pid))  # type: ignore[misc]


def test_the_child_ends_when_the_agent_is_killed(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    code = (
        "from probes.agent import sandbox\n"
        f"sandbox.run({REQUEST!r}, sandbox.limits_for(600), command={stub_suite.command('deaf', pids)!r})"
    )
    agent = subprocess.Popen(
        [sys.executable, "-c", code], cwd=stub_suite.ROOT, env={**os.environ, "TMPDIR": str(tmp_path)}
    )
    assert eventually(lambda: pids.exists() and len(pids.read_text().split()) == 2)
    agent.kill()
    agent.wait()
    for pid in map(int, pids.read_text().split()):
        assert eventually(lambda pid=pid: not alive(pid))  # type: ignore[misc]


@pytest.mark.parametrize("behaviour", ["killed", "raises"])
def test_a_child_that_dies_is_told_as_crashed(behaviour: str) -> None:
    assert run(behaviour).code == "crashed"


def test_the_log_says_why_it_crashed() -> None:
    assert "the library has no such kernel" in run("raises").log


def test_a_child_that_eats_memory_meets_its_limit() -> None:
    outcome = run("eats_memory", limits=dataclasses.replace(LIMITS, host_bytes=1 << 30))
    assert outcome.code == "out_of_memory"


def test_a_child_that_fills_the_disk_meets_its_limit() -> None:
    outcome = run("fills_disk", limits=dataclasses.replace(LIMITS, file_bytes=16 << 20))
    assert (outcome.code, "File too large" in outcome.log) == ("crashed", True)


def test_a_child_that_spends_its_processor_time_is_ended() -> None:
    spin = (sys.executable, "-c", f"import sys; sys.path.insert(0, {str(stub_suite.ROOT)!r})\n" + SPIN)
    assert sandbox.run(REQUEST, dataclasses.replace(LIMITS, cpu_s=1), command=spin).code == "crashed"


SPIN = """
from probes.agent import child
def spin(request, progress):
    while True: pass
child.main(spin)
"""


@pytest.mark.parametrize("behaviour", ["no_file", "garbage", "nan", "deep", "huge"])
def test_an_answer_that_is_no_plain_json_of_bounded_size_is_refused(behaviour: str) -> None:
    outcome = run(behaviour)
    assert (outcome.code, outcome.answer) == ("bad_output", None)
    assert "cannot be used" in outcome.log


def test_nonsense_on_the_progress_pipe_is_passed_over() -> None:
    told: list[tuple[str, int, int]] = []
    assert run("chatters", progress=lambda *step: told.append(step)).code == "ok"
    assert (told[0], told[-1]) == (("gemm", 1, 2), ("norm", 2, 2))


def test_the_kept_end_of_a_long_log_is_bounded(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"a" * 100_000 + b"end")
    assert sandbox.tail(tmp_path / "log") == "a" * (sandbox.LOG_BYTES - 3) + "end"
