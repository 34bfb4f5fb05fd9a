"""One list of a layer's matrices: everything that counts, stores or multiplies weights reads it, for every model."""

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from advisor.engine.network import Adapters, Block, Matrix, Model, decoder_blocks, from_shape, parameters
from advisor.engine.network import matrices as network_matrices
from advisor.engine.network.matrices import ffn_matrices, matrices, mixer_matrices, vectors
from advisor.engine.step import adapters, operators
from advisor.engine.step.operators import block_operators
from advisor.engine.training import operators as training_operators
from advisor.engine.training.run import Parallel, Run
from tests.engine.step.test_operators import chips

memory = import_module("advisor.engine.step.memory")  # the package exports a function of this name
training_memory = import_module("advisor.engine.training.memory")
FILES = sorted((Path(__file__).resolve().parents[3] / "fixtures" / "models").glob("*.yaml"))
TOKENS = np.array([[4096.0]])


@cache
def shipped(name: str) -> Model:
    stored = yaml.safe_load(next(file for file in FILES if file.stem == name).read_text())
    shape = {k: v for k, v in stored["shape"].items() if k not in ("source", "as_of", "basis", "notes")}
    return from_shape(stored["slug"], shape)


def sum_of(found: Iterator[Any]) -> float:
    return float(sum(float(np.ravel(x)[0]) for x in found))


def projections(model: Model, block: Block) -> float:
    """FLOPs of the matrix multiplies of one layer in serving, for one token."""
    one = replace(block, count=1)
    every = block_operators(model, one, chips().column(), TOKENS)
    shapes = [op for op in every if op.name.split("/")[-1] not in ("scan", "top_k")]
    return sum_of(op.flops for op in shapes) / TOKENS.item()


def serving_weights(block: Block, hidden: int) -> float:
    """Weights that one token multiplies by, routed experts apart: they are padded to tiles."""
    return sum(m.elements for m in matrices(block, hidden) if not m.routed)


MODELS = [file.stem for file in FILES]


@pytest.mark.parametrize("name", MODELS)
def test_the_matrices_and_vectors_of_all_layers_are_the_models_parameters(name: str) -> None:
    model = shipped(name)
    layers = sum(
        b.count * (b.streams * (sum(m.elements * m.copies for m in matrices(b, model.hidden))
                                + vectors(b, model.hidden, norm_bias=model.norm_bias)) + b.modulation * model.hidden**2)
        for b in model.blocks
    )  # fmt: skip
    assert layers == parameters(replace(model, vision=None, diffusion=None)) - _tables(model)


def _tables(model: Model) -> int:
    return parameters(replace(model, blocks=(), vision=None, diffusion=None))


@pytest.mark.parametrize("name", MODELS)
def test_memory_holds_every_parameter_in_two_bytes(name: str) -> None:
    """On one chip in 16 bits: all weights but an encoder's pooler and the final norm, which are below 0.1 percent."""
    model = replace(shipped(name), vision=None, diffusion=None)
    x = chips(weight_bytes=2.0, expert_weight_bytes=2.0)
    stored = float(memory.weights_bytes(model, x)[0]) / 2.0
    pooler = model.hidden * (model.hidden + 1) if model.encoder_only else 0
    final_norm = model.hidden * (2 if model.norm_bias else 1)
    tables = 1 if model.tied_embeddings or model.encoder_only else 2
    given = 1 if model.tied_embeddings else 2
    expected = parameters(model) - pooler - final_norm - (given - tables) * model.vocab * model.hidden
    assert stored == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("name", MODELS)
def test_serving_multiplies_by_every_weight_of_a_layer_once_for_each_token(name: str) -> None:
    model = shipped(name)
    for block in decoder_blocks(model):
        cross = getattr(block.mixer, "cross", False)
        expected = serving_weights(block, model.hidden)
        if cross:  # keys and values of the source are projected once, by encoder.py
            expected -= sum(m.elements for m in matrices(block, model.hidden) if m.name in ("k", "v"))
        experts = [m for m in matrices(block, model.hidden) if m.routed]
        dense = projections(model, replace(block, ffn=None) if experts else block)
        if experts:
            router_and_shared = [m for m in ffn_matrices(block.ffn, model.hidden) if not m.routed]
            expected -= sum(m.elements for m in router_and_shared)
        assert dense == pytest.approx(2.0 * expected, rel=1e-9)


