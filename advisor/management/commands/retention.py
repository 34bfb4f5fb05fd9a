from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandParser

from advisor import deletion
from catalog import clock


class Command(BaseCommand):
    help = "Deletes rows older than the ASSAY_KEEP_... settings. The sweep does the same in small batches."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--dry-run", action="store_true", help="only count the rows to delete")

    def handle(self, *args: Any, **options: Any) -> None:
        now = clock.read()
        for rule in deletion.RULES:
            days, own = getattr(settings, rule.setting), deletion.own_days(rule)
            if days is None and not own:
                self.stdout.write(f"{rule.kind}: kept (ASSAY_{rule.setting} is not set)")
                continue
            count = sum(rows.count() for rows in deletion.expired(rule, now))
            terms = [f"{days} day{'s' * (days > 1)}"] if days else []
            terms += [f"the days that {len(own)} organization{'s' * (len(own) > 1)} set"] if own else []
            self.stdout.write(f"{rule.kind}: {count} older than {' or '.join(terms)}")
        if not options["dry_run"]:
            deleted = 0
            while batch := deletion.delete_expired():
                deleted += batch
            self.stdout.write(f"deleted {deleted} rows")
