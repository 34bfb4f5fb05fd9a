"""What the sweep repairs, and what it leaves alone."""

from datetime import timedelta

import pytest
from django.utils import timezone
from kombu.exceptions import OperationalError

from advisor import advise
from advisor.models import Advice, Duty
from tests import answers

pytestmark = pytest.mark.django_db
State = Advice.State
NOTHING = {"requeued": 0, "failed": 0, "sent": 0, "deleted": 0}


def ago(seconds: float) -> object:
    return timezone.now() - timedelta(seconds=seconds)


def running(attempt: int, lease_s: float) -> Advice:
    advice = answers.queued()
    Advice.objects.filter(pk=advice.pk).update(state=State.RUNNING, attempt=attempt, lease_until=ago(-lease_s))
    return advice


def test_an_expired_lease_is_queued_again_and_sent(woken: list[str]) -> None:
    advice = running(attempt=1, lease_s=-1)
    assert advise.sweep() == {"requeued": 1, "failed": 0, "sent": 1, "deleted": 0}
    advice.refresh_from_db()
    assert (advice.state, advice.attempt, advice.lease_until) == (State.QUEUED, 1, None)
    assert woken == [str(advice.pk)]


def test_a_live_lease_is_left_alone(woken: list[str]) -> None:
    running(attempt=1, lease_s=5)
    assert advise.sweep() == NOTHING


def test_the_last_lost_attempt_fails_with_its_reason(woken: list[str]) -> None:
    advice = running(attempt=3, lease_s=-1)
    assert advise.sweep() == {"requeued": 0, "failed": 1, "sent": 0, "deleted": 0}
    advice.refresh_from_db()
    assert advice.state == State.FAILED and advice.error and advice.finished_at


def test_what_waits_too_long_is_sent_once_a_period(woken: list[str]) -> None:
    late, fresh = answers.queued(), answers.queued()
    Advice.objects.filter(pk=late.pk).update(sent_at=ago(16))
    assert advise.sweep()["sent"] == 1
    assert advise.sweep() == NOTHING
    assert woken == [str(late.pk)]
    assert str(fresh.pk) not in woken


def test_a_broker_that_is_away_is_tried_again_at_the_next_sweep(
    woken: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    Advice.objects.filter(pk=answers.queued().pk).update(sent_at=ago(16))

    def away(*args: object, **options: object) -> None:
        raise OperationalError("refused")

    with monkeypatch.context() as broken:
        broken.setattr(advise.app, "send_task", away)
        assert advise.sweep() == NOTHING
    assert advise.sweep()["sent"] == 1


def test_a_sweep_leaves_its_time(woken: list[str]) -> None:
    advise.sweep()
    advise.sweep()
    for name in (advise.SWEEP, advise.SWEPT):
        assert (timezone.now() - Duty.objects.get(name=name).last_run_at).total_seconds() < 60


def test_a_sweep_that_fails_is_not_reported_as_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> int:
        raise OSError

    monkeypatch.setattr(advise, "delete_expired", fail)
    with pytest.raises(OSError):
        advise.sweep()
    assert not Duty.objects.filter(name=advise.SWEPT).exists()
