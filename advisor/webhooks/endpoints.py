"""The endpoints of an organization: their URLs, the events that each receives, and its signing secret.

A secret is not stored. It is HMAC-SHA256 of a random salt under a key derived from SECRET_KEY, as the signing keys of
machines are, so the database alone is not enough to sign. A new SECRET_KEY ends all secrets unless the old one is in
SECRET_KEY_FALLBACKS.
"""

import base64
import secrets
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models import QuerySet
from django.shortcuts import get_object_or_404
from django.utils.crypto import salted_hmac

from advisor.models import WebhookDelivery, WebhookEndpoint
from advisor.webhooks import addresses, outbox
from catalog import clock
from catalog.accounts import audit
from catalog.models import Organisation

EVENTS = {
    "advice.finished": "an answer is done, or failed",
    "winner.changed": "the first choice of an answer changed",
    "price.moved": "a price that an answer rests on changed",
    "calibration.changed": "measurements that correct predictions changed",
}
MOST = 10  # endpoints of one organization
OLD_SECRET_S = 86_400  # how long the old secret signs, too


class TooMany(ValueError):
    """The organization has as many endpoints as it may."""


@transaction.atomic
def create(organisation: Organisation, url: str, events: Sequence[str], by: str) -> WebhookEndpoint:
    """An endpoint with a new secret (`secret_of`). Raises RefusedUrl and TooMany."""
    addresses.checked(url)
    if WebhookEndpoint.objects.filter(organisation=organisation).count() >= MOST:
        raise TooMany(f"An organization has at most {MOST} webhooks; delete one first.")
    row = WebhookEndpoint.objects.create(
        organisation=organisation, url=url, events=sorted(events), key_salt=secrets.token_hex(32), made_by=by[:150]
    )
    note(row, by, f"created for {', '.join(row.events)}")
    return row


@transaction.atomic
def change(row: WebhookEndpoint, by: str, **asked: Any) -> WebhookEndpoint:
    """Changes url, events or disabled; enabling it gives failed deliveries no new attempt. Raises RefusedUrl."""
    values: dict[str, Any] = {}
    if "url" in asked:
        addresses.checked(asked["url"])
        values["url"] = asked["url"]
    if "events" in asked:
        values["events"] = sorted(asked["events"])
    if (disabled := asked.get("disabled")) is not None and disabled != (row.disabled_at is not None):
        values["disabled_at"] = clock.read() if disabled else None
        values |= {"disabled_because": f"by {by}"[:200] if disabled and by else "", "busy_until": None}
    WebhookEndpoint.objects.filter(pk=row.pk).update(**values)
    told = asked | ({"url": addresses.named(asked["url"])} if "url" in asked else {})
    note(row, by, "; ".join(f"{name}: {', '.join(v) if isinstance(v, list) else v}" for name, v in told.items()))
    row.refresh_from_db()
    return row


@transaction.atomic
def rotate(row: WebhookEndpoint, by: str) -> WebhookEndpoint:
    """Gives the endpoint a new secret; the old one signs, too, for a day."""
    until = clock.read() + timedelta(seconds=OLD_SECRET_S)
    fresh = {"key_salt": secrets.token_hex(32), "old_key_salt": row.key_salt, "old_key_until": until}
    WebhookEndpoint.objects.filter(pk=row.pk).update(**fresh)
    note(row, by, "new secret")
    row.refresh_from_db()
    return row


@transaction.atomic
def delete(row: WebhookEndpoint, by: str) -> None:
    """Deletes an endpoint with its log."""
    locked(row.pk).delete()
    audit.record(row.organisation, by, audit.Action.DELETE, f"webhook: {addresses.named(row.url)}"[:200])


def locked(pk: int) -> QuerySet[WebhookEndpoint]:
    """An endpoint, locked. Its row comes first wherever its deliveries change too, so that nobody waits in a circle."""
    row = WebhookEndpoint.objects.filter(pk=pk)
    row.select_for_update().first()
    return row


def ping(row: WebhookEndpoint) -> WebhookDelivery:
    """Queues a test delivery, which says that the endpoint works. Http404: somebody has just deleted it."""
    event = outbox.written([row], "ping", secrets.token_hex(16), {"message": "Assay can reach this endpoint."})
    return get_object_or_404(WebhookDelivery, endpoint=row, event_id=event)


def again(delivery: WebhookDelivery, by: str) -> bool:
    """Sends a delivery again, with the same id. False: it still waits for its next attempt."""
    ended = WebhookDelivery.objects.filter(pk=delivery.pk).exclude(state=WebhookDelivery.State.WAITING)
    with transaction.atomic():
        fresh = {"state": WebhookDelivery.State.WAITING, "attempts": 0, "ended_at": None}
        done = bool(ended.update(**fresh, next_attempt_at=clock.now()))
        if done:
            note(delivery.endpoint, by, f"{delivery.event_id} sent again")
            transaction.on_commit(outbox.wake)
    return done


def note(row: WebhookEndpoint, by: str, what: str) -> None:
    audit.record(row.organisation, by, audit.Action.WEBHOOK, addresses.named(row.url), what)


def secret_of(row: WebhookEndpoint) -> str:
    """The secret as receivers configure it, to be shown once."""
    return f"whsec_{base64.b64encode(next(keys(row))).decode()}"


def keys(row: WebhookEndpoint) -> Iterator[bytes]:
    """The keys that sign, newest first."""
    salts = [row.key_salt]
    if row.old_key_until and row.old_key_until > clock.read():
        salts.append(row.old_key_salt)
    for salt in salts:
        for secret in (settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS):
            yield salted_hmac("assay.webhooks.secret", salt, secret=secret, algorithm="sha256").digest()
