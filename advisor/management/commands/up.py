from argparse import ArgumentParser
from typing import Any

import structlog
from django.core.management.base import BaseCommand

from advisor.ops import supervise
from advisor.watch import logs
from catalog.management.errors import BadInput

log = structlog.get_logger("assay.supervise")


class Command(BaseCommand):
    help = "Runs web, worker and beat until Ctrl-C, and restarts them if they die."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--host", default="127.0.0.1")
        parser.add_argument("--port", type=int, default=8000)

    def handle(self, *args: Any, host: str, port: int, **options: Any) -> None:
        if not 1 <= port <= 65535:
            raise BadInput(f"--port: {port} is not a port; give a number from 1 to 65535")
        try:
            supervise.require_free(host, port)
        except supervise.PortTaken as error:
            raise BadInput(str(error)) from error
        supervisor = supervise.assay(host, port)
        supervisor.stop_on_signals()
        if logs.as_json():
            log.info("serving", url=f"http://{host}:{port}/")
        else:
            self.stdout.write(f"Assay on http://{host}:{port}/ (Ctrl-C to stop)")
        try:
            while not supervisor.stopping:
                supervisor.tick()
        finally:
            supervisor.stop()
