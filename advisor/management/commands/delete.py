from collections.abc import Callable
from typing import Any

from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandParser
from django.db.models import Model

from advisor import deletion
from advisor.models import Advice, LoadTest, Share
from catalog.deletion import NotDeletable, delete_model
from catalog.management.errors import BadInput
from catalog.models import ServedModel

KINDS: dict[str, tuple[type[Model], str, Callable[[Any, str], Any]]] = {
    "advice": (Advice, "pk", deletion.delete_advice),
    "share": (Share, "pk", deletion.delete_share),
    "load-test": (LoadTest, "pk", deletion.delete_load_test),
    "model": (ServedModel, "slug", delete_model),
}


class Command(BaseCommand):
    help = "Deletes advice with all its data, links, load tests or imported models, without asking for confirmation."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("kind", choices=KINDS)
        parser.add_argument(
            "ids", nargs="+", metavar="ID", help="the ID that pages and the API show; for a model its slug"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        model, key, delete = KINDS[options["kind"]]
        for text in options["ids"]:
            try:
                row = model._default_manager.get(**{key: text})
                delete(row, "manage.py")
            except (model.DoesNotExist, ValidationError, ValueError):  # type: ignore[attr-defined]
                raise BadInput(f"no such {options['kind']}: {text}; its page and the API show the ID") from None
            except NotDeletable as error:
                raise BadInput(str(error)) from None
            self.stdout.write(f"{options['kind']} {text}: deleted")
