"""Partial pooling of measured rows: worked by hand, against the definition, and its guarantees."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.engine.calibration import Observed, Pooling, conditioning
from advisor.engine.terms import LAYOUT, LENGTHS, MODEL, SITE, STACK, Place, correction, length_class, scope_of
from tests.laboratory import pooling_fit

HERE = Place(
    framework="vllm", version="0.24.0", model="m", chip="h200", format="fp8", layout=(2, 1, 1, 1), lengths=(20, 16),
    site="own",
)  # fmt: skip
POOLING = Pooling(variances={MODEL: 0.0, STACK: 0.04, LAYOUT: 0.02, SITE: 0.01, LENGTHS: 0.01}, noise=0.02)
POOLING = replace(POOLING, levels=(STACK, LAYOUT, SITE, LENGTHS))


def row(error: float, key: str = "r", group: str = "g", **place: object) -> Observed:
    return Observed(key=key, place=replace(HERE, **place), log_error=error, group=group)


def test_one_row_of_the_same_run_moves_the_prediction_by_its_share_of_the_variance():
    found = conditioning.posterior([row(0.3)], HERE, POOLING)
    assert found.log_mean == pytest.approx(0.3 * 0.08 / 0.10)
    assert found.log_sd**2 == pytest.approx(0.10 - 0.08**2 / 0.10)
    assert (found.rows, found.level, found.keys) == (1, LENGTHS, ("r",))


def test_many_rows_move_it_almost_to_their_mean():
    found = conditioning.posterior([row(0.3, str(i)) for i in range(200)], HERE, POOLING)
    assert found.log_mean == pytest.approx(0.3, abs=0.001)
    assert found.log_sd == pytest.approx(math.sqrt(0.02), rel=0.01)  # the noise stays


def test_a_row_of_another_layout_says_less_and_one_of_another_model_nothing():
    other = conditioning.posterior([row(0.3, layout=(4, 1, 1, 1))], HERE, POOLING)
    assert other.log_mean == pytest.approx(0.3 * 0.04 / 0.10)
    assert other.level == STACK
    far = conditioning.posterior([row(0.3, model="another")], HERE, POOLING)
    assert (far.log_mean, far.rows, far.level, far.keys) == (0.0, 0, "", ())
    assert far.log_sd == pytest.approx(math.sqrt(0.10))


def test_a_patch_release_shares_its_stack_and_a_minor_release_does_not():
    assert conditioning.posterior([row(0.3, version="0.24.3")], HERE, POOLING).rows == 1
    assert conditioning.posterior([row(0.3, version="0.25.0")], HERE, POOLING).rows == 0


def test_held_out_rows_are_predicted_exactly_as_without_them():
    rng = np.random.default_rng(3)
    rows = [
        row(float(rng.normal(0, 0.2)), str(i), f"g{i % 4}", layout=(1 + i % 3, 1, 1, 1), lengths=(10 + i % 5, 16))
        for i in range(30)
    ]
    units = [o.group for o in rows]
    found = pooling_fit.held_out(rows, POOLING, units)
    for i, o in enumerate(rows):
        others = [other for other in rows if other.group != o.group]
        alone = conditioning.posterior(others, o.place, POOLING)
        assert found.log_mean[i] == pytest.approx(alone.log_mean, abs=1e-9)
        assert found.log_sd[i] == pytest.approx(alone.log_sd, abs=1e-9)
        assert found.informed[i] == (alone.rows > 0)


def test_the_fit_finds_the_variances_that_made_the_rows():
    rng = np.random.default_rng(1)
    rows = []
    for stack in range(60):
        of_stack = rng.normal(0, 0.2)
        for layout in range(4):
            of_layout = of_stack + rng.normal(0, 0.1)
            rows += [
                row(float(of_layout + rng.normal(0, 0.05)), model=f"m{stack}", layout=(layout, 1, 1, 1), lengths=(n, 1))
                for n in range(4)
            ]
    found = pooling_fit.fit(rows, (STACK, LAYOUT))
    assert math.sqrt(found.variances[STACK]) == pytest.approx(0.2, rel=0.25)
    assert math.sqrt(found.variances[LAYOUT]) == pytest.approx(0.1, rel=0.25)
    assert math.sqrt(found.noise) == pytest.approx(0.05, rel=0.15)


@settings(deadline=None)
@given(st.lists(st.floats(-0.7, 0.7), min_size=1, max_size=12))
def test_a_correction_stays_within_the_rows_and_evidence_never_widens_the_interval(errors: list[float]):
    found = conditioning.posterior([row(e, str(i)) for i, e in enumerate(errors)], HERE, POOLING)
    assert min(0.0, *errors) - 1e-9 <= found.log_mean <= max(0.0, *errors) + 1e-9
    assert found.log_sd <= math.sqrt(0.10) + 1e-12


# --- lookup -----------------------------------------------------------------------------------------------------


def test_a_deployment_has_the_correction_of_its_layout_else_of_its_stack_else_none():
    values = {"log_sd": 0.1, "rows": 3, "level": LAYOUT, "keys": ["a"]}
    stack = scope_of("h200", "vllm", "0.24.1", "fp8", None)
    layout = scope_of("h200", "vllm", "0.24.1", "fp8", (2, 1, 1, 1))
    scopes = {stack: values | {"time_factor": 1.1}, layout: values | {"time_factor": 1.3}}

    def of(layout: tuple[int, int, int, int], chip: str = "h200") -> float:
        return correction(scopes, chip, "vllm", "0.24.0", ("fp8",), layout).time_factor

    assert of((2, 1, 1, 1)) == 1.3
    assert of((4, 1, 1, 1)) == 1.1
    assert of((2, 1, 1, 1), "h100") == 1.0


def test_lengths_are_alike_within_about_a_fifth():
    assert length_class(1024) == length_class(1100) != length_class(1500)
    assert length_class(0) == 0
