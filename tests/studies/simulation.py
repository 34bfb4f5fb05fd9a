"""Many workers share a study in simulated time: the real claims, finishes, messages and sweeps on a fake clock.

Only the calculation of a piece is simulated, by a duration. The model that docs/how-to/studies.md states is `model`.
"""

import heapq
import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from unittest import mock

from django.conf import settings

from advisor import advise
from advisor.models import Study, StudyPiece
from advisor.studies import pieces
from tests.ops import drills


@dataclass(frozen=True, kw_only=True)
class Costs:
    """Seconds of what workers do beside answering."""

    latency_s: float  # from a message to the worker that takes it
    claim_s: float  # to claim a piece and read its rows
    finish_s: float  # to store its results


def model(seconds: list[float], workers: int, costs: Costs) -> tuple[float, float]:
    """(least, most) seconds that the pieces of a study take, without lost workers.

    Least: no worker waits, because messages wait for workers. Most: every piece waits for its message, and the longest
    starts when the others are through (Graham's bound, which holds for any order).
    """
    each = [s + costs.claim_s + costs.finish_s for s in seconds]
    least = max(sum(each) / workers, max(each))
    late = [s + costs.latency_s for s in each]
    return least, (sum(late) - max(late)) / workers + max(late)


@dataclass
class Outcome:
    seconds: float  # from the first answer's start to the end of the study
    busy_fraction: float  # share of the workers' time that answers pieces
    computed: dict[int, int] = field(default_factory=dict)  # times that each piece was finished
    deaths: int = 0
    sweeps_requeued: int = 0


def simulate(
    study: Study,
    workers: int,
    duration: Callable[[int], float],
    costs: Costs,
    deaths: dict[int, float] | None = None,
    lost_message: Callable[[int], bool] = lambda number: False,
) -> Outcome:
    """Runs an open study to its end.

    duration: seconds of the piece with this index. deaths: fraction of its first attempt at which the worker of a
    piece dies; a new worker replaces it at once. lost_message: whether the broker loses the message with this number.
    """
    deaths = dict(deaths or {})
    found = Outcome(0.0, 0.0)
    order = itertools.count()
    events: list[tuple[float, int, str, Any]] = []
    queue: list[list[Any]] = []
    idle = workers
    busy_s, now_s = 0.0, 0.0
    numbers = itertools.count()

    def at(seconds: float, what: str, value: Any = None) -> None:
        heapq.heappush(events, (now_s + seconds, next(order), what, value))

    def send(name: str, args: list[Any], **options: Any) -> None:
        if not lost_message(next(numbers)):
            at(costs.latency_s, "message", args)

    with mock.patch.object(pieces.app, "send_task", send), drills.scheduled() as clock:
        start = clock.at

        def tick(to_s: float) -> None:
            clock.at = max(clock.at, start + timedelta(seconds=to_s))

        pieces.drain_reads(study.pk)
        at(settings.ADVICE_SWEEP_S, "sweep")
        while events:
            now_s, _, what, value = heapq.heappop(events)
            tick(now_s)
            if what == "message":
                queue.append(value)
            elif what == "sweep":
                found.sweeps_requeued += pieces.sweep()["requeued"]
                if Study.objects.filter(pk=study.pk, state__in=advise.OPEN).exists():
                    at(settings.ADVICE_SWEEP_S, "sweep")
            elif what == "renew":
                claim, ends_s = value
                if ends_s > now_s and claim.hold():
                    at(settings.ADVICE_LEASE_S / 3, "renew", value)
            elif what == "death":
                idle += 1
                found.deaths += 1
            elif what == "finish":
                claim, message, index = value
                claim.finish([{"point": index}], 1.0, 0.0)
                found.computed[index] = found.computed.get(index, 0) + 1
                pieces.settle(study.pk)
                pieces.pass_on(*message)
                idle += 1
                found.seconds = now_s
            while idle and queue:
                message = queue.pop(0)
                if not pieces.is_live(*message):
                    continue
                taken = pieces.next_claim()
                if not isinstance(taken, pieces.PieceClaim):
                    continue
                idle -= 1
                index, attempt = StudyPiece.objects.values_list("index", "attempt").get(pk=taken.pk)
                takes_s = duration(index)
                busy_s += takes_s
                whole_s = costs.claim_s + takes_s + costs.finish_s
                dies = deaths.pop(index, None)
                if dies is not None:
                    at(dies * whole_s, "death")
                    busy_s -= takes_s
                    whole_s = dies * whole_s
                else:
                    at(whole_s, "finish", (taken, message, index))
                if whole_s > settings.ADVICE_LEASE_S / 3:
                    at(settings.ADVICE_LEASE_S / 3, "renew", (taken, now_s + whole_s))
    found.busy_fraction = busy_s / (workers * found.seconds) if found.seconds else 0.0
    return found


def as_measured(seed: int, count: int, measured: list[float]) -> list[float]:
    """Durations drawn from those that were measured."""
    rng = random.Random(seed)
    return [rng.choice(measured) for _ in range(count)]
