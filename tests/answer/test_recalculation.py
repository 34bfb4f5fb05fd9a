"""The money of 56 answers is recalculated from their JSON and docs/reference/cost-formulas.md, and agrees to the cent.

`make test` recalculates half of them, with every kind of plan and of cost; `make soak` all.
"""

import json
from dataclasses import replace
from functools import lru_cache
from typing import Any

import pandas as pd
import pytest

from advisor import workload
from advisor.advise import default_organisation
from advisor.inputs.from_catalog import take_snapshot
from catalog.models import Accelerator, Price
from tests.answer.recalculation import Bill, FleetRecalculation, Recalculation, share_one_team
from tests.as_json import recommend

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("frozen")]
SHOWN = 3  # options of each question
CENT = 0.01
DIGITS = 2e-5  # relative: figures with six significant digits, from others with six
TERMS = ["on_demand", "reserved_1y", "reserved_3y"]
DAY = "2026-11-24"  # whose prices are used
Json = dict[str, Any]


@pytest.fixture(scope="module", autouse=True)
def seller(frozen: None, django_db_blocker: Any) -> None:
    """A seller with a price for each term, whose hosts are smaller than those that one buys."""
    rows = [
        ("mi300x", 1, "on_demand", 2.0), ("mi300x", 1, "reserved_1y", 1.6), ("mi300x", 1, "reserved_3y", 1.4),
        ("h100-sxm", 2, "on_demand", 4.6),
    ]  # fmt: skip
    with django_db_blocker.unblock():
        for slug, chips, term, usd in rows:
            Price.objects.create(
                provider="somecloud", instance=f"{slug}-{chips}", accelerator=Accelerator.objects.get(slug=slug),
                accelerators=chips, region="any", term=term, kind="vm", usd_per_hour=usd, as_of=DAY, source="sample",
            )  # fmt: skip


# --- questions --------------------------------------------------------------------------------------------------


def serving(model: str, mean: float, peak: float, chips: list[str]) -> Json:
    """A question that is answered fast: one framework, one format."""
    return {
        "name": "question",
        "model": model,
        "traffic": {
            "input_tokens": {"mean": 1500, "p95": 4000},
            "output_tokens": {"mean": 300, "p95": 800},
            "requests_per_s": {"mean": mean, "peak": peak},
        },
        "slo": {"ttft_ms_p95": 2000, "tpot_ms_p95": 50},
        "constraints": {
            "accelerators": {"allow": chips},
            "acquisition": ["rent", "own"],
            "frameworks": {"allow": ["vllm"]},
            "formats": {"allow": ["fp8"]},
        },
        "variants": "no",
        "prices_as_of": DAY,
    }


def other_kind(kind: str, model: str, traffic: Json, **sections: Any) -> Json:
    constraints = {"accelerators": {"allow": ["h100-sxm", "l40s"]}, "acquisition": ["rent", "own"]}
    return {
        "name": "question", "kind": kind, "model": model, "traffic": traffic, "constraints": constraints,
        "variants": "no", "prices_as_of": DAY, **sections,
    }  # fmt: skip


