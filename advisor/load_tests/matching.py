"""Which factor on all step times makes the simulation of a load test's own load agree with what it measured.

A factor on steps carries over to other loads, as queues follow from it; a factor on a percentile does not. The load is
that of the file: its rate and burstiness, its lengths, and its arrivals where it has them.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from statistics import fmean, stdev
from typing import Any

from advisor.engine.estimate import Resources, prepare
from advisor.engine.network import Model
from advisor.engine.scheduler import SEED, Simulation, scheduler_of, shares_prefixes, simulate
from advisor.engine.step import BURST, POISSON, TRACE, Client, Lane, lanes
from advisor.engine.terms import Case, Correction, Lengths, Pool
from advisor.inputs import catalog_resources, measured
from advisor.models import Option
from advisor.result import Option as Deployment
from catalog.models import ServedModel

Json = dict[str, Any]
METRICS = ("ttft", "tpot")
STATISTICS = ("mean", "p50", "p95", "p99")
FLOOR = {"ttft": 0.05, "tpot": 0.02}  # natural log: what clients add, such as their own lag, and rounding
DRAWS = 5  # of the requests, from which the noise of a figure follows
MOST_STEP = 0.1  # natural log: the mean of several draws moves the factor by no more
SLOPE = 0.05  # natural log of the factor, for the sensitivity of figures to it
FAILED_FRACTION = 0.01  # with more failures, the served requests are not representative
FACTORS = (0.5, 2.0)
GRID = 9
REFINED = 8  # golden sections of the best two intervals
REQUESTS = 2000
MAX_P95 = 3.8  # times the mean: just below the most of a log-normal
MOST_REQUESTS = 20_000  # of a closed loop: what follows them is like them
MOST_CV = 20.0
RATES_PER_S = (1e-4, 1e6)
SAME_LENGTH = 0.1  # the workload's spread of lengths is that of a run with these means


class Unmatched(ValueError):
    """Why a load test cannot be simulated; the message follows `not simulated:`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Matched:
    """What a load test says about the steps of its deployment."""

    time_factor: float  # on the steps of physics alone
    log_sd: float
    load: str  # that was simulated, in words

    def as_json(self) -> Json:
        return asdict(self)


@dataclass(frozen=True, kw_only=True, slots=True)
class Load:
    """The load of a run, as the simulation sends it to one lane."""

    client: Client
    inputs: Lengths
    outputs: Lengths
    said: str
    concurrency: int = 1


def matched(option: Option, deployment: Deployment, found: Mapping[str, Any]) -> Matched:
    """The step factor of a load test. Unmatched: it cannot be simulated, with the reason."""
    run = _run_of(option, deployment, found)
    seen = {m: {k: v for k, v in found[f"{m}_ms"].items() if k in STATISTICS and v > 0} for m in METRICS}
    if not any(seen.values()):
        raise Unmatched("its result has neither TTFT nor TPOT")
    noise: Json = {m: dict.fromkeys(STATISTICS, FLOOR[m]) for m in METRICS}
    factor = _best(lambda f: misfit(run.figures(f), seen, noise))
    slopes = _slopes(run, factor)
    if run.load.client.kind != TRACE:  # the requests of the run are another draw than those of the simulation
        draws = run.draws(factor)
        noise = noise_of(draws)
        factor *= math.exp(_step(draws, seen, noise, slopes))
    chi = math.sqrt(misfit(run.expected(factor), seen, noise) / sum(map(len, seen.values())))
    return Matched(
        time_factor=round(factor, 4),
        log_sd=round(_factor_sd(seen, noise, slopes) * max(chi, 1.0), 4),
        load=run.load.said,
    )


def noise_of(draws: Sequence[Json]) -> Json:
    """Standard deviation of the log of each figure of a run around the mean of these draws."""
    found: Json = {}
    for m in METRICS:
        logs = {k: [_log(draw[m][k]) for draw in draws] for k in STATISTICS}
        found[m] = {k: math.hypot(FLOOR[m], math.sqrt(1 + 1 / len(each)) * stdev(each)) for k, each in logs.items()}
    return found


def _log(ms: float) -> float:
    """Also of a figure that there is not, such as the TPOT of answers with one token, or that is infinite."""
    return math.log(min(max(ms, 1e-9), 1e12))


Slopes = dict[tuple[str, str], float]  # (metric, statistic) -> d log(figure) / d log(factor)


def _slopes(run: "Run", factor: float) -> Slopes:
    low, high = (run.figures(factor * math.exp(side)) for side in (-SLOPE, SLOPE))
    return {
        (m, k): math.log(high[m][k] / low[m][k]) / (2 * SLOPE)
        for m in METRICS
        for k in STATISTICS
        if 0 < low[m][k] < high[m][k] < math.inf
    }


