"""Latency limits: how far a latency is over them, and the probability that a deployment meets them.

The simulation gives latencies for the estimated step times. True steps differ: the quantiles of the calibration's
held-out errors say by how much. They come from means of closed loops, in which the number of requests in flight is
fixed; under arrivals, slower steps also let requests pile up. So each draw of the steps is moved through the simulated
response of the deployment to its load (scheduler/response.py), and intervals, probabilities and margins come from that.
Where the burstiness of arrivals is assumed, it is drawn from its range, too.

A draw of the chip's performance moves its throughput and TPOT; the error of TTFT is correlated with it, as far as
held-out rows show it. A draw of the acceptance rate moves the TPOT of speculative decoding. Each cause has one draw,
whichever deployments it touches.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from statistics import NormalDist
from typing import Any
from zlib import crc32

import numpy as np

from advisor.engine.cost import Assumptions
from advisor.engine.scheduler import SEED, Bounds, Response, Verified
from advisor.engine.step import Choice, Draft, Lane
from advisor.engine.terms import SHARES, Z95, RatioDistribution, Ratios, Scopes, Workload, stored_distribution

Array = np.ndarray
DRAWS = 4096
METRICS = ("ttft", "tpot", "throughput")
CORRECTED = ("tpot", "throughput")
CORRELATION = "ttft_tpot_correlation"
TIMED = "interval:timed"  # scope of errors where the kernels of the chip and the host times there are measured
RELEASES = "interval:release"  # scope of what one release of a framework adds
# Variance of the errors that chips share. Throughput of 92 combinations of chip, model and framework of the scorecard:
# errors on two chips with the same model correlate by 0.26, with the same model and framework by 0.37 to 0.45.
MODEL_VARIANCE_FRACTION = 0.25
FRAMEWORK_VARIANCE_FRACTION = 0.15


def tpot_limit_s(workload: Workload) -> float | None:
    """The tighter of the TPOT limit and the requested speed per user, s; None without a limit or generated tokens."""
    if not workload.kind.generates_tokens:
        return None
    limits = [workload.slo.tpot_p95_s]
    if workload.slo.tokens_per_s_per_user:
        limits.append(1.0 / workload.slo.tokens_per_s_per_user)
    return min((x for x in limits if x is not None), default=None)


def has_limits(workload: Workload) -> bool:
    """Whether the workload limits a latency or the time of a batch."""
    slo = workload.slo
    limited = slo.ttft_p95_s is not None or slo.e2e_p95_s is not None or tpot_limit_s(workload) is not None
    return limited or workload.deadline_s is not None


def spot_late_fraction(workload: Workload, a: Assumptions, late_fraction: float) -> float:
    """Duration of a batch on spot instances over its deadline, from that on instances that nobody takes back.

    The lost share of the hours is paid and serves nothing, so the run takes 1 / (1 - lost) times as long, after the
    wait for capacity.
    """
    if workload.deadline_s is None:
        return late_fraction
    return late_fraction / (1.0 - a.spot_lost_fraction) + a.spot_wait_s / workload.deadline_s


def latency_excess(
    workload: Workload, ttft_p95_s: Array | float, tpot_p95_s: Array | float, e2e_p95_s: Array | float | None = None
) -> Array:
    """The largest ratio of a latency to its limit, for estimates and simulations; 0 without limits.

    Without `e2e_p95_s`, end-to-end p95 is taken as TTFT p95 plus a p95 output length at TPOT p95.
    """
    slo, limit = workload.slo, tpot_limit_s(workload)
    worst = np.zeros(np.shape(ttft_p95_s))
    if slo.ttft_p95_s is not None:
        worst = np.maximum(worst, ttft_p95_s / slo.ttft_p95_s)
    if limit is not None:
        worst = np.maximum(worst, tpot_p95_s / limit)
    if slo.e2e_p95_s is not None:
        after_first = workload.output_tokens.p95_tokens - 1
        if e2e_p95_s is None:
            e2e_p95_s = ttft_p95_s + (tpot_p95_s * after_first if after_first > 0 else 0.0)
        worst = np.maximum(worst, e2e_p95_s / slo.e2e_p95_s)
    return np.asarray(worst)


# --- draws ------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=256)
def standard_normal(cause: str) -> Array:
    """DRAWS equally likely standard normal values, in a random order that depends on the name of the cause alone."""
    order = np.random.default_rng([SEED, crc32(cause.encode())]).permutation(DRAWS)
    return _quantiles()[order]


@lru_cache(maxsize=1)
def _quantiles() -> Array:
    normal = NormalDist()
    return np.array([normal.inv_cdf((k + 0.5) / DRAWS) for k in range(DRAWS)])


def performance_draw(lane: Lane) -> Array:
    """The draw of the performance on a chip; higher is faster. Chips share the errors of the model and the framework.

    A question has one model.
    """
    return _performance(lane.choice.accelerator.slug, lane.framework.slug)


@lru_cache(maxsize=256)
def _performance(chip: str, framework: str) -> Array:
    own = 1.0 - MODEL_VARIANCE_FRACTION - FRAMEWORK_VARIANCE_FRACTION
    return normal_scores(
        math.sqrt(MODEL_VARIANCE_FRACTION) * standard_normal("performance of the model")
        + math.sqrt(FRAMEWORK_VARIANCE_FRACTION) * standard_normal(f"performance of {framework}")
        + math.sqrt(own) * standard_normal(f"performance of {chip}")
    )


def first_token_draw(lane: Lane, correlation: float) -> Array:
    """The draw of what moves TTFT; higher is faster. `correlation`: with the draw of the performance."""
    return _first_tokens(lane.choice.accelerator.slug, lane.framework.slug, correlation)


@lru_cache(maxsize=256)
def _first_tokens(chip: str, framework: str, correlation: float) -> Array:
    return correlated_normal(_performance(chip, framework), standard_normal(f"first tokens of {chip}"), correlation)


def correlated_normal(common: Array, own: Array, correlation: float) -> Array:
    """Standard normal values correlated with those of a common cause, the rest from a cause of their own."""
    return normal_scores(correlation * common + math.sqrt(1.0 - correlation**2) * own)


def normal_scores(drawn: Array) -> Array:
    """Standard normal values in the order of these, so that each value is as likely as in any other draw."""
    return _quantiles()[np.argsort(np.argsort(drawn))]


def accepted_share(draft: Draft | None) -> Array | float:
    """Tokens per step with the drawn acceptance rate over those with the published one; 1 without a draft.

    The lowest and highest published rates are taken as its 5 % and 95 % quantiles.
    """
    if draft is None:
        return 1.0
    low, high = draft.shown_range
    z = standard_normal(f"acceptance of {draft.method} for {draft.task}") / Z95
    shown = draft.shown_tokens + np.where(z < 0, z * (draft.shown_tokens - low), z * (high - draft.shown_tokens))
    return np.maximum(shown, 1.0) / draft.shown_tokens


def distributions(
    scopes: Scopes | Mapping[str, Any], basis: str, choice: Choice | None = None
) -> dict[str, RatioDistribution]:
    """Distribution of each metric over its estimate, with the same requests in flight, from held-out errors.

    Where the times of the framework are estimates, it is wider. Near measured rows, TPOT and throughput are as certain
    as their correction, if that narrows them; near imported figures alone, exactly as certain, and TTFT is less so.
    Releases since the measured one widen it as a random walk does, unless the organization's own load tests correct it.
    """
    row = held_out_errors(scopes, basis, choice)
    stored = {name: known for name in METRICS if (known := stored_distribution(row, name)) is not None}
    unsure = choice.uncertain_ratio if choice else 1.0
    found = {name: known.widened(unsure) for name, known in stored.items()}
    correction = choice.correction if choice else None
    near = correction.ratios if correction else None
    if correction is not None and near is not None and correction.imported:
        return {
            name: known.as_wide_as(near) if name in CORRECTED else known.spread(correction.log_sd)
            for name, known in found.items()
        }
    drift = release_log_sd(scopes, choice)
    measured_here = near is not None and correction is not None and correction.by_owner
    return {
        name: (known.narrowed(near) if near is not None and name in CORRECTED else known).spread(
            0.0 if measured_here and name in CORRECTED else drift
        )
        for name, known in found.items()
    }


def held_out_errors(
    scopes: Scopes | Mapping[str, Any], basis: str, choice: Choice | None = None
) -> Mapping[str, float | str]:
    """Quantiles of the errors of this class: where both the chip's kernels and the host were timed, its own."""
    timed = scopes.get(TIMED) if basis == "measured" and choice and choice.overhead.timed else None
    return timed or scopes.get(f"interval:{basis}", {})


