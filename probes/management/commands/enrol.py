import re
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from catalog.accounts import quotas
from catalog.management.errors import BadInput
from catalog.models import Accelerator
from probes.agent import build
from probes.machines import agents

URL = re.compile(r"https?://[\w.:\[\]-]+(/[\w./~-]*)?")  # safe to paste into a shell


class Command(BaseCommand):
    help = "Prints a token that registers one machine within an hour. Only its hash is stored."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--label", action="append", default=[], metavar="NAME=VALUE", help="label of the machine; may be repeated"
        )
        parser.add_argument(
            "--trust", action="store_true", help="use the machine's results immediately, without a second machine"
        )
        parser.add_argument("--accelerator", help="slug of the accelerator, if the device name does not identify it")

        parser.add_argument(
            "--server", metavar="URL", help="URL of this server: print the two commands to run on the machine"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        labels = dict(pair(text) for text in options["label"])
        if slug := options["accelerator"]:
            if not Accelerator.objects.filter(slug=slug).exists():
                raise BadInput(f"no accelerator {slug} in the catalog; its list of accelerators shows the slugs")
            labels["accelerator"] = slug
        url = (options["server"] or "").rstrip("/")
        if url and not URL.fullmatch(url):
            raise BadInput(f"--server {url}: give the URL of this server, such as https://assay.example")
        try:
            token, _ = agents.enrol(labels, made_by="manage.py", trusted=options["trust"])
        except quotas.QuotaReached as error:
            raise BadInput(str(error)) from None
        self.stdout.write(build.lines(url, token, build.archive()) if url else token)


def pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name and equals and value):
        raise BadInput(f"--label {text}: use NAME=VALUE")
    return name, value
