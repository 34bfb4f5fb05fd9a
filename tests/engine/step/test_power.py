"""Watts by phase: the shares fitted to one chip's kernels, whole layers that check them, and what a lane then draws."""

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml

from advisor.engine.cost.hourly import Assumptions, Draw, capped_speed_fraction, kernel_fraction, own_parts
from advisor.engine.search import Question
from advisor.engine.search.run import search
from advisor.engine.step.power import Phases
from advisor.engine.terms.workloads.workload import Slo
from tests.engine.catalog_sample import ASSUMED, catalog, chip, offer, question
from tests.engine.step.power_fit import CHECKED, FITTED, PowerSample, fit_draw, power_samples, watts_of

ROOT = Path(__file__).resolve().parents[3]
LIMIT, IDLE, WAITING = 700.0, 77.0, 125.0
BY_PHASE: dict[str, float] = {
    "waiting_power_fraction": 0.08, "kernel_power_fraction": 0.4, "memory_power_fraction": 0.4,
    "compute_power_fraction": 0.8,
}  # fmt: skip


@pytest.fixture(scope="module")
def probe() -> list[dict]:
    path = ROOT / "fixtures" / "measurements" / "probes" / "h200-sxm--one-gpu-torch.json"
    return json.loads(path.read_text())["results"]


def shipped() -> dict[str, float]:
    rows = yaml.safe_load((ROOT / "fixtures" / "overheads.yaml").read_text())
    return {row["key"]: row["value"] for row in rows}


def test_the_shipped_shares_are_those_of_the_probe_and_hold_on_layers_that_were_not_fitted(probe: list[dict]) -> None:
    found = fit_draw(power_samples(probe, FITTED), LIMIT, IDLE, WAITING)
    rows, checks = shipped(), power_samples(probe, CHECKED)
    for name in ("waiting", "kernel", "memory", "compute"):
        assert getattr(found, f"{name}_fraction") == pytest.approx(rows[f"{name}-power-fraction"], abs=0.01)
    awake = [s for s in checks if s.watts > 200.0]  # the others still show the idle before the kernel
    ratio = np.minimum([s.watts for s in awake], LIMIT) / watts_of(found, awake, LIMIT, IDLE)
    assert (len(checks), len(awake)) == (38, 32) and not set(FITTED) & set(CHECKED)
    assert np.median(np.abs(1 / ratio - 1)) < 0.15
    low, high = np.quantile(ratio, [0.05, 0.95])
    assert (low, high) == pytest.approx((rows["power-low-ratio"], rows["power-high-ratio"]), abs=0.01)


def test_the_fit_finds_shares_that_made_the_readings() -> None:
    made = Draw(waiting_fraction=(WAITING - IDLE) / (LIMIT - IDLE), kernel_fraction=0.3, memory_fraction=0.5,
                compute_fraction=0.9)  # fmt: skip
    axis = [(m, c) for m in (0.0, 0.3, 0.6, 1.0) for c in (0.0, 0.2, 0.5)]
    these = [
        PowerSample(kind="x", memory_fraction=m, compute_fraction=c, window_s=1.0,
                    watts=IDLE + (LIMIT - IDLE) * min(0.3 + 0.5 * m + 0.9 * c, 1.0))
        for m, c in axis
    ]  # fmt: skip
    found = fit_draw(these, LIMIT, IDLE, WAITING)
    assert (found.kernel_fraction, found.memory_fraction, found.compute_fraction) == pytest.approx(
        (0.3, 0.5, 0.9), 1e-3
    )
    assert found.waiting_fraction == made.waiting_fraction


def test_no_kernel_passes_the_limit() -> None:
    draw = Draw.of(replace(ASSUMED, **BY_PHASE), LIMIT, IDLE)
    assert kernel_fraction(draw, 1.0, 1.0) == 1.0 and kernel_fraction(draw, 0.5, 0.0) == pytest.approx(0.6)


def test_a_cap_takes_nothing_from_a_kernel_that_draws_less() -> None:
    """At half of 700 W: what draws 77 + 0.4 x 623 = 326 W still does, what draws 575 W is held at 350 W."""
    half = Draw.of(replace(ASSUMED, **BY_PHASE, power_cap_fraction=0.5), 350.0, IDLE)
    watts = [IDLE + (350.0 - IDLE) * float(kernel_fraction(half, memory, 0.0)) for memory in (0.0, 1.0)]
    assert watts == pytest.approx([IDLE + 0.4 * 623, 350.0])