def release_log_sd(scopes: Scopes | Mapping[str, Any], choice: Choice | None) -> float:
    """Standard deviation of the logarithm of a figure over the releases since the measured one."""
    each = float(scopes.get(RELEASES, {}).get("log_sd_per_release", 0.0))
    return each * math.sqrt(choice.overhead.releases_since) if choice else 0.0


def interval_ratios(scopes: Scopes | Mapping[str, Any], basis: str, choice: Choice | None = None) -> dict[str, Ratios]:
    """90 % interval as factors (low, high) on each metric."""
    return {name: known.ends for name, known in distributions(scopes, basis, choice).items()}


def latency_correlation(scopes: Scopes | Mapping[str, Any], basis: str, choice: Choice | None = None) -> float:
    """Correlation of the normal scores of TTFT's and TPOT's errors; 1 in calibrations that do not store it."""
    return float(held_out_errors(scopes, basis, choice).get(CORRELATION, 1.0))


@dataclass(frozen=True, kw_only=True, slots=True)
class Factors:
    """True figures of a lane over their estimates with the same requests in flight: draws, or one quantile of them."""

    ttft: Array | float
    tpot: Array | float  # of the time of a step, for each token that it yields
    duration: Array | float  # of a batch
    bursts: Array | float = 0.0  # standard normal values of the burstiness of the arrivals


