"""Snapshots from before the catalog had figures of training."""

from advisor.engine.terms import TRAINING, efficiency
from advisor.inputs.training_figures import shipped, with_training_figures
from tests.engine.catalog_sample import scopes


def test_an_old_snapshot_gets_the_shipped_figures_and_keeps_its_own() -> None:
    old = {name: values for name, values in scopes().items() if not name.startswith(TRAINING)}
    assert efficiency(old, "h200-sxm", "hopper", "gpu").training is None
    now = with_training_figures(old)
    assert {name: now[name] for name in old} == old
    known = efficiency(now, "h200-sxm", "hopper", "gpu").training
    assert known is not None and known.power_limit_watts == shipped()["training:family:hopper"]["power_limit_watts"]


def test_a_snapshot_with_figures_of_training_is_unchanged() -> None:
    given = {TRAINING: {"stream_fraction": 0.5}}
    assert with_training_figures(given) == given
