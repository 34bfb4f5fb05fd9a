"""The requests of a trace, as published or with columns that the user names."""

import json
import math
import re
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from advisor.workload.traces.columns import COLUMNS, Chosen, chosen
from advisor.workload.traces.columns import refuse as _refuse
from advisor.workload.traces.prefixes import hit_fraction
from catalog.loading.bounded import FILES, WEB, BoundedError, Bounds, read_csv, read_json, text_of

MAX_REQUESTS = 20_000
MAX_LINES = 5 * MAX_REQUESTS  # empty ones too
LINE = Bounds(max_bytes=2**20, max_values=100_000)  # of JSON lines
THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?:,\d{3})*$)")
NOTE = "# "  # starts a line before the header that says what was done to the trace
MOST_TOKENS = 1e7
GROUPED = re.compile(r"\d{1,3}(?:\.\d{3})+")  # 4.808 is 4,808 in some countries, and 12.000 could be both
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


BINARY = {b"PAR1": "Parquet", b"PK\x03\x04": "zip", b"\x28\xb5\x2f\xfd": "zstd", b"\xfd7zXZ": "xz", b"BZh": "bzip2"}


def text_of_trace(content: bytes, most_bytes: int) -> str:
    """The text of a trace file, also of one in gzip or UTF-16. BoundedError: it is too large, or no text."""
    if content.startswith(b"\x1f\x8b"):
        try:
            unpacked = zlib.decompressobj(wbits=31)
            content = unpacked.decompress(content, most_bytes + 1)
        except zlib.error as e:
            raise BoundedError(f"is not valid gzip: {e}") from None
        if not unpacked.eof and len(content) <= most_bytes:
            raise BoundedError("is gzip that ends too early: it is cut off")
    if kind := next((name for start, name in BINARY.items() if content.startswith(start)), ""):
        raise BoundedError(f"is {kind}: write it as CSV or JSON lines first; gzip is read")
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):  # Excel's Unicode text
        try:
            content = content.decode("utf-16").encode()
        except UnicodeError as e:
            raise BoundedError(f"cannot be read as text: not UTF-16 ({e})") from None
    return text_of(content, Bounds(max_bytes=most_bytes))


def requests_of(text: str) -> list[Request]:
    """The requests of a trace by arrival. Raises WorkloadError."""
    return recorded(text).requests


def recorded(text: str, columns: Mapping[str, str] | None = None, most_lines: int = MAX_LINES) -> Recorded:
    """A trace: CSV with a header line, or JSON with one object for each request. WorkloadError names the line.

    columns: what a column is (Mapped) -> its name. Requests without tokens and failed ones are left out. Of more than
    MAX_REQUESTS, those of the busiest stretch are kept.
    """
    bare = text.lstrip("\ufeff")
    notes, is_json = notes_of(bare), bare.lstrip()[:1] in ("{", "[")
    names, rows = rows_of(bare, most_lines)
    requests, told, hits = _read(names, rows, columns or {}, lines_of_json=is_json)
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


# --- rows -------------------------------------------------------------------------------------------------------

Row = Mapping[str, Any]
Rows = Iterator[tuple[int, Row]]  # (line, cells by column)


def rows_of(text: str, most_lines: int) -> tuple[list[str], Rows]:
    """(names of the columns, rows) of a CSV with a header line, or of JSON. WorkloadError: it is neither."""
    rows = _refused_by_line(text, most_lines)
    return list(next(rows, (1, {}))[1]), rows


def _refused_by_line(text: str, most_lines: int) -> Rows:
    body = text.lstrip()
    try:
        if body[:1] in ("{", "["):
            yield from _of_json(body, FILES if most_lines > MAX_LINES else WEB)
        else:
            before = len(notes_of(text))
            yield from _of_csv(f"{text}\n".split("\n", before)[before], most_lines, before)
    except BoundedError as e:
        _refuse(str(e), "a CSV with the header line " + ",".join(COLUMNS))