@dataclass(frozen=True, kw_only=True, slots=True)
class Moved:
    """Simulated p95 latencies under these factors over those as simulated: draws, or one quantile of them."""

    ttft: Array | float
    tpot: Array | float
    e2e: Array | float
    duration: Array | float


AS_SIMULATED = Moved(ttft=1.0, tpot=1.0, e2e=1.0, duration=1.0)


def moved(v: Verified, f: Factors) -> Moved:
    """The latencies that factors make of a simulation: slower steps also meet more requests.

    Of the end-to-end time, TTFT's share has TTFT's own error.
    """

    def more(figure: str) -> Array | float:
        return v.response.at(figure, f.tpot, f.bursts) if v.response else 1.0

    first = min(v.ttft_p95_s / v.e2e_p95_s, 1.0) if 0 < v.e2e_p95_s < math.inf else 1.0
    return Moved(
        ttft=f.ttft * more("ttft_p95_s"),
        tpot=f.tpot * more("tpot_p95_s"),
        e2e=(first * f.ttft + (1 - first) * f.tpot) * more("e2e_p95_s"),
        duration=f.duration,
    )


def factors_of(scopes: Scopes, lane: Lane) -> Factors | None:
    """The draws of one lane's latencies; None if the calibration has no intervals."""
    basis = lane.choice.efficiency.basis
    known = distributions(scopes, basis, lane.choice)
    if set(known) != set(METRICS):
        return None
    fast, accepted = performance_draw(lane), accepted_share(lane.draft)
    return Factors(
        ttft=known["ttft"].at(-first_token_draw(lane, latency_correlation(scopes, basis, lane.choice))),
        tpot=known["tpot"].at(-fast) / accepted,
        duration=1.0 / (known["throughput"].at(fast) * accepted),
        bursts=standard_normal("burstiness of the arrivals"),
    )


def latency_ranges(factors: Factors, response: Response | None) -> dict[str, Ratios]:
    """90 % interval of each latency as factors: of means `ttft` and `tpot`, of p95 `ttft_p95` and `tpot_p95`."""
    ranges = {}
    for name, draws in (("ttft", factors.ttft), ("tpot", factors.tpot)):
        for key, figure in ((name, f"{name}_mean_s"), (f"{name}_p95", f"{name}_p95_s")):
            each = np.asarray(draws) * (response.at(figure, factors.tpot, factors.bursts) if response else 1.0)
            ranges[key] = (float(np.quantile(each, SHARES[0])), float(np.quantile(each, SHARES[-1])))
    return ranges


