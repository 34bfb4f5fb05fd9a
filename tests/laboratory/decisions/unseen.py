"""What would have been predicted, and with which errors, had the rows of a decision never been measured."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from advisor.engine.calibration import Observed, Pooling
from advisor.engine.estimate import Resources
from advisor.engine.terms import Case, RatioDistribution, length_class
from advisor.fidelity.nearest_rows import bits
from advisor.fidelity.rows import Row
from advisor.fidelity.scores import scoring
from catalog.models import ScoredRow
from tests.laboratory import calibrate, least_squares, pooling_fit, reliability
from tests.laboratory.calibration_files import Setup
from tests.laboratory.least_squares import Array, Mask, Solution

FIGURES = ("tpot", "ttft")


THIN = 3  # every third row is enough for variances, and takes a tenth of the time


@dataclass(frozen=True, kw_only=True, slots=True)
class Expected:
    """The errors to expect of a model that was not measured, from the rows of all others."""

    spread: Mapping[tuple[str, str], RatioDistribution]  # (basis, figure) -> measured over predicted
    correlation: Mapping[str, float]  # basis -> of the errors of TTFT and TPOT
    poolings: tuple[Pooling, Pooling]  # of TPOT and TTFT: what deployments share


class Refits:
    """Fits of the calibration without some of its rows: one Gauss-Newton step from the shipped calibration."""

    def __init__(
        self,
        evidence: calibrate.Evidence,
        scored: Iterable[ScoredRow],
        resources: Resources,
        setup: Setup,
        shapes: Mapping[str, str],
    ) -> None:
        self.evidence, self.setup, self.resources = evidence, setup, resources
        self.x = np.log([setup.scopes[p.scope][p.name] for p in setup.parameters])
        ratio = {row.key: 1.0 + row.bias_fraction for row in scored if row.bias_fraction is not None}
        errors = np.log([ratio.get(u.row.id, np.nan) for u in evidence.rows])
        self.at = Solution(x=self.x, errors=errors, jacobian=least_squares.jacobian(self._closed_form, self.x))
        bases = calibrate.bases_of(evidence.rows, resources, setup)
        self.figure = np.array([scoring.interval_kind(u.row.metric, u.case) for u in evidence.rows])
        self.chip = np.array([u.row.accelerator_slug for u in evidence.rows])
        self.shape = np.array([shapes.get(u.row.model_id, u.row.model_id) for u in evidence.rows])
        self.question = [question_of(u.row, u.case, shapes) for u in evidence.rows]
        self.basis = np.array([bases.get(chip, "datasheet") for chip in self.chip])

    def _closed_form(self, x: Array) -> Array:
        scopes = calibrate.with_values(self.setup.scopes, self.setup.parameters, x)
        return self.evidence.errors(scopes, self.resources)

    def of_model(self, shape: str) -> Mask:
        return np.asarray(self.shape == shape)

    def of_question(self, question: tuple[object, ...]) -> Mask:
        return np.array([own == question for own in self.question])

    def _moved(self, held: Mask) -> Array:
        """How far the fit to the other rows is from the shipped calibration, in log parameters."""
        x = least_squares.refit(self.at, self.setup.parameters, self.evidence.weights, ~held)
        return np.asarray(x - self.x)

    def predicted(self, held: Mask) -> dict[str, float]:
        """ID of each row -> its prediction by a fit without the held-out rows, over that by the fit to all rows."""
        moved = self.at.jacobian @ self._moved(held)
        return {
            u.row.id: float(np.exp(each))
            for u, each in zip(self.evidence.rows, moved, strict=True)
            if np.isfinite(each)
        }

    def expected(self, shape: str, observed: Mapping[str, Sequence[Observed]]) -> Expected:
        """The errors to expect of a model, from the rows of the others.

        As for the intervals of answers, they are errors of rows whose own model (on chips with measured kernels) or
        chip (on others) was held out as well. observed: rows by figure, for the variances.
        """
        held = self.of_model(shape)
        spread: dict[tuple[str, str], RatioDistribution] = {}
        correlation: dict[str, float] = {}
        for basis, units in (("measured", self.shape), ("relative", self.chip)):
            rows = self._errors(held, basis, units)
            for figure, own in rows.items():
                if len({row.group for row in own}) >= calibrate.MIN_GROUPS:
                    ratios, groups = np.array([row.log_ratio for row in own]), [row.group for row in own]
                    spread[basis, figure] = reliability.distribution(ratios, groups)
            together = reliability.correlation(reliability.pairs(rows["ttft"], rows["tpot"]))
            correlation[basis] = 1.0 if together is None else together
        ratio = self.predicted(held)
        others = [[o for o in observed[figure] if o.place.model != shape][::THIN] for figure in FIGURES]
        tpot, ttft = (pooling_fit.fit(against(rows, ratio)) for rows in others)
        return Expected(spread=spread, correlation=correlation, poolings=(tpot, ttft))

    def _errors(self, held: Mask, basis: str, units: np.ndarray) -> dict[str, list[reliability.HeldOut]]:
        wanted = (self.basis == basis) & ~held & np.isin(self.figure, FIGURES) & np.isfinite(self.at.errors)
        found: dict[str, list[reliability.HeldOut]] = {figure: [] for figure in FIGURES}
        for unit in np.unique(units[wanted]):
            own = wanted & (units == unit)
            errors = self.at.errors + self.at.jacobian @ self._moved(held | (units == unit))
            for i in np.flatnonzero(own):
                u = self.evidence.rows[i]
                found[self.figure[i]].append(
                    reliability.HeldOut((u.case, u.row.date), u.group, str(unit), -float(errors[i]))
                )
        return found


def against(observed: Iterable[Observed], ratio: Mapping[str, float]) -> list[Observed]:
    """Measured rows with their errors against other predictions: `ratio` times those that they were scored with."""
    return [replace(o, log_error=o.log_error - float(np.log(ratio.get(o.key, 1.0)))) for o in observed]


def question_of(row: Row, case: Case, shapes: Mapping[str, str]) -> tuple[object, ...]:
    """As `Group.question`."""
    shape = shapes.get(row.model_id, row.model_id)
    return (shape, bits(case.weights_dtype), length_class(case.isl), length_class(case.osl))
