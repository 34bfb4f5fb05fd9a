"""The database's clock, the only one that all hosts share. Leases, expirations and turns compare times with it alone.

A host whose own clock is wrong would otherwise take work from the others, or keep what is over. In queries and updates
use `now`, `after` and `ago`, which the database evaluates; `read` is for values that Python stores or shows.
`today` is the day of prices, ages and answers. No other module asks which day it is.
"""

from datetime import UTC, date, datetime, timedelta

from django.db import connection
from django.db.models import Expression
from django.db.models.expressions import Combinable
from django.db.models.functions import Now
from django.utils import timezone

__all__ = ["after", "ago", "now", "read", "today"]

READ = {"sqlite": "select strftime('%Y-%m-%d %H:%M:%f', 'now')", "postgresql": "select statement_timestamp()"}
TICK = timedelta(milliseconds=2)  # of SQLite's clock, with a margin


def now() -> Expression:
    """The time at which the statement begins, on the database's clock. SQLite counts milliseconds."""
    return Now()


def after(seconds: float) -> Combinable:
    """`now` plus some seconds."""
    return now() + timedelta(seconds=seconds)


def ago(seconds: float) -> Combinable:
    """`now` minus some seconds."""
    return now() - timedelta(seconds=seconds)


def read() -> datetime:
    """The database's time, read with one query."""
    with connection.cursor() as cursor:
        cursor.execute(READ[connection.vendor])
        value = cursor.fetchone()[0]
    if isinstance(value, datetime):
        return value
    told, here = datetime.fromisoformat(value).replace(tzinfo=UTC), timezone.now()
    return here if told - TICK <= here <= told + TICK else told  # the same clock, with microseconds


def today() -> date:
    """The current day in the service's time zone. Call it as `clock.today()`, so that tests can pin it."""
    return timezone.localdate()
