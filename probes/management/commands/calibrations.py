from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from catalog.management.errors import BadInput
from catalog.models import Calibration, default_organisation
from probes.fitted import calibrations
from probes.pages import result_figures


class Command(BaseCommand):
    help = "Lists calibrations from measurements, shows one, or undoes one."

    def add_arguments(self, parser: CommandParser) -> None:
        actions = parser.add_subparsers(dest="action", metavar="show | share | undo")
        for name, text in (
            ("show", "show each figure before and after, and affected answers"),
            ("share", "share an organization's calibration with all"),
            ("undo", "restore the previous figures and exclude its results"),
        ):
            actions.add_parser(name, help=text).add_argument("id", type=int)

    def handle(self, *args: Any, **options: Any) -> None:
        if not options["action"]:
            return self.list()
        row = calibrations.of_everyone().filter(pk=options["id"]).first()
        if row is None:
            raise BadInput(f"no calibration {options['id']} from measurements; list them with manage.py calibrations")
        if options["action"] == "show":
            return self.show(row)
        if options["action"] == "share":
            try:
                return self.show(calibrations.share(row, "manage.py"))
            except calibrations.CannotUndo as error:
                raise BadInput(str(error)) from None
        try:
            restored = calibrations.undo(row, "manage.py")
        except calibrations.CannotUndo as error:
            raise BadInput(str(error)) from None
        self.stdout.write(f"calibration {row.pk} was undone by calibration {restored.pk}:")
        return self.show(restored)

    def list(self) -> None:
        rows = list(calibrations.of_everyone()[:200])
        for row in rows:
            undo = calibrations.undone_by(row)
            state = f"undone by {undo.pk}" if undo else f"undoes {row.undoes_id}" if row.undoes_id else ""
            state += f"  of {row.organisation.slug}" if row.organisation else ""
            counts = f"{len(row.changes)} figures from {len(row.results)} results"
            self.stdout.write(f"{row.pk:6}  {row.created_at:%Y-%m-%d %H:%M}  {row.name:40} {counts}  {state}".rstrip())
        if not rows:
            self.stdout.write("No calibrations from measurements yet.")

    def show(self, row: Calibration) -> None:
        self.stdout.write(f"calibration {row.pk} of {row.name}, {row.created_at:%Y-%m-%d %H:%M} UTC: {row.fitted_on}")
        for change in result_figures.changes(row.changes):
            relative = f" ({change['moved']:+.1%})" if change["moved"] is not None else ""
            self.stdout.write(f"  {change['figure']:32} {change['before']} -> {change['after']}{relative}")
        affected = calibrations.affected(row, row.organisation or default_organisation())
        self.stdout.write(f"  {len(affected.used)} recent answers used it, {len(affected.recomputed)} were recomputed")
