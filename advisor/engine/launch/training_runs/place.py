"""Where a training plan runs and for how long, and how a launcher's own run differs from the plan, in words."""

import math
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

from advisor.engine.training import Code, Parallel, Recipe, Run, pipeline_fault

DEFAULT_STEPS = 1000  # without a number of tokens
DEFAULT_CHECKPOINT_STEPS = 500  # without a checkpoint interval
FULL_RATE, CONTINUED_RATE, ADAPTER_RATE = 3e-4, 1e-5, 2e-4  # common starting points; a plan fixes no learning rate
DROPOUT_FRACTION = 0.05  # of adapters with dropout (QLoRA, arXiv 2305.14314)
WARMUP_STEPS = 100


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingPlace:
    """Where a plan runs."""

    model_id: str  # on Hugging Face
    vendor: str  # of the chip
    hosts: int
    chips_per_host: int
    kubernetes_resource: str = ""
    tokens: float = 0.0  # to train on; 0: not known
    checkpoint_interval_s: float | None = None
    step_s: float | None = None
    continued: bool = True  # from the published checkpoint; False: from scratch
    devices_per_chip: int = 1  # as the software stack counts them (NeuronCores, dies)
    kubernetes_devices_per_chip: int = 1  # as the device plugin counts them

    @property
    def processes_per_host(self) -> int:
        return self.chips_per_host * self.devices_per_chip

    def steps(self, run: Run) -> int:
        """Optimizer steps of the whole run."""
        return math.ceil(self.tokens / run.global_tokens) if self.tokens else DEFAULT_STEPS

    def checkpoint_steps(self) -> int:
        """Steps between checkpoints."""
        if not self.checkpoint_interval_s or not self.step_s:
            return DEFAULT_CHECKPOINT_STEPS
        return max(round(self.checkpoint_interval_s / self.step_s), 1)

    def learning_rate(self, run: Run) -> float:
        if run.recipe.method != "full":
            return ADAPTER_RATE
        return CONTINUED_RATE if self.continued else FULL_RATE

    def last_learning_rate(self, run: Run) -> float:
        """A tenth, where the schedule ends."""
        return float(f"{self.learning_rate(run) / 10:.6g}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Written:
    """The command of one host and its files."""

    argv: tuple[str, ...]  # without torchrun's own options
    files: dict[str, str]
    under_torchrun: bool = True  # False: one process per host starts by itself
    in_pods: bool = True  # False: it starts in a folder of its own sources, which no published image holds
    install: str  # packages, as pip takes them
    prepare: tuple[str, ...] = ()  # shell lines to run once
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Difference:
    """One choice of a plan that a launcher makes in another way."""

    field: str  # parallel.tp
    note: str
    prevents: bool  # the plan cannot run like this: it may not fit, or trains something else


# --- another layout ---------------------------------------------------------------------------------------------


def relaid(
    run: Run, *, tp: int | None = None, pp: int | None = None, cp: int | None = None, ep: int | None = None
) -> Run:
    """The run on the same chips with these parallel sizes; data parallelism takes the rest, the global batch stays."""
    p = run.parallel
    sized = replace(p, tp=tp or p.tp, pp=pp or p.pp, cp=cp or p.cp, ep=ep or p.ep)
    dp = p.chips // (sized.tp * sized.pp * sized.cp)
    sized = replace(
        sized,
        dp=dp,
        ep=min(sized.ep, dp * sized.cp * sized.tp),
        sequence_parallel=p.sequence_parallel and sized.tp > 1,
        virtual_stages=p.virtual_stages if sized.pp > 1 else 1,
    )
    sequences = run.micro_batch * run.micro_batches * p.dp
    each = max(sequences // dp, 1)
    micro_batch = math.gcd(run.micro_batch, each)
    if pipeline_fault(sized.pp, sized.virtual_stages, each // micro_batch):
        sized = replace(sized, virtual_stages=1)
    return replace(run, parallel=sized, micro_batch=micro_batch, micro_batches=each // micro_batch)


def per_device(run: Run, place: TrainingPlace) -> Run:
    """The plan with the devices of each chip as data-parallel ranks, or tensor-parallel ones where it has these."""
    n, p = place.devices_per_chip, run.parallel
    if n == 1:
        return run
    if p.tp > 1 or place.vendor == "aws":
        return replace(run, parallel=replace(p, tp=p.tp * n, ep=p.ep))
    more = replace(run, parallel=replace(p, dp=p.dp * n, shard=p.shard * n))
    each = max(run.micro_batch * run.micro_batches // n, 1)
    micro_batch = math.gcd(run.micro_batch, each)
    return replace(more, micro_batch=micro_batch, micro_batches=each // micro_batch)


# --- differences ------------------------------------------------------------------------------------------------

NAMES = {
    "sequence_tokens": "tokens per sequence",
    "micro_batch": "sequences per pass",
    "micro_batches": "passes per step",
    "recompute": "recomputation",
    "offload": "offload to host memory",
    "offloaded_layers": "layers with activations in host memory",
    "recipe.method": "method",
    "recipe.adapter_rank": "adapter rank",
    "recipe.adapter_matrices": "matrices with adapters",
    "recipe.adapter_dropout": "adapter dropout",
    "recipe.parameter_bytes": "bytes of a stored weight",
    "recipe.compute_bytes": "bytes of a weight in matrix multiplies",
    "recipe.gradient_bytes": "bytes of a gradient",
    "recipe.state_bytes": "bytes of optimizer states per parameter",
    "recipe.master_bytes": "bytes of the master copy per parameter",
    "recipe.reduce_bytes": "bytes of a gradient in the reduction",
    "recipe.update_bytes": "bytes of the optimizer's copy of a gradient",
    "recipe.frozen_bytes": "bytes of a frozen weight",
    "recipe.autocast": "autocast",
    "recipe.matmul_dtype": "format of matrix multiplies",
    "recipe.optimizer": "optimizer",
    "parallel.dp": "data parallelism",
    "parallel.tp": "tensor parallelism",
    "parallel.pp": "pipeline stages",
    "parallel.cp": "context parallelism",
    "parallel.ep": "expert parallelism",
    "parallel.zero": "ZeRO stage",
    "parallel.shard": "ranks that the state is sharded over (0: all)",
    "parallel.sequence_parallel": "sequence parallelism",
    "parallel.virtual_stages": "virtual pipeline stages",
    "code.norm": "norm kernels",
    "code.rotary": "rotary kernels",
    "code.gate": "gate kernels",
    "code.loss": "loss",
    "code.attention": "attention kernel",
    "code.compiled": "torch.compile",
    "code.selective": "what selective recomputation repeats",
    "code.stops_early": "early end of recomputation",
    "code.gradient_buffer": "one gradient buffer",
    "code.dtensor": "DTensor",
    "code.tp_overlap": "overlap of tensor parallelism",
    "code.dispatch": "expert dispatch",
    "code.exchange_overlap": "overlap of the expert exchange",
    "code.context": "exchange of context parallelism",
    "code.graphs": "CUDA graphs",
}
# Choices with which another run is trained, or one that the plan's chips may not hold.
PREVENTING = frozenset(
    "sequence_tokens offload recipe.method recipe.adapter_rank recipe.matmul_dtype recipe.optimizer "
    "parallel.tp parallel.pp parallel.cp parallel.ep".split()
)
RECOMPUTED = ("none", "selective", "full")
# Choices of the code that say nothing on a run without the parallelism or recomputation that they are of.
BELONGS: dict[str, Callable[[Run], bool]] = {
    "code.tp_overlap": lambda run: run.parallel.tp > 1,
    "code.dtensor": lambda run: run.parallel.tp > 1,
    "code.dispatch": lambda run: run.parallel.ep > 1,
    "code.exchange_overlap": lambda run: run.parallel.ep > 1,
    "code.context": lambda run: run.parallel.cp > 1,
    "code.selective": lambda run: run.recompute == "selective",
    "code.stops_early": lambda run: run.recompute != "none",
    "recipe.adapter_rank": lambda run: run.recipe.method != "full",
    "recipe.adapter_matrices": lambda run: run.recipe.method != "full",
    "recipe.adapter_dropout": lambda run: run.recipe.method != "full",
    "recipe.frozen_bytes": lambda run: run.recipe.method != "full",
}


def choices(run: Run) -> dict[str, Any]:
    """Every choice of a run by name."""
    parts: dict[str, Recipe | Parallel | Code] = {"recipe": run.recipe, "parallel": run.parallel, "code": run.code}
    flat = {f.name: getattr(run, f.name) for f in fields(run) if f.name not in parts}
    return flat | {f"{part}.{f.name}": getattr(value, f.name) for part, value in parts.items() for f in fields(value)}


def differences(plan: Run, actual: Run) -> tuple[Difference, ...]:
    """The choices of the plan that differ in the run that a launcher starts."""
    planned, started = choices(plan), choices(actual)
    return tuple(
        Difference(field=name, note=_note(name, planned[name], started[name]), prevents=_prevents(name, plan, actual))
        for name in planned
        if planned[name] != started[name] and (name not in BELONGS or BELONGS[name](plan))
    )


def _note(name: str, planned: Any, started: Any) -> str:
    return f"{NAMES[name]}: {_said(planned)} in the plan, {_said(started)} here"


def _said(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, float):
        return f"{value:.4g}"
    return str(value).replace("_", " ") or "off"


def _prevents(name: str, plan: Run, actual: Run) -> bool:
    if name == "recompute":
        return RECOMPUTED.index(actual.recompute) < RECOMPUTED.index(plan.recompute)
    if name == "offloaded_layers":
        return actual.offloaded_layers < plan.offloaded_layers
    if name == "parallel.zero":
        return actual.parallel.zero < plan.parallel.zero
    return name in PREVENTING
