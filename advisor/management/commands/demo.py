import json
import time
import urllib.error
import urllib.request
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from django.urls import reverse

from advisor import report
from advisor.management.commands.up import prepare
from advisor.ops import supervise
from advisor.result import Answer
from catalog.management.errors import BadInput
from catalog.shipped import FIXTURES

HOST = "127.0.0.1"
OPEN_STATES = ("queued", "running")
MOST_LINES = 14  # of the output; `make demo` adds one when it installs


class Command(BaseCommand):
    help = "Starts the service on a free port, sends it one workload over REST, prints the answer and stops it."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("workload", nargs="?", type=Path, default=FIXTURES / "workloads" / "support-chat.yaml")
        parser.add_argument("--limit-s", type=float, default=300)

    def handle(self, *args: Any, **options: Any) -> None:
        file = options["workload"]
        try:
            question = file.read_bytes()
        except OSError as error:
            raise BadInput(f"{file} cannot be read: {error.strerror}; give the path of a workload file") from error
        prepare(self.progress)
        log = settings.VAR / "demo.log"
        log.unlink(missing_ok=True)
        base = f"http://{HOST}:{supervise.free_port(HOST)}"
        supervisor = supervise.assay(HOST, int(base.rpartition(":")[2]), web_processes=1, output=log)
        supervisor.stop_on_signals()
        try:
            self.progress("Starting the service and asking it ...")
            advice = Conversation(base, supervisor, options["limit_s"], log).ask(question)
        finally:
            supervisor.stop()
            self.progress("")
        self.show(advice)

    def show(self, advice: dict[str, Any]) -> None:
        if advice["state"] != "done":
            raise CommandError(f"the recommendation is {advice['state']}: {advice['error']}")
        self.stdout.write(report.answer_text(report.screen_of(Answer.read(advice["result"])), MOST_LINES - 3))
        page = reverse("advice", args=[advice["id"]])
        self.stdout.write(
            f"\nTo see the full answer with its evidence, run `make serve` and open http://{HOST}:8000{page}\n"
            f"From the command line: .venv/bin/python manage.py advise fixtures/workloads/support-chat.yaml\n"
        )

    def progress(self, line: str) -> None:
        """Shows the current step in a terminal, on one line that the answer replaces."""
        if self.stderr.isatty():
            self.stderr.write(f"\r\033[K{line}", lambda text: text, ending="")
            self.stderr.flush()


class Conversation:
    """A client that also runs the supervisor while it waits."""

    def __init__(self, base: str, supervisor: supervise.Supervisor, limit_s: float, log: Path) -> None:
        self.base, self.supervisor, self.log = base, supervisor, log
        self.deadline = time.monotonic() + limit_s

    def ask(self, question: bytes) -> dict[str, Any]:
        while not self.ready():
            self.wait("the service to start")
        advice = self.call(reverse("api-advice-list"), question)
        while advice["state"] in OPEN_STATES:
            self.wait("the answer")
            advice = self.call(reverse("api-advice", args=[advice["id"]]))
        return advice

    def ready(self) -> bool:
        try:
            return bool(self.call(reverse("readyz")))
        except urllib.error.HTTPError as error:
            raise CommandError(f"the service is not ready: {error.read().decode()}") from error
        except OSError:
            return False

    def wait(self, what: str) -> None:
        if self.supervisor.stopping or time.monotonic() > self.deadline:
            raise CommandError(f"stopped while waiting for {what}; see the log in {self.log}")
        self.supervisor.tick()

    def call(self, path: str, body: bytes | None = None) -> dict[str, Any]:
        call = urllib.request.Request(self.base + path, data=body, headers={"Content-Type": "application/yaml"})
        with urllib.request.urlopen(call, timeout=30) as answer:
            return dict(json.load(answer))
