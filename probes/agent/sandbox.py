"""Runs a suite in a child process with limits on time, memory and files.

The child has its own session, temporary folder and environment, none of the agent's secrets, and limits that the
kernel enforces (child.py). The parent enforces the wall time: when it is over, or when the server or the operator
cancels, the process group gets SIGTERM and, five seconds later, SIGKILL.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import site
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any, Final

from probes.agent.child import OUT_OF_MEMORY, RESULT

Progress = Callable[[str, int, int], None]

GRACE_S: Final = 5.0
POLL_S: Final = 0.05
LOG_BYTES: Final = 16 * 1024
RESULT_BYTES: Final = 4 << 20
CHILD: Final = (sys.executable, "-m", "probes.agent", "child")
# Location of the package `probes`: a folder, or agent.pyz.
ROOT: Final = str(Path(__file__).absolute().parents[2])

KEPT: Final = frozenset(
    """
    PATH LANG LC_ALL TZ USER LOGNAME LD_LIBRARY_PATH LIBRARY_PATH CPATH CC CXX PYTHONPATH VIRTUAL_ENV CONDA_PREFIX
    CUDA_VISIBLE_DEVICES CUDA_DEVICE_ORDER CUDA_HOME CUDA_PATH NVIDIA_VISIBLE_DEVICES NVIDIA_DRIVER_CAPABILITIES
    HIP_VISIBLE_DEVICES ROCR_VISIBLE_DEVICES GPU_DEVICE_ORDINAL ROCM_PATH HSA_OVERRIDE_GFX_VERSION
    NCCL_NVLS_ENABLE TORCH_SYMM_MEM_DISABLE_MULTICAST OMP_NUM_THREADS MKL_NUM_THREADS
    JAX_PLATFORMS XLA_FLAGS PJRT_DEVICE LIBTPU_INIT_ARGS
    """.split()
)
KEPT_PREFIX: Final = "TPU_"


@dataclass(frozen=True)
class Limits:
    """The limits of a child. `cpu_s` counts all threads; `device_fraction` is the share of each device's memory."""

    wall_s: float
    cpu_s: float
    host_bytes: int
    file_bytes: int = 2 << 30
    device_fraction: float = 0.9


@dataclass(frozen=True)
class Outcome:
    """How a child ended. `code`: ok, cancelled, timeout, out_of_memory, crashed or bad_output."""

    code: str
    answer: Any
    log: str