@pytest.mark.parametrize("name", MODELS)
def test_training_multiplies_by_every_weight_of_a_layer(name: str) -> None:
    model = shipped(name)
    if model.diffusion or any(b.streams > 1 for b in model.blocks):
        return  # image generators are not trained
    shape = training_operators.Shape.of(run(model))
    for block in decoder_blocks(model):
        found = [*training_operators.products(model, block, shape)]
        total = sum(float(np.ravel(p.weights if p.weights is not None else p.columns * p.inner)[0]) for p in found)
        assert total == sum(m.elements * m.copies for m in matrices(block, model.hidden))


def run(model: Model) -> Run:
    return Run(sequence_tokens=4096, micro_batch=1, micro_batches=1, parallel=Parallel())


# --- one entry changed: everything moves by its share -------------------------------------------------------------

CASES = [
    ("meta-llama-llama-3-1-8b", "k"), ("meta-llama-llama-3-1-8b", "down"), ("deepseek-ai-deepseek-v3-2", "index_q"),
    ("deepseek-ai-deepseek-v3-2", "kv_up"), ("deepseek-ai-deepseek-v3-2", "shared_up"),
    ("tiiuae-falcon-mamba-7b", "select"), ("tiiuae-falcon-mamba-7b", "in"), ("qwen-qwen3-30b-a3b", "up"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "entry"), CASES)
def test_a_larger_matrix_moves_parameters_memory_and_both_times_by_its_share(
    monkeypatch: pytest.MonkeyPatch, name: str, entry: str
) -> None:
    model = replace(shipped(name), vision=None)
    before = figures(model)
    (of_entry,) = {
        sum(
            b.count * m.elements * m.copies
            for b in decoder_blocks(model)
            for m in matrices(b, model.hidden)
            if m.name == entry
        )
    }
    grow(monkeypatch, entry, 1.1)
    after = figures(model)
    for what in ("memory", "training memory"):
        assert after[what] - before[what] == pytest.approx(0.1 * of_entry, rel=1e-6), what
    added = {what: after[what] - before[what] for what in ("serving FLOPs", "training FLOPs")}
    assert min(added.values()) > 0
    if not any(m.routed and m.name == entry for b in decoder_blocks(model) for m in matrices(b, model.hidden)):
        assert added["serving FLOPs"] == pytest.approx(added["training FLOPs"], rel=1e-6)  # experts pad to tiles


def test_a_larger_matrix_has_a_larger_adapter(monkeypatch: pytest.MonkeyPatch) -> None:
    model = replace(shipped("meta-llama-llama-3-1-8b"), adapters=Adapters(count=1, rank=16, active=1))
    before = float(adapters.adapter_bytes(model, chips())[0])
    grow(monkeypatch, "down", 1.1)
    added = float(adapters.adapter_bytes(model, chips())[0]) - before
    assert added == pytest.approx(0.1 * 32 * 16 * model.hidden * 2)


def grow(monkeypatch: pytest.MonkeyPatch, entry: str, factor: float) -> None:
    """Every reader of the list sees the columns of one entry multiplied."""

    def larger(found: Any) -> Any:
        return tuple(replace(m, columns=m.columns * factor) if m.name == entry else m for m in found)

    whole, of_mixer, of_ffn = network_matrices, mixer_matrices, ffn_matrices
    for module in (memory, operators, adapters, training_memory, training_operators):
        for attribute, original in (("matrices", whole), ("mixer_matrices", of_mixer), ("ffn_matrices", of_ffn)):
            if hasattr(module, attribute):
                monkeypatch.setattr(module, attribute, lambda *a, original=original: larger(original(*a)))


def figures(model: Model) -> dict[str, float]:
    x, shape = chips(weight_bytes=1.0, expert_weight_bytes=1.0), training_operators.Shape.of(run(model))
    layers = decoder_blocks(model)
    return {
        "memory": float(memory.weights_bytes(model, x)[0]),
        "training memory": sum(
            b.count * m.elements * m.copies for b in layers for m in training_memory.products(model, b)
        ),
        "serving FLOPs": sum_of(
            op.flops / TOKENS.item() for b in layers for op in block_operators(model, b, x.column(), TOKENS)
        ),
        "training FLOPs": sum(
            float(np.ravel(p.count * 2.0 * p.rows * p.columns * p.inner / shape.tokens)[0])
            for b in layers
            for p in training_operators.products(model, b, shape)
        ),
    }


def test_every_matrix_of_the_catalog_has_a_size() -> None:
    found: list[Matrix] = [
        m for name in MODELS for b in shipped(name).blocks for m in matrices(b, shipped(name).hidden)
    ]
    assert found and all(m.inner > 0 and m.columns > 0 for m in found)
