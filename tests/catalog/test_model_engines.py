"""The oldest version of an engine that loads a model: stored, checked against vLLM's registry, and enforced.

vllm_registry.json has the first release whose registry lists the class of a model.
"""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from advisor.engine.search.candidates import Question, enumerate_lanes
from advisor.engine.step import supports_model, too_old
from advisor.engine.step.compatibility.support import release_numbers
from advisor.inputs.to_engine import with_checkpoints
from catalog.loading import fixtures
from tests.engine.catalog_sample import LLAMA_8B, VLLM, catalog, question

MODELS = Path(__file__).parents[2] / "fixtures" / "models"
REGISTRY = json.loads((Path(__file__).parent / "vllm_registry.json").read_text())


@pytest.mark.parametrize("slug", sorted(REGISTRY["classes"]))
def test_a_stated_version_of_vllm_has_the_class_of_the_model(slug: str) -> None:
    releases, first = REGISTRY["releases"], REGISTRY["first"].get(REGISTRY["classes"][slug])
    stated = fixtures.served_model(MODELS / f"{slug}.yaml")["checkpoints"].get("engines", {}).get("vllm")
    if first is None or first == releases[0]:
        return
    before = releases[releases.index(first) - 1]
    assert stated, f"vLLM {before} lacks the class of {slug}: state the oldest version"
    assert release_numbers(stated) > release_numbers(before)


@pytest.mark.parametrize(
    ("slug", "version", "loads"),
    [
        ("vllm", "0.24.0", False), ("vllm", "0.26", True), ("vllm", "0.26.0", True), ("vllm", "0.33.0", True),
        ("vllm", "1.0", True), ("vllm", "0.9.2", False), ("vllm-tpu", "0.12", False), ("vllm-ascend", "0.26", True),
        ("sglang", "0.5.10", True), ("llama.cpp", "b7000", True), ("vllm", "main", True),
    ],
)  # fmt: skip
def test_a_version_older_than_the_stated_one_does_not_load_the_model(slug: str, version: str, loads: bool) -> None:
    model = with_checkpoints(LLAMA_8B, {"engines": {"vllm": "0.26.0"}})
    framework = replace(VLLM, slug=slug, name="Engine", version=version)
    why = too_old(framework, model)
    assert supports_model(framework, model) == loads == (not why)
    assert loads or why == f"Engine {version} does not load this model; it needs 0.26.0 or later"


def test_the_search_refuses_an_engine_that_is_too_old_and_names_the_version_that_it_needs() -> None:
    model = replace(LLAMA_8B, engines=(("vllm", "0.99.0"),))
    known = replace(catalog(), model=model, frameworks=(VLLM,))
    lanes, rejections = enumerate_lanes(Question(question(), known), known.accelerators)
    assert not lanes
    assert {r.detail for r in rejections} == {"vLLM 0.24.0 does not load this model; it needs 0.99.0 or later"}
    assert enumerate_lanes(Question(question(), replace(known, model=LLAMA_8B)), known.accelerators)[0]
