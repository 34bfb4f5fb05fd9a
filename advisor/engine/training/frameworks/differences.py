"""How the run that a framework starts differs from a plan, in words."""

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

from advisor.engine.training.run import Code, Parallel, Recipe, Run


@dataclass(frozen=True, kw_only=True, slots=True)
class Difference:
    """One choice of a plan that a launcher makes in another way."""

    field: str  # parallel.tp
    note: str
    prevents: bool  # the plan cannot run like this: it may not fit, or trains something else


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
    "code.gradient_overlap": "overlap of data parallelism",
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
OF_DATA = ("longest_tokens", "varied_lengths")
RECOMPUTED = ("none", "selective", "full")
# Choices of the code that say nothing on a run without the parallelism or recomputation that they are of.
BELONGS: dict[str, Callable[[Run], bool]] = {
    "code.tp_overlap": lambda run: run.parallel.tp > 1,
    "code.gradient_overlap": lambda run: run.parallel.dp * run.parallel.cp > 1,
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
    """Every choice of a run by name; lengths of the data are none."""
    parts: dict[str, Recipe | Parallel | Code] = {"recipe": run.recipe, "parallel": run.parallel, "code": run.code}
    flat = {f.name: getattr(run, f.name) for f in fields(run) if f.name not in {*parts, *OF_DATA}}
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
