"""Host speed: from launch rows to a factor, and from the factor to the host times of a step."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from advisor.engine.calibration.host_speed import REFERENCE_S, host_factor_of
from advisor.engine.calibration.kernel_samples import Figure
from advisor.engine.network import Ffn
from advisor.engine.step.lane import lanes
from advisor.engine.terms import efficiency, with_host_factor
from advisor.engine.terms.machines.hardware import UNMEASURED, Efficiency
from tests.engine.catalog_sample import chip, ideal, lane
from tests.engine.step.test_operators import ATTENTION, model
from tests.probes.samples import entry

MEASURED = Path(__file__).resolve().parents[3] / "fixtures" / "measurements"
HOST = (
    "host_s", "host_s_per_sequence", "serial_s", "serial_s_per_sequence", "prepare_s", "parallel_prepare_s",
    "pieces_s_per_layer", "eager_s_per_layer", "collective_host_s",
)  # fmt: skip


def launches(name: str) -> list[Any]:
    return [e for e in json.loads((MEASURED / name).read_text())["results"] if e["kind"] == "launch"]


def median_s(entries: list[Any], **key: str) -> float:
    return next(float(e["time_s"]["median"]) for e in entries if e["key"] == key)


def test_the_reference_times_are_those_of_the_shipped_results() -> None:
    reference = median_s(launches("probes/h200-sxm--one-gpu-torch.json"), mode="eager")
    other = launches("probes/h200-sxm--one-gpu-onset-torch.json")
    slower = reference / median_s(other, mode="eager")
    assert REFERENCE_S["eager"][""] == pytest.approx(reference, rel=1e-4)
    for name in ("llama-3.1-8b", "qwen3-30b-a3b"):
        expected = slower * median_s(other, mode="issue", model=name)
        assert REFERENCE_S["issue"][name] == pytest.approx(expected, rel=1e-3)


def test_the_reference_host_has_factor_one_and_a_faster_one_less() -> None:
    own = host_factor_of(launches("probes/h200-sxm--one-gpu-torch.json"), "torch", "cuda")
    fast = host_factor_of(launches("probes/h200-sxm--one-gpu-onset-torch.json"), "torch", "cuda")
    assert isinstance(own, Figure) and own.value == pytest.approx(1.0) and own.low < 1 < own.high
    assert isinstance(fast, Figure) and fast.value == pytest.approx(7.373 / 12.039, rel=1e-3)


def test_another_host_gets_an_interval_that_covers_all_its_modes() -> None:
    found = host_factor_of(launches("h100-sxm-probe.json"), "torch", "cuda")
    assert isinstance(found, Figure) and 1.02 < found.value < 1.19  # 1.12 eagerly, 1.02 and 1.19 for whole blocks
    assert found.low < 1.02 and found.high > 1.19 and found.count == 3


def test_other_libraries_and_backends_are_not_compared() -> None:
    eager = [entry("launch", {"mode": "eager"}, 1e-5)]
    assert "jax" in str(host_factor_of(eager, "jax", "cuda")) and "rocm" in str(host_factor_of(eager, "torch", "rocm"))
    assert str(host_factor_of([], "torch", "cuda")).startswith("needs launch rows")


@pytest.mark.parametrize("name", HOST)
def test_a_slower_host_makes_each_host_time_of_a_step_longer(name: str) -> None:
    own = lane(chip("one"), tp=2)
    own = replace(own, choice=replace(own.choice, overhead=replace(own.choice.overhead, **{name: 1e-3})))
    slow = replace(own, choice=replace(own.choice, efficiency=replace(own.choice.efficiency, host_factor=3.0)))
    times, slower = (lanes(model(ATTENTION, Ffn(inner=10)), [each]).times for each in (own, slow))
    fields = ("host_s", "host_s_per_sequence", "serial_s", "serial_s_per_sequence", "prepare_s", "eager_floor_s",
              "prompt_floor_s")  # fmt: skip
    assert sum(float(getattr(times, f)[0]) for f in fields) > 0
    for f in fields:
        assert float(getattr(slower, f)[0]) == pytest.approx(3 * float(getattr(times, f)[0]))
    assert (slower.linear_s == times.linear_s).all() and slower.request_s[0] == times.request_s[0]


def test_a_measured_host_beats_the_default_and_the_workload_beats_both() -> None:
    figures = {k: v for k, v in vars_of(ideal(Efficiency)).items() if k not in UNMEASURED}
    scopes = {"default": figures, "accelerator:one": {"host_factor": 1.5}}
    usual, own = with_host_factor(scopes, 2.0), with_host_factor(scopes, 2.0, everywhere=True)

    def factor(of: Any, slug: str) -> float:
        return efficiency(of, slug, "family", "gpu").host_factor

    assert (factor(scopes, "other"), factor(scopes, "one")) == (1.0, 1.5)
    assert (factor(usual, "other"), factor(usual, "one")) == (2.0, 1.5)
    assert (factor(own, "other"), factor(own, "one")) == (2.0, 2.0)
    assert scopes["accelerator:one"] == {"host_factor": 1.5}


def vars_of(e: Efficiency) -> dict[str, float]:
    return {name: getattr(e, name) for name in Efficiency.__slots__ if name not in ("basis", "source")}
