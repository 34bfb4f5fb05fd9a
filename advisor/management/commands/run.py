import os
import sys
from argparse import ArgumentParser
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand

from advisor.ops import supervise
from catalog.management.errors import BadInput, at_least_one


class Command(BaseCommand):
    help = "Runs one part of the service in this process, for containers and systemd. `up` runs all parts."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("part", choices=("web", "worker", "beat"))
        parser.add_argument("queues", nargs="*", help=f"queues of a worker: {', '.join(settings.QUEUES)}; default: all")
        parser.add_argument("--host", default="127.0.0.1", help="for web; default: %(default)s")
        parser.add_argument("--port", type=int, default=8000, help="for web; default: %(default)s")
        parser.add_argument(
            "--processes", type=int, default=2, help="for web, or for a worker with Redis; default: %(default)s"
        )

    def handle(self, *args: Any, part: str, queues: list[str], host: str, port: int, **options: Any) -> None:
        at_least_one("--processes", options["processes"])
        if unknown := [name for name in queues if name not in settings.QUEUES]:
            raise BadInput(f"no such queue: {', '.join(unknown)}; choose from {', '.join(settings.QUEUES)}")
        if queues and part != "worker":
            raise BadInput(f"only workers take queues: leave out {' '.join(queues)}, or use `run worker`")
        if part == "web":
            command = supervise.web_command(host, port, options["processes"])
        elif part == "worker":
            command = supervise.worker_command(queues, options["processes"])
        else:
            command = supervise.beat_command("beat")
        os.chdir(settings.BASE_DIR)  # `-m` looks for modules here first
        os.execve(sys.executable, [sys.executable, "-m", *command], supervise.environment())
