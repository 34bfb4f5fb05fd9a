"""One run reads alike from every format; what is damaged is refused by name, or leaves its figures out."""

import csv
import io
import json
import random
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.load_results import LoadResult, LoadResultError, read_runs, usable_runs
from tests import load_files
from tests.load_files import EACH_REQUEST, FILES, MODEL, SEATS, Run, made_run

RUN = made_run(7, failed=1)
TWO_DECIMALS = ("vllm printed", "genai-perf csv", "aiperf csv")
NO_FAILED = {"vllm multi-turn csv", "vllm multi-turn json", "genai-perf", "sglang of 2024"}
NO_CONCURRENCY = {
    "vllm multi-turn csv", "vllm multi-turn json", "sglang of 2024", "guidellm 0.1", "genai-perf csv", "aiperf csv",
    "aiperf jsonl", "llmperf responses",
}  # fmt: skip
NO_RATE = {"llmperf responses"}
LATENCIES = {"ttft_ms": "ttft", "tpot_ms": "tpot", "e2e_ms": "e2e"}
MISSING = {  # figures that a format does not have
    "vllm of 2024": {f"{m}.p95" for m in LATENCIES},
    "sglang of 2024": {f"{m}.{p}" for m in LATENCIES for p in ("p95", "p99")}
    | {"ttft_ms.mean", "tpot_ms.mean", "tpot_ms.p50"},
    "llmperf": {f"tpot_ms.{p}" for p in ("mean", "p50", "p95", "p99")},
    "llmperf responses": {f"tpot_ms.{p}" for p in ("mean", "p50", "p95", "p99")},
}


def stated(run: Run, name: str) -> dict[str, float]:
    """The figures of a run that a file of this format has."""
    found = {f"{field}.{p}": value for field, what in LATENCIES.items() for p, value in run.figures(what).items()}
    found |= {"completed": len(run.calls), "input_tokens_mean": run.figures("given", 1.0)["mean"],
              "output_tokens_mean": run.figures("made", 1.0)["mean"]}  # fmt: skip
    if name not in NO_RATE:
        found |= {"requests_per_s": run.per_s, "output_tokens_per_s": run.out_per_s}
    if name not in NO_FAILED and name != "genai-perf csv":
        found["failed"] = run.failed
    if name not in NO_CONCURRENCY:
        found["concurrency"] = SEATS
    return {key: value for key, value in found.items() if key not in MISSING.get(name, ())}


def measured(result: LoadResult) -> dict[str, float]:
    found = {f"{field}.{p}": value for field in LATENCIES for p, value in getattr(result, field).items()}
    names = ("completed", "failed", "input_tokens_mean", "output_tokens_mean", "requests_per_s", "output_tokens_per_s",
             "concurrency", "duration_s")  # fmt: skip
    return found | {name: value for name in names if (value := getattr(result, name)) is not None}


def close(name: str, value: float) -> Any:
    """To the precision of the format; a rate with two decimals is at least 0.01."""
    return pytest.approx(value, abs=0.0051) if name in TWO_DECIMALS else pytest.approx(value, rel=1e-6)


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("seed", range(3))
def test_one_run_reads_alike_from_every_format(name: str, seed: int) -> None:
    run = made_run(seed, 30, failed=seed)
    (result,) = usable_runs(FILES[name](run).encode())
    found, wanted = measured(result), stated(run, name)
    assert {key: found.get(key) for key in wanted} == {key: close(name, value) for key, value in wanted.items()}
    assert not {key for key in found if "." in key} - set(wanted)
    assert result.model in (MODEL, "")


def without_completed(text: str) -> str:
    n = len(RUN.calls)
    for one in ("completed", "successful", "count", "results_num_completed_requests"):
        text = text.replace(f'"{one}": {n}', f'"{one}": 0')
    return text.replace(f"requests:                     {n}", "requests:                     0").replace(
        f"Request Count,{n}.00", "Request Count,0.00"
    )


COUNTS = [name for name, write in FILES.items() if without_completed(write(RUN)) != write(RUN)]


@pytest.mark.parametrize("name", COUNTS)
def test_a_run_without_a_completed_request_is_refused(name: str) -> None:
    with pytest.raises(LoadResultError, match="No request was completed"):
        usable_runs(without_completed(FILES[name](RUN)))


@pytest.mark.parametrize("name", ["aiperf jsonl", "llmperf responses"])
def test_requests_that_all_failed_are_refused(name: str) -> None:
    with pytest.raises(LoadResultError, match="No request was completed"):
        usable_runs(FILES[name](Run((), 3)))


