"""An answer's money is recalculated from its JSON and docs/explanation/costs.md, and agrees to the cent."""

from typing import Any

import pytest

from advisor import workload
from advisor.advise import default_organisation
from advisor.inputs.from_catalog import take_snapshot
from tests.answer.recalculation import Recalculation
from tests.as_json import recommend

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("shipped")]
SHOWN = 3  # options of each question
CENT = 0.01
DIGITS = 5.1e-6  # relative: figures with six significant digits
OWN, RENT = {"constraints.acquisition": ["own"]}, {"constraints.acquisition": ["rent"]}
TERMS = {"constraints.terms": ["on_demand", "reserved_1y", "reserved_3y"]}
MONTHS = "tco.horizon_months"
H100 = {"constraints.accelerators.allow": ["h100-sxm"]}

SERVING: dict[str, Any] = {
    "name": "question",
    "model": "meta-llama/Llama-3.1-8B",
    "traffic": {
        "input_tokens": {"mean": 1500, "p95": 4000},
        "output_tokens": {"mean": 300, "p95": 800},
        "requests_per_s": {"mean": 6, "peak": 20},
    },
    "slo": {"ttft_ms_p95": 2000, "tpot_ms_p95": 50},
    "constraints": {"accelerators": {"allow": ["h100-sxm", "l40s"]}, "acquisition": ["rent", "own"]},
    "variants": "no",
}
LARGE = {
    "model": "meta-llama/Llama-3.3-70B-Instruct",
    "traffic.requests_per_s": {"mean": 12, "peak": 30},
    **H100,
}
BATCH: dict[str, Any] = {
    "name": "question",
    "kind": "batch",
    "model": "meta-llama/Llama-3.1-8B",
    "traffic": {"input_tokens": 1000, "output_tokens": 200},
    "batch": {"requests": 200_000, "deadline_hours": 8, "every_hours": 24},
    "constraints": {"accelerators": {"allow": ["h100-sxm", "l40s"]}, "acquisition": ["rent", "own"]},
    "variants": "no",
}
EMBEDDING: dict[str, Any] = {
    "name": "question",
    "kind": "embedding",
    "model": "intfloat/e5-large-v2",
    "traffic": {"input_tokens": {"mean": 256, "p95": 480}, "requests_per_s": {"mean": 100, "peak": 300}},
    "slo": {"e2e_ms_p95": 300},
    "constraints": {"accelerators": {"allow": ["h100-sxm", "l40s"]}, "acquisition": ["rent", "own"]},
    "variants": "no",
}
RERANK: dict[str, Any] = {
    "name": "question",
    "kind": "rerank",
    "model": "BAAI/bge-reranker-v2-m3",
    "traffic": {
        "documents_per_request": 50,
        "input_tokens": {"mean": 300, "p95": 512},
        "requests_per_s": {"mean": 5, "peak": 15},
    },
    "slo": {"e2e_ms_p95": 500},
    "constraints": {"accelerators": {"allow": ["h100-sxm", "l40s"]}, "acquisition": ["rent", "own"]},
    "variants": "no",
}
WEEK = [1.0 + (hour % 24 in range(8, 20)) * 2 + (hour == 12) for hour in range(168)]
PATHS = {
    "rent": [{"month": 12, "ratio": 0.8}, {"month": 36, "ratio": 0.6}],
    "electricity": [{"month": 24, "ratio": 1.3}],
    "hardware": [{"month": 18, "ratio": 0.7}],
    "resale": [{"month": 36, "ratio": 1.4}],
}
SEASONS = [0.6, 0.7, 0.8, 1.0, 1.2, 1.0, 0.9, 0.8, 1.0, 1.3, 1.5, 1.6]

