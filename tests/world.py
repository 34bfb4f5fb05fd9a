"""A whole service of its own: database, broker, real worker and beat processes, all ended with the test."""

import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg

ROOT = Path(__file__).resolve().parent.parent
TIMINGS = {"ASSAY_LEASE_S": "1.5", "ASSAY_RESEND_S": "1", "ASSAY_SWEEP_S": "0.5"}
UNLIMITED = dict.fromkeys(("ASSAY_API_PER_MINUTE_TOKEN", "ASSAY_API_PER_MINUTE_ADDRESS"), "0")


@dataclass
class World:
    folder: Path
    database_url: str
    redis_url: str = ""
    redis_prefix: str = ""
    extra: dict[str, str] = field(default_factory=dict)
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def env(self) -> dict[str, str]:
        hidden = ("DATABASE_URL", "REDIS_URL", "COVERAGE", "PYTEST")
        own = {k: v for k, v in os.environ.items() if not k.startswith(hidden)}
        urls = {"DATABASE_URL": self.database_url} | ({"REDIS_URL": self.redis_url} if self.redis_url else {})
        prefix = {"ASSAY_REDIS_PREFIX": self.redis_prefix}
        return {**own, **TIMINGS, **UNLIMITED, **urls, **prefix, "ASSAY_VAR": str(self.folder), **self.extra}

    def python(self, *args: str) -> str:
        done = subprocess.run([sys.executable, *args], cwd=ROOT, env=self.env, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def start(self, *args: str) -> subprocess.Popen[bytes]:
        with (self.folder / "log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "celery", "-A", "tests.slow_worker", *args],
                cwd=ROOT, env=self.env, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        self.processes.append(process)
        return process

    def worker(self, pool: str = "solo") -> subprocess.Popen[bytes]:
        name, shape = f"w{len(self.processes)}@here", ["-P", pool, *(["-c", "2"] if pool == "prefork" else [])]
        return self.start("worker", *shape, "-n", name, "--without-mingle", "--without-gossip", "-l", "INFO")

    def beat(self) -> subprocess.Popen[bytes]:
        return self.start("beat", "-s", str(self.folder / "beat"), "--pidfile", "")

    def ask(self, count: int = 1) -> list[str]:
        return self.python("-m", "tests.slow_worker", str(count)).split()

    def let_go(self) -> None:
        (self.folder / "go").touch()

    def runs(self) -> list[int]:
        file = self.folder / "runs"
        return [int(pid) for pid in file.read_text().split()] if file.exists() else []

    def repeated(self) -> list[str]:
        """Workloads whose calculation began when their advice was done already."""
        file = self.folder / "repeated"
        return file.read_text().split() if file.exists() else []

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        if self.database_url.startswith("sqlite"):
            database = sqlite3.connect(self.database_url.removeprefix("sqlite:///"), timeout=20)
            try:
                return database.execute(sql).fetchall()
            finally:
                database.close()
        with psycopg.connect(self.database_url) as connection:
            return connection.execute(sql).fetchall()  # type: ignore[call-overload, no-any-return]

    def states(self) -> list[str]:
        return [state for (state,) in self.rows("select state from advisor_advice")]

    def until(self, condition: Callable[[], bool], limit_s: float = 60) -> None:
        """Waits for a state of affairs; the limit only ends a test that has failed."""
        deadline = time.monotonic() + limit_s
        while not condition():
            assert time.monotonic() < deadline, (self.folder / "log").read_text()[-4000:]
            time.sleep(0.05)

    def end(self) -> None:
        for process in self.processes:
            kill(process)


def kill(process: subprocess.Popen[bytes], number: int = signal.SIGKILL) -> None:
    """The whole group at once, as a machine that goes away; waits for its end when it was SIGKILL."""
    try:
        os.killpg(process.pid, number)
    except ProcessLookupError:
        pass
    if number == signal.SIGKILL:
        process.wait()
