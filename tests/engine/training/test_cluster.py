"""Runs on clusters: published figures, arithmetic by hand, brute force, and properties that always hold."""

import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import yaml
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

from advisor.engine import training
from advisor.engine.network import from_shape, parameters
from advisor.engine.training.cluster import (
    CONVERSION_DAYS_EXPERT,
    CONVERSION_DAYS_NOVICE,
    DEFAULTS,
    Allocation,
    Checkpoint,
    Cluster,
    Goodput,
    Point,
    Range,
    Spot,
    best_interval_s,
    checkpoint_bytes,
    conversion_days,
    conversion_usd,
    counted_flops,
    daly_s,
    efficiency,
    goodput,
    goodput_range,
    interruptions,
    optimal_allocation,
    optimal_tokens,
    pays_until,
    poisson_range,
    run_days,
    scaling_gain,
    slowest_deviations,
    spare_hosts,
    spot_goodput,
    storage_needed,
    straggler_factor,
    training_flops,
    write_checkpoint,
    young_s,
)
from catalog.loading import fixtures

FIXTURES = Path(__file__).resolve().parents[3] / "fixtures"
ROWS = {row["key"]: row for row in fixtures.listed(FIXTURES / "overheads.yaml", fixtures.assumption)}
PUBLISHED = {"llama_chips": 16_384, "llama_days": 54, "llama_interruptions": 419}  # arXiv:2407.21783, section 3.3.4
SETTINGS = settings(max_examples=200, deadline=None, derandomize=True)

clusters = st.builds(
    Cluster,
    chips=st.integers(1, 100_000),
    chips_per_host=st.sampled_from([1, 4, 8]),
    spare_hosts=st.integers(0, 200),
    failures_per_chip_day=st.floats(1e-6, 1e-2),
    replaced_fraction=st.floats(0.0, 1.0),
    replacement_days=st.floats(0.0, 30.0),
    restart_s=st.floats(0.0, 8000.0),
)
checkpoints = st.builds(
    lambda write_s, share: Checkpoint(write_s=write_s, blocked_s=share * write_s),
    st.floats(0.01, 3600.0),
    st.floats(0.0, 1.0),
)


def model(slug):
    shape = yaml.safe_load((FIXTURES / "models" / f"{slug}.yaml").read_text())["shape"]
    return from_shape(slug, {key: shape[key] for key in shape if key not in ("source", "as_of", "basis")})


# --- defaults ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", DEFAULTS)
def test_a_default_is_a_row_of_the_catalog_with_its_range_and_source(key):
    row, default = ROWS[key], DEFAULTS[key]
    assert (row["value"], row["low"], row["high"]) == (default.value, default.low, default.high)
    source = row["sources"]["value"]
    assert default.low < default.high and source["source"].strip()
    assert source["basis"] == "estimate" or "planning assumption" not in source["source"]


def test_the_default_failure_rate_is_the_median_of_its_six_clusters_without_the_run_that_it_predicts():
    rates = [
        2.34e-3 / 8,  # RSC-2, per node-day of 8
        6.50e-3 / 8,  # RSC-1
        10 / 55 / 504,  # B200
        1.5 / 7 / 400,  # BLOOM
        205 / (365 / 3) / 1600,  # Crusoe
        (35 + 70) / 61 / 992,  # OPT-175B
    ]
    default = DEFAULTS["training-failures-per-chip-day"]
    assert np.median(rates) == pytest.approx(default.value, rel=0.02)
    assert (min(rates), max(rates)) == pytest.approx((default.low, default.high), rel=0.03)


def test_the_default_storage_is_that_of_256_chips():
    for name, row in (("write", (7, 20, 62)), ("read", (15, 40, 125))):
        default = DEFAULTS[f"checkpoint-{name}-bytes-per-s-per-chip"]
        each = [gb_per_s * 1e9 / 256 for gb_per_s in row]
        assert (default.low, default.value, default.high) == pytest.approx(each, rel=0.02)


