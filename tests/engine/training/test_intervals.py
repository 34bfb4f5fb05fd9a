"""Which interval belongs to a run."""

from advisor.engine.training import interval
from advisor.engine.training.intervals import interval_kind

SCOPES = {
    "interval:training:measured": {"dense_stated_step_low_ratio": 0.98, "dense_stated_step_high_ratio": 1.1},
    "interval:training:relative": {
        "dense_stated_step_low_ratio": 0.9, "dense_stated_step_high_ratio": 1.3,
        "experts_stated_step_low_ratio": 0.8, "experts_stated_step_high_ratio": 1.7,
    },
    "interval:training:datasheet": {"memory_low_ratio": 0.93, "memory_high_ratio": 1.05},
}  # fmt: skip


def test_measured_kernels_give_the_narrowest_interval() -> None:
    assert interval(SCOPES, "measured", experts=False).step == (0.98, 1.1)
    assert interval(SCOPES, "relative", experts=False).step == (0.9, 1.3)


def test_a_basis_without_runs_of_a_kind_uses_the_next_broader_one() -> None:
    assert interval(SCOPES, "measured", experts=True) == ((0.8, 1.7), (0.93, 1.05))


def test_nothing_is_stated_without_runs() -> None:
    assert interval(SCOPES, "datasheet", experts=False, found=True).step is None
    assert interval({}, "measured", experts=False) == (None, None)


def test_the_kinds_are_dense_or_not_and_stated_or_not() -> None:
    kinds = {interval_kind(experts, found) for experts in (False, True) for found in (False, True)}
    assert kinds == {"dense_stated", "dense_found", "experts_stated", "experts_found"}
