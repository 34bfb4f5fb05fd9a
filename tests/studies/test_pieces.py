"""A piece is computed once, by whoever claims it, whatever happens to workers and messages."""

import itertools
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from django.conf import settings
from django.utils import timezone
from kombu.exceptions import OperationalError

from advisor.leases import LostLease
from advisor.models import Study, StudyPiece
from advisor.studies import pieces
from tests.people import organisation

pytestmark = pytest.mark.django_db
State = StudyPiece.State
Create = Callable[..., Study]


def rows_of(study: Study) -> list[Any]:
    return [(row["point"], row["state"]) for row in pieces.Rows(study)[:]]


def received(sent: list[list[Any]], most: int = 1000) -> int:
    """Workers receive all messages, and those that they cause."""
    count = 0
    while sent and count < most:
        pieces.run(*sent.pop(0))
        count += 1
    return count


def expire(**of: Any) -> int:
    return StudyPiece.objects.filter(state=State.RUNNING, **of).update(
        lease_until=timezone.now() - timedelta(seconds=1)
    )


def test_a_study_ends_with_a_row_for_each_point(created: Create, quick: Any, messages: Any) -> None:
    study = created(5)
    pieces.send_wave(study.pk)
    received(messages)
    study.refresh_from_db()
    assert (study.state, sorted(quick.computed)) == (State.DONE, [0, 1, 2, 3, 4])
    assert rows_of(study) == [(n, "done") for n in range(5)]
    assert study.finished_at is not None and not StudyPiece.objects.exclude(state=State.DONE).exists()


def test_doubled_messages_double_nothing(created: Create, quick: Any, messages: Any) -> None:
    study = created(6)
    pieces.send_wave(study.pk)
    while messages:
        message = messages.pop(0)
        for _ in range(3):
            pieces.run(*message)
        assert len(messages) < 50
    study.refresh_from_db()
    assert study.state == State.DONE and Counter(quick.computed) == Counter(range(6))
    assert rows_of(study) == [(n, "done") for n in range(6)]


def test_messages_of_an_earlier_wave_do_nothing(created: Create, quick: Any, messages: Any) -> None:
    study = created()
    pieces.send_wave(study.pk)
    old = messages[0]
    pieces.send_wave(study.pk)
    messages.clear()
    pieces.run(*old)
    assert messages == [] and quick.computed == []


def test_live_messages_stay_within_the_limit(
    created: Create, quick: Any, messages: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pieces, "MESSAGES", 4)
    study = created(20)
    pieces.send_wave(study.pk)
    most = 0
    while messages:
        study.refresh_from_db()
        most = max(most, sum(wave == study.wave for _, wave in messages))
        pieces.run(*messages.pop(0))
    assert most == 4 and len(quick.computed) == 20


def test_a_lost_worker_costs_one_attempt_and_no_row(created: Create, quick: Any, messages: Any) -> None:
    study = created(2)
    pieces.drain_reads(study.pk)
    lost = pieces.piece_of(study.pk)
    assert lost is not None
    expire()
    assert pieces.sweep()["requeued"] == 1
    assert pieces.sweep()["requeued"] == 0  # two sweeps do it once
    assert pieces.drain(study.pk, pause_s=0) == 2
    with pytest.raises(LostLease):  # the first worker comes back
        lost.finish([{"point": 99}], 1.0, 0.0)
    assert rows_of(study) == [(0, "done"), (1, "done")]
    assert sorted(StudyPiece.objects.filter(phase=1).values_list("attempt", flat=True)) == [1, 2]


def test_a_piece_that_always_kills_its_worker_fails_with_its_reason(created: Create, quick: Any, messages: Any) -> None:
    study = created(1)
    pieces.drain_reads(study.pk)
    for _ in range(settings.ADVICE_MAX_ATTEMPTS):
        assert pieces.piece_of(study.pk) is not None
        expire()
        pieces.sweep()
    study.refresh_from_db()
    (row,) = pieces.Rows(study)[:]
    assert study.state == State.DONE and row["state"] == "failed" and "lost 3 times" in row["error"]
    assert row["workload"] == "w0"


def test_an_internal_error_fails_its_piece_alone(created: Create, quick: SimpleNamespace, messages: Any) -> None:
    def answer(point: Any) -> Any:
        return 1 / (point["index"] - 1) and {"workload": "w"}

    quick.answer = answer
    study = created(3)
    pieces.drain(study.pk, pause_s=0)
    assert rows_of(study) == [(0, "done"), (1, "failed"), (2, "done")]


def test_cancel_keeps_finished_rows_and_stops_the_others(created: Create, quick: Any, messages: Any) -> None:
    study = created(4)
    pieces.drain_reads(study.pk)
    pieces.work(pieces.piece_of(study.pk))  # type: ignore[arg-type]
    running = pieces.piece_of(study.pk)
    assert running is not None and pieces.cancel(study)
    assert not pieces.cancel(study)
    with pytest.raises(LostLease):
        running.finish([], 0.0, 0.0)
    assert (len(rows_of(study)), pieces.progress(study).cancelled) == (1, 3)
    assert pieces.piece_of(study.pk) is None and received(messages) >= 0
    assert pieces.progress(study).done == 1


