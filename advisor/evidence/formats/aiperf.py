"""AIPerf and GenAI-Perf: profile_export_aiperf.json and .csv."""

import re
from collections import deque
from collections.abc import Collection
from typing import Any

from advisor.evidence.formats.guidellm import latencies
from advisor.evidence.formats.reading import (
    EvidenceError,
    Json,
    Reading,
    at_rate,
    below,
    burst,
    day_of,
    failed_doubt,
    figures_of,
    finite,
    number,
    objects_of,
    runs,
    said_of,
)  # fmt: skip
from advisor.load_tests import LoadResultError, read_result
from catalog.loading.bounded import BoundedError, read_csv

NAME = "aiperf"
OPEN_PHASES = ("fixed_schedule", "poisson", "gamma", "constant", "user_centric")
HEADING = re.compile(r"(?P<name>.+?) \((?P<unit>[^()]*)\)$")


def is_one(record: Json) -> bool:
    return isinstance(_whole(record).get("request_throughput"), dict)


def is_table(text: str) -> bool:
    """Whether a text is its CSV export."""
    return bool(re.search(r"^(?:Metric,|\"Metric\",)", text, re.MULTILINE))


def read(text: str) -> list[Reading]:
    """The runs of a file. EvidenceError names the metric that is missing."""
    records = [_of_csv(text)] if is_table(text) else [finite(_whole(each)) for each in objects_of(text)]
    return [_reading(where, record) for where, record in runs(records)]


def _whole(record: Json) -> dict[str, Any]:
    """Early versions kept the metrics under `records`."""
    return {**record, **below(record, "records")}


def _reading(where: str, record: Json) -> Reading:
    run = dict(record)
    if not isinstance(run.get("request_throughput"), dict):
        raise EvidenceError(f"{where} is not an AIPerf result: request_throughput is missing")
    try:
        result = read_result(run)
    except LoadResultError as error:
        if "No request was completed" in str(error) or "was not finished" in str(error):
            return Reading(where=where, said={}, figures={}, skipped=str(error))
        raise EvidenceError(f"{where}: {error}") from error
    load, note = "", ""
    if result.concurrency:
        load, note = f"{result.concurrency:g}", burst(result.completed, result.concurrency)
    elif result.rate_per_s:
        load, note = at_rate(result.rate_per_s, result.arrival_cv)
    elif _at_a_rate(run.get("input_config")):
        load, note = f"qps={result.requests_per_s:.6g}", "rate as served"
    said = said_of(
        model=_model(run.get("input_config")),
        isl=result.input_tokens_mean,
        osl=result.output_tokens_mean,
        concurrency_or_batch=load,
        params_note=note,
        date=day_of(result.ran_at),
    )
    total = number(below(run, "total_token_throughput").get("avg"))
    figures = figures_of(**latencies(result), total_tokens_per_s=total)
    doubt = failed_doubt(result.failed, result.completed)
    return Reading(where=where, said=said, figures=figures, stamp=result.ran_at, doubt=doubt)


def _found(config: Any, *names: str, of: Collection[Any] = ()) -> Any:
    """The first value of one of these keys, at any depth; `of`: of these values alone."""
    stack = deque([config])
    while stack:
        node = stack.popleft()
        if isinstance(node, dict):
            for name in names:
                if node.get(name) not in (None, "", []) and (not of or node[name] in of):
                    return node[name]
            stack += node.values()
        elif isinstance(node, list):
            stack += node
    return None


def _model(config: Any) -> str:
    found = _found(config, "model_names", "models", "model", "model_name")
    while isinstance(found, list | dict):
        found = next(iter(found.values() if isinstance(found, dict) else found), "")
    return str(found or "")


def _at_a_rate(config: Any) -> bool:
    """Whether the settings send requests at a rate or at recorded times."""
    return bool(_found(config, "request_rate", "fixed_schedule")) or _found(config, "type", of=OPEN_PHASES) is not None


def _of_csv(text: str) -> dict[str, Any]:
    """The tables of the CSV as the JSON has them; those of other tables, such as GPU telemetry, have other headings."""
    run: dict[str, Any] = {}
    head: list[str] = []
    try:
        lines = [cells for _, cells in read_csv(text, max_rows=10_000, max_columns=200)]
    except BoundedError as error:
        raise EvidenceError(str(error)) from error
    for cells in lines:
        if not any(cell.strip() for cell in cells):
            head = []
        elif cells[0].strip() == "Metric":
            head = [cell.strip() for cell in cells]
        elif head and (match := HEADING.match(cells[0].strip())):
            values = dict(zip(head[1:], cells[1:], strict=False))
            given = {{"Value": "avg"}.get(name, name): number(value) for name, value in values.items()}
            unit = {"per sec": "requests/sec", "count": "requests"}.get(match["unit"], match["unit"])
            key = re.sub(r"\W+", "_", match["name"].strip().lower())
            run[key] = {"unit": unit} | {name: value for name, value in given.items() if value is not None}
    return run
