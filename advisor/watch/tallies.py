"""Counts that only grow, kept in the database: processes end, and rows are deleted after their retention.

They are for /metrics alone, so a count that cannot be stored is lost and nothing else fails.
"""

from collections.abc import Mapping

import structlog
from django.db import DatabaseError, InterfaceError, connection

from advisor.models import Tally

log = structlog.get_logger("assay.tallies")
BUCKETS_S = (0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
ATTEMPTS, LEASE_EXPIRIES, ENDED, PART_S = "attempts", "lease_expiries", "ended", "part_seconds"
Amounts = Mapping[tuple[str, str], float]  # by name and label


def add(amounts: Amounts) -> None:
    """Adds to the counts, in one statement; sorted, so that two processes never wait for each other."""
    rows = [(name, label, amount) for (name, label), amount in sorted(amounts.items()) if amount]
    if not rows:
        return
    places = ", ".join(["(%s, %s, %s)"] * len(rows))
    table = Tally._meta.db_table
    statement = (
        f"insert into {table} (name, label, value) values {places} "
        f"on conflict (name, label) do update set value = {table}.value + excluded.value"
    )
    try:
        with connection.cursor() as cursor:
            cursor.execute(statement, [value for row in rows for value in row])
    except (DatabaseError, InterfaceError) as error:
        log.warning("not counted", error=str(error))
        connection.close_if_unusable_or_obsolete()


def observed(name: str, label: str, seconds: float) -> dict[tuple[str, str], float]:
    """What one value adds to a histogram: to its bucket, and to its sum."""
    bucket = next((limit for limit in BUCKETS_S if seconds <= limit), float("inf"))
    return {(f"{name}_bucket", f"{label},{bucket:g}"): 1.0, (f"{name}_sum", label): seconds}


def read(name: str) -> dict[str, float]:
    """The counts of a name, by label."""
    return dict(Tally.objects.filter(name=name).values_list("label", "value"))


def histograms(name: str) -> dict[str, tuple[list[tuple[str, float]], float]]:
    """Cumulative (upper limit, count) pairs and the sum, by label."""
    counts, sums = read(f"{name}_bucket"), read(f"{name}_sum")
    found = {}
    for label in sorted({key.rpartition(",")[0] for key in counts}):
        so_far, pairs = 0.0, []
        for limit in (*BUCKETS_S, float("inf")):
            so_far += counts.get(f"{label},{limit:g}", 0.0)
            pairs.append(("+Inf" if limit == float("inf") else f"{limit:g}", so_far))
        found[label] = (pairs, sums.get(label, 0.0))
    return found