SMALL = serving("meta-llama/Llama-3.1-8B", 6, 20, ["h100-sxm", "l40s"])
LARGE = serving("meta-llama/Llama-3.3-70B-Instruct", 12, 30, ["h100-sxm"])
BATCH = other_kind(
    "batch", "meta-llama/Llama-3.1-8B", {"input_tokens": 1000, "output_tokens": 200},
    batch={"requests": 200_000, "deadline_hours": 8, "every_hours": 24},
) | {"constraints": SMALL["constraints"]}  # fmt: skip
EMBEDDING = other_kind(
    "embedding", "intfloat/e5-large-v2",
    {"input_tokens": {"mean": 256, "p95": 480}, "requests_per_s": {"mean": 100, "peak": 300}}, slo={"e2e_ms_p95": 300},
)  # fmt: skip
RERANK = other_kind(
    "rerank", "BAAI/bge-reranker-v2-m3",
    {
        "documents_per_request": 50, "input_tokens": {"mean": 300, "p95": 512},
        "requests_per_s": {"mean": 5, "peak": 15}, "load_curve": "office_hours",
    },
    slo={"e2e_ms_p95": 500},
)  # fmt: skip
IMAGES = other_kind(
    "image_generation", "black-forest-labs/FLUX.1-dev",
    {"image_output": {"width_px": 1024, "height_px": 1024, "steps": 28}, "requests_per_s": {"mean": 0.2, "peak": 0.6}},
    slo={"e2e_ms_p95": 20_000},
)  # fmt: skip
SPEECH = other_kind(
    "serving", "openai/whisper-large-v3", {"audio": {"hours_per_hour": 200, "clip_s": 120}}, slo={"e2e_ms_p95": 10_000}
)
OWN, RENT = {"constraints.acquisition": ["own"]}, {"constraints.acquisition": ["rent"]}
MI300X = {"constraints.accelerators.allow": ["mi300x"]}
OCI = {"constraints.providers.allow": ["own", "owned", "oci"]}  # whole servers only
GROWTH, MONTHS = "traffic.growth_fraction_per_year", "tco.horizon_months"
REPLACED = 84  # months: servers serve for 60, and are replaced for more than a year only
TAXES = {"tco.vat-fraction": 0.19, "tco.income-tax-fraction": 0.3}
OFFICE = {"traffic.load_curve": "office_hours"}
PEAKS = {  # five hours on weekdays
    "traffic.load_curve": [5.0 if hour % 24 in range(9, 14) and hour < 120 else 2.0 for hour in range(168)]
}
BREAKS = {"traffic.load_curve": [0.2 if hour % 24 == 3 else 1.0 for hour in range(168)]}  # an hour every night
SEASONS = {"traffic.seasonality": [0.6, 0.7, 0.8, 1.0, 1.2, 1.0, 0.9, 0.8, 1.0, 1.3, 1.5, 1.6]}
PATHS = {
    "rent": [{"month": 12, "ratio": 0.8}, {"month": 36, "ratio": 0.6}],
    "electricity": [{"month": 24, "ratio": 1.3}],
    "hardware": [{"month": 18, "ratio": 0.7}],
    "resale": [{"month": 36, "ratio": 0.8}],
}
STAFF = {
    "tco.operator-usd-per-year": 150_000, "tco.accelerators-per-operator": 40, "tco.minimum-engineers-own": 1.5,
    "tco.minimum-engineers-rented": 0.5, "tco.rented-staff-ratio": 0.3,
}  # fmt: skip
TURNS = {
    "traffic.turns": {"count": 6, "added_tokens": 400, "wait_s": 20, "conversations_per_hour": 3000},
    "traffic.input_tokens": 2000, "traffic.requests_per_s": None, "traffic.prefix_cache_hit_rate": 0.5,
}  # fmt: skip
QUESTIONS: dict[str, tuple[Json, Json]] = {
    "rent by the hour or buy": (SMALL, {}),
    "one month": (SMALL, {MONTHS: 1}),
    "hardware that is replaced": (SMALL, {**OWN, MONTHS: REPLACED}),
    "no discount": (LARGE, {"tco.discount_rate": 0.0}),
    "office hours": (SMALL, {**OFFICE, **RENT}),
    "peaks rented beside bought servers": (LARGE, {**PEAKS, **OCI, "traffic.requests_per_s": {"mean": 12}}),
    "slow starts": (SMALL, {**PEAKS, **RENT, "traffic.requests_per_s": {"mean": 20}, "tco.cold-start-s": 5400}),
    "starts that are slower than a break": (
        SMALL,
        {**BREAKS, **RENT, "traffic.requests_per_s": {"mean": 20}, "tco.cold-start-s": 5400},
    ),
    "reserved for a year": (SMALL, {**RENT, "constraints.terms": ["reserved_1y"]}),
    "reserved for three years": (SMALL, {**RENT, "constraints.terms": ["reserved_3y"], MONTHS: 60}),
    "a term beyond the horizon": (SMALL, {**RENT, "constraints.terms": ["reserved_1y"], MONTHS: 18}),
    "a term that is left early": (
        SMALL,
        {**RENT, "constraints.terms": ["reserved_3y"], MONTHS: 24, "tco.commitment-exit-fraction": 0.5},
    ),
    "a ladder of terms": (LARGE, {**MI300X, **RENT, "constraints.terms": TERMS, GROWTH: 0.8, MONTHS: 30}),
    "terms for the base of a season": (LARGE, {**MI300X, **RENT, **SEASONS, "constraints.terms": TERMS, MONTHS: 30}),
    "terms while rents fall": (
        LARGE,
        {
            **RENT, "constraints.terms": ["reserved_3y"], "constraints.providers.allow": ["aws"], MONTHS: 40,
            "traffic.ramp_months": 2, "tco.rent-change-per-year": -0.1, "tco.cloud-addon-fraction": 0.1,
            "tco.software-usd-per-accelerator-year": 1000,
        },
    ),
    "spot": (
        SMALL,
        {**RENT, "constraints.terms": ["spot"], "tco.spot-lost-fraction": 0.2, "tco.cloud-addon-fraction": 0.15},
    ),
    "egress and storage": (SMALL, {**RENT, "constraints.providers.allow": ["aws"]}),
    "egress beside owned servers": (
        LARGE,
        {
            **OCI, "owned": {"h100-sxm": 8}, "tco.egress-usd-per-gb": 0.5, "tco.storage-usd-per-gb-month": 0.1,
            MONTHS: 12, "constraints.max_capex_usd": 0, "traffic.ramp_months": 3,
        },
    ),
    "Europe": (SMALL, {**RENT, "constraints.regions.allow": ["eu"]}),
    "a site in Germany": (LARGE, {**OWN, MONTHS: 60, "constraints.site": {"region": "grid-deu"}}),
    "growth on bought servers": (LARGE, {**OWN, GROWTH: 1.0, "tco.software-usd-per-accelerator-year": 900}),
    "owned servers": (LARGE, {"owned": {"h100-sxm": 24}, MONTHS: 12}),
    "owned servers and more": (LARGE, {**OWN, "owned": {"h100-sxm": 8}, "traffic.ramp_months": 3, MONTHS: 48}),
    "shrinking traffic": (LARGE, {**OWN, GROWTH: -0.4}),
    "a ramp and seasons": (LARGE, {**SEASONS, **OCI, "traffic.ramp_months": 5, MONTHS: 24}),
    "end of life": (LARGE, {"traffic.ends_after_months": 20, MONTHS: 24}),
    "price paths": (LARGE, {"tco.price_paths": PATHS, MONTHS: 48}),
    "prices that change every year": (
        LARGE,
        {
            MONTHS: 60, "tco.rent-change-per-year": -0.1, "tco.electricity-change-per-year": 0.05,
            "tco.hardware-price-change-per-year": -0.1, GROWTH: 0.3,
        },
    ),
    "budget per month": (LARGE, {"constraints.max_usd_per_month": 50_000, "traffic.ramp_months": 2, MONTHS: 24}),
    "limit on purchases": (
        LARGE,
        {**OCI, "constraints.max_capex_usd": 400_000, "traffic.ramp_months": 2, MONTHS: 12},
    ),
    "cached prompts": (SMALL, {"traffic.prefix_cache_hit_rate": 0.6}),
    "conversations": (SMALL, TURNS),
    "a residual value of one's own": (LARGE, {**OWN, "tco.residual-value-fraction": 0.1, MONTHS: 30}),
    "a superseded accelerator": (
        SMALL,
        {
            **OWN, "constraints.accelerators.allow": ["a100-40gb-sxm"], "constraints.formats.allow": [],
            "tco.residual-value-year-1": 0.5, MONTHS: 20,
        },
    ),
    "staff, insurance and maintenance": (
        LARGE,
        {
            **OWN, **STAFF, "tco.insurance-fraction-per-year": 0.02, "tco.maintenance-fraction-per-year": 0.12,
            "tco.storage-fraction-of-hardware": 0.06, "tco.depreciation-years": 3, MONTHS: 60,
        },
    ),
    "staff for rented instances": (LARGE, {**RENT, **STAFF}),
    "a spare replica": (SMALL, {**OFFICE, "slo.availability": "n+1"}),
    "twice the replicas": (SMALL, {"slo.availability": "2n", GROWTH: 0.5}),
    "licenses": (
        LARGE,
        {**PEAKS, **OCI, "traffic.requests_per_s": {"mean": 12}, "tco.software-usd-per-accelerator-year": 4500},
    ),
    "taxes on purchases": (LARGE, {**OWN, **TAXES, MONTHS: REPLACED}),
    "taxes on terms": (SMALL, {**RENT, **TAXES, "constraints.terms": ["reserved_1y"], MONTHS: 30}),
    "cards in servers": (SMALL, {**OWN, "constraints.accelerators.allow": ["l40s"]}),
    "a purchase with a lead time": (LARGE, {"tco.purchase-lead-months": 8, MONTHS: 48}),
    "two spare hosts, also until a delivery": (
        LARGE,
        {
            "slo.availability": "n+2", "tco.purchase-lead-months": 5, "traffic.ramp_months": 3, MONTHS: 48,
            "constraints.providers.allow": ["own", "owned", "somecloud"],
        },
    ),
    "users": (SMALL, {"traffic.users": {"active": 200, "think_s": 20}, "traffic.requests_per_s": None}),
    "last year's prices": (SMALL, {"prices_as_of": "2025-12-01"}),
    "a batch on rented machines": (BATCH, RENT),
    "a batch on bought machines": (BATCH, {**OWN, MONTHS: 48}),
    "a batch that grows": (BATCH, {**RENT, GROWTH: 0.7, "tco.software-usd-per-accelerator-year": 1000, MONTHS: 24}),
    "embeddings": (EMBEDDING, {MONTHS: 60}),
    "reranking": (RERANK, {}),
    "images": (IMAGES, {}),
    "speech": (SPEECH, {}),
}  # fmt: skip

