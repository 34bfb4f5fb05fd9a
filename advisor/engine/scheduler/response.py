"""How latencies answer to slower steps, more load and burstier arrivals: simulated at a few, interpolated between."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from advisor.engine.terms import Z95

Array = np.ndarray
LOADS = (0.75, 0.9, 1.0, 1.1, 1.25, 1.6)  # over the planned one; beyond them, latencies grow with the steps alone
FIGURES = ("ttft_mean_s", "ttft_p95_s", "tpot_mean_s", "tpot_p95_s", "e2e_p95_s")


@dataclass(frozen=True, kw_only=True, slots=True)
class Response:
    """Latencies at other loads over those at the planned load, with the same step times and the same requests.

    Steps that take f times as long, under g times the arrivals, are the same queue seen on a clock that runs f times
    slower, under f * g times the arrivals: each latency is exactly f times that at f * g times the load. So one curve
    serves errors of the steps and of the load.
    """

    loads: tuple[float, ...]  # ascending
    ratios: Mapping[str, tuple[float, ...]]  # of each figure, at each load; they do not fall
    burstier: Mapping[str, float] = field(default_factory=dict)  # ratio at the upper end of an assumed burstiness

    def at(self, figure: str, load: Array | float, bursts: Array | float = 0.0) -> Array:
        """The figure at this multiple of the load over that at the planned load.

        bursts: standard normal value of the burstiness, whose upper end is at 95 %; less of it gains in proportion.
        """
        places = np.log(np.maximum(np.asarray(load, float), 1e-9))
        logs = np.interp(places, np.log(self.loads), np.log(self.ratios[figure]))
        return np.asarray(np.exp(logs + np.asarray(bursts, float) / Z95 * math.log(self.burstier.get(figure, 1.0))))


def response_of(simulate: Callable[[float], Any], figures: Sequence[str] = FIGURES, burstier: Any = None) -> Response:
    """The response of a deployment; `simulate` gives its latencies at a multiple of the planned load.

    burstier: the same with the most bursty arrivals; None: burstiness is known. All have the same random requests, so
    that what is common to them cancels in the ratios.
    """
    seen = {load: simulate(load) for load in LOADS}

    def ratios(figure: str) -> tuple[float, ...]:
        base = getattr(seen[1.0], figure)
        if not base or not math.isfinite(base):
            return (1.0,) * len(LOADS)
        over = np.array([getattr(seen[load], figure) / base for load in LOADS])
        rising = np.maximum.accumulate(np.maximum(np.where(np.isfinite(over), over, 1.0), 1e-9))
        return tuple((rising / rising[LOADS.index(1.0)]).tolist())

    def most(figure: str) -> float:
        base, high = getattr(seen[1.0], figure), getattr(burstier, figure)
        return max(high / base, 1.0) if base and math.isfinite(base) and math.isfinite(high) else 1.0

    return Response(
        loads=LOADS,
        ratios={figure: ratios(figure) for figure in figures},
        burstier={} if burstier is None else {figure: most(figure) for figure in figures},
    )
