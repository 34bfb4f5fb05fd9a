"""Fitting: known parameters come back, nothing leaks from what was left out, the budget holds, intervals cover."""

import numpy as np
import pytest

from tests.laboratory import least_squares
from tests.laboratory.least_squares import Parameter

TRUE = {"memory_fraction": 0.8, "kernel_s": 4e-6}
PARAMETERS = (
    Parameter(scope="default", name="memory_fraction", value=0.6, low=0.3, high=0.99),
    Parameter(scope="default", name="kernel_s", value=2e-6, low=1e-7, high=1e-4),
)
RNG = np.random.default_rng(7)
MOVED_BYTES = 10 ** RNG.uniform(5, 10, 240)
KERNELS = RNG.integers(1, 200, 240)
GROUPS = [f"group {i // 12}" for i in range(240)]


def step_s(memory_fraction, kernel_s):
    return MOVED_BYTES / (memory_fraction * 3e12) + KERNELS * kernel_s


def errors_against(measured_s):
    return lambda x: np.log(step_s(*np.exp(x)) / measured_s)


def measured_s(noise=0.0, seed=1):
    return step_s(*TRUE.values()) * np.exp(np.random.default_rng(seed).normal(0, noise, 240))


WEIGHTS = least_squares.group_weights(GROUPS)
ALL = np.ones(240, dtype=bool)


@pytest.mark.parametrize(("noise", "within"), [(0.0, 0.005), (0.1, 0.05)])
def test_known_parameters_come_back(noise, within):
    found = least_squares.solve(errors_against(measured_s(noise)), PARAMETERS, WEIGHTS)
    assert np.exp(found.x) == pytest.approx(list(TRUE.values()), rel=within)


def test_a_tenth_of_wild_rows_does_not_move_the_fit_far():
    wild = measured_s(0.02)
    wild[::10] *= 5
    found = least_squares.solve(errors_against(wild), PARAMETERS, WEIGHTS)
    assert np.exp(found.x) == pytest.approx(list(TRUE.values()), rel=0.05)


def test_the_same_rows_give_the_same_fit():
    once, again = (least_squares.solve(errors_against(measured_s(0.1)), PARAMETERS, WEIGHTS) for _ in range(2))
    assert np.array_equal(once.x, again.x)


def test_a_refit_over_all_rows_stays_at_the_optimum():
    found = least_squares.solve(errors_against(measured_s(0.1)), PARAMETERS, WEIGHTS)
    assert least_squares.refit(found, PARAMETERS, WEIGHTS, ALL) == pytest.approx(found.x, abs=0.01)


def test_a_refit_is_near_a_fit_of_the_kept_rows_alone():
    measured, kept = measured_s(0.1), ALL.copy()
    kept[:120] = False
    found = least_squares.solve(errors_against(measured), PARAMETERS, WEIGHTS)

    def kept_errors(x):
        return np.where(kept, errors_against(measured)(x), np.nan)

    alone = least_squares.solve(kept_errors, PARAMETERS, WEIGHTS)
    assert least_squares.refit(found, PARAMETERS, WEIGHTS, kept) == pytest.approx(alone.x, abs=0.02)


def test_what_the_left_out_rows_say_changes_nothing_that_a_refit_finds():
    measured, kept = measured_s(0.05), ALL.copy()
    kept[:12] = False
    found = least_squares.solve(errors_against(measured), PARAMETERS, WEIGHTS)
    shifted = found._replace(errors=np.where(kept, found.errors, found.errors + 3.0))
    assert np.array_equal(
        least_squares.refit(found, PARAMETERS, WEIGHTS, kept), least_squares.refit(shifted, PARAMETERS, WEIGHTS, kept)
    )


def test_a_parameter_that_no_kept_row_speaks_of_returns_to_its_start():
    found = least_squares.solve(errors_against(measured_s()), PARAMETERS, WEIGHTS)
    silent = found._replace(jacobian=np.column_stack([found.jacobian[:, 0], np.zeros(240)]))
    assert np.exp(least_squares.refit(silent, PARAMETERS, WEIGHTS, ALL)[1]) == pytest.approx(2e-6, rel=1e-3)


def test_a_pinned_parameter_is_at_its_start():
    found = least_squares.solve(errors_against(measured_s()), PARAMETERS, WEIGHTS)
    assert np.exp(least_squares.refit(found, PARAMETERS, WEIGHTS, ALL, pinned=[0])[0]) == pytest.approx(0.6)


def test_the_fit_stays_within_the_ranges():
    narrow = (Parameter(scope="default", name="memory_fraction", value=0.6, low=0.5, high=0.7), PARAMETERS[1])
    found = least_squares.solve(errors_against(measured_s()), narrow, WEIGHTS)
    assert 0.5 <= np.exp(found.x[0]) <= 0.7


@pytest.mark.parametrize(("parameters", "groups", "allowed"), [(15, 300, True), (15, 299, False), (1, 19, False)])
def test_twenty_groups_a_parameter(parameters, groups, allowed):
    if allowed:
        least_squares.check_budget(parameters, groups)
    else:
        with pytest.raises(least_squares.BudgetError, match=f"{parameters} free parameters"):
            least_squares.check_budget(parameters, groups)


def test_a_range_must_hold_its_starting_value():
    with pytest.raises(ValueError, match="low < value < high"):
        Parameter(scope="default", name="kernel_s", value=1.0, low=2.0, high=3.0)


def test_every_group_weighs_the_same():
    weights = least_squares.group_weights(["a", "a", "a", "b"])
    assert weights[:3].sum() == pytest.approx(weights[3])


def test_large_errors_count_by_size_small_ones_by_square():
    small, large = least_squares.soften(np.array([1e-6])), least_squares.soften(np.array([2.0, 8.0]))
    assert small == pytest.approx([1e-6])
    assert (large[1] / large[0]) ** 2 == pytest.approx(4, rel=0.1)


def test_an_interval_of_independent_groups_covers_nine_in_ten_of_those_left_out():
    errors = np.random.default_rng(3).normal(0.05, 0.2, 4000)
    groups = [f"group {i // 10}" for i in range(4000)]
    found = least_squares.interval(errors, groups, groups)
    assert found.coverage == pytest.approx(0.9, abs=0.02) and found.groups == 400
    assert np.log([found.low, found.high]) == pytest.approx([-0.05 - 1.645 * 0.2, -0.05 + 1.645 * 0.2], abs=0.02)


def test_an_interval_is_judged_by_others_so_a_strange_unit_lowers_the_coverage():
    errors = np.concatenate([np.random.default_rng(5).normal(0, 0.05, 300), np.full(100, 2.0)])
    groups = [f"group {i // 10}" for i in range(400)]
    units = ["usual"] * 150 + ["as usual"] * 150 + ["strange"] * 100
    found = least_squares.interval(errors, groups, units)
    assert found.coverage < 0.76
