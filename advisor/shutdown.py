"""Stops a worker without losing work.

On SIGTERM, Celery accepts no more messages and waits for running tasks without limit. Here the wait is limited: a job
that is still running at the end of the grace period returns to the queue without losing an attempt (advise.Claim), and
soon after that the process ends. SIGQUIT ends the grace period immediately.
"""

import mmap
import os
import signal
import struct
import threading
import time
from typing import Any

import structlog
from billiard.process import current_process
from celery.signals import worker_process_init, worker_ready, worker_shutting_down
from django.conf import settings

log = structlog.get_logger("assay.shutdown")
AFTER_GRACE_S = 3.0  # for jobs to return to the queue before the process ends
CHECK_EVERY_S = 0.25

# End of the grace period by time.monotonic(); 0: not stopping. Shared with pool processes, which are forks.
_END = mmap.mmap(-1, 8)


def begin(grace_s: float | None = None) -> None:
    """Starts or shortens the grace period."""
    end = time.monotonic() + (settings.GRACE_S if grace_s is None else grace_s)
    if not begun() or end < _end():
        _END[:] = struct.pack("d", end)
        threading.Thread(target=_end_process, args=(end + AFTER_GRACE_S,), name="shutdown", daemon=True).start()


def begun() -> bool:
    return _end() > 0


def is_over() -> bool:
    """Whether running jobs must return to the queue now."""
    return 0 < _end() <= time.monotonic()


def _end() -> float:
    return float(struct.unpack("d", _END[:])[0])


def _end_process(at: float) -> None:
    """Ends the process. Its job has returned to the queue, so nothing is lost."""
    time.sleep(max(0.0, at - time.monotonic()))
    log.warning("stopped during a task; its job is back in the queue")
    os._exit(0)


@worker_shutting_down.connect
def _start_grace_period(**given: Any) -> None:
    begin()


@worker_ready.connect
def _handle_sigquit(**given: Any) -> None:
    """Replaces Celery's handler of SIGQUIT, which kills pool processes during a job and so costs it an attempt."""

    from celery.worker import state  # here, because the web tier imports this module but not the worker

    def stop(number: int, frame: object) -> None:
        begin(0)
        state.should_stop = os.EX_OK  # type: ignore[assignment]  # as in Celery's handler of SIGTERM

    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGQUIT, stop)


@worker_process_init.connect
def _ignore_sigterm_in_pool(**given: Any) -> None:
    """systemd also sends SIGTERM to pool processes, which would die during a job.

    They still end with the main process, because Celery sets the parent-death signal. A solo pool is the main process.
    """
    if current_process().name != "MainProcess":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
