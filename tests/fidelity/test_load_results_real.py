"""Files that guidellm 0.8.1 and aiperf 0.13.0 wrote themselves: tests/load_results/README.md says how."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from advisor.load_results import LoadResult
from advisor.load_tests.records import compare
from advisor.result import Option
from tests import sample_advice
from tests import sample_load_results as imitated
from tests.sample_load_results import parse

FOLDER = Path(__file__).parents[1] / "load_results"
ARRIVALS = ("guidellm-0.8.1-arrivals", "aiperf-0.13.0-arrivals")
SEATS = ("guidellm-0.8.1-seats", "aiperf-0.13.0-seats")


def written(stem: str) -> bytes:
    return (FOLDER / f"{stem}.json").read_bytes()


def result(stem: str) -> LoadResult:
    return parse(written(stem))


@pytest.mark.parametrize("stem", [*ARRIVALS, *SEATS])
def test_a_real_file_says_what_ran_and_how_it_went(stem: str) -> None:
    r = result(stem)
    assert (r.tool, r.tool_version) == tuple(stem.split("-")[:2]) and r.ran_at.startswith("2026-11-21T")
    counts = {"guidellm-0.8.1-seats": (40, 0), "aiperf-0.13.0-seats": (39, 1)}  # a connection was lost in the last
    assert (r.completed, r.failed) == counts.get(stem, (120, 0))
    assert r.concurrency == (None if stem in ARRIVALS else 4)
    assert set(r.ttft_ms) == set(r.tpot_ms) == set(r.e2e_ms) == {"mean", "p50", "p95", "p99"}


@pytest.mark.parametrize("stem", ARRIVALS)
def test_what_was_sent_is_the_trace(stem: str) -> None:
    """The trace's own means, counted from its 120 lines; the last arrives after 46.475 s."""
    r = result(stem)
    assert r.input_tokens_mean == pytest.approx(113.508, abs=0.05)
    assert r.output_tokens_mean == pytest.approx(27.05, abs=0.005)
    assert r.requests_per_s == pytest.approx(120 / 46.475, rel=0.05)


@pytest.mark.parametrize("stem", [*ARRIVALS, *SEATS])
def test_the_figures_of_a_run_agree_with_each_other(stem: str) -> None:
    """Little's law has no say in a closed loop that ramps up; these hold for every run."""
    r = result(stem)
    assert r.duration_s and r.requests_per_s == pytest.approx(r.completed / r.duration_s, rel=0.02)
    assert r.output_tokens_per_s == pytest.approx(r.requests_per_s * (r.output_tokens_mean or 0), rel=0.02)
    assert r.ttft_ms["mean"] < r.e2e_ms["mean"] and r.tpot_ms["p50"] <= r.tpot_ms["p95"] <= r.tpot_ms["p99"]


def option(planned: dict[str, Any]) -> Option:
    """One replica with a p50 of each latency and no other."""
    sample = sample_advice.result()["recommendations"][0]
    launch = sample["launch"] | {"load_test": sample["launch"]["load_test"] | planned}
    none = dict.fromkeys(("mean", "p95", "p99"))
    latencies = {"ttft_ms": none | {"p50": 12.5}, "tpot_ms": none | {"p50": 1.055}}
    return Option.read(sample | latencies | {"launch": launch, "replicas": 1})


@pytest.mark.parametrize("stem", ARRIVALS)
def test_a_real_run_of_the_predicted_load_is_compared(stem: str) -> None:
    planned = {"requests_per_s": 2.64, "concurrency": None, "input_tokens_mean": 113.5, "output_tokens_mean": 27.0}
    said = compare(option(planned), result(stem).as_json())
    assert said["differences"] == []
    assert [row["metric"] for row in said["rows"]] == ["TTFT p50", "TPOT p50", "requests/s", "output tokens/s"]
    asked_for_less = option(planned | {"requests_per_s": 1.0})
    assert "requests/s" in compare(asked_for_less, result(stem).as_json())["differences"][0]


def paths(found: Any, at: str = "") -> Iterator[str]:
    """Every key of nested objects; of lists the first item stands for all."""
    if isinstance(found, dict):
        for key, value in found.items():
            yield f"{at}.{key}"
            yield from paths(value, f"{at}.{key}")
    elif isinstance(found, list) and found:
        yield from paths(found[0], f"{at}[]")


# a real run had no failed request to summarise, and its phase of arrivals has no concurrency
NOT_HERE = (".errored", ".error_request_count", "phases[].concurrency")


@pytest.mark.parametrize(
    ("stem", "imitation"),
    [("guidellm-0.8.1-arrivals", imitated.guidellm()), ("aiperf-0.13.0-arrivals", imitated.aiperf())],
)
def test_the_imitations_have_no_key_that_a_real_file_has_not(stem: str, imitation: Any) -> None:
    real = set(paths(json.loads(written(stem))))
    extra = {path for path in paths(imitation) if path not in real}
    assert {path for path in extra if not any(part in path for part in NOT_HERE)} == set()
