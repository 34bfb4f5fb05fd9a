"""Reads values of result files: each is of its type and finite, or refused by its name."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from statistics import fmean, quantiles
from typing import Any

from advisor.load_results.result import Figures, LoadResult, LoadResultError, Requests
from catalog.loading.bounded import BoundedError, read_json

Json = Mapping[str, Any]
MAX_FIGURE = 1e15
PERCENTILES = ("p50", "p95", "p99")
MS = {"ns": 1e-6, "us": 1e-3, "ms": 1.0, "s": 1e3, "sec": 1e3, "seconds": 1e3, "milliseconds": 1.0}
LAST_S = 253_402_300_799  # the end of the year 9999
MAX_REQUESTS = 20_000  # of which the arrivals are kept


def number(record: Json, key: str) -> float | None:
    """A number of at least 0; None if it is missing or null. Raises LoadResultError."""
    value = record.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= MAX_FIGURE:
        raise LoadResultError(f"{key} is {str(value)[:40]!r}: not a number of at least 0.")
    return float(value)


def required(record: Json, key: str) -> float:
    value = number(record, key)
    if value is None:
        raise LoadResultError(f"{key} is missing from the file.")
    return value


def count(record: Json, key: str) -> int | None:
    value = number(record, key)
    if value is not None and not value.is_integer():
        raise LoadResultError(f"{key} is {value:g}: not a whole number.")
    return None if value is None else int(value)


def required_count(record: Json, key: str) -> int:
    required(record, key)
    return count(record, key) or 0


def size(record: Json, *keys: str) -> int | None:
    """A number of accelerators or ranks, also written as text; None: not stated."""
    for key in keys:
        text = str(record.get(key) or "").removesuffix(".0")
        if text.isascii() and text.isdigit() and 0 < int(text[:6]) < 100_000:
            return int(text[:6])
    return None


def text(record: Json, *keys: str) -> str:
    """The first text field that is given, without unprintable characters, cut at 200 characters."""
    given = (record.get(key) for key in keys)
    return next((p for v in given if isinstance(v, str | int | float) if (p := printable(v))), "")


def printable(value: Any) -> str:
    return "".join(c for c in str(value) if c.isprintable())[:200]


def below(record: Json, *keys: str) -> Json:
    for key in keys:
        record = record.get(key) or {}
        if not isinstance(record, Mapping):
            raise LoadResultError(f"{key} is not an object.")
    return record


def over(whole: float | None, parts: float | None) -> float | None:
    return whole / parts if whole is not None and parts else None


def figures(scale: float = 1.0, /, **values: float | None) -> Figures:
    return {name: value * scale for name, value in values.items() if value is not None}


def percentiles_of(values: Sequence[float]) -> Figures:
    """Mean and percentiles of latencies, interpolated as numpy does."""
    if len(values) < 2:
        return {"mean": values[0], **dict.fromkeys(PERCENTILES, values[0])} if values else {}
    cuts = quantiles(values, n=100, method="inclusive")
    return {"mean": fmean(values), **{p: cuts[int(p[1:]) - 1] for p in PERCENTILES}}


def requests_of(rows: Sequence[Json], arrival: str, given: str, made: str) -> Requests | None:
    """The requests by arrival; None if there are too few or too many to replay."""
    if not 2 <= len(rows) <= MAX_REQUESTS:
        return None
    names = [*([arrival] if arrival else []), given, made]
    values = sorted([required(row, name) for name in names] for row in rows)
    columns = [list(column) for column in zip(*values, strict=True)]
    if not arrival:
        return {"input_tokens": columns[0], "output_tokens": columns[1]}
    return {
        "arrival_s": [round(at - columns[0][0], 4) for at in columns[0]],
        "input_tokens": columns[1],
        "output_tokens": columns[2],
    }


def of_requests(tool: str, rows: Sequence[Json], failed: int = 0, **more: Any) -> LoadResult:
    """The result of its requests, each with start_s, end_s, ttft_ms, tpot_ms, e2e_ms, given and made, where known."""
    if not rows:
        return LoadResult(tool=tool, completed=0, failed=failed)

    def of(name: str) -> list[float]:
        return [value for row in rows if (value := number(row, name)) is not None]

    ends, given, made = of("end_s"), of("given"), of("made")
    duration_s = max(ends) - min(of("start_s")) if ends else None
    if ends and not duration_s:
        raise LoadResultError("no request took any time.")
    inputs, outputs = percentiles_of(given), percentiles_of(made)
    whole = len(given) == len(made) == len(rows)
    return LoadResult(
        tool=tool,
        completed=len(rows),
        failed=failed,
        duration_s=duration_s,
        requests_per_s=over(len(rows), duration_s),
        input_tokens_mean=inputs.get("mean"),
        output_tokens_mean=outputs.get("mean"),
        input_tokens_p95=inputs.get("p95"),
        output_tokens_p95=outputs.get("p95"),
        output_tokens_per_s=over(sum(made), duration_s) if whole else None,
        ttft_ms=percentiles_of(of("ttft_ms")),
        tpot_ms=percentiles_of(of("tpot_ms")),
        e2e_ms=percentiles_of(of("e2e_ms")),
        requests=requests_of(rows, "start_s" if ends else "", "given", "made") if whole else None,
        **more,
    )


def clock(unix_s: float | None) -> str:
    """A Unix time as ISO text; empty if it is missing or not in seconds (milliseconds are beyond the year 9999)."""
    known = unix_s is not None and unix_s <= LAST_S
    return datetime.fromtimestamp(unix_s or 0, UTC).isoformat(timespec="seconds") if known else ""


def cv_of_shape(shape: float | None) -> float:
    """Coefficient of variation of gamma gaps of this shape, which load generators call burstiness or smoothness."""
    return shape**-0.5 if shape and shape > 0 else 1.0


def each_run(records: Sequence[Any], one: Callable[[Any], LoadResult], name: str = "run") -> Iterator[LoadResult]:
    """The runs of records with their places, which errors name, too."""
    for place, record in enumerate(records, 1):
        where = f"{name} {place}" if len(records) > 1 else ""
        try:
            yield replace(one(record), place=where)
        except LoadResultError as error:
            raise LoadResultError(f"{where}: {error}" if where else str(error)) from None


def of_cells(names: Iterable[str], cells: Iterable[str]) -> dict[str, Any]:
    """A row of a CSV file with numbers as numbers; empty cells are left out."""
    return {name.strip(): of_cell(cell) for name, cell in zip(names, cells, strict=False) if cell.strip()}


def of_cell(cell: str) -> Any:
    plain = cell.strip().replace(",", "")
    try:
        return float(plain) if plain.isascii() and "_" not in plain else cell.strip()
    except ValueError:
        return cell.strip()


def json_cell(record: Json, key: str) -> Any:
    """The value of a cell that holds JSON; {} if it has none."""
    try:
        return read_json(str(record.get(key) or "{}"))
    except BoundedError:
        return {}


def is_number_list(values: Any) -> bool:
    return isinstance(values, list) and all(
        isinstance(v, int | float) and not isinstance(v, bool) and abs(v) <= MAX_FIGURE for v in values
    )
