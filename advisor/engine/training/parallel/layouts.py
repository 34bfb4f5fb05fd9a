"""The fastest layouts of a model on a number of chips, over parallel sizes, micro-batches and recomputation.

All candidates are timed at once as arrays. Memory is bounded from below at once too (states and kept activations),
and computed exactly for the fastest that remain, until enough of them fit.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from advisor.engine.network import Model, SoftmaxAttention, decoder_blocks
from advisor.engine.terms import Accelerator, Efficiency
from advisor.engine.training.memory import (
    LayerBytes,
    PeakMemory,
    fits,
    kept_bytes_per_token,
    layer_bytes,
    outside_bytes,
    peak_memory,
)
from advisor.engine.training.operators import Shape, expert_ranks, rank_parameters, rank_trained
from advisor.engine.training.parallel.even_splits import parallel_fault, pipeline_fault
from advisor.engine.training.rates import HostSide, rates_of
from advisor.engine.training.reference import reference_bytes
from advisor.engine.training.run import Code, Offload, Parallel, Recipe, Recompute, Run
from advisor.engine.training.step_time import StepTime, step_time, work_of

SIZES = ("tp", "pp", "cp", "ep")  # parallel sizes beside data parallelism
RECOMPUTE: tuple[Recompute, ...] = ("none", "selective", "full")
MOST_CHECKED = 2000  # candidates whose memory is computed exactly, the fastest first
MOST_SMALL = 16  # layouts with the lowest bounds of their memory, whose peaks are computed
MOST_VIRTUAL = 12  # interleaved stages of a rank
LONG_TOKENS = 8192  # sequences from which context parallelism is tried
COLUMNS = ("dp", "tp", "pp", "cp", "ep", "zero", "virtual_stages", "micro_batch", "micro_batches", "recompute")
LAYER_COLUMNS = [
    COLUMNS.index(name) for name in ("tp", "ep", "zero", "recompute")
]  # that a layer's memory follows from


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """What a layout is searched for."""

    model: Model
    accelerator: Accelerator
    efficiency: Efficiency
    chips: int
    sequence_tokens: int
    global_batch: int  # sequences of one step
    recipe: Recipe
    code: Code
    zeros: tuple[int, ...] = (1, 3)  # ZeRO stages that the framework has
    sizes: tuple[str, ...] = SIZES  # parallel sizes that the framework has beside data parallelism
    recomputes: tuple[str, ...] = RECOMPUTE  # that may be used
    offload: Offload = "none"
    host: HostSide | None = None  # around the chips, for offload; its memory is not checked
    reference: bool = False  # a frozen copy of the model is kept beside the trained one
    longest_tokens: int = 0  # of a sequence, where sequence_tokens is the mean; 0: all are alike
    beside_bytes: float = 0.0  # of each chip, taken by something else during the step
    uneven_stages: bool = False  # also pipelines that do not divide the layers, as Megatron's flexible layouts allow


@dataclass(frozen=True, kw_only=True, slots=True)
class Layout:
    """One layout that fits, with its time and memory."""

    run: Run
    step_s: float
    tokens_per_s: float
    memory: PeakMemory


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
    """The fastest layouts, and how many were looked at."""

    layouts: tuple[Layout, ...]
    candidates: int
    too_large: int  # by the lower bound or the exact memory, as far as it was computed


def powers(most: int) -> list[int]:
    """1, 2, 4 ... up to `most`."""
    return [2**i for i in range(max(most, 1).bit_length()) if 2**i <= most]


def divisors(n: int) -> list[int]:
    return [d for d in range(1, n + 1) if n % d == 0]


def _stages(job: Job, layers: int) -> list[int]:
    """Pipeline depths: those that divide the layers; uneven ones are powers of two with at least two layers a stage."""
    even = divisors(layers)
    return sorted({*even, *powers(layers // 2)}) if job.uneven_stages else even


def _parallel_sizes(job: Job) -> Iterator[tuple[int, int, int, int, int]]:
    """(dp, tp, pp, cp, ep) that use all chips and split everything evenly, each stage whole layers."""
    blocks = decoder_blocks(job.model)
    layers = sum(block.count for block in blocks)
    heads = [b.mixer.heads for b in blocks if isinstance(b.mixer, SoftmaxAttention)]
    experts = max((b.ffn.experts for b in blocks if b.ffn is not None), default=1)
    near = job.accelerator.links[0].chips if job.accelerator.links else 1
    tensor = [tp for tp in powers(min(near, job.chips)) if all(h % tp == 0 for h in heads)]
    stages = [pp for pp in _stages(job, layers) if job.chips % pp == 0]
    context = powers(job.sequence_tokens // 4096) if job.sequence_tokens >= LONG_TOKENS else [1]
    tensor, stages, context = (
        sizes if name in job.sizes else [1] for name, sizes in (("tp", tensor), ("pp", stages), ("cp", context))
    )
    experts = experts if "ep" in job.sizes else 1
    for tp, pp, cp in product(tensor, stages, context):
        if job.chips % (tp * pp * cp):
            continue
        dp = job.chips // (tp * pp * cp)
        if job.global_batch % dp:
            continue
        for ep in divisors(experts) if experts > 1 else [1]:
            sizes = Parallel(dp=dp, tp=tp, pp=pp, cp=cp, ep=ep, sequence_parallel=tp > 1)
            if parallel_fault(sizes, job.model, job.sequence_tokens) is None:
                yield dp, tp, pp, cp, ep


def candidates(job: Job) -> NDArray[np.int64]:
    """All candidates, shape (N, len(COLUMNS))."""
    sizes = np.array(list(_parallel_sizes(job)), dtype=np.int64).reshape(-1, 5)
    layers = sum(block.count for block in decoder_blocks(job.model))
    known: dict[tuple[int, int], NDArray[np.int64]] = {}  # the same for all sizes of one dp and pp
    for dp, pp in set(map(tuple, sizes[:, [0, 2]].tolist())):
        each = job.global_batch // dp
        virtual = [v for v in divisors(layers // pp) if v <= MOST_VIRTUAL] if pp > 1 else [1]
        zeros = [z for z in job.zeros if pp == 1 or z <= 1]
        batches = [b for b in powers(each) if each % b == 0 and (pp == 1 or each // b >= pp)]
        again = [RECOMPUTE.index(name) for name in job.recomputes]
        staged = [(v, b) for v, b in product(virtual, batches) if pipeline_fault(pp, v, each // b) is None]
        choices = [(z, v, b, each // b, r) for z, (v, b), r in product(zeros, staged, again)]
        known[dp, pp] = np.array(choices, dtype=np.int64).reshape(-1, 5)
    some = [known[dp, pp] for dp, _, pp, _, _ in sizes.tolist()]
    if not some:
        return np.zeros((0, len(COLUMNS)), dtype=np.int64)
    return np.hstack([np.repeat(sizes, [len(choices) for choices in some], axis=0), np.vstack(some)])


def shape_of(job: Job, table: NDArray[np.int64]) -> Shape:
    """The candidates as arrays of shape (N,)."""
    c = {name: table[:, i].astype(float) for i, name in enumerate(COLUMNS)}
    return Shape(
        tokens=c["micro_batch"] * job.sequence_tokens / c["cp"],
        sequence_tokens=np.full(len(table), float(job.sequence_tokens)),
        shards=c["dp"] * c["cp"],
        split_norms=c["tp"],
        **{name: c[name] for name in COLUMNS if name != "micro_batch"},
    )


def run_of(job: Job, row: Sequence[int]) -> Run:
    """The run of one candidate."""
    c = dict(zip(COLUMNS, (int(n) for n in row), strict=True))
    return Run(
        sequence_tokens=job.sequence_tokens,
        longest_tokens=job.longest_tokens,
        micro_batch=c["micro_batch"],
        micro_batches=c["micro_batches"],
        recipe=job.recipe,
        code=job.code,
        recompute=RECOMPUTE[c["recompute"]],
        offload=job.offload,
        parallel=Parallel(
            dp=c["dp"], tp=c["tp"], pp=c["pp"], cp=c["cp"], ep=c["ep"], zero=c["zero"],
            sequence_parallel=c["tp"] > 1, virtual_stages=c["virtual_stages"],
        ),
    )  # fmt: skip


def least_bytes(job: Job, table: NDArray[np.int64], x: Shape) -> Any:
    """Lower bound of the memory of each candidate: states and kept activations of a mean stage, shape (N,)."""
    r = job.recipe
    (dense, routed), (dense_trained, routed_trained) = rank_parameters(job.model, x), rank_trained(job.model, x, r)
    own = np.maximum(x.shards * x.tp / expert_ranks(x), 1.0)
    zero = np.asarray(x.zero)

    def shared(stage: int) -> tuple[Any, Any]:
        return np.where(zero >= stage, x.shards, 1.0), np.where(zero >= stage, own, 1.0)

    stored = r.parameter_bytes if r.method == "full" else r.frozen_bytes
    kept: Any = 0.0
    here, states_here = job.offload != "all", job.offload == "none"
    summed_here = states_here | (here & ((zero < 2) | job.code.gradient_buffer))
    for stage, each, trained in (
        (3, stored * here, False), (2, r.gradient_bytes * summed_here, True),
        (1, (r.state_bytes + r.master_bytes) * states_here, True),
    ):  # fmt: skip
        split, expert_split = shared(stage)
        d, e = (dense_trained, routed_trained) if trained else (dense, routed)
        kept = kept + each * (d / split + e / expert_split)
    return kept + x.tokens * _kept_per_token(job, table) * np.minimum(x.pp, x.micro_batches) / x.pp


def _alike(table: NDArray[np.int64], names: Sequence[str]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """(one candidate of each kind, the kind of each candidate): kinds differ in these columns."""
    key = np.zeros(len(table), dtype=np.int64)
    for name in names:
        column = table[:, COLUMNS.index(name)]
        key = key * (int(column.max()) + 1) + column
    _, first, place = np.unique(key, return_index=True, return_inverse=True)
    return first, place.reshape(-1)


def _kept_per_token(job: Job, table: NDArray[np.int64]) -> NDArray[np.float64]:
    """Bytes per token that all layers keep, shape (N,): the same for candidates of one tp and recomputation, with or
    without expert parallelism.
    """
    spread = table.copy()
    spread[:, COLUMNS.index("ep")] = np.minimum(table[:, COLUMNS.index("ep")], 2)
    first, place = _alike(spread, ("tp", "ep", "recompute"))
    blocks, runs = decoder_blocks(job.model), [run_of(job, spread[i]) for i in first]
    known = [sum(block.count * kept_bytes_per_token(job.model, block, run) for block in blocks) for run in runs]
    each: NDArray[np.float64] = np.array(known)[place]
    return each


def least_memory(job: Job) -> float | None:
    """Memory of a chip, everything included, under the layout that needs least; None: no layout divides the batch."""
    table = candidates(job)
    if not len(table):
        return None
    bounds = least_bytes(job, table, shape_of(job, table))
    runs = (run_of(job, table[i]) for i in np.argsort(bounds, kind="stable")[:MOST_SMALL].tolist())
    return min(used_bytes(job.model, run) + beside_bytes(job, run) for run in runs)


def beside_bytes(job: Job, run: Run) -> float:
    """What a chip holds beside the trainer during the step."""
    return job.beside_bytes + (reference_bytes(job.model, run) if job.reference else 0.0)


def used_bytes(model: Model, run: Run) -> float:
    peak = peak_memory(model, run)
    return peak.allocated_bytes + peak.holes_bytes + outside_bytes(run)


def fastest(job: Job, count: int = 10) -> Found:
    """The fastest layouts that fit, fastest first. ValueError: the chip has no matrix rate for the recipe."""
    table = candidates(job)
    if not len(table):
        return Found(layouts=(), candidates=0, too_large=0)
    x = shape_of(job, table)
    rates = rates_of(job.accelerator, job.efficiency, job.recipe, job.code, job.host)
    # the recipe and the code of the run are those of all candidates; its own layout is not read
    any_run = run_of(job, table[0])
    first, place = _alike(table, ("tp", "pp", "cp", "ep", "micro_batch", "recompute"))
    work = work_of(job.model, shape_of(job, table[first]), rates, any_run).take(place)
    times: StepTime = step_time(job.model, x, rates, any_run, work)
    room = job.accelerator.memory_bytes
    may_fit = np.flatnonzero(least_bytes(job, table, x) + outside_bytes(any_run) <= room)
    order = may_fit[np.argsort(times.step_s[may_fit], kind="stable")]
    layers: dict[tuple[int, ...], tuple[LayerBytes, ...]] = {}
    found: list[Layout] = []
    too_large = len(table) - len(may_fit)
    for i in order[:MOST_CHECKED].tolist():
        run = run_of(job, table[i])
        kind = tuple(table[i, LAYER_COLUMNS].tolist())
        layers[kind] = layers.get(kind) or layer_bytes(job.model, run)
        peak = peak_memory(job.model, run, layers[kind])
        if not fits(peak, room, outside_bytes(run) + beside_bytes(job, run)):
            too_large += 1
            continue
        step_s = float(times.step_s[i])
        tokens_per_s = job.global_batch * job.sequence_tokens / step_s
        found.append(Layout(run=run, step_s=step_s, tokens_per_s=tokens_per_s, memory=peak))
        if len(found) >= count:
            break
    return Found(layouts=tuple(found), candidates=len(table), too_large=too_large)
