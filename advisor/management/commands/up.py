import socket
from argparse import ArgumentParser
from collections.abc import Callable
from typing import Any

import structlog
from django.conf import settings
from django.core.management import call_command
from django.core.management.base import BaseCommand

from advisor.engine import ENGINE_VERSION
from advisor.ops import supervise
from advisor.watch import logs
from catalog.loading import load
from catalog.management.errors import BadInput
from catalog.models import CatalogLoad
from catalog.shipped import FIXTURES

log = structlog.get_logger("assay.supervise")


def prepare(say: Callable[[str], object]) -> None:
    """Migrates the database, and loads the shipped catalog if none is loaded or the loaded one is older."""
    say("Preparing the database ...")
    call_command("migrate", verbosity=0)
    if not CatalogLoad.objects.exists() or load.why_older():
        say("Loading the catalog ...")
        load.load(FIXTURES)


class Command(BaseCommand):
    help = "Prepares database and catalog, then runs web, workers and beat until Ctrl-C and restarts them if they die."

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
        self.say(f"Assay {ENGINE_VERSION}, files in {settings.VAR}")
        prepare(self.say)
        supervisor = supervise.assay(host, port)
        supervisor.stop_on_signals()
        self.say("Starting web, workers and beat ...")
        announced = False
        try:
            while not supervisor.stopping:
                supervisor.tick()
                if not announced and listens(host, port):
                    self.say(f"Assay on http://{host}:{port}/ (Ctrl-C to stop)")
                    announced = True
        finally:
            supervisor.stop()

    def say(self, line: str) -> None:
        """One line of text for people, or one of JSON among those of the log."""
        if logs.as_json():
            log.info(line)
        else:
            self.stdout.write(line)
            self.stdout.flush()


def listens(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), timeout=1).close()
    except OSError:
        return False
    return True
