"""The figures of training runs are recalculated from the JSON of their answers alone.

Nothing of Assay's engine is used here: an error of it cannot repeat itself.
"""

import math
from typing import Any

import pandas as pd
import pytest

from tests.sample_training import result

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("frozen")]
Json = dict[str, Any]
NAMES = ("pretrain", "weekly", "bought", "budget")
HOURS_PER_MONTH, DAY_S = 730, 86_400
DIGITS = 2e-5  # relative: figures have six significant digits
CENT = 0.01
LAYERS, HIDDEN, ATTENTION, KV, INNER, VOCAB = 80, 8192, 64 * 128, 8 * 128, 28_672, 128_256  # Llama 3.3 70B
FP8_FLOPS_PER_S = {"h200-sxm": 1979e12, "h100-sxm": 1979e12, "mi300x": 2614.9e12}  # dense, of the datasheets


def options(name: str) -> list[Json]:
    found: list[Json] = result(name)["recommendations"]
    return found


def assumed(name: str, key: str) -> float:
    return float(next(row["value"] for row in result(name)["assumptions"] if row["name"] == key))


@pytest.mark.parametrize("name", NAMES)
def test_steps_and_days_follow_from_tokens_step_time_and_goodput(name: str) -> None:
    for o in options(name):
        assert o["global_batch_tokens"] == o["global_batch"] * o["sequence_length"]
        assert o["global_batch"] == o["micro_batch"] * o["micro_batches"] * o["dp"]
        assert o["steps"] == pytest.approx(o["tokens"] / o["global_batch_tokens"], abs=1 + o["tokens"] * 1e-5 / 1e5)
        start_days = assumed(name, "training-restart-s") / DAY_S
        assert o["days"] == pytest.approx(
            o["steps"] * o["step_s"] / o["goodput_fraction"] / DAY_S + start_days, rel=DIGITS
        )
        assert o["tokens_per_s"] == pytest.approx(o["global_batch_tokens"] / o["step_s"], rel=DIGITS)
        assert o["accelerator_hours"] == pytest.approx(o["accelerator_count"] * o["days"] * 24, rel=DIGITS)


@pytest.mark.parametrize("name", NAMES)
def test_a_layout_uses_every_accelerator_once(name: str) -> None:
    for o in options(name):
        assert o["accelerator_count"] == o["dp"] * o["tp"] * o["pp"] * o["cp"]
        assert o["peak_allocated_gib"] <= o["peak_reserved_gib"] <= o["usable_gib"]


def test_mfu_follows_from_the_model_and_the_datasheet() -> None:
    """Matrix multiplies 6 FLOPs per parameter and token; causal attention 6 x layers x width x sequence."""
    matrices = LAYERS * (2 * HIDDEN * ATTENTION + 2 * HIDDEN * KV + 3 * HIDDEN * INNER) + HIDDEN * VOCAB
    for o in options("pretrain"):
        flops = 6 * matrices + 6 * LAYERS * ATTENTION * o["sequence_length"]
        assert o["precision"] == "fp8"
        assert o["model_flops"] == pytest.approx(flops * o["tokens"], rel=1e-3)
        achieved = flops * o["tokens_per_s_per_accelerator"]
        assert o["tflops_per_accelerator"] == pytest.approx(achieved / 1e12, rel=1e-3)
        assert o["mfu"] == pytest.approx(achieved / FP8_FLOPS_PER_S[o["accelerator"]], rel=2e-3)
        assert o["mfu"] <= o["hfu"] < 0.75


@pytest.mark.parametrize("name", ["pretrain", "budget"])
def test_a_rented_run_pays_instances_times_hours_times_the_list_price_and_its_staff(name: str) -> None:
    for o in options(name):
        (step,) = o["money"]["plan"]["steps"]
        assert step["action"] == "rent" and step["instances"] * step["accelerators"] == o["accelerator_count"]
        hours = o["days"] * 24
        assert step["paid_hours"] == pytest.approx(step["instances"] * hours, rel=DIGITS)
        parts = {p["name"]: p["total_usd"] for p in o["money"]["parts"]}
        assert parts.pop("instances") == pytest.approx(step["paid_hours"] * step["unit_usd_per_hour"], abs=CENT)
        assert o["usd_per_run"] == pytest.approx(
            step["paid_hours"] * step["unit_usd_per_hour"] + math.fsum(parts.values()), abs=2 * CENT
        )


def test_a_repeated_run_pays_its_hours_each_time() -> None:
    for o in options("weekly"):
        (step,) = o["money"]["plan"]["steps"]
        runs = o["money"]["horizon_months"] * HOURS_PER_MONTH / 24 / o["every_days"]
        assert step["paid_hours"] == pytest.approx(step["instances"] * o["days"] * 24 * runs, rel=DIGITS)
        assert o["usd_per_run"] == pytest.approx(o["money"]["usd_over_horizon"] / runs, rel=DIGITS)


def test_bought_machines_are_paid_once_and_sold_at_the_end() -> None:
    for o in options("bought"):
        m = o["money"]
        flow = pd.DataFrame(m["cash_flow"]).set_index("month")
        assert flow.capital_usd.iloc[1:].eq(0).all() and flow.capital_usd[0] == m["plan"]["capex_usd"] > 0
        (step,) = m["plan"]["steps"]
        assert step["action"] == "buy"
        assert m["purchase_usd"] == pytest.approx(step["instances"] * step["unit_usd_once"], abs=CENT)
        spent = m["plan"]["capex_usd"] + m["cash_flow"][-1]["total_usd"]
        assert spent < m["plan"]["capex_usd"] and m["plan"]["resale_usd"] > 0
        runs = m["horizon_months"] * HOURS_PER_MONTH / 24 / o["every_days"]
        assert o["usd_per_run"] == pytest.approx(m["usd_over_horizon"] / runs, rel=DIGITS)


