"""Training on a service's machines: idle hours counted by hand, and one plan against each alone."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from advisor.engine.fleet.train_and_serve import joint_demand


@dataclass
class Service:
    """As much of a deployment as the demand reads."""

    replicas: int
    spare_replicas: int = 0
    lane: Any = None


def asked(monkeypatch: pytest.MonkeyPatch, forecast: tuple[float, ...], days: float, chips: int) -> Any:
    """Demand of a service with one replica per instance and a run on `chips` chips in instances of eight."""
    monkeypatch.setattr("advisor.engine.fleet.train_and_serve.instances_of", lambda w, s, o, n: np.asarray(n, float))
    workload = type("W", (), {"horizon_months": len(forecast), "forecast": forecast})()
    offer = type("O", (), {"accelerators": 8})()
    run = type("R", (), {"days": days, "chips": chips, "spare_hosts": 0})()
    return joint_demand(workload, Service(replicas=2), offer, run)


def test_a_short_run_adds_its_instances_for_its_hours_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    demand = asked(monkeypatch, (1.0,) * 4, days=730 / 24 * 1.5, chips=16)
    assert demand.counts.tolist() == [2, 2]
    assert demand.fractions.tolist() == [[1, 1, 1, 1], [1, 0.5, 0, 0]]


def test_machines_of_the_run_serve_the_growing_traffic_later(monkeypatch: pytest.MonkeyPatch) -> None:
    demand = asked(monkeypatch, (1.0, 1.0, 1.5, 2.0), days=730 / 24, chips=16)
    assert demand.needed.tolist() == [4, 2, 3, 4]
    assert demand.counts.sum() == 4  # not four for the service and two more for the run
    assert demand.fractions[-1].tolist() == [1, 0, 0, 1]
