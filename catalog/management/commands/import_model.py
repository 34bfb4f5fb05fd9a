"""Adds a model from config.json: `import_model PATH|HF_ID [--slug S] [--confirm-size]`."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandParser
from django.db import transaction

from advisor.engine.network import active_parameters, from_shape, parameters
from catalog import owned_models
from catalog.importers.models import ModelFiles, hf, hub, model_files
from catalog.loading.fixtures import FixtureError, Row
from catalog.loading.load import Counts, upsert
from catalog.management.errors import BadInput, operator
from catalog.models import Organisation, ServedModel


class Command(BaseCommand):
    help = "Adds a model to the catalog from a Hugging Face config.json, or updates it."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "model", help="path of a config.json or of its folder, or a Hugging Face ID such as meta-llama/Llama-3.1-8B"
        )
        parser.add_argument("--slug", help="slug in the catalog (default: the ID in lower case)")
        parser.add_argument(
            "--confirm-size",
            action="store_true",
            help="confirm that the size is right although the name, the catalog or the checkpoint states another",
        )

        parser.add_argument(
            "--organization", metavar="SLUG", help="add it for this organization alone; default: for all of them"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            row, warnings = row_of(options["model"], options["slug"], options["confirm_size"])
            if options["organization"]:
                owned_models.add(row, owner_of(options["organization"]), operator())
                counts = Counts(created=1)
            else:
                with transaction.atomic():
                    counts = upsert(ServedModel, ("slug",), [row])
        except (FixtureError, owned_models.Taken) as error:
            raise BadInput(str(error)) from error
        for warning in warnings:
            self.stderr.write(f"warning: {warning}")
        model = from_shape(row["slug"], row["shape"])
        outcome = "created" if counts.created else "changed" if counts.changed else "unchanged"
        self.stdout.write(
            f"{row['slug']}: {outcome}, {parameters(model) / 1e9:.2f} B parameters, "
            f"{active_parameters(model) / 1e9:.2f} B active"
        )


def owner_of(slug: str) -> Organisation:
    """BadInput: there is no such organization."""
    found = Organisation.objects.filter(slug=slug).first()
    if found is None:
        known = ", ".join(Organisation.objects.order_by("slug").values_list("slug", flat=True))
        raise BadInput(f"no organization {slug!r}; choose one of {known}")
    return found


def row_of(path_or_id: str, slug: str | None, confirmed: bool) -> tuple[Row, list[str]]:
    """The model row of a file, or of an ID on the hub, and warnings about its size. FixtureError: it cannot be used."""
    hub_id, files = read(path_or_id)
    name = hub_id or str(files.config.get("_name_or_path") or slug or "")
    if not (slug or name):
        raise FixtureError(f"{path_or_id}: config.json has no model name; give --slug")
    if slug:
        files = replace(files, names=(*files.names, slug))
    row = hf.model_row(files.config, name, files.source, slug)
    return row, files.warnings(confirmed, "add --confirm-size")


def read(path_or_id: str) -> tuple[str, ModelFiles]:
    """The hub ID (empty for files) and the files of a model. Only commands read local paths."""
    if Path(path_or_id).exists():
        return "", model_files.read(Path(path_or_id))
    if not hub.HUB_ID.fullmatch(path_or_id):
        raise FixtureError(f"{path_or_id}: neither a file nor a Hugging Face ID such as meta-llama/Llama-3.1-8B")
    try:
        return path_or_id, model_files.from_hub(path_or_id)
    except hub.HubDisabled as error:
        problem = f"{path_or_id}: no such file, and the Hugging Face Hub is disabled"
        raise FixtureError(f"{problem}; give the path of a config.json, or set ASSAY_HUB_URL") from error