def test_a_lane_steps_while_it_holds_a_request() -> None:
    """Two requests held by two lanes: each steps 1 - 1/e of the time, a tenth of it on prompts."""
    p = Phases(prefill_fraction=1.0, decode_fraction=0.5, prefill_s_per_s=0.2, running_requests_mean=2.0)
    assert p.busy(2.0) == pytest.approx((0.1, 1 - math.exp(-1) - 0.1))
    assert p.span_fraction(2.0) == pytest.approx(0.1 + 0.5 * (1 - math.exp(-1) - 0.1))
    assert p.busy(2.0, 0.0) == (0.0, 0.0)
    assert sum(p.busy(2.0, 1e6)) == pytest.approx(1.0)
    queued = replace(p, by_chance=False)
    assert queued.busy(4.0) == pytest.approx((0.05, 0.45))


def drawing(**changes: float) -> Assumptions:
    return replace(ASSUMED, **BY_PHASE, **changes)


def best(a: Assumptions, **asked):
    load = {"requests_per_s_mean": 2.0, "requests_per_s_peak": 4.0, "variants": "no"}
    known = catalog(assumptions=a, offers=(offer("big", 4.0),))
    return search(Question(question(**load | asked), known)).ranked[0]


def test_prompts_draw_more_than_answers_and_a_given_share_takes_their_place() -> None:
    phases = best(drawing()).phases
    assert 0.4 < phases.decode_fraction < phases.prefill_fraction <= 1.0
    given = best(drawing(prefill_power_fraction=1.0, decode_power_fraction=0.5, power_given=True))
    idle = 80 / 700
    assert given.phases.decode_fraction == pytest.approx((0.5 - idle) / (1 - idle))


def test_power_follows_the_load_from_idle_and_never_passes_that_of_all_chips_busy() -> None:
    known = catalog(assumptions=drawing(), offers=(offer("big", 4.0),))
    found = [
        search(Question(question(requests_per_s_mean=mean, requests_per_s_peak=8.0, variants="no"), known)).ranked[0]
        for mean in (1e-6, 0.5, 4.0, 8.0)
    ]
    watts = [s.watts for s in found]
    assert watts == sorted(watts) and watts[-1] <= found[-1].full_watts
    assert watts[0] == pytest.approx((80 + 100) * found[0].chips, rel=1e-3)


def test_a_spare_replica_stands_by_idle() -> None:
    alone, spared = (best(drawing(), slo=Slo(spare_hosts=n)) for n in (0, 1))
    assert spared.replicas == alone.replicas + 1
    assert spared.watts - alone.watts == pytest.approx(80 + 100)


def test_own_electricity_is_that_of_the_draw() -> None:
    a = drawing()
    parts = own_parts(100_000, 1, 800.0, a)
    own = offer("big", 5.0, acquisition="own", term="purchase", parts=parts, usd_per_kwh=0.1, pue=1.3, full_watts=800.0,
                capital_usd=1.0, purchase_usd=1.0)  # fmt: skip
    asked = question(requests_per_s_mean=0.5, requests_per_s_peak=4.0, variants="no")
    asked = replace(asked, constraints=replace(asked.constraints, acquisition=("own",)))
    s = search(Question(asked, catalog(assumptions=a, offers=(own,)))).ranked[0]
    metered = sum(p.usd_per_hour for p in s.parts if p.name in ("electricity", "cooling"))
    assert metered == pytest.approx(s.watts / 1000 * 0.1, rel=1e-6)
    assert s.watts < 0.9 * s.full_watts


def test_the_rule_of_a_cap_lies_between_two_published_sweeps() -> None:
    """Arithmetic at 70 % of the limit slows by 14 %; decodes that wait for memory do not slow.

    LLaMA 65B on A100 from 250 to 175 W: 6.7 % slower (arXiv:2310.03003, a mix of both); a 7B model for one user on an
    RTX 5060 Ti from 180 to 150 W: under 1 % (inventivehq.com/blog/gpu-power-limit-tokens-per-watt).
    """
    slowed = 1 / capped_speed_fraction(0.7, 0.2) - 1
    assert 0.067 < slowed < 0.2
    assert capped_speed_fraction(1.0, 0.2) == 1.0 and capped_speed_fraction(0.1, 0.2) == 0.0


def test_a_chip_without_published_power_draws_an_unknown_amount() -> None:
    dark = chip("dark", memory_bytes=141 * 2**30, watts=math.nan, idle_watts=math.nan)
    s = search(Question(question(variants="no"), catalog(accelerators=(dark,), offers=(offer("dark", 4.0),)))).ranked[0]
    assert math.isnan(s.watts)
