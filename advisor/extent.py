"""How far a question was used: what was read from its files, and what this engine version accepts but leaves out."""

import csv
import math
from collections.abc import Callable, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from advisor.workload import parse
from advisor.workload_text import WorkloadError, error

Json = dict[str, Any]
COLUMNS = {"input_tokens": "input_tokens", "output_tokens": "output_tokens"}
MOST_ROWS = 5_000_000
TCO_USED = ("horizon_months", "discount_rate", "staff_usd_per_accelerator_year")

# (field, is it set, what was done instead)
LEFT_OUT: tuple[tuple[str, Callable[[Mapping[str, Any]], object], str], ...] = (
    (
        "traffic.load_curve",
        lambda spec: spec["kind"] == "batch" and spec["traffic"]["load_curve"] != "flat",
        "a batch is worked off as fast as it can be, whatever the hour",
    ),
    (
        "traffic.trace",
        lambda spec: spec["kind"] == "batch" and spec["traffic"]["trace"],
        "of a batch the lengths count, not when its requests were recorded",
    ),
    ("probe", lambda spec: spec["probe"] != "no", "nothing was measured for this answer: see each option's basis"),
    (
        "slo.tpot_ms_p95",
        lambda spec: spec["kind"] == "embedding" and spec["slo"]["tpot_ms_p95"],
        "an embedding generates no tokens: e2e_ms_p95 limits its latency",
    ),
    (
        "slo.tokens_per_s_per_user",
        lambda spec: spec["kind"] == "embedding" and spec["slo"]["tokens_per_s_per_user"],
        "an embedding generates no tokens: e2e_ms_p95 limits its latency",
    ),
    *(
        (
            f"slo.{name}",
            lambda spec, name=name: spec["kind"] == "batch" and spec["slo"][name] not in (None, "n"),
            "nobody waits for the answers of a batch: its deadline alone counts",
        )
        for name in ("ttft_ms_p95", "tpot_ms_p95", "e2e_ms_p95", "tokens_per_s_per_user", "availability")
    ),
)


def not_used(spec: Json, tco_used: set[str]) -> list[Json]:
    """What was asked for and did not change the answer: {field, value, instead}; `tco_used`: names the costs read."""
    found = [
        {"field": field, "value": dig(spec, field), "instead": f"accepted, not part of this engine version: {instead}"}
        for field, is_set, instead in LEFT_OUT
        if is_set(spec)
    ]
    known = {*TCO_USED, *tco_used}
    found += [
        {"field": f"tco.{key}", "value": value, "instead": "no figure of this answer depends on it"}
        for key, value in spec["tco"].items()
        if key not in known
    ]
    return found


def with_probes(result: Json, probed: Json) -> Json:
    """What an answer says of the probes that its question asked for, when machines were waited for."""
    kept = [item for item in result.get("not_used", []) if item["field"] != "probe"]
    unmet = [{**item, "instead": probed["said"]} for item in result.get("not_used", []) if item["field"] == "probe"]
    return {"probes": probed, "not_used": kept if probed["measured"] else [*kept, *unmet]}


def dig(spec: Mapping[str, Any], path: str) -> Any:
    value: Any = spec
    for key in path.split("."):
        value = value[key]
    return value


# --- traces -----------------------------------------------------------------------------------------------------


def with_traces(spec: Json, folder: Path) -> Json:
    """The workload with what each trace file says, read beside the workload's."""
    traffic = dict(spec["traffic"])
    if isinstance(traffic["trace"], str):
        text = recorded(folder / traffic["trace"])
        return parse({**spec, "traffic": {**traffic, "trace": {"csv": text}}})
    for key in COLUMNS:
        if "trace" in traffic[key]:
            field = f"traffic.{key}.trace"
            traffic[key] = {**traffic[key], **lengths(folder / traffic[key]["trace"], COLUMNS[key], field)}
    return {**spec, "traffic": traffic}


def recorded(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as trouble:
        raise WorkloadError([error("traffic.trace", f"cannot be read: {trouble}", "a CSV file")]) from None


def lengths(path: Path, column: str, field: str) -> dict[str, float]:
    """Mean and 95th percentile of one column of a CSV file with a head line."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as lines:
            reader = csv.DictReader(lines)
            if column not in (reader.fieldnames or ()):
                raise WorkloadError([error(field, f"{path.name} has no column {column}", "a CSV with a head line")])
            values = [tokens(row[column], reader.line_num, field) for row in islice(reader, MOST_ROWS)]
    except (OSError, UnicodeDecodeError, csv.Error) as trouble:
        raise WorkloadError([error(field, f"cannot be read: {trouble}", "a CSV file")]) from None
    if not values:
        raise WorkloadError([error(field, f"{path.name} has no rows", "at least one request")])
    values.sort()
    mean = sum(values) / len(values)
    return {"mean": mean, "p95": max(values[math.ceil(0.95 * len(values)) - 1], mean)}


def tokens(cell: str | None, line: int, field: str) -> float:
    try:
        value = float(cell or "")
    except ValueError:
        value = math.nan
    if not 1 <= value <= 1e8:
        raise WorkloadError([error(field, f"line {line}: {cell!r} is not a number of tokens", "1 .. 1e8")])
    return value


# --- snapshots --------------------------------------------------------------------------------------------------


def of_earlier_version(taken: Json) -> bool:
    """Whether a snapshot lacks how frameworks start, which was in the code of version 0.1.0."""
    parts = taken.get("parts", [taken])
    return any("launch" not in row for part in parts for row in part.get("frameworks", []))


def packed(taken: Json) -> Json:
    """The snapshot with each source text kept once: rows hold its place in `texts`."""
    places: dict[str, int] = {}

    def pack(value: Any) -> Any:
        if isinstance(value, dict):
            return {
                key: places.setdefault(item, len(places)) if key == "source" and isinstance(item, str) else pack(item)
                for key, item in value.items()
            }
        return [pack(item) for item in value] if isinstance(value, list) else value

    rows = pack(taken)
    return {**rows, "texts": list(places)}


def unpacked(taken: Json) -> Json:
    """The snapshot as it was before `packed`."""
    if "texts" not in taken:
        return taken
    texts = taken["texts"]

    def unpack(value: Any) -> Any:
        if isinstance(value, dict):
            return {
                key: texts[item] if key == "source" and isinstance(item, int) else unpack(item)
                for key, item in value.items()
            }
        return [unpack(item) for item in value] if isinstance(value, list) else value

    return {key: unpack(value) for key, value in taken.items() if key != "texts"}
