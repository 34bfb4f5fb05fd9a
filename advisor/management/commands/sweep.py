from typing import Any

from django.core.management.base import BaseCommand

from advisor import advise


class Command(BaseCommand):
    help = "Queues again what lost its worker and wakes somebody for what waits too long (beat does it every 5 s)."

    def handle(self, *args: Any, **options: Any) -> None:
        self.stdout.write(", ".join(f"{name} {count}" for name, count in advise.sweep().items()))
