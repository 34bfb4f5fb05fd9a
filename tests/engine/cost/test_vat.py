"""VAT that cannot be recovered is in every price but staff, and the sale of hardware brings none of it back."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.engine.cost import (
    STAFF_PART,
    capital_usd,
    list_rent_parts,
    own_parts,
    rent_parts,
    services,
    total_usd_per_hour,
)
from tests.engine.plans.test_resale import ASSUMED

rates = st.floats(0.0, 0.3)
prices = st.floats(0.1, 1e5)


def split(parts: tuple) -> tuple[float, float]:
    """(staff, everything else), USD per hour."""
    staff = total_usd_per_hour([p for p in parts if p.name == STAFF_PART])
    return staff, total_usd_per_hour(parts) - staff


@given(rates, prices, st.sampled_from(["on_demand", "spot", "reserved_1y", "reserved_3y"]))
def test_rent_with_vat_is_rent_times_one_plus_vat_without_staff(vat: float, usd: float, term: str) -> None:
    a = replace(
        ASSUMED,
        cloud_addon_fraction=0.1,
        spot_lost_fraction=0.1,
        rented_staff_ratio=0.5,
        staff_usd_per_accelerator_year=900.0,
    )
    for parts_of in (rent_parts, list_rent_parts):
        (staff, net), (same, gross) = (split(parts_of(usd, term, x, 8)) for x in (a, replace(a, vat_fraction=vat)))
        assert same == pytest.approx(staff) and gross == pytest.approx(net * (1 + vat))


@given(rates, prices)
def test_a_purchase_pays_vat_and_is_sold_without_it(vat: float, usd: float) -> None:
    a = replace(ASSUMED, insurance_fraction=0.01, staff_usd_per_accelerator_year=900.0)
    taxed = replace(a, vat_fraction=vat)
    capital = capital_usd(usd, a)
    assert capital_usd(usd, taxed) == pytest.approx(capital * (1 + vat))
    for month, value in enumerate(a.resale()):
        assert taxed.resale()[month] * capital_usd(usd, taxed) == pytest.approx(value * capital)
    running, gross = (split(tuple(p for p in own_parts(usd, 8, 5000.0, x) if p.group != "capital")) for x in (a, taxed))
    assert gross == pytest.approx((running[0], running[1] * (1 + vat)))


def test_egress_and_storage_have_vat() -> None:
    a = replace(
        ASSUMED, services_everywhere=True, egress_usd_per_byte=1e-10, storage_usd_per_byte_month=1e-10,
        egress_bytes_per_output_token=250.0,
    )  # fmt: skip
    net, gross = (total_usd_per_hour(services(1e4, 1e12, "any", x)) for x in (a, replace(a, vat_fraction=0.19)))
    assert net > 0 and gross == pytest.approx(net * 1.19)
