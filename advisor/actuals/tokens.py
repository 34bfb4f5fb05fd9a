"""Tokens served, by month: a table by day or hour, or counters that Prometheus exported.

A table is CSV or Parquet with a time, input_tokens, output_tokens and perhaps requests. Counters are the JSON of
Prometheus' /api/v1/query_range, or of `promtool query range -o json`; a counter that falls was started anew.
"""

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

from advisor.actuals.files import ActualsError, amount_in, plain, rows_of, text_in, time_in
from catalog.loading.bounded import FILES, WEB, BoundedError, Bounds, read_json

TIMES = ("time", "timestamp", "date", "day", "hour", "start", "starttime", "datetime", "chargeperiodstart")
INPUT = ("inputtokens", "prompttokens", "tokensin", "input", "prompt")
OUTPUT = ("outputtokens", "completiontokens", "generationtokens", "generatedtokens", "tokensout", "output")
REQUESTS = ("requests", "requestcount", "nummodelrequests", "calls", "count")
NAMES = ("model", "deployment", "modelname", "deploymentname")
COUNTERS = {  # names of serving engines' counters, after a prefix such as vllm:
    "input": re.compile(r"(^|:)(prompt|input)_tokens(_total)?$"),
    "output": re.compile(r"(^|:)(generation|completion|output)_tokens(_total)?$"),
    "requests": re.compile(r"(^|:)(request_success|num_requests|requests)_total$"),
}


@dataclass(slots=True)
class Served:
    input: Decimal = Decimal(0)
    output: Decimal = Decimal(0)
    requests: Decimal | None = None

    @property
    def total(self) -> Decimal:
        return self.input + self.output


def read_tokens(source: Path | bytes, model: str = "") -> dict[str, Served]:
    """Tokens by YYYY-MM. model: count this model or deployment alone. ActualsError says what is wrong."""
    if isinstance(source, Path):
        try:
            with source.open("rb") as file:
                head = file.read(64)
        except OSError as error:
            raise ActualsError(f"cannot be read: {error.strerror}") from None
    else:
        head = source[:64]
    is_json = head.lstrip(b"\xef\xbb\xbf \r\n\t")[:1] in (b"{", b"[")
    months = _of_counters(source, model) if is_json else _of_table(source, model)
    if not months:
        raise ActualsError(f"has no tokens{f' of {model}' if model else ''}")
    return dict(sorted(months.items()))


def _of_table(source: Path | bytes, model: str) -> dict[str, Served]:
    rows = rows_of(source, {*TIMES, *INPUT, *OUTPUT, *REQUESTS, *NAMES})
    _, names = next(rows, (1, {}))
    at, given, made = (next((n for n in known if n in names), "") for known in (TIMES, INPUT, OUTPUT))
    said = (("a time, such as hour or day", at), ("input_tokens", given), ("output_tokens", made))
    if missing := [name for name, found in said if not found]:
        raise ActualsError(f"lacks columns: {', '.join(missing)}")
    asked = next((n for n in REQUESTS if n in names), "")
    named = next((n for n in NAMES if n in names), "")
    months: defaultdict[str, Served] = defaultdict(Served)
    for line, row in rows:
        if model and text_in(row, named) != model:
            continue
        served = months[f"{time_in(row[at], line, at):%Y-%m}"]
        tokens = [amount_in(row, name, line, name) for name in (given, made)]
        if min(tokens) < 0:
            raise ActualsError(f"line {line}: tokens cannot be negative")
        served.input += tokens[0]
        served.output += tokens[1]
        if asked:
            served.requests = (served.requests or Decimal(0)) + amount_in(row, asked, line, asked)
    return dict(months)


def _of_counters(source: Path | bytes, model: str) -> dict[str, Served]:
    months: defaultdict[str, Served] = defaultdict(Served)
    for kind, month, increase in _increases(source, model):
        served = months[month]
        setattr(served, kind, (getattr(served, kind) or Decimal(0)) + increase)
    return dict(months)


def _increases(source: Path | bytes, model: str) -> Iterator[tuple[str, str, Decimal]]:
    """(kind, month, how much a counter rose between two samples, in the month of the second)."""
    found = _series(source, FILES if isinstance(source, Path) else WEB)
    firsts = [each["values"][0] for each in found if isinstance(each.get("values"), list) and each["values"]]
    begun = min((time_in(str(f[0]), 1, "time") for f in firsts if isinstance(f, list) and f), default=None)
    for series in found:
        given = series.get("metric")
        labels: Mapping[str, Any] = given if isinstance(given, Mapping) else {}
        kind = next((k for k, form in COUNTERS.items() if form.search(str(labels.get("__name__", "")))), "")
        if not kind or (model and model not in labels.values()):
            continue
        before: Decimal | None = None
        samples = series.get("values")
        for n, sample in enumerate(samples if isinstance(samples, list) else ()):
            if not (isinstance(sample, list) and len(sample) == 2):
                raise ActualsError("is not a range of Prometheus: each value must be [time, text]")
            value = amount_in({plain("value"): sample[1]}, "value", n + 1, str(labels["__name__"]))
            at = time_in(str(sample[0]), n + 1, "time")
            if before is None:
                before = value if at == begun else Decimal(0)  # a server that started within the range
            yield kind, f"{at:%Y-%m}", value - before if value >= before else value
            before = value


def _series(source: Path | bytes, bounds: Bounds) -> list[Mapping[str, Any]]:
    try:
        found = read_json(source.read_bytes() if isinstance(source, Path) else source, bounds)
    except (BoundedError, json.JSONDecodeError) as error:
        raise ActualsError(str(error)) from None
    data = found.get("data", found) if isinstance(found, Mapping) else found
    series = data.get("result") if isinstance(data, Mapping) else data
    if not isinstance(series, list) or not all(isinstance(each, Mapping) for each in series):
        raise ActualsError("is not a range of Prometheus; export counters with /api/v1/query_range")
    return series
