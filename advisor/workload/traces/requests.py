"""The requests of a trace, as published or with columns that the user names."""

import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NoReturn

from advisor.workload.text import WorkloadError, error
from advisor.workload.traces.columns import COLUMNS, FIELD, Chosen, chosen
from advisor.workload.traces.prefixes import hit_fraction
from catalog.loading.bounded import FILES, WEB, BoundedError, Bounds, read_csv, read_json

MAX_REQUESTS = 20_000
MAX_LINES = 5 * MAX_REQUESTS  # empty ones too
LINE = Bounds(max_bytes=2**20, max_values=100_000)  # of JSON lines
THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?:,\d{3})*$)")
NOTE = "# "  # starts a line before the header that says what was done to the trace
SIZES = ("a number of tokens", 0, 1e7)
FAILED = ("error", "errored", "failed", "failure", "timeout", "cancelled", "canceled", "aborted")
STATES = {"status", "status_code", "http_status", "state", "success", "successful", "finished"}
Request = tuple[float, int, int]  # seconds after the first arrival, input tokens, output tokens


@dataclass(frozen=True, kw_only=True, slots=True)
class Recorded:
    """A trace: its requests by arrival, and what a reader of the answer has to know about them."""

    text: str  # as it was given if it can be used as it is, else as CSV with the usual columns after the notes
    requests: list[Request]
    notes: tuple[str, ...] = ()
    hit_fraction: float | None = None  # of prompt tokens, where the trace has hashes of their blocks


def requests_of(text: str) -> list[Request]:
    """The requests of a trace by arrival. Raises WorkloadError."""
    return recorded(text).requests


def recorded(text: str, columns: Mapping[str, str] | None = None, most_lines: int = MAX_LINES) -> Recorded:
    """A trace: CSV with a header line, or JSON with one object for each request. WorkloadError names the line.

    columns: what a column is (Mapped) -> its name. Requests without tokens and failed ones are left out. Of more than
    MAX_REQUESTS, those of the busiest stretch are kept.
    """
    bare = text.lstrip("\ufeff")
    body, notes = bare.lstrip(), notes_of(bare)
    is_json = body[:1] in ("{", "[")
    try:
        if is_json:
            rows = _of_json(body, FILES if most_lines > MAX_LINES else WEB)
        else:
            rows = _of_csv(f"{bare}\n".split("\n", len(notes))[len(notes)], most_lines, len(notes))
        names = list(next(rows, (1, {}))[1])
        requests, told, hits = _read(names, rows, columns or {}, lines_of_json=is_json)
    except BoundedError as e:
        _refuse(str(e), "a CSV with the header line " + ",".join(COLUMNS))
    plain = not told and not columns and not is_json and set(COLUMNS) <= set(names)
    notes = (*notes, *told)
    return Recorded(text=text if plain else _csv(requests, notes), requests=requests, notes=notes, hit_fraction=hits)


def notes_of(text: str) -> tuple[str, ...]:
    """What an earlier reading noted at the start of a trace."""
    notes = []
    for line in text.split("\n", 100)[:100]:
        if not line.startswith(NOTE):
            break
        notes.append(line.removeprefix(NOTE).strip())
    return tuple(notes)


def _csv(requests: Sequence[Request], notes: Sequence[str]) -> str:
    lines = [*(NOTE + note for note in notes), ",".join(COLUMNS)]
    return "\n".join([*lines, *(f"{round(at, 6):.12g},{given},{made}" for at, given, made in requests)]) + "\n"


def _refuse(message: str, allowed: str) -> NoReturn:
    raise WorkloadError([error(FIELD, message, allowed)])


# --- rows -------------------------------------------------------------------------------------------------------

Row = Mapping[str, Any]
Rows = Iterator[tuple[int, Row]]  # (line, cells by column); the first has the names of all columns


def _of_csv(text: str, most_lines: int, before: int) -> Rows:
    head = text.split("\n", 1)[0]
    delimiter = max(",;\t", key=head.count)
    lines = read_csv(text, max_rows=most_lines, delimiter=delimiter)
    names = [name.strip() for name in next(lines, (1, []))[1]]
    yield before + 1, dict.fromkeys(names)
    for number, cells in lines:
        if cells:
            yield before + number, dict(zip(names, cells, strict=False))


def _of_json(text: str, bounds: Bounds) -> Rows:
    """One object a line, or a list of objects; objects inside an object count as its own keys."""
    objects: Iterable[tuple[int, Any]]
    if text.startswith("["):
        objects = enumerate(read_json(text, bounds), 1)
    else:
        objects = ((n, read_json(line, LINE)) for n, line in enumerate(text.splitlines(), 1) if line.strip())
    first = True
    for number, each in objects:
        if not isinstance(each, Mapping):
            _refuse(f"line {number}: is not an object", "one JSON object for each request")
        if "conversations" in each or "conversation" in each or "messages" in each:
            _refuse(
                "has the texts of conversations (ShareGPT's form), but neither arrivals nor numbers of tokens",
                "input_tokens, output_tokens and requests_per_s instead, or a trace with these columns",
            )
        row = {**each, **{k: v for inner in each.values() if isinstance(inner, Mapping) for k, v in inner.items()}}
        if first:
            yield number, dict.fromkeys(row)
            first = False
        yield number, row


