"""The measured rows nearest to an estimate: what is near, in which order, and what is said when nothing is."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.engine.estimate.simulated import Estimate
from advisor.fidelity import nearest_rows
from advisor.fidelity.nearest_rows import Situation, distance
from advisor.fidelity.scores import scoring
from advisor.report import estimate_text
from catalog.loading import scored as files
from catalog.models import Accelerator
from tests.laboratory import score_files
from tests.measured_samples import CATALOG, row

HERE = Situation(
    accelerator="h100-sxm",
    family="hopper",
    model="meta-llama/Llama-3.1-8B",
    parameters=8e9,
    active_parameters=8e9,
    framework="vllm",
    framework_version="0.19.0",
    weights="fp8",
    mode="agg",
    phase="serving",
    replica_chips=1,
    isl=1024,
    osl=1024,
    concurrency_per_replica=16,
)
SITUATIONS = st.builds(
    Situation,
    accelerator=st.sampled_from(["h100-sxm", "h200-sxm", "b200"]),
    family=st.sampled_from(["hopper", "blackwell", ""]),
    model=st.sampled_from(["a", "b"]),
    parameters=st.none() | st.floats(1e8, 1e12),
    active_parameters=st.none() | st.floats(1e8, 1e12),
    framework=st.sampled_from(["vllm", "sglang"]),
    framework_version=st.sampled_from(["", "0.1", "0.2"]),
    weights=st.sampled_from(["bf16", "fp8", "nvfp4", "q4_k_m", "odd"]),
    mode=st.sampled_from(["agg", "disagg"]),
    phase=st.sampled_from(["serving", "offline"]),
    replica_chips=st.none() | st.integers(1, 64),
    isl=st.floats(0, 1e5),
    osl=st.floats(0, 1e5),
    concurrency_per_replica=st.none() | st.floats(0.1, 1e4),
)


@given(SITUATIONS, SITUATIONS)
def test_a_distance_is_symmetric_and_never_below_nothing(a, b):
    assert distance(a, b) == pytest.approx(distance(b, a))
    assert distance(a, b) >= 0


def test_the_same_run_is_at_no_distance():
    assert distance(HERE, HERE) == 0


def test_the_same_chip_is_nearer_than_its_family_and_that_than_another():
    sibling = replace(HERE, accelerator="h200-sxm")
    stranger = replace(HERE, accelerator="b200", family="blackwell")
    assert 0 < distance(HERE, sibling) < distance(HERE, stranger)
    assert distance(HERE, sibling) <= nearest_rows.NEAR < distance(HERE, stranger)


@pytest.mark.parametrize(
    ("small", "large"),
    [
        ({"isl": 2048}, {"isl": 8192}),
        ({"osl": 512}, {"osl": 64}),
        ({"concurrency_per_replica": 32}, {"concurrency_per_replica": 256}),
        ({"replica_chips": 2}, {"replica_chips": 8}),
        ({"framework_version": "0.18.0"}, {"framework": "sglang"}),
        ({"weights": "int8"}, {"weights": "bf16"}),
        ({"model": "x", "parameters": 7e9, "active_parameters": 7e9}, {"model": "x", "parameters": 70e9}),
        ({"phase": "offline"}, {"mode": "disagg"}),
    ],
)
def test_a_larger_difference_is_farther(small, large):
    assert 0 < distance(HERE, replace(HERE, **small)) < distance(HERE, replace(HERE, **large))


def test_a_prompt_measured_alone_is_no_hundred_doublings_away():
    assert distance(replace(HERE, osl=300), replace(HERE, osl=0)) == nearest_rows.ONE_PART
    assert distance(replace(HERE, osl=1), replace(HERE, osl=0)) == 0


@pytest.mark.parametrize(
    ("name", "bits"), [("bf16", 16), ("fp8", 8), ("nvfp4", 4), ("mxfp4-w4a8", 4), ("q4_k_m", 4), ("int8-w8a16", 8)]
)
def test_the_bits_of_a_format_are_in_its_name(name, bits):
    assert nearest_rows.bits(name) == bits


@pytest.fixture
def loaded(db, tmp_path):
    """Two runs on an H100 (one disputed) and one on a B200."""
    chip = {"vendor": "v", "kind": "gpu", "memory_gib": 80, "memory_gb_per_s": 3350, "as_of": "2026-01-01"}
    Accelerator.objects.create(slug="h100-sxm", name="H100", family="hopper", **chip)
    Accelerator.objects.create(slug="b200", name="B200", family="blackwell", **chip)
    rows = [
        row(id="near:tpot"),
        row(id="near:ttft", metric="ttft_ms_mean", value="200"),
        row(id="odd:tpot", isl="1000"),
        row(id="far:tpot", accelerator_slug="b200", isl="8192"),
    ]
    estimate = Estimate(fits=1.0, tpot_mean_s=0.012, ttft_mean_s=0.1)
    results = scoring.predict(rows, CATALOG, lambda cases: [estimate for _ in cases])
    score_files.write(results, {"odd:tpot": "odd"}, None, "abc", tmp_path)
    files.load(tmp_path)


def test_evidence_lists_the_figures_of_the_nearest_runs_without_disputed_ones(loaded):
    items = nearest_rows.evidence(replace(HERE, isl=1100))
    assert [item.id for item in items] == ["near:ttft", "near:tpot", "far:tpot"]
    first = items[1]
    assert (first.measured, first.predicted, first.metric) == (10, 12, "tpot_ms_mean")
    assert first.error_fraction == pytest.approx(0.2)
    assert first.near is True and items[-1].near is False
    assert first.url == "/fidelity?id=near%3Atpot"
    assert "AIConfigurator" in first.source
    runs = nearest_rows.shown(items)["runs"]
    assert [[item.id for item in run["figures"]] for run in runs] == [["near:ttft", "near:tpot"], ["far:tpot"]]


def test_a_warning_says_that_nothing_is_near(loaded):
    items = nearest_rows.evidence(replace(HERE, accelerator="trainium1", family="trainium", isl=100_000))
    assert nearest_rows.shown(items)["none_near"] is True
    assert estimate_text.evidence_lines(items)[0].startswith("no measured row is similar")


def test_without_a_scorecard_there_is_no_evidence(db):
    assert nearest_rows.evidence(HERE) == []
    assert "no scorecard" in estimate_text.evidence_lines([])[0]


def test_the_mean_of_a_length_is_read_from_any_way_to_write_it():
    assert nearest_rows.mean_tokens(300) == 300 and nearest_rows.mean_tokens({"mean": 20, "p95": 50}) == 20
    assert nearest_rows.mean_tokens({"trace": "x.csv"}) is None