QUESTIONS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "rent by the hour or buy": (SERVING, {}),
    "one month": (SERVING, {MONTHS: 1}),
    "72 months, hardware replaced once": (SERVING, {MONTHS: 72, **OWN}),
    "discount rate of 0": (SERVING, {"tco.discount_rate": 0.0, **LARGE}),
    "office hours, rented": (SERVING, {"traffic.load_curve": "office_hours", **RENT}),
    "office hours, base bought and peaks rented": (SERVING, {"traffic.load_curve": "office_hours", **LARGE, MONTHS: 60}),
    "a week of its own with slow cold starts": (
        SERVING,
        {"traffic.load_curve": WEEK, "traffic.requests_per_s": {"mean": 20}, "tco.cold-start-s": 5400, **RENT},
    ),
    "reserved for a year": (SERVING, {"constraints.terms": ["reserved_1y"], **RENT}),
    "reserved for three years": (SERVING, {"constraints.terms": ["reserved_3y"], **RENT, MONTHS: 60}),
    "a term that outlasts the horizon": (SERVING, {"constraints.terms": ["reserved_1y"], **RENT, MONTHS: 18}),
    "a term that is left early": (
        SERVING,
        {"constraints.terms": ["reserved_3y"], **RENT, MONTHS: 24, "tco.commitment-exit-fraction": 0.5},
    ),
    "ladder of terms with growth": (
        SERVING,
        {**TERMS, **LARGE, **RENT, "traffic.growth_fraction_per_year": 0.5},
    ),
    "ladder of terms, purchases and rents with growth": (
        SERVING,
        {**TERMS, **LARGE, MONTHS: 48, "traffic.growth_fraction_per_year": 0.8},
    ),
    "spot": (SERVING, {"constraints.terms": ["spot"], **RENT}),
    "spot and other cloud services": (
        SERVING,
        {"constraints.terms": ["spot"], **RENT, "tco.spot-lost-fraction": 0.2, "tco.cloud-addon-fraction": 0.15},
    ),
    "egress and storage at a provider": (SERVING, {"constraints.providers.allow": ["aws"], **RENT}),
    "egress at a price of its own with a ramp": (
        SERVING,
        {"tco.egress-usd-per-gb": 0.5, "tco.storage-usd-per-gb-month": 0.1, "traffic.ramp_months": 6},
    ),
    "in europe": (SERVING, {"constraints.regions.allow": ["eu"], **RENT}),
    "purchase": (SERVING, {**LARGE, **OWN}),
    "purchase with growth": (SERVING, {**LARGE, **OWN, "traffic.growth_fraction_per_year": 1.0}),
    "purchase in Germany": (SERVING, {**LARGE, **OWN, MONTHS: 60, "constraints.site": {"region": "grid-deu"}}),
    "owned servers kept": (SERVING, {"owned": {"h100-sxm": 8}, **H100}),
    "owned servers kept and more": (
        SERVING,
        {**LARGE, "owned": {"h100-sxm": 8}, "traffic.growth_fraction_per_year": 0.6, MONTHS: 48},
    ),
    "shrinking": (SERVING, {**LARGE, "traffic.growth_fraction_per_year": -0.4}),
    "ramp and seasons": (SERVING, {**LARGE, "traffic.ramp_months": 5, "traffic.seasonality": SEASONS}),
    "end of life": (SERVING, {**LARGE, **TERMS, "traffic.ends_after_months": 20}),
    "price paths": (SERVING, {**LARGE, "tco.price_paths": PATHS, MONTHS: 48}),
    "prices that change every year": (
        SERVING,
        {
            **LARGE, **TERMS, MONTHS: 60, "tco.rent-change-per-year": -0.15, "tco.electricity-change-per-year": 0.05,
            "tco.hardware-price-change-per-year": -0.1, "traffic.growth_fraction_per_year": 0.3,
        },
    ),  # fmt: skip
    "budget per month": (
        SERVING,
        {**LARGE, **TERMS, "traffic.growth_fraction_per_year": 0.3, "constraints.max_usd_per_month": 60_000},
    ),
    "limit on purchases": (
        SERVING,
        {**LARGE, MONTHS: 60, "traffic.growth_fraction_per_year": 0.5, "constraints.max_capex_usd": 400_000},
    ),
    "no purchases": (SERVING, {**LARGE, "constraints.max_capex_usd": 0}),
    "cached prompts": (SERVING, {"traffic.prefix_cache_hit_rate": 0.6}),
    "residual value set": (SERVING, {**LARGE, **OWN, "tco.residual-value-fraction": 0.1, MONTHS: 30}),
    "superseded accelerators": (
        SERVING,
        {"constraints.accelerators.allow": ["a100-80gb-sxm"], **OWN, "tco.residual-value-year-3": 0.4, MONTHS: 48},
    ),
    "other staff, insurance and maintenance": (
        SERVING,
        {
            **LARGE, "tco.operator-usd-per-year": 150_000, "tco.accelerators-per-operator": 40,
            "tco.minimum-engineers-own": 1.5, "tco.minimum-engineers-rented": 0.5, "tco.rented-staff-ratio": 0.3,
            "tco.insurance-fraction-per-year": 0.02, "tco.maintenance-fraction-per-year": 0.12,
            "tco.storage-fraction-of-hardware": 0.06, "tco.depreciation-years": 3, MONTHS: 48,
        },
    ),  # fmt: skip
    "a spare replica": (SERVING, {"slo.availability": "n+1", "traffic.load_curve": "office_hours"}),
    "twice the replicas": (SERVING, {"slo.availability": "2n", "traffic.growth_fraction_per_year": 0.5}),
    "licenses": (SERVING, {**LARGE, "tco.software-usd-per-accelerator-year": 4500, "traffic.load_curve": "office_hours"}),
    "VAT and income tax on a purchase": (
        SERVING,
        {**LARGE, **OWN, MONTHS: 72, "tco.vat-fraction": 0.19, "tco.income-tax-fraction": 0.3},
    ),
    "VAT and income tax on a term": (
        SERVING,
        {**TERMS, **RENT, MONTHS: 30, "tco.vat-fraction": 0.19, "tco.income-tax-fraction": 0.3},
    ),
    "cards in servers": (SERVING, {**OWN, "constraints.accelerators.allow": ["l40s"]}),
    "wait for a purchase": (SERVING, {**LARGE, "tco.purchase-lead-months": 8, MONTHS: 60}),
    "users": (
        SERVING,
        {"traffic.users": {"active": 200, "think_s": 20}, "traffic.requests_per_s": None},
    ),
    "last year's prices": (SERVING, {"prices_as_of": "2025-12-01"}),
    "a batch, released after each run": (BATCH, RENT),
    "a batch on owned machines": (BATCH, {**OWN, MONTHS: 48}),
    "a batch that grows, with licenses": (
        BATCH,
        {"traffic.growth_fraction_per_year": 0.7, "tco.software-usd-per-accelerator-year": 1000, MONTHS: 24},
    ),
    "embeddings": (EMBEDDING, {}),
    "embeddings on hardware of one's own": (EMBEDDING, {**OWN, MONTHS: 60}),
    "reranking": (RERANK, {"traffic.load_curve": "office_hours"}),
}


