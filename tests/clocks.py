"""The day on which every test runs, and clocks that tests move: that of the database, and that of this process."""

from collections.abc import Callable
from datetime import date, datetime, timedelta

import pytest
from django.db.models import DateTimeField, Value
from django.utils import timezone

from catalog import clock

TODAY = date(2026, 11, 26)  # not before the newest row of the frozen catalog


def set_database(monkeypatch: pytest.MonkeyPatch, read: Callable[[], datetime]) -> None:
    """The database's clock shows what `read` returns."""
    monkeypatch.setattr(clock, "now", lambda: Value(read(), output_field=DateTimeField()))
    monkeypatch.setattr(clock, "read", read)


def shift_process(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """The clock of this host is wrong by some seconds."""
    import time

    real_now, real_time = timezone.now, time.time
    monkeypatch.setattr(timezone, "now", lambda: real_now() + timedelta(seconds=seconds))
    monkeypatch.setattr(time, "time", lambda: real_time() + seconds)