SOAK = {
    "rent by the hour or buy", "no discount", "office hours", "slow starts", "reserved for a year",
    "reserved for three years", "a term beyond the horizon", "a term that is left early",
    "terms for the base of a season", "egress and storage", "Europe", "growth on bought servers", "owned servers",
    "shrinking traffic", "prices that change every year", "limit on purchases", "cached prompts",
    "staff for rented instances", "a spare replica", "cards in servers", "a purchase with a lead time",
    "last year's prices", "a batch on bought machines",
}  # fmt: skip


def asked(base: Json, changes: Json) -> Json:
    """The validated question."""
    spec: Json = {**base}
    for path, value in changes.items():
        *folders, last = path.split(".")
        place = spec
        for name in folders:
            place[name] = {**place.get(name, {})}
            place = place[name]
        place[last] = value
    return workload.parse(spec)


SNAPSHOTS: dict[str, Json] = {}


def answer_to(spec: Json) -> Json:
    """From one snapshot for all questions that read the same rows of the catalog."""
    rows = json.dumps([spec[name] for name in ("kind", "model", "workloads", "constraints", "owned", "prices_as_of")])
    if rows not in SNAPSHOTS:
        SNAPSHOTS[rows] = take_snapshot(spec, default_organisation())
    return recommend(spec, SNAPSHOTS[rows])


