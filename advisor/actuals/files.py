"""Tables that people give: the rows of CSV (also gzipped) and Parquet, by the names of their columns."""

import csv
import gzip
import io
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation, localcontext
from pathlib import Path
from typing import Any, BinaryIO

MOST = Decimal("1e15")  # of an amount
FINEST = -20  # exponent of its last digit
MAX_RECORD = 1_000_000  # characters of a row of CSV, which may have many lines
MAX_COLUMNS = 500
UNPACKED_BYTES = 64 * 2**20  # of an upload
UPLOADED_ROWS = 300_000  # of Parquet, where a few bytes may be millions of equal rows
UPLOADED_VALUES = 10 * UPLOADED_ROWS  # of a column, where a row may have many
MAX_FIXED = 64  # bytes of a value of fixed length in an upload; decimals have up to 32
YEARS = range(2000, 2201)
Row = Mapping[str, Any]
Rows = Iterator[tuple[int, Row]]  # (line, cells by `plain` column name); the first has the names of all columns


class ActualsError(ValueError):
    """A bill or a table of tokens that cannot be used; the message says where and what to give."""


def plain(name: object) -> str:
    """The name of a column without case, blanks, `-` and `_`."""
    return re.sub(r"[\s_-]", "", str(name)).lower()


def rows_of(source: Path | bytes, wanted: Collection[str]) -> Rows:
    """The rows of a file, or of its content; of Parquet only the wanted columns. ActualsError: it is not a table."""
    try:
        with source.open("rb") if isinstance(source, Path) else io.BytesIO(source) as file:
            head = file.read(4)
            file.seek(0)
            if head == b"PAR1":
                yield from _of_parquet(file, wanted, is_upload=not isinstance(source, Path))
            elif head[:2] == b"\x1f\x8b":
                opened: Any = gzip.GzipFile(fileobj=file)
                yield from _of_csv(opened if isinstance(source, Path) else io.BytesIO(unpacked(opened)))
            else:
                yield from _of_csv(file)
    except (OSError, EOFError, gzip.zlib.error) as error:  # type: ignore[attr-defined]
        raise ActualsError(f"cannot be read: {getattr(error, 'strerror', None) or error}") from None


def unpacked(file: gzip.GzipFile) -> bytes:
    content = file.read(UNPACKED_BYTES + 1)
    if len(content) > UNPACKED_BYTES:
        raise ActualsError(f"has more than {UNPACKED_BYTES // 2**20} MiB when unpacked; use manage.py actuals")
    return content


def _of_csv(file: Any) -> Rows:
    text = io.TextIOWrapper(file, encoding="utf-8-sig", newline="")
    left = MAX_RECORD

    def lines() -> Iterator[str]:
        nonlocal left
        while line := text.readline(left + 1):
            if (left := left - len(line)) < 0:
                raise ActualsError(f"has a row of more than {MAX_RECORD:,} characters; give CSV with one row per line")
            yield line

    try:
        found = lines()
        first = next(found, "")
        delimiter = max(",;\t", key=first.count)
        names = names_of(next(csv.reader([first], delimiter=delimiter), []))
        yield 1, dict.fromkeys(names)
        reader = csv.reader(found, delimiter=delimiter)
        for cells in reader:
            left = MAX_RECORD
            if any(cells):
                if len(cells) != len(names):
                    said = f"line {reader.line_num + 1} has {len(cells)} cells, and the header has {len(names)}"
                    raise ActualsError(said)
                yield reader.line_num + 1, dict(zip(names, cells, strict=True))
    except (UnicodeDecodeError, csv.Error) as error:
        raise ActualsError(f"is not CSV in UTF-8: {error}") from None
    finally:
        text.detach()


def names_of(given: Sequence[object]) -> list[str]:
    names = [plain(name) for name in given]
    if twice := [name for name in names if name and names.count(name) > 1]:
        raise ActualsError(f"has the column {twice[0]} twice")
    if len(names) > MAX_COLUMNS or not any(names):
        raise ActualsError("is not a table; give CSV with a header line, or Parquet")
    return names


