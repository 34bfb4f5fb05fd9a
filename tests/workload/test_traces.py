"""Public traces are read as published, other columns are named by the user, and what is left out is said."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.workload.schema import parse
from advisor.workload.text import WorkloadError
from advisor.workload.traces.files import with_traces
from advisor.workload.traces.prefixes import block_tokens, hit_fraction
from advisor.workload.traces.requests import MAX_REQUESTS, notes_of, recorded, requests_of
from tests.workload.test_workload_refused import refused

SAME = [(0.0, 4808, 10), (0.052, 3180, 8), (0.0981, 110, 27)]
AZURE = (
    "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.9799600,4808,10\n"
    "2023-11-16 18:17:04.0319600,3180,8\n2023-11-16 18:17:04.0780600,110,27\n"
)
MOONCAKE: list[dict[str, Any]] = [
    {"timestamp": 0, "input_length": 4808, "output_length": 10, "hash_ids": [*range(10)]},
    {"timestamp": 52, "input_length": 3180, "output_length": 8, "hash_ids": [0, 1, *range(20, 25)]},
    {"timestamp": 98.1, "input_length": 110, "output_length": 27, "hash_ids": [40]},
]


def jsonl(rows: list[dict[str, Any]]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


@pytest.mark.parametrize("text", [
    AZURE,
    AZURE.replace("600,", "600+00:00,"),
    "TIMESTAMP,NumImages,ContextTokens,GeneratedTokens\n2024-10-15 00:00:00,0,4808,10\n"
    "2024-10-15 00:00:00.0520000,2,3180,8\n2024-10-15 00:00:00.0981000,0,110,27\n",
    "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
    "19440110.0,a,43,GPT-4,4808,10,4818,Conversation log\n19440110.052,b,2,ChatGPT,3180,8,3188,API log\n"
    "19440110.0981,a,8,GPT-4,110,27,137,Conversation log\n",
    "request_id,request_type,application_id,arrival_timestamp,batch_size,prompt_size,token_size\n"
    "0,2,0,0.0,1,4808,10\n1,2,0,0.052,1,3180,8\n2,2,0,0.0981,1,110,27\n",
    "arrived_at,num_prefill_tokens,num_decode_tokens\n7.0,4808,10\n7.052,3180,8\n7.0981,110,27\n",
    "arrival_ms;prompt_len;output_len\n0;4808;10\n52;3180;8\n98.1;110;27\n",
    "timestamp (us)\tprompt tokens\tcompletion tokens\n0\t4808\t10\n52000\t3180\t8\n98100\t110\t27\n",
    "timestamp,input_tokens,output_tokens\n1700000000000,4808,10\n1700000000052,3180,8\n1700000000098.1,110,27\n",
    "Timestamp (UTC),Prompt Token Count,Completion Token Count\n2024-10-15 00:00:00 UTC,\"4,808\",10\n"
    "2024-10-15 00:00:00.052 UTC,\"3,180\",8\n2024-10-15 00:00:00.0981 UTC,110,27\n",
    "requestStartTimeMs,gen_ai.usage.input_tokens,gen_ai.usage.output_tokens\n0,4808,10\n52,3180,8\n98.1,110,27\n",
    jsonl(MOONCAKE),
    json.dumps(MOONCAKE),
    jsonl([{**row, "timestamp": row["timestamp"] / 1000, "chat_id": 1, "turn": 1, "type": "text"} for row in MOONCAKE]),
    jsonl([{"timestamp": r["timestamp"] / 1000, "data": {"input_tokens": r["input_length"],
        "output_tokens": r["output_length"]}} for r in MOONCAKE]),
], ids=["azure-2023", "azure-2024", "azure-images", "burstgpt", "splitwise", "vidur", "semicolons", "tabs-us",
    "unix-ms", "utc-thousands", "camel-otel", "mooncake", "json-list", "bailian", "nested"])  # fmt: skip
def test_published_forms_have_the_same_requests(text: str) -> None:
    found = requests_of(text)
    assert [(given, made) for _, given, made in found] == [(given, made) for _, given, made in SAME]
    assert [at for at, _, _ in found] == pytest.approx([at for at, _, _ in SAME], abs=2e-4)
    spec = parse({"model": "m", "traffic": {"trace": {"csv": text}}})
    assert parse(spec) == spec, "what was read once is read again as the same"


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 9999), st.integers(0, 999)), min_size=2, max_size=40))
def test_order_units_and_empty_requests_change_nothing_else(rows: list[tuple[int, int, int]]) -> None:
    kept = sorted(row for row in rows if row[1] and row[2])
    text = "output_tokens,arrival_ms,x,input_tokens\n" + "".join(f"{made},{at},,{got}\n" for at, got, made in rows)
    if len({at for at, _, _ in kept}) < 2:
        with pytest.raises(WorkloadError, match="only one arrival time"):
            requests_of(text)
        return
    found = recorded(text)
    assert [each[1:] for each in found.requests] == [(got, made) for _, got, made in kept]
    start = kept[0][0]
    assert [each[0] for each in found.requests] == pytest.approx([(at - start) / 1000 for at, _, _ in kept])
    left_out = len(rows) - len(kept)
    assert any(f"{left_out} requests without input or output tokens" in note for note in found.notes) == bool(left_out)


def test_the_user_names_columns_with_their_unit() -> None:
    text = "wann,rein,raus\n0,4808,10\n52,3180,8\n98.1,110,27\n"
    columns = {"arrival_ms": "wann", "input_tokens": "rein", "output_tokens": "raus"}
    assert recorded(text, columns).requests == requests_of(jsonl(MOONCAKE))
    spec = parse({"model": "m", "traffic": {"trace": {"csv": text}, "trace_columns": columns}})
    assert spec["traffic"]["trace_columns"] == {} and spec["traffic"]["output_tokens"]["mean"] == 15


@pytest.mark.parametrize(("text", "columns", "says"), [
    ("wann,rein,raus\n0,1,1\n", {}, "has no column arrival_s: its columns are wann, rein, raus"),
    ("time,rein,raus\n0,1,1\n", {"input_tokens": "rain"}, "has no column rain: its columns are time, rein, raus"),
    ("time,in\n0,1\n", {}, "has no column output_tokens"),
    (AZURE.replace("2023-11-16 18:17:04.0319600", "yesterday"), {}, "line 3: 'yesterday' is not a time"),
    (jsonl(MOONCAKE).replace("3180", '"many"'), {}, "line 2: 'many' is not a number of tokens"),
    (jsonl(MOONCAKE).replace("3180", "NaN"), {}, "line 2: 'NaN' is not a number of tokens (input_length)"),
    (jsonl(MOONCAKE).replace("[40]", "[[40]]"), {}, "line 3: hash_ids is not a list of numbers"),
    ('{"timestamp": 0\n', {}, "is not JSON"),
    ("[1, 2]", {}, "line 1: is not an object"),
    ("[]", {}, "has no column arrival_s"),
    ("# only a note", {}, "has no column arrival_s"),
    ('[{"conversations": [{"from": "human", "value": "hi"}]}]', {}, "neither arrivals nor numbers of tokens"),
])  # fmt: skip
def test_a_trace_that_cannot_be_read_says_why(text: str, columns: dict[str, str], says: str) -> None:
    with pytest.raises(WorkloadError) as caught:
        recorded(text, columns)
    (found,) = caught.value.errors
    assert found["field"] == "traffic.trace" and says in found["message"]


def test_columns_without_a_trace_or_of_unknown_keys_are_refused() -> None:
    lengths = {"input_tokens": 5, "output_tokens": 5, "requests_per_s": 1}
    with pytest.raises(WorkloadError, match="there is no traffic.trace"):
        parse({"model": "m", "traffic": {**lengths, "trace_columns": {"arrival_s": "x"}}})
    found = refused({"model": "m", "traffic": {"trace": {"csv": AZURE}, "trace_columns": {"arrival_days": "x"}}})
    assert any("trace_columns" in field for field in found)


def test_failed_requests_are_left_out_and_said_in_the_workload() -> None:
    text = "timestamp,status,input_tokens,output_tokens\n0,200,10,1\n1,500,10,1\n2,ok,10,0\n5,200,30,3\n"
    spec = parse({"model": "m", "traffic": {"trace": {"csv": text}}})
    said = notes_of(spec["traffic"]["trace"]["csv"])
    assert said == ("1 failed requests were left out", "1 requests without input or output tokens were left out")
    assert spec["traffic"]["requests_per_s"]["mean"] == pytest.approx(0.2)


def test_of_more_requests_the_busiest_stretch_is_used() -> None:
    """One request a second, and a thousand seconds with twenty."""
    times = [*(float(n) for n in range(30_000)), *(10_000 + n / 19 for n in range(19_000))]
    text = "arrival_s,input_tokens,output_tokens\n" + "".join(f"{at},1,1\n" for at in times)
    found = recorded(text)
    assert len(found.requests) == MAX_REQUESTS and found.requests[-1][0] == pytest.approx(1000, rel=0.01)
    assert "of 49,000 requests in 29,999 s, the 20,000 of the busiest 1,000 s" in found.notes[-1]
    assert recorded(found.text).text == found.text


# --- shared prefixes --------------------------------------------------------------------------------------------


def test_hash_ids_give_the_hit_rate_unless_it_is_stated() -> None:
    """The second prompt shares two blocks of 512 tokens: 1,024 of 8,098 tokens."""
    spec = parse({"model": "m", "traffic": {"trace": {"csv": jsonl(MOONCAKE)}}})
    assert spec["traffic"]["prefix_cache_hit_rate"] == pytest.approx(1024 / 8098, abs=5e-4)
    assert "12.6% of the prompt tokens" in notes_of(spec["traffic"]["trace"]["csv"])[0]
    stated = parse({"model": "m", "traffic": {"trace": {"csv": jsonl(MOONCAKE)}, "prefix_cache_hit_rate": 0.0}})
    assert stated["traffic"]["prefix_cache_hit_rate"] == 0.0


@pytest.mark.parametrize("block", [16, 64, 512])
def test_the_block_size_follows_from_lengths_and_numbers_of_blocks(block: int) -> None:
    prompts = [(tokens, range(-(-tokens // block))) for tokens in range(1, 3000, 7)]
    assert block_tokens(prompts) == block


def test_a_block_counts_only_after_all_blocks_before_it() -> None:
    assert hit_fraction([(512, [1]), (1024, [2, 1])]) == 0.0
    assert hit_fraction([(512, [1]), (512, [1])]) == 511 / 1024, "the last token of a prompt is computed"


# --- files ------------------------------------------------------------------------------------------------------


def test_a_file_is_read_like_its_text(tmp_path: Path) -> None:
    (tmp_path / "t.jsonl").write_text(jsonl(MOONCAKE))
    spec = parse({"model": "m", "traffic": {"trace": "t.jsonl"}})
    assert with_traces(spec, tmp_path) == parse({"model": "m", "traffic": {"trace": {"csv": jsonl(MOONCAKE)}}})
    stated = parse({"model": "m", "traffic": {"trace": "t.jsonl", "prefix_cache_hit_rate": 0.0}})
    assert with_traces(stated, tmp_path)["traffic"]["prefix_cache_hit_rate"] == 0.0


@pytest.mark.parametrize("status", ["\u00b2", "9" * 5000, "200", "\u00b2\u00b2\u00b2"])
def test_what_is_no_status_of_http_is_no_failure(status: str) -> None:
    rows = [{"t": at, "in": 5, "out": 5, "status": status} for at in (1, 2)]
    assert len(recorded(json.dumps(rows)).requests) == 2
