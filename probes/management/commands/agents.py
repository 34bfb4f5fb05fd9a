from typing import Any

from django.core.management.base import BaseCommand, CommandParser
from django.db.models import Q
from django.utils import timezone

from catalog.management.errors import BadInput
from catalog.models import default_organisation
from probes.machines import agents
from probes.models import Agent
from probes.received import results


class Command(BaseCommand):
    help = "Lists measurement machines with their state and labels, or trusts, approves or revokes one."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--revoke", type=int, metavar="ID", help="revoke the token of a machine")
        actions = parser.add_subparsers(dest="action", metavar="trust | distrust | approve")
        for name, text in (
            ("trust", "use its results without a second machine"),
            ("distrust", "make later results wait for a second machine or a person"),
            ("approve", "approve a registration without proof that replaces it"),
        ):
            action = actions.add_parser(name, help=text)
            action.add_argument("machine", metavar="NAME", help="name or ID of the machine")
            if name == "approve":
                action.add_argument("--enrolment", metavar="PREFIX", help="the registration, if several wait: aet_...")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["revoke"] is not None:
            agent = agents.visible(default_organisation()).filter(pk=options["revoke"]).first()
            if agent is None or not agents.revoke(agent, "manage.py"):
                raise BadInput(f"no agent {options['revoke']} to revoke; list them with manage.py agents")
            self.stdout.write(f"{agent.name}: revoked; its next call will be refused")
        elif options["action"]:
            getattr(self, options["action"])(machine(options["machine"]), options)
        else:
            self.list()

    def trust(self, agent: Agent, options: dict[str, Any]) -> None:
        agents.trust(agent, "manage.py")
        refitted = results.refit_waiting(agent)
        self.stdout.write(
            f"{agent.name}: trusted; its results count immediately ({refitted} waiting results are now used)"
        )

    def distrust(self, agent: Agent, options: dict[str, Any]) -> None:
        agents.distrust(agent, "manage.py")
        self.stdout.write(f"{agent.name}: no longer trusted; new results wait for a second machine or a person")

    def approve(self, agent: Agent, options: dict[str, Any]) -> None:
        claims = agents.pending_claims(agent.organisation, agent)
        if options["enrolment"]:
            claims = claims.filter(token_prefix__startswith=options["enrolment"][: agents.PREFIX])
        matching = list(claims)
        if len(matching) != 1:
            waiting = [f"  {c.token_prefix}: {claimant(c)}" for c in matching]
            text = "several registrations wait; choose one with --enrolment:" if matching else "no registration waits"
            raise BadInput("\n".join([f"{agent.name}: {text}", *waiting]))
        agents.approve(matching[0], "manage.py")
        text = f"{agent.name}: approved {claimant(matching[0])}; run the same command there again within an hour"
        self.stdout.write(text)

    def list(self) -> None:
        rows = list(agents.visible(default_organisation()))
        for agent in rows:
            seen = (
                f"{(timezone.now() - agent.last_seen_at).total_seconds():.0f} s ago" if agent.last_seen_at else "never"
            )
            labels = " ".join(f"{name}={value}" for name, value in sorted(agent.labels.items()))
            trusted = "trusted  " if agent.trusted_at else ""
            self.stdout.write(f"{agent.pk:5}  {agents.status(agent):8} {agent.name:30} seen {seen}  {trusted}{labels}")
        if not rows:
            self.stdout.write("No machine is registered. Create a token with manage.py enrol.")
        for claim in agents.pending_claims(default_organisation()):
            name = claim.claims.name if claim.claims else ""
            self.stdout.write(f"waits for approval as {name}: {claimant(claim)} ({claim.token_prefix})")


def machine(text: str) -> Agent:
    """The machine with this name or ID. BadInput: none or several match."""
    name_or_id = Q(name=text) | Q(pk=int(text)) if text.isdecimal() and len(text) < 18 else Q(name=text)
    matching = list(agents.visible(default_organisation()).filter(name_or_id))
    if len(matching) != 1:
        count = f"{len(matching)} machines are" if matching else "no machine is"
        raise BadInput(f"{count} called {text}; list them with their IDs with manage.py agents")
    return matching[0]


def claimant(claim: Any) -> str:
    """Name, device and address of the machine that asks for approval."""
    facts = claim.claim
    device = f" with {facts['device']}" if facts.get("device") else ""
    return f"{facts.get('name')}{device} from {facts.get('address') or 'an unknown address'}"
