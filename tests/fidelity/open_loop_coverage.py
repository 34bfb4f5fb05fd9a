"""How many measured p95s of open loops are inside their 90 % intervals, by load and by model.

python -m tests.fidelity.open_loop_coverage [--points FOLDER] [--each]

The points and FOLDER are those of tests.fidelity.open_loop. Intervals are made as in answers: draws of held-out errors
of closed loops, moved through the simulated response to the load; for each point those of the other models. A measured
p95 is that of one window, so it is judged with the scatter of such windows in the simulation.
"""

import argparse
import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from advisor.engine.estimate import Resources
from advisor.engine.scheduler import Response, open_loop, response_of, scheduler_of, simulate
from advisor.engine.search import factors_of, latency_ranges
from advisor.engine.search.limits import CORRELATION
from advisor.engine.step import POISSON, Client, Demand, Lane
from advisor.engine.terms import SHARES
from advisor.engine.terms.ratio_distribution import quantile_key
from tests.fidelity.open_loop import DRAFT_MODEL, METRICS, Point, client_of, given, own, server_of

REQUESTS, WINDOWS, SEEDS = 2000, 40, 4
BANDS = {"up to 40 %": (0.0, 0.4), "40 to 75 %": (0.4, 0.75), "above 75 %": (0.75, math.inf)}  # of the capacity
TIMED_ROWS = ("h200_vllm", "h200_vllm_033")  # sources of the closed loops
KINDS = {"tpot_ms_mean": "tpot", "ttft_ms_mean": "ttft", "output_tokens_per_s": "throughput"}


@dataclass(frozen=True, kw_only=True)
class Simulated:
    """One point, simulated."""

    point: Point
    lane: Lane
    load: float  # of the capacity
    response: Response
    predicted_s: Mapping[str, float]  # p95 by metric
    windows: Mapping[str, np.ndarray]  # p95s of windows like the measured one, over the predicted one


@dataclass(frozen=True, kw_only=True)
class Covered:
    """One measured p95."""

    seen: Simulated
    metric: str
    ratio: float  # measured over predicted
    half_width: float  # of the interval in the answer: sqrt(high / low)
    low: float  # with the scatter of one window
    high: float

    @property
    def inside(self) -> bool:
        return self.low <= self.ratio <= self.high


def at_load(client: Client, load: float) -> Client:
    """The same requests, `load` times as fast."""
    if client.kind == POISSON:
        return replace(client, rate_per_s=client.rate_per_s * load)
    return replace(client, arrival_s=tuple((np.asarray(client.arrival_s) / load).tolist()))


def simulated(point: Point, resources: Resources) -> Simulated:
    """With generated arrivals; a recorded trace with its own."""
    lane, times = server_of(point, resources)
    sent, client = len(point.client.arrival_s[point.sample]), client_of(point, replay=point.recorded)

    def run(load: float, requests: int = REQUESTS, seed: int = SEEDS) -> Any:
        seen = simulate(
            times, 0, scheduler_of(lane), at_load(client, load), point.input_tokens, point.output_tokens,
            context_tokens=32768, requests=requests, seed=seed,
        )  # fmt: skip
        each = {f"{m}_p95_s": seen.percentile(f"{m}_s", 95) for m in METRICS}
        return SimpleNamespace(**each, **{f"{m}_mean_s": seen.mean(f"{m}_s") for m in METRICS})

    several = [run(1.0, seed=seed) for seed in range(1 if point.recorded else SEEDS)]
    one = [run(1.0, sent, seed) for seed in range(100, 100 + (1 if point.recorded else WINDOWS))]
    predicted = {m: float(np.mean([getattr(each, f"{m}_p95_s") for each in several])) for m in METRICS}
    prompt, output = (np.array(getattr(point.client, f"{side}_tokens")) for side in ("input", "output"))
    shared = sum(each.fraction * each.shared_tokens for each in point.prefix_classes) / float(prompt.mean())
    demand = Demand(
        input_tokens=float(prompt.mean()), output_tokens=float(output.mean()), cached_fraction=shared,
        input_cv2=float(prompt.var() / prompt.mean() ** 2), output_cv2=float(output.var() / output.mean() ** 2),
    )  # fmt: skip
    most = open_loop(times, np.array([point.rate_per_s]), demand, scheduler_of(lane)).capacity_requests_per_s
    stated = re.search(r"-[pg](\d\d)$", point.name)  # of the measured saturation
    load = int(stated[1]) / 100 if stated else point.rate_per_s / float(most[0])
    return Simulated(
        point=point, lane=lane, load=load, predicted_s=predicted,
        response=response_of(run, [f"{m}_{k}_s" for m in METRICS for k in ("mean", "p95")]),
        windows={m: np.array([getattr(each, f"{m}_p95_s") for each in one]) / predicted[m] for m in METRICS},
    )  # fmt: skip


