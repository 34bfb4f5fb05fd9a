"""The metrics of /metrics that are read from the database when they are asked for, so every web process gives the same.

docs/reference/metrics.md lists them. Labels hold no names of people, workloads or machines.
"""

from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, time
from typing import Any

from django.db.models import Count, Max, Min, QuerySet
from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import generate_latest

from advisor import storage, turns
from advisor.engine import ENGINE_VERSION
from advisor.models import Advice, Duty
from advisor.ops import health
from advisor.studies import pieces
from advisor.watch import http, tallies
from catalog import clock
from catalog.models import CatalogLoad, PriceRefresh
from catalog.pricing.derived import current_offers
from probes.machines import agents
from probes.models import Agent, Job
from probes.received import results


def text() -> bytes:
    """All metrics in Prometheus' text format."""
    own = CollectorRegistry()
    own.register(Collector())
    return generate_latest(own) + generate_latest(http.registry())


class Collector:
    """prometheus_client calls `collect` for each scrape."""

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        checks = health.checks()
        yield gauge("assay_check_ok", "1 if a check of /readyz passes.", "check", ((c.name, c.ok) for c in checks))
        yield gauge("assay_build_info", "Always 1.", "version", [(ENGINE_VERSION, 1)])
        yield gauge("assay_disk_free_bytes", "Free space where Assay writes.", "", [("", storage.free_mb() * 1e6)])
        if all(check.ok for check in checks if check.name in ("database", "migrations")):
            for family in (queues, answers, counts, parts, ages, machines):
                yield from family()


def gauge(name: str, meaning: str, label: str, values: Iterable[tuple[str, Any]]) -> Metric:
    family = GaugeMetricFamily(name, meaning, labels=[label] if label else [])
    for value_of, value in values:
        family.add_metric([value_of] if label else [], float(value))
    return family


def waiting() -> Iterator[tuple[str, QuerySet[Any], str]]:
    """(queue, its rows, the column with the time since which they wait)."""
    yield "answers", turns.ready(), "created_at"
    yield "held", turns.held(), "created_at"
    yield "study_pieces", pieces.ready(), "study__created_at"
    yield "probe_jobs", Job.objects.filter(state=Job.State.QUEUED), "requested_at"
    yield "calibrations", results.usable().filter(fitted_at=None), "received_at"


def queues() -> Iterator[Metric]:
    now = clock.read()
    found = [
        (name, rows.order_by().aggregate(count=Count("pk"), oldest=Min(column))) for name, rows, column in waiting()
    ]
    yield gauge("assay_queue_length", "Waiting jobs.", "queue", ((name, row["count"]) for name, row in found))
    yield gauge(
        "assay_queue_oldest_age_seconds",
        "How long the oldest waiting job has waited; 0 if none waits.",
        "queue",
        ((name, age_s(now, row["oldest"]) if row["oldest"] else 0) for name, row in found),
    )


def answers() -> Iterator[Metric]:
    for state, meaning in ((Advice.State.RUNNING, "that are computed now"), (Advice.State.QUEUED, "that wait")):
        rows = Advice.objects.filter(state=state).order_by().values_list("organisation__slug")
        counted = rows.annotate(count=Count("pk"))
        yield gauge(f"assay_answers_{state.value}", f"Answers {meaning}, by organization.", "organization", counted)


COUNTS = (
    ("assay_answers_ended", "Answers that ended, by state.", "state", tallies.ENDED, ("done", "failed")),
    ("assay_attempts", "Started attempts.", "kind", tallies.ATTEMPTS, ("answer",)),
    (
        "assay_lease_expiries",
        "Attempts whose worker or machine was lost.",
        "kind",
        tallies.LEASE_EXPIRIES,
        ("answer", "probe_job"),
    ),
)


def counts() -> Iterator[Metric]:
    for name, meaning, label, tally, known in COUNTS:
        family = CounterMetricFamily(name, meaning, labels=[label])
        values = dict.fromkeys(known, 0.0) | tallies.read(tally)
        for value_of, value in sorted(values.items()):
            family.add_metric([value_of], value)
        yield family


def parts() -> Iterator[Metric]:
    family = HistogramMetricFamily(
        "assay_answer_part_seconds", "Seconds of answers by part; wait: in the queue.", labels=["part"]
    )
    for part, (buckets, total) in tallies.histograms(tallies.PART_S).items():
        family.add_metric([part], buckets, total)
    yield family


def ages() -> Iterator[Metric]:
    now = clock.read()
    newest = current_offers().aggregate(day=Max("as_of"))["day"]
    price = [("", age_s(now, datetime.combine(newest, time(), UTC)))] if newest else []
    yield gauge("assay_price_age_seconds", "Age of the newest public price.", "", price)
    newest_of: list[tuple[str, str, Callable[[], datetime | None]]] = [
        ("assay_price_refresh_age_seconds", "Since the last price refresh that ended well.", last_refresh),
        ("assay_catalog_age_seconds", "Since the catalog was loaded.", last_load),
        ("assay_sweep_age_seconds", "Since the last sweep that ended well; beat starts them.", last_sweep),
    ]
    for name, meaning, at in newest_of:
        found = at()
        yield gauge(name, meaning, "", [("", age_s(now, found))] if found else [])


def last_refresh() -> datetime | None:
    rows = PriceRefresh.objects.filter(state=PriceRefresh.State.DONE).order_by()
    found: datetime | None = rows.aggregate(at=Max("finished_at"))["at"]
    return found


def last_load() -> datetime | None:
    found: datetime | None = CatalogLoad.objects.aggregate(at=Max("loaded_at"))["at"]
    return found


def last_sweep() -> datetime | None:
    return Duty.objects.filter(name="swept").values_list("last_run_at", flat=True).first()


def machines() -> Iterator[Metric]:
    now = clock.read()
    states = [agents.status(agent, now) for agent in Agent.objects.only("revoked_at", "last_seen_at")]
    names = ("online", "late", "offline", "revoked")
    yield gauge("assay_agents", "Machines by state.", "state", ((name, states.count(name)) for name in names))


def age_s(now: datetime, since: datetime) -> float:
    return max(0.0, (now - since).total_seconds())
