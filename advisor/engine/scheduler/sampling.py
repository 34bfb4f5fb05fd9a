"""Draws the requests of a simulation: lengths, shared prefixes and times between arrivals."""

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from advisor.engine.step import Client
from advisor.engine.terms import Lengths, PrefixClass, log_normal_sigma

Recorded = tuple[Any, Any] | None  # (input, output) lengths of the same requests


class Drawing(NamedTuple):
    """The distributions that requests are drawn from."""

    inputs: Lengths
    outputs: Lengths
    spread: tuple[float, float]  # of constant lengths, in fractions of them
    context_tokens: float
    recorded: Recorded
    classes: tuple[PrefixClass, ...]
    arrival_cv: float


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
        arrival_cv=client.arrival_cv,
    )


@lru_cache(maxsize=4)
def arriving(d: Drawing, count: int, seed: int) -> tuple[Drawn, np.ndarray]:
    """(requests, times between their arrivals in units of the mean), the same for every design."""
    rng = np.random.default_rng(seed)
    prompt, output = _pairs(d, count, rng)
    between = _gaps(d.arrival_cv, count, rng)
    return Drawn(prompt, output, *shared_prefixes(d.classes, count, rng)), between


def drawn(d: Drawing, count: int, rng: np.random.Generator) -> Drawn:
    """Requests without times."""
    return with_prefixes(d.classes, *_pairs(d, count, rng), rng)


def with_prefixes(
    classes: Sequence[PrefixClass], prompt: np.ndarray, output: np.ndarray, rng: np.random.Generator
) -> Drawn:
    """The requests of these lengths, each with its prefix."""
    return Drawn(prompt, output, *shared_prefixes(classes, len(prompt), rng))


def shared_prefixes(
    classes: Sequence[PrefixClass], count: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """(prefix or -1, tokens of it) of each request: classes by their fractions, prefixes of a class equally often, both
    in random order."""
    if not classes:
        return np.full(count, -1), np.zeros(count)
    which = np.searchsorted(np.cumsum([c.fraction for c in classes]), _stratified(count, rng), side="right")
    prefix, first = np.full(count, -1), 0
    for k, each in enumerate(classes):
        members = np.flatnonzero(which == k)
        prefix[members] = first + rng.permutation(len(members)) % each.prefixes
        first += each.prefixes
    return prefix, np.array([*(each.shared_tokens for each in classes), 0.0])[which]


def _stratified(count: int, rng: np.random.Generator) -> np.ndarray:
    """Numbers from [0, 1), one in each of `count` equal parts, in random order."""
    return (rng.permutation(count) + rng.random(count)) / count


def token_lengths(
    lengths: Lengths, low_fraction: float, high_fraction: float, count: int, rng: np.random.Generator
) -> np.ndarray:
    """Integer lengths >= 1: constant, uniform between two fractions of the nominal, or log-normal by mean and p95."""
    if lengths.p95_tokens > lengths.mean_tokens:
        sigma = log_normal_sigma(lengths)
        drawn = rng.lognormal(math.log(lengths.mean_tokens) - sigma**2 / 2, sigma, count)
    elif low_fraction < high_fraction:
        drawn = rng.uniform(low_fraction * lengths.mean_tokens, high_fraction * lengths.mean_tokens, count)
    else:
        drawn = np.full(count, lengths.mean_tokens * high_fraction)
    return np.maximum(np.rint(drawn), 1).astype(np.int64)


def _pairs(d: Drawing, count: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """(input, output) lengths: recorded requests in random order, else from the distributions, cut at the context."""
    if d.recorded is not None:
        rows = rng.integers(0, len(d.recorded[0]), count)
        return np.array(d.recorded[0], np.int64)[rows], np.array(d.recorded[1], np.int64)[rows]
    spread = *d.spread, count, rng
    return within_context(token_lengths(d.inputs, *spread), token_lengths(d.outputs, *spread), d.context_tokens)


def within_context(prompt: np.ndarray, output: np.ndarray, context_tokens: float) -> tuple[np.ndarray, np.ndarray]:
    """(prompts, outputs) of at most the context together: a prompt that is too long leaves room for its answer."""
    if math.isinf(context_tokens):
        return prompt, output
    output = np.minimum(output, max(int(context_tokens) - 1, 1))
    return np.clip(prompt, 1, np.maximum(int(context_tokens) - output, 1)), output


def _gaps(arrival_cv: float, count: int, rng: np.random.Generator) -> np.ndarray:
    """Gaps between arrivals with mean 1: gamma with this coefficient of variation, exponential for 1."""
    if arrival_cv == 1.0:
        return rng.standard_exponential(count)
    if arrival_cv <= 0:
        return np.ones(count)
    shape = arrival_cv**-2
    return rng.standard_gamma(shape, count) / shape