def latency_margins(scopes: Scopes, lane: Lane, confidence: float) -> tuple[float, float] | None:
    """(TTFT, TPOT) at this confidence over their estimates, with the requests in flight as estimated.

    None if the calibration has no intervals.
    """
    if lane.draft is not None:
        factors = factors_of(scopes, lane)
        return (_at(factors.ttft, confidence), _at(factors.tpot, confidence)) if factors else None
    known = distributions(scopes, lane.choice.efficiency.basis, lane.choice)
    if set(known) != set(METRICS):
        return None
    slower = -_quantiles()[DRAWS - 1 - _place(DRAWS, confidence)]  # distributions rise, so no draws are needed
    return float(known["ttft"].at(slower)), float(known["tpot"].at(slower))


def _at(draws: Array | float, confidence: float) -> float:
    """The quantile of the draws, the higher of two between which it is."""
    each = np.ravel(draws)
    place = _place(len(each), confidence)
    return float(np.partition(each, place)[place])


def _place(count: int, confidence: float) -> int:
    return math.ceil((count - 1) * confidence)


def with_confidence(workload: Workload, v: Verified, factors: Factors, confidence: float) -> Verified:
    """Latencies that meet every limit exactly where this share of the draws meets them all.

    Each latency with a limit is its quantile, and all of them are moved alike by how the errors of different figures go
    together; one without stays as simulated.
    """
    drawn, slo = moved(v, factors), workload.slo
    sure = scaled(
        v,
        Moved(
            ttft=_at(drawn.ttft, confidence) if slo.ttft_p95_s is not None else 1.0,
            tpot=_at(drawn.tpot, confidence) if tpot_limit_s(workload) is not None else 1.0,
            e2e=_at(drawn.e2e, confidence) if slo.e2e_p95_s is not None else 1.0,
            duration=_at(drawn.duration, confidence) if v.late_fraction else 1.0,
        ),
    )
    if v.of_trace:
        sure = replace(sure, of_trace=with_confidence(workload, v.of_trace, factors, confidence))
    apart, together = float(_worst(workload, None, sure)), _at(_worst(workload, factors, v), confidence)
    if apart <= 0.0 or not math.isfinite(apart) or not math.isfinite(together):
        return sure
    ratio = together / apart
    return scaled(sure, Moved(ttft=ratio, tpot=ratio, e2e=ratio, duration=ratio))


# --- limits of a simulated deployment ---------------------------------------------------------------------------


def scaled(v: Verified, m: Moved) -> Verified:
    """The simulated latencies times these factors (each one number); their confidence bounds too."""

    def times(factor: Any, bounds: Bounds) -> Bounds:
        return float(bounds[0] * factor), float(bounds[1] * factor)

    return replace(
        v,
        ttft_p95_s=float(v.ttft_p95_s * m.ttft),
        tpot_p95_s=float(v.tpot_p95_s * m.tpot),
        e2e_p95_s=float(v.e2e_p95_s * m.e2e),
        late_fraction=float(v.late_fraction * m.duration),
        ttft_p95_bounds_s=times(m.ttft, v.ttft_p95_bounds_s),
        tpot_p95_bounds_s=times(m.tpot, v.tpot_p95_bounds_s),
        e2e_p95_bounds_s=times(m.e2e, v.e2e_p95_bounds_s),
        late_bounds_fraction=times(m.duration, v.late_bounds_fraction),
        of_trace=scaled(v.of_trace, m) if v.of_trace else None,
    )


def slo_probability(workload: Workload, factors: Factors | None, v: Verified) -> float | None:
    """Share of the draws in which every latency limit and the deadline hold; None without limits or intervals."""
    if factors is None or not has_limits(workload):
        return None
    return float((_worst(workload, factors, v) <= 1.0).mean())


def _worst(workload: Workload, factors: Factors | None, v: Verified) -> Array:
    m = moved(v, factors) if factors else AS_SIMULATED
    late = latency_excess(workload, v.ttft_p95_s * m.ttft, v.tpot_p95_s * m.tpot, v.e2e_p95_s * m.e2e)
    worst = np.maximum(late, v.late_fraction * m.duration)
    return np.asarray(np.maximum(worst, _worst(workload, factors, v.of_trace)) if v.of_trace else worst)