@lru_cache
def answered(name: str) -> tuple[Json, list[Json]]:
    """(answer, its first options with a plan) of a question."""
    answer = answer_to(asked(*QUESTIONS[name]))
    return answer, [r for r in answer["recommendations"] if r.get("money")][:SHOWN]


# --- comparing --------------------------------------------------------------------------------------------------


class Differences(list[str]):
    """What does not agree, in words."""

    def agree(self, name: str, told: float | None, again: float | None, within: float = CENT) -> None:
        """To the cent."""
        if told is None or again is None:
            if told is not again:
                self.append(f"{name}: {told} in the answer, {again} recalculated")
        elif abs(told - again) > within + 1e-6:
            self.append(f"{name}: {told} in the answer, {again:.6f} recalculated")

    def alike(self, name: str, told: float | None, again: float | None) -> None:
        """To the digits that the answer gives."""
        self.agree(name, told, again, DIGITS * abs(told or 0.0))

    def bill(self, money: Json, bill: Bill, rounded: int = 1) -> None:
        """rounded: bills that were rounded to cents before they were added."""
        for name in ("npv_usd", "usd_per_month"):
            self.agree(name, money[name], getattr(bill, name), CENT * rounded)
        parts = {part["name"]: part["usd_per_month"] for part in money["parts"]}
        for name in {**parts, **bill.parts}:
            self.agree(f"part {name}", parts.get(name, 0.0), bill.parts.get(name, 0.0))
        self.agree("sum of the parts", round(sum(parts.values()), 2), money["usd_per_month"], 0)
        for flow in money["cash_flow"]:
            month, flows = f"month {flow['month']}", bill.flows.loc[flow["month"]]
            columns = ["rent_usd", "energy_usd", "staff_usd"]
            for name in [*columns, "capital_usd", "value_left_usd", "book_value_usd", "present_usd"]:
                self.agree(f"{month}, {name}", flow[name], flows[name], CENT * rounded)
            other = flow["running_usd"] - sum(flow[name] for name in columns)
            again = flows["running_usd"] - flows[columns].sum()
            self.agree(f"{month}, other running costs", other, again, CENT * rounded)
            total = flow["capital_usd"] + flow["running_usd"] - flow["value_left_usd"]
            self.agree(f"{month}, total_usd", flow["total_usd"], total, 0)

    def plan(self, plan: Json, again: Recalculation, bill: Bill) -> None:
        for name in ("capex_usd", "resale_usd", "liability_usd", "most_usd_per_month", "exit_usd"):
            self.agree(f"plan, {name}", plan[name], getattr(bill, name))
        for name in ("liability_months", "exit_month"):
            self.agree(f"plan, {name}", plan[name], getattr(bill, name), 0)
        for step in plan["steps"]:
            self.agree(f"paid hours: {step['said']}", step["paid_hours"], again.paid_hours(step), 1e-6)
        if again.released:
            self.alike("share of hours that is paid", again.run_fraction, again.run_and_start_fraction)
        for row in plan["months"]:
            month, served = row["month"], again.in_service.loc[row["month"]]
            for name, kind in (("hourly", "hourly"), ("committed", "committed"), ("own", "owned")):
                self.agree(f"month {month}, {name} instances", row[f"{name}_instances"], served[kind], 0)
            self.agree(f"month {month}, replicas", row["replicas"], again.replicas_by_month()[month], 0)

    def tokens(self, option: Json, again: Recalculation, bill: Bill) -> None:
        money, used = option["money"], again.used_fraction
        if unit := option.get("unit_cost"):
            usd = again.counted_units(bill.usd_per_month)
            self.alike(f"USD for {unit['count']} {unit['unit']}", unit["usd"], usd)
        if again.spec["kind"] == "image_generation":
            return
        for name, usd in again.unit_costs(bill.usd_per_month).items():
            if name == "computed_input":
                self.alike(name, money["usd_per_mtok_computed_input"], usd)
                continue
            self.alike(f"USD per million tokens, {name}", option[f"usd_per_mtok_{name}"], usd)
            at_capacity = option[f"usd_per_mtok_{name}_at_capacity"]
            self.alike(f"USD per million tokens, {name}, at capacity", at_capacity, usd * used)

    def against_rent(self, option: Json, again: Recalculation) -> None:
        plan = option["money"]["plan"]
        if not (rent := plan["rent_usd_by_month"]):
            return
        monthly = sum(usd * again.v(m) for m, usd in enumerate(rent, 1)) / again.annuity
        self.agree("rent per month", plan["rent_usd_per_month"], monthly)
        even, back, rate = again.against(rent)
        self.agree("payback month", plan["payback_month"], back, 0)
        self.alike("IRR", plan["irr_fraction_per_year"], rate)
        if (met := break_even(option)) is not None:
            self.agree("break-even month", met["month"], even, 0)
        lines = {path["name"]: path["cumulative_usd"] for path in option["money"]["paths"]}
        if option["term"] == "purchase" and "rent on_demand" in lines:
            self.agree("where the lines of the cost chart cross", plan["payback_month"], again.crossing(lines), 0)


