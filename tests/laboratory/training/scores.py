"""Predictions of measured training runs, scored like those of serving."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from advisor.engine import training
from advisor.engine.network import Model
from advisor.engine.step import has_experts
from advisor.engine.terms import Accelerator, Scopes, efficiency
from advisor.engine.training import Run
from advisor.engine.training.intervals import Intervals
from advisor.fidelity.rows import Row, Skip
from advisor.fidelity.scores.scoring import Prediction, Scored, labels_of
from advisor.fidelity.training.rows import (
    LAYOUT_MISSING,
    MEMORY,
    RESERVED_GIB,
    TrainingCase,
    predicted,
    training_case,
)


class Resources(Protocol):
    """The catalog rows that the runs refer to."""

    @property
    def models(self) -> Mapping[str, Model]: ...
    @property
    def accelerators(self) -> Mapping[str, Accelerator]: ...
    @property
    def scopes(self) -> Scopes: ...


def predict(rows: Sequence[Row], resources: Resources, families: Mapping[str, str]) -> list[Scored]:
    """Training rows with their predictions, or the reason for having none."""
    steps: dict[TrainingCase, float | None | Skip] = {}
    return [_scored(row, training_case(row), resources, families, steps) for row in rows]


def _scored(
    row: Row,
    case: TrainingCase | Skip,
    resources: Resources,
    families: Mapping[str, str],
    steps: dict[TrainingCase, float | None | Skip],
) -> Scored:
    labels = labels_of(row, None, None, families)
    value = case if isinstance(case, Skip) else figure_of(row, case, resources, steps)
    if isinstance(value, Skip) or isinstance(case, Skip):
        reason = value.reason if isinstance(value, Skip) else ""
        return Scored(row=row, case=None, prediction=None, skipped=reason, labels=labels)
    known = scope_labels(case, resources)
    labels |= known | {
        "framework_name": row.framework.split(" ")[0],
        "phase": "training",
        "format": case.run.recipe.matmul_dtype,
        "layout": "stated" if isinstance(case.run, Run) else "found",
    }
    ratios = training.interval(
        resources.scopes, known["basis"], experts=known["experts"] == "true", found=labels["layout"] == "found"
    )
    return Scored(row=row, case=None, prediction=with_interval(row, value, ratios), skipped="", labels=labels)


def scope_labels(case: TrainingCase, resources: Resources) -> dict[str, str]:
    """What decides the interval of a run beside its layout."""
    chip = resources.accelerators[case.accelerator_slug]
    experts = has_experts(resources.models[case.model_id])
    kernels = efficiency(resources.scopes, chip.slug, chip.family, chip.kind).basis
    basis = training.run_basis(chip, kernels, case.chips)
    return {"basis": basis, "experts": str(experts).lower()}


def with_interval(row: Row, value: float | None, known: Intervals) -> Prediction:
    """The prediction with its 90 % interval, in the row's unit: a rate is the inverse of a time."""
    ratios = known.memory if row.metric in MEMORY else known.step
    if value is None or ratios is None or row.metric == "fits_in_memory":
        return Prediction(value=value)
    low, high = ratios
    if row.metric not in (*MEMORY, "step_time_s"):
        low, high = 1.0 / high, 1.0 / low
    return Prediction(value=value, low=value * low, high=value * high)


def figure_of(
    row: Row, case: TrainingCase, resources: Resources, steps: dict[TrainingCase, float | None | Skip]
) -> float | None | Skip:
    """The prediction in the row's unit; None: the run is predicted not to fit. `steps`: what is known of other rows."""
    if case.model_id not in resources.models:
        return Skip(reason=f"model not in the catalog: {case.model_id or 'not named'}")
    if case.accelerator_slug not in resources.accelerators:
        return Skip(reason=f"accelerator not in the catalog: {case.accelerator_slug}")
    if row.metric in MEMORY:
        return memory_of(row, case, resources) if isinstance(case.run, Run) else Skip(reason=LAYOUT_MISSING)
    if case not in steps:
        steps[case] = step_of(case, resources)
    step_s = steps[case]
    return predicted(row, case, step_s) if isinstance(step_s, float) else step_s


def memory_of(row: Row, case: TrainingCase, resources: Resources) -> float:
    """The peak, allocated or reserved as the row means it, or whether the run fits."""
    assert isinstance(case.run, Run)
    peak = training.peak_memory(resources.models[case.model_id], case.run)
    if row.metric == "fits_in_memory":
        return float(has_room(resources.models[case.model_id], case.run, resources.accelerators[case.accelerator_slug]))
    if row.metric == "peak_memory_gb":
        reserved = row.source_key in RESERVED_GIB
        return peak.reserved_bytes / 2.0**30 if reserved else peak.allocated_bytes / 1e9
    return peak.reserved_bytes if row.metric == "peak_reserved_bytes" else peak.allocated_bytes


def has_room(model: Model, run: Run, chip: Accelerator) -> bool:
    return training.fits(training.peak_memory(model, run), chip.memory_bytes, training.outside_bytes(run))


def step_of(case: TrainingCase, resources: Resources) -> float | None | Skip:
    """Seconds of a step that waits for the slowest rank, as in answers; None: predicted not to fit.

    Where none is stated, the layout is the fastest found.
    """
    chip, model, run = resources.accelerators[case.accelerator_slug], resources.models[case.model_id], case.run
    achieved = efficiency(resources.scopes, chip.slug, chip.family, chip.kind)
    try:
        if isinstance(run, Run):
            rates = training.rates_of(chip, achieved, run.recipe, run.code)
            if not has_room(model, run, chip):
                return None
            step_s = float(training.step_time(model, training.Shape.of(run), rates, run).step_s)
            return step_s * training.straggler_factor(case.chips)
        job = training.Job(
            model=model, accelerator=chip, efficiency=achieved, chips=case.chips, sequence_tokens=run.sequence_tokens,
            global_batch=run.global_batch, recipe=run.recipe, code=run.code, zeros=run.zeros, uneven_stages=True,
        )  # fmt: skip
        found = training.fastest(job, count=1)
    except ValueError as error:
        return Skip(reason=f"training: {error}")
    if not found.candidates:
        return Skip(reason="training: no layout divides these chips and this batch")
    return found.layouts[0].step_s * training.straggler_factor(case.chips) if found.layouts else None
