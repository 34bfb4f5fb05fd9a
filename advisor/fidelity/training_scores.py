"""Predictions of measured training runs, scored like those of serving."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from advisor.engine import training
from advisor.engine.network import Model
from advisor.engine.spec import Accelerator, Scopes, efficiency
from advisor.fidelity.rows import Row, Skip
from advisor.fidelity.scoring import Prediction, Scored, labels_of
from advisor.fidelity.training_rows import MEMORY, RESERVED_GIB, TrainingCase, predicted, training_case


class Resources(Protocol):
    """The catalog rows that the runs refer to."""

    @property
    def models(self) -> Mapping[str, Model]: ...
    @property
    def accelerators(self) -> Mapping[str, Accelerator]: ...
    @property
    def scopes(self) -> Scopes: ...


def predict(rows: Sequence[Row], resources: Resources, families: Mapping[str, str]) -> list[Scored]:
    """Training rows with their predictions, or the reason for having none. No interval is stated yet."""
    return [_scored(row, training_case(row), resources, families) for row in rows]


def _scored(row: Row, case: TrainingCase | Skip, resources: Resources, families: Mapping[str, str]) -> Scored:
    labels = labels_of(row, None, None, families)
    value = case if isinstance(case, Skip) else figure_of(row, case, resources)
    if isinstance(value, Skip) or isinstance(case, Skip):
        reason = value.reason if isinstance(value, Skip) else ""
        return Scored(row=row, case=None, prediction=None, skipped=reason, labels=labels)
    labels |= {
        "framework_name": row.framework.split(" ")[0],
        "phase": "training",
        "format": case.run.recipe.matmul_dtype,
        "layout": "stated",
    }
    return Scored(row=row, case=None, prediction=Prediction(value=value), skipped="", labels=labels)


def figure_of(row: Row, case: TrainingCase, resources: Resources) -> float | None | Skip:
    """The prediction in the row's unit; None: the run is predicted not to fit."""
    if case.model_id not in resources.models:
        return Skip(reason=f"model not in the catalog: {case.model_id or 'not named'}")
    if case.accelerator_slug not in resources.accelerators:
        return Skip(reason=f"accelerator not in the catalog: {case.accelerator_slug}")
    chip, model = resources.accelerators[case.accelerator_slug], resources.models[case.model_id]
    peak = training.peak_memory(model, case.run)
    room = training.fits(peak, chip.memory_bytes, training.outside_bytes(case.run))
    if row.metric == "fits_in_memory":
        return float(room)
    if row.metric == "peak_memory_gb":
        reserved = row.source_key in RESERVED_GIB
        return peak.reserved_bytes / 2.0**30 if reserved else peak.allocated_bytes / 1e9
    if row.metric in MEMORY:
        return peak.reserved_bytes if row.metric == "peak_reserved_bytes" else peak.allocated_bytes
    achieved = efficiency(resources.scopes, chip.slug, chip.family, chip.kind)
    try:
        rates = training.rates_of(chip, achieved, case.run.recipe, case.run.code)
    except ValueError as error:
        return Skip(reason=f"training: {error}")
    step = training.step_time(model, training.Shape.of(case.run), rates, case.run)
    return predicted(row, case, float(step.step_s))
