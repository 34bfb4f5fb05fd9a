"""Energy and carbon of an answer: watts by phase, the planner's grid by the hour, prices of egress by provider."""

from functools import lru_cache
from types import SimpleNamespace
from typing import Any

import pytest

from advisor import workload
from advisor.answer.options.energy import curve_of, weighted
from advisor.inputs import Snapshot
from tests.answer.test_money_answer import answer

NIGHT, NOON = 0.4, 0.1
SUNNY = [NIGHT] * 9 + [NOON] * 8 + [NIGHT] * 7  # clean while offices work


@lru_cache
def asked() -> dict[str, Any]:
    found = answer(
        **{
            "constraints.accelerators.allow": "[h200-sxm]",
            "constraints.acquisition": "[own]",
            "traffic.requests_per_s": "{mean: 4}",
            "traffic.load_curve": "office_hours",
            "tco.grid_kgco2e_per_kwh": str(SUNNY),
        }
    )
    return found["recommendations"][0]


@pytest.mark.django_db
@pytest.mark.usefixtures("frozen")
def test_carbon_is_weighted_by_the_hours_in_which_power_is_drawn() -> None:
    r = asked()
    energy = r["money"]["energy"]
    mean = sum(SUNNY) / 24
    assert energy["grid_mean_kgco2e_per_kwh"] == pytest.approx(mean)
    assert NOON < energy["grid_kgco2e_per_kwh"] < mean
    per_token = r["joules_per_output_token"] / 3.6e6 * 1e6 * energy["grid_kgco2e_per_kwh"]
    assert r["kgco2e_per_mtok"] == pytest.approx(per_token, rel=1e-4)
    assert "weighted" in energy["hours"]


@pytest.mark.django_db
@pytest.mark.usefixtures("frozen")
def test_phases_are_told_apart_with_their_basis_and_range() -> None:
    r = asked()
    energy = r["money"]["energy"]
    assert (
        energy["chip_idle_watts"] < energy["chip_decode_watts"] < energy["chip_prefill_watts"] <= energy["chip_watts"]
    )
    times = [energy[f"{name}_time_fraction"] for name in ("prefill", "decode", "idle")]
    assert sum(times) == pytest.approx(1.0) and min(times) > 0
    assert energy["power_basis"] == "measured"
    for name in ("watts", "joules_per_output_token", "kgco2e_per_mtok"):
        low, high = r["interval"][name]
        assert low < r[name] < high


def test_hours_of_much_draw_count_for_more() -> None:
    assert weighted([1.0, 3.0], [0.1, 0.5]) == pytest.approx((0.1 + 1.5) / 4)
    assert weighted([2.0, 2.0], [0.1, 0.5]) == pytest.approx(0.3)


@pytest.mark.parametrize(
    ("acquisition", "region", "known", "allowed", "used"),
    [
        ("own", "own site", None, (), True),
        ("rent", "north", 0.3, (), False),
        ("rent", "north", 0.3, ("north",), True),
        ("rent", "north", None, (), True),
    ],
)
def test_the_curve_is_that_of_the_place_it_is_given_for(acquisition, region, known, allowed, used) -> None:
    snapshot = Snapshot(regions={f"cloud-{region}": {"kgco2e_per_kwh": known}})
    spec = {"tco": {"grid_kgco2e_per_kwh": SUNNY}}
    offer = SimpleNamespace(
        acquisition=acquisition, provider="cloud", region=region, is_in=lambda places: region in places
    )
    s: Any = SimpleNamespace(offer=offer)
    workload = SimpleNamespace(constraints=SimpleNamespace(regions_allow=allowed))
    question: Any = SimpleNamespace(spec=spec, snapshot=snapshot, workload=workload)
    assert curve_of(question, s) == (SUNNY * 7 if used else [])


@pytest.mark.parametrize("hours", ["[0.3]", f"{[0.1] * 25}", f"{[0.1] * 23 + [-1]}", f"{[0.1] * 23 + [9]}"])
def test_another_number_of_hours_or_a_grid_that_cannot_be_is_refused(hours: str) -> None:
    spec = workload.load(
        b"model: meta-llama/Llama-3.1-8B\ntraffic: {input_tokens: 1, output_tokens: 1, requests_per_s: 1}"
    )
    with pytest.raises(workload.WorkloadError, match="grid_kgco2e_per_kwh"):
        workload.parse(workload.set_path(spec, "tco.grid_kgco2e_per_kwh", hours))