def _of_parquet(file: BinaryIO, wanted: Collection[str], *, is_upload: bool) -> Rows:
    import pyarrow  # here: most callers need it for no file
    import pyarrow.parquet

    try:
        schema = pyarrow.parquet.ParquetFile(file).schema
        texts = [each.path for each in map(schema.column, range(len(schema))) if each.physical_type == "BYTE_ARRAY"]
        # A text that many rows repeat stays one text: 2 kB may hold thousands of megabytes.
        table = pyarrow.parquet.ParquetFile(file, read_dictionary=texts if is_upload else None)
        names = names_of(table.schema_arrow.names)
        yield 1, dict.fromkeys(names)
        columns = [name for name in table.schema_arrow.names if plain(name) in wanted]
        if is_upload:
            _refuse_large(table, {plain(name) for name in columns})
        line = 1
        groups = range(table.num_row_groups)  # each apart, as pyarrow joins no nested columns of several
        for batch in (b for n in groups for b in table.iter_batches(5_000, row_groups=[n], columns=columns)):
            if is_upload and batch.nbytes > UNPACKED_BYTES:
                raise ActualsError(f"has more than {UNPACKED_BYTES // 2**20} MiB in 5,000 rows; use manage.py actuals")
            step = 1 if is_upload else 5_000  # of rows that are spread out at once
            for start in range(0, batch.num_rows, step):
                for cells in batch.slice(start, step).to_pylist():
                    line += 1
                    yield line, {plain(name): value for name, value in cells.items()}
    except (pyarrow.ArrowException, ValueError, OverflowError) as error:
        if isinstance(error, ActualsError):
            raise
        raise ActualsError(f"is not Parquet: {str(error)[:200]}") from None


def _refuse_large(table: Any, columns: Collection[str]) -> None:
    """ActualsError: the columns of an upload would take much memory, though they are a few bytes in the file."""
    said = "; use manage.py actuals"
    if table.metadata.num_rows > UPLOADED_ROWS:
        raise ActualsError(f"has more than {UPLOADED_ROWS:,} rows{said}")
    values: Counter[int] = Counter()
    for group in map(table.metadata.row_group, range(table.metadata.num_row_groups)):
        for n in range(group.num_columns):
            values[n] += group.column(n).num_values
    for n, count in values.items():
        column = table.schema.column(n)
        if plain(column.path.partition(".")[0]) in columns:
            if count > UPLOADED_VALUES:
                raise ActualsError(f"column {column.path[:60]} has more than {UPLOADED_VALUES:,} values{said}")
            if column.physical_type == "FIXED_LEN_BYTE_ARRAY" and column.length > MAX_FIXED:
                raise ActualsError(f"column {column.path[:60]} has values of {column.length:,} bytes; give numbers")


def text_in(row: Row, name: str) -> str:
    value = row.get(name)
    return "" if value is None else str(value).strip()


def amount_in(row: Row, name: str, line: int, shown: str) -> Decimal:
    """The number in a cell; an empty one is 0. ActualsError: it is none."""
    value = row.get(name)
    if value is None or value == "":
        return Decimal(0)
    try:
        number = value if isinstance(value, Decimal) else Decimal(str(value).strip())
    except InvalidOperation:
        number = Decimal("NaN")
    exponent = number.as_tuple().exponent
    if not number.is_finite() or abs(number) >= MOST or (isinstance(exponent, int) and exponent < FINEST):
        with localcontext(prec=60):
            number = number.quantize(Decimal("1e-15")) if number.is_finite() and abs(number) < MOST else Decimal("NaN")
    if number.is_nan():
        raise ActualsError(f"line {line}, {shown}: {str(value)[:40]!r} is not an amount; use a decimal point alone")
    return number


def time_in(value: Any, line: int, shown: str) -> datetime:
    """A time in UTC: ISO 8601, a day, or seconds since 1970. ActualsError: it is none."""
    text = str(value or "").strip()
    try:
        if isinstance(value, datetime):
            found = value
        elif re.fullmatch(r"\d{9,11}(\.\d+)?", text):
            found = datetime.fromtimestamp(float(text), UTC)
        else:
            found = datetime.fromisoformat(re.sub(r" (UTC|GMT)$", "Z", text))
        if found.year not in YEARS:
            raise ValueError
        return found.astimezone(UTC) if found.tzinfo else found.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        said = f"line {line}, {shown}: {text[:40]!r} is not a time; write 2026-11-01T00:00:00Z or 2026-11-01"
        raise ActualsError(said) from None


def named(names: Iterable[str], wanted: Mapping[str, str]) -> list[str]:
    """The columns that are missing, as the specification writes them. wanted: plain name -> written name."""
    have = set(names)
    return [shown for name, shown in wanted.items() if name not in have]