def break_even(option: Json) -> Json | None:
    """Where the option, bought, meets the rent by the hour of its plan; None: it meets another, or is not bought."""
    money = option["money"]
    by_hour = [w["usd_per_month"] for w in money["ways_to_pay"] if w["term"] == "on_demand"]
    if option["term"] != "purchase" or money["plan"]["rent_usd_per_month"] not in by_hour:
        return None
    return next((met for met in money["break_even"] if met["between"] == ["own", "rent on_demand"]), None)


def differences(answer: Json, option: Json) -> Differences:
    """Every figure of an option that its recalculation does not agree with."""
    again, money, found = Recalculation(answer, option), option["money"], Differences()
    bill = again.bill()
    found.bill(money, bill)
    found.agree("usd_over_horizon", money["usd_over_horizon"], bill.usd_over_horizon)
    found.agree("capital_usd", money["capital_usd"], bill.flows.loc[0, "capital_usd"])
    found.plan(money["plan"], again, bill)
    found.tokens(option, again, bill)
    found.against_rent(option, again)
    if money["taxes"]:
        vat, after = again.taxes()
        found.agree("VAT", money["taxes"]["vat_usd"], vat)
        found.agree("present value after tax", money["taxes"]["npv_after_tax_usd"], after)
    return found


# --- one workload -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.soak) if name in SOAK else name for name in QUESTIONS]
)
def test_the_money_of_an_answer_is_recalculated_to_the_cent(name: str) -> None:
    answer, options = answered(name)
    assert options
    for option in options:
        assert not differences(answer, option), option["label"]


