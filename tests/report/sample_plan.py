"""The sample answer with a dated plan: a rent that grows, a term that outlasts the horizon, a purchase in month 4."""

from typing import Any

from tests import sample_money

MONTHS, RATE = 12, 0.08
HOURS = 730.0
PRICE, TERM_PRICE, SERVER, SHARE, SOLD = 2.345, 1.7, 100_000.0, 0.175, 60_000.0
RENTED = {month: 2.0 if month < 4 else 2.5 for month in range(1, 7)}  # instances by month
TERM_FROM, TERM_MONTHS = 7, 24
STAFF, ENERGY, OTHER = 1666.664, 200.003, 300.001  # USD a month; thousandths are lost by rounding months


def step(action: str, **given: Any) -> dict[str, Any]:
    return {
        "action": action, "instances": 1, "instance": "p5.48xlarge", "provider": "aws", "region": "us-east-1",
        "term": "on_demand", "from_month": 1, "until_month": MONTHS, "paid_until_month": MONTHS,
        "order_months_before": 0.0, "unit_usd_once": None, "unit_usd_per_hour": None, "paid_hours": 0.0, "usd": 0.0,
        "price_as_of": "2026-10-01", "price_source": "https://example.org/prices", "said": f"{action} it.", **given,
    }  # fmt: skip


def steps() -> list[dict[str, Any]]:
    rented = sum(RENTED.values()) * HOURS
    return [
        step("rent", instances=3, until_month=6, paid_until_month=6, unit_usd_per_hour=PRICE, paid_hours=rented),
        step("buy", instance="dgx", provider="own", term="purchase", from_month=4, unit_usd_once=SERVER,
             order_months_before=10.0, price_as_of="2026-05-01"),
        step("reserve", instances=2, term="reserved_1y", from_month=TERM_FROM, unit_usd_per_hour=TERM_PRICE,
             paid_until_month=TERM_FROM + TERM_MONTHS - 1, paid_hours=2 * HOURS * TERM_MONTHS),
    ]  # fmt: skip


def payments() -> list[dict[str, float]]:
    """Of months 0 .. MONTHS, not rounded, USD."""
    found = []
    for month in range(MONTHS + 1):
        rent = RENTED.get(month, 0.0) * HOURS * PRICE
        if month >= TERM_FROM:
            after = TERM_FROM + TERM_MONTHS - 1 - MONTHS if month == MONTHS else 0
            rent += 2 * HOURS * TERM_PRICE * (1 + after)
        found.append(
            {
                "capital_usd": SERVER * (1 + SHARE) if month == 3 else 0.0,
                "rent_usd": rent,
                "energy_usd": ENERGY if month > 3 else 0.0,
                "staff_usd": STAFF if month else 0.0,
                "other_usd": OTHER if month else 0.0,
                "value_left_usd": SOLD if month == MONTHS else 0.0,
            }
        )
    return found


def cash_flow() -> list[dict[str, float]]:
    flows = []
    for month, paid in enumerate(payments()):
        exact = sum(paid.values()) - 2 * paid["value_left_usd"]
        p = {name: round(usd, 2) for name, usd in paid.items()}
        other = p.pop("other_usd")
        running = round(p["rent_usd"] + p["energy_usd"] + p["staff_usd"] + other, 2)
        total = round(p["capital_usd"] + running - p["value_left_usd"], 2)
        present = round(exact * (1 + RATE) ** (-month / 12), 2)
        flows.append(
            {"month": month, **p, "running_usd": running, "total_usd": total, "present_usd": present,
             "book_value_usd": 100.0}
        )  # fmt: skip
    return flows


def part(name: str, group: str, usd: float) -> dict[str, Any]:
    return {"name": name, "group": group, "usd_per_hour": usd / HOURS, "usd_per_month": usd}


def money() -> dict[str, Any]:
    exact = [sum(paid.values()) - 2 * paid["value_left_usd"] for paid in payments()]
    present = [(1 + RATE) ** (-month / 12) for month in range(MONTHS + 1)]
    npv = sum(usd * d for usd, d in zip(exact, present, strict=True))
    monthly, liability = npv / sum(present[1:]), 2 * HOURS * TERM_PRICE * (TERM_FROM + TERM_MONTHS - 1 - MONTHS)
    return sample_money.money(monthly) | {
        "horizon_months": MONTHS, "usd_per_month": round(monthly, 2), "npv_usd": round(npv, 2),
        "usd_over_horizon": round(sum(exact), 2), "cash_flow": cash_flow(),
        "parts": [
            part("instances", "rent", 4000.0), part("electricity", "running", 140.0), part("cooling", "running", 60.0),
            part("staff", "running", 600.0), part("minimum team", "running", 1066.0),
            part("insurance", "running", 300.0), part("accelerators", "capital", 5000.0),
        ],
        "plan": {
            "said": "Rent first, then buy and reserve.", "steps": steps(),
            "months": [
                {"month": month, "traffic_ratio": 1.0, "replicas": 4, "hourly_instances": int(RENTED.get(month, 0)),
                 "committed_instances": 2, "own_instances": 1}
                for month in range(1, MONTHS + 1)
            ],
            "capex_usd": SERVER * (1 + SHARE), "resale_usd": SOLD, "liability_usd": round(liability, 2),
            "liability_months": TERM_FROM + TERM_MONTHS - 1 - MONTHS, "most_usd_per_month": 60000.0, "exit_month": 6,
            "exit_usd": 1234.0, "rent_usd_per_month": 9000.0, "payback_month": 9, "irr_fraction_per_year": 0.21,
            "strategies": [
                {"name": "rent", "said": "rent by the hour", "usd_per_month": 9000.0, "npv_usd": 100000.0,
                 "capex_usd": 0.0, "liability_usd": 0.0, "most_usd_per_month": 9500.0, "chosen": False}
            ],
        },
        "ranges": {"usd_per_month": [9000.0, 11000.0, 15000.0], "total_usd": [100000.0, 130000.0, 180000.0],
                   "wins_probability": 0.6, "over_budget_probability": None},
        "taxes": {"income_tax_fraction": 0.25, "vat_fraction": 0.0, "vat_usd": 0.0, "npv_after_tax_usd": 90000.0,
                  "said": "income tax saved on expenses"},
    }  # fmt: skip


def result() -> dict[str, Any]:
    """The sample answer; its first option has the plan."""
    found = sample_money.result()
    first = found["recommendations"][0]
    first |= {"money": money()}
    first |= {"usd_per_month": first["money"]["usd_per_month"]}
    found["scenarios"] = [
        {"name": name, "ratios": {"load": ratio}, "first_rank": 1,
         "costs": [{"rank": 1, "usd_per_month": 11000.0 * ratio, "total_usd": 130000.0 * ratio}]}
        for name, ratio in (("low", 0.8), ("base", 1.0), ("high", 1.3))
    ]  # fmt: skip
    found["uncertainty"] = {
        "draws": 100, "seed": 1, "said": "It costs this much.",
        "drivers": [
            {"name": "load", "low": 0.8, "high": 1.25, "usd_per_month_low": 9000.0, "usd_per_month_high": 15000.0,
             "variance_fraction": 0.5, "source": "planning assumption"}
        ],
        "chances": [{"said": "owning costs less than renting", "probability": 0.7}],
    }  # fmt: skip
    found["currency"] = {"code": "EUR", "per_usd": 0.9, "as_of": "2026-11-20", "source": "https://example.org/rates"}
    return found