def asked(base: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """The validated question."""
    spec: dict[str, Any] = {**base}
    for path, value in changes.items():
        *folders, last = path.split(".")
        place = spec
        for name in folders:
            place[name] = {**place.get(name, {})}
            place = place[name]
        place[last] = value
    return workload.parse(spec)


def differences(answer: dict[str, Any], option: dict[str, Any]) -> list[str]:
    """Every figure of an option that does not agree with its recalculation."""
    again, money = Recalculation(answer, option), option["money"]
    plan, bill = money["plan"], again.bill()
    found: list[str] = []

    def agree(name: str, told: Any, recalculated: Any, within: float = CENT) -> None:
        if (told is None) != (recalculated is None) or told is not None and abs(told - recalculated) > within + 1e-6:
            found.append(f"{name}: {told} in the answer, {recalculated} recalculated")

    def alike(name: str, told: Any, recalculated: Any) -> None:
        agree(name, told, recalculated, DIGITS * abs(told or 0.0))

    for name in ("npv_usd", "usd_per_month", "usd_over_horizon"):
        agree(name, money[name], getattr(bill, name))
    for name in (
        "capex_usd", "resale_usd", "liability_usd", "liability_months", "most_usd_per_month", "exit_month", "exit_usd",
    ):  # fmt: skip
        agree(f"plan.{name}", plan[name], getattr(bill, name))
    for flow in money["cash_flow"]:
        for name, told in flow.items():
            if name != "month":
                agree(f"month {flow['month']}, {name}", told, bill.flows.loc[flow["month"], name], 0.02)
    parts = {part["name"]: part["usd_per_month"] for part in money["parts"]}
    for name in {**parts, **bill.parts}:
        agree(f"part {name}", parts.get(name, 0.0), bill.parts.get(name, 0.0))
    for month in plan["months"]:
        served = again.in_service.loc[month["month"]]
        for name, kind in (("hourly", "hourly"), ("committed", "committed"), ("own", "owned")):
            agree(f"month {month['month']}, {name}_instances", month[f"{name}_instances"], served[kind], 0)
        agree(f"month {month['month']}, replicas", month["replicas"], again.replicas()[month["month"]], 0)
    unit = again.unit_costs(bill.usd_per_month)
    for name, usd in unit.items():
        told = money["usd_per_mtok_computed_input"] if name == "computed_input" else option[f"usd_per_mtok_{name}"]
        alike(f"USD per million tokens, {name}", told, usd)
        if f"usd_per_mtok_{name}_at_capacity" in option:
            told = option[f"usd_per_mtok_{name}_at_capacity"]
            alike(f"USD per million tokens at capacity, {name}", told, usd * again.used_fraction)
    flat = not plan["months"] or not option["growth_schedule"]
    if plan["capex_usd"] and plan["rent_usd_per_month"] and flat and not again.price("rent", 12) != 1:
        even, back, rate = again.against(plan["rent_usd_per_month"])
        agree("payback month", plan["payback_month"], back, 0)
        alike("IRR", plan["irr_fraction_per_year"], rate)
        for met in money["break_even"]:
            if met["between"] == ["own", "rent on_demand"] and option["acquisition"] == "own":
                agree("break-even month", met["month"], even, 0)
    if money["taxes"]:
        vat, after = again.taxes()
        agree("VAT", money["taxes"]["vat_usd"], vat)
        agree("present value after tax", money["taxes"]["npv_after_tax_usd"], after)
    return found


@pytest.mark.parametrize("name", QUESTIONS)
def test_the_money_of_an_answer_is_recalculated_to_the_cent(name: str) -> None:
    spec = asked(*QUESTIONS[name])
    answer = recommend(spec, take_snapshot(spec, default_organisation()))
    options = [r for r in answer["recommendations"] if r.get("money")][:SHOWN]
    assert options
    for option in options:
        assert not differences(answer, option), option["label"]
        parts = [part["usd_per_month"] for part in option["money"]["parts"]]
        assert round(sum(parts), 2) == option["money"]["usd_per_month"]
