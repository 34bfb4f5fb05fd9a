"""The money of a sample option: the shape of a real one, its figures made up for the tests."""

from typing import Any

from advisor.result import Energy
from tests import sample_advice

ENERGY = {name for name, field in Energy.model_fields.items() if field.is_required()}
ENERGY_TEXT = {"power_basis": "measured", "power_said": "measured on this accelerator", "hours": ""}


def way(acquisition: str, term: str, usd_per_month: float, capital_usd: float = 0.0) -> dict[str, Any]:
    return {
        "acquisition": acquisition, "term": term, "provider": "own" if capital_usd else "nebius", "instances": 1,
        "instance": "an eight-way server of a maker", "region": "eu-north1", "usd_per_hour": usd_per_month / 730,
        "usd_per_month": usd_per_month, "capital_usd": capital_usd, "running_usd_per_month": usd_per_month / 2,
        "life_months": 60 if capital_usd else None, "npv_usd": usd_per_month * 33, "price_as_of": "2026-11-01",
        "price_source": "https://example.org/prices", "basis": "catalog",
    }  # fmt: skip


def energy() -> dict[str, Any]:
    unknown = dict.fromkeys(name for name, field in Energy.model_fields.items() if field.annotation is not str)
    return {**unknown, "power_basis": "measured", "power_said": "", "kwh_per_month": 1533.0, "hours": ""}


def money(usd_per_month: float) -> dict[str, Any]:
    flow = {"capital_usd": 0.0, "running_usd": usd_per_month, "value_left_usd": 0.0, "total_usd": usd_per_month}
    return {
        "currency": "USD", "prices_as_of": "2026-11-01", "horizon_months": 36, "discount_fraction_per_year": 0.08,
        "parts": [
            {"name": "instances", "group": "rent", "usd_per_hour": usd_per_month / 730, "usd_per_month": usd_per_month}
        ],
        "usd_per_month": usd_per_month, "usd_per_year": usd_per_month * 12, "usd_over_horizon": usd_per_month * 36,
        "npv_usd": usd_per_month * 33, "capital_usd": 0.0, "purchase_usd": 0.0, "usd_per_mtok_computed_input": 0.2,
        "waterfall": [
            {"name": "instances", "usd_per_mtok": 0.11}, {"name": "idle hours and headroom", "usd_per_mtok": 0.4},
        ],
        "split": "by time", "ways_to_pay": [way("rent", "on_demand", usd_per_month), way("own", "purchase", 900, 3e5)],
        "cash_flow": [{"month": month, **flow, "present_usd": usd_per_month} for month in range(37)],
        "growth": None, "services": None, "energy": energy(),
        "break_even": [
            {
                "between": ["own", "rent on_demand"], "month": 33, "share_of_hours": 0.63, "tokens_per_month": None,
                "within_capacity": None, "said": "",
            }
        ],
    }  # fmt: skip


def result() -> dict[str, Any]:
    """The sample answer with money in every option."""
    found = sample_advice.result()
    for r in found["recommendations"]:
        r |= {"money": money(r["usd_per_month"]), "instances": 1, "usd_per_mtok_blended_at_capacity": 0.11}
    return found
