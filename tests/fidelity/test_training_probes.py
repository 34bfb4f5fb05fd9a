"""Training steps of agents: their predictions, and fits to rows whose right answer is known."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from advisor.engine.terms import Accelerator, Efficiency, efficiency
from advisor.fidelity.training import probes as training_probes
from probes.agent.decoders import NETS
from tests.engine.training.test_step_time import EFFICIENCY, FIXTURES, H200
from tests.laboratory import calibration_files
from tests.probes import samples

LENGTHS = (2048, 4096, 8192)


def entry(kind: str, key: dict[str, Any], seconds: float, **more: Any) -> dict[str, Any]:
    shared = {"dtype": "bf16", "model": "llama-3.1-8b", "layers": 4}
    found: dict[str, Any] = samples.entry(kind, shared | key, seconds, n=3)
    return found | more


def steps(
    e: Efficiency, factors: tuple[float, ...], recompute: str = "none", chip: Accelerator = H200
) -> list[dict[str, Any]]:
    """Steps that take `factors` times what the kernel rates of `e` predict."""
    rows = []
    for tokens, factor in zip(LENGTHS, factors, strict=True):
        key = {"tokens": tokens, "recompute": recompute, "optimizer": "adamw"}
        known = training_probes.run_of(entry("train_step", key, 1.0)["key"])
        assert known
        rows.append(entry("train_step", key, float(training_probes.step_of(*known, chip, e).step_s) * factor))
    return rows


def overlaps(slowdown: float, sharding: str = "none") -> list[dict[str, Any]]:
    """10 ms of collectives, of which 9 run beside the compute and slow it."""
    rows = []
    for tokens, compute in zip(LENGTHS, (0.02, 0.04, 0.08), strict=True):
        beside = compute + slowdown * 0.009
        parts = {"compute": compute, "communication": 0.010, "compute_beside": beside}
        key = {"tokens": tokens, "devices": 2, "sharding": sharding, "backend": "nccl"}
        rows.append(entry("train_overlap", key, beside + 0.001, parts_s=parts))
    return rows


def fitted(rows: list[dict[str, Any]], e: Efficiency = EFFICIENCY) -> tuple[dict[str, float], tuple[str, ...]]:
    fit = training_probes.figures_of(rows, H200, e)
    return {figure.name: figure.value for figure in fit.figures}, fit.reasons


def test_the_layers_are_those_that_agents_measure() -> None:
    hidden, mixer, inner = training_probes.NETS[NETS[0].name]
    heads = NETS[0].heads
    assert (hidden, inner) == (NETS[0].hidden, NETS[0].inner)
    assert (mixer.heads, mixer.kv_heads, mixer.head_dim) == (heads.query, heads.kv, heads.dim)


def test_the_factor_is_found_again_whatever_factor_is_in_use() -> None:
    rows = steps(EFFICIENCY, (1.18, 1.2, 1.22))
    assert fitted(rows)[0] == {"training_factor": pytest.approx(1.2)}
    assert fitted(rows, replace(EFFICIENCY, training_factor=1.1))[0] == {"training_factor": pytest.approx(1.2)}


def test_with_the_fitted_factor_the_steps_take_what_they_took() -> None:
    rows = steps(EFFICIENCY, (1.2, 1.2, 1.2))
    assert fitted(steps(replace(EFFICIENCY, training_factor=1.2), (1.0, 1.0, 1.0))) == fitted(rows)


def test_a_factor_that_cannot_be_told_from_one_changes_nothing_and_says_so() -> None:
    rows = steps(EFFICIENCY, (0.97, 1.01, 1.02))
    figures, reasons = fitted(rows)
    assert figures == {} and "the range includes 1" in reasons[0]
    assert fitted(rows, replace(EFFICIENCY, training_factor=1.2))[0] == {"training_factor": 1.0}


def test_recomputed_steps_and_too_few_steps_give_no_factor() -> None:
    figures, reasons = fitted([*steps(EFFICIENCY, (1.2, 1.2, 1.2), "full"), *steps(EFFICIENCY, (1.2, 1.2, 1.2))[:2]])
    assert figures == {} and "from 2 usable steps" in reasons[0]


def test_steps_that_something_else_slows_give_no_factor() -> None:
    figures, reasons = fitted(steps(EFFICIENCY, (3.0, 3.1, 3.2)))
    assert figures == {} and "3.10 times" in reasons[0]


def test_the_slowdown_is_the_extra_compute_over_the_communication_beside_it_and_changes_nothing() -> None:
    assert training_probes.slowdowns(overlaps(0.3)) == pytest.approx([0.3] * len(overlaps(0.3)))
    figures, reasons = fitted(overlaps(0.3))
    assert figures == {} and "lost 0.30 s in each second" in reasons[0] and "keep 0.18" in reasons[0]


def test_two_h100s_lose_half_of_the_time_beside_all_reduces() -> None:
    measured = json.loads((FIXTURES / "measurements" / "h100-training-overlap.json").read_text())["results"]
    assert training_probes.slowdowns(measured) == pytest.approx([0.47, 0.47], abs=0.02)


def test_sharded_steps_wait_for_weights_and_give_no_slowdown() -> None:
    figures, reasons = fitted(overlaps(0.3, "full"))
    assert figures == {} and "gradients all-reduced" in reasons[0]


def test_rows_are_never_compared_with_a_fit_to_themselves() -> None:
    rows = [*steps(EFFICIENCY, (1.2, 1.2, 9.0)), *overlaps(0.3)]
    rows += [{**row, "key": {**row["key"], "layers": 2}} for row in steps(EFFICIENCY, (0.6, 0.6, 0.6))]
    lines = training_probes.compared(rows, H200, replace(EFFICIENCY, training_factor=1.5))
    own = [line for line in lines if line.quantity == "step_s" and line.key["layers"] == 4]
    assert [line.measured / line.predicted for line in own] == pytest.approx([1.2, 1.2, 9.0])
    assert own[2].held_out is not None and own[2].held_out == pytest.approx(own[2].predicted * 1.2, rel=0.01)


def test_what_overlaps_is_predicted_from_its_collectives() -> None:
    lines = training_probes.compared(overlaps(0.3), H200, EFFICIENCY)
    found = {line.quantity: line for line in lines[:5]}
    slowed = found["compute_beside_s"].predicted - found["compute_s"].predicted
    assert slowed == pytest.approx(0.18 * found["communication_s"].predicted)
    assert found["hidden_fraction"].predicted == pytest.approx(1 - 0.18)
    assert found["hidden_fraction"].measured == pytest.approx(1 - (0.3 * 0.009 + 0.001) / 0.010)


def test_probe_files_of_a_chip_set_its_figures_in_the_shipped_calibration(tmp_path: Path) -> None:
    scopes = calibration_files.setup({H200.slug: H200}, probes=tmp_path).scopes  # no probes: nothing measured
    family = {name: values for name, values in scopes.items() if not name.startswith("accelerator:")}
    rows = [*steps(efficiency(family, H200.slug, "hopper", "gpu"), (1.2, 1.2, 1.2)), *overlaps(0.3)]
    (tmp_path / "h200-sxm--steps.json").write_text(json.dumps({"library": "torch", "results": rows}))
    found = calibration_files.setup({H200.slug: H200}, probes=tmp_path).scopes
    for name in ("accelerator:h200-sxm", "family:hopper"):
        assert found[name]["training_factor"] == pytest.approx(1.2)
        assert "training_factor" not in scopes[name]
