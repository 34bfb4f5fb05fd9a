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
            days = getattr(settings, rule.setting)
            if days is None:
                self.stdout.write(f"{rule.kind}: kept (ASSAY_{rule.setting} is not set)")
                continue
            count = sum(rows.count() for rows in deletion.expired(rule, now))
            self.stdout.write(f"{rule.kind}: {count} older than {days} day{'s' * (days > 1)}")
        if not options["dry_run"]:
            deleted = 0
            while batch := deletion.delete_expired():
                deleted += batch
            self.stdout.write(f"deleted {deleted} rows")
