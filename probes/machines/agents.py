"""Use cases of agents: enroll, register, authenticate, rotate tokens, trust, revoke; and their polling interval.

An agent's signing key is not stored. It is HMAC-SHA256 of a random salt under a key derived from SECRET_KEY, so the
database alone is not enough to sign. A new SECRET_KEY ends all keys unless the old one is in SECRET_KEY_FALLBACKS.
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
from django.utils.crypto import salted_hmac

from catalog import clock
from catalog.accounts import audit, hashed, new_token, quotas
from catalog.models import Organisation, default_organisation
from probes.agent.server import signing
from probes.machines import devices
from probes.models import Agent, Enrolment

ENROLMENT_HOURS = 1
OLD_TOKEN_S = 300  # how long the old token keeps working, in case the answer to a rotation is lost
CONTACT_INTERVAL_S = 60
LATE_AFTER_S, OFFLINE_AFTER_S = 180, 900
PREFIX = 12  # characters of a token that are stored in clear


class NotEnrolled(Exception):
    """The enrollment token is unknown, expired, or used by another installation."""


class IdentityTaken(Exception):
    """Another machine has this install_id, and the request has no proof that it comes from that machine."""


class Registration(NamedTuple):
    agent: Agent
    token: str
    key: str  # signs results


def enrol(
    labels: Mapping[str, str], made_by: str = "", organisation: Organisation | None = None, *, trusted: bool = False
) -> tuple[str, Any]:
    """A token that registers one agent within an hour, and its row. The token is stored only as a hash.

    Raises QuotaReached: the organization has as many machines as it may.
    """
    token, owner = new_token("aet"), organisation or default_organisation()
    check_quota(owner)
    with transaction.atomic():
        row = Enrolment.objects.create(
            organisation=owner,
            token_hash=hashed(token),
            token_prefix=token[:PREFIX],
            labels=dict(labels),
            made_by=made_by,
            trusted=trusted,
            expires_at=clock.read() + timedelta(hours=ENROLMENT_HOURS),
        )
        audit.record(owner, made_by, audit.Action.ENROLL, f"{row.token_prefix}…", "trusted" if trusted else "")
    return token, row


def check_quota(organisation: Organisation) -> None:
    """QuotaReached: one more machine would be too many."""
    quotas.check(organisation, "max_machines", Agent.objects.filter(organisation=organisation, revoked_at=None).count())


def register(token: str, install_id: str, facts: Mapping[str, Any], proof: str = "", address: str = "") -> Registration:
    """Registers a machine. `facts` has its name, version, labels and inventory.

    Raises NotEnrolled for a bad token. Raises IdentityTaken if another machine has the install_id, unless `proof` is
    valid or a person approved this enrollment; the other machine is not affected.
    """
    try:
        with transaction.atomic():
            rows = Enrolment.objects.filter(token_hash=hashed(token), expires_at__gt=clock.now())
            claimed = rows.filter(used_at=None).update(used_at=clock.now())  # atomic: only one request gets row count 1
            enrolment = rows.select_related("agent").first()
            repeated = enrolment and enrolment.agent and enrolment.agent.install_id == install_id
            if enrolment is None or not (claimed or (repeated and enrolment.agent and not enrolment.agent.revoked_at)):
                raise NotEnrolled
            known = Agent.objects.filter(organisation=enrolment.organisation, install_id=install_id).first()
            if known is None:
                check_quota(enrolment.organisation)
            proved = known is not None and is_proof(known, proof, install_id, token)
            if known is None or proved or may_replace(known, enrolment, bool(repeated)):
                return _save_registration(enrolment, install_id, facts, known, proved)
            _note_claim(enrolment, known, facts, address, unused=bool(claimed))
    except IntegrityError:  # another request registered the same install_id at the same time
        raise IdentityTaken from None
    raise IdentityTaken


def is_proof(known: Agent, proof: str, install_id: str, token: str) -> bool:
    """Whether `proof` was made with the key of the known agent."""
    return any(signing.same(proof, signing.of_registration(key, install_id, token)) for key in keys(known))


def may_replace(known: Agent, enrolment: Enrolment, repeated: bool) -> bool:
    """Whether a request without proof may replace the known agent.

    True if it repeats a registration whose token was never used (the answer was lost), or if a person approved it.
    """
    return (repeated and known.confirmed_at is None) or bool(enrolment.approved_at and enrolment.claims_id == known.pk)


def _note_claim(enrolment: Enrolment, known: Agent, facts: Mapping[str, Any], address: str, *, unused: bool) -> None:
    """Records a request for an identity in use, for a person to approve. The enrollment token stays usable."""
    inventory = facts["inventory"]
    device = inventory.get("device", inventory)
    name = str(device.get("name") or "") if isinstance(device, Mapping) else ""
    Enrolment.objects.filter(pk=enrolment.pk).update(
        claims=known,
        claimed_at=clock.now(),
        claim={"name": facts["name"], "device": name[:200], "address": address},
        approved_at=None,
        **({"used_at": None} if unused else {}),
    )


def _save_registration(
    enrolment: Enrolment, install_id: str, facts: Mapping[str, Any], known: Agent | None, proved: bool
) -> Registration:
    """Saves the agent. With proof it keeps its key and its trust; otherwise it gets a new key and is not trusted."""
    token, now = new_token("agt"), clock.read()
    values: dict[str, Any] = {
        "name": facts["name"],
        "agent_version": facts["agent_version"],
        "inventory": facts["inventory"],
        "labels": labels_of(facts["labels"], enrolment.labels, facts["inventory"]),
        "token_hash": hashed(token),
        "token_prefix": token[:PREFIX],
        "token_expires_at": token_expiry(),
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
    device = Agent(inventory=facts["inventory"]).device_name
    audit.record(agent.organisation, f"machine {agent.name}", audit.Action.MACHINE, agent.name, device)
    return Registration(agent, token, next(keys(agent)))


def pending_claims(organisation: Organisation, agent: Agent | None = None) -> QuerySet[Enrolment]:
    """Registrations without proof for the identity of a machine in use, which wait for approval."""
    rows = Enrolment.objects.filter(organisation=organisation, approved_at=None, expires_at__gt=clock.now())
    rows = rows.exclude(claims=None) if agent is None else rows.filter(claims=agent)
    return rows.select_related("claims").order_by("-claimed_at")


def approve(claim: Enrolment, by: str = "") -> bool:
    """Lets this enrollment's token replace the machine within the next hour; its old token and key then end.

    False: the claim no longer waits for approval.
    """
    end = clock.read() + timedelta(hours=ENROLMENT_HOURS)
    rows = pending_claims(claim.organisation).filter(pk=claim.pk)
    with transaction.atomic():
        done = Enrolment.objects.filter(pk__in=rows.values("pk")).update(
            approved_at=clock.read(), approved_by=by[:150] or "somebody", expires_at=end
        )
        if done and claim.claims:
            note_change(claim.claims, by, "registration approved")
    return bool(done)


def note_change(agent: Agent, by: str, what: str) -> None:
    audit.record(agent.organisation, by, audit.Action.MACHINE_CHANGED, agent.name, what)


# --- keys -------------------------------------------------------------------------------------------------------


def new_salt() -> str:
    return secrets.token_hex(32)


def keys(agent: Agent) -> Iterator[str]:
    """The valid signing keys of an agent, in hex, newest first; none if it has no key yet."""
    salts = [agent.key_salt]
    if agent.old_token_until and agent.old_token_until > asked_at(agent):
        salts.append(agent.old_key_salt)
    for salt in filter(None, salts):
        for secret in (settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS):
            yield salted_hmac("assay.probes.signing-key", salt, secret=secret, algorithm="sha256").hexdigest()


def labels_of(reported: Mapping[str, str], enrolled: Mapping[str, str], inventory: Mapping[str, Any]) -> dict[str, str]:
    """The labels of an agent. Those of the enrollment override its own; the accelerator follows from its device."""
    slug = devices.slug_of(inventory.get("device", inventory), enrolled.get("accelerator"))
    own = {key: value for key, value in reported.items() if key != "accelerator"}
    return own | dict(enrolled) | ({"accelerator": slug} if slug else {})


def token_expiry() -> datetime:
    return clock.read() + timedelta(days=settings.PROBE_TOKEN_DAYS)


def by_token(token: str) -> Agent | None:
    """The agent with this token; None if the token is unknown, revoked or expired."""
    token_hash = hashed(token)
    valid = Q(token_hash=token_hash) & (Q(token_expires_at=None) | Q(token_expires_at__gt=clock.now()))
    valid |= Q(old_token_hash=token_hash, old_token_until__gt=clock.now())
    rows = Agent.objects.filter(valid, revoked_at=None).select_related("organisation")
    return rows.annotate(asked_at=clock.now()).first()


def asked_at(agent: Agent) -> datetime:
    """The database's time when `by_token` found this agent; for others, when this is called."""
    return getattr(agent, "asked_at", None) or clock.read()


