"""The work that one answer may take, counted in simulated steps so that the answer does not depend on the machine."""

from dataclasses import dataclass, field

# A unit is a step of a simulated server, about 5 ns: 4 s together.
MOST_WORK = 8.0e8
CHOICE_FRACTION = 0.6  # of it for the ranking; the rest is for what is said beside it
WORK_PER_REQUEST = 100.0  # to draw a request and to sort its latencies


class OutOfWork(Exception):
    """No work is left for a stage that can be left out."""


@dataclass(kw_only=True, slots=True)
class Effort:
    """Work spent on one answer, and what was left out because no more was left."""

    spent: float = 0.0
    left_out: dict[str, None] = field(default_factory=dict)  # in order, each once

    def add(self, steps: float, requests: int) -> None:
        self.spent += steps + WORK_PER_REQUEST * requests

    def allows(self, stage: str, fraction: float = 1.0, since: float = 0.0) -> bool:
        """Whether less than this fraction of all work is spent, or was after `since`; else notes what is left out."""
        if self.spent < min(since + fraction * MOST_WORK, MOST_WORK):
            return True
        self.left_out[stage] = None
        return False
