from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils import timezone

from probes import agents


class Command(BaseCommand):
    help = "Lists the machines that measure, with their state and labels; --revoke ID takes a token back."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--revoke", type=int, metavar="ID")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["revoke"] is not None:
            agent = agents.visible().filter(pk=options["revoke"]).first()
            if agent is None or not agents.revoke(agent):
                raise CommandError(f"no agent {options['revoke']} to revoke: manage.py agents lists them")
            self.stdout.write(f"{agent.name}: revoked, its next call is refused")
            return
        rows = list(agents.visible())
        for agent in rows:
            seen = (
                f"{(timezone.now() - agent.last_seen_at).total_seconds():.0f} s ago" if agent.last_seen_at else "never"
            )
            labels = " ".join(f"{name}={value}" for name, value in sorted(agent.labels.items()))
            self.stdout.write(f"{agent.pk:5}  {agents.status(agent):8} {agent.name:30} seen {seen}  {labels}")
        if not rows:
            self.stdout.write("No machine is registered: manage.py enrol makes a token for one.")