def test_the_questions_are_of_all_kinds() -> None:
    """If a change of prices makes a plan of a kind disappear, a question needs another number."""
    found: set[str] = set()
    assert set(QUESTIONS) > SOAK
    for name in set(QUESTIONS) - SOAK:
        for option in answered(name)[1]:
            money, plan = option["money"], option["money"]["plan"]
            actions = sorted({step["action"] for step in plan["steps"]})
            found |= {*actions, " and ".join(actions), *(part["name"] for part in money["parts"])}
            bought = [step for step in plan["steps"] if step["action"] == "buy"]
            found |= {name for name in ("liability_usd", "payback_month", "irr_fraction_per_year") if plan[name]}
            found |= {"superseded"} if any(step["server"]["superseded"] for step in bought) else set()
            found |= {"sold early"} if any(s["until_month"] < money["horizon_months"] for s in bought) else set()
            found |= {"bought late"} if any(s["from_month"] > 1 for s in bought) else set()
            found |= {"a break-even"} if (break_even(option) or {}).get("month") else set()
            found |= {"cached"} if option["usd_per_mtok_cached_input"] else set()
            found |= {"taxes"} if money["taxes"] else set()
            found |= {"a bridge"} if plan["bridge"] else set()
            found |= {"spare replicas"} if option["spare_replicas"] else set()
            found |= {"spares of a bridge on hosts of another size"} if bridged_on_others(option) else set()
    assert found >= {
        "rent", "reserve", "buy", "keep", "buy and rent", "keep and rent", "buy and keep", "rent and reserve",
        "accelerators", "host", "network", "storage", "spares", "cost of capital", "instances", "interruptions",
        "cloud services", "commitment after the horizon", "egress", "storage of weights", "colocation", "electricity",
        "cooling", "maintenance and support", "insurance", "staff", "minimum team", "licences", "liability_usd",
        "payback_month", "irr_fraction_per_year", "superseded", "sold early", "bought late", "a break-even", "cached",
        "taxes", "a bridge", "spare replicas", "spares of a bridge on hosts of another size",
    }  # fmt: skip


