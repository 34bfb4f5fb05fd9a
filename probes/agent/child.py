"""The child process in which a suite runs: it binds itself to its limits, measures, writes one file and ends.

It reads one line of JSON from standard input: {"ask": "run" | "plan" | "facts", "spec", "library", "limits"}.
It answers in the file result.json of its working folder, an empty one made for it. Lines on the original standard
output tell the parent how far it is. Standard input stays open as long as the parent lives: when it closes, the
child ends itself and all that it started.
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
MODULES: Final = {"torch": ("suite", "facts"), "jax": ("jax_suite", "jax_suite")}
Progress = Callable[[str, int, int], bool]
Measure = Callable[[dict[str, Any], Progress], Any]


def main(measure: Measure | None = None) -> int:
    """Serve one request. `measure` stands in for the suite in tests of the sandbox."""
    progress = take_over_output()
    request = json.loads(sys.stdin.readline())
    threading.Thread(target=end_with_parent, daemon=True).start()
    bind(request["limits"])
    try:
        answer = (measure or ask_suite)(request, progress)
    except MemoryError:
        print("The limit of host memory was reached.", file=sys.stderr)
        return OUT_OF_MEMORY
    Path(RESULT).write_text(json.dumps(answer), encoding="utf-8")
    return 0


def take_over_output() -> Progress:
    """Keep standard output for progress alone: what libraries print goes to standard error."""
    channel = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    lock = threading.Lock()

    def progress(stage: str, done: int, total: int) -> bool:
        with lock, contextlib.suppress(BrokenPipeError):
            print(json.dumps({"stage": stage, "done": done, "total": total}), file=channel, flush=True)
        return True

    return progress


def end_with_parent() -> None:
    """Wait until the parent is gone, however it went, then end the whole process group."""
    while os.read(0, 4096):
        pass
    os.killpg(os.getpgrp(), signal.SIGKILL)


def bind(limits: dict[str, Any]) -> None:
    """Limits that the kernel holds against this process and those it starts.

    RLIMIT_DATA and not RLIMIT_AS: CUDA and ROCm reserve address space far beyond what they ever fill.
    """
    try:
        import resource
    except ImportError:  # no such limits on this system: the parent's clock still holds
        return
    bounds = {"RLIMIT_CPU": limits["cpu_s"], "RLIMIT_DATA": limits["host_bytes"], "RLIMIT_FSIZE": limits["file_bytes"]}
    for name, bound in {**bounds, "RLIMIT_CORE": 0}.items():
        kind = getattr(resource, name)
        hard = resource.getrlimit(kind)[1]
        least = int(bound) if hard == resource.RLIM_INFINITY else min(int(bound), hard)
        with contextlib.suppress(ValueError, OSError):  # macOS refuses some of them
            resource.setrlimit(kind, (least, least))


def ask_suite(request: dict[str, Any], progress: Progress) -> Any:
    suite, facts = load(request["library"], request["limits"]["device_fraction"])
    if request["ask"] == "facts":
        device = facts.detect(None)
        return {"backend": device.backend, "device": facts.device_facts(device), "host": facts.host_facts()}
    if request["ask"] == "plan":
        return suite.plan(request["spec"])
    return suite.run(request["spec"], progress=progress)


def load(library: str, device_fraction: float) -> tuple[Any, Any]:
    """The suite of that library and its reader of the device, the share of device memory capped first."""
    suite, facts = MODULES[library]
    if find_spec(library) is None:
        sys.exit(f"{library} is not installed for {sys.executable}: start the agent with the Python that has it.")
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
