"""Public traces are read as published, other columns are named by the user, and what is left out is said."""

import gzip
import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.management.commands.advise import trace_columns
from advisor.workload.fixed.traffic import with_traffic
from advisor.workload.schema import parse
from advisor.workload.text import WorkloadError
from advisor.workload.traces.files import with_traces
from advisor.workload.traces.prefixes import block_tokens, hit_fraction
from advisor.workload.traces.requests import MAX_REQUESTS, notes_of, recorded, requests_of, text_of_trace
from catalog.loading.bounded import BoundedError
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
    text = "timestamp_s,status,input_tokens,output_tokens\n0,200,10,1\n1,500,10,1\n2,ok,10,0\n5,200,30,3\n"
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


# --- the same trace in every form ---------------------------------------------------------------------------------

NAMES = [
    ("{}", "TIMESTAMP", "ContextTokens", "GeneratedTokens"), ("{}", "Timestamp", "Request tokens", "Response tokens"),
    ("{}", "arrival_timestamp", "prompt_size", "token_size"), ("{}", "arrived_at", "num_prefill_tokens",
    "num_decode_tokens"), ("{}", "timestamp", "input_length", "output_length"), ("{}", "ts", "inputTokens", "out"),
    ("{} [{unit}]", "Request Time", "# Prompt Tokens", "# Completion Tokens"),
    ("{}_{unit}", "start_time", "input_len", "output_len"), ("{}({unit})", "time", "prompt_length", "response_length"),
    ("{}_{unit}", "date_time", "input_token_num", "num_tokens_output"),
]  # fmt: skip
PER_S = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
ZONES = ["", "+00:00", "Z", " UTC", "+08:00", " -0500"]
START = datetime(2024, 5, 10, 23, 59, 58, tzinfo=UTC)
requests = st.lists(
    st.tuples(st.integers(0, 10**6), st.integers(1, 99_999), st.integers(0, 9_999)), min_size=3, max_size=30
).filter(lambda rows: len({at for at, _, made in rows if made}) > 1)


def written_time(at_ms: int, form: str, unit: str, zone: str) -> str:
    if form == "iso":
        return f"{(START + timedelta(milliseconds=at_ms)).strftime('%Y-%m-%d %H:%M:%S.%f')}{zone}"
    start = 1_700_000_000 if form == "unix" else 0
    return f"{(start * 1000 + at_ms) * PER_S[unit] / 1000:.6f}".rstrip("0").rstrip(".")


@settings(max_examples=150, deadline=None)
@given(requests, st.data())
def test_one_trace_in_every_form_is_one_workload(rows: list[tuple[int, int, int]], data: st.DataObject) -> None:
    """Names, units, zones, delimiters, quotes, line ends, marks, order, further columns, gzip: nothing else changes."""
    name, arrival, given_tokens, made_tokens = data.draw(st.sampled_from(NAMES))
    form = data.draw(st.sampled_from(["iso", "unix", "number"]))
    unit = data.draw(st.sampled_from(sorted(PER_S))) if "{unit}" in name or form == "unix" else "s"
    if form == "unix" and unit == "ns":
        unit = "us"  # a float has no room for ns since 1970
    zone = data.draw(st.sampled_from(ZONES))
    columns = [name.format(arrival, unit=unit), given_tokens, made_tokens]
    table = [[written_time(at, form, unit, zone), str(got), str(made)] for at, got, made in rows]
    mapped: dict[str, str] = {}
    if data.draw(st.booleans()):
        columns = ["Wann", "rein raus", "=3"]
        mapped = {"arrival" if form != "number" else f"arrival_{unit}": "wann", "input_tokens": "Rein Raus",
                  "output_tokens": "=3"}  # fmt: skip
    style = data.draw(st.sampled_from([",", ";", "\t", "|", "jsonl", "list", "object", "pretty"]))
    if style in (",", ";", "\t", "|"):
        quote = '"' if data.draw(st.booleans()) or style == "," else ""
        if quote and data.draw(st.booleans()):
            table = [[at, f"{int(got):,}", made] for at, got, made in table]
        lines = [[*columns, "Model", "Note"], *([*row, "m", ""] for row in table)]
        end = data.draw(st.sampled_from(["\n", "\r\n", "\r"]))
        text = end.join(style.join(f"{quote}{cell}{quote}" for cell in line) for line in lines) + end
        text += data.draw(st.sampled_from(["", end, style * 4 + end]))
    else:
        whole = data.draw(st.booleans())
        objects = [
            dict(zip(columns, [row[0] if form == "iso" else float(row[0]), *(map(int, row[1:]) if whole else row[1:])],
                     strict=True)) | {"x": data.draw(st.sampled_from([None, "NaN", 1.5, []]))} for row in table
        ]  # fmt: skip
        if set(columns) >= {"timestamp", "input_length", "output_length"}:
            objects = [each | {"chat_id": 1} for each in objects]  # in seconds
        wrapped = {"requests": objects} if style == "object" else objects
        text = jsonl(objects) if style == "jsonl" else json.dumps(wrapped, indent=2 if style == "pretty" else None)
        text = text.replace('"NaN"', data.draw(st.sampled_from(["NaN", "Infinity", "-Infinity"])))
    content = text.encode(data.draw(st.sampled_from(["utf-8", "utf-8-sig", "utf-16"])))
    content = gzip.compress(content) if data.draw(st.booleans()) else content
    found = recorded(text_of_trace(content, 2**20), mapped)
    kept = sorted(row for row in rows if row[2])
    assert [each[1:] for each in found.requests] == [(got, made) for _, got, made in kept]
    assert [each[0] for each in found.requests] == pytest.approx([(at - kept[0][0]) / 1e3 for at, *_ in kept], abs=2e-6)
    left_out = len(rows) - len(kept)
    assert any(f"{left_out} requests without" in note for note in found.notes) == bool(left_out)
    if form == "number" and not mapped and name == "{}" and "chat_id" not in text:
        assert any("states no unit: its times count as seconds" in note for note in found.notes), "a guess is said"


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_a_spoiled_cell_is_refused_by_its_line(data: st.DataObject) -> None:
    rows = [["0", "10", "5"], ["1.5", "20", "6"], ["3", "30", "7"], ["4", "40", "8"]]
    line, column = data.draw(st.integers(1, 3)), data.draw(st.integers(0, 2))
    wrong = st.sampled_from(["x", "nan", "inf", "-inf", "-1", "1e99", "2024-05-10", "2024-05-10 00:00:00", "1.234.567",
                             "12,5", "0x10", "[]", "\u221e", "9" * 400])  # fmt: skip
    if column:
        wrong |= st.sampled_from(["1.5", "12.000", "4.808"])
    rows[line][column] = data.draw(wrong)
    as_json = data.draw(st.booleans())
    head = ["arrival_s", "input_tokens", "output_tokens"]
    text = (
        jsonl([dict(zip(head, row, strict=True)) for row in rows]) if as_json
        else "".join(";".join(row) + "\n" for row in [head, *rows])
    )  # fmt: skip
    with pytest.raises(WorkloadError) as caught:
        recorded(text)
    assert f"line {line + 1 + (not as_json)}: " in caught.value.errors[0]["message"]


