"""Energy and carbon of one option: watts by phase from the step ledger, and the grid's carbon intensity by hour."""

import math
from collections.abc import Mapping, Sequence

from advisor.answer.question import Question
from advisor.engine.cost import HOURS_PER_MONTH, JOULES_PER_KWH, Assumptions
from advisor.engine.search import Scored, watts_at
from advisor.engine.terms import WEEK_HOURS, Accelerator, mean_fraction
from advisor.inputs import number
from advisor.result import Energy

CURVE = "grid_kgco2e_per_kwh"
POWER_LOW, POWER_HIGH = "power-low-ratio", "power-high-ratio"
FITTED_TO = "h200-sxm"  # the chip whose kernels the draw was fitted to
BASIS = {
    "given": "the workload's own shares of the power limit",
    "measured": "the per-operator model, with shares fitted to this chip's kernels, checked on whole layers: "
    "docs/explanation/energy.md",
    "relative": "the per-operator model, scaled from an H200 to this chip's idle power and limit: a wider interval",
}
YEARLY = "the grid's yearly mean; for hourly carbon give your own figures as tco." + CURVE
ASSUMED_TIME = "hours count from Monday 0:00, as in traffic.load_curve; give both in the same time zone"


# --- the grid ---------------------------------------------------------------------------------------------------


def curve_of(question: Question, s: Scored) -> list[float]:
    """The planner's hourly carbon intensity for a week; empty: none was given, or it does not apply to the option.

    It applies to an own site, to regions that the workload names, and where the region has no figure of its own.
    """
    given = question.spec["tco"].get(CURVE)
    if not given:
        return []
    known = question.snapshot.regions.get(f"{s.offer.provider}-{s.offer.region}", {}).get("kgco2e_per_kwh")
    named = s.offer.is_in(question.workload.constraints.regions_allow)
    if s.offer.acquisition != "own" and known and not named:
        return []
    return [float(v) for v in given] * (WEEK_HOURS // len(given))


def watts_by_hour(question: Question, s: Scored) -> list[float]:
    """Draw in each hour of a week, W; autoscaled instances draw nothing while they are off."""
    workload = question.workload
    if not workload.week:
        return [s.watts] * WEEK_HOURS
    mean = mean_fraction(workload.week)
    if s.paid_fraction < 1.0:
        return [s.watts * hour / mean for hour in workload.week]
    known = {level: watts_at(question.catalog, s, level / mean) for level in set(workload.week)}
    return [known[level] for level in workload.week]


def weighted(watts: Sequence[float], grid: Sequence[float]) -> float:
    """Mean carbon intensity, kgCO2e/kWh, weighted by the draw of each hour."""
    drawn = math.fsum(watts)
    return math.fsum(w * g for w, g in zip(watts, grid, strict=True)) / drawn if drawn else math.nan


def grid_of(question: Question, s: Scored) -> float | None:
    """Carbon intensity of the option's draw, kgCO2e/kWh; None: not known."""
    curve = curve_of(question, s)
    mean = weighted(watts_by_hour(question, s), curve) if curve else s.offer.kgco2e_per_kwh
    return mean if mean and math.isfinite(mean) else s.offer.kgco2e_per_kwh


# --- the chips --------------------------------------------------------------------------------------------------


def idle_watts(chip: Accelerator, a: Assumptions) -> float:
    return chip.idle_watts if math.isfinite(chip.idle_watts) else chip.watts * a.idle_fraction


def basis_of(chip: Accelerator, a: Assumptions) -> str:
    if a.power_given:
        return "given"
    return "measured" if chip.slug == FITTED_TO else "relative"


def energy(question: Question, s: Scored, tokens_per_s: Mapping[str, float]) -> Energy:
    """Joules per input and output token: each phase at its own draw; idle, host and cooling by its time."""
    a, chip, offer = question.catalog.assumptions, s.lane.choice.accelerator, s.offer
    idle = idle_watts(chip, a)
    drawn = {"input": s.phases.prefill_fraction, "output": s.phases.decode_fraction}
    each = {name: idle + share * (chip.watts - idle) for name, share in drawn.items()}
    joules, time = joules_by_phase(s, each, idle, tokens_per_s)
    curve = curve_of(question, s)
    grid = grid_of(question, s)
    basis = basis_of(chip, a)

    def carbon(joules_per_token: float) -> float | None:
        return number(joules_per_token * 1e6 / JOULES_PER_KWH * grid) if grid else None

    return Energy(
        watts_at_load=number(s.watts),
        watts_full=number(s.full_watts),
        chip_watts=number(chip.watts),
        chip_idle_watts=number(idle),
        chip_prefill_watts=number(each["input"]),
        chip_decode_watts=number(each["output"]),
        prefill_time_fraction=number(time["input"]),
        decode_time_fraction=number(time["output"]),
        idle_time_fraction=number(1.0 - time["input"] - time["output"]),
        prefill_power_fraction=number(each["input"] / chip.watts),
        decode_power_fraction=number(each["output"] / chip.watts),
        power_basis=basis,
        power_said=BASIS[basis],
        joules_per_input_token=number(joules["input"]),
        joules_per_output_token=number(joules["output"]),
        kgco2e_per_mtok_input=carbon(joules["input"]),
        kgco2e_per_mtok_output=carbon(joules["output"]),
        grid_kgco2e_per_kwh=number(grid) if grid else None,
        grid_mean_kgco2e_per_kwh=number(sum(curve) / len(curve)) if curve else offer.kgco2e_per_kwh,
        kwh_per_month=number(s.watts / 1000.0 * HOURS_PER_MONTH),
        hours=f"weighted by the draw of each hour; {ASSUMED_TIME}" if curve else YEARLY,
    )


def joules_by_phase(
    s: Scored, each: Mapping[str, float], idle: float, tokens_per_s: Mapping[str, float]
) -> tuple[dict[str, float], dict[str, float]]:
    """(J per token, share of the carrying chips' time) by phase; NaN for a phase without tokens.

    Each times its tokens per second, the two add up to the whole draw.
    """
    prefill, decode = s.phases.busy(s.carrying_lanes, 1.0 / (s.paid_fraction or 1.0))
    time = {"input": prefill, "output": decode}
    carrying = s.chips * (s.replicas - s.spare_replicas) / s.replicas * s.paid_fraction * s.offer.pue
    above = {name: carrying * time[name] * (each[name] - idle) for name in time}
    rest, busy = s.watts - sum(above.values()), prefill + decode
    joules = {
        name: (above[name] + rest * time[name] / busy) / tokens_per_s[name]
        if busy and tokens_per_s[name] > 0
        else math.nan
        for name in time
    }
    return joules, time


def power_range(question: Question, s: Scored) -> tuple[float, float]:
    """90 % factors (low, high) on the draw: as checked on the chip it was fitted to, those squared on others."""
    chip = s.lane.choice.accelerator
    low, high = (
        float(question.spec["tco"].get(key, question.snapshot.assumptions[key]["value"]))
        for key in (POWER_LOW, POWER_HIGH)
    )
    basis = basis_of(chip, question.catalog.assumptions)
    if basis == "given":
        return 1.0, 1.0
    return (low, high) if basis == "measured" else (low**2, high**2)