def _step(draws: Sequence[Json], seen: Json, noise: Json, slopes: Slopes) -> float:
    """What the log of the factor is off by, by least squares against the mean of several draws."""
    moved = weight = 0.0
    for (m, k), slope in slopes.items():
        if k in seen[m]:
            off = math.log(seen[m][k]) - fmean(_log(draw[m][k]) for draw in draws)
            moved += slope * off / noise[m][k] ** 2
            weight += (slope / noise[m][k]) ** 2
    return min(max(moved / weight, -MOST_STEP), MOST_STEP) if weight else 0.0


def _factor_sd(seen: Json, noise: Json, slopes: Slopes) -> float:
    """Of the log of the factor, from the figure that knows it best: the figures of one run are not independent."""
    return min((noise[m][k] / slope for (m, k), slope in slopes.items() if k in seen[m]), default=1.0)


def predicted_figures(option: Option, deployment: Deployment, found: Mapping[str, Any], factor: float) -> Json:
    """metric -> statistic -> ms of the load test's own load, with this factor on all steps. Raises Unmatched."""
    return _run_of(option, deployment, found).expected(factor)


def misfit(figures: Json, seen: Json, noise: Json) -> float:
    """Squared log errors in units of their noise."""
    return sum(
        (math.log(figures[m][k] / v) / noise[m][k]) ** 2 if 0 < figures[m][k] < math.inf else 1e6
        for m in METRICS
        for k, v in seen[m].items()
    )


def _best(cost: Any) -> float:
    """The factor of least cost: on a grid, then by golden sections, as the cost of far factors is not convex."""
    known = lru_cache(maxsize=None)(cost)
    low, high = map(math.log, FACTORS)
    grid = [low + (high - low) * i / (GRID - 1) for i in range(GRID)]
    at = min(grid, key=lambda x: known(math.exp(x)))
    step, golden = (high - low) / (GRID - 1), (math.sqrt(5) - 1) / 2
    low, high = at - step, at + step
    for _ in range(REFINED):
        left, right = high - golden * (high - low), low + golden * (high - low)
        if known(math.exp(left)) < known(math.exp(right)):
            high = right
        else:
            low = left
    return math.exp((low + high) / 2)


# --- the simulation ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """One lane of the deployment under the load of a test."""

    model: Model
    lane: Lane
    load: Load
    cached_fraction: float

    def figures(self, factor: float, seed: int = SEED) -> Json:
        """metric -> statistic -> ms."""
        found = self.simulated(factor, seed)
        return {m: {k: 1e3 * v for k, v in statistics(found, f"{m}_s").items()} for m in METRICS}

    def draws(self, factor: float) -> list[Json]:
        """The figures of several draws of the requests."""
        return [self.figures(factor, seed) for seed in range(1, DRAWS + 1)]

    def expected(self, factor: float) -> Json:
        """The figures of the recorded arrivals, or the means of several draws."""
        if self.load.client.kind == TRACE:
            return self.figures(factor)
        draws = self.draws(factor)
        return {m: {k: math.exp(fmean(_log(d[m][k]) for d in draws)) for k in STATISTICS} for m in METRICS}

    def simulated(self, factor: float, seed: int = SEED) -> Simulation:
        choice = replace(self.lane.choice, correction=Correction(time_factor=factor))
        lane = replace(self.lane, choice=choice)
        return simulate(
            lanes(self.model, [lane]).times,
            0,
            scheduler_of(lane),
            self.load.client,
            self.load.inputs,
            self.load.outputs,
            concurrency=self.load.concurrency,
            cached_fraction=self.cached_fraction if shares_prefixes(lane.framework) else 0.0,
            context_tokens=float(self.model.longest_context_tokens or math.inf),
            requests=REQUESTS,
            seed=seed,
        )


def statistics(found: Simulation, metric: str) -> dict[str, float]:
    p50, p95, p99 = found.percentiles(metric, 50, 95, 99)
    return {"mean": found.mean(metric), "p50": p50, "p95": p95, "p99": p99}


def _run_of(option: Option, deployment: Deployment, found: Mapping[str, Any]) -> Run:
    spec, sent = option.advice.workload.spec, found["completed"] + found["failed"]
    if found["failed"] > FAILED_FRACTION * sent:
        raise Unmatched(f"{found['failed']:,} of {sent:,} requests failed")
    if not isinstance(spec["model"], str):
        raise Unmatched("its model is not in the catalog")
    for given, why in (
        (deployment.speculative, "its steps also depend on how many draft tokens are accepted"),
        (deployment.disaggregated, "it has separate pools for prefill and decode"),
        (spec.get("adapters"), "it serves adapters"),
        (spec["traffic"].get("images"), "its requests have images"),
        (spec["traffic"].get("turns"), "its requests are conversations"),
        (spec["traffic"].get("prefixes"), "its prompts have classes of shared prefixes"),
    ):
        if given:
            raise Unmatched(why)
    model_id = measured.hf_id(spec["model"])
    if not ServedModel.objects.filter(hf_id=model_id).exists():
        raise Unmatched("its model is not in the catalog")
    case = _case(model_id, deployment, found)
    resources: Resources = catalog_resources([case.model_id], option.advice.organisation)
    own = prepare(case, resources)
    if isinstance(own, str):
        raise Unmatched(own)
    model = resources.models[case.model_id]
    if not bool(lanes(model, own).memory.fits.all()):
        raise Unmatched("its deployment does not fit in memory any more")
    return Run(
        model=model,
        lane=own[0],
        load=load_of(spec["traffic"], found, deployment.pp * deployment.dp, _replayed_cv(deployment)),
        cached_fraction=float(spec["traffic"].get("prefix_cache_hit_rate") or 0.0),
    )


