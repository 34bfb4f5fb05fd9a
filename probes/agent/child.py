"""The child process that runs a suite: it sets its own limits, measures, writes one file and exits.

It reads one line of JSON from standard input: {"ask": "run" | "plan" | "facts", "spec", "library", "limits"}. It
writes its answer to result.json in its working folder, which is new and empty, and progress lines to the original
standard output. When standard input closes, the parent has ended; the child then kills its whole process group.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import threading
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

RESULT: Final = "result.json"
OUT_OF_MEMORY: Final = 12
MODULES: Final = {"torch": ("suite", "facts"), "jax": ("xla.suite", "xla.suite")}
Progress = Callable[[str, int, int], bool]
Measure = Callable[[dict[str, Any], Progress], Any]


def main(measure: Measure | None = None) -> int:
    """Handles one request and returns the exit code. Tests pass `measure` in place of the suite."""
    progress = redirect_output()
    request = json.loads(sys.stdin.readline())
    threading.Thread(target=end_with_parent, daemon=True).start()
    set_limits(request["limits"])
    try:
        answer = (measure or ask_suite)(request, progress)
    except MemoryError:
        print("The host memory limit was exceeded.", file=sys.stderr)
        return OUT_OF_MEMORY
    Path(RESULT).write_text(json.dumps(answer), encoding="utf-8")
    return 0


def redirect_output() -> Progress:
    """Reserves standard output for progress; output of libraries goes to standard error."""
    channel = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    lock = threading.Lock()

    def progress(stage: str, done: int, total: int) -> bool:
        with lock, contextlib.suppress(BrokenPipeError):
            print(json.dumps({"stage": stage, "done": done, "total": total}), file=channel, flush=True)
        return True

    return progress


def end_with_parent() -> None:
    """Waits until the parent has ended, then kills the whole process group."""
    while os.read(0, 4096):
        pass
    os.killpg(os.getpgrp(), signal.SIGKILL)


def set_limits(limits: dict[str, Any]) -> None:
    """Sets limits that the kernel enforces on this process and its children.

    RLIMIT_DATA instead of RLIMIT_AS: CUDA and ROCm reserve far more address space than they use.
    """
    try:
        import resource
    except ImportError:  # no such limits on this system; the parent still enforces the time limit
        return
    bounds = {"RLIMIT_CPU": limits["cpu_s"], "RLIMIT_DATA": limits["host_bytes"], "RLIMIT_FSIZE": limits["file_bytes"]}
    for name, bound in {**bounds, "RLIMIT_CORE": 0}.items():
        kind = getattr(resource, name)
        hard = resource.getrlimit(kind)[1]
        allowed = int(bound) if hard == resource.RLIM_INFINITY else min(int(bound), hard)
        with contextlib.suppress(ValueError, OSError):  # macOS rejects some of them
            resource.setrlimit(kind, (allowed, allowed))


def ask_suite(request: dict[str, Any], progress: Progress) -> Any:
    suite, facts = load(request["library"], request["limits"]["device_fraction"])
    if request["ask"] == "facts":
        device = facts.detect(None)
        return {"backend": device.backend, "device": facts.device_facts(device), "host": facts.host_facts()}
    if request["ask"] == "plan":
        return suite.plan(request["spec"])
    return suite.run(request["spec"], progress=progress)


def load(library: str, device_fraction: float) -> tuple[Any, Any]:
    """The suite module and the facts module of a library, after capping the share of device memory."""
    suite, facts = MODULES[library]
    if find_spec(library) is None:
        sys.exit(f"{library} is not installed for {sys.executable}; start the agent with a Python that has it.")
    if library == "torch":
        cap_torch(device_fraction)
    return import_module(f"probes.agent.{suite}"), import_module(f"probes.agent.{facts}")


def cap_torch(fraction: float) -> None:
    import torch

    if torch.cuda.is_available():
        for index in range(torch.cuda.device_count()):
            torch.cuda.set_per_process_memory_fraction(fraction, index)
    elif torch.backends.mps.is_available():
        torch.mps.set_per_process_memory_fraction(fraction)
