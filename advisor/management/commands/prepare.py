from typing import Any

from django.core.management.base import BaseCommand

from advisor.management.commands.up import prepare


class Command(BaseCommand):
    help = "Migrates the database and loads the shipped catalog if none is loaded or the loaded one is older."

    def handle(self, *args: Any, **options: Any) -> None:
        prepare(self.stdout.write)
        self.stdout.write("Ready.")