def test_the_default_spot_rate_is_the_geometric_mean_of_its_sources():
    rate = DEFAULTS["spot-interruptions-per-instance-hour"]
    assert rate.value == pytest.approx(math.sqrt(rate.low * rate.high), rel=0.02)
    assert rate.low == pytest.approx(-math.log(1 - 0.05) / 730, rel=0.01)


# --- published figures ------------------------------------------------------------------------------------------


def test_6nd_of_gpt_3_is_what_its_paper_prints():
    assert training_flops(175e9, 300e9) == pytest.approx(3.15e23)
    assert training_flops(parameters(model("openai-gpt-3-175b")), 300e9) == pytest.approx(3.14e23, rel=1e-3)


def test_counting_the_matrices_of_gpt_3_adds_attention():
    gpt = model("openai-gpt-3-175b")
    weights = 96 * 12 * 12288**2 + 50257 * 12288
    attention = 96 * 2 * 2 * 12288 * 1024  # scores and weighted sum, with half of 2,048 keys on average
    by_hand = 300e9 * 3 * (2 * weights + attention)
    assert counted_flops(gpt, 300e9, 2048) == pytest.approx(by_hand, rel=1e-3)
    assert counted_flops(gpt, 300e9, 2048) / training_flops(parameters(gpt), 300e9) == pytest.approx(1.014, abs=1e-3)
    assert counted_flops(gpt, 300e9, 8192) > counted_flops(gpt, 300e9, 2048)


def test_a_ring_all_reduce_of_gpt_3_on_8_chips_counts_one_direction():
    gradients_bytes = 175e9 * 2
    sent_bytes = 2 * 7 / 8 * gradients_bytes
    assert sent_bytes == pytest.approx(612.5e9)
    rates = SimpleNamespace(
        near_bytes_per_s=450e9,
        near_chips=8,
        far_bytes_per_s=50e9,
        collective_s=0.0,
        hop_s=0.0,
        far_collective_s=0.0,
        collective_knee_bytes=0.0,
    )
    seconds = float(training.ring_s(rates, 8, 2 * gradients_bytes))
    assert seconds == pytest.approx(sent_bytes / 450e9) == pytest.approx(1.36, abs=0.005)
    assert seconds != pytest.approx(0.68, abs=0.1)  # both directions of the link


@pytest.mark.parametrize(
    ("size", "flops", "tokens"),  # Hoffmann et al. 2022, table 3 (approach 1)
    [(400e6, 1.92e19, 8.0e9), (1e9, 1.21e20, 20.2e9), (10e9, 1.23e22, 205.1e9), (67e9, 5.76e23, 1.5e12)],
)
def test_the_rule_of_20_tokens_is_near_the_table_of_hoffmann(size, flops, tokens):
    assert optimal_tokens(size).tokens == pytest.approx(tokens, rel=0.12)
    assert optimal_allocation(flops).parameters == pytest.approx(size, rel=0.06)
    assert optimal_allocation(flops).flops == pytest.approx(flops)


def test_interruptions_of_llama_3_are_predicted_within_the_range_but_too_many():
    found = interruptions(PUBLISHED["llama_chips"], PUBLISHED["llama_days"])
    assert found.value == pytest.approx(593, abs=1)
    assert (found.low, found.high) == (231, 1568)
    assert found.low <= PUBLISHED["llama_interruptions"] <= found.high
    assert found.value / PUBLISHED["llama_interruptions"] - 1 == pytest.approx(0.41, abs=0.01)


def test_effective_training_time_of_published_runs_lies_in_the_predicted_range():
    def predicted(chips, parameters, blocked):
        spares = round(0.05 * chips / 8)
        saved = checkpoint_bytes(parameters, training.MEGATRON_BF16)
        return goodput_range(Cluster(chips=chips, spare_hosts=spares), saved, blocked)

    llama = predicted(16_384, 405.85e9, 1.0)  # more than 90% published; how it writes checkpoints is not
    assert (llama.value, llama.low, llama.high) == pytest.approx((0.889, 0.567, 0.959), abs=0.001)
    megascale = predicted(12_288, 175e9, 0.042)  # more than 90% published (arXiv:2402.15627)
    assert (megascale.value, megascale.low, megascale.high) == pytest.approx((0.935, 0.670, 0.983), abs=0.001)
    byterobust = predicted(9_600, 200e9, 0.003)  # 97% published (arXiv:2509.16293); its size is not
    assert (byterobust.value, byterobust.low, byterobust.high) == pytest.approx((0.951, 0.733, 0.988), abs=0.001)


