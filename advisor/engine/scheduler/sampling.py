"""Draws the requests of a simulation: lengths, shared prefixes and times between arrivals.

Percentiles under random arrivals need many requests, and fewer if those are spread over what can happen: lengths and
classes are stratified, one draw in each of `count` quantiles, in random order. Arrivals are a renewal process in
segments; the durations of the segments have the law of a sum of as many gaps, with one draw in each of their quantiles,
and the gaps inside, divided by their sum, are independent of it because gaps are gamma. So no segment is more even than
those of the process itself; only their sum is.
"""

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import scipy

from advisor.engine.step import USERS, Client
from advisor.engine.terms import Lengths, PrefixClass, log_normal_sigma

SEGMENTS = 10  # of the measured requests
FEWEST_IN_SEGMENT = 20
MOST_KEPT = 25_000  # requests whose times are kept for the next design
Recorded = tuple[Any, Any] | None  # (input, output) lengths of the same requests


class Drawing(NamedTuple):
    """The distributions that requests are drawn from."""

    inputs: Lengths
    outputs: Lengths
    spread: tuple[float, float]  # of constant lengths, in fractions of them
    context_tokens: float
    recorded: Recorded
    classes: tuple[PrefixClass, ...]
    arrival_cv: float | None  # None: the times are not between arrivals; users think, independently of each other


class Drawn(NamedTuple):
    """Requests in order of sending."""

    prompt: np.ndarray
    output: np.ndarray
    prefix: np.ndarray  # shared prefix that the prompt begins with; -1: none
    shared_tokens: np.ndarray  # of that prefix


def drawing(client: Client, inputs: Lengths, outputs: Lengths, context_tokens: float) -> Drawing:
    """What this client draws its requests from."""
    return Drawing(
        inputs=inputs,
        outputs=outputs,
        spread=(client.length_low_fraction, client.length_high_fraction),
        context_tokens=context_tokens,
        recorded=(client.input_tokens, client.output_tokens) if len(client.input_tokens) else None,
        classes=client.prefix_classes,
        arrival_cv=client.arrival_cv if client.kind != USERS else None,
    )


def arriving(d: Drawing, parts: tuple[int, ...], seed: int) -> tuple[Drawn, np.ndarray]:
    """(requests, times between their arrivals in units of the mean), the same for every design.

    Each of the parts, warm-up, measured requests and further load, is stratified on its own.
    """
    return requests_of(d._replace(arrival_cv=None), parts, seed), times_between(d.arrival_cv, parts, seed)


@lru_cache(maxsize=8)
def requests_of(d: Drawing, parts: tuple[int, ...], seed: int) -> Drawn:
    """The requests, whose times are drawn apart: an `arrival_cv` only makes them another entry of the cache."""
    rng = np.random.default_rng(seed)
    each = [(*_stratified_pairs(d, count, rng), *shared_prefixes(d.classes, count, rng)) for count in parts]
    found = Drawn(*(np.concatenate(columns) for columns in zip(*each, strict=True)))
    return found._replace(prefix=numbered(found.prefix))


def times_between(arrival_cv: float | None, parts: tuple[int, ...], seed: int) -> np.ndarray:
    between = _between if sum(parts) <= MOST_KEPT else _between.__wrapped__
    return between(arrival_cv, parts, seed)


@lru_cache(maxsize=256)  # designs with other numbers of lanes have other coefficients of variation
def _between(arrival_cv: float | None, parts: tuple[int, ...], seed: int) -> np.ndarray:
    rng = np.random.default_rng((seed, 1))
    return np.concatenate([gaps(arrival_cv, count, rng) for count in parts])


def drawn(d: Drawing, count: int, rng: np.random.Generator) -> Drawn:
    """Requests without times, drawn independently: closed loops measure means, with few requests."""
    if d.recorded is not None:
        return with_prefixes(d.classes, *_recorded(d.recorded, rng.integers(0, len(d.recorded[0]), count)), rng)
    return with_prefixes(d.classes, *_pairs(d, rng.random(count), rng.random(count)), rng)


def with_prefixes(
    classes: Sequence[PrefixClass], prompt: np.ndarray, output: np.ndarray, rng: np.random.Generator
) -> Drawn:
    """The requests of these lengths, each with its prefix."""
    prefix, shared_tokens = shared_prefixes(classes, len(prompt), rng)
    return Drawn(prompt, output, numbered(prefix), shared_tokens)


