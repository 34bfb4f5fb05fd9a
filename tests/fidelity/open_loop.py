"""Predicted / measured percentiles of open loops, with the server's own settings.

python -m tests.fidelity.open_loop [--points FOLDER] [--each]

Every point is predicted twice: replaying its very arrivals and lengths, and with arrivals generated from what is known
of the traffic. FOLDER has h200_open_loop.csv and h200_open_loop_requests.csv.xz; without it, only this repository's own
points are scored (fixtures/measurements/*open-loop*).
"""

import argparse
import csv
import lzma
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from advisor.engine.estimate import Resources, prepare
from advisor.engine.estimate.simulated import SETTLING_ROUNDS
from advisor.engine.network import Adapters
from advisor.engine.scheduler import Simulation, scheduler_of, simulate
from advisor.engine.step import POISSON, TRACE, Client, Lane, StepTimes, lanes
from advisor.engine.terms import Case, Lengths, Pool, PrefixClass, Protocol

OWN = Path("fixtures/measurements")
FILES = ("hopper-vllm-033-open-loop-3", "hopper-vllm-033-open-loop-2", "h200-vllm-033-open-loop")
PERCENTILES = (50, 95, 99)
METRICS = ("ttft", "tpot")
NOISE = {"ttft": 0.20, "tpot": 0.10}  # 90 % interval of a measured p95, block bootstrap, median point
SEEDS, REQUESTS = 4, 4000
SHARED = {  # traffic of the given points
    "pc50": (PrefixClass(fraction=1.0, shared_tokens=1248, prefixes=8),),
    "pcmix": (PrefixClass(fraction=0.5, shared_tokens=2000, prefixes=8),),
}
DRAFT_MODEL, ADAPTER_RANK = "meta-llama/Llama-3.2-1B", 16
BEFORE_S, AFTER_S = 20.0, 15.0  # of load around a window of the given points


@dataclass(frozen=True, kw_only=True)
class Point:
    """One measured open loop."""

    name: str
    group: str
    held_out: bool
    case: Case
    client: Client  # the measured arrivals and lengths
    sample: slice  # of them, the requests that were measured
    rate_per_s: float
    arrival_cv: float
    input_tokens: Lengths
    output_tokens: Lengths
    prefix_classes: tuple[PrefixClass, ...]
    measured_ms: dict[tuple[str, int], float]
    recorded: bool = False  # arrivals of a recorded trace, which only a replay predicts
    partial: bool = False  # not every request is known, so that nothing can be replayed
    kv_cache_tokens: float = 0.0  # of the server, where it was set; 0: what fits
    adapters: int = 0


def table(path: Path) -> Iterator[dict[str, str]]:
    text = lzma.open(path, "rt") if path.suffix == ".xz" else path.open(encoding="utf-8")
    with text as lines:
        yield from csv.DictReader(lines)


def requests_of(path: Path, arrival: str) -> dict[str, np.ndarray]:
    """Point -> rows of (arrival s, input tokens, output tokens, 1 in the measured window, shared tokens)."""
    found: dict[str, list[tuple[float, ...]]] = {}
    for row in table(path):
        measured, shared = row.get("phase", "window") == "window", row.get("shared_tokens") or 0
        tokens = float(row["isl"]), float(row.get("tokens") or row["osl"])
        found.setdefault(row["point"], []).append((float(row[arrival]), *tokens, float(measured), float(shared)))
    return {point: np.array(sorted(rows)) for point, rows in found.items()}


def prefixes_of(rows: np.ndarray) -> tuple[PrefixClass, ...]:
    """The class of the requests that share a prefix with others, one of eight."""
    shared = rows[:, 4]
    if not shared.any():
        return ()
    return (PrefixClass(fraction=float((shared > 0).mean()), shared_tokens=float(shared.max()), prefixes=8),)


def replay_of(rows: np.ndarray) -> Client:
    return Client(
        kind=TRACE,
        arrival_s=tuple(rows[:, 0] - rows[0, 0]),
        input_tokens=tuple(rows[:, 1].astype(int).tolist()),
        output_tokens=tuple(np.maximum(rows[:, 2].astype(int), 1).tolist()),
    )


def under_load(rows: np.ndarray, window_s: float) -> tuple[np.ndarray, slice]:
    """(the window with load before and after it, as if it repeated, place of its own requests)."""
    before, after = rows[rows[:, 0] > window_s - BEFORE_S], rows[rows[:, 0] < AFTER_S]
    shift = np.array([window_s, 0.0, 0.0, 0.0, 0.0])
    return np.concatenate([before - shift, rows, after + shift]), slice(len(before), len(before) + len(rows))


