"""Each part of an hour's cost and each share of a chip's power, worked out by hand."""

from dataclasses import asdict, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.engine.cost.hourly import (
    Assumptions,
    Draw,
    Licence,
    capital_usd,
    capped_speed_fraction,
    hour_usd,
    kernel_fraction,
    licence_usd_per_hour,
    life_months,
    monthly_rate,
    own_parts,
    rent_parts,
    service_usd,
    services,
    usd_per_mtok,
    watts_per_chip,
)
from advisor.engine.search.planned import metered
from advisor.engine.terms.machines.offer import Part
from tests.engine.catalog_sample import ASSUMED

# 5 years to a tenth, PUE 1.3 at 0.10 USD/kWh, upkeep 5 %, network 10 %, 150 USD a kW and month, 500 USD a chip and year
# all sixty months in use
SERVER = replace(ASSUMED, discount_fraction=0.0, storage_fraction=0.04, spare_fraction=0.02, months=60)


def by_name(parts: tuple[Part, ...]) -> dict[str, float]:
    return {part.name: part.usd_per_hour for part in parts}


# --- owning -----------------------------------------------------------------------------------------------------


def test_each_part_of_owning_is_what_its_name_says():
    """120,000 USD for 8 chips that draw 6 kW: dollars a month, over 730 hours."""
    found = own_parts(120_000, 8, 6000.0, SERVER)
    month = {name: usd * 730 for name, usd in by_name(found).items()}
    assert month == pytest.approx({
        "accelerators": 120_000 * 0.65 * 0.9 / 60,
        "host": 120_000 * 0.35 * 0.9 / 60,
        "network": 12_000 * 0.9 / 60,
        "storage": 4_800 * 0.9 / 60,
        "spares": 2_400 * 0.9 / 60,
        "cost of capital": 0,
        "colocation": 900,
        "electricity": 6 * 730 * 0.1,
        "cooling": 6 * 0.3 * 730 * 0.1,
        "maintenance and support": 500,
        "staff": 500 * 8 / 12,
    }, abs=1e-9)  # fmt: skip
    assert [part.group for part in found] == ["capital"] * 6 + ["running"] * 5


def test_a_known_price_of_the_accelerators_takes_the_place_of_their_usual_share():
    found = by_name(own_parts(120_000, 8, 6000.0, SERVER, accelerators_usd=100_000.0))
    assert found["accelerators"] * 730 == pytest.approx(100_000 * 0.9 / 60)
    assert found["host"] * 730 == pytest.approx(20_000 * 0.9 / 60)
    free = by_name(own_parts(120_000, 8, 6000.0, SERVER, accelerators_usd=0.0))
    assert "accelerators" not in free


def test_the_cost_of_capital_is_what_an_annuity_asks_beyond_depreciation():
    """At 8 % a year the capital of 139,200 USD costs more than its straight write-off."""
    rate = 1.08 ** (1 / 12) - 1
    annuity = (139_200 - 13_920 * (1 + rate) ** -60) * rate / (1 - (1 + rate) ** -60)
    found = by_name(own_parts(120_000, 8, 6000.0, replace(SERVER, discount_fraction=0.08)))
    assert found["cost of capital"] * 730 == pytest.approx(annuity - 139_200 * 0.9 / 60)


def test_capital_is_the_purchase_with_what_is_bought_beside_it():
    assert capital_usd(100.0, SERVER) == pytest.approx(116)


@pytest.mark.parametrize(("years", "months"), [(5, 60), (2.5, 30), (0.04, 1), (0.01, 1)])
def test_a_life_has_whole_months_and_at_least_one(years, months):
    assert life_months(replace(SERVER, life_years=years)) == months


def test_twelve_months_compound_to_a_year():
    assert (1 + monthly_rate(0.08)) ** 12 == pytest.approx(1.08)
    assert monthly_rate(0.0) == 0


def test_assumptions_come_from_exactly_their_keys():
    values = asdict(ASSUMED)
    assert Assumptions.of(values) == ASSUMED
    with pytest.raises(TypeError):
        Assumptions.of(values | {"luck_fraction": 1.0})
    with pytest.raises(TypeError):
        Assumptions.of({"pue": 1.2})


