"""Steps of a few decoder layers on one and two H100s, which no rate was fitted to: kernels were measured on an H200."""

import csv
import statistics
from dataclasses import replace
from pathlib import Path

import yaml

from advisor.engine.network import Attention, Block, Ffn, Model
from advisor.engine.terms import efficiency
from advisor.engine.training import (
    BF16,
    FSDP_MIXED,
    PLAIN,
    Parallel,
    Run,
    Shape,
    peak_memory,
    rates_of,
    step_time,
)
from tests.engine.training.test_step_time import FIXTURES, H200

H100 = replace(H200, slug="h100-sxm", name="H100", memory_bytes=79.65 * 2**30, memory_bytes_per_s=3.35e12)
CODE = replace(PLAIN, rotary="fused")  # these layers have no rotary embedding


def predictions() -> list[tuple[float, float]]:
    """(step time, peak memory) of each row as predicted over measured."""
    names = ("default", "framework", "training", "training-family-hopper", "family-hopper", "accelerator-h100-sxm")
    files = [path for name in names if (path := Path(FIXTURES / "calibration" / f"{name}.yaml")).exists()]
    scopes = {row["name"]: row["values"] for row in map(yaml.safe_load, (f.read_text() for f in files))}
    reached = efficiency(scopes, "h100-sxm", "hopper", "gpu")
    ratios = []
    with (FIXTURES / "measurements" / "h100-training-steps.csv").open() as file:
        for row in csv.DictReader(file):
            sharded = row["sharding"] == "fsdp2"
            recipe = replace(FSDP_MIXED, reduce_bytes=2.0) if sharded else BF16
            run = Run(
                sequence_tokens=int(row["tokens"]),
                micro_batch=int(row["micro_batch"]),
                recipe=recipe,
                code=CODE,
                recompute=row["recompute"],  # type: ignore[arg-type]
                parallel=Parallel(dp=2, zero=3) if sharded else Parallel(),
            )
            block = Block(
                count=int(row["layers"]), mixer=Attention(heads=32, kv_heads=8, head_dim=128), ffn=Ffn(inner=14336)
            )
            model = Model(slug="layers", hidden=4096, vocab=8, blocks=(block,))
            step_s = float(step_time(model, Shape.of(run), rates_of(H100, reached, recipe, CODE), run).step_s)
            memory = peak_memory(model, run).allocated_bytes / float(row["peak_allocated_bytes"])
            ratios.append((step_s / float(row["step_s"]), memory))
    return ratios


def test_steps_take_what_they_took() -> None:
    errors = [abs(time - 1.0) for time, _ in predictions()]
    assert statistics.median(errors) < 0.03 and max(errors) < 0.11


def test_peaks_are_those_of_the_allocator() -> None:
    errors = [abs(memory - 1.0) for _, memory in predictions()]
    assert statistics.median(errors) < 0.02 and max(errors) < 0.04
