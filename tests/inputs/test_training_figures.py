"""Snapshots from before the catalog had figures of training."""

from advisor.engine.terms import TRAINING, efficiency
from advisor.inputs import Snapshot
from advisor.stored import SNAPSHOT_VERSION
from catalog.loading import fixtures
from tests.engine.catalog_sample import FIXTURES, scopes


def test_an_old_snapshot_gets_the_shipped_figures_and_keeps_its_own() -> None:
    old = {name: values for name, values in scopes().items() if not name.startswith(TRAINING)}
    assert efficiency(old, "h200-sxm", "hopper", "gpu").training is None
    now = Snapshot.read({"calibrations": old}).calibrations
    assert {name: now[name] for name in old} == old
    shipped = fixtures.calibration(FIXTURES / "calibration" / "training-family-hopper.yaml")["values"]
    known = efficiency(now, "h200-sxm", "hopper", "gpu").training
    assert known is not None and known.power_limit_watts == shipped["power_limit_watts"]


def test_a_snapshot_with_figures_of_training_is_unchanged() -> None:
    given = {TRAINING: {"stream_fraction": 0.5}}
    for version in (2, SNAPSHOT_VERSION):
        assert Snapshot.read({"version": version, "calibrations": given}).calibrations == given
