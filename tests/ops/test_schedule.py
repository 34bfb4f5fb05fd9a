"""Beat sends its tasks in time after the host's clock was set back or forward."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from advisor import advise
from advisor.celery import app
from advisor.models import Duty
from advisor.ops.schedule import Scheduler


@pytest.mark.parametrize("jump", [timedelta(hours=-3), timedelta(hours=3), timedelta(0)])
@pytest.mark.parametrize("restarted", [False, True])
def test_tasks_are_sent_after_the_clock_jumped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jump: timedelta, restarted: bool
) -> None:
    clock = [datetime(2026, 11, 27, 12, tzinfo=UTC)]
    monkeypatch.setattr(app, "now", lambda: clock[0])
    sent: list[str] = []
    monkeypatch.setattr(Scheduler, "apply_async", lambda self, entry, **given: sent.append(entry.task))

    def started() -> Any:
        return Scheduler(app, schedule_filename=str(tmp_path / "beat"), lazy=False)

    def ticks(beat: Any, seconds: float) -> None:
        end = clock[0] + timedelta(seconds=seconds)
        while clock[0] < end:
            wait_s = min(max(beat.tick(), 0.5), (end - clock[0]).total_seconds())
            clock[0] += timedelta(seconds=wait_s)

    beat = started()
    ticks(beat, 30)
    assert {"advice.sweep", "probes.sweep"} <= set(sent)
    clock[0] += jump
    if restarted:
        beat.close()
        beat = started()
    sent.clear()
    ticks(beat, 30)
    assert sent.count("advice.sweep") >= 5 and sent.count("probes.sweep") >= 5
    beat.close()


@pytest.mark.django_db
@pytest.mark.parametrize(("age_s", "due"), [(0.1, False), (3600, True), (-3600, True)])
def test_a_sweep_is_due_although_the_last_one_seems_to_be_in_the_future(age_s: float, due: bool) -> None:
    Duty.objects.create(name="sweep", last_run_at=timezone.now() - timedelta(seconds=age_s))
    assert advise.sweep_is_due() == due