def _case(model_id: str, d: Deployment, found: Mapping[str, Any]) -> Case:
    """One replica of the deployment: load tests are sent to one."""
    if not found["input_tokens_mean"] or not found["output_tokens_mean"]:
        raise Unmatched("its result does not state the token lengths")
    return Case(
        model_id=model_id,
        accelerator_slug=d.accelerator,
        chips=d.tp * d.pp * d.dp,
        pool=Pool(tp=d.tp, pp=d.pp, ep=d.ep, dp=d.dp, moe_tp=max(1, d.tp * d.dp // max(d.ep, 1))),
        weights_dtype=d.quantization,
        kv_dtype=d.kv_dtype,
        framework=d.framework,
        framework_version=d.framework_version,
        isl=found["input_tokens_mean"],
        osl=found["output_tokens_mean"],
        max_batch=max(d.concurrency // (d.pp * d.dp), 1),
        max_batched_tokens=d.max_batched_tokens,
        phase="serving",
    )


def _replayed_cv(d: Deployment) -> float:
    """CV of the gaps of the exported load_trace.py: one replica's share of the workload's arrivals."""
    cv = d.simulation.arrival_cv if d.simulation else None
    return math.sqrt(1 + (cv**2 - 1) / max(d.replicas - d.spare_replicas, 1)) if cv is not None else 1.0


def load_of(traffic: Mapping[str, Any], found: Mapping[str, Any], lanes: int, replayed_cv: float = 1.0) -> Load:
    """The load of the run on one of the replica's lanes.

    replayed_cv: of a run that states no rate and no arrivals, which replays the exported trace.
    """
    inputs, outputs, spread = lengths_of(traffic, found)
    requests = found.get("requests") or {}
    pairs = Client(
        input_tokens=tuple(map(int, requests.get("input_tokens", ()))),
        output_tokens=tuple(map(int, requests.get("output_tokens", ()))),
    )
    spread = "its own lengths" if requests else spread
    sent = found["completed"] + found["failed"]
    if seats := found["concurrency"]:
        each = max(math.ceil(seats / lanes), 1)
        if each > MOST_REQUESTS:
            raise Unmatched(f"{seats:,.0f} requests at once are too many")
        rounds = max(round(min(sent / seats, MOST_REQUESTS // each)), 1)
        client = replace(pairs, kind=BURST, requests_per_user=rounds)
        said = f"{sent:,} requests, all sent at the start through {seats:,.0f} seats; {spread}"
        return Load(client=client, inputs=inputs, outputs=outputs, said=said, concurrency=each)
    if lanes == 1 and "arrival_s" in requests:
        client = replace(pairs, kind=TRACE, arrival_s=tuple(requests["arrival_s"]))
        return Load(client=client, inputs=inputs, outputs=outputs, said=f"its {sent:,} recorded arrivals")
    stated = found.get("rate_per_s")
    if found.get("arrivals") == "" or (stated or found["requests_per_s"]) is None:
        raise Unmatched("its result does not say how requests were sent")
    cv, rate = found["arrival_cv"] if stated else replayed_cv, stated or found["requests_per_s"]
    if not RATES_PER_S[0] <= rate <= RATES_PER_S[1] or cv > MOST_CV:
        raise Unmatched(f"{rate:.4g} requests a second with a coefficient of variation of {cv:.4g} are out of range")
    client = replace(pairs, kind=POISSON, rate_per_s=rate / lanes, arrival_cv=cv)
    kind = {0.0: "evenly spaced", 1.0: "Poisson"}.get(cv, f"bursty (CV {cv:.3g})")
    return Load(client=client, inputs=inputs, outputs=outputs, said=f"{kind} arrivals at {rate:.4g} a second; {spread}")


def lengths_of(traffic: Mapping[str, Any], found: Mapping[str, Any]) -> tuple[Lengths, Lengths, str]:
    """(input, output lengths, in words): those of the file's p95s, else spread as the workload's, else constant."""
    each, said = [], set[str]()
    for key in ("input_tokens", "output_tokens"):
        mean, p95, asked = found[f"{key}_mean"], found.get(f"{key}_p95"), traffic[key]
        if p95:
            said.add("lengths by its mean and p95")
        elif abs(mean / asked["mean"] - 1) < SAME_LENGTH:
            p95 = mean * asked["p95"] / asked["mean"]
            said.add("lengths spread as in the workload")
        else:
            said.add("constant lengths")
        each.append(Lengths(mean_tokens=mean, p95_tokens=min(max(p95 or mean, mean), MAX_P95 * mean)))
    return each[0], each[1], ", ".join(sorted(said))
