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
from typing import Literal

from advisor.workload.text import WorkloadError, error

FIELD = "traffic.trace"
COLUMNS = ("arrival_s", "input_tokens", "output_tokens")
SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
# What a user can say a column is
Mapped = Literal["arrival_s", "arrival_ms", "arrival_us", "arrival_ns", "input_tokens", "output_tokens"]
UNITS = {"sec": "s", "secs": "s", "seconds": "s", "millis": "ms", "milliseconds": "ms", "micros": "us", "nanos": "ns"}
ARRIVAL = (
    "arrival", "arrival_time", "arrival_timestamp", "arrived_at", "timestamp", "start_time", "start_timestamp",
    "request_time", "request_timestamp", "request_start_time", "request_arrival_time", "t_arrival", "relative_time",
    "created_at", "created", "datetime", "date_time", "date", "time", "start", "ts", "t",
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
# A time without a unit that is larger than this in seconds (the year 5138) is a Unix time in a smaller one
LAST_S = 1e11


@dataclass(frozen=True, kw_only=True, slots=True)
class Chosen:
    """The columns of a trace, by name; `seconds`: reads an arrival, raising ValueError."""

    arrival: str
    inputs: str
    outputs: str
    seconds: Callable[[str], float]


def chosen(names: Sequence[str], first: Mapping[str, str], mapped: Mapping[str, str], lines_of_json: bool) -> Chosen:
    """The columns among `names`, as the user mapped them or by their usual names. WorkloadError: one is missing.

    first: the first row, whose time tells a unit that no name does. mapped: what a column is (Mapped) -> its name.
    """
    unknown = [column for column in mapped.values() if column not in names]
    if unknown:
        raise _refused(f"has no column {unknown[0]}: its columns are {_listed(names)}", "columns that the trace has")
    arrival, unit = _arrival(names, mapped)
    found = {
        "arrival_s": arrival,
        **{
            key: mapped.get(key) or _named(names, usual)
            for key, usual in zip(COLUMNS[1:], (INPUT, OUTPUT), strict=True)
        },
    }
    for key, column in found.items():
        if not column:
            raise _refused(
                f"has no column {key}: its columns are {_listed(names)}",
                f"a header line {','.join(COLUMNS)}, a usual name, or traffic.trace_columns: {{{key}: NAME}}",
            )
    if not unit and lines_of_json and "hash_ids" in names and "chat_id" not in names:
        unit = "ms"  # Mooncake's form
    scale = SECONDS.get(unit) or _scale(first.get(arrival, ""))
    return Chosen(
        arrival=arrival, inputs=found["input_tokens"], outputs=found["output_tokens"],
        seconds=lambda text: _seconds(text, scale),
    )  # fmt: skip


def _refused(message: str, allowed: str) -> WorkloadError:
    return WorkloadError([error(FIELD, message, allowed)])


def _listed(names: Sequence[str]) -> str:
    return ", ".join(name[:40] for name in names[:12] if name) or "none"


def _plain(name: str) -> str:
    """ContextTokens, `Request tokens` and context_tokens in one spelling."""
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _named(names: Sequence[str], usual: Sequence[str]) -> str:
    """The column with the first of the usual names; empty: there is none."""
    plain = {_plain(name): name for name in reversed(names)}
    return next((plain[_plain(each)] for each in usual if _plain(each) in plain), "")


def _arrival(names: Sequence[str], mapped: Mapping[str, str]) -> tuple[str, str]:
    """(column of the arrival, its unit); the unit is empty if no name states it."""
    for unit in SECONDS:
        if column := mapped.get(f"arrival_{unit}"):
            return column, unit
    if column := _named(names, ARRIVAL):
        return column, ""
    for name in names:
        words = re.sub(r"(?<=[a-z])(?=[A-Z])|[\s()\[\]]+", "_", name).lower()
        stem, _, end = words.strip("_").rpartition("_")
        unit = UNITS.get(end, end)
        if (unit in SECONDS or unit == "utc") and _named([stem], ARRIVAL):
            return name, unit if unit in SECONDS else ""
    return "", ""


def _scale(text: str) -> float:
    """Factor that turns a time without a stated unit into seconds.

    Only the size of a Unix time shows whether it is in s, ms, us or ns. Smaller numbers and ISO texts count as seconds.
    """
    try:
        value = abs(float(text))
    except ValueError:
        return 1.0
    return next((scale for scale in SECONDS.values() if value * scale <= LAST_S), 1e-9)


def _seconds(text: str, scale: float) -> float:
    """A time as a number, or as an ISO text such as 2023-11-16 18:17:03.9799600. ValueError: neither."""
    try:
        return float(text) * scale
    except ValueError:
        moment = datetime.fromisoformat(text.strip().removesuffix("UTC").rstrip())
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
