"""No choice of a plan is dropped in silence: changing it changes the launch files, or a note names it."""

from dataclasses import fields, replace
from typing import Any

import pytest

from advisor.engine.launch import LAUNCHERS, training_launch
from advisor.engine.training import FRAMEWORKS, MEGATRON, MEGATRON_BF16, Code, Parallel, Recipe, Run
from advisor.engine.training.frameworks.differences import NAMES, OF_DATA, choices
from tests.engine.launch.training_plans import place

VENDORS = {"maxtext": "google", "nxdt": "aws"}
# Every form of parallelism, adapters and selective recomputation, so that each choice matters.
ALL = Run(
    sequence_tokens=4096,
    micro_batch=2,
    micro_batches=8,
    recipe=replace(MEGATRON_BF16, method="lora", adapter_rank=16),
    parallel=Parallel(dp=8, tp=2, pp=2, cp=2, ep=2, zero=1, sequence_parallel=True, virtual_stages=2),
    code=replace(MEGATRON, exchange_overlap=False),
    recompute="selective",
)
FULL = replace(ALL, recipe=MEGATRON_BF16)
OTHERS: dict[str, Any] = {
    "sequence_tokens": 2048,
    "micro_batch": 4,
    "micro_batches": 16,
    "recompute": "full",
    "offload": "optimizer",
    "offloaded_layers": 8,
    "recipe.method": "qlora",
    "recipe.adapter_rank": 32,
    "recipe.adapter_matrices": "query_value",
    "recipe.adapter_dropout": True,
    "recipe.parameter_bytes": 4.0,
    "recipe.compute_bytes": 4.0,
    "recipe.gradient_bytes": 2.0,
    "recipe.state_bytes": 4.0,
    "recipe.master_bytes": 0.0,
    "recipe.reduce_bytes": 2.0,
    "recipe.update_bytes": 4.0,
    "recipe.frozen_bytes": 4.0,
    "recipe.autocast": True,
    "recipe.matmul_dtype": "fp8",
    "recipe.optimizer": "muon",
    "parallel.dp": 16,
    "parallel.tp": 4,
    "parallel.pp": 4,
    "parallel.cp": 4,
    "parallel.ep": 4,
    "parallel.zero": 3,
    "parallel.shard": 4,
    "parallel.sequence_parallel": False,
    "parallel.virtual_stages": 4,
    "code.norm": "eager_fp32",
    "code.rotary": "eager",
    "code.gate": "eager",
    "code.loss": "fused_linear",
    "code.attention": "flash1",
    "code.compiled": "block",
    "code.selective": "operators",
    "code.stops_early": True,
    "code.gradient_buffer": False,
    "code.dtensor": True,
    "code.tp_overlap": True,
    "code.gradient_overlap": True,
    "code.dispatch": "alltoall",
    "code.exchange_overlap": True,
    "code.context": "gather",
    "code.graphs": "partial",
}


def with_choice(run: Run, name: str) -> Run:
    part, _, field = name.partition(".")
    if not field:
        return replace(run, **{name: OTHERS[name]})
    return replace(run, **{part: replace(getattr(run, part), **{field: OTHERS[name]})})


def test_every_choice_of_a_plan_has_a_name_and_is_tested() -> None:
    own = {f.name for f in fields(Run)} - {"recipe", "parallel", "code", *OF_DATA}
    every = own | {
        f"{part}.{f.name}"
        for part, kind in (("recipe", Recipe), ("parallel", Parallel), ("code", Code))
        for f in fields(kind)
    }
    assert set(choices(ALL)) == every == set(NAMES) == set(OTHERS)


@pytest.mark.parametrize("framework", LAUNCHERS)
@pytest.mark.parametrize("name", OTHERS)
def test_each_choice_is_in_the_files_or_named_in_a_note(framework: str, name: str) -> None:
    adapters = name.startswith("recipe.adapter") or name in ("recipe.method", "recipe.frozen_bytes")
    before = ALL if adapters else FULL
    after = with_choice(before, name)
    at = place(before, VENDORS.get(framework, "nvidia"))
    one, other = training_launch(before, at, framework), training_launch(after, at, framework)
    written = one.files | {"prepare.sh": ""} != other.files | {"prepare.sh": ""}
    noted = any(note.partition(": ")[2].startswith(NAMES[name]) for note in (*one.notes, *other.notes))
    assert written or noted


@pytest.mark.parametrize("framework", LAUNCHERS)
def test_a_launcher_starts_its_own_run_unchanged(framework: str) -> None:
    vendor = VENDORS.get(framework, "nvidia")
    once = FRAMEWORKS[framework].runs(FULL, vendor)
    assert FRAMEWORKS[framework].runs(once, vendor) == once
