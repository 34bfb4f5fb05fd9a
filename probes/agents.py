"""The use-cases of agents: enrol, register, recognise, rotate, trust, revoke; and the pace at which they may ask.

An agent's signing key is not stored. It is HMAC-SHA256 of a random salt under a key derived from SECRET_KEY: whoever
reads the database alone cannot sign. A new SECRET_KEY ends all keys unless the old one is in SECRET_KEY_FALLBACKS.
"""

import math
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from django.conf import settings
from django.core.cache import cache
from django.db import IntegrityError, transaction
from django.db.models import Q, QuerySet
from django.utils import timezone
from django.utils.crypto import salted_hmac

from advisor.advise import default_organisation
from advisor.api import hashed, new_token
from catalog.models import Organisation
from probes import devices
from probes.agent import signing
from probes.models import Agent, Enrolment

ENROLMENT_HOURS = 1
OLD_TOKEN_S = 300  # the former token still works so long: the answer to a rotation may be lost
SEEN_EVERY_S = 60
LATE_AFTER_S, OFFLINE_AFTER_S = 180, 900
PREFIX = 12


class NotEnrolled(Exception):
    """The enrolment token is unknown, used by another installation, or too old."""


class IdentityTaken(Exception):
    """Another machine has this install_id, and who asks for it did not prove to be that machine."""


class Registration(NamedTuple):
    agent: Agent
    token: str
    key: str  # to sign results with


def enrol(
    labels: Mapping[str, str], made_by: str = "", organisation: Organisation | None = None, *, trusted: bool = False
) -> tuple[str, Any]:
    """(token to show once, the enrolment row); it registers one agent within an hour."""
    token = new_token("aet")
    row = Enrolment.objects.create(
        organisation=organisation or default_organisation(),
        token_hash=hashed(token),
        token_prefix=token[:PREFIX],
        labels=dict(labels),
        made_by=made_by,
        trusted=trusted,
        expires_at=timezone.now() + timedelta(hours=ENROLMENT_HOURS),
    )
    return token, row


def register(token: str, install_id: str, facts: Mapping[str, Any], proof: str = "", address: str = "") -> Registration:
    """The agent with its token and key. An install_id that is taken is given to who proves it (`proof`), or to whom
    a person approved; else IdentityTaken, and the machine that has it goes on as before."""
    now = timezone.now()
    try:
        with transaction.atomic():
            found = Enrolment.objects.filter(token_hash=hashed(token), expires_at__gt=now)
            claimed = found.filter(used_at=None).update(used_at=now)  # the row count is the lock: one use
            enrolment = found.select_related("agent").first()
            again = enrolment and enrolment.agent and enrolment.agent.install_id == install_id
            if enrolment is None or not (claimed or (again and enrolment.agent and not enrolment.agent.revoked_at)):
                raise NotEnrolled
            known = Agent.objects.filter(organisation=enrolment.organisation, install_id=install_id).first()
            proved = known is not None and is_proof(known, proof, install_id, token)
            if known is None or proved or may_replace(known, enrolment, bool(again)):
                return _kept(enrolment, install_id, facts, known, proved)
            _note_claim(enrolment, known, facts, address, unused=bool(claimed))
    except IntegrityError:  # two registered the same new install_id at the same moment: the other one has it
        raise IdentityTaken from None
    raise IdentityTaken


def is_proof(known: Agent, proof: str, install_id: str, token: str) -> bool:
    return any(signing.same(proof, signing.of_registration(key, install_id, token)) for key in keys(known))


def may_replace(known: Agent, enrolment: Enrolment, again: bool) -> bool:
    """Without the old key: the answer to this very registration was lost and nobody used it, or a person approved."""
    return (again and known.confirmed_at is None) or bool(enrolment.approved_at and enrolment.claims_id == known.pk)


def _note_claim(enrolment: Enrolment, known: Agent, facts: Mapping[str, Any], address: str, *, unused: bool) -> None:
    """Kept for a person to decide; the enrolment may be used again once that is done."""
    inventory = facts["inventory"]
    device = inventory.get("device", inventory)
    name = str(device.get("name") or "") if isinstance(device, Mapping) else ""
    Enrolment.objects.filter(pk=enrolment.pk).update(
        claims=known,
        claimed_at=timezone.now(),
        claim={"name": facts["name"], "device": name[:200], "address": address},
        approved_at=None,
        **({"used_at": None} if unused else {}),
    )


def _kept(
    enrolment: Enrolment, install_id: str, facts: Mapping[str, Any], known: Agent | None, proved: bool
) -> Registration:
    """A machine that proved its key keeps it, and the trust in it; any other is a new one."""
    token, now = new_token("agt"), timezone.now()
    values: dict[str, Any] = {
        "name": facts["name"],
        "agent_version": facts["agent_version"],
        "inventory": facts["inventory"],
        "labels": labels_of(facts["labels"], enrolment.labels, facts["inventory"]),
        "token_hash": hashed(token),
        "token_prefix": token[:PREFIX],
        "token_expires_at": token_end(),
        "old_token_hash": "",
        "revoked_at": None,
        "last_seen_at": now,
    }
    if known is None or not proved:
        values |= {"key_salt": new_salt(), "old_key_salt": "", "confirmed_at": None, "trusted_at": None}
    if enrolment.trusted:
        values |= {"trusted_at": now, "trusted_by": enrolment.made_by or "enrolment"}
    if known is None:
        agent = Agent.objects.create(organisation=enrolment.organisation, install_id=install_id, **values)
    else:
        agent = known
        Agent.objects.filter(pk=known.pk).update(**values)
        agent.refresh_from_db()
    Enrolment.objects.filter(pk=enrolment.pk).update(agent=agent)
    return Registration(agent, token, next(keys(agent)))


