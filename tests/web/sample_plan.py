"""A sample answer with plans: a purchase, a reservation and rent; its figures are made up for the tests."""

from typing import Any

from tests import sample_advice, sample_money

HORIZON = 30


def step(action: str, instances: int, from_month: int, until_month: int, **more: Any) -> dict[str, Any]:
    return {
        "action": action, "instances": instances, "instance": "gpu-h200_8", "provider": "nebius",
        "region": "eu-north1", "term": "on_demand", "from_month": from_month, "until_month": until_month,
        "paid_until_month": until_month, "unit_usd_once": None, "unit_usd_per_hour": 23.925,
        "paid_hours": 8760.0, "usd": 209583.0, "price_as_of": "2026-11-01",
        "price_source": "https://example.org/rents", "said": f"{action} them.", **more,
    }  # fmt: skip


STEPS = [
    step("buy", 2, 1, 30, instance="hgx-h200-8x-server", provider="own", region="own-site", term="purchase",
         order_months_before=6.0, unit_usd_once=315000.0, unit_usd_per_hour=None, paid_hours=43800.0, usd=512345.6,
         price_as_of="2026-05-07", price_source="https://example.org/servers"),
    step("reserve", 1, 1, 30, term="reserved_3y", paid_until_month=36, unit_usd_per_hour=19.6, paid_hours=26280.0,
         usd=515088.0, price_as_of="2026-10-12"),
    step("rent", 4, 7, 30),
    step("keep", 1, 1, 12, provider="owned", region="", term="owned", unit_usd_per_hour=None, usd=0.0),
]  # fmt: skip


def strategy(name: str, usd: float, *, chosen: bool = False) -> dict[str, Any]:
    return {
        "name": name, "said": f"how to {name}", "usd_per_month": usd, "npv_usd": usd * 27, "capex_usd": 0.0,
        "liability_usd": 0.0, "most_usd_per_month": usd * 1.5, "chosen": chosen,
    }  # fmt: skip


def plan(**more: Any) -> dict[str, Any]:
    months = [
        {"month": n, "traffic_ratio": 1 + n / 30, "replicas": 3 + n // 6, "hourly_instances": n // 6,
         "committed_instances": 1, "own_instances": 2}
        for n in range(1, HORIZON + 1)
    ]  # fmt: skip
    return {
        "said": "Buy 2, reserve 1 and rent up to 4 of them.", "steps": STEPS, "months": months,
        "capex_usd": 740250.0, "resale_usd": 151515.0, "liability_usd": 117600.0, "liability_months": 6,
        "most_usd_per_month": 61234.0, "exit_month": 12, "exit_usd": 98765.0, "rent_usd_per_month": 70707.0,
        "payback_month": 17, "irr_fraction_per_year": 0.415,
        "strategies": [
            strategy("buy_now", 48000.0), strategy("extend_later", 47000.0), strategy("rent", 70707.0),
            strategy("reserve", 52000.0), strategy("rent_then_buy", 49000.0), strategy("mixed", 45678.0, chosen=True),
        ],
        **more,
    }  # fmt: skip


def ranges(usd: float, wins: float, over: float | None = None) -> dict[str, Any]:
    return {
        "usd_per_month": [usd * 0.8, usd, usd * 1.5], "total_usd": [usd * 24, usd * 30, usd * 45],
        "wins_probability": wins, "over_budget_probability": over,
    }  # fmt: skip


TAXES = {
    "income_tax_fraction": 0.25, "vat_fraction": 0.075, "vat_usd": 43210.0, "npv_after_tax_usd": 987654.0,
    "said": "depreciation saves tax",
}  # fmt: skip
UNCERTAINTY: dict[str, Any] = {
    "draws": 4096, "seed": 7, "said": "The first deployment costs $36,500 to $68,500 a month in 90% of 4,096 draws.",
    "drivers": [
        {"name": "load", "low": 0.8, "high": 1.25, "usd_per_month_low": 40000.0, "usd_per_month_high": 55000.0,
         "variance_fraction": 0.61, "source": "planning assumption"},
        {"name": "staff cost", "low": 0.75, "high": 1.5, "usd_per_month_low": 45678.0, "usd_per_month_high": 45678.0,
         "variance_fraction": 0.004, "source": "https://example.org/pay"},
    ],
    "chances": [{"said": "owning costs less than renting", "probability": 0.714}],
}  # fmt: skip


def costs(*usd: float) -> list[dict[str, Any]]:
    return [{"rank": rank, "usd_per_month": each, "total_usd": each * 30} for rank, each in enumerate(usd, 1)]


SCENARIOS = [
    {"name": "low", "ratios": {"load": 0.9, "resale value": 1.4}, "first_rank": 2, "costs": costs(41000.0, 40900.0)},
    {"name": "base", "ratios": {}, "first_rank": 1, "costs": costs(45678.0, 46000.0)},
    {"name": "boom", "ratios": {"load": 2.0}, "first_rank": 1, "costs": costs(81000.0, 83000.0)},
]
SWITCH = {
    "first_rank": 2, "second_rank": 1, "month": 12, "overlap_months": 1, "usd_per_month": 44444.0,
    "saving_usd": 5000.0, "said": "Starting on MI300X and switching to H200 after month 12 saves $5,000.",
}  # fmt: skip


def result() -> dict[str, Any]:
    """The sample answer with money; the first two options have plans, the first with everything."""
    found = sample_money.result()
    first, second = (option["money"] for option in found["recommendations"][:2])
    flow = {"rent_usd": 1111.0, "energy_usd": 222.0, "staff_usd": 333.0, "book_value_usd": 4444.0}
    first |= {
        "horizon_months": HORIZON, "plan": plan(), "ranges": ranges(45678.0, 0.62, 0.002), "taxes": TAXES,
        "usd_per_month": 45678.0,
        "cash_flow": [each | flow | {"value_left_usd": -0.0} for each in first["cash_flow"]],
    }  # fmt: skip
    second |= {
        "plan": plan(steps=[step("rent", 2, 1, 36, price_as_of="2026-11-19")], months=[], capex_usd=0.0,
                     resale_usd=0.0, liability_usd=0.0, liability_months=0, payback_month=None,
                     irr_fraction_per_year=None),
        "ranges": ranges(46000.0, 0.38),
    }  # fmt: skip
    return found | {
        "uncertainty": UNCERTAINTY, "scenarios": SCENARIOS, "switch": SWITCH,
        "currency": {"code": "EUR", "per_usd": 0.86, "as_of": "2026-11-02", "source": "https://example.org/rates"},
    }  # fmt: skip


def advice() -> Any:
    return sample_advice.advice(result())