def case_of(row: dict[str, str], *, http: bool, max_batched_tokens: int, max_batch: int) -> Case:
    framework, version = row["framework"].split()
    return Case(
        model_id=row["model_id"],
        accelerator_slug=row["accelerator_slug"],
        chips=1,
        weights_dtype=row["weights_dtype"],
        framework=framework,
        framework_version=version,
        isl=float(row["isl_mean"]),
        osl=float(row["osl_mean"]),
        phase="serving",
        pool=Pool(),
        kv_dtype="bf16",
        max_batch=max_batch,
        max_batched_tokens=max_batched_tokens,
        memory_fraction=0.9,
        client=Protocol(http=http),
        routing_evenness=1e6,  # dummy weights
    )


def given(folder: Path) -> list[Point]:
    """The given points: vLLM 0.24.0 without HTTP."""
    rows_of = requests_of(folder / "h200_open_loop_requests.csv.xz", "t_arrival_s")
    points = []
    for row in table(folder / "h200_open_loop.csv"):
        name = row["id"].removeprefix("h200ol_")
        bursty, shared = row["arrivals"] != "poisson", float(row["shared_prefix_fraction"])
        kind = "bursty" if bursty else "shared prefixes" if shared else "Poisson"
        budget, seats = int(row["max_num_batched_tokens"]), int(row["max_num_seqs"])
        rows, sample = under_load(rows_of[name], float(row["window_s"]))
        points.append(
            Point(
                name=name,
                group=f"given, {row['model']} {row['weights_dtype']}, {kind}",
                held_out=False,
                case=case_of(row, http=False, max_batched_tokens=budget, max_batch=seats),
                client=replay_of(rows),
                sample=sample,
                rate_per_s=float(row["rate_req_s"]),
                arrival_cv=float(row["arrival_cv"]),
                input_tokens=lengths(row["input_mean_nominal"], row["input_p95_nominal"]),
                output_tokens=lengths(row["output_mean_nominal"], row["output_p95_nominal"]),
                prefix_classes=SHARED.get(row["traffic"], ()),
                measured_ms={(m, p): float(row[f"{m}_p{p}_ms"]) for m in METRICS for p in PERCENTILES},
            )
        )
    return points


def own() -> list[Point]:
    """This repository's points: vLLM 0.33.0 over HTTP. Lengths are those of the requests."""
    points = []
    for name in FILES:
        path = OWN / f"{name}-requests.csv"
        rows_of = requests_of(path if path.exists() else path.with_suffix(".csv.xz"), "arrival_s")
        for row in table(OWN / f"{name}.csv"):
            rows = rows_of[row["point"]]
            window = np.flatnonzero(rows[:, 3])
            measured = rows[window]
            row |= {"isl_mean": str(measured[:, 1].mean()), "osl_mean": str(measured[:, 2].mean())}
            cv, budget = float(row.get("arrival_cv") or 1.0), int(row.get("max_batched_tokens") or 8192)
            case = replace(case_of(row, http=True, max_batched_tokens=budget, max_batch=1024), **drafting(row))
            points.append(
                Point(
                    name=row["point"],
                    group=f"own, {row['model_id'].split('/')[1]} {row['weights_dtype']}, {row['accelerator_slug']}",
                    held_out=row["held_out"] == "1",
                    case=case,
                    client=replay_of(rows),
                    sample=slice(int(window[0]), int(window[-1]) + 1),
                    rate_per_s=float(row["requests_per_s"]),
                    arrival_cv=cv,
                    input_tokens=lengths(row["isl_mean"], row["isl_mean"]),
                    output_tokens=lengths(row["osl_mean"], row["osl_mean"]),
                    prefix_classes=prefixes_of(measured),
                    measured_ms={(m, p): float(row[f"{m}_ms_p{p}"]) for m in METRICS for p in PERCENTILES},
                    recorded=row["arrivals"] == "trace",
                    partial=float(row.get("recorded_fraction") or 1.0) < 1.0,
                    kv_cache_tokens=float(row.get("kv_cache_tokens") or 0.0),
                    adapters=int(row.get("adapters") or 0),
                )
            )
    return points


def drafting(row: Mapping[str, str]) -> dict[str, Any]:
    """The drafts of a row as fields of a case; a draft model's acceptance was set, n-grams were never accepted."""
    if not int(row.get("draft_tokens") or 0):
        return {}
    by_model = "-draft-" in row["point"]
    return {
        "speculative": "draft" if by_model else "ngram",
        "speculative_tokens": int(row["draft_tokens"]),
        "acceptance_fraction": 0.7 if by_model else 1e-9,
        "draft_model": DRAFT_MODEL if by_model else None,
    }


def lengths(mean: str, p95: str) -> Lengths:
    return Lengths(mean_tokens=float(mean), p95_tokens=float(p95))