# --- reading ----------------------------------------------------------------------------------------------------


def _read(
    names: Sequence[str], rows: Rows, mapped: Mapping[str, str], *, lines_of_json: bool
) -> tuple[list[Request], list[str], float | None]:
    """(requests, notes, hit fraction of an endless prefix cache)."""
    columns: Chosen | None = None
    left_out: Counter[str] = Counter()
    requests: list[tuple[float, int, int, Sequence[int]]] = []
    for number, row in rows:
        columns = columns or chosen(names, {k: _text(v) or "" for k, v in row.items()}, mapped, lines_of_json)
        at = _time(_text(row.get(columns.arrival)), number, columns)
        given, made = (
            round(cell(_text(row.get(name)), number, *SIZES, name)) for name in (columns.inputs, columns.outputs)
        )
        if reason := _why_not(row, given, made):
            left_out[reason] += 1
            continue
        requests.append((at, given, made, _hashes(row.get("hash_ids"), number)))
    if columns is None:
        chosen(names, {}, mapped, lines_of_json)
    in_order = all(one[0] <= other[0] for one, other in pairwise(requests))
    requests.sort(key=lambda each: each[:3])
    told = [] if in_order else ["the requests were not in order of their arrival; they were sorted"]
    told += [f"{count:,} {reason} were left out" for reason, count in left_out.items()]
    kept, window = busiest(requests)
    if len(kept) < 2 or kept[-1][0] <= kept[0][0]:
        more = f"; {told[0]}" if told else ""
        _refuse(f"has only one arrival time{more}", "requests at two or more arrival times")
    if window:
        told.append(window)
    hits = hit_fraction([(given, hashes) for _, given, _, hashes in kept]) if any(each[3] for each in kept) else None
    if hits is not None:
        told.append(f"an unlimited prefix cache would hold {hits:.1%} of the prompt tokens, by hash_ids")
    start_s = kept[0][0]
    return [(at - start_s, given, made) for at, given, made, _ in kept], told, hits


def _hashes(value: Any, line: int) -> Sequence[int]:
    """The hashes of a prompt's blocks; none if the trace has none."""
    if value in (None, ""):
        return ()
    if not isinstance(value, list) or not all(isinstance(each, int | str) for each in value):
        _refuse(f"line {line}: hash_ids is not a list of numbers", "hash_ids: [1, 2, 3], or no such key")
    return value


def _text(value: Any) -> str | None:
    """A cell as text, also where JSON has a number."""
    return value if value is None or isinstance(value, str) else json.dumps(value)


def _time(text: str | None, line: int, columns: Chosen) -> float:
    try:
        value = columns.seconds(text or "")
    except ValueError:
        value = math.nan
    if not 0 <= value <= 1e10:
        _refuse(
            f"line {line}: {text!r} is not a time in seconds ({columns.arrival[:40]})",
            "0 .. 1e+10, or 2023-11-16 18:17:03.98",
        )
    return value


def cell(text: str | None, line: int, what: str, low: float, high: float, name: str) -> float:
    try:
        value = float(THOUSANDS.sub("", text or ""))
    except ValueError:
        value = math.nan
    if not low <= value <= high:
        _refuse(f"line {line}: {text!r} is not {what} ({name[:40]})", f"{low:g} .. {high:g}")
    return value


def _why_not(row: Row, given: int, made: int) -> str:
    """Why a request is left out; empty if it is not. Published traces record failed requests without output tokens."""
    for name in STATES & row.keys():
        value = str(row[name]).strip().lower()
        if value in (*FAILED, "false") or value in ("0", "0.0") and name in ("success", "successful", "finished"):
            return "failed requests"
        if len(value) == 3 and value.isdecimal() and 400 <= int(value) < 600:
            return "failed requests"
    return "" if given and made else "requests without input or output tokens"


def busiest(requests: Sequence[tuple[float, int, int, Sequence[int]]]) -> tuple[Sequence[Any], str]:
    """(the MAX_REQUESTS that arrive in the shortest time, a note); all and no note if there are no more."""
    spare = len(requests) - MAX_REQUESTS
    if spare <= 0:
        return requests, ""
    spans = [requests[i + MAX_REQUESTS - 1][0] - requests[i][0] for i in range(spare + 1)]
    first = min(range(spare + 1), key=spans.__getitem__)
    from_s, whole_s = requests[first][0] - requests[0][0], requests[-1][0] - requests[0][0]
    return requests[first : first + MAX_REQUESTS], (
        f"of {len(requests):,} requests in {whole_s:,.0f} s, the {MAX_REQUESTS:,} of the busiest {spans[first]:,.0f} s "
        f"are used (from second {from_s:,.0f} on); mean and peak rate are those of this stretch"
    )