def _of_csv(text: str, most_lines: int, before: int) -> Rows:
    """The first row has the names of all columns."""
    lines = re.split(r"\r\n?|\n", text.lstrip("\r\n")[:100_000], maxsplit=1)
    named = re.fullmatch(r"sep=(.)", lines[0])  # which Excel writes
    delimiter = named[1] if named else max(",;\t|", key=lines[0].count)
    names: list[str] = []
    for number, cells in read_csv(text, max_rows=most_lines, delimiter=delimiter):
        if not any(each.strip() for each in cells) or (named and not names and cells[0].startswith("sep=")):
            continue
        if not names:
            names = [name.strip() for name in cells]
            if twice := next((name for name in names if name and names.count(name) > 1), ""):
                _refuse(f"has two columns {twice[:40]}", "one column of each name")
            yield before + number, dict.fromkeys(names)
            continue
        if any(each.strip() for each in cells[len(names) :]):
            _refuse(
                f"line {before + number}: has {len(cells)} cells, but the header has {len(names)}",
                'one cell for each column; quote numbers such as "4,808"',
            )
        yield before + number, dict(zip(names, cells, strict=False))


def _of_json(text: str, bounds: Bounds) -> Rows:
    """One object a line, or a list of objects, also as the only list of an object; inner objects count as its keys."""
    objects: Iterable[tuple[int, Any]]
    if text.startswith("["):
        objects = enumerate(read_json(text, bounds), 1)
    else:
        lines = [(n, line) for n, line in enumerate(text.split("\n"), 1) if line.strip()]
        whole = _whole(text, bounds, lines[0][1])
        objects = enumerate(whole, 1) if whole is not None else ((n, _line(line, n)) for n, line in lines)
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


def _line(line: str, number: int) -> Any:
    try:
        return read_json(line, LINE)
    except BoundedError as e:
        _refuse(f"line {number}: {e}", "one JSON object a line")


def _whole(text: str, bounds: Bounds, first: str) -> list[Any] | None:
    """The list of requests in an object; None: the text has one object a line."""
    try:
        found = read_json(first, LINE)
    except BoundedError:
        try:
            found = read_json(text, bounds)  # over several lines
        except BoundedError:
            return None
    lists = [v for v in found.values() if isinstance(v, list) and v and isinstance(v[0], Mapping)] if isinstance(
        found, Mapping) else []  # fmt: skip
    return lists[0] if len(lists) == 1 else None


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
        given, made = (_tokens(row, name, number) for name in (columns.inputs, columns.outputs))
        if reason := _why_not(row, given, made):
            left_out[reason] += 1
            continue
        requests.append((at, given, made, _hashes(row.get("hash_ids"), number)))
    if columns is None:
        chosen(names, {}, mapped, lines_of_json)
    in_order = all(one[0] <= other[0] for one, other in pairwise(requests))
    requests.sort(key=lambda each: each[:3])
    told = [columns.note] if columns and columns.note else []
    told += [] if in_order else ["the requests were not in order of their arrival; they were sorted"]
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
    if isinstance(value, str) and value.lstrip().startswith("["):  # in a CSV
        value = _line(value, line)
    if not isinstance(value, list) or not all(isinstance(each, int | str) for each in value):
        _refuse(f"line {line}: hash_ids is not a list of numbers", "hash_ids: [1, 2, 3], or no such key")
    return value


def _text(value: Any) -> str | None:
    """A cell as text, also where JSON has a number."""
    return value if value is None or isinstance(value, str) else json.dumps(value)


def _time(text: str | None, line: int, columns: Chosen) -> float:
    why = ""
    try:
        value = columns.seconds(text or "")
    except ValueError as e:
        value, why = math.nan, f": {e}" if " have " in str(e) or "a day" in str(e) else ""
    if not 0 <= value <= 1e10:
        _refuse(
            f"line {line}: {text!r} is not a time in seconds ({columns.arrival[:40]}){why}",
            "0 .. 1e+10 (with a decimal point), or 2023-11-16 18:17:03.98; all rows in the same form",
        )
    return value


def _tokens(row: Row, name: str, line: int) -> int:
    """A number of tokens; an empty cell counts as none."""
    text = _text(row[name]) if name in row else None
    if name in row and (row[name] is None or not (text or "").strip()):
        return 0
    return whole_tokens(text, line, name)


def whole_tokens(text: str | None, line: int, name: str, least: int = 0) -> int:
    try:
        value = float(THOUSANDS.sub("", text or ""))
    except ValueError:
        value = math.nan
    if not least <= value <= MOST_TOKENS or value != round(value) or GROUPED.fullmatch(text or ""):
        _refuse(
            f"line {line}: {(text or '')[:40]!r} is not a number of tokens ({name[:40]})"
            if text is not None else f"line {line}: {text} is not a number of tokens ({name[:40]})",
            f"a whole number, {least} .. {MOST_TOKENS:g}",
        )  # fmt: skip
    return int(value)


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
