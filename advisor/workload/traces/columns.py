"""Which columns of a published trace are the arrival, the prompt and the answer, and in which unit.

Read as published: Azure LLM inference traces 2023 and 2024 (TIMESTAMP, ContextTokens, GeneratedTokens), BurstGPT
(Timestamp, Request tokens, Response tokens), Splitwise (arrival_timestamp, prompt_size, token_size), Vidur (arrived_at,
num_prefill_tokens, num_decode_tokens), Mooncake (timestamp in ms, input_length, output_length, hash_ids) and Alibaba's
Bailian traces (the same keys with chat_id, timestamp in s).
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal, NoReturn, get_args

from advisor.workload.text import WorkloadError, error

FIELD = "traffic.trace"
COLUMNS = ("arrival_s", "input_tokens", "output_tokens")
SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
# What a user can say a column is; an arrival without a unit is read as one that nobody named
Mapped = Literal["arrival", "arrival_s", "arrival_ms", "arrival_us", "arrival_ns", "input_tokens", "output_tokens"]
TRACE_COLUMNS: tuple[str, ...] = get_args(Mapped)
UNITS = {"sec": "s", "secs": "s", "seconds": "s", "millis": "ms", "milliseconds": "ms", "micros": "us", "nanos": "ns",
         "microseconds": "us", "nanoseconds": "ns"}  # fmt: skip
ARRIVAL = (
    "arrival", "arrival_time", "arrival_timestamp", "arrived_at", "timestamp", "start_time", "start_timestamp",
    "request_time", "request_timestamp", "request_start_time", "request_arrival_time", "t_arrival", "relative_time",
    "created_at", "created", "datetime", "date_time", "unix_time", "unix_timestamp", "epoch", "time", "start", "ts",
    "t", "date",
)  # fmt: skip
INPUT = (
    "input_tokens", "input_length", "context_tokens", "request_tokens", "prompt_tokens", "prompt_size",
    "num_prefill_tokens", "prefill_tokens", "num_prompt_tokens", "num_input_tokens", "prompt_length", "prompt_len",
    "input_len", "input_size", "query_tokens", "prompt_token_count", "input_token_count", "n_prompt_tokens",
    "n_input_tokens", "gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens", "tokens_in", "isl", "in",
)  # fmt: skip
OUTPUT = (
    "output_tokens", "output_length", "generated_tokens", "response_tokens", "completion_tokens", "token_size",
    "num_decode_tokens", "decode_tokens", "num_generated_tokens", "num_output_tokens", "response_length", "output_len",
    "output_size", "generation_tokens", "answer_tokens", "completion_token_count", "output_token_count",
    "n_output_tokens", "n_completion_tokens", "n_generated_tokens", "gen_ai.usage.output_tokens",
    "gen_ai.usage.completion_tokens", "tokens_out", "osl", "out",
)  # fmt: skip
# Other names: one word that says which tokens, beside words that say that it counts tokens
SIDES = (
    {"input", "prompt", "context", "request", "query", "prefill"},
    {"output", "completion", "response", "generated", "generation", "decode", "answer"},
)  # fmt: skip
COUNTED = {"token", "tokens", "len", "length", "size"}
FILLER = COUNTED | {"num", "number", "n", "of", "count", "total", "usage", "in"}
# A time without a unit that is larger than this in seconds (the year 5138) is a Unix time in a smaller one
LAST_S = 1e11
FIRST_UNIX_S = 1e8
MOONCAKE = {"timestamp", "input_length", "output_length"}  # in ms; Bailian's, in s, have chat_id too


@dataclass(frozen=True, kw_only=True, slots=True)
class Chosen:
    """The columns of a trace, by name; `seconds`: reads an arrival, raising ValueError. note: of a guessed unit."""

    arrival: str
    inputs: str
    outputs: str
    seconds: Callable[[str], float]
    note: str = ""


def chosen(names: Sequence[str], first: Mapping[str, str], mapped: Mapping[str, str], lines_of_json: bool) -> Chosen:
    """The columns among `names`, as the user mapped them or by their usual names. WorkloadError: one is missing.

    first: the first row, whose time tells a unit that no name does. mapped: what a column is (Mapped) -> its name.
    """
    mapped = {key: _spelled(names, column) for key, column in mapped.items()}
    arrival, unit = _arrival(names, mapped)
    sides = {
        key: mapped.get(key) or side_of(names, key) for key in COLUMNS[1:]
    }  # fmt: skip
    found = {"arrival_s": arrival, **sides}
    for key, column in found.items():
        if not column:
            _missing(key, names, _ready_map(names, found, first))
    if len(set(found.values())) < len(found):
        refuse("has one column for two of arrival, input_tokens and output_tokens", "three columns")
    text, stated = first.get(arrival) or "", unit or "hash_ids" in names
    if not unit and "chat_id" not in names and ("hash_ids" in names or (lines_of_json and set(names) >= MOONCAKE)):
        unit = "ms"
    scale = SECONDS.get(unit) or _scale(text)
    note = ""
    if not stated and (number := _number(text)) is not None and scale in (1.0, 1e-3) and abs(number) < FIRST_UNIX_S:
        said = ("seconds", "milliseconds as in Mooncake's traces")[scale < 1]
        note = f"the column {arrival[:40]} states no unit: its times count as {said}; trace_columns can say otherwise"
    return Chosen(
        arrival=arrival, inputs=found["input_tokens"], outputs=found["output_tokens"],
        seconds=_reader(text, scale), note=note,
    )  # fmt: skip


def refuse(message: str, allowed: str) -> NoReturn:
    raise WorkloadError([error(FIELD, message, allowed)])


def side_of(names: Sequence[str], key: str) -> str:
    """The column of the input or output tokens; empty: there is none, or more than one."""
    side = COLUMNS.index(key) - 1
    if named := _named(names, (INPUT, OUTPUT)[side]):
        return named
    words = {name: set(_words(name).split("_")) for name in names}
    like = [n for n, said in words.items() if said & COUNTED and len(said - FILLER) == 1 and said & SIDES[side]]
    return like[0] if len(like) == 1 else ""


def _missing(key: str, names: Sequence[str], ready: Mapping[str, str]) -> NoReturn:
    shown = ", ".join(f"{k}: {v}" for k, v in ready.items())
    flag = ",".join(f"{k}={v}" for k, v in ready.items())
    quoted = f"'{flag}'" if re.search(r"[\s()\[\];&|#*?$]", flag) else flag
    refuse(
        f"has no column {key}: its columns are {listed(names)}",
        f"a header line {','.join(COLUMNS)}, usual names, or the columns by name: traffic.trace_columns: {{{shown}}}, "
        f"on the command line --map {quoted}",
    )


def _ready_map(names: Sequence[str], found: Mapping[str, str], first: Mapping[str, str]) -> dict[str, str]:
    """A mapping to start from: the columns that were found, and the first others that look like the missing ones."""
    free = [name for name in names if name and name not in found.values()]
    ready = {}
    for key, column in found.items():
        is_time = key == "arrival_s"
        fits = (n for n in free if (_number(first.get(n)) is not None) or (is_time and _is_moment(first.get(n))))
        column = column or next(fits, "COLUMN")
        free = [name for name in free if name != column]
        ready["arrival" if is_time else key] = column
    return ready


def listed(names: Sequence[str]) -> str:
    return ", ".join(name[:40] for name in names[:12] if name) or "none"


def _plain(name: str) -> str:
    """ContextTokens, `Request tokens` and context_tokens in one spelling."""
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _words(name: str) -> str:
    """ContextTokens, `Request tokens` and requestTimeMs as words with _ between."""
    return re.sub(r"[^a-z0-9]+", "_", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()).strip("_")


def _spelled(names: Sequence[str], wanted: str) -> str:
    """A column as the trace spells it. WorkloadError: it has none."""
    if wanted in names:
        return wanted
    like = [name for name in names if _plain(name) == _plain(wanted) != ""]
    if len(like) == 1:
        return like[0]
    refuse(f"has no column {wanted}: its columns are {listed(names)}", "columns that the trace has")


def _named(names: Sequence[str], usual: Sequence[str]) -> str:
    """The column with the first of the usual names; empty: there is none."""
    plain = {_plain(name): name for name in reversed(names)}
    return next((plain[_plain(each)] for each in usual if _plain(each) in plain), "")


def _arrival(names: Sequence[str], mapped: Mapping[str, str]) -> tuple[str, str]:
    """(column of the arrival, its unit); the unit is empty if no name states it."""
    given = [key for key in mapped if key.startswith("arrival")]
    if len(given) > 1:
        refuse(f"trace_columns names two arrivals: {' and '.join(given)}", "one of them")
    if given and given[0] != "arrival":
        return mapped[given[0]], given[0].removeprefix("arrival_")
    found: dict[str, tuple[str, str]] = {}
    for name in [mapped["arrival"]] if given else reversed(names):
        stem, _, end = _words(name).rpartition("_")
        unit = UNITS.get(end, end)
        if stem and (unit in SECONDS or unit == "utc"):
            found[_plain(stem)] = name, unit if unit in SECONDS else ""
    if given:
        return mapped["arrival"], next((unit for _, unit in found.values()), "")
    found |= {_plain(name): (name, "") for name in reversed(names)}
    return next((found[_plain(each)] for each in ARRIVAL if _plain(each) in found), ("", ""))


def _number(text: str | None) -> float | None:
    try:
        return float(text or "")
    except ValueError:
        return None


def _scale(text: str) -> float:
    """Factor that turns a time without a stated unit into seconds.

    Only the size of a Unix time shows whether it is in s, ms, us or ns. Smaller numbers and ISO texts count as seconds.
    """
    value = abs(_number(text) or 0.0)
    return next((scale for scale in SECONDS.values() if value * scale <= LAST_S), 1e-9)


def _reader(first: str, scale: float) -> Callable[[str], float]:
    """Reads times of the same form as the first: numbers, or ISO texts with or without a zone. ValueError: another."""
    if _is_moment(first):
        zoned = _moment(first).tzinfo is not None

        def seconds(text: str) -> float:
            moment = _moment(text)
            if (moment.tzinfo is not None) != zoned:
                raise ValueError("some times have a zone, others have none")
            return (moment if zoned else moment.replace(tzinfo=UTC)).timestamp()

        return seconds
    return lambda text: float(text) * scale


def _moment(text: str) -> datetime:
    """An ISO time such as 2023-11-16 18:17:03.9799600 or 2024-05-10T00:00:00Z. ValueError: a day alone, or none."""
    bare = re.sub(r"\s+(?=[+-]\d\d:?\d\d$)", "", re.sub(r"\s*UTC$", "+00:00", text.strip()))
    if ":" not in bare[10:]:
        raise ValueError("a day without a time")
    return datetime.fromisoformat(bare)


def _is_moment(text: str | None) -> bool:
    try:
        return bool(_moment(text or ""))
    except ValueError:
        return False
