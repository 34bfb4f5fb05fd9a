"""One sizing question to aiconfigurator, in its own environment; the last line is JSON: points, wall and CPU seconds.

Run by that environment's Python, never imported. The arguments are those of its command line. It evaluates one
(layout, batch, prompt tokens) point in each call of its predictor: these are counted.
"""

import json
import resource
import time
from collections.abc import Callable
from typing import Any


def counted(function: Callable[..., Any], calls: list[int]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        calls[0] += 1
        return function(*args, **kwargs)

    return call


def main() -> None:
    began = time.perf_counter()
    from aiconfigurator.main import main as ask  # type: ignore[import-not-found]
    from aiconfigurator.sdk.predictor import AnalyticPredictor  # type: ignore[import-not-found]

    calls = [0]
    for name in ("predict_agg_worker", "predict_disagg_worker"):
        setattr(AnalyticPredictor, name, counted(getattr(AnalyticPredictor, name), calls))
    ask()
    used = resource.getrusage(resource.RUSAGE_SELF)
    print(json.dumps({
        "candidates": calls[0],
        "wall_s": time.perf_counter() - began,
        "cpu_s": used.ru_utime + used.ru_stime,
    }))  # fmt: skip


if __name__ == "__main__":
    main()
