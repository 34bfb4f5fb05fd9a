"""Adds a model from its config.json: `import_model PATH_TO_config.json|HF_ID [--slug S]`."""

from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandParser
from django.db import transaction

from advisor.engine.network import active_parameters, from_shape, parameters
from catalog.importers import hf, hub
from catalog.loading.fixtures import FixtureError, Row
from catalog.loading.load import upsert
from catalog.management.errors import BadInput
from catalog.models import ServedModel


class Command(BaseCommand):
    help = "Adds or updates a model of the catalog from a Hugging Face config.json."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("model", help="path of a config.json, or an id such as meta-llama/Llama-3.1-8B")
        parser.add_argument("--slug", help="default: the id in lower case")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            row = row_of(options["model"], options["slug"])
            with transaction.atomic():
                counts = upsert(ServedModel, ("slug",), [row])
        except FixtureError as error:
            raise BadInput(str(error)) from error
        model = from_shape(row["slug"], row["shape"])
        done = "created" if counts.created else "changed" if counts.changed else "unchanged"
        self.stdout.write(
            f"{row['slug']}: {done}, {parameters(model) / 1e9:.2f} B parameters, "
            f"{active_parameters(model) / 1e9:.2f} B for one token"
        )


def row_of(what: str, slug: str | None) -> Row:
    """The catalog's row of a file, or of an id on the hub."""
    hub_id, text, source = read(what)
    config = hf.parsed(text, what)
    named = hub_id or str(config.get("_name_or_path") or slug or "")
    if not (slug or named):
        raise FixtureError(f"{what}: the configuration has no name; give --slug")
    return hf.described(config, named, source, slug)


def read(what: str) -> tuple[str, str, str]:
    """The id, the text of the configuration and its source. Only this command reads a path."""
    path = Path(what)
    if path.is_file():
        return "", text_of(path), path.name
    if not hub.HUB_ID.fullmatch(what):
        raise FixtureError(f"{what}: neither a file nor an id such as meta-llama/Llama-3.1-8B")
    try:
        return what, *hub.config_json(what)
    except hub.HubDisabled as error:
        said = f"{what}: there is no such file, and contact with the Hugging Face Hub is disabled"
        raise FixtureError(f"{said}; give the path of a config.json, or set ASSAY_HUB_URL") from error


def text_of(path: Path) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(hub.MAX_BYTES + 1)
        if len(content) > hub.MAX_BYTES:
            raise FixtureError(f"{path}: larger than {hub.MAX_BYTES:,} bytes; is it a config.json?")
        return content.decode()
    except (OSError, UnicodeDecodeError) as error:
        raise FixtureError(f"{path}: cannot be read as text: {error}") from error
