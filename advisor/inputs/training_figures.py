"""What chips reach in training, for snapshots from before the catalog had it."""

from functools import cache
from pathlib import Path
from typing import Any

from advisor.engine.terms import TRAINING
from catalog.loading import fixtures

SHIPPED = Path(__file__).resolve().parents[2] / "fixtures" / "calibration"
Json = dict[str, Any]


def with_training_figures(calibrations: Json) -> Json:
    """The calibrations of a snapshot; one that has no figures of training gets the shipped ones."""
    return calibrations if TRAINING in calibrations else shipped() | calibrations


@cache
def shipped() -> Json:
    rows = map(fixtures.calibration, sorted(SHIPPED.glob(f"{TRAINING}*.yaml")))
    return {row["name"]: {**row["values"], "basis": row["basis"], "source": row["fitted_on"]} for row in rows}
