"""Starts web, worker and beat, restarts them when they die (with backoff), and stops them gracefully."""

import ctypes
import math
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path

import structlog
from django.conf import settings

log = structlog.get_logger("assay.supervise")
MAX_BACKOFF_S = 30.0
HEALTHY_AFTER_S = 30.0
AFTER_GRACE_S = 5.0  # added to settings.GRACE_S, in which jobs and requests finish or return to the queue
PR_SET_PDEATHSIG = 1
CELERY = ["celery", "--quiet", "--app", "advisor.celery"]
WORKER_OPTIONS = ["--without-mingle", "--without-gossip", "--loglevel", "WARNING"]
PERIODIC_TASKS = "2000"  # of sweeps and refreshes, before a process is replaced: some hours


class PortTaken(Exception):
    """The port cannot be used; the message says what to do."""


def environment() -> dict[str, str]:
    """Of processes that run in another folder than this one."""
    return {**os.environ, "ASSAY_VAR": str(settings.VAR)}


def free_port(host: str) -> int:
    with socket.socket() as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


def require_free(host: str, port: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise PortTaken(
                f"{host}:{port} cannot be used ({error.strerror}): stop the program that uses it, or set --port"
            ) from error


def die_with_parent() -> None:
    """On Linux, kills the child if the supervisor is killed."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def backoff_s(failures: int) -> float:
    """The wait before a restart after consecutive failures: 1, 2, 4 ... 30 s."""
    return min(2.0 ** (failures - 1), MAX_BACKOFF_S)


@dataclass(slots=True)
class Child:
    """One process group that should be running."""

    name: str
    command: list[str]
    output: Path | None = None  # None: that of this process
    process: subprocess.Popen[bytes] | None = None
    started_at: float = 0.0
    failures: int = 0
    start_after: float = 0.0

    def start(self) -> None:
        with self.output.open("ab") if self.output else nullcontext() as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", *self.command],
                cwd=settings.BASE_DIR,
                env=environment(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                preexec_fn=die_with_parent,
            )
        self.started_at = time.monotonic()

    def watch(self) -> None:
        """Starts the process when due. If it died, schedules the restart."""
        now = time.monotonic()
        if self.process is None:
            if now >= self.start_after:
                self.start()
        elif (code := self.process.poll()) is not None:
            self.signal(signal.SIGKILL)  # the rest of its group
            self.failures = 1 if now - self.started_at > HEALTHY_AFTER_S else self.failures + 1
            wait_s = backoff_s(self.failures)
            log.warning("died", child=self.name, code=code, restart_in_s=wait_s)
            self.process, self.start_after = None, now + wait_s

    def terminate(self) -> None:
        """Sends SIGTERM to the main process only, which stops its own children."""
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()

    def signal(self, number: int) -> None:
        """Sends a signal to the whole group."""
        if self.process is not None:
            try:
                os.killpg(self.process.pid, number)
            except ProcessLookupError:
                pass

    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None


@dataclass(slots=True)
class Supervisor:
    children: list[Child]
    stopping: bool = field(default=False)

    def stop_on_signals(self) -> None:
        def stop(number: int, frame: object) -> None:
            self.stopping = True

        signal.signal(signal.SIGINT, stop)
        signal.signal(signal.SIGTERM, stop)

    def tick(self, pause_s: float = 0.2) -> None:
        for child in self.children:
            child.watch()
        time.sleep(pause_s)

    def stop(self) -> None:
        for child in self.children:
            child.terminate()
        deadline = time.monotonic() + settings.GRACE_S + AFTER_GRACE_S
        while time.monotonic() < deadline and any(child.running() for child in self.children):
            time.sleep(0.05)
        for child in self.children:
            child.signal(signal.SIGKILL)
            if child.process is not None:
                child.process.wait()


def web_command(host: str, port: int, processes: int) -> list[str]:
    """The gunicorn command."""
    options = ["--workers", str(processes), "--worker-class", "advisor.ops.web_worker.Worker"]
    options += ["--threads", str(settings.WEB_THREADS)]
    options += ["--logger-class", "advisor.watch.gunicorn_log.Logger"]
    options += ["--preload"]  # import once, before accepting requests
    options += ["--no-control-socket"]  # nothing uses it, and a read-only home folder would be an error
    options += ["--graceful-timeout", str(math.ceil(settings.GRACE_S))]
    return ["gunicorn", "advisor.wsgi:application", "--bind", f"{host}:{port}", *options, "--log-level", "warning"]


def worker_commands(name: str) -> dict[str, list[str]]:
    """The Celery workers by what they do: with Redis, sweeps and price refreshes have processes of their own."""

    def command(role: str, *options: str) -> list[str]:
        return [*CELERY, "worker", *options, "--hostname", f"{role}{name}@%h", *WORKER_OPTIONS]

    if not settings.REDIS_URL:
        return {"worker": command("", "--pool", "solo")}
    answering = ",".join((settings.ANSWERS, settings.PROBES, settings.EARLIER_QUEUE))
    periodic = ",".join((settings.SWEEPS, settings.REFRESH))
    pool = ["--pool", "prefork", "--concurrency", "2"]
    return {
        "worker": command("", *pool, "--queues", answering),
        "periodic": command("periodic-", *pool, "--queues", periodic, "--max-tasks-per-child", PERIODIC_TASKS),
    }


def worker_command(queues: Sequence[str], processes: int) -> list[str]:
    """One worker for some queues, or for all; its Celery name begins with them."""
    pool = ["--pool", "prefork", "--concurrency", str(processes)] if settings.REDIS_URL else ["--pool", "solo"]
    earlier = [settings.EARLIER_QUEUE] if settings.ANSWERS in queues else []
    taken = ["--queues", ",".join([*queues, *earlier])] if queues else []
    is_periodic = queues and {*queues} <= {settings.SWEEPS, settings.REFRESH}
    lasting = ["--max-tasks-per-child", PERIODIC_TASKS] if is_periodic else []
    name = "-".join(queues) or "worker"
    return [*CELERY, "worker", *pool, *taken, *lasting, "--hostname", f"{name}@%h", *WORKER_OPTIONS]


def beat_command(schedule: str) -> list[str]:
    """Beat, with the name of the file that has its schedule."""
    return [*CELERY, "beat", "--schedule", str(settings.VAR / schedule), "--pidfile", "", "--loglevel", "WARNING"]


def assay(host: str, port: int, web_processes: int = 2, output: Path | None = None) -> Supervisor:
    """The whole service: web, workers and beat."""
    return Supervisor(
        [
            Child("web", web_command(host, port, web_processes), output),
            *(Child(role, command, output) for role, command in worker_commands(str(port)).items()),
            Child("beat", beat_command(f"beat-{port}"), output),
        ]
    )
