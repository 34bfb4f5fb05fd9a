"""The results of a study as a table: one list of columns with types and units, written as CSV and as Parquet.

Both files have the same columns, types and values. A missing value is an empty cell in CSV and null in Parquet; there
is no empty text.
"""

import csv
import io
import json
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from catalog.lists import export

Json = dict[str, Any]
Type = Literal["int64", "float64", "bool", "string"]
PYTHON: dict[Type, type] = {"int64": int, "float64": float, "bool": bool, "string": str}


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its name, type, unit (empty: none) and meaning."""

    name: str
    type: Type
    unit: str
    meaning: str


def ranged(name: str, unit: str, meaning: str) -> tuple[Column, ...]:
    """A figure with its 90% interval."""
    ends = ((f"{name}_{end}", f"{end} end of its 90% interval") for end in ("low", "high"))
    return Column(name, "float64", unit, meaning), *(Column(each, "float64", unit, said) for each, said in ends)


FIRST = (
    Column("point", "int64", "", "number of the row, from 0, in the order of the study"),
    Column("state", "string", "", "done, or failed with the reason in error"),
    Column("error", "string", "", "why it was not computed"),
)
LAST = (
    Column("prices_as_of", "string", "", "day whose prices apply"),
    Column("catalog_version", "string", "", "digest of the catalog's rows"),
    Column("engine_version", "string", "", "version of the engine"),
    Column("cpu_s", "float64", "s", "CPU time of the calculation"),
)
ANSWERED = (
    Column("workload", "string", "", "name of the workload"),
    Column("model", "string", "", "Hugging Face ID; own-model: given by its config.json"),
    Column("feasible", "bool", "", "whether something meets every limit"),
    Column("decision", "string", "", "what to do, in words"),
    Column("action", "string", "", "sign, keep, do_not_sign, get_quote or no_clear_winner"),
    Column("why_not", "string", "", "why nothing is feasible; empty: something is"),
    Column("option", "string", "", "the first choice in one line"),
    Column("accelerator", "string", "", "catalog name; empty: a hosted API whose hardware is not published"),
    Column("accelerator_count", "int64", "", "accelerators in use"),
    Column("provider", "string", "", "who sells or rents it"),
    Column("instance", "string", "", "instance type, server or endpoint"),
    Column("region", "string", "", "region of the price"),
    Column("term", "string", "", "on_demand, spot, reserved_1y, reserved_3y, purchase, owned or per token"),
    Column("framework", "string", "", "serving or training framework"),
    Column("framework_version", "string", "", "its release"),
    Column("weights_dtype", "string", "", "storage type of the weights"),
    Column("replicas", "int64", "", "replicas, spares included"),
    *ranged("usd_per_month", "USD per month", "cost of a month"),
    *ranged("usd_per_mtok_output", "USD per million output tokens", "cost of the output"),
    *ranged("usd_per_mtok_input", "USD per million input tokens", "cost of the input"),
    *ranged("usd_per_run", "USD", "cost of a training run"),
    *ranged("ttft_ms_p95", "ms", "p95 time to first token at the peak"),
    *ranged("tpot_ms_p95", "ms", "p95 time per output token at the peak"),
    Column("e2e_ms_p95", "float64", "ms", "p95 time of a whole answer"),
    Column("latency_ms_p95", "float64", "ms", "p95 latency of embeddings and other work without output tokens"),
    Column("slo_probability", "float64", "fraction", "probability of meeting every limit"),
    Column("first_probability", "float64", "fraction", "probability of being the best option"),
    Column("basis", "string", "", "evidence of the figures: measured, relative or datasheet"),
    Column("price_as_of", "string", "", "date of the price"),
)
ESTIMATED = (
    Column("fits", "bool", "", "whether the model fits into memory"),
    Column("why_not", "string", "", "why it does not, or cannot run there"),
    Column("accelerator_count", "int64", "", "accelerators of one replica"),
    Column("framework", "string", "", "serving framework"),
    Column("framework_version", "string", "", "its release"),
    Column("kv_dtype", "string", "", "storage type of the KV cache"),
    Column("isl", "int64", "tokens", "input tokens per request"),
    Column("osl", "int64", "tokens", "output tokens per request"),
    Column("concurrency", "int64", "", "requests in flight"),
    *ranged("output_tokens_per_s", "tokens/s", "generated tokens"),
    Column("output_tokens_per_s_per_accelerator", "float64", "tokens/s", "the same per accelerator"),
    Column("ttft_ms_mean", "float64", "ms", "mean time to first token"),
    Column("ttft_ms_p95", "float64", "ms", "p95 time to first token"),
    *ranged("tpot_ms_mean", "ms", "mean time per output token"),
    Column("tpot_ms_p95", "float64", "ms", "p95 time per output token"),
    Column("usd_per_hour", "float64", "USD per hour", "cost at the cheapest current offer"),
    Column("usd_per_mtok_output", "float64", "USD per million output tokens", "cost of the output at this load"),
    Column("weights_gib", "float64", "GiB", "weights per accelerator"),
    Column("kv_gib", "float64", "GiB", "KV cache in use per accelerator"),
    Column("free_gib", "float64", "GiB", "free memory per accelerator"),
    Column("basis", "string", "", "evidence of the figures: measured, relative or datasheet"),
    Column("price_as_of", "string", "", "date of the price"),
)
SET = "set_"  # begins the name of a column that tells what was varied


def columns(kind: str, axes: Sequence[tuple[str, Type]]) -> list[Column]:
    """The columns of a kind of study, in their order. `axes`: name and type of each value that is varied."""
    varied = [Column(f"{SET}{name}", of, "", f"value of {name}") for name, of in axes]
    return [*FIRST, *varied, *(ESTIMATED if kind == "estimates" else ANSWERED), *LAST]


def cells(column: Column, rows: Iterable[Json]) -> Iterator[Any]:
    """The values of a column: of its type, or None."""
    for row in rows:
        value = row["set"].get(column.name.removeprefix(SET)) if column.name.startswith(SET) else row.get(column.name)
        yield typed(value, column.type)


def typed(value: Any, of: Type) -> Any:
    if value is None or value == "" or (isinstance(value, float) and not math.isfinite(value)):
        return None
    if of == "string" and not isinstance(value, str):
        return json.dumps(value)
    return PYTHON[of](value)


def objects(table: Sequence[Column], rows: Sequence[Json]) -> list[Json]:
    """The rows as objects with a key for each column."""
    names = [column.name for column in table]
    return [dict(zip(names, values, strict=True)) for values in zip(*(cells(c, rows) for c in table), strict=True)]


def csv_text(table: Sequence[Column], rows: Sequence[Json]) -> str:
    """With a header line; numbers with all their digits."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(column.name for column in table)
    writer.writerows(zip(*([written(v) for v in cells(column, rows)] for column in table), strict=True))
    return out.getvalue()


def written(value: Any) -> Any:
    """A cell of the CSV; no text is a formula of a spreadsheet."""
    return "" if value is None else str(value).lower() if isinstance(value, bool) else export.cell(value)


def parquet(table: Sequence[Column], rows: Sequence[Json]) -> bytes:
    """One row group, each field with its unit and meaning as metadata."""
    import pyarrow  # here: the web tier loads it only for this file
    import pyarrow.parquet as files

    types = {"int64": pyarrow.int64(), "float64": pyarrow.float64()}
    types |= {"bool": pyarrow.bool_(), "string": pyarrow.string()}
    fields = [pyarrow.field(c.name, types[c.type], metadata={"unit": c.unit, "description": c.meaning}) for c in table]
    arrays = [pyarrow.array(list(cells(c, rows)), types[c.type]) for c in table]
    sink = io.BytesIO()
    files.write_table(pyarrow.Table.from_arrays(arrays, schema=pyarrow.schema(fields)), sink)
    return sink.getvalue()