# --- renting ----------------------------------------------------------------------------------------------------


def test_of_spot_hours_the_lost_ones_are_paid_too():
    """A tenth lost: 9 USD an hour that serves costs 10. Other terms lose none."""
    a = replace(ASSUMED, spot_lost_fraction=0.1)
    assert by_name(rent_parts(9.0, "spot", a)) == pytest.approx({"instances": 9.0, "interruptions": 1.0})
    assert by_name(rent_parts(9.0, "on_demand", a)) == {"instances": 9.0}


def test_cloud_services_are_a_share_of_the_rent():
    found = rent_parts(9.0, "on_demand", replace(ASSUMED, cloud_addon_fraction=0.2))
    assert [(part.name, part.group) for part in found] == [("instances", "rent"), ("cloud services", "services")]
    assert found[1].usd_per_hour == pytest.approx(1.8)


SOLD = replace(
    ASSUMED,
    egress_bytes_per_output_token=5.0,
    provider_egress_usd_per_byte={"cloud": 1e-10},
    provider_storage_usd_per_byte_month={"cloud": 2e-11},
    egress_usd_per_byte=3e-10,
    storage_usd_per_byte_month=4e-11,
)


def test_egress_follows_the_answers_and_storage_the_weights():
    """1,000 tokens/s of 5 bytes: 18 MB an hour; 73 GB kept for a month of 730 hours."""
    found = by_name(services(1000.0, 73e9, "cloud", SOLD))
    assert found == pytest.approx({"egress": 18e6 * 1e-10, "storage of weights": 2e-3})
    assert {part.group for part in services(1000.0, 73e9, "cloud", SOLD)} == {"services"}


def test_a_provider_without_prices_of_services_charges_none_unless_the_planner_says_so():
    assert services(1000.0, 73e9, "other", SOLD) == ()
    assert service_usd("other", SOLD) == (None, None)
    assert service_usd("cloud", SOLD) == (1e-10, 2e-11)
    assert service_usd("other", replace(SOLD, services_everywhere=True)) == (3e-10, 4e-11)


def test_licences_are_paid_for_the_chips_and_the_software_that_they_cover():
    def licence(usd: float, **of: str) -> Licence:
        return Licence(name="support", usd_per_accelerator_year=usd, source="quote", **of)

    both = licence(8760.0, vendor="nvidia", framework="nim")
    assert [both.covers(*who) for who in (("nvidia", "nim"), ("nvidia", "vllm"), ("amd", "nim"))] == [
        True,
        False,
        False,
    ]
    assert licence(1.0).covers("amd", "vllm")
    paid = [both, licence(876.0), licence(87.6, framework="vllm")]
    assert licence_usd_per_hour(paid, "nvidia", "nim") == pytest.approx(1.1)
    assert licence_usd_per_hour(paid, "amd", "vllm") == pytest.approx(0.11)


# --- an hour ----------------------------------------------------------------------------------------------------


def test_an_hour_is_paid_for_each_instance_and_the_hours_that_it_runs():
    assert hour_usd(3.0, 4) == 12
    assert hour_usd(3.0, 4, paid_fraction=0.5, run_fraction=0.25) == 1.5


def test_only_metered_power_follows_the_load():
    parts = tuple(Part(name=n, usd_per_hour=10.0, group="running") for n in ("electricity", "cooling", "staff"))
    assert by_name(metered(parts, 0.3)) == pytest.approx({"electricity": 3, "cooling": 3, "staff": 10})


def test_a_token_that_is_not_served_costs_infinitely_much():
    assert usd_per_mtok(np.array([3.6, 7.2]), np.array([1000.0, 0.0])).tolist() == [pytest.approx(1.0), np.inf]


# --- power ------------------------------------------------------------------------------------------------------

SHARES = replace(
    ASSUMED, waiting_power_fraction=0.1, kernel_power_fraction=0.2, memory_power_fraction=0.3,
    compute_power_fraction=0.4,
)  # fmt: skip


def shares(d: Draw) -> tuple[float, float, float, float]:
    return d.waiting_fraction, d.kernel_fraction, d.memory_fraction, d.compute_fraction


