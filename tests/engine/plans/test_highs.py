"""HiGHS prints nothing into the output of a command, and holds back nothing that others print meanwhile."""

import os
import threading
from typing import Any

import numpy as np
import pytest
from scipy import optimize
from scipy.optimize import Bounds, LinearConstraint

from advisor.engine.plans import highs


def ill_scaled(seed: int) -> Any:
    """A program of which HiGHS, since scipy 1.15, prints a line of its own in about one of fifty cases."""
    rng = np.random.default_rng(seed)
    columns, rows = rng.integers(4, 16), rng.integers(3, 12)
    cells = rng.choice([0, 0, 0, 1, 1, -1, 3.7, 1e-7, 1e6, 0.333333], size=(rows, columns))
    matrix = cells * 10.0 ** rng.integers(-2, 3)
    low = np.where(rng.random(rows) < 0.5, -np.inf, rng.normal(0, 50, rows))
    high = np.where(np.isfinite(low), low + rng.random(rows) * 100, rng.normal(50, 50, rows))
    limits, whole = LinearConstraint(matrix, low, high), rng.integers(0, 2, columns)
    bounds = Bounds(0, rng.choice([1, 7, 1e5, np.inf], columns))
    return highs.milp(rng.normal(1, 5, columns), constraints=limits, integrality=whole, bounds=bounds)


def test_the_solver_prints_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    assert sum(ill_scaled(seed).x is not None for seed in range(300)) > 20
    assert capfd.readouterr().out == ""


def test_what_others_print_meanwhile_appears(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def solved(*problem: Any) -> str:
        other = threading.Thread(target=os.write, args=(1, b"of another thread\n"))
        os.write(1, b"HighsMipSolverData::transformNewIntegerFeasibleSolution tmpSolver.run();\n")
        other.start()
        other.join()
        return "solved"

    monkeypatch.setattr(optimize, "milp", solved)
    os.write(1, b"before\n")
    assert highs.milp() == "solved"
    os.write(1, b"after\n")
    assert capfd.readouterr().out == "before\nof another thread\nafter\n"