def record_contact(agent: Agent, token: str = "") -> None:
    """Updates last_seen_at, at most once a minute, so that polls rarely write.

    The first call with the newest token confirms that the agent received its token and key.
    """
    now, values = asked_at(agent), {}
    if agent.last_seen_at is None or (now - agent.last_seen_at).total_seconds() >= CONTACT_INTERVAL_S:
        values["last_seen_at"] = now
    if agent.confirmed_at is None and hashed(token) == agent.token_hash:
        values["confirmed_at"] = agent.confirmed_at = now
    if values:
        Agent.objects.filter(pk=agent.pk).update(**values)


def should_rotate(agent: Agent) -> bool:
    """Whether half of the token's lifetime has passed, or the agent has no key. The agent then rotates its token."""
    half = timedelta(days=settings.PROBE_TOKEN_DAYS) / 2
    ends = agent.token_expires_at
    return not agent.key_salt or ends is None or ends - asked_at(agent) < half


class NewToken(NamedTuple):
    token: str
    key: str  # empty: the agent already has one; a key is never sent twice


def rotate(agent: Agent, shown: str = "", *, new_key: bool = False, by: str | None = None) -> NewToken:
    """A new token. The `shown` one (default: the newest) works for five more minutes, in case this answer is lost.

    The key stays, so that a stolen token is not enough to sign; it is sent only to an agent without one. `new_key`
    replaces the key too. `by`: the person who rotates it, for the audit log; None: the agent itself.
    """
    token, needs_key = new_token("agt"), new_key or not agent.key_salt or agent.confirmed_at is None
    values: dict[str, Any] = {
        "token_hash": hashed(token),
        "token_prefix": token[:PREFIX],
        "token_expires_at": token_expiry(),
        "old_token_hash": hashed(shown) if shown else agent.token_hash,
        "old_token_until": clock.read() + timedelta(seconds=OLD_TOKEN_S),
    }
    if needs_key:
        values |= {"key_salt": new_salt(), "old_key_salt": agent.key_salt, "confirmed_at": None}
    with transaction.atomic():
        Agent.objects.filter(pk=agent.pk, revoked_at=None).update(**values)
        if by is not None:
            note_change(agent, by, "new token and key")
    if needs_key:
        agent.refresh_from_db()
    return NewToken(token, next(keys(agent)) if needs_key else "")


