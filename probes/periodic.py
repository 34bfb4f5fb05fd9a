"""Periodic work, every few seconds: expired leases, results to fit, and advice that waits for measurements."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from django.db import transaction
from django.db.models import Prefetch

from advisor import advise
from advisor.models import Advice
from catalog import clock
from catalog.models import Accelerator, default_organisation
from probes.fitted import fitting
from probes.machines import agents, jobs
from probes.models import Agent, Job, Result
from probes.received import results

FRESH_DAYS = 7  # chips measured this recently are not measured again
MAX_MACHINES = 8  # per request for advice
Probed = dict[str, Any]


def sweep() -> dict[str, int]:
    """Does all periodic work. Returns counts by kind."""
    return jobs.sweep() | {"fits_sent": fitting.resend_unfitted(), "advice_released": probe_for_advice()}


def probe_for_advice() -> int:
    """Queues probes for advice that waits for measurements, and releases advice that need not wait longer.

    Returns the number of released requests.
    """
    known = Prefetch("probe_jobs__results", Result.objects.defer("document").select_related("accelerator"))
    waiting = advise.held().select_related("workload", "organisation").prefetch_related(known)
    ready = [(advice.pk, outcome(advice)) for advice in waiting.order_by("created_at")[:50]]
    released = [advise.release(pk, probed) for pk, probed in ready if probed is not None]
    unneeded = Job.objects.filter(advice__state=Advice.State.CANCELLED, state__in=jobs.OPEN)
    for job in unneeded[:50]:
        jobs.cancel(job)
    return sum(released)


def outcome(advice: Advice) -> Probed | None:
    """The summary of the probes for this advice; None: keep waiting for a machine or its result."""
    probe_jobs = list(advice.probe_jobs.all())
    if probe_jobs:
        return None if any(still_open(job) for job in probe_jobs) else summary(probe_jobs)
    fresh, idle = dict(recently_measured(advice)), idle_machines(advice)
    if chosen := [a for slug, a in idle.items() if slug not in fresh][:MAX_MACHINES]:
        queue_probes(advice, chosen)
        return None
    if fresh:
        chips = [f"{slug} on {day:%Y-%m-%d}" for slug, day in fresh.items()]
        return {"measured": sorted(fresh), "said": f"measured in the last {FRESH_DAYS} days: {', '.join(chips)}"}
    if advice.workload.spec["probe"] == "preferred":
        return {"measured": [], "said": "no idle machine with an allowed accelerator is online"}
    return None


def queue_probes(advice: Advice, machines: list[Agent]) -> None:
    """Queues a quick suite for each machine, only once even if two sweeps run at the same time."""
    with transaction.atomic():
        if Advice.objects.select_for_update().get(pk=advice.pk).probe_jobs.exists():
            return
        for agent in machines:
            jobs.request(
                {"suite": "quick"},
                wanted_agent=agent,
                advice=advice,
                organisation=advice.organisation,
                requested_by="advice",
                deadline_at=advice.held_until,
            )


def still_open(job: Job) -> bool:
    """Whether the job is queued or running, or its result is not fitted yet."""
    used = [r for r in job.results.all() if r.state in results.USED and r.excluded_at is None]
    unfitted = [r for r in used if r.fitted_at is None]
    return job.state in jobs.OPEN or bool(unfitted)


def summary(probe_jobs: list[Job]) -> Probed:
    """What the finished probes measured; stored with the answer."""
    every = [r for job in probe_jobs for r in job.results.all() if r.state in results.USED and not r.excluded_at]
    used = [r for r in every if r.calibration_id and r.waiting != sorted(r.fit or {})]
    slugs = sorted({r.accelerator.slug for r in used if r.accelerator})
    quarantined = [r for job in probe_jobs for r in job.results.all() if r.state == Result.State.QUARANTINED]
    failed = [job for job in probe_jobs if job.state != Job.State.DONE]
    parts = [counted(probe_jobs, "machine") + " asked", f"new figures for {', '.join(slugs) or 'no chip'}"]
    parts += [f"{counted(quarantined, 'result')} in quarantine"] if quarantined else []
    waiting = [r for job in probe_jobs for r in job.results.all() if results.standing(r) == results.AWAITING]
    parts += [f"{counted(waiting, 'result')} {results.AWAITING}"] if waiting else []
    parts += [f"{counted(failed, 'job')} without a result"] if failed else []
    return {"measured": slugs, "said": ", ".join(parts), "jobs": [str(job.pk) for job in probe_jobs]}


def counted(items: list[Any], noun: str) -> str:
    """1 machine, 2 machines."""
    return f"{len(items)} {noun}{'s' * (len(items) > 1)}"


def wanted_chips(advice: Advice) -> set[str]:
    """The slugs of the accelerators that the constraints of this advice allow."""
    constraints = advice.workload.spec["constraints"]
    allow, deny = constraints["accelerators"]["allow"], constraints["accelerators"]["deny"]
    vendors = constraints["vendors"]
    chips = Accelerator.objects.filter(served=True).exclude(slug__in=deny).exclude(vendor__in=vendors["deny"])
    if allow:
        chips = chips.filter(slug__in=allow)
    if vendors["allow"]:
        chips = chips.filter(vendor__in=vendors["allow"])
    return set(chips.values_list("slug", flat=True))


def idle_machines(advice: Advice) -> dict[str, Agent]:
    """One online machine without a job for each allowed accelerator, by slug."""
    wanted, reserved = wanted_chips(advice), Job.objects.filter(state__in=jobs.OPEN).exclude(wanted_agent=None)
    busy = set(reserved.values_list("wanted_agent", flat=True))
    busy |= set(Job.objects.filter(state=Job.State.LEASED).values_list("agent", flat=True))
    free = [a for a in agents.online(advice.organisation).order_by("-last_seen_at") if a.pk not in busy]
    return {a.labels["accelerator"]: a for a in free if a.labels.get("accelerator") in wanted}


def recently_measured(advice: Advice) -> Iterator[tuple[str, Any]]:
    """(slug, time) of each allowed accelerator with a recent result that counts."""
    since, wanted = clock.read() - timedelta(days=FRESH_DAYS), wanted_chips(advice)
    rows = results.usable().filter(received_at__gt=since, accelerator__slug__in=wanted, waiting=[])
    rows = rows.filter(organisation=default_organisation())  # those that calibrate the catalog
    yield from rows.exclude(fit=None).order_by("received_at").values_list("accelerator__slug", "received_at")
