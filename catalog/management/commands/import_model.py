"""Adds a model from config.json: `import_model PATH|HF_ID [--slug S]`."""

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
    help = "Adds a model to the catalog from a Hugging Face config.json, or updates it."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("model", help="path of a config.json, or a Hugging Face ID such as meta-llama/Llama-3.1-8B")
        parser.add_argument("--slug", help="slug in the catalog (default: the ID in lower case)")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            row = row_of(options["model"], options["slug"])
            with transaction.atomic():
                counts = upsert(ServedModel, ("slug",), [row])
        except FixtureError as error:
            raise BadInput(str(error)) from error
        model = from_shape(row["slug"], row["shape"])
        outcome = "created" if counts.created else "changed" if counts.changed else "unchanged"
        self.stdout.write(
            f"{row['slug']}: {outcome}, {parameters(model) / 1e9:.2f} B parameters, "
            f"{active_parameters(model) / 1e9:.2f} B active"
        )


def row_of(path_or_id: str, slug: str | None) -> Row:
    """The model row of a file, or of an ID on the hub. FixtureError: it cannot be used."""
    hub_id, text, source = read(path_or_id)
    config = hf.parsed(text, path_or_id)
    name = hub_id or str(config.get("_name_or_path") or slug or "")
    if not (slug or name):
        raise FixtureError(f"{path_or_id}: config.json has no model name; give --slug")
    return hf.model_row(config, name, source, slug)


def read(path_or_id: str) -> tuple[str, str, str]:
    """The hub ID (empty for a file), the text of config.json and its source. Only this command reads local paths."""
    path = Path(path_or_id)
    if path.is_file():
        return "", text_of(path), path.name
    if not hub.HUB_ID.fullmatch(path_or_id):
        raise FixtureError(f"{path_or_id}: neither a file nor a Hugging Face ID such as meta-llama/Llama-3.1-8B")
    try:
        return path_or_id, *hub.config_json(path_or_id)
    except hub.HubDisabled as error:
        problem = f"{path_or_id}: no such file, and the Hugging Face Hub is disabled"
        raise FixtureError(f"{problem}; give the path of a config.json, or set ASSAY_HUB_URL") from error


def text_of(path: Path) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(hub.MAX_BYTES + 1)
        if len(content) > hub.MAX_BYTES:
            raise FixtureError(f"{path}: larger than {hub.MAX_BYTES:,} bytes; is it a config.json?")
        return content.decode()
    except (OSError, UnicodeDecodeError) as error:
        raise FixtureError(f"{path}: cannot be read as text: {error}") from error
