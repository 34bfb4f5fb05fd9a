"""Demand over time: a weekly load curve, users with think time, and a recorded trace."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

WEEK_HOURS = 168
# Our convention, not a measurement: full load from 9 to 17 on Monday to Friday, half in the hour before and after.
EDGE_FRACTION, QUIET_FRACTION = 0.5, 0.1


def office_hours() -> tuple[float, ...]:
    """Load of each of the 168 hours from Monday 0:00, as a fraction of the busiest hour."""
    day = [QUIET_FRACTION] * 8 + [EDGE_FRACTION] + [1.0] * 8 + [EDGE_FRACTION] + [QUIET_FRACTION] * 6
    return tuple(day * 5 + [QUIET_FRACTION] * 48)


def week_of(curve: str | Sequence[float]) -> tuple[float, ...]:
    """Load of the 168 hours from Monday 0:00 as a fraction of the busiest hour; empty: constant load."""
    if curve == "office_hours":
        return office_hours()
    if isinstance(curve, str):
        return ()
    peak = max(curve) or 1.0  # the workload schema refuses a week of zeros
    week = tuple(hour / peak for hour in curve)
    return () if min(week) == 1.0 else week


def mean_fraction(week: Sequence[float]) -> float:
    """Mean load of a week as a fraction of its busiest hour; 1 for constant load."""
    return (sum(week) / WEEK_HOURS if week else 1.0) or 1.0  # the workload schema refuses a week of zeros


@dataclass(frozen=True, kw_only=True, slots=True)
class Users:
    """A fixed number of users at peak; each reads and thinks before the next request."""

    active_requests: float  # users, each with at most one request in flight
    think_s: float

    def requests_per_s(self, e2e_s: float) -> float:
        """Requests per second of all users when a request takes e2e_s on average."""
        return self.active_requests / (self.think_s + e2e_s)


@dataclass(frozen=True, kw_only=True, slots=True)
class Trace:
    """Recorded requests in order of arrival."""

    arrival_s: tuple[float, ...]
    input_tokens: tuple[int, ...]
    output_tokens: tuple[int, ...]

    def total_tokens(self, share: float) -> float:
        """Prompt plus answer that this share of the requests does not exceed."""
        totals = sorted(map(sum, zip(self.input_tokens, self.output_tokens, strict=True)))
        return float(totals[max(math.ceil(share * len(totals) - 1e-9) - 1, 0)])

    def for_replica(self, replicas: int) -> "Trace":
        """The requests of one replica when `replicas` of them get requests in turn (round robin)."""
        return Trace(
            arrival_s=self.arrival_s[::replicas],
            input_tokens=self.input_tokens[::replicas],
            output_tokens=self.output_tokens[::replicas],
        )


def needed_by_hour(week: Sequence[float], carrying: int) -> list[int]:
    """Replicas needed in each hour so that none has more load than at the peak, when `carrying` replicas serve it."""
    return [max(-int(-carrying * hour // 1), 1) if hour > 0 else 0 for hour in week]