def test_a_checkpoint_of_bloom_has_its_published_size():
    saved = checkpoint_bytes(176.247e9, training.MEGATRON_BF16)
    assert saved / 2**40 == pytest.approx(2.3, rel=0.03)  # "2.3TB with optimizer states"
    assert 176.247e9 * 2 / 2**30 == pytest.approx(329, rel=0.005)  # "only the bf16 weights are 329GB"


def test_slower_than_all_others_by_known_order_statistics():
    known = {1: 0.0, 2: 1 / math.sqrt(math.pi), 10: 1.53875, 100: 2.50759, 1000: 3.24144}
    assert [slowest_deviations(n) for n in known] == pytest.approx(list(known.values()), abs=1e-5)
    draws = np.random.default_rng(1).normal(1.0, 0.02, (20_000, 64)).max(axis=1)
    assert straggler_factor(64, 0.02) == pytest.approx(float(draws.mean()), abs=2e-4)


# --- budgets ----------------------------------------------------------------------------------------------------


def test_days_to_a_token_budget():
    assert run_days(1e12, 4e6, 10.0) == pytest.approx(250_000 * 10 / 86_400)
    assert run_days(1e12 + 1, 4e6, 10.0) == pytest.approx(250_001 * 10 / 86_400)
    assert run_days(1e12, 4e6, 10.0, 0.9) == pytest.approx(run_days(1e12, 4e6, 10.0) / 0.9)
    assert run_days(1e12, 4e6, 10.0, 0.0) == math.inf


def test_an_allocation_outside_the_fitted_models_says_so():
    assert not optimal_tokens(10e9).extrapolated
    assert optimal_tokens(70e9).extrapolated
    assert Allocation(parameters=8e9, tokens=15e12).extrapolated


# --- scaling ----------------------------------------------------------------------------------------------------


def curve_of(chips, step_s):
    """A run of 1,000 steps at 2 USD per chip and hour."""
    days = {n: run_days(1e9, 1e6, step_s(n)) for n in chips}
    return tuple(
        Point(chips=n, step_s=step_s(n), goodput_fraction=1.0, days=days[n], usd=n * days[n] * 48.0) for n in chips
    )


def test_scaling_pays_until_the_gain_falls_below_the_threshold():
    curve = curve_of([8, 16, 32, 64, 128, 256, 512], lambda chips: 8.0 / chips + 0.01)
    gains = [scaling_gain(a, b) for a, b in zip(curve, curve[1:], strict=False)]
    assert gains == sorted(gains, reverse=True) and 0 < gains[-1] < gains[0] < 1
    best = pays_until(curve, 0.8)
    assert best.chips == 128 and gains[3] >= 0.8 > gains[4]
    assert pays_until(curve, 0.0) is curve[-1]


def test_more_chips_that_gain_nothing_do_not_pay():
    curve = curve_of([8, 16], lambda chips: 1.0)
    assert scaling_gain(*curve) == 0.0 and pays_until(curve).chips == 8


# --- checkpoint intervals ---------------------------------------------------------------------------------------


@SETTINGS
@given(st.floats(1e-4, 1e4), st.floats(1.0, 1e7), st.floats(0.0, 1e4))
def test_the_best_interval_is_that_of_brute_force(blocked_s, mtbf_s, lost_s):
    assume(1e-6 < blocked_s / mtbf_s < 10)
    found = minimize_scalar(
        lambda log_s: math.log(mtbf_s) - math.log(math.exp(log_s)) + math.exp(log_s) / mtbf_s
        + math.log(-math.expm1(-(math.exp(log_s) + blocked_s) / mtbf_s)),
        bounds=(math.log(blocked_s * 1e-4), math.log(2 * mtbf_s)), method="bounded", options={"xatol": 1e-9},
    )  # fmt: skip
    least = math.exp(found.x)
    best = best_interval_s(blocked_s, mtbf_s)
    assert best == pytest.approx(least, rel=0.01)
    around = [efficiency(best * f, blocked_s, lost_s, mtbf_s) for f in (0.9, 1.0, 1.1)]
    assert max(around) <= around[1] * (1 + 1e-12)


