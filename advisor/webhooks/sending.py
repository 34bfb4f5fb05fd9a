"""Sends what waits: one request at a time to each endpoint, endpoints in turn, each one's oldest delivery first.

The rows decide; messages only wake a worker. A worker owns an endpoint until `busy_until`, and counts an attempt before
it sends, so that a delivery whose worker is lost is sent again, with the same id.
"""

import base64
import hashlib
import hmac
import random
import time
from smtplib import SMTPException
from typing import Any

import structlog
from django.core.mail import send_mail
from django.db import transaction
from django.db.models import F, Min, Q

from advisor.models import WebhookDelivery, WebhookEndpoint
from advisor.webhooks import addresses, endpoints, outbox
from catalog import clock
from catalog.accounts import audit
from catalog.models import Membership, Role

log = structlog.get_logger("assay.webhooks")
State = WebhookDelivery.State
TURN_S = 15  # of one task, so that sweeps get their turn
LEASE_S = 60  # more than one request takes
# Pauses after the first nine attempts: about 22 hours in all, 18 to 26 with the jitter.
PAUSES_S = (10, 40, 160, 640, 2_560, 10_240, 21_600, 21_600, 21_600)
JITTER = 0.2
LONGEST_HOLD_S = 300  # others of an endpoint that fails wait so long at most
GONE = 410  # the receiver asks for no more


def sweep() -> bool:
    """Wakes a worker if something is due."""
    return due().exists() and outbox.wake()


def send_due() -> int:
    """Sends for one turn what is due. Returns the number of attempts."""
    until, count = time.monotonic() + TURN_S, 0
    while time.monotonic() < until:
        if (delivery := claimed()) is None:
            return count
        attempt(delivery)
        count += 1
    outbox.wake()
    return count


def due() -> Any:
    """What may be sent now."""
    ready = Q(endpoint__busy_until=None) | Q(endpoint__busy_until__lte=clock.now())
    rows = WebhookDelivery.objects.filter(ready, state=State.WAITING, endpoint__disabled_at=None)
    return rows.filter(next_attempt_at__lte=clock.now())


def claimed() -> WebhookDelivery | None:
    """The next delivery, whose attempt is counted and whose endpoint is this worker's; None: there is none."""
    turns = due().order_by().values("endpoint").annotate(tried=F("endpoint__tried_at"), first=Min("created_at"))
    for turn in turns.order_by(F("tried").asc(nulls_first=True), "first")[:20]:
        free = WebhookEndpoint.objects.filter(pk=turn["endpoint"], disabled_at=None)
        free = free.filter(Q(busy_until=None) | Q(busy_until__lte=clock.now()))
        with transaction.atomic():
            if not free.update(busy_until=clock.after(LEASE_S), tried_at=clock.now()):
                continue  # another worker was faster
            mine = WebhookDelivery.objects.filter(endpoint=turn["endpoint"], state=State.WAITING)
            mine = mine.filter(next_attempt_at__lte=clock.now()).order_by("created_at", "pk")
            if (delivery := mine.select_related("endpoint__organisation").first()) is not None:
                counted = WebhookDelivery.objects.filter(pk=delivery.pk, state=State.WAITING)
                counted.update(attempts=F("attempts") + 1, next_attempt_at=clock.after(LEASE_S))
                delivery.attempts += 1
                return delivery
            WebhookEndpoint.objects.filter(pk=turn["endpoint"]).update(busy_until=None)
    return None


def attempt(delivery: WebhookDelivery) -> None:
    """Sends a claimed delivery once, and writes what came of it."""
    endpoint, body = delivery.endpoint, delivery.body.encode()
    status, error = addresses.post(endpoint.url, body, headers(endpoint, delivery.event_id, body))
    log.info("webhook sent", endpoint=endpoint.pk, event_id=delivery.event_id, status=status, error=error)
    with transaction.atomic():
        row = endpoints.locked(endpoint.pk)
        mine = WebhookDelivery.objects.filter(pk=delivery.pk, state=State.WAITING, attempts=delivery.attempts)
        seen: dict[str, Any] = {"last_status": status, "last_error": error}
        if not error:
            mine.update(state=State.DELIVERED, ended_at=clock.now(), **seen)
            row.update(busy_until=None, answered_at=clock.now())
            return
        is_last = delivery.attempts > len(PAUSES_S)
        if is_last or status == GONE:
            mine.update(state=State.FAILED, ended_at=clock.now(), **seen)
            row.update(busy_until=None)
            silent = row.filter(Q(answered_at=None) | Q(answered_at__lt=delivery.created_at))
            if status == GONE or silent.exists():
                disable(endpoint, error if status != GONE else "the receiver answered HTTP 410: no more deliveries")
            return
        pause_s = PAUSES_S[delivery.attempts - 1] * random.uniform(1 - JITTER, 1 + JITTER)  # noqa: S311
        mine.update(next_attempt_at=clock.after(pause_s), **seen)
        row.update(busy_until=clock.after(min(pause_s, LONGEST_HOLD_S)))


def headers(endpoint: WebhookEndpoint, event_id: str, body: bytes) -> dict[str, str]:
    """The headers of Standard Webhooks, signed at this moment with each secret that is valid."""
    at = str(int(clock.read().timestamp()))
    signed = b".".join((event_id.encode(), at.encode(), body))
    made = [hmac.new(key, signed, hashlib.sha256).digest() for key in endpoints.keys(endpoint)]
    return {
        "Content-Type": "application/json",
        "User-Agent": "assay-webhooks",
        "webhook-id": event_id,
        "webhook-timestamp": at,
        "webhook-signature": " ".join(f"v1,{base64.b64encode(each).decode()}" for each in made),
    }


def disable(endpoint: WebhookEndpoint, why: str) -> None:
    """Turns an endpoint off, and tells the administrators. What waits is sent once somebody turns it on again."""
    free = WebhookEndpoint.objects.filter(pk=endpoint.pk, disabled_at=None)
    if not free.update(disabled_at=clock.now(), disabled_because=f"deliveries failed for a day: {why}"[:200]):
        return
    name = addresses.named(endpoint.url)
    audit.record(endpoint.organisation, "", audit.Action.WEBHOOK, name, f"disabled: {why}")
    admins = Membership.objects.filter(organisation=endpoint.organisation, role=Role.ADMIN)
    to = sorted(filter(None, admins.values_list("user__email", flat=True)))
    text = (
        f"Assay turned off the webhook {name} of {endpoint.organisation.name}, because its deliveries failed: "
        f"{why}. Correct the receiver, then enable the webhook under Webhooks. Events that waited are sent then."
    )
    transaction.on_commit(lambda: mailed(f"Webhook turned off: {name}"[:150], text, to))


def mailed(subject: str, text: str, to: list[str]) -> None:
    try:
        for each in to:  # separately, so that admins see no other addresses
            send_mail(subject, text, None, [each])
    except (OSError, SMTPException) as error:
        log.warning("notice not sent", error=type(error).__name__)
