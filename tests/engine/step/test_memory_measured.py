"""Token capacities that vLLM reported, on H200s and in public reports, against those that are predicted."""

import csv
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from advisor.answer import single_estimate
from advisor.engine.estimate import prepare
from advisor.engine.step import lanes
from advisor.engine.terms import Case, Pool
from advisor.inputs.current import catalog_resources
from advisor.workload import deployment

OWN = Path("fixtures/fidelity/h200_vllm_memory.csv")
PUBLIC = Path("fixtures/measurements/public_reports.csv")
SETTINGS = {
    "accelerator": "h200-sxm", "framework": "vllm", "framework_version": "0.24.0", "memory_fraction": 0.9,
    "seats": 1024, "max_batched_tokens": 8192, "isl": 20_000, "osl": 480, "concurrency": 1,
}  # fmt: skip
OLD = ("vllm-project/vllm#6746",)  # vLLM 0.5.3 of 2024 kept 10 GiB on each chip that no release since has kept
pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("shipped")]


def tokens(asked: Mapping[str, Any]) -> float:
    return float(single_estimate.answer(deployment.parse_deployment(dict(asked))).kv_capacity_tokens or 0.0)


def test_capacities_measured_for_this_project_are_within_one_percent():
    """One, two and four H200s, dense and with experts, BF16 and FP8: 11 starts of vLLM 0.24.0."""
    wrong, seen = {}, 0
    for row in csv.DictReader(OWN.read_text().splitlines()):
        if row["metric"] != "kv_capacity_tokens":
            continue
        _, _, weights, kv, _ = row["key"].split(":")[0].split("_")
        asked = SETTINGS | {"model": row["model"], "weights": weights, "kv": kv}
        asked |= {name: int(size) for name, size in (part_of(part) for part in row["layout"].split())}
        ratio = tokens(asked) / float(row["measured"])
        seen += 1
        if abs(ratio - 1) > 0.0105:
            wrong[row["key"]] = ratio
    assert (seen, wrong) == (11, {})


def part_of(part: str) -> tuple[str, str]:
    return part[:2], part[2:]


def test_capacities_of_public_reports_are_within_a_fifth():
    ratios = {
        row["source"]: tokens(json.loads(row["arguments"])) / float(row["measured"])
        for row in csv.DictReader(PUBLIC.read_text().splitlines())
        if row["figure"] == "kv_capacity_tokens" and row["source"] not in OLD
    }
    assert len(ratios) == 5 and all(0.98 < ratio < 1.2 for ratio in ratios.values()), ratios
    assert sum(ratio < 1.05 for ratio in ratios.values()) >= 4


def test_experts_and_images_take_workspace_in_every_model_of_the_catalog():
    """More than a dense layer of the same width does, whatever is asked; a vision model keeps room for one image."""
    known, experts, seeing = catalog_resources(), 0, 0
    for model_id, model in known.models.items():
        case = Case(
            model_id=model_id,
            accelerator_slug="b300",
            chips=8,
            weights_dtype="bf16",
            framework="vllm",
            framework_version="0.24.0",
            isl=1000,
            osl=200,
            phase="fit",
            pool=Pool(tp=8),
            max_batch=64,
        )
        own = prepare(case, known)
        if isinstance(own, str) or model.encoder_only or model.diffusion:
            continue
        kept = float(lanes(model, own).memory.activations_bytes[0])
        budget = own[0].max_batched_tokens
        routed = [b.ffn for b in model.blocks if b.ffn is not None and b.ffn.experts > 1]
        experts, seeing = experts + bool(routed), seeing + (model.vision is not None)
        for f in routed:
            assert kept > min(budget, 16384) * f.top_k * 20 * (f.latent or model.hidden), model_id
        if model.vision is not None:
            assert kept > 0.3 * 2**30, model_id
    assert experts > 40 and seeing >= 8
