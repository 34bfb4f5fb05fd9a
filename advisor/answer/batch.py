"""A batch in the JSON of `advise`: how long one run takes, what it costs, and until when it is done."""

from collections.abc import Mapping
from typing import Any

from advisor.engine.search import BY_THE_HOUR, Scored
from advisor.engine.spec import JobRun, Workload
from advisor.inputs import number

Json = dict[str, Any]


def figures(workload: Workload, s: Scored) -> Json:
    """`batch` of an R: {requests, run_hours, deadline_hours, every_hours, usd_per_run, given_back}; else nothing.

    usd_per_hour is then over all hours: what is rented without a term is given back after each run.
    """
    if not workload.kind.has_deadline or workload.deadline_s is None:
        return {}
    requests = workload.requests_per_s_peak * workload.deadline_s
    every_s = requests / workload.requests_per_s_mean
    return {
        "batch": {
            "requests": round(requests),
            "run_hours": number(s.verified.late_fraction * workload.deadline_s / 3600),
            "start_hours": number(workload.cold_start_s / 3600),
            "deadline_hours": number(workload.deadline_s / 3600),
            "every_hours": number(every_s / 3600),
            "usd_per_run": number(s.usd_per_hour * every_s / 3600),
            "given_back": s.offer.term in BY_THE_HOUR,
        }
    }


def run_of(r: Mapping[str, Any]) -> JobRun | None:
    """The run that an option's `batch` describes; None: it has none."""
    if "batch" not in r:
        return None
    b = r["batch"]
    return JobRun(
        requests=b["requests"],
        hours=b["run_hours"],
        start_hours=b["start_hours"],
        deadline_hours=b["deadline_hours"],
        every_hours=b["every_hours"],
        usd=b["usd_per_run"],
        released=b["given_back"],
    )
