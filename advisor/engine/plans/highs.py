"""The solver of integer programs: HiGHS, through scipy, without what it prints."""

import ctypes
import os
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import scipy

NOISE = b"HighsMipSolverData::"  # HiGHS in scipy 1.17 prints such lines, which would corrupt JSON output
_STDOUT = threading.Lock()


def milp(*problem: Any, **options: Any) -> Any:
    """scipy.optimize.milp."""
    with _quiet():
        return scipy.optimize.milp(*problem, **options)


@contextmanager
def _quiet() -> Iterator[None]:
    """Holds what the process writes to file descriptor 1 back, and drops the lines of HiGHS from it."""
    with _STDOUT, tempfile.TemporaryFile() as held:
        libc, stdout = ctypes.CDLL(None), os.dup(1)
        sys.stdout.flush()
        libc.fflush(None)
        os.dup2(held.fileno(), 1)
        try:
            yield
        finally:
            libc.fflush(None)
            os.dup2(stdout, 1)
            os.close(stdout)
            held.seek(0)
            sys.stdout.flush()
            for line in held:
                if not line.startswith(NOISE):
                    os.write(1, line)