def test_without_a_cap_the_shares_are_those_of_the_fit():
    assert shares(Draw.of(SHARES, 700.0, 100.0)) == (0.1, 0.2, 0.3, 0.4)
    assert shares(Draw.of(replace(SHARES, power_cap_fraction=0.5), 100.0, 100.0)) == (0.1, 0.2, 0.3, 0.4)


def test_under_a_cap_the_same_watts_are_a_larger_share_of_what_it_leaves():
    """700 W set to 400 W, 100 W at rest: of 300 W the kernels take twice the share that they took of 600."""
    capped = replace(SHARES, power_cap_fraction=4 / 7)
    assert shares(Draw.of(capped, 400.0, 100.0)) == pytest.approx((0.2, 0.4, 0.6, 0.8))
    waits = replace(capped, waiting_power_fraction=0.7)
    assert Draw.of(waits, 400.0, 100.0).waiting_fraction == 1


def test_an_unknown_idle_power_is_the_usual_share_of_the_limit():
    """15 % of 400 W: 60 W. (700 - 60) / (400 - 60)."""
    capped = replace(SHARES, power_cap_fraction=4 / 7)
    assert Draw.of(capped, 400.0, float("nan")).kernel_fraction == pytest.approx(0.2 * 640 / 340)


def test_a_kernel_draws_for_running_for_memory_and_for_arithmetic():
    draw = Draw(waiting_fraction=0.1, kernel_fraction=0.2, memory_fraction=0.3, compute_fraction=0.4)
    assert kernel_fraction(draw, 1.0, 0.5) == pytest.approx(0.7)
    assert kernel_fraction(draw, np.array([0.0, 1.0]), np.array([0.0, 1.5])) == pytest.approx([0.2, 1.0])


def test_the_clock_goes_with_the_cube_root_of_the_power_that_is_left():
    assert capped_speed_fraction(1.0, 0.2) == 1
    assert capped_speed_fraction(0.3, 0.2) == pytest.approx(0.5)
    assert capped_speed_fraction(0.2, 0.2) == capped_speed_fraction(0.1, 0.2) == 0


@given(st.floats(0, 1), st.floats(0, 1), st.floats(0, 0.9))
def test_a_lower_cap_never_runs_faster(one, other, idle):
    low, high = sorted((one, other))
    assert 0 <= capped_speed_fraction(low, idle) <= capped_speed_fraction(high, idle) <= 1


def watts(busy: float, host: float | None = None, full: float = 1.0, idle: float = 100.0) -> float:
    shared = None if host is None else np.array([host])
    return float(watts_per_chip(np.array([700.0]), np.array([idle]), np.array([busy]), ASSUMED, shared, full)[0])


def test_a_chip_draws_between_idle_and_its_share_of_tdp_with_its_part_of_the_host():
    assert [watts(busy) for busy in (0.0, 0.25, 1.0)] == [200, 350, 800]
    assert watts(0.25, host=30.0) == 280
    assert watts(1.0, full=0.5) == 450
    assert watts(1.0, full=0.1) == 200  # never less than at rest
    assert (watts(-1.0), watts(2.0)) == (200, 800)
    assert watts(0.0, idle=float("nan")) == pytest.approx(205)


def test_what_nobody_assumed_adds_nothing():
    """Of the assumptions that may be left out, all are neutral but the accelerators' share of a server's price."""
    plain = replace(ASSUMED, storage_fraction=0, spare_fraction=0, spot_lost_fraction=0, cloud_addon_fraction=0)
    assert plain == ASSUMED
    assert (ASSUMED.power_cap_fraction, ASSUMED.accelerator_fraction, ASSUMED.power_given) == (1, 0.65, False)
    assert shares(Draw.of(ASSUMED, 700.0, 100.0)) == (0, 1, 0, 0)  # a chip that runs anything draws all of its power
    assert (ASSUMED.prefill_power_fraction, ASSUMED.decode_power_fraction) == (1, 1)
    assert services(1000.0, 1e12, "any", ASSUMED) == ()
    assert services(1000.0, 1e12, "any", replace(ASSUMED, services_everywhere=True)) == ()
    assert (
        services(1000.0, 1e12, "any", replace(SOLD, egress_bytes_per_output_token=0.0, services_everywhere=True))[
            0
        ].name
        == "storage of weights"
    )
