"""Deletes answers, links, load tests and tokens: on request, and by age (retention)."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import structlog
from axes.models import AccessAttempt, AccessLog
from django.conf import settings
from django.contrib.sessions.models import Session
from django.db import transaction
from django.db.models import Model, Q, QuerySet

from advisor.models import Advice, ApiToken, Comment, LoadTest, Share, Study, WebhookDelivery, Workload
from catalog import clock
from catalog.accounts import audit
from catalog.models import AuditEvent, Organisation, Retention

log = structlog.get_logger("assay.deleted")
State = Advice.State
BATCH = 50  # per kind and sweep, so that a sweep ends before the next one starts


# --- on request -------------------------------------------------------------------------------------------------


@transaction.atomic
def delete_advice(advice: Advice, by: str) -> bool:
    """Deletes an advice with its options, links and load tests, and its workload if nothing else uses it.

    A worker that computes it stops at its next write. Its successors then supersede its predecessor. Probe jobs for it
    finish, and their results are kept. False if it did not exist.
    """
    rows = Advice.objects.select_for_update().filter(pk=advice.pk)
    row = rows.only("supersedes_id", "workload_id", "organisation_id").first()
    if row is None:
        return False
    row.successors.update(supersedes=row.supersedes_id)
    row.probe_jobs.update(advice=None)
    Advice.objects.filter(pk=row.pk).only("pk").delete()  # without loading the answer
    name = Workload.objects.values_list("name", flat=True).get(pk=row.workload_id)
    Workload.objects.filter(pk=row.workload_id, advices=None).delete()
    return log_deletion(row.organisation, "advice", advice.pk, by, name)


def delete_share(share: Share, by: str) -> bool:
    """Deletes a link, which stops working."""
    return _delete(share, share.advice_id, "link", by)


def delete_load_test(test: LoadTest, by: str) -> bool:
    """Deletes a load test. Rows exported from it before are not affected."""
    return _delete(test, test.option.advice_id, "load test", by)


def delete_token(token: ApiToken, by: str) -> bool:
    """Deletes a token; its next call is refused."""
    with transaction.atomic():
        deleted, _ = ApiToken.objects.filter(pk=token.pk).delete()
        name = f"{token.name} ({token.token_prefix}…)"
        return bool(deleted) and log_deletion(token.organisation, "token", token.pk, by, name)


def delete_study(study: Study, by: str) -> bool:
    """Deletes a study with its pieces and results. A worker that computes a piece stops at its next write."""
    with transaction.atomic():
        deleted, _ = Study.objects.filter(pk=study.pk).delete()
        return bool(deleted) and log_deletion(study.organisation, "study", study.pk, by, study.name)


def delete_comment(comment: Comment, by: str) -> bool:
    """Deletes a comment."""
    return _delete(comment, comment.advice_id, "comment", by, f"by {comment.made_by or 'a visitor'}")


@transaction.atomic
def _delete(row: Model, advice: Any, kind: str, by: str, detail: str = "") -> bool:
    """Deletes something that belongs to an advice."""
    of = Advice.objects.select_related("organisation", "workload").only("organisation", "workload__name").get(pk=advice)
    deleted, _ = type(row)._default_manager.filter(pk=row.pk).delete()
    return bool(deleted) and log_deletion(of.organisation, kind, row.pk, by, of.workload.name, detail)


def log_deletion(owner: Organisation, kind: str, pk: Any, by: str, name: str, detail: str = "") -> bool:
    """Records a deletion in the audit log and in the log of the service. `name`: of the object, or what it was of."""
    audit.record(owner, by, audit.Action.DELETE, f"{kind}: {name}", detail or str(pk))
    log.info("deleted", kind=kind, id=str(pk), by=by)
    return True


# --- by age -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Rule:
    """A kind of rows that is deleted some days after they ended."""

    kind: str
    setting: str
    old: Callable[[datetime], tuple[QuerySet[Any], ...]]  # rows that ended before a time
    owner: str = "organisation"  # lookup of the organization of a row; empty: rows belong to none

    @property
    def column(self) -> str:
        """Of Retention: the days of one organization, which override the setting."""
        return self.setting.lower()


def finished(*states: str) -> Callable[[datetime], tuple[QuerySet[Any], ...]]:
    return lambda before: (Advice.objects.filter(state__in=states, finished_at__lt=before).order_by("finished_at"),)


RULES = (
    Rule("answers", "KEEP_ADVICE_DAYS", finished(State.DONE)),
    Rule("failed and canceled questions", "KEEP_FAILED_DAYS", finished(State.FAILED, State.CANCELLED)),
    Rule("studies", "KEEP_STUDIES_DAYS", lambda before: (Study.objects.filter(finished_at__lt=before),)),
    Rule("expired links", "KEEP_SHARES_DAYS", lambda before: (Share.objects.filter(expires_at__lt=before),)),
    Rule(
        "load tests",
        "KEEP_LOAD_TESTS_DAYS",
        lambda before: (LoadTest.objects.filter(created_at__lt=before),),
        "option__advice__organisation",
    ),
    Rule(
        "expired and revoked tokens",
        "KEEP_TOKENS_DAYS",
        lambda before: (ApiToken.objects.filter(Q(expires_at__lt=before) | Q(revoked_at__lt=before)),),
    ),
    Rule(
        "logins and expired sessions",
        "KEEP_LOGINS_DAYS",
        lambda before: (
            Session.objects.filter(expire_date__lt=before),
            AccessAttempt.objects.filter(attempt_time__lt=before),
            AccessLog.objects.filter(attempt_time__lt=before),
        ),
        "",
    ),
    Rule(
        "webhook deliveries",
        "KEEP_DELIVERIES_DAYS",
        lambda before: (WebhookDelivery.objects.filter(ended_at__lt=before),),
        "endpoint__organisation",
    ),
    Rule("audit events", "KEEP_AUDIT_DAYS", lambda before: (AuditEvent.objects.filter(at__lt=before),)),
)


def own_days(rule: Rule) -> dict[int, int]:
    """The days of the organizations that override the setting, by their keys."""
    if not rule.owner:
        return {}
    rows = Retention.objects.exclude(**{rule.column: None})
    return dict(rows.values_list("organisation", rule.column))


def expired(rule: Rule, now: datetime) -> tuple[QuerySet[Any], ...]:
    """The rows that this rule would delete; empty if neither its setting nor an organization's is set."""
    days, own = getattr(settings, rule.setting), own_days(rule)
    found = () if days is None else rule.old(now - timedelta(days=days))
    if own:
        found = tuple(rows.exclude(**{f"{rule.owner}__in": own}) for rows in found)
    for organisation, fewer in own.items():
        older = rule.old(now - timedelta(days=fewer))
        found += tuple(rows.filter(**{rule.owner: organisation}) for rows in older)
    return found


def delete_expired(limit: int = BATCH) -> int:
    """Deletes one batch for each rule, each answer in its own transaction. Returns the number of rows."""
    now, deleted = clock.read(), 0
    for rule in RULES:
        for rows in expired(rule, now):
            if rows.model is Advice:
                deleted += sum(delete_advice(row, "retention") for row in rows.only("pk")[:limit])
            elif pks := list(rows.values_list("pk", flat=True)[:limit]):
                deleted += rows.model._default_manager.filter(pk__in=pks).delete()[0]
                log.info("deleted", kind=rule.kind, count=len(pks), by="retention")
    return deleted