@settings(max_examples=200, deadline=None)
@given(
    st.binary(max_size=300)
    | st.text(max_size=300).map(str.encode)
    | st.text(alphabet='{}[]",:;\n\r\t 019.eE-+timestampinoutNaN_', max_size=300).map(str.encode)
)
def test_nonsense_is_refused_in_words(content: bytes) -> None:
    with pytest.raises((WorkloadError, BoundedError)):
        recorded(text_of_trace(content, 2**20))


@pytest.mark.parametrize(("text", "says"), [
    ("time,in,out\n0,4,808,10\n1,2,3\n", "line 2: has 4 cells, but the header has 3"),
    ("time,in,in,out\n0,4,808,10\n", "has two columns in"),
    ("date,time of day,in,out\n2024-05-10,18:17:03,4,10\n", "line 2: '2024-05-10' is not a time in seconds"),
    ("time,in,out\n2024-05-10 00:00:00Z,4,10\n2024-05-10 00:00:01,4,10\n", "some times have a zone, others have none"),
    ("time,in,out\n2024-05-10 00:00:00,4,10\n7,4,10\n", "line 3: '7' is not a time"),
    ('{"timestamp": 0, "input_length": 5, "output_length": 5}\n{"delay": 3, "input_length": 5, "output_length": 5}\n',
     "line 2: None is not a time"),
    ('{"time": 0, "in": 5, "out": 5}\n{"time": 0, "in": 5, "out"\n', "line 2: is not JSON"),
])  # fmt: skip
def test_a_shifted_or_doubtful_trace_is_refused(text: str, says: str) -> None:
    with pytest.raises(WorkloadError) as caught:
        recorded(text)
    assert says in caught.value.errors[0]["message"]


def test_an_error_shows_the_columns_and_a_mapping_that_works() -> None:
    text = "id,ts_utc,n prompt,n answer\nx,2024-05-10 00:00:00,5,7\ny,2024-05-10 00:00:01,6,8\n"
    with pytest.raises(WorkloadError) as caught:
        recorded(text)
    (found,) = caught.value.errors
    assert "its columns are id, ts_utc, n prompt, n answer" in found["message"]
    flag = re.search(r"--map '(.*)'", found["allowed"])
    assert flag and recorded(text, trace_columns(flag[1])).requests == [(0.0, 5, 7), (1.0, 6, 8)]


def test_a_cut_or_packed_file_is_refused_by_name() -> None:
    whole = gzip.compress(AZURE.encode())
    for content, says in (
        (whole[:-12], "cut off"), (b"PAR1" + b"x" * 50, "is Parquet"), (b"PK\x03\x04x", "is zip"),
        (gzip.compress(b" " * 2**21), "is larger than"), (b"\xff\xfea", "not UTF-16"),
    ):  # fmt: skip
        with pytest.raises(BoundedError, match=says):
            text_of_trace(content, 2**20)


def test_an_estimate_maps_columns_like_a_workload() -> None:
    text = "wann,rein,raus\n0,4808,10\n52,3180,8\n98.1,110,27\n"
    columns = {"arrival_ms": "wann", "input_tokens": "rein", "output_tokens": "raus"}
    found = with_traffic({"trace": {"csv": text}, "trace_columns": columns})
    assert (found["isl"], found["osl"]) == (2699, 15) and requests_of(found["trace"]["csv"])[2][0] == 0.0981
    with pytest.raises(WorkloadError, match="there is no trace"):
        with_traffic({"trace_columns": columns})
