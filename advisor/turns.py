"""Whose turn it is: which queued advice a free worker takes next, how many are ahead of one, and who may queue more.

The organization with the fewest running calculations is next, then its person with the fewest. If several have equally
few, the one whose last calculation started longest ago is next, then the one whose oldest advice has waited longest. So
a long queue of one person delays another person by one calculation for each worker.
"""

from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import NamedTuple
from uuid import UUID

from django.conf import settings
from django.db.models import Count, Exists, Max, OuterRef, Q, QuerySet
from django.utils.translation import gettext as _

from advisor.models import Advice, Study, StudyPiece
from catalog import clock
from catalog.accounts import quotas
from catalog.models import Organisation

State = Advice.State
TURN_S = 3600  # a start before that no longer counts as a turn; bounds what is read
NEVER = (0, datetime(1970, 1, 1, tzinfo=UTC))
FAR = timedelta(days=36_500)  # behind every answer of the same person
Group = tuple[int, str]  # organization and person


class Waiting(NamedTuple):
    """A queued advice. `person` is empty for visitors and for the service itself."""

    pk: UUID
    organisation: int
    person: str
    since: datetime


QueueFull = quotas.QuotaReached  # also where the organization or the person has too many queued requests


def ready() -> QuerySet[Advice]:
    """The queued advice that may be computed now."""
    return Advice.objects.filter(Q(held_until=None) | Q(held_until__lte=clock.now()), state=State.QUEUED)


def held() -> QuerySet[Advice]:
    """The queued advice for which machines may still measure."""
    return Advice.objects.filter(state=State.QUEUED, held_until__gt=clock.now())


class Next(NamedTuple):
    """What a worker takes next: the answer with this key, or a piece of this study."""

    pk: UUID
    study: UUID | None


def order(among: "QuerySet[Advice] | None" = None) -> Iterator[UUID]:
    """The keys of the advice that is ready, in the order in which workers will start it if nothing changes.

    `among`: those that count; default: all that is ready.
    """
    waiting = answers(ready() if among is None else among)
    return in_turn(waiting, *loads()) if waiting else iter(())


def first() -> Next | None:
    """What is next among answers and studies; None if nothing waits. A person's answers come before the own studies."""
    studies = [
        Waiting(pk, organisation, person, created + FAR)
        for pk, organisation, person, created in Study.objects.filter(
            Exists(StudyPiece.objects.filter(study=OuterRef("pk"), phase=OuterRef("phase"), state=State.QUEUED)),
            state__in=(State.QUEUED, State.RUNNING),
        )
        .order_by()
        .values_list("pk", "organisation", "made_by", "created_at")
    ]
    waiting = [*answers(ready()), *studies]
    found = next(in_turn(waiting, *loads()), None) if waiting else None
    return None if found is None else Next(found, found if any(found == row.pk for row in studies) else None)


def answers(rows: QuerySet[Advice]) -> list[Waiting]:
    return list(map(Waiting._make, rows.order_by().values_list("pk", "organisation", "made_by", "created_at")))


def loads() -> tuple[dict[Group, int], dict[Group, datetime]]:
    """What runs, and the time of the last start, by organization and person: answers and pieces of studies."""
    running: Counter[Group] = Counter()
    last: dict[Group, datetime] = {}
    for rows, owner in ((Advice.objects, ""), (StudyPiece.objects, "study__")):
        groups = rows.order_by().values_list(f"{owner}organisation", f"{owner}made_by")
        for organisation, person, count in groups.filter(state=State.RUNNING).annotate(count=Count("pk")):
            running[organisation, person] += count
        recent = groups.filter(started_at__gt=clock.ago(TURN_S)).annotate(last=Max("started_at"))
        for organisation, person, at in recent:
            last[organisation, person] = max(at, last.get((organisation, person), NEVER[1]))
    return dict(running), last


def in_turn(waiting: Iterable[Waiting], running: Mapping[Group, int], last: Mapping[Group, datetime]) -> Iterator[UUID]:
    """The keys in turn: each one counts as running, and as the last start of its organization and person, afterwards.

    running, last: the calculations that run, and the time of the last start, by organization and person.
    """
    queues: dict[int, dict[str, deque[Waiting]]] = defaultdict(lambda: defaultdict(deque))
    for row in sorted(waiting, key=lambda row: (row.since, row.pk)):
        queues[row.organisation][row.person].append(row)
    load: Counter[int | Group] = Counter()
    turn: dict[int | Group, tuple[int, datetime]] = {}
    for group, count in running.items():
        load[group] += count
        load[group[0]] += count
    for group, at in last.items():
        turn[group], turn[group[0]] = (0, at), max((0, at), turn.get(group[0], NEVER))
    started = 0
    while queues:
        chosen = min(
            queues,
            key=lambda o: (load[o], turn.get(o, NEVER), min(q[0].since for q in queues[o].values()), o),
        )
        people = queues[chosen]
        person = min(people, key=lambda p: (load[chosen, p], turn.get((chosen, p), NEVER), people[p][0].since, p))
        row = people[person].popleft()
        if not people[person]:
            del people[person]
        if not people:
            del queues[chosen]
        started += 1
        for name in (chosen, (chosen, person)):
            load[name] += 1
            turn[name] = (started, row.since)
        yield row.pk


def ahead() -> dict[UUID, int]:
    """How many others will be started before each advice that is ready, by key."""
    return {pk: place for place, pk in enumerate(order())}


def check_room(organisation: Organisation, made_by: str, count: int = 1) -> None:
    """QueueFull if `count` more requests would exceed a limit or quota of the organization, or the person's limit."""
    own = Advice.objects.filter(organisation=organisation)
    waiting = own.filter(state__in=(State.QUEUED, State.RUNNING)).count()
    quotas.check(organisation, "max_waiting_answers", waiting, count)
    quotas.check(organisation, "max_stored_answers", own.count(), count)
    quotas.check(organisation, "max_answers_per_day", quotas.used_today(organisation).answers, count)
    queued = Advice.objects.filter(state=State.QUEUED, organisation=organisation)
    of_organisation, of_person = queued.count(), queued.filter(made_by=made_by).count()
    if of_organisation + count > settings.ADVICE_MAX_QUEUED:
        text = _(
            "Too many requests are waiting: your organization has %(count)s, and its limit is %(limit)s. Submit again "
            "when some are done, or cancel some."
        )
        raise QueueFull(text % {"count": of_organisation, "limit": settings.ADVICE_MAX_QUEUED})
    if of_person + count > settings.ADVICE_MAX_QUEUED_PERSON:
        text = _(
            "Too many requests are waiting: you have %(count)s, and your limit is %(limit)s. Submit again when some "
            "are done, or cancel some."
        )
        raise QueueFull(text % {"count": of_person, "limit": settings.ADVICE_MAX_QUEUED_PERSON})