def lost_by_rounding(flow: pd.DataFrame) -> float:
    """What a sum of months and its total can differ by, USD: half a cent for every amount that is rounded.

    These are rent, energy, staff and other costs of a month, its capital and its resale, and the total. Equal months
    lose the same fraction of a cent each.
    """
    monthly = 4 * (flow.running_usd != 0).sum()
    once = (flow.capital_usd != 0).sum() + (flow.value_left_usd != 0).sum()
    return float(CENT / 2 * (monthly + once + 1))


@pytest.mark.parametrize("name", NAMES)
def test_the_lines_of_the_bill_add_up_and_so_does_the_cash_flow(name: str) -> None:
    for o in options(name):
        m = o["money"]
        assert math.fsum(p["usd_per_month"] for p in m["parts"]) == pytest.approx(m["usd_per_month"], abs=CENT)
        flow = pd.DataFrame(m["cash_flow"]).set_index("month")
        paid = flow[["capital_usd", "rent_usd", "energy_usd", "staff_usd"]].sum(axis=1)
        assert (flow.total_usd + CENT >= paid - m["plan"]["resale_usd"]).all()
        made = flow.capital_usd + flow.running_usd - flow.value_left_usd
        assert (flow.total_usd - made).abs().max() == pytest.approx(0, abs=1e-6)  # of the rounded columns
        within = lost_by_rounding(flow)
        assert flow.total_usd.sum() == pytest.approx(m["usd_over_horizon"], abs=within)
        discount = (1 + m["discount_fraction_per_year"]) ** (-flow.index.to_series() / 12)
        present = (flow.total_usd * discount).sum()
        assert flow.present_usd.sum() == pytest.approx(present, abs=within + CENT / 2 * len(flow))
        assert m["npv_usd"] == pytest.approx(flow.present_usd.sum(), abs=CENT / 2 * (1 + len(flow)) + 1e-6)
        assert o["usd_total"] == pytest.approx(m["npv_usd"], abs=CENT)
        annuity = discount.iloc[1:].sum()
        assert m["usd_per_month"] == pytest.approx(m["npv_usd"] / annuity, abs=CENT)


@pytest.mark.parametrize("name", NAMES)
def test_costs_per_token_and_hour_are_those_of_a_run(name: str) -> None:
    for o in options(name):
        assert o["usd_per_mtok"] == pytest.approx(o["usd_per_run"] / o["tokens"] * 1e6, rel=DIGITS)
        assert o["usd_per_accelerator_hour"] == pytest.approx(o["usd_per_run"] / o["accelerator_hours"], rel=DIGITS)


@pytest.mark.parametrize("name", NAMES)
def test_energy_is_power_over_the_days(name: str) -> None:
    for o in options(name):
        assert o["kwh"] == pytest.approx(o["watts"] / 1e3 * o["days"] * 24, rel=DIGITS)
        assert 100 < o["watts"] / o["accelerator_count"] < 3000


@pytest.mark.parametrize("name", NAMES)
def test_the_parts_of_the_time_add_up_inside_their_range(name: str) -> None:
    for o in options(name):
        g = o["goodput"]
        lost = [g[f"{part}_fraction"] for part in ("checkpoint", "rework", "restart", "waiting")]
        assert g["fraction"] + math.fsum(lost) == pytest.approx(1.0, abs=1e-5)
        assert g["low_fraction"] <= g["fraction"] <= g["high_fraction"] <= 1.0
        assert g["interruptions_low"] <= g["interruptions"] <= g["interruptions_high"] + 1


@pytest.mark.parametrize("name", NAMES)
def test_more_accelerators_take_fewer_days(name: str) -> None:
    for o in options(name):
        curve = pd.DataFrame(o["scaling"])
        assert curve.accelerator_count.is_monotonic_increasing and curve.days.is_monotonic_decreasing
        assert curve.gain_fraction.isna().iloc[0]
        gained = (1 / curve.days).pct_change() / curve.accelerator_count.pct_change()
        assert gained.iloc[1:].tolist() == pytest.approx(curve.gain_fraction.iloc[1:].tolist(), rel=1e-3)
        own = curve[curve.accelerator_count == o["accelerator_count"]].iloc[0]
        assert own.days == o["days"] and own.usd_per_run == o["usd_per_run"]


@pytest.mark.parametrize("name", NAMES)
def test_intervals_hold_their_values_and_probabilities_are_probabilities(name: str) -> None:
    found = result(name)
    for o in found["recommendations"]:
        for figure, ends in o["interval"].items():
            if ends is not None:
                assert ends[0] <= o[figure] <= ends[1], (o["label"], figure)
        chances = [o["first_probability"], o["deadline_probability"], *(b["probability"] for b in o["beats"])]
        assert all(p is None or 0.0 <= p <= 1.0 for p in chances)
        assert (o["deadline_probability"] is None) == (o["deadline_days"] is None)
    assert math.fsum(o["first_probability"] for o in found["recommendations"]) == pytest.approx(1.0, abs=1e-3)
    assert all(0.0 <= c["probability"] <= 1.0 for c in found["uncertainty"]["chances"])


@pytest.mark.parametrize("name", NAMES)
def test_the_first_choice_costs_least_and_the_verdict_says_it(name: str) -> None:
    found = result(name)
    first = found["recommendations"][0]
    assert first["usd_total"] == min(o["usd_total"] for o in found["recommendations"])
    usd = first["usd_per_run"]
    assert (f"${usd:,.0f}" if usd >= 100 else f"${usd:,.2f}") in found["verdict"]
    assert found["views"]["cheapest"] == 1
