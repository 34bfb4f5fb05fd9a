"""Reads the result files of load generators: the format by their content, and all runs of a file."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from advisor.load_results import aiperf, guidellm, others, vllm
from advisor.load_results.reading import Json
from advisor.load_results.result import LoadResult, LoadResultError
from advisor.workload import WorkloadError, load
from catalog.loading.bounded import WEB, BoundedError, Bounds, Invalid, read_csv, read_json_values, text_of

Rows = Sequence[Sequence[str]]
MAX_ROWS = 20_000
MAX_COLUMNS = 2_000
YAML = re.compile(r"^(?:benchmarks|load_summary|successes)\s*:", re.MULTILINE)
NOTHING_DONE = "No request was completed in this run. Check the server's log and run it again."
OTHERS = (  # files of the same tools that state no figures of a run
    ({"experiments"}, "raw data of perf_analyzer; give profile_export_genai_perf.json"),
    ({"messages"}, "conversations; give the measurements of their requests"),
    ({"aggregation_type", "metrics"}, "an aggregate of several runs; give profile_export_aiperf.json of one"),
)
KNOWN = (
    "vllm bench serve (--save-result), sglang.bench_serving, guidellm (--output kind=json), aiperf or genai-perf "
    "(profile_export_aiperf.json), inference-perf or llmperf"
)


@dataclass(frozen=True, slots=True)
class Format:
    """One kind of file: whether a record is of it, and its runs."""

    name: str
    label: str
    is_one: Callable[[Json], bool]
    read: Callable[[Sequence[Json]], list[LoadResult]]
    is_table: Callable[[Rows], bool] | None = None
    of_table: Callable[[Rows], list[LoadResult]] | None = None


FORMATS = (  # the first that fits
    Format("guidellm", "GuideLLM", guidellm.is_one, guidellm.read, guidellm.is_table, guidellm.of_table),
    Format("aiperf", "AIPerf or GenAI-Perf", aiperf.is_one, aiperf.read, aiperf.is_table, aiperf.of_table),
    Format("inference-perf", "inference-perf", others.is_inference_perf, others.read_inference_perf),
    Format("llmperf", "LLMPerf", others.is_llmperf, others.read_llmperf),
    Format("sglang", "sglang.bench_serving", vllm.is_sglang, vllm.read),
    Format("vllm", "vllm bench serve", vllm.is_vllm, vllm.read, vllm.is_table, vllm.of_table),
)


def usable_runs(content: bytes | str, bounds: Bounds = WEB) -> list[LoadResult]:
    """The runs with figures. LoadResultError: the file is not valid, or has none."""
    runs = read_runs(content, bounds)
    if found := [run for run in runs if not run.unusable]:
        return found
    raise LoadResultError(runs[0].unusable)


def read_runs(content: bytes | str, bounds: Bounds = WEB, name: str = "") -> list[LoadResult]:
    """All runs of a file, of the named format or that which its content tells. LoadResultError: it is not valid."""
    try:
        runs = _runs(text_of(content, bounds), bounds, name)
    except BoundedError as error:
        more = "; remove the text and timing of individual requests" if not isinstance(error, Invalid) else ""
        raise LoadResultError(f"The file {error}{more}.") from None
    if not runs:
        raise LoadResultError("The file has no run.")
    return [replace(run, unusable=NOTHING_DONE) if not run.unusable and run.completed < 1 else run for run in runs]


def format_of(record: Mapping[str, Any]) -> str:
    """The name of the format of a JSON object; empty: none of these."""
    return next((f.name for f in FORMATS if f.is_one(record)), "")


def text_format(text: str) -> str:
    """The name of the format of a table, a report in YAML or a printed table; empty: none of these."""
    if vllm.is_printed(text):
        return "vllm"
    if text.lstrip()[:1] in ("", "{", "["):
        return ""
    if match := YAML.search(text):
        return "inference-perf" if match[0][:1] in "ls" else "guidellm"
    try:
        rows = _rows(text)
    except BoundedError:
        return ""
    return next((f.name for f in FORMATS if rows and f.is_table and f.is_table(rows)), "")


def _runs(text: str, bounds: Bounds, name: str) -> list[LoadResult]:
    if vllm.is_printed(text):
        return _labeled("the printed table of bench serve", lambda: list(vllm.of_printed(text)))
    start = text.lstrip()[:1]
    if start and start not in "[{":
        if YAML.search(text):
            try:
                return _of_objects([load(text)], name)
            except WorkloadError as error:
                raise LoadResultError(
                    f"The file is not YAML within bounds ({error}); export the report as JSON."
                ) from None
        rows = _rows(text)
        for each in FORMATS if rows else ():
            if each.is_table and each.of_table and each.is_table(rows) and name in ("", each.name):
                return _labeled(f"{each.label} (CSV)", partial(each.of_table, rows))
    return _of_objects(read_json_values(text, bounds), name)


def _of_objects(values: list[Any], name: str) -> list[LoadResult]:
    records: list[Any] = [each for value in values for each in (value if isinstance(value, list) else [value])]
    if not records or not all(isinstance(each, dict) for each in records):
        raise LoadResultError("The file is JSON, but neither an object nor a list of objects.")
    chosen = next((f for f in FORMATS if f.name == name), None) or next(
        (f for f in FORMATS if f.is_one(records[0])), None
    )
    if chosen is None:
        if other := next((said for keys, said in OTHERS if keys <= set(records[0])), ""):
            raise LoadResultError(f"The file has {other}.")
        keys = ", ".join(list(records[0])[:8])[:200]
        raise LoadResultError(f"This is not a result of {KNOWN}: it has {keys or 'no keys'}.")
    if wrong := next((n for n, record in enumerate(records, 1) if not chosen.is_one(record)), 0):
        other = next((f"; it is one of {f.label}" for f in FORMATS if f.is_one(records[wrong - 1])), "")
        raise LoadResultError(f"Run {wrong} is not a result of {chosen.label}{other}.")
    return _labeled(chosen.label, lambda: chosen.read(records))


def _rows(text: str) -> list[list[str]]:
    """The lines of a CSV file from its first with a value. A last value without a line end may be cut off: left out."""
    rows = [cells for _, cells in read_csv(text, max_rows=MAX_ROWS, max_columns=MAX_COLUMNS)]
    while rows and not any(map(str.strip, rows[0])):
        del rows[0]
    if rows and not text.endswith(("\n", "\r")):
        rows[-1] = [*rows[-1][:-1], ""]
    return rows


def _labeled(label: str, read: Callable[[], Any]) -> Any:
    """What `read` returns; its errors name the format that was recognized."""
    try:
        return read()
    except LoadResultError as error:
        raise LoadResultError(f"{label}: {error}") from None
