"""Where the web processes of one server keep their counts. It must be made before prometheus_client is imported."""

import atexit
import os
import shutil
import tempfile
from pathlib import Path

PREFIX = "assay-metrics-"
FOLDER = "PROMETHEUS_MULTIPROC_DIR"  # prometheus-client's own name


def create() -> None:
    """Creates the folder in which the processes of one server keep their counts, in memory where there is /dev/shm.

    On a disk, a write to such a file would end the process when the disk is full.
    """
    if FOLDER in os.environ:
        return
    parent = Path("/dev/shm" if os.access("/dev/shm", os.W_OK) else tempfile.gettempdir())
    for left in parent.glob(f"{PREFIX}*"):
        if not is_alive(int(left.name.split("-")[2])):
            shutil.rmtree(left, ignore_errors=True)
    os.environ[FOLDER] = tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-", dir=parent)
    atexit.register(remove, os.environ[FOLDER], os.getpid())


def remove(folder: str, owner: int) -> None:
    """Not at the end of the processes that the owner forked."""
    if os.getpid() == owner:
        shutil.rmtree(folder, ignore_errors=True)


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # of another user
        return True
    return True
