"""A batch in the JSON of `advise`: how long one run takes, what it costs, and until when it is done."""

from collections.abc import Mapping
from typing import Any

from advisor.engine.search import BY_THE_HOUR, Scored
from advisor.engine.spec import BATCH, Workload
from advisor.inputs import number

Json = dict[str, Any]


def figures(workload: Workload, s: Scored) -> Json:
    """`batch` of an R: {requests, run_hours, deadline_hours, every_hours, usd_per_run, given_back}; else nothing.

    usd_per_hour is then over all hours: what is rented without a term is given back after each run.
    """
    if workload.kind != BATCH or workload.deadline_s is None:
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


def verdict(r: Mapping[str, Any]) -> str:
    """The end of the sentence that tells the first choice; empty: not a batch."""
    if "batch" not in r:
        return ""
    b = r["batch"]
    return f"${b['usd_per_run']:,.2f} a run of {b['run_hours']:.2g} h within the {b['deadline_hours']:g} h allowed"


def reasons(r: Mapping[str, Any]) -> list[str]:
    """What the money of a batch rests on."""
    if "batch" not in r:
        return []
    b = r["batch"]
    paid = "given back after each run" if b["given_back"] else "paid between the runs too"
    return [
        f"{b['requests']:,} requests take {b['run_hours']:.3g} h with every seat taken, as simulated; "
        f"{b['deadline_hours']:g} h are allowed, again every {b['every_hours']:g} h; the machines are {paid}",
        f"in it a start of {b['start_hours'] * 60:.3g} minutes until the weights are loaded (tco.cold-start-s) "
        "and the last answers, which leave seats empty",
    ]
