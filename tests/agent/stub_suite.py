"""A suite that measures nothing, for tests of the runtime; `python stub_suite.py BEHAVIOUR` is the sandbox's child."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from probes.agent import child  # noqa: E402

DOCUMENT: dict[str, Any] = {"schema": "assay-probe/1", "results": [], "skipped": []}
FACTS = {"backend": "cpu", "device": {"name": "stub"}, "host": {}}
Request = dict[str, Any]


def command(behaviour: str, *given: object) -> tuple[str, ...]:
    return (sys.executable, __file__, behaviour, *map(str, given))


def good(request: Request, progress: child.Progress) -> Any:
    if request["ask"] == "facts":
        return FACTS
    if request["ask"] == "plan":
        return [{"kind": "gemm", "key": {"m": 8, "dtype": "fp32"}}]
    progress("gemm", 0, 2)
    print("a library that prints to standard output")
    progress("norm", 1, 2)
    return {**DOCUMENT, "spec": request["spec"]}


def environment(request: Request, progress: child.Progress) -> Any:
    return {"environment": dict(os.environ), "folder": os.getcwd(), "group": os.getpgrp(), "pid": os.getpid()}


def hang(request: Request, progress: child.Progress) -> Any:
    progress("hanging", 0, 1)
    while True:
        time.sleep(60)


def deaf(request: Request, progress: child.Progress) -> Any:
    """Hangs, does not hear SIGTERM, and has a child of its own whose id it leaves behind."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    grandchild = subprocess.Popen([sys.executable, "-c", "import signal, time\nwhile True: time.sleep(60)"])
    Path(sys.argv[2]).write_text(f"{os.getpid()} {grandchild.pid}")
    return hang(request, progress)


def killed(request: Request, progress: child.Progress) -> Any:
    os.kill(os.getpid(), signal.SIGKILL)


def raises(request: Request, progress: child.Progress) -> Any:
    raise RuntimeError("the library has no such kernel")


def eats_memory(request: Request, progress: child.Progress) -> Any:
    return len(bytearray(1 << 40))


def fills_disk(request: Request, progress: child.Progress) -> Any:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    with open("big", "wb") as file:
        for _ in range(64):
            file.write(bytes(1 << 20))


def chatters(request: Request, progress: child.Progress) -> Any:
    """Lines that are no progress, between two that are."""
    progress("gemm", 1, 2)
    for line in (b"{", b'{"stage": []}', b"[" * 5000, b"\xff\xfe", b'{"stage": 1, "done": "x", "total": 2}'):
        os.write(channel(), line + b"\n")
    progress("norm", 2, 2)
    return DOCUMENT


def channel() -> int:
    """The file descriptor of the parent's pipe, found as any library in the child could find it."""
    for number in range(3, 64):
        with contextlib.suppress(OSError):
            if os.fstat(number).st_ino == PIPE:
                return number
    raise AssertionError("the pipe is gone")


def leaves(body: bytes) -> Callable[[Request, child.Progress], Any]:
    def leave(request: Request, progress: child.Progress) -> Any:
        Path(child.RESULT).write_bytes(body)
        sys.stderr.flush()
        os._exit(0)

    return leave


def wrong_document(request: Request, progress: child.Progress) -> Any:
    return FACTS if request["ask"] == "facts" else ["not", "a", "document"]


BEHAVIOURS: dict[str, Callable[[Request, child.Progress], Any]] = {
    "good": good,
    "environment": environment,
    "hang": hang,
    "deaf": deaf,
    "killed": killed,
    "raises": raises,
    "eats_memory": eats_memory,
    "fills_disk": fills_disk,
    "chatters": chatters,
    "wrong_document": wrong_document,
    "no_file": lambda request, progress: os._exit(0),
    "garbage": leaves(b"\x80\x04garbage"),
    "nan": leaves(b'{"schema": NaN}'),
    "deep": leaves(b"[" * 200_000),
    "huge": leaves(json.dumps(["x" * (5 << 20)]).encode()),
}

if __name__ == "__main__":
    PIPE = os.fstat(1).st_ino
    sys.exit(child.main(BEHAVIOURS[sys.argv[1]]))
