"""The payload of each event, written for every endpoint in the transaction of the change that it reports.

The id of an event follows from its type and subject, so that the same event is written once for each endpoint.
"""

import hashlib
import json
import secrets
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import structlog
from django.conf import settings
from django.db import transaction
from django.urls import reverse
from kombu.exceptions import ChannelError
from kombu.exceptions import OperationalError as BrokerError

from advisor.celery import app
from advisor.models import Advice, LoadTest, WebhookDelivery, WebhookEndpoint
from catalog import clock
from catalog.models import Organisation

log = structlog.get_logger("assay.webhooks")
MAX_TEXT = 2000
MAX_LISTED = 20
Json = Mapping[str, Any]


def subscribed(owner: Organisation | int | None, kind: str) -> list[WebhookEndpoint]:
    """The enabled endpoints, of an organization or of all, that receive a type of event."""
    enabled = WebhookEndpoint.objects.filter(disabled_at=None).select_related("organisation")
    return [row for row in (enabled if owner is None else enabled.filter(organisation=owner)) if kind in row.events]


def advice_ended(pks: Iterable[Any], verdict: str = "") -> None:
    """Writes the events of answers that are done or failed; call it in the transaction that ends them."""
    ended = Advice.objects.filter(pk__in=pks, state__in=(Advice.State.DONE, Advice.State.FAILED))
    for advice in ended.select_related("workload", "organisation").defer("snapshot", "result"):
        if rows := subscribed(advice.organisation, "advice.finished"):
            superseded = str(advice.supersedes_id) if advice.supersedes_id else None
            told = {"state": advice.state, "verdict": verdict, "error": advice.error, "supersedes": superseded}
            written(rows, "advice.finished", str(advice.pk), {**about(advice), **told})


def winner_changed(advice: Advice, subject: str, before: Json, after: Json) -> None:
    """Writes the event of a changed first choice. before, after: {label, usd_per_month}; an empty label: nothing fits.

    subject: what else the event follows from: the answer that is superseded, or the refresh of prices.
    """
    if rows := subscribed(advice.organisation_id, "winner.changed"):
        told = {"compared_with": subject, "before": before, "after": after}
        written(rows, "winner.changed", f"{advice.pk} {subject}", about(advice) | told)


def subscribers(kind: str, owner: Organisation | None) -> list[Organisation]:
    """The organizations, of all or only this one, that receive a type of event."""
    return list({row.organisation_id: row.organisation for row in subscribed(owner, kind)}.values())


def prices_moved(organisation: Organisation, moved: Sequence[Json]) -> None:
    """Tells which offers of current answers have another price."""
    if moved:
        told = {"offers": list(moved[:MAX_LISTED]), "offer_count": len(moved)}
        subject = f"{organisation.pk} {secrets.token_hex(8)}"
        written(subscribed(organisation, "price.moved"), "price.moved", subject, told)


def calibration_changed(test: LoadTest) -> None:
    """Tells that a load test corrects predictions now, or was switched as a calibration."""
    advice = test.option.advice
    if rows := subscribed(advice.organisation_id, "calibration.changed"):
        told = {"load_test": test.pk, "option": test.option.rank, "calibrates": test.calibrates}
        written(rows, "calibration.changed", f"{test.pk} {secrets.token_hex(8)}", about(advice) | told)


def accelerator_calibrated(slug: str, owner: Organisation | None) -> None:
    """Tells that machines' measurements changed the figures of an accelerator for an organization (None: for all)."""
    if rows := subscribed(owner, "calibration.changed"):
        written(rows, "calibration.changed", f"{slug} {secrets.token_hex(8)}", {"accelerator": slug})


def about(advice: Advice) -> dict[str, Any]:
    page, api = (reverse(name, args=[advice.pk]) for name in ("advice", "api-advice"))
    base = settings.PUBLIC_URL.rstrip("/")
    return {"advice": str(advice.pk), "name": advice.workload.name, "page": base + page, "api": base + api}


@transaction.atomic
def written(rows: Sequence[WebhookEndpoint], kind: str, subject: str, data: Json) -> str:
    """Writes an event for these endpoints, once, and wakes a worker when it is committed. Returns its id."""
    event = f"evt_{hashlib.sha256(f'{kind} {subject}'.encode()).hexdigest()[:40]}"
    now = clock.read()
    cut = {name: value[:MAX_TEXT] if isinstance(value, str) else value for name, value in data.items()}
    document = {"type": kind, "timestamp": now.isoformat(timespec="milliseconds"), "data": cut}
    common = {"event_id": event, "type": kind, "body": json.dumps(document), "created_at": now, "next_attempt_at": now}
    # locked, or the transaction of the change itself would fail if an endpoint was deleted in this moment
    there = WebhookEndpoint.objects.select_for_update(no_key=True).filter(pk__in=[row.pk for row in rows])
    deliveries = [WebhookDelivery(endpoint=row, **common) for row in there.order_by("pk")]
    WebhookDelivery.objects.bulk_create(deliveries, ignore_conflicts=True)
    transaction.on_commit(wake)
    return event


def wake() -> bool:
    """Wakes a worker. False if the broker is not available; the sweep then does it later."""
    try:
        app.send_task("webhooks.send")
    except (BrokerError, ChannelError, OSError) as error:
        log.warning("broker not available", error=str(error))
        return False
    return True
