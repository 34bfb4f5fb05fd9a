"""What is deleted: on request, with all that belongs to it, and by age. advise.py makes what is deleted here."""

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
from django.utils import timezone

from advisor.models import Advice, ApiToken, LoadTest, Share, Workload

log = structlog.get_logger("assay.deleted")
State = Advice.State
BATCH = 50  # of one kind in one sweep: a sweep must end before the next one begins


# --- on request -------------------------------------------------------------------------------------------------


@transaction.atomic
def delete_advice(found: Advice, by: str) -> bool:
    """Deletes an answer with its options, links and load tests, and its question when nothing else asks it.

    A worker that computes it finds its row gone at its next write and stops. Answers that superseded it then supersede
    the one before it. Machines that measure for it finish; their results are kept.
    """
    row = Advice.objects.select_for_update().filter(pk=found.pk).only("supersedes_id", "workload_id").first()
    if row is None:
        return False
    row.successors.update(supersedes=row.supersedes_id)
    row.probe_jobs.update(advice=None)
    Advice.objects.filter(pk=row.pk).only("pk").delete()  # without reading the answer
    Workload.objects.filter(pk=row.workload_id, advices=None).delete()
    return noted("advice", found.pk, by)


def delete_share(share: Share, by: str) -> bool:
    """The link stops working and leaves no trace of its token."""
    return _delete(share, "share", by)


def delete_load_test(test: LoadTest, by: str) -> bool:
    """What a file that was exported from it says, stays."""
    return _delete(test, "load test", by)


def delete_token(token: ApiToken, by: str) -> bool:
    """Its next call is refused, as of an unknown token."""
    return _delete(token, "token", by)


def _delete(row: Model, kind: str, by: str) -> bool:
    gone, _ = type(row)._default_manager.filter(pk=row.pk).delete()
    return bool(gone) and noted(kind, row.pk, by)


def noted(kind: str, pk: Any, by: str) -> bool:
    log.info("deleted", kind=kind, id=str(pk), by=by)
    return True


# --- by age -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Rule:
    """Rows of one kind that an installation keeps only so many days after they ended."""

    kind: str
    setting: str
    old: Callable[[datetime], tuple[QuerySet[Any], ...]]  # those that ended before then


def finished(*states: str) -> Callable[[datetime], tuple[QuerySet[Any], ...]]:
    return lambda before: (Advice.objects.filter(state__in=states, finished_at__lt=before).order_by("finished_at"),)


RULES = (
    Rule("answers", "KEEP_ADVICE_DAYS", finished(State.DONE)),
    Rule("failed and cancelled questions", "KEEP_FAILED_DAYS", finished(State.FAILED, State.CANCELLED)),
    Rule("ended links", "KEEP_SHARES_DAYS", lambda before: (Share.objects.filter(expires_at__lt=before),)),
    Rule("load tests", "KEEP_LOAD_TESTS_DAYS", lambda before: (LoadTest.objects.filter(created_at__lt=before),)),
    Rule(
        "ended tokens",
        "KEEP_TOKENS_DAYS",
        lambda before: (ApiToken.objects.filter(Q(expires_at__lt=before) | Q(revoked_at__lt=before)),),
    ),
    Rule(
        "logins and ended sessions",
        "KEEP_LOGINS_DAYS",
        lambda before: (
            Session.objects.filter(expire_date__lt=before),
            AccessAttempt.objects.filter(attempt_time__lt=before),
            AccessLog.objects.filter(attempt_time__lt=before),
        ),
    ),
)


def expired(rule: Rule, now: datetime) -> tuple[QuerySet[Any], ...]:
    """The rows that this rule would delete; none where the installation keeps them for ever."""
    days = getattr(settings, rule.setting)
    return () if days is None else rule.old(now - timedelta(days=days))


def delete_expired(limit: int = BATCH) -> int:
    """One batch of each rule; how many rows were deleted. Each answer is a transaction of its own."""
    now, deleted = timezone.now(), 0
    for rule in RULES:
        for rows in expired(rule, now):
            if rows.model is Advice:
                deleted += sum(delete_advice(row, "retention") for row in rows.only("pk")[:limit])
            elif pks := list(rows.values_list("pk", flat=True)[:limit]):
                deleted += rows.model._default_manager.filter(pk__in=pks).delete()[0]
                log.info("deleted", kind=rule.kind, count=len(pks), by="retention")
    return deleted