def bridged_on_others(option: Json) -> bool:
    """Whether a deployment with spares follows one on instances with another number of accelerators."""
    steps = option["money"]["plan"]["steps"]
    sizes = {step["accelerators"] for step in steps}
    return bool(option["money"]["plan"]["bridge"]) and option["spare_replicas"] > 0 and len(sizes) > 1


# --- portfolios -------------------------------------------------------------------------------------------------


def portfolio(changes: Json) -> Json:
    """An assistant in office hours and a nightly batch."""
    changes = {**changes, "constraints.accelerators.allow": ["h100-sxm"]}
    day = asked(SMALL, {**changes, **OFFICE, "name": "day", "traffic.requests_per_s": {"mean": 30, "peak": 90}})
    night = asked(BATCH, {**changes, "name": "night", "batch.requests": 1_000_000})
    return workload.parse({"name": "both", "kind": "portfolio", "workloads": [day, night]})


def test_a_shared_fleet_is_recalculated_to_the_cent() -> None:
    spec = portfolio({**OWN, MONTHS: REPLACED})
    answer, alone = answer_to(spec), answer_to(spec["workloads"][0])
    steps = [step for option in alone["recommendations"] for step in option["money"]["plan"]["steps"]]
    kinds = {step["instance"]: (step["accelerators"], step["server"]) for step in steps}
    money, found = answer["portfolio"]["money"], Differences()
    assert money["of"] == "one shared fleet"
    bill = FleetRecalculation(answer, kinds).bill()
    found.bill(money, bill)
    found.agree("capital_usd", money["capital_usd"], bill.capex_usd)
    assert not found


@pytest.mark.parametrize("staff", [{}, STAFF], ids=["the usual team", "a team of our own"])
def test_workloads_that_share_nothing_but_a_team_add_up_to_the_cent(staff: Json) -> None:
    spec = portfolio({**RENT, **staff})
    answer, found, alone = answer_to(spec), Differences(), {}
    for part in spec["workloads"]:
        of_part = answer_to(part)
        alone[part["name"]] = Recalculation(of_part, of_part["recommendations"][0])
    teams = [each.payments["minimum team"].sum() for each in alone.values()]
    share_one_team(list(alone.values()))
    bills = {name: each.bill() for name, each in alone.items()}
    shared = sum(each.payments["minimum team"].sum() for each in alone.values())
    assert min(teams) > 0 and shared < max(teams)  # the staff of both counts
    money = answer["portfolio"]["money"]
    assert money["of"] == "each workload alone"
    found.bill(money, together(bills), rounded=len(bills))
    found.agree("total of the workloads alone", answer["portfolio"]["alone_usd_per_month"], money["usd_per_month"], 0)
    assert not found


def together(bills: dict[str, Bill]) -> Bill:
    """The sum of bills over the same horizon."""
    first, *others = bills.values()
    flows: pd.DataFrame = sum((bill.flows for bill in others), first.flows)
    parts = {f"{name}: {part}": usd for name, bill in bills.items() for part, usd in bill.parts.items()}
    npv, monthly = (sum(getattr(bill, name) for bill in bills.values()) for name in ("npv_usd", "usd_per_month"))
    return replace(first, flows=flows, parts=parts, npv_usd=npv, usd_per_month=monthly)
