from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from catalog.management.errors import BadInput
from catalog.models import Calibration
from probes import calibrations, reading


class Command(BaseCommand):
    help = "Lists what machines changed in shared figures; shows one change with before and after; undoes one."

    def add_arguments(self, parser: CommandParser) -> None:
        actions = parser.add_subparsers(dest="action", metavar="show | undo")
        for name, text in (
            ("show", "before and after of each figure, and the answers that it concerns"),
            ("undo", "restore the former figures, without the results that it brought in"),
        ):
            actions.add_parser(name, help=text).add_argument("id", type=int)

    def handle(self, *args: Any, **options: Any) -> None:
        if not options["action"]:
            return self.list()
        row = calibrations.visible().filter(pk=options["id"]).first()
        if row is None:
            raise BadInput(f"machines made no calibration {options['id']}: manage.py calibrations lists them")
        if options["action"] == "show":
            return self.show(row)
        try:
            made = calibrations.undo(row, "manage.py")
        except calibrations.CannotUndo as error:
            raise BadInput(str(error)) from None
        self.stdout.write(f"calibration {row.pk} is undone by calibration {made.pk}:")
        return self.show(made)

    def list(self) -> None:
        rows = list(calibrations.visible()[:200])
        for row in rows:
            undo = calibrations.undone_by(row)
            state = f"undone by {undo.pk}" if undo else f"undoes {row.undoes_id}" if row.undoes_id else ""
            counts = f"{len(row.changes)} figures from {len(row.results)} results"
            self.stdout.write(f"{row.pk:6}  {row.created_at:%Y-%m-%d %H:%M}  {row.name:40} {counts}  {state}".rstrip())
        if not rows:
            self.stdout.write("No machine has changed a figure yet.")

    def show(self, row: Calibration) -> None:
        self.stdout.write(f"calibration {row.pk} of {row.name}, {row.created_at:%Y-%m-%d %H:%M} UTC: {row.fitted_on}")
        for change in reading.changes(row.changes):
            moved = f" ({change['moved']:+.1%})" if change["moved"] is not None else ""
            self.stdout.write(f"  {change['figure']:32} {change['before']} -> {change['after']}{moved}")
        found = calibrations.affected(row)
        self.stdout.write(f"  {len(found.used)} recent answers used it, {len(found.asked_again)} were computed again")