def server_of(point: Point, resources: Resources, drafted: float = 1.0) -> tuple[Lane, StepTimes]:
    """The lane of a point and its step times, with as many adapters and as much cache as the server had.

    drafted: requests that decode together, on which the cost of drafts depends.
    """
    model, prepared = resources.models[point.case.model_id], prepare(point.case, resources)
    assert not isinstance(prepared, str), prepared
    (lane,) = prepared
    if point.adapters:
        model = replace(model, adapters=Adapters(count=point.adapters, rank=ADAPTER_RANK, active=point.adapters))
    times = lanes(model, [replace(lane, drafted_requests=drafted)]).times
    if point.kv_cache_tokens:
        times = replace(times, kv_capacity_tokens=np.array([point.kv_cache_tokens]))
    return lane, times


def client_of(point: Point, *, replay: bool) -> Client:
    """The very arrivals of a point, or arrivals as they are stated."""
    client = point.client
    if not replay:
        client = Client(kind=POISSON, rate_per_s=point.rate_per_s, arrival_cv=point.arrival_cv)
        if point.case.client.http:  # traffic that is only known by its requests
            own = {side: getattr(point.client, side)[point.sample] for side in ("input_tokens", "output_tokens")}
            client = replace(client, **own)
    return replace(client, prefix_classes=point.prefix_classes)


def predicted(point: Point, resources: Resources, *, replay: bool) -> list[Simulation]:
    """Simulations of a point: one replay, or several with generated arrivals."""
    lane, times = server_of(point, resources)
    client = client_of(point, replay=replay)
    runs = simulated(point, lane, times, client, replay=replay)
    for _ in range(SETTLING_ROUNDS if lane.draft else 0):
        running = float(np.mean([run.running_requests_mean for run in runs]))
        _, times = server_of(point, resources, max(running, 1.0))
        runs = simulated(point, lane, times, client, replay=replay)
    return runs


def simulated(point: Point, lane: Lane, times: StepTimes, client: Client, *, replay: bool) -> list[Simulation]:
    return [
        simulate(
            times,
            0,
            scheduler_of(lane),
            client,
            point.input_tokens,
            point.output_tokens,
            context_tokens=32768,
            requests=REQUESTS,
            seed=seed,
        )
        for seed in range(1 if replay else SEEDS)
    ]


def sampled(run: Simulation, metric: str, sample: slice) -> np.ndarray:
    if metric == "ttft":
        return run.ttft_s[sample]
    seconds = np.full(len(run.ttft_s), np.nan)
    seconds[run.output_tokens > 1] = run.tpot_s
    return seconds[sample][run.output_tokens[sample] > 1]


Ratios = dict[tuple[str, int], float]


def ratios_of(point: Point, resources: Resources, *, replay: bool) -> Ratios:
    """Predicted / measured by metric and percentile; percentiles of generated arrivals are over all seeds together."""
    runs = predicted(point, resources, replay=replay)
    found = {}
    sample = point.sample if replay else slice(None)
    for metric in METRICS:
        values = np.concatenate([sampled(run, metric, sample) for run in runs])
        for p, value in zip(PERCENTILES, np.percentile(values, PERCENTILES), strict=True):
            found[metric, p] = float(value) * 1e3 / point.measured_ms[metric, p]
    return found


def line(name: str, ratios: Ratios) -> str:
    return f"{name:58s}" + "".join(f"{ratios[m, p]:7.2f}" for m in METRICS for p in PERCENTILES)


def error_line(name: str, all_ratios: Sequence[Ratios]) -> str:
    errors = {key: float(np.median([abs(r[key] - 1) for r in all_ratios])) for key in all_ratios[0]}
    return f"{name + f' ({len(all_ratios)})':58s}" + "".join(f"{errors[k] * 100:6.1f}%" for k in errors)


def report(points: Sequence[Point], resources: Resources, *, each: bool) -> None:
    heads = "".join(f"{m[:2]} p{p}".rjust(7) for m in METRICS for p in PERCENTILES)
    for replay in (True, False):
        shown = [p for p in points if not (p.partial if replay else p.recorded)]
        found = {p.name: ratios_of(p, resources, replay=replay) for p in shown}
        print(f"\n{'same arrivals' if replay else 'generated arrivals':58s}{heads}")
        if each:
            for p in shown:
                print(line(f"{p.name}{' *' if p.held_out else ''}", found[p.name]))
            print("median |predicted / measured - 1|")
        groups = {p.group for p in shown}
        for group in sorted(groups):
            print(error_line(group, [found[p.name] for p in shown if p.group == group]))
        for title, chosen in (
            ("given", [p for p in shown if p.group.startswith("given")]),
            ("own, not held out", [p for p in shown if p.group.startswith("own") and not p.held_out]),
            ("own, held out", [p for p in shown if p.held_out]),
        ):
            if chosen:
                print(error_line(title, [found[p.name] for p in chosen]))
    print(f"noise floor of a measured p95: TTFT {NOISE['ttft']:.0%}, TPOT {NOISE['tpot']:.0%}")


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
    report(points, catalog_resources(sorted({p.case.model_id for p in points} | {DRAFT_MODEL})), each=options.each)


if __name__ == "__main__":
    main()