def numbered(prefix: np.ndarray) -> np.ndarray:
    """The prefixes with numbers below that of requests, as the simulation has an entry for each number."""
    if prefix.max(initial=-1) < len(prefix):
        return prefix
    some, found = prefix >= 0, prefix.copy()
    found[some] = np.unique(prefix[some], return_inverse=True)[1]
    return found


def shared_prefixes(
    classes: Sequence[PrefixClass], count: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """(prefix or -1, tokens of it) of each request: classes by their fractions, prefixes of a class equally often, both
    in random order."""
    if not classes:
        return np.full(count, -1), np.zeros(count)
    which = np.searchsorted(np.cumsum([c.fraction for c in classes]), stratified(count, rng), side="right")
    prefix, first = np.full(count, -1), 0
    for k, each in enumerate(classes):
        members = np.flatnonzero(which == k)
        prefix[members] = first + rng.permutation(len(members)) % each.prefixes
        first += each.prefixes
    return prefix, np.array([*(each.shared_tokens for each in classes), 0.0])[which]


def stratified(count: int, rng: np.random.Generator) -> np.ndarray:
    """Numbers from [0, 1), one in each of `count` equal parts, in random order."""
    return np.asarray(np.minimum((rng.permutation(count) + rng.random(count)) / max(count, 1), np.nextafter(1.0, 0.0)))


def token_lengths(lengths: Lengths, low_fraction: float, high_fraction: float, quantiles: np.ndarray) -> np.ndarray:
    """Integer lengths >= 1 at these quantiles: constant, uniform between two fractions of the nominal, or log-normal by
    mean and p95."""
    if lengths.p95_tokens > lengths.mean_tokens:
        sigma = log_normal_sigma(lengths)
        tokens = lengths.mean_tokens * np.exp(sigma * scipy.special.ndtri(quantiles) - sigma**2 / 2)
    else:
        tokens = lengths.mean_tokens * (low_fraction + (high_fraction - low_fraction) * quantiles)
    return np.asarray(np.maximum(np.rint(tokens), 1).astype(np.int64))


def _pairs(d: Drawing, inputs: np.ndarray, outputs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(input, output) lengths at these quantiles, cut at the context."""
    return within_context(
        token_lengths(d.inputs, *d.spread, inputs), token_lengths(d.outputs, *d.spread, outputs), d.context_tokens
    )


def _stratified_pairs(d: Drawing, count: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """(input, output) lengths: recorded requests about equally often, by their tokens, else from the distributions."""
    if d.recorded is None:
        return _pairs(d, stratified(count, rng), stratified(count, rng))
    by_tokens = np.argsort(np.add(*map(np.asarray, d.recorded)), kind="stable")
    return _recorded(d.recorded, by_tokens[(stratified(count, rng) * len(by_tokens)).astype(np.int64)])


def _recorded(recorded: tuple[Any, Any], rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return np.array(recorded[0], np.int64)[rows], np.array(recorded[1], np.int64)[rows]


def within_context(prompt: np.ndarray, output: np.ndarray, context_tokens: float) -> tuple[np.ndarray, np.ndarray]:
    """(prompts, outputs) of at most the context together: a prompt that is too long leaves room for its answer."""
    if math.isinf(context_tokens):
        return prompt, output
    output = np.minimum(output, max(int(context_tokens) - 1, 1))
    return np.clip(prompt, 1, np.maximum(int(context_tokens) - output, 1)), output


def gaps(arrival_cv: float | None, count: int, rng: np.random.Generator) -> np.ndarray:
    """Gaps between arrivals with mean 1, gamma with this coefficient of variation, in segments (see the module).

    None: independent exponential times.
    """
    if arrival_cv is None:
        return rng.standard_exponential(count)
    if arrival_cv <= 0 or not count:
        return np.ones(count)
    shape, segments = arrival_cv**-2, min(SEGMENTS, max(count // FEWEST_IN_SEGMENT, 1))
    each = np.array_split(rng.standard_gamma(shape, count), segments)
    lasting = _segment_durations(shape, np.array([len(part) for part in each]), rng)
    return np.concatenate([part * (duration / part.sum()) for part, duration in zip(each, lasting, strict=True)])


def _segment_durations(shape: float, gaps: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Sums of so many gaps, one in each quantile of their law."""
    return np.asarray(scipy.special.gammaincinv(shape * gaps, stratified(len(gaps), rng)) / shape)
