import re
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from catalog.management.errors import BadInput
from catalog.models import Accelerator
from probes import agents
from probes.agent import build

URL = re.compile(r"https?://[\w.:\[\]-]+(/[\w./~-]*)?")  # nothing that a shell would read as more than one word


class Command(BaseCommand):
    help = "Prints a token that registers one machine within an hour. It is shown once and stored hashed."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--label", action="append", default=[], metavar="NAME=VALUE", help="may be given again")
        parser.add_argument(
            "--trust", action="store_true", help="the machine's results count at once, without a second machine"
        )
        parser.add_argument("--accelerator", help="slug in the catalog, where the device's name does not tell")

        parser.add_argument(
            "--server", metavar="URL", help="print the two lines to paste on the machine, for this address"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        labels = dict(pair(text) for text in options["label"])
        if slug := options["accelerator"]:
            if not Accelerator.objects.filter(slug=slug).exists():
                raise BadInput(f"the catalog has no accelerator {slug}; its list of accelerators shows the slugs")
            labels["accelerator"] = slug
        url = (options["server"] or "").rstrip("/")
        if url and not URL.fullmatch(url):
            raise BadInput(f"--server {url}: give the address of this server, such as https://assay.example")
        token, _ = agents.enrol(labels, made_by="manage.py", trusted=options["trust"])
        self.stdout.write(build.lines(url, token, build.archive()) if url else token)


def pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name and equals and value):
        raise BadInput(f"--label {text}: write NAME=VALUE")
    return name, value