def covered(seen: Simulated, scopes: Mapping[str, Any]) -> list[Covered]:
    """Its p95 TTFT and TPOT."""
    factors = factors_of(scopes, seen.lane)
    assert factors is not None
    found, ranges = [], latency_ranges(factors, seen.response)
    for metric in METRICS:
        draws = np.asarray(getattr(factors, metric)) * seen.response.at(f"{metric}_p95_s", factors.tpot)
        low, high = np.quantile(draws[:, None] * seen.windows[metric][None, :], (SHARES[0], SHARES[-1]))
        ends = ranges[f"{metric}_p95"]
        measured_s = seen.point.measured_ms[metric, 95] / 1e3
        found.append(
            Covered(
                seen=seen,
                metric=metric,
                ratio=measured_s / seen.predicted_s[metric],
                low=float(low),
                high=float(high),
                half_width=math.sqrt(ends[1] / ends[0]),
            )  # fmt: skip
        )
    return found


def of_other_models(scopes: Mapping[str, Any], model: str) -> dict[str, Any]:
    """The scopes, with the errors of the other models for chips and hosts that were timed."""
    from catalog.models import ScoredRow
    from tests.laboratory import reliability

    rows: dict[str, list[Any]] = {}
    for r in ScoredRow.objects.filter(source_key__in=TIMED_ROWS, phase="serving", metric__in=KINDS).exclude(
        model=model
    ):
        if r.predicted and r.measured:
            run, group = (r.key.rsplit(":", 1)[0], r.measured_on), f"{r.accelerator}/{r.model}/{r.source_key}"
            error = reliability.HeldOut(run, group, r.model, math.log(r.measured / r.predicted))
            rows.setdefault(KINDS[r.metric], []).append(error)
    known = {
        m: reliability.distribution(np.array([r.log_ratio for r in of]), [r.group for r in of])
        for m, of in rows.items()
    }
    values = {quantile_key(m, share): d.quantile(share) for m, d in known.items() for share in SHARES}
    together = reliability.correlation(reliability.pairs(rows["ttft"], rows["tpot"]))
    return {**scopes, "interval:timed": values | {CORRELATION: 1.0 if together is None else together}}


def line(title: str, found: Sequence[Covered]) -> str:
    cells = []
    for metric in METRICS:
        own = [c for c in found if c.metric == metric]
        inside = sum(c.inside for c in own)
        cells.append(f"{inside} of {len(own)} ({inside / max(len(own), 1):.0%})")
        cells.append(f"x {np.median([c.half_width for c in own]):.2f}" if own else "-")
    return f"| {title} | " + " | ".join(cells) + " |"


def report(found: Sequence[Covered]) -> None:
    """Tables as in docs/explanation/accuracy.md."""
    print("| points | TTFT p95 inside | half-width | TPOT p95 inside | half-width |\n|---|---|---|---|---|")
    for title, (low, high) in BANDS.items():
        print(line(title, [c for c in found if low < c.seen.load <= high]))
    for name in sorted({(c.seen.point.case.model_id, c.seen.point.case.weights_dtype) for c in found}):
        own = [c for c in found if (c.seen.point.case.model_id, c.seen.point.case.weights_dtype) == name]
        print(line(" ".join(name), own))
    print(line("all", found))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=Path, metavar="FOLDER")
    parser.add_argument("--each", action="store_true", help="also print every point")
    options = parser.parse_args()
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "advisor.settings")
    import django

    django.setup()
    from advisor.inputs import catalog_resources

    points = (given(options.points) if options.points else []) + own()
    resources = catalog_resources(sorted({p.case.model_id for p in points} | {DRAFT_MODEL}))
    found = []
    for point in points:
        each = covered(simulated(point, resources), of_other_models(resources.scopes, point.case.model_id))
        found += each
        for c in each if options.each else ():
            print(
                f"{point.name:40s} {c.seen.load:5.0%} {c.metric} {c.ratio:5.2f} of [{c.low:.2f}, {c.high:.2f}], "
                f"x {c.half_width:.2f} {'' if c.inside else 'OUTSIDE'}",
                flush=True,
            )
    report(found)


if __name__ == "__main__":
    main()