def limits_for(wall_s: float, host_bytes: int | None = None) -> Limits:
    """Limits for a wall time: CPU time of all cores, and half of the host memory by default."""
    cores = os.cpu_count() or 1
    return Limits(wall_s, (wall_s + GRACE_S) * cores, host_bytes or max(host_memory_bytes() // 2, 4 << 30))


def host_memory_bytes() -> int:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return 0


def run(
    request: dict[str, Any],
    limits: Limits,
    *,
    progress: Progress = lambda stage, done, total: None,
    cancel: threading.Event | None = None,
    command: tuple[str, ...] = CHILD,
) -> Outcome:
    """Runs one request in a child and waits for it. `command` starts the child; only tests replace it."""
    with tempfile.TemporaryDirectory(prefix="assay-probe-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        with child(command, folder, request, limits, progress) as process:
            reason = wait(process, limits.wall_s, cancel or threading.Event())
        return outcome(reason or exit_code_name(process.returncode), folder)


def environment(folder: Path, given: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The child's environment: only variables that locate libraries and devices. HOME and TMPDIR are its folder."""
    kept = {name: value for name, value in given.items() if name in KEPT or name.startswith(KEPT_PREFIX)}
    path = os.pathsep.join(filter(None, [ROOT, kept.get("PYTHONPATH")]))
    return kept | {
        "HOME": str(folder),
        "TMPDIR": str(folder),
        "PYTHONPATH": path,
        "PYTHONUSERBASE": site.getuserbase(),
        "PYTHONDONTWRITEBYTECODE": "1",
        "NCCL_SOCKET_IFNAME": "lo",
        "GLOO_SOCKET_IFNAME": "lo",
    }


@contextlib.contextmanager
def child(
    command: tuple[str, ...], folder: Path, request: dict[str, Any], limits: Limits, progress: Progress
) -> Iterator[subprocess.Popen[bytes]]:
    """Starts a child, sends the request and reads its progress. Afterwards its process group is killed."""
    process = start(command, folder, limits.device_fraction)
    listener = threading.Thread(target=listen, args=(process.stdout, progress), daemon=True)
    listener.start()
    try:
        send(process, {**request, "limits": asdict(limits)})
        yield process
    finally:
        signal_group(process, signal.SIGKILL)
        process.wait()
        listener.join(timeout=1)
        for pipe in filter(None, (process.stdin, process.stdout)):
            with contextlib.suppress(OSError):
                pipe.close()


def start(command: tuple[str, ...], folder: Path, device_fraction: float) -> subprocess.Popen[bytes]:
    share = {"XLA_PYTHON_CLIENT_MEM_FRACTION": str(device_fraction), "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    with (folder / "log").open("wb") as log:
        return subprocess.Popen(
            command,
            cwd=folder,
            env=environment(folder) | share,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            start_new_session=True,
        )


def send(process: subprocess.Popen[bytes], request: dict[str, Any]) -> None:
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError):  # it has already exited; its exit code says why
        process.stdin.write(json.dumps(request).encode() + b"\n")
        process.stdin.flush()


def listen(pipe: IO[bytes], progress: Progress) -> None:
    with contextlib.suppress(ValueError, OSError):  # the pipe was closed
        while line := pipe.readline(4096):
            with contextlib.suppress(ValueError, KeyError, TypeError, RecursionError):
                update = json.loads(line)
                progress(str(update["stage"])[:80], int(update["done"]), int(update["total"]))


def wait(process: subprocess.Popen[bytes], wall_s: float, cancel: threading.Event) -> str | None:
    """None if the child exited by itself, otherwise why it was stopped."""
    end_s = time.monotonic() + wall_s
    while process.poll() is None:
        if cancel.is_set():
            return stop(process, "cancelled")
        if time.monotonic() >= end_s:
            return stop(process, "timeout")
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(POLL_S)
    return None


def stop(process: subprocess.Popen[bytes], why: str) -> str:
    signal_group(process, signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(GRACE_S)
    return why


def signal_group(process: subprocess.Popen[bytes], number: int) -> None:
    """Signals the process group. The child leads its session, so the group has its process ID."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


def exit_code_name(returncode: int) -> str:
    return {0: "ok", OUT_OF_MEMORY: "out_of_memory"}.get(returncode, "crashed")


def outcome(code: str, folder: Path) -> Outcome:
    log = tail(folder / "log")
    if code != "ok":
        return Outcome(code, None, log)
    try:
        return Outcome("ok", read_answer(folder / RESULT), log)
    except (OSError, ValueError, RecursionError) as error:
        return Outcome("bad_output", None, f"{log}\nThe suite's answer cannot be used: {error}"[-LOG_BYTES:])


def read_answer(path: Path) -> Any:
    """The child's answer. ValueError: not a regular file, too large, or not strict JSON."""
    if path.is_symlink() or not path.is_file():
        raise ValueError("it wrote no file")
    if path.stat().st_size > RESULT_BYTES:
        raise ValueError(f"it is larger than {RESULT_BYTES} bytes")
    return json.loads(path.read_text(encoding="utf-8"), parse_constant=not_finite)


def not_finite(name: str) -> None:
    raise ValueError(f"it contains {name}")


def tail(path: Path) -> str:
    """The last 16 KB of the child's standard error."""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - LOG_BYTES))
        return file.read().decode(errors="replace")
