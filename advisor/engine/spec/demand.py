"""Demand over time: the hours of a week, users who think between requests, and a recorded trace."""

from collections.abc import Sequence
from dataclasses import dataclass

WEEK_HOURS = 168
# a declared convention, not a measurement: full from 9 to 17 on Monday to Friday, half in the hour before and after
EDGE_FRACTION, QUIET_FRACTION = 0.5, 0.1


def office_hours() -> tuple[float, ...]:
    """Load of each hour from Monday 0:00, as a share of the busiest."""
    day = [QUIET_FRACTION] * 8 + [EDGE_FRACTION] + [1.0] * 8 + [EDGE_FRACTION] + [QUIET_FRACTION] * 6
    return tuple(day * 5 + [QUIET_FRACTION] * 48)


def week_of(curve: str | Sequence[float]) -> tuple[float, ...]:
    """Shares of the busiest hour, 168 from Monday 0:00; empty: the same all week."""
    if curve == "office_hours":
        return office_hours()
    if isinstance(curve, str):
        return ()
    most = max(curve) or 1.0  # zero all week is refused where it is asked
    found = tuple(hour / most for hour in curve)
    return () if min(found) == 1.0 else found


def mean_fraction(week: Sequence[float]) -> float:
    """Mean load of a week as a share of its busiest hour."""
    return (sum(week) / WEEK_HOURS if week else 1.0) or 1.0  # zero all week is refused where it is asked


@dataclass(frozen=True, kw_only=True, slots=True)
class Users:
    """A closed population at its busiest: each user reads and thinks before the next request."""

    active_requests: float  # users, each with at most one request
    think_s: float

    def requests_per_s(self, e2e_s: float) -> float:
        """What they ask together when an answer takes so long on average."""
        return self.active_requests / (self.think_s + e2e_s)


@dataclass(frozen=True, kw_only=True, slots=True)
class Trace:
    """Requests as they were recorded, in order of arrival."""

    arrival_s: tuple[float, ...]
    input_tokens: tuple[int, ...]
    output_tokens: tuple[int, ...]

    def dealt(self, replicas: int) -> "Trace":
        """The share of one of so many lanes when requests are dealt to them in turn."""
        return Trace(
            arrival_s=self.arrival_s[::replicas],
            input_tokens=self.input_tokens[::replicas],
            output_tokens=self.output_tokens[::replicas],
        )


def needed_by_hour(week: Sequence[float], carrying: int) -> list[int]:
    """Replicas that carry each hour at no more than the load for each at which the peak was simulated."""
    return [max(-int(-carrying * hour // 1), 1) if hour > 0 else 0 for hour in week]