@SETTINGS
@given(st.floats(1e-8, 0.5), st.floats(1.0, 1e7))
def test_dalys_interval_is_within_1_percent_and_youngs_too_long(cost, mtbf_s):
    best = best_interval_s(cost * mtbf_s, mtbf_s)
    assert daly_s(cost * mtbf_s, mtbf_s) == pytest.approx(best, rel=0.01)
    assert young_s(cost * mtbf_s, mtbf_s) >= best * (1 - 1e-9)
    useful = [efficiency(i, cost * mtbf_s, 0.0, mtbf_s) for i in (best, young_s(cost * mtbf_s, mtbf_s))]
    assert useful[1] <= useful[0] * (1 + 1e-9)


def test_young_is_near_the_best_where_checkpoints_are_short():
    assert young_s(60, 86_400) == pytest.approx(3220, abs=1)
    assert best_interval_s(60, 86_400) == pytest.approx(young_s(60, 86_400), rel=0.015)
    assert daly_s(60, 30) == 30  # more than half of the time goes into checkpoints


def test_the_optimum_agrees_with_dalys_worked_figures():
    """Figures 3 to 5 of the paper: 5 minutes to write, 10 to restart."""
    minutes = [daly_s(300, hours * 3600) / 60 for hours in (24, 6, 0.25)]
    assert minutes == pytest.approx([117, 57, 9.1], abs=0.6)


def test_efficiency_agrees_with_a_simulation():
    rng, mtbf_s, interval_s, blocked_s, restart_s = np.random.default_rng(3), 1000.0, 200.0, 20.0, 50.0
    elapsed, segments = 0.0, 20_000
    for _ in range(segments):
        need = interval_s + blocked_s
        while (until := rng.exponential(mtbf_s)) < need:
            elapsed += until
            need = restart_s + interval_s + blocked_s  # a failure may hit the restart too
        elapsed += need
    assert segments * interval_s / elapsed == pytest.approx(efficiency(200, 20, 50, 1000), rel=0.01)


# --- goodput ----------------------------------------------------------------------------------------------------


@SETTINGS
@given(clusters, checkpoints, st.floats(1.0, 10.0), st.none() | st.floats(1.0, 1e5))
def test_more_failures_never_raise_goodput(cluster, checkpoint, factor, interval_s):
    more = replace(cluster, failures_per_chip_day=cluster.failures_per_chip_day * factor)
    before, after = goodput(cluster, checkpoint, interval_s), goodput(more, checkpoint, interval_s)
    assert after.fraction <= before.fraction * (1 + 1e-6)
    assert after.interruptions_per_day >= before.interruptions_per_day


@SETTINGS
@given(clusters, checkpoints, st.integers(1, 100))
def test_more_spares_never_lower_goodput(cluster, checkpoint, spares):
    more = replace(cluster, spare_hosts=cluster.spare_hosts + spares)
    assert goodput(more, checkpoint).fraction >= goodput(cluster, checkpoint).fraction * (1 - 1e-12)


@SETTINGS
@given(clusters, checkpoints, st.none() | st.floats(1.0, 1e5))
def test_the_parts_of_the_time_add_up(cluster, checkpoint, interval_s):
    g = goodput(cluster, checkpoint, interval_s)
    parts = parts_of(g)
    assert min(parts) >= 0 and sum(parts) == pytest.approx(1.0)


def parts_of(g: Goodput) -> list[float]:
    return [g.fraction, g.checkpoint_fraction, g.rework_fraction, g.restart_fraction, g.waiting_fraction]