def test_resume_computes_the_rest_alone(created: Create, quick: Any, messages: Any) -> None:
    study = created(4)
    pieces.drain_reads(study.pk)
    pieces.work(pieces.piece_of(study.pk))  # type: ignore[arg-type]
    pieces.cancel(study)
    assert pieces.resume(study) and not pieces.resume(study)
    pieces.drain(study.pk, pause_s=0)
    assert Counter(quick.computed) == Counter(range(4))
    assert rows_of(study) == [(n, "done") for n in range(4)]


def test_a_study_that_is_deleted_stops_its_workers(created: Create, quick: Any, messages: Any) -> None:
    study = created(1)
    pieces.drain_reads(study.pk)
    claim = pieces.piece_of(study.pk)
    assert claim is not None
    study.delete()
    pieces.work(claim)
    assert not StudyPiece.objects.exists() and quick.computed == []


def test_the_sweep_wakes_workers_after_messages_were_lost(created: Create, quick: Any, messages: Any) -> None:
    study = created(2)
    messages.clear()
    assert pieces.sweep()["sent"] == 0  # the last wave is recent
    Study.objects.update(sent_at=timezone.now() - timedelta(seconds=settings.ADVICE_RESEND_S + 1))
    assert pieces.sweep()["sent"] == 2 and pieces.sweep()["sent"] == 0  # one piece reads the market, one the model
    received(messages)
    study.refresh_from_db()
    assert study.state == State.DONE


def test_a_broker_that_is_away_loses_nothing(
    created: Create, quick: Any, messages: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*args: object, **options: object) -> None:
        raise OperationalError("refused")

    with monkeypatch.context() as broken:
        broken.setattr(pieces.app, "send_task", away)
        study = created(2)
        pieces.drain_reads(study.pk)
        assert pieces.send_wave(study.pk) == 0
    earlier = timezone.now() - timedelta(seconds=settings.ADVICE_RESEND_S + 1)
    Study.objects.update(sent_at=earlier)
    assert pieces.sweep()["sent"] == 0  # a piece has just started
    StudyPiece.objects.update(started_at=earlier)
    assert pieces.sweep()["sent"] == 2
    received(messages)
    assert len(rows_of(study)) == 2


def test_a_catalog_that_changes_while_it_is_read_fails_the_study(
    created: Create, quick: Any, messages: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    versions = itertools.count()
    monkeypatch.setattr("advisor.studies.compute.catalog_version", lambda: str(next(versions)))
    study = created(2)
    pieces.drain(study.pk, pause_s=0)
    study.refresh_from_db()
    assert study.state == State.FAILED and "the catalog changed" in study.error
    assert quick.computed == [] and pieces.progress(study).cancelled == 2


def test_people_and_organizations_share_workers_and_answers_come_first(
    created: Create, quick: Any, messages: Any, engine: Any
) -> None:
    from advisor import advise
    from advisor.models import Workload

    mine, other = created(3), created(3, by="bob", owner=organisation())
    for study in (mine, other):
        pieces.drain_reads(study.pk)
    row = Workload.objects.create(organisation=mine.organisation, name="small", spec={"name": "small"})
    advice = advise.queue(row, made_by="ada")
    taken = [pieces.next_claim() for _ in range(7)]
    owners = [study_of(claim) for claim in taken if claim is not None]
    assert taken[0] is not None and taken[0].pk == advice.pk or owners[1] is None  # her answer before her study
    assert [sum(o == who for o in owners[:3]) for who in (mine.pk, other.pk, None)] in ([1, 1, 1], [0, 2, 1])
    assert Counter(owners) == {mine.pk: 3, other.pk: 3, None: 1}


def study_of(claim: Any) -> Any:
    piece = StudyPiece.objects.filter(pk=claim.pk).first() if isinstance(claim, pieces.PieceClaim) else None
    return piece.study_id if piece else None


def test_too_many_open_studies_are_refused(created: Create, quick: Any, messages: Any, settings: Any) -> None:
    from advisor.advise import QueueFull

    settings.STUDY_MAX_OPEN_PERSON, settings.STUDY_MAX_OPEN = 1, 2
    study = created(1)
    with pytest.raises(QueueFull, match="you have 1 of at most 1"):
        created(1)
    created(1, by="bob")
    with pytest.raises(QueueFull, match="your organization has 2 of at most 2"):
        created(1, by="eve")
    pieces.cancel(study)
    created(1)


def test_the_same_key_creates_one_study(created: Create, messages: Any) -> None:
    from advisor.advise import KeyReused

    assert created(2, idempotency_key="k").pk == created(2, idempotency_key="k").pk
    with pytest.raises(KeyReused):
        created(3, idempotency_key="k")
    assert Study.objects.count() == 1