def pending_claims(agent: Agent | None = None) -> QuerySet[Enrolment]:
    """Registrations that ask for the identity of a machine without its key, and wait for a person."""
    rows = Enrolment.objects.filter(
        organisation=default_organisation(), approved_at=None, expires_at__gt=timezone.now()
    )
    rows = rows.exclude(claims=None) if agent is None else rows.filter(claims=agent)
    return rows.select_related("claims").order_by("-claimed_at")


def approve(claim: Enrolment, by: str = "") -> bool:
    """Who shows this enrolment's token within the next hour becomes the machine; the old token and key end then."""
    end = timezone.now() + timedelta(hours=ENROLMENT_HOURS)
    rows = pending_claims().filter(pk=claim.pk)
    return bool(
        Enrolment.objects.filter(pk__in=rows.values("pk")).update(
            approved_at=timezone.now(), approved_by=by[:150] or "somebody", expires_at=end
        )
    )


# --- keys -------------------------------------------------------------------------------------------------------


def new_salt() -> str:
    return secrets.token_hex(32)


def keys(agent: Agent) -> Iterator[str]:
    """The keys whose signatures count for this agent, its own first; none for one that has no key yet."""
    salts = [agent.key_salt]
    if agent.old_token_until and agent.old_token_until > timezone.now():
        salts.append(agent.old_key_salt)
    for salt in filter(None, salts):
        for secret in (settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS):
            yield salted_hmac("assay.probes.signing-key", salt, secret=secret, algorithm="sha256").hexdigest()


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


def seen(agent: Agent, token: str = "") -> None:
    """Notes that it lives, at most once a minute: a poll should write nothing. Its first call with the newest token
    shows that the token and the key have arrived."""
    now, values = timezone.now(), {}
    if agent.last_seen_at is None or (now - agent.last_seen_at).total_seconds() >= SEEN_EVERY_S:
        values["last_seen_at"] = now
    if agent.confirmed_at is None and hashed(token) == agent.token_hash:
        values["confirmed_at"] = agent.confirmed_at = now
    if values:
        Agent.objects.filter(pk=agent.pk).update(**values)


def should_rotate(agent: Agent) -> bool:
    """Whether half of its token's life is over, or it has no key; the agent renews its token by itself."""
    half = timedelta(days=settings.PROBE_TOKEN_DAYS) / 2
    ends = agent.token_expires_at
    return not agent.key_salt or ends is None or ends - timezone.now() < half


class NewToken(NamedTuple):
    token: str
    key: str  # empty: the agent has one, and nobody is given it twice


def rotate(agent: Agent, shown: str = "", *, new_key: bool = False) -> NewToken:
    """A new token; the one `shown` (else the newest) works five minutes more, in case this answer is lost.

    The key stays, so that a token that was read by others does not sign: it is given once, to an agent that has none.
    `new_key`: a person wants both replaced.
    """
    token, lacking = new_token("agt"), new_key or not agent.key_salt or agent.confirmed_at is None
    values: dict[str, Any] = {
        "token_hash": hashed(token),
        "token_prefix": token[:PREFIX],
        "token_expires_at": token_end(),
        "old_token_hash": hashed(shown) if shown else agent.token_hash,
        "old_token_until": timezone.now() + timedelta(seconds=OLD_TOKEN_S),
    }
    if lacking:
        values |= {"key_salt": new_salt(), "old_key_salt": agent.key_salt, "confirmed_at": None}
    Agent.objects.filter(pk=agent.pk, revoked_at=None).update(**values)
    if lacking:
        agent.refresh_from_db()
    return NewToken(token, next(keys(agent)) if lacking else "")


def trust(agent: Agent, by: str = "") -> bool:
    """From now on its results count without a second machine; True when it was not trusted before."""
    rows = Agent.objects.filter(pk=agent.pk, trusted_at=None, revoked_at=None)
    return bool(rows.update(trusted_at=timezone.now(), trusted_by=by[:150] or "somebody"))


def distrust(agent: Agent) -> bool:
    """What it measured before stays in force; later results wait for a second machine or a person."""
    return bool(Agent.objects.filter(pk=agent.pk).exclude(trusted_at=None).update(trusted_at=None, trusted_by=""))


def revoke(agent: Agent) -> bool:
    """Its next call is refused; what it runs is taken back by the sweep."""
    return bool(Agent.objects.filter(pk=agent.pk, revoked_at=None).update(revoked_at=timezone.now()))


def visible(organisation: Organisation | None = None) -> QuerySet[Agent]:
    """The agents of an organization (default: the default one)."""
    return Agent.objects.filter(organisation=organisation or default_organisation())


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