@SETTINGS
@given(clusters, checkpoints, st.floats(1.0, 1e5))
def test_no_other_interval_has_a_better_goodput(cluster, checkpoint, interval_s):
    assume(interval_s >= checkpoint.behind_s)
    best = goodput(cluster, checkpoint)
    assert goodput(cluster, checkpoint, interval_s).fraction <= best.fraction * (1 + 1e-6)


def test_an_asynchronous_checkpoint_gains_time_and_loses_what_is_not_yet_written():
    cluster = Cluster(chips=1024, spare_hosts=20)
    sync, behind = write_checkpoint(1e12, 1024, 78e6), write_checkpoint(1e12, 1024, 78e6, 0.042)
    assert sync.write_s == pytest.approx(1e12 / 1024 / 78e6) and sync.behind_s == 0
    assert behind.behind_s == pytest.approx(0.958 * sync.write_s)
    assert goodput(cluster, behind).fraction > goodput(cluster, sync).fraction
    instant = Checkpoint(write_s=behind.blocked_s, blocked_s=behind.blocked_s)
    assert goodput(cluster, instant).fraction > goodput(cluster, behind).fraction


def test_checkpoints_are_no_closer_together_than_it_takes_to_write_one():
    slow = Checkpoint(write_s=5000.0, blocked_s=0.0)
    assert goodput(Cluster(chips=1024), slow).interval_s == 5000.0


def test_without_failures_nothing_is_lost():
    g = goodput(Cluster(chips=1024, failures_per_chip_day=0.0), Checkpoint(write_s=60, blocked_s=60))
    assert parts_of(g) == [1.0, 0.0, 0.0, 0.0, 0.0]


def test_without_spares_the_job_waits_for_every_repair():
    cluster = Cluster(chips=800, failures_per_chip_day=1e-3, replaced_fraction=0.5, replacement_days=4)
    assert cluster.hosts_in_repair == pytest.approx(1.6)
    assert cluster.waiting_fraction == pytest.approx(1.6 / 2.6)  # runs 2.5 days, waits 4
    one = replace(cluster, spare_hosts=1)
    assert one.waiting_fraction == pytest.approx((1.6**2 / 2) / (1 + 1.6 + 1.6**2 / 2))


def test_waiting_agrees_with_a_simulation_of_repairs():
    cluster = Cluster(chips=800, failures_per_chip_day=1e-3, replaced_fraction=0.5, replacement_days=4, spare_hosts=2)
    rng, back, now, waited, until = np.random.default_rng(5), [], 0.0, 0.0, 200_000.0
    while now < until:
        if len(back) > cluster.spare_hosts:
            free = min(back)
            waited, now = waited + free - now, free
        else:
            now += rng.exponential(1 / 0.4)
            back.append(now + 4.0)  # every repair takes as long
        back = [t for t in back if t > now]
    assert waited / now == pytest.approx(cluster.waiting_fraction, rel=0.03)


@pytest.mark.parametrize("most", [0.5, 0.1, 0.01, 1e-6])
def test_spare_hosts_are_the_fewest_that_keep_the_promise(most):
    cluster = Cluster(chips=16_384)
    spares = spare_hosts(cluster, most)
    assert replace(cluster, spare_hosts=spares).waiting_fraction <= most
    assert spares == 0 or replace(cluster, spare_hosts=spares - 1).waiting_fraction > most


def test_spare_hosts_cannot_rule_out_waiting():
    with pytest.raises(ValueError, match="above 0"):
        spare_hosts(Cluster(chips=8), 0.0)


def test_the_range_of_a_goodput_contains_its_value_and_single_changes():
    cluster, saved = Cluster(chips=4096, spare_hosts=30), 1e12
    found = goodput_range(cluster, saved)
    assert 0 < found.low < found.value < found.high < 1
    written = write_checkpoint(saved, 4096, 78e6)
    assert found.value == pytest.approx(goodput(cluster, written).fraction)
    rate = DEFAULTS["training-failures-per-chip-day"]
    for end in (rate.low, rate.high):
        one = goodput(replace(cluster, failures_per_chip_day=end), written).fraction
        assert found.low < one < found.high


