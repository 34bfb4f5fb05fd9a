"""What is done every few seconds: leases that ran out, results without their fit, advice that waits for machines."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from django.db import transaction
from django.db.models import Prefetch
from django.utils import timezone

from advisor import advise
from advisor.models import Advice
from catalog.models import Accelerator
from probes import agents, calibrate, jobs, results
from probes.models import Agent, Job, Result

FRESH_DAYS = 7  # a chip measured since is not measured again for a question
MOST_MACHINES = 8  # of one question
Probed = dict[str, Any]


def sweep() -> dict[str, int]:
    """Counts of what was repaired."""
    return jobs.sweep() | {"fits_sent": calibrate.send_waiting(), "advice_released": attend()}


def attend() -> int:
    """Ask machines to measure for the questions that wait for it; let those go on that need not wait longer."""
    known = Prefetch("probe_jobs__results", Result.objects.defer("document").select_related("accelerator"))
    waiting = advise.held(timezone.now()).select_related("workload").prefetch_related(known)
    ready = [(advice.pk, outcome(advice)) for advice in waiting.order_by("created_at")[:50]]
    released = [advise.release(pk, probed) for pk, probed in ready if probed is not None]
    gone = Job.objects.filter(advice__state=Advice.State.CANCELLED, state__in=jobs.OPEN)
    for job in gone[:50]:
        jobs.cancel(job)
    return sum(released)


def outcome(advice: Advice) -> Probed | None:
    """What machines did for this question; None: they are still at it, or one may still come."""
    asked = list(advice.probe_jobs.all())
    if asked:
        return None if any(still_open(job) for job in asked) else told(asked)
    fresh, idle = dict(measured_lately(advice)), idle_machines(advice)
    if chosen := [a for slug, a in idle.items() if slug not in fresh][:MOST_MACHINES]:
        ask(advice, chosen)
        return None
    if fresh:
        chips = [f"{slug} on {day:%Y-%m-%d}" for slug, day in fresh.items()]
        return {"measured": sorted(fresh), "said": f"measured in the last {FRESH_DAYS} days: {', '.join(chips)}"}
    if advice.workload.spec["probe"] == "preferred":
        return {"measured": [], "said": "no machine with a chip that this question allows is online and free"}
    return None


def ask(advice: Advice, machines: list[Agent]) -> None:
    """A quick suite of each machine, once: two sweeps may come by at the same moment."""
    with transaction.atomic():
        if Advice.objects.select_for_update().get(pk=advice.pk).probe_jobs.exists():
            return
        for agent in machines:
            jobs.request(
                {"suite": "quick"},
                wanted_agent=agent,
                advice=advice,
                requested_by="advice",
                deadline_at=advice.held_until,
            )


def still_open(job: Job) -> bool:
    """Until its result is fitted, too: the answer is to use it."""
    used = [r for r in job.results.all() if r.state in results.USED and r.excluded_at is None]
    waits = [r for r in used if r.fitted_at is None]
    return job.state in jobs.OPEN or bool(waits)


def told(asked: list[Job]) -> Probed:
    every = [r for job in asked for r in job.results.all() if r.state in results.USED and not r.excluded_at]
    used = [r for r in every if r.calibration_id and r.waiting != sorted(r.fit or {})]
    slugs = sorted({r.accelerator.slug for r in used if r.accelerator})
    kept = [r for job in asked for r in job.results.all() if r.state == Result.State.QUARANTINED]
    failed = [job for job in asked if job.state != Job.State.DONE]
    parts = [f"{len(asked)} machine{'s' * (len(asked) > 1)} asked", f"new figures of {', '.join(slugs) or 'no chip'}"]
    parts += [f"{len(kept)} result{'s' * (len(kept) > 1)} in quarantine"] if kept else []
    waiting = [r for job in asked for r in job.results.all() if results.standing(r) == results.WAITS]
    parts += [f"{len(waiting)} result{'s' * (len(waiting) > 1)} {results.WAITS}"] if waiting else []
    parts += [f"{len(failed)} job{'s' * (len(failed) > 1)} without a result"] if failed else []
    return {"measured": slugs, "said": ", ".join(parts), "jobs": [str(job.pk) for job in asked]}


def wanted_chips(advice: Advice) -> set[str]:
    """The slugs that the question's constraints let through."""
    asked = advice.workload.spec["constraints"]
    allow, deny = asked["accelerators"]["allow"], asked["accelerators"]["deny"]
    chips = Accelerator.objects.filter(served=True).exclude(slug__in=deny).exclude(vendor__in=asked["vendors"]["deny"])
    if allow:
        chips = chips.filter(slug__in=allow)
    if asked["vendors"]["allow"]:
        chips = chips.filter(vendor__in=asked["vendors"]["allow"])
    return set(chips.values_list("slug", flat=True))


def idle_machines(advice: Advice) -> dict[str, Agent]:
    """One machine for each wanted chip that is online and runs nothing."""
    wanted, busy = wanted_chips(advice), Job.objects.filter(state__in=jobs.OPEN).exclude(wanted_agent=None)
    taken = set(busy.values_list("wanted_agent", flat=True))
    taken |= set(Job.objects.filter(state=Job.State.LEASED).values_list("agent", flat=True))
    free = [a for a in agents.online().order_by("-last_seen_at") if a.pk not in taken]
    return {a.labels["accelerator"]: a for a in free if a.labels.get("accelerator") in wanted}


def measured_lately(advice: Advice) -> Iterator[tuple[str, Any]]:
    since, wanted = timezone.now() - timedelta(days=FRESH_DAYS), wanted_chips(advice)
    rows = results.counted().filter(received_at__gt=since, accelerator__slug__in=wanted, waiting=[])
    yield from rows.exclude(fit=None).order_by("received_at").values_list("accelerator__slug", "received_at")