SEVERAL = {
    "--append-result": load_files.lines([load_files.vllm(RUN), load_files.vllm(made_run(8))]),
    "objects in one line": json.dumps(load_files.vllm(RUN)) + " " + json.dumps(load_files.vllm(made_run(8))),
    "indented objects": load_files.dumped(load_files.vllm(RUN)) + load_files.dumped(load_files.vllm(made_run(8))),
    "sglang lines": load_files.lines([load_files.sglang(RUN), load_files.sglang(made_run(8))]),
    "summary.json": load_files.dumped([load_files.vllm(RUN), load_files.vllm(made_run(8))]),
    "summary.csv": load_files.sweep(RUN, made_run(8)),
    "guidellm sweep": load_files.dumped(load_files.guidellm(RUN, made_run(8))),
    "guidellm csv": load_files.guidellm_csv(RUN, made_run(8)),
    "guidellm 0.3 csv": load_files.guidellm_csv_0_3(RUN, made_run(8)),
    "printed": load_files.printed(RUN) + load_files.printed(made_run(8)),
}


@pytest.mark.parametrize("name", SEVERAL)
def test_all_runs_of_a_file_are_read_with_their_place(name: str) -> None:
    runs = read_runs(SEVERAL[name])
    word = "benchmark" if name.startswith("guidellm") else "run"
    assert [run.place for run in runs] == [f"{word} 1", f"{word} 2"]
    means = [RUN.figures("ttft")["mean"], made_run(8).figures("ttft")["mean"]]
    assert [run.ttft_ms["mean"] for run in runs] == pytest.approx(means, abs=0.0051)
    assert all("4 concurrent requests" in run.load for run in runs)


def test_a_damaged_run_of_several_is_named() -> None:
    second = load_files.vllm(made_run(8)) | {"mean_tpot_ms": float("nan")}
    with pytest.raises(LoadResultError, match="vllm bench serve: run 2: mean_tpot_ms is 'nan'"):
        read_runs(load_files.lines([load_files.vllm(RUN), second]))


def test_columns_that_cannot_be_told_apart_are_refused() -> None:
    """GuideLLM writes the headings of the first run alone, and leaves out metrics without values."""
    text = load_files.guidellm_csv(RUN, made_run(8))
    *rest, last = text.splitlines()
    with pytest.raises(LoadResultError, match=r"line 5 has \d+ values for \d+ columns"):
        read_runs("\n".join([*rest, last + ",1.0"]) + "\n")


@pytest.mark.parametrize("unit", [None, "minutes", 5])
def test_a_time_without_a_known_unit_is_refused(unit: Any) -> None:
    found = load_files.aiperf(RUN)
    found["time_to_first_token"]["unit"] = unit
    with pytest.raises(LoadResultError, match=f"AIPerf.*time_to_first_token is in .*{unit}.*not a known unit of time"):
        read_runs(load_files.dumped(found))


@pytest.mark.parametrize("attention", [True, False])
def test_sglang_s_dp_is_replicas_without_attention_data_parallelism(attention: bool) -> None:
    server = {"model_path": MODEL, "tp_size": 4, "dp_size": 2, "enable_dp_attention": attention}
    (run,) = read_runs(json.dumps(load_files.sglang(RUN) | {"server_info": server}))
    assert (run.accelerators, run.tp, run.attention_dp) == ((4, 2, 2) if attention else (8, 4, 1))


# --- damage -----------------------------------------------------------------------------------------------------


def spots(node: Any) -> Iterator[tuple[Any, Any]]:
    """(container, key or place) of every value."""
    for key in node if isinstance(node, dict) else range(len(node)):
        yield node, key
        if isinstance(node[key], dict | list):
            yield from spots(node[key])


WRONG: tuple[Any, ...] = (
    None,
    True,
    "fast",
    "",
    -1,
    [],
    {},
    [1],
    {"a": 1},
    float("nan"),
    float("inf"),
    float("-inf"),
    10**400,
    "1e9",
)
JSON_FILES = [name for name, write in FILES.items() if write(RUN).lstrip()[:1] in "[{"]


def figures_of_damaged(text: str) -> list[dict[str, float]]:
    """The figures of each run; none if the file is refused with a reason."""
    try:
        return [measured(run) for run in usable_runs(text)]
    except LoadResultError as error:
        assert str(error) and str(error)[0] != "'" and "Traceback" not in str(error)
        return []