@pytest.mark.parametrize(("mean", "low", "high"), [(0.0, 0, 0), (1.0, 0, 3), (10.0, 5, 15), (100.0, 84, 117)])
def test_ranges_of_a_poisson_count(mean, low, high):
    assert poisson_range(mean) == (low, high)


@SETTINGS
@given(st.floats(0.0, 2000.0), st.floats(0.5, 0.99))
def test_a_poisson_range_holds_what_it_says(mean, coverage):
    low, high = poisson_range(mean, coverage)
    k = np.arange(0, 4000)
    log_chance = k * math.log(mean) - mean - np.array([math.lgamma(n + 1) for n in k]) if mean else None
    chance = np.exp(log_chance) if mean else (k == 0) * 1.0
    tail = (1 - coverage) / 2
    assert chance[:low].sum() <= tail + 1e-9 and chance[high + 1 :].sum() <= tail + 1e-9
    assert chance[: low + 1].sum() >= tail - 1e-9 and chance[high:].sum() >= tail - 1e-9


# --- spot -------------------------------------------------------------------------------------------------------


def test_spot_with_time_to_write_loses_only_the_wait_and_the_restart():
    cluster = Cluster(chips=64, failures_per_chip_day=1e-12, replaced_fraction=0.0, restart_s=300.0)
    spot = Spot(interruptions_per_instance_hour=0.01, notice_s=120.0, wait_s=600.0)
    g = spot_goodput(cluster, spot, Checkpoint(write_s=100.0, blocked_s=100.0))
    assert g.fraction == pytest.approx(math.exp(-8 * 0.01 / 3600 * 1000.0), rel=1e-4)
    assert g.rework_fraction == pytest.approx(0.0, abs=1e-6)
    assert g.interruptions_per_day == pytest.approx(8 * 0.24, rel=1e-6)


def test_spot_without_time_to_write_is_one_more_failure():
    cluster = Cluster(chips=64, failures_per_chip_day=1e-12, replaced_fraction=0.0, restart_s=300.0)
    spot = Spot(interruptions_per_instance_hour=0.01, notice_s=30.0, wait_s=600.0)
    slow = Checkpoint(write_s=100.0, blocked_s=100.0)
    mtbf_s = 3600 / 0.08
    assert spot_goodput(cluster, spot, slow).fraction == pytest.approx(
        efficiency(best_interval_s(100.0, mtbf_s), 100.0, 900.0, mtbf_s), rel=1e-6
    )
    longer = replace(spot, notice_s=120.0)
    assert spot_goodput(cluster, longer, slow).fraction > spot_goodput(cluster, spot, slow).fraction


@SETTINGS
@given(clusters, checkpoints, st.floats(1e-6, 0.5), st.floats(0.0, 300.0))
def test_spot_is_never_better_than_hosts_that_stay(cluster, checkpoint, rate, notice_s):
    spot = Spot(interruptions_per_instance_hour=rate, notice_s=notice_s, wait_s=600.0)
    g = spot_goodput(cluster, spot, checkpoint)
    assert g.fraction <= goodput(cluster, checkpoint).fraction * (1 + 1e-6)
    assert sum(parts_of(g)) == pytest.approx(1.0) and min(parts_of(g)) >= 0
    free = spot_goodput(cluster, replace(spot, interruptions_per_instance_hour=0.0), checkpoint)
    assert free == goodput(cluster, checkpoint)


# --- storage, energy, cost --------------------------------------------------------------------------------------


def test_storage_for_checkpoints_and_data():
    s = storage_needed(2e12, 100.0, 400.0, 1e6, 4.0, 1e12, checkpoints_kept=3, readers=2)
    assert (s.write_bytes_per_s, s.restore_bytes_per_s) == (2e10, 1e10)
    assert (s.load_bytes_per_s, s.capacity_bytes) == (4e6, 6e12 + 4e12)


