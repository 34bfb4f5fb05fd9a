"""How a worker stops without losing work.

On SIGTERM Celery takes no more messages and waits, without limit, for the tasks that run. Here that wait is bounded:
a job that is still running when the grace period ends goes back to the queue with its lease and its attempt
(advise.Claim), and soon after the process ends, whatever it still computes. SIGQUIT ends the grace period at once.
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
AFTER_GRACE_S = 3.0  # for jobs to be written back to the queue, before the process ends
CHECK_EVERY_S = 0.25

# When the grace period ends, by time.monotonic(); 0: not stopping. Pool processes are forks and share this page.
_END = mmap.mmap(-1, 8)


def begin(grace_s: float | None = None) -> None:
    """Start the grace period, or shorten it."""
    end = time.monotonic() + (settings.GRACE_S if grace_s is None else grace_s)
    if not begun() or end < _end():
        _END[:] = struct.pack("d", end)
        threading.Thread(target=_end_process, args=(end + AFTER_GRACE_S,), name="shutdown", daemon=True).start()


def begun() -> bool:
    return _end() > 0


def is_over() -> bool:
    """Whether running jobs have to go back to the queue now."""
    return 0 < _end() <= time.monotonic()


def _end() -> float:
    return float(struct.unpack("d", _END[:])[0])


def _end_process(at: float) -> None:
    """A long stage of a calculation cannot be interrupted; its job is in the queue again, so nothing is lost."""
    time.sleep(max(0.0, at - time.monotonic()))
    log.warning("stopped before a task had ended; its job is in the queue again")
    os._exit(0)


@worker_shutting_down.connect
def _on_first_signal(**given: Any) -> None:
    begin()


@worker_ready.connect
def _quit_at_once(**given: Any) -> None:
    """Celery's own SIGQUIT kills pool processes in the middle of a job, which costs the job an attempt."""

    from celery.worker import state  # here: the web tier imports this module and never the worker

    def stop(number: int, frame: object) -> None:
        begin(0)
        state.should_stop = os.EX_OK  # type: ignore[assignment]  # as Celery does for SIGTERM

    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGQUIT, stop)


@worker_process_init.connect
def _leave_signals_to_the_main_process(**given: Any) -> None:
    """systemd and process groups send SIGTERM to pool processes too, which would die in the middle of a job.

    Celery sets the parent-death signal, so they still end with the main process. A solo pool is the main process.
    """
    if current_process().name != "MainProcess":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
