"""How latencies answer to slower steps and to more load: simulated at a few loads, interpolated between them."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

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

    def at(self, figure: str, load: Array | float) -> Array:
        """The figure at this multiple of the load over that at the planned load."""
        places = np.log(np.maximum(np.asarray(load, float), 1e-9))
        return np.asarray(np.exp(np.interp(places, np.log(self.loads), np.log(self.ratios[figure]))))


def response_of(simulate: Callable[[float], Any], figures: Sequence[str] = FIGURES) -> Response:
    """The response of a deployment; `simulate` gives its latencies at a multiple of the planned load.

    All loads have the same random requests, so that what is common to them cancels in the ratios.
    """
    seen = {load: simulate(load) for load in LOADS}

    def ratios(figure: str) -> tuple[float, ...]:
        base = getattr(seen[1.0], figure)
        if not base or not math.isfinite(base):
            return (1.0,) * len(LOADS)
        over = np.array([getattr(seen[load], figure) / base for load in LOADS])
        rising = np.maximum.accumulate(np.maximum(np.where(np.isfinite(over), over, 1.0), 1e-9))
        return tuple((rising / rising[LOADS.index(1.0)]).tolist())

    return Response(loads=LOADS, ratios={figure: ratios(figure) for figure in figures})