def test_a_checkpoint_of_an_adapter_saves_only_the_adapter():
    assert checkpoint_bytes(40e6, training.LORA16) == 40e6 * 12


@given(st.floats(0, 5), st.floats(0, 5))
def test_a_more_skilled_team_converts_no_slower(one, other):
    less, more = conversion_days(min(one, other)), conversion_days(max(one, other))
    assert more.value <= less.value and more.low <= less.low and more.high <= less.high


def test_conversion_costs_days_of_engineers_once():
    ends = conversion_days(0), conversion_days(5)
    for found, default in zip(ends, (CONVERSION_DAYS_NOVICE, CONVERSION_DAYS_EXPERT), strict=True):
        assert (found.value, found.low, found.high) == pytest.approx((default.value, default.low, default.high))
    assert conversion_days(2.5).value == pytest.approx(math.sqrt(40 * 3))
    assert conversion_usd(Range(value=10, low=5, high=20), 900.0) == Range(value=9000, low=4500, high=18_000)


# --- further figures of docs/explanation/training.md -----------------------------------------------------

PAGE = (FIXTURES.parent / "docs" / "explanation" / "training.md").read_text()


def cells(first: str) -> list[str]:
    """The cells of the row of a table that starts so."""
    row = next(line for line in PAGE.splitlines() if line.startswith(f"| {first} |"))
    return [cell.strip() for cell in row.strip("| ").split("|")]


@pytest.mark.parametrize("chips", [64, 512, 2048, 8192, 16_384])
def test_the_table_of_goodput_on_the_page(chips):
    cluster = Cluster(chips=chips)
    cluster = replace(cluster, spare_hosts=spare_hosts(cluster, 0.001))
    saved = checkpoint_bytes(70e9, training.MEGATRON_BF16)
    found, g = goodput_range(cluster, saved), goodput(cluster, write_checkpoint(saved, chips, 78e6))
    _, hours, spares, interval, value, ends = cells(f"{chips:,}")
    assert float(hours.removesuffix(" h")) == pytest.approx(cluster.mtbf_s / 3600, rel=0.03)
    amount, unit = interval.split()
    assert float(amount) == pytest.approx(g.interval_s / {"h": 3600, "min": 60}[unit], rel=0.03)
    assert int(spares) == cluster.spare_hosts
    assert [value, ends] == [f"{found.value:.3f}", f"{found.low:.3f} to {found.high:.3f}"]


def test_the_figures_on_llama_3_on_the_page():
    saved = checkpoint_bytes(405.85e9, training.MEGATRON_BF16)
    cluster = Cluster(chips=16_384, spare_hosts=102)
    g = goodput(cluster, write_checkpoint(saved, 16_384, 78e6))
    parts = (g.restart_fraction, g.checkpoint_fraction, g.rework_fraction)
    assert [f"{100 * part:.1f}" for part in parts] == ["8.0", "1.5", "1.5"]
    own = replace(cluster, failures_per_chip_day=419 / 54 / 16_384)
    assert goodput(own, write_checkpoint(saved, 16_384, 2e12 / 16_384)).fraction == pytest.approx(0.921, abs=5e-4)
    assert poisson_range(interruptions(16_384, 54).value) == (553, 633)
    waiting = [replace(cluster, spare_hosts=n).waiting_fraction for n in (10, 25, 30)]
    assert waiting == pytest.approx([0.45, 0.019, 0.002], rel=0.11) and round(cluster.hosts_in_repair) == 18


def test_the_other_figures_on_the_page():
    assert straggler_factor(1000) == pytest.approx(1.049, abs=5e-4)
    assert young_s(60, 86_400) / best_interval_s(60, 86_400) == pytest.approx(1.013, abs=5e-4)
    spot = [Spot(interruptions_per_instance_hour=rate) for rate in (7.0e-5, 4.4e-3, 0.28)]
    slow = Checkpoint(write_s=200.0, blocked_s=200.0)
    shares = [spot_goodput(Cluster(chips=64), each, slow).fraction for each in spot]
    assert [f"{share:.2f}" for share in shares] == ["0.92", "0.86", "0.25"]
