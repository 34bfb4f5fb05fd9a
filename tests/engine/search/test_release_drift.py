"""Figures of a release that nobody measured are less certain, by the releases since the measured one."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.engine.estimate import find_framework
from advisor.engine.search.limits import METRICS, RELEASES, interval_ratios
from advisor.engine.step import defaults_on
from advisor.engine.terms import MEASURED, RELEASED, Z95, Correction, at_or_below, overhead, release_key
from advisor.engine.terms.machines.hardware import overhead_scopes
from advisor.engine.terms.software import ChipDefaults
from advisor.inputs.current import catalog_resources
from tests.engine.catalog_sample import VLLM, chip, lane, scopes

SCORES = True
LOG_SD, NONE = 0.1, Correction()
NAMES = [f"0.{minor}.0" for minor in range(24, 34)]
STORED = {f"{name}_{end}_ratio": ratio for name in METRICS for end, ratio in (("low", 0.8), ("high", 1.25))}


def known(*measured: str) -> dict[str, dict[str, float | str]]:
    return scopes() | {
        "interval:measured": STORED,
        RELEASES: {"log_sd_per_release": LOG_SD},
        RELEASED + "vllm": dict.fromkeys(NAMES, 1.0),
        MEASURED + "vllm": dict.fromkeys(measured, 1.0),
    }


def interval(version: str, *measured: str, correction: Correction = NONE) -> dict[str, tuple[float, float]]:
    of = known(*measured)
    asked = replace(lane(chip("h")).choice, overhead=overhead(of, "vllm", version, "hopper"), correction=correction)
    return interval_ratios(of, "measured", asked)


def test_an_interval_widens_with_the_releases_since_the_measured_one_and_not_after_a_measurement():
    at, later, again = (interval(*each) for each in (("0.24.0", "0.24.0"), ("0.33.0", "0.24.0"), ("0.33.0", *NAMES)))
    assert at == again
    for name in METRICS:
        own, drift = math.log(1.25), Z95 * LOG_SD * math.sqrt(9)
        assert math.log(later[name][1]) == pytest.approx(math.hypot(own, drift))
        assert later[name][0] * later[name][1] == pytest.approx(1.0)


@given(st.sampled_from(NAMES), st.sampled_from(NAMES))
def test_a_later_release_is_never_more_certain(one: str, other: str):
    sooner, later = sorted((one, other), key=NAMES.index)
    assert interval(later, "0.24.0")["tpot"][1] >= interval(sooner, "0.24.0")["tpot"][1]


def test_load_tests_of_the_organization_and_nothing_else_replace_the_drift():
    near = Correction(time_factor=1.1, log_sd=0.05, rows=1, level="stack", keys=("load test 7",))
    assert interval("0.33.0", "0.24.0", correction=near)["tpot"][1] == pytest.approx(math.exp(Z95 * 0.05))
    published = replace(near, keys=("row",))
    assert interval("0.33.0", "0.24.0", correction=published)["tpot"][1] > 1.5


def test_an_overhead_comes_from_the_newest_measured_release_at_or_below_the_one_asked():
    host = {"framework:vllm:0.24.0": {"request_s": 2.0}, "framework:vllm:0.30.0:hopper": {"request_s": 3.0}}
    of = known("0.24.0", "0.30.0") | host
    found = {v: overhead(of, "vllm", v, "hopper") for v in ("0.23.0", "0.24.0", "0.29.1", "0.30.0", "0.33.0")}
    assert [o.request_s for o in found.values()][1:] == [2.0, 2.0, 3.0, 3.0]
    assert found["0.23.0"].request_s not in (2.0, 3.0)
    assert [(o.measured_version, o.releases_since) for o in found.values()] == [
        ("", 0), ("0.24.0", 0), ("0.24.0", 5), ("0.30.0", 0), ("0.30.0", 3)
    ]  # fmt: skip
    assert "newest measured release 0.30.0, 3 before 0.33.0" in found["0.33.0"].source


@pytest.mark.parametrize(
    ("version", "key"),
    [
        ("0.33.0", (0, 33, 0)), ("b12211", (12211,)), ("v0.5.12-rocm700", (0, 5, 12)), ("1.2.0rc6.post2", (1, 2, 0)),
        ("0.5.10.post1", (0, 5, 10)), ("0.9.0.2.dev108+g71faa1880", (0, 9, 0, 2)), ("1.x", (1,)),
        ("nightly-dev-20260216", None), ("mlperf-6.0", None), ("rocm-2025-04", None), ("", None),
    ],
)  # fmt: skip
def test_releases_are_ordered_by_their_numbers(version: str, key: tuple[int, ...] | None):
    assert release_key(version) == key


def test_a_major_version_stands_for_its_releases():
    assert at_or_below(["1", "0.21", "2.0"], "1.2.1") == ["0.21", "1"]
    assert at_or_below(["b12211", "b7000"], "b9187") == ["b7000"]


def test_a_version_without_its_own_row_has_the_settings_of_the_newest_one_below_it():
    rows = [replace(VLLM, version=v, memory_fraction=f) for v, f in (("0.33.0", 0.92), ("0.11.0", 0.9), ("0.9.2", 0.8))]
    fractions = {v: find_framework(rows, "vllm", v).memory_fraction for v in ("", "0.34.0", "0.19.0", "0.6.5", "main")}
    assert fractions == {"": 0.92, "0.34.0": 0.92, "0.19.0": 0.9, "0.6.5": 0.8, "main": 0.8}
    assert find_framework(rows, "vllm", "0.19.0").version == "0.19.0"


def test_defaults_follow_the_chip():
    rules = (ChipDefaults(below_gib=70, max_running_requests=256), ChipDefaults(chips=("hopper",), graph_max_tokens=1))
    f = replace(VLLM, chip_defaults=rules, max_running_requests=1024, graph_max_tokens=512)
    small, large = chip("a", memory_bytes=48 * 2**30, family="ada"), chip("b", memory_bytes=80 * 2**30, family="hopper")
    found = [defaults_on(f, each) for each in (small, large)]
    assert [(each.max_running_requests, each.graph_max_tokens) for each in found] == [(256, 512), (1024, 1)]


@pytest.mark.django_db
@pytest.mark.usefixtures("shipped")
def test_vllm_0_33_takes_twice_the_tokens_a_step_of_0_24_on_a_chip_of_160_gib():
    """vLLM 0.33.0, vllm/engine/arg_utils.py (get_batch_defaults); the step before the change is that of 0.24.0."""
    of = catalog_resources([])
    found = {
        (v, slug): defaults_on(find_framework(of.frameworks, "vllm", v), of.accelerators[slug])
        for v in ("0.24.0", "0.33.0")
        for slug in ("b200", "h200-sxm", "l40s", "gb10-dgx-spark")
    }
    tokens = {key: f.default_max_batched_tokens for key, f in found.items()}
    assert (tokens["0.24.0", "b200"], tokens["0.33.0", "b200"]) == (8192, 16384)
    assert tokens["0.24.0", "h200-sxm"] == tokens["0.33.0", "h200-sxm"] == 8192
    assert tokens["0.24.0", "l40s"] == tokens["0.33.0", "l40s"] == 2048
    assert (tokens["0.24.0", "gb10-dgx-spark"], tokens["0.33.0", "gb10-dgx-spark"]) == (8192, 2048)
    assert find_framework(of.frameworks, "vllm", "0.19.0").memory_fraction == 0.9
    assert overhead(of.scopes, "vllm", "0.33.0").releases_since == 0  # measured on one H200
    assert overhead(of.scopes, "sglang", "0.5.23").releases_since > 5


def test_a_chip_family_is_narrower_than_a_release_measured_elsewhere():
    names = overhead_scopes(
        {"framework:e:1.0": {}, "framework:e:2.0:f": {}, "framework:e:9": {}}, "e", "2.1", "f", "gpu"
    )
    assert names == (
        "framework", "framework:e", "framework:e:1.0", "framework:e:2.0",
        "framework:e:gpu", "framework:e:f", "framework:e:1.0:f", "framework:e:2.0:f",
    )  # fmt: skip
