"""Predicted time of the modules in fixtures/measurements/h200-encoders.csv, on the chip and formats of that run."""

import csv
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from advisor.engine.network import Model
from advisor.engine.network.vision import Pictures
from advisor.engine.search import Catalog
from advisor.engine.step import Choice, Layouts, layouts
from advisor.engine.step.media.encoder import source_operators
from advisor.engine.step.media.generation import drawn
from advisor.engine.step.operators import Operator, attention_cost, linear_operators
from advisor.engine.terms import efficiency, overhead
from advisor.inputs import catalog_of, take_snapshot
from advisor.inputs.from_catalog import model_row
from advisor.inputs.to_engine import model_of
from advisor.workload.schema import parse

MEASURED = Path(__file__).resolve().parents[1] / "fixtures" / "measurements" / "h200-encoders.csv"


def rows() -> list[dict[str, str]]:
    with MEASURED.open() as f:
        return list(csv.DictReader(f))


def measured_ms(row: dict[str, str]) -> float:
    """The faster of one call and its CUDA graph."""
    return min(float(row["eager_ms"]), float(row["graph_ms"] or "inf"))


def shipped_catalog() -> Catalog:
    traffic = {"input_tokens": 9, "output_tokens": 9, "requests_per_s": 1}
    spec = parse({"model": "Qwen/Qwen3-8B", "traffic": traffic})
    return catalog_of(spec, take_snapshot(spec))


def on_h200(catalog: Catalog, model: Model) -> Layouts:
    chip = next(a for a in catalog.accelerators if a.slug == "h200-sxm")
    choice = Choice(
        accelerator=chip,
        efficiency=efficiency(catalog.scopes, chip.slug, chip.family, chip.kind),
        overhead=overhead(catalog.scopes, "vllm", "0.24.0", chip.family),
        quantization=next(q for q in catalog.quantizations if q.slug == "bf16"),
        kv_dtype="bf16",
    )
    return layouts(model, [choice])


def predicted_ms(catalog: Catalog, row: dict[str, str]) -> float:
    model, count, size = model_of(model_row(row["model_id"])), float(row["count"]), float(row["size"])
    return 1e3 * sum(float(np.ravel(op.time_s)[0]) for op in operators(catalog, model, row["part"], count, size))


def operators(catalog: Catalog, model: Model, part: str, count: float, size: float) -> Iterator[Operator]:
    none = np.zeros(1)
    if part == "vision":  # without the projector and, for the SigLIP tower, without the patch embedding
        model = replace(model, pictures=Pictures(passes=count, patches=size, tokens=1))
        left_out = ("vision/projector", "vision/to_prompt", "vision/patches")
        yield from (o for o in source_operators(model, on_h200(catalog, model), none) if o.name not in left_out)
    elif part == "encoder":  # windows are timed alone
        alone = source_operators(model, on_h200(catalog, model), np.array([size]))
        yield from (replace(o, time_s=count * o.time_s) for o in alone if o.name.startswith("encoder/"))
    elif part in ("vae", "text"):
        assert model.diffusion
        if part == "text":  # T5 alone
            model = replace(model, diffusion=replace(model.diffusion, text_encoders=model.diffusion.text_encoders[:1]))
        model = drawn(model, size if part == "vae" else 512, size if part == "vae" else 512, 1, count)
        prefix = "vae/" if part == "vae" else "text_encoder/"
        once = source_operators(model, on_h200(catalog, model), none)
        yield from (o for o in once if o.name.startswith(prefix))
    else:
        tokens = size if part == "pairs" else drawn(model, size, size, 1, 1).drawing.tokens  # type: ignore[union-attr]
        yield from whole_sequences(catalog, replace(model, sequences=count), count * tokens)


def whole_sequences(catalog: Catalog, model: Model, tokens: float) -> Iterable[Operator]:
    """One pass of the model over sequences that attend to themselves."""
    x = on_h200(catalog, model)
    yield from linear_operators(model, x, np.array([tokens]))
    pairs_s = attention_cost(model, x).prefill_s_per_pair * tokens**2 / 2
    zero = np.zeros(1)
    yield Operator(name="attention/scores", flops=zero, bytes=zero, time_s=pairs_s, bound="compute")
