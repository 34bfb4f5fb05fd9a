from typing import Any

from django.core.management.base import BaseCommand

from advisor import advise
from probes import duties


class Command(BaseCommand):
    help = (
        "Queues again what lost its worker or its machine and wakes somebody for what waits (beat does it every 5 s)."
    )

    def handle(self, *args: Any, **options: Any) -> None:
        counts = advise.sweep() | duties.sweep()
        self.stdout.write(", ".join(f"{name} {count}" for name, count in counts.items()))
