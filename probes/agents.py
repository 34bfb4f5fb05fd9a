"""The use-cases of agents: enrol, register, recognise, rotate, revoke; and the pace at which they may ask."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.core.cache import cache
from django.db import transaction
from django.db.models import Q, QuerySet
from django.utils import timezone

from advisor.advise import default_organisation
from advisor.tokens import hashed, new_token
from catalog.models import Organisation
from probes import devices
from probes.models import Agent, Enrolment

ENROLMENT_HOURS = 1
OLD_TOKEN_S = 300  # the former token still works so long: the answer to a rotation may be lost
SEEN_EVERY_S = 60
LATE_AFTER_S, OFFLINE_AFTER_S = 180, 900
PREFIX = 12


class NotEnrolled(Exception):
    """The enrolment token is unknown, used by another installation, or too old."""


def enrol(labels: Mapping[str, str], made_by: str = "", organisation: Organisation | None = None) -> tuple[str, Any]:
    """(token to show once, the enrolment row); it registers one agent within an hour."""
    token = new_token("aet")
    row = Enrolment.objects.create(
        organisation=organisation or default_organisation(),
        token_hash=hashed(token),
        token_prefix=token[:PREFIX],
        labels=dict(labels),
        made_by=made_by,
        expires_at=timezone.now() + timedelta(hours=ENROLMENT_HOURS),
    )
    return token, row


def register(token: str, install_id: str, facts: Mapping[str, Any]) -> tuple[Agent, str]:
    """(the agent, its token). The same installation may register again with its own token: an answer can be lost."""
    now = timezone.now()
    with transaction.atomic():
        found = Enrolment.objects.filter(token_hash=hashed(token), expires_at__gt=now)
        claimed = found.filter(used_at=None).update(used_at=now)  # the row count is the lock: one use
        enrolment = found.select_related("agent").first()
        again = enrolment and enrolment.agent and enrolment.agent.install_id == install_id
        if enrolment is None or not (claimed or (again and enrolment.agent and not enrolment.agent.revoked_at)):
            raise NotEnrolled
        agent, agent_token = _kept(enrolment, install_id, facts)
        Enrolment.objects.filter(pk=enrolment.pk).update(agent=agent)
    return agent, agent_token


def _kept(enrolment: Enrolment, install_id: str, facts: Mapping[str, Any]) -> tuple[Agent, str]:
    token = new_token("agt")
    values = {
        "name": facts["name"],
        "agent_version": facts["agent_version"],
        "inventory": facts["inventory"],
        "labels": labels_of(facts["labels"], enrolment.labels, facts["inventory"]),
        "token_hash": hashed(token),
        "token_prefix": token[:PREFIX],
        "token_expires_at": token_end(),
        "old_token_hash": "",
        "revoked_at": None,
        "last_seen_at": timezone.now(),
    }
    agent, _ = Agent.objects.update_or_create(
        organisation=enrolment.organisation, install_id=install_id, defaults=values
    )
    return agent, token


def labels_of(reported: Mapping[str, str], enrolled: Mapping[str, str], inventory: Mapping[str, Any]) -> dict[str, str]:
    """The enrolment's labels win over the agent's own; which chip it is, the catalog says from what it reports."""
    slug = devices.slug_of(inventory.get("device", inventory), enrolled.get("accelerator"))
    own = {key: value for key, value in reported.items() if key != "accelerator"}
    return own | dict(enrolled) | ({"accelerator": slug} if slug else {})


def token_end() -> datetime:
    return timezone.now() + timedelta(days=settings.PROBE_TOKEN_DAYS)


def by_token(token: str) -> Agent | None:
    """The agent that this token belongs to, unless it is revoked or past its end."""
    known, now = hashed(token), timezone.now()
    mine = Q(token_hash=known) & (Q(token_expires_at=None) | Q(token_expires_at__gt=now))
    mine |= Q(old_token_hash=known, old_token_until__gt=now)
    return Agent.objects.filter(mine, revoked_at=None).select_related("organisation").first()


def seen(agent: Agent) -> None:
    """Notes that it lives, at most once a minute: a poll should write nothing."""
    now = timezone.now()
    if agent.last_seen_at is None or (now - agent.last_seen_at).total_seconds() >= SEEN_EVERY_S:
        Agent.objects.filter(pk=agent.pk).update(last_seen_at=now)


def should_rotate(agent: Agent) -> bool:
    """Whether half of its token's life is over; the agent renews it by itself."""
    half = timedelta(days=settings.PROBE_TOKEN_DAYS) / 2
    return agent.token_expires_at is None or agent.token_expires_at - timezone.now() < half


def rotate(agent: Agent, shown: str = "") -> str:
    """A new token; the one `shown` (else the newest) works five minutes more, in case this answer is lost."""
    token = new_token("agt")
    Agent.objects.filter(pk=agent.pk, revoked_at=None).update(
        token_hash=hashed(token),
        token_prefix=token[:PREFIX],
        token_expires_at=token_end(),
        old_token_hash=hashed(shown) if shown else agent.token_hash,
        old_token_until=timezone.now() + timedelta(seconds=OLD_TOKEN_S),
    )
    return token


def revoke(agent: Agent) -> bool:
    """Its next call is refused; what it runs is taken back by the sweep."""
    return bool(Agent.objects.filter(pk=agent.pk, revoked_at=None).update(revoked_at=timezone.now()))


def visible() -> QuerySet[Agent]:
    """The agents that a visitor may see."""
    return Agent.objects.filter(organisation=default_organisation())


def status(agent: Agent, now: datetime | None = None) -> str:
    """online | late | offline | revoked"""
    if agent.revoked_at:
        return "revoked"
    if agent.last_seen_at is None:
        return "offline"
    silent_s = ((now or timezone.now()) - agent.last_seen_at).total_seconds()
    return "online" if silent_s < LATE_AFTER_S else "late" if silent_s < OFFLINE_AFTER_S else "offline"


def online() -> QuerySet[Agent]:
    since = timezone.now() - timedelta(seconds=LATE_AFTER_S)
    return visible().filter(revoked_at=None, last_seen_at__gt=since)


@dataclass(frozen=True, slots=True)
class Pace:
    """What the server asks of its agents, in seconds."""

    poll_s: int
    heartbeat_s: float
    lease_s: float


def pace() -> Pace:
    """The more agents there are, the rarer each may ask, so that all together stay below the limit."""
    many = cache.get_or_set("probes.agents", _living, 30) or 0
    poll_s = max(settings.PROBE_POLL_S, math.ceil(many / settings.PROBE_POLLS_PER_S))
    return Pace(poll_s=poll_s, heartbeat_s=settings.PROBE_LEASE_S / 3, lease_s=settings.PROBE_LEASE_S)


def _living() -> int:
    since = timezone.now() - timedelta(seconds=OFFLINE_AFTER_S)
    return Agent.objects.filter(revoked_at=None, last_seen_at__gt=since).count()
