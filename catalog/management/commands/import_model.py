"""Adds a model from its config.json: `import_model PATH_TO_config.json|HF_ID [--slug S]`."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import transaction

from advisor.engine.model import active_parameters, from_shape, parameters
from catalog.fixtures import FixtureError
from catalog.importers import hf
from catalog.loading import upsert
from catalog.models import ServedModel


class Command(BaseCommand):
    help = "Adds or updates a model of the catalog from a Hugging Face config.json."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("model", help="path of a config.json, or an id such as meta-llama/Llama-3.1-8B")
        parser.add_argument("--slug", help="default: the id in lower case")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            row = hf.row(options["model"], options["slug"])
            with transaction.atomic():
                counts = upsert(ServedModel, ("slug",), [row])
        except FixtureError as error:
            raise CommandError(str(error)) from error
        model = from_shape(row["slug"], row["shape"])
        done = "created" if counts.created else "changed" if counts.changed else "unchanged"
        self.stdout.write(
            f"{row['slug']}: {done}, {parameters(model) / 1e9:.2f} B parameters, "
            f"{active_parameters(model) / 1e9:.2f} B for one token"
        )
