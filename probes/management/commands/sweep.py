from typing import Any

from django.core.management.base import BaseCommand

from advisor.studies import pieces
from probes import periodic


class Command(BaseCommand):
    help = "Queues work again that lost its worker or machine, and resends lost messages. Beat does this every 5 s."

    def handle(self, *args: Any, **options: Any) -> None:
        counts = pieces.sweep() | periodic.sweep()
        self.stdout.write(", ".join(f"{name} {count}" for name, count in counts.items()))