LOAD = {"concurrency", "failed", "duration_s"}  # of which other keys may speak as well


def assert_states_nothing_new(found: list[dict[str, float]], text: str) -> None:
    (before,) = [measured(run) for run in usable_runs(text)]
    for figures in found:
        new = {k: v for k, v in figures.items() if k not in LOAD and v != pytest.approx(before.get(k, -1), rel=1e-6)}
        assert not new


SMALL = made_run(3, calls=6, failed=1)
FUZZED = settings(max_examples=100, deadline=None)


@FUZZED
@given(name=st.sampled_from(JSON_FILES), seed=st.integers(0, 10**6), value=st.sampled_from(WRONG), drop=st.booleans())
def test_a_wrong_or_dropped_value_is_refused_or_missing(name: str, seed: int, value: Any, drop: bool) -> None:
    text = FILES[name](SMALL)
    values = [json.loads(line) for line in text.splitlines()] if name == "aiperf jsonl" else json.loads(text)
    node, key = random.Random(seed).choice([*spots(values)])
    if drop and isinstance(node, dict):  # a list with one request less states other figures
        del node[key]
    else:
        node[key] = value
    damaged = load_files.lines(values) if name == "aiperf jsonl" else json.dumps(values)
    of_list = isinstance(node, list) or name in ("vllm multi-turn json", "aiperf jsonl", "llmperf responses")
    found = figures_of_damaged(damaged)
    if not of_list and name not in ("guidellm 0.1", "vllm --save-detailed"):  # of which requests make the figures
        assert_states_nothing_new(found, text)


TABLES = [name for name in FILES if name.endswith("csv")]
CELLS = st.sampled_from(("", "fast", "-1", "nan", "inf", "1e400", "N/A", "[1]", "{}", "1_0", "٣", "True"))


@FUZZED
@given(name=st.sampled_from(TABLES), seed=st.integers(0, 10**6), cell=CELLS)
def test_an_odd_cell_is_refused_or_missing(name: str, seed: int, cell: str) -> None:
    text, draw = FILES[name](SMALL), random.Random(seed)
    rows = list(csv.reader(io.StringIO(text)))
    row = draw.choice([row for row in rows if row])
    row[draw.randrange(len(row))] = cell
    found = figures_of_damaged(load_files.table(rows))
    if name not in EACH_REQUEST:
        assert_states_nothing_new(found, text)


@FUZZED
@given(name=st.sampled_from(list(FILES)), at=st.floats(0, 1, exclude_max=True))
def test_a_truncated_file_is_refused_or_states_less(name: str, at: float) -> None:
    text = FILES[name](SMALL)
    cut = text[: int(at * len(text))]
    found = figures_of_damaged(cut)
    if name not in EACH_REQUEST or not cut.endswith("\n"):
        assert_states_nothing_new(found if name not in EACH_REQUEST else [], text)


@pytest.mark.parametrize("name", FILES)
def test_a_file_twice_in_one_is_two_runs_or_refused(name: str) -> None:
    text = FILES[name](SMALL)
    found = figures_of_damaged(text + text)
    each_request = name in (*EACH_REQUEST, "vllm multi-turn json", "llmperf responses")
    assert len(found) in ((0, 1) if each_request else (0, 2))
    if not each_request:
        assert_states_nothing_new(found, text)


@FUZZED
@given(name=st.sampled_from(list(FILES)), seed=st.integers(0, 10**6), junk=st.text(max_size=8))
def test_odd_characters_never_give_a_traceback(name: str, seed: int, junk: str) -> None:
    text, place = FILES[name](SMALL), random.Random(seed)
    at = place.randrange(len(text))
    figures_of_damaged(text[:at] + junk + text[at + place.randrange(5) :])


NOTHING = (
    "", " ", "\n\n", "{}", "[]", "[[]]", "null", "5", '"a"', ",", "a,b\n", "Metric,avg\n", "benchmarks:\n", "\x00",
    "benchmarks: []\n", '{"benchmarks": []}', '{"benchmarks": [null]}', '{"results": {}}', '{"experiments": []}',
    '[{"id": "1", "messages": []}]',
)  # fmt: skip


@pytest.mark.parametrize("text", NOTHING)
def test_what_has_no_run_is_refused(text: str) -> None:
    with pytest.raises(LoadResultError) as refused:
        usable_runs(text)
    assert str(refused.value).endswith((".", ".)"))