def trust(agent: Agent, by: str = "") -> bool:
    """Lets the agent's results count without a second machine. False if it was already trusted, or is revoked."""
    rows = Agent.objects.filter(pk=agent.pk, trusted_at=None, revoked_at=None)
    return _changed(agent, rows, by, "trusted", trusted_at=clock.read(), trusted_by=by[:150] or "somebody")


def distrust(agent: Agent, by: str = "") -> bool:
    """Later results wait for a second machine or a person; earlier ones stay in use. False if it was not trusted."""
    rows = Agent.objects.filter(pk=agent.pk).exclude(trusted_at=None)
    return _changed(agent, rows, by, "no longer trusted", trusted_at=None, trusted_by="")


def revoke(agent: Agent, by: str = "") -> bool:
    """Refuses the agent's calls from now on; the sweep queues its job again. False if it was already revoked."""
    rows = Agent.objects.filter(pk=agent.pk, revoked_at=None)
    return _changed(agent, rows, by, "revoked", revoked_at=clock.read())


@transaction.atomic
def _changed(agent: Agent, rows: QuerySet[Agent], by: str, what: str, **values: Any) -> bool:
    """Updates the agent if it is in `rows`, and records that."""
    done = bool(rows.update(**values))
    if done:
        note_change(agent, by, what)
    return done


def visible(organisation: Organisation) -> QuerySet[Agent]:
    """The agents of an organization."""
    return Agent.objects.filter(organisation=organisation)


def status(agent: Agent, now: datetime | None = None) -> str:
    """online | late | offline | revoked"""
    if agent.revoked_at:
        return "revoked"
    if agent.last_seen_at is None:
        return "offline"
    silent_s = ((now or clock.read()) - agent.last_seen_at).total_seconds()
    return "online" if silent_s < LATE_AFTER_S else "late" if silent_s < OFFLINE_AFTER_S else "offline"


def online(organisation: Organisation) -> QuerySet[Agent]:
    since = clock.read() - timedelta(seconds=LATE_AFTER_S)
    return visible(organisation).filter(revoked_at=None, last_seen_at__gt=since)


@dataclass(frozen=True, slots=True)
class Pace:
    """The intervals that the server gives its agents, in seconds."""

    poll_s: int
    heartbeat_s: float
    lease_s: float


def pace() -> Pace:
    """The polling interval grows with the number of agents, so that all of them stay below PROBE_POLLS_PER_S."""
    count = cache.get_or_set("probes.agents", _count_active, 30) or 0
    poll_s = max(settings.PROBE_POLL_S, math.ceil(count / settings.PROBE_POLLS_PER_S))
    return Pace(poll_s=poll_s, heartbeat_s=settings.PROBE_LEASE_S / 3, lease_s=settings.PROBE_LEASE_S)


def _count_active() -> int:
    since = clock.read() - timedelta(seconds=OFFLINE_AFTER_S)
    return Agent.objects.filter(revoked_at=None, last_seen_at__gt=since).count()
