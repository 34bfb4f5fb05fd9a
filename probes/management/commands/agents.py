from typing import Any

from django.core.management.base import BaseCommand, CommandParser
from django.db.models import Q
from django.utils import timezone

from catalog.management.errors import BadInput
from probes import agents, results
from probes.models import Agent


class Command(BaseCommand):
    help = "Lists the machines that measure, with their state and labels; trusts, approves or revokes one."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--revoke", type=int, metavar="ID", help="take a machine's token back")
        actions = parser.add_subparsers(dest="action", metavar="trust | distrust | approve")
        for name, text in (
            ("trust", "let its results count without a second machine"),
            ("distrust", "let its later results wait for a second machine or a person"),
            ("approve", "let a registration without proof take its place"),
        ):
            action = actions.add_parser(name, help=text)
            action.add_argument("machine", metavar="NAME", help="its name or its id")
            if name == "approve":
                action.add_argument("--enrolment", metavar="PREFIX", help="which one, where several wait: aet_...")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["revoke"] is not None:
            agent = agents.visible().filter(pk=options["revoke"]).first()
            if agent is None or not agents.revoke(agent):
                raise BadInput(f"no agent {options['revoke']} to revoke: manage.py agents lists them")
            self.stdout.write(f"{agent.name}: revoked, its next call is refused")
        elif options["action"]:
            getattr(self, options["action"])(named(options["machine"]), options)
        else:
            self.list()

    def trust(self, agent: Agent, options: dict[str, Any]) -> None:
        agents.trust(agent, "manage.py")
        again = results.fit_again(agent)
        self.stdout.write(f"{agent.name}: trusted, its results count at once ({again} that waited count now)")

    def distrust(self, agent: Agent, options: dict[str, Any]) -> None:
        agents.distrust(agent)
        self.stdout.write(f"{agent.name}: not trusted, new results wait for a second machine or a person")

    def approve(self, agent: Agent, options: dict[str, Any]) -> None:
        claims = agents.pending_claims(agent)
        if options["enrolment"]:
            claims = claims.filter(token_prefix__startswith=options["enrolment"][: agents.PREFIX])
        found = list(claims)
        if len(found) != 1:
            waiting = [f"  {c.token_prefix}: {claimant(c)}" for c in found]
            text = "several registrations wait, name one with --enrolment:" if found else "no registration waits"
            raise BadInput("\n".join([f"{agent.name}: {text}", *waiting]))
        agents.approve(found[0], "manage.py")
        text = f"{agent.name}: approved for {claimant(found[0])}; run the same command there again within an hour"
        self.stdout.write(text)

    def list(self) -> None:
        rows = list(agents.visible())
        for agent in rows:
            seen = (
                f"{(timezone.now() - agent.last_seen_at).total_seconds():.0f} s ago" if agent.last_seen_at else "never"
            )
            labels = " ".join(f"{name}={value}" for name, value in sorted(agent.labels.items()))
            trusted = "trusted  " if agent.trusted_at else ""
            self.stdout.write(f"{agent.pk:5}  {agents.status(agent):8} {agent.name:30} seen {seen}  {trusted}{labels}")
        if not rows:
            self.stdout.write("No machine is registered: manage.py enrol makes a token for one.")
        for claim in agents.pending_claims():
            wanted = claim.claims.name if claim.claims else ""
            self.stdout.write(f"waits for approval as {wanted}: {claimant(claim)} ({claim.token_prefix})")


def named(text: str) -> Agent:
    asked = Q(name=text) | Q(pk=int(text)) if text.isdecimal() and len(text) < 18 else Q(name=text)
    found = list(agents.visible().filter(asked))
    if len(found) != 1:
        many = f"{len(found)} machines are" if found else "no machine is"
        raise BadInput(f"{many} called {text}: manage.py agents lists them with their ids")
    return found[0]


def claimant(claim: Any) -> str:
    told = claim.claim
    device = f" with {told['device']}" if told.get("device") else ""
    return f"{told.get('name')}{device} from {told.get('address') or 'an unknown address'}"
