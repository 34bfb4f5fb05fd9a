"""What follows from traffic: rates from users, curves, batches and traces; contradictions; traces read line by line."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.workload.fields import Section, check_hours
from advisor.workload.schema import parse
from advisor.workload.text import WorkloadError
from advisor.workload.traces.files import lengths, with_traces
from advisor.workload.traces.requests import requests_of
from advisor.workload.traffic import Lengths, trace_of, trace_statistics, users_of
from tests.workload.test_workload_refused import GOOD, refused, with_traffic

HEAD = "arrival_s,input_tokens,output_tokens\n"
LENGTHS = {"input_tokens": 500, "output_tokens": 100}
BUSY = [1.0] * 42 + [0.0] * 126  # a quarter of the week


def csv(*rows: tuple[float, int, int]) -> str:
    return HEAD + "".join(f"{at},{given},{made}\n" for at, given, made in rows)


def traffic(**given: Any) -> dict[str, Any]:
    return parse({"model": "m", "traffic": LENGTHS | given})["traffic"]


def traced(text: str, **given: Any) -> dict[str, Any]:
    return {"model": "m", "traffic": {"trace": {"csv": text}, **given}}


# --- rates ------------------------------------------------------------------------------------------------------


def test_the_peak_is_the_mean_of_the_busiest_hour_unless_it_is_stated():
    assert traffic(requests_per_s=2, load_curve=BUSY)["requests_per_s"] == {"mean": 2, "peak": 8}
    assert traffic(requests_per_s={"mean": 2, "peak": 9}, load_curve=BUSY)["requests_per_s"] == {"mean": 2, "peak": 9}
    assert traffic(requests_per_s=2, load_curve=[3.0] * 168)["requests_per_s"] == {"mean": 2, "peak": 2}


def test_users_ask_at_the_peak_and_less_over_the_week():
    found = traffic(users={"active": 60, "think_s": 30}, load_curve=BUSY)["requests_per_s"]
    assert found == {"mean": 0.5, "peak": 2}


def test_a_peak_below_the_busiest_hour_is_refused_with_what_it_takes():
    found = refused(with_traffic(requests_per_s={"mean": 2, "peak": 7.9}, load_curve=BUSY))
    assert "is below 8, the mean of the load curve's busiest hour" in found["traffic.requests_per_s.peak"]["message"]
    assert found["traffic.requests_per_s.peak"]["allowed"] == ">= 8, or remove it"
    assert traffic(requests_per_s={"mean": 2, "peak": 8}, load_curve=BUSY)


def test_a_peak_below_the_mean_is_refused_as_that():
    found = refused(with_traffic(requests_per_s={"mean": 9, "peak": 2}))
    assert found["traffic.requests_per_s.peak"]["message"] == "peak 2.0 is below the mean 9.0"
    assert traffic(requests_per_s={"mean": 9, "peak": 9})["requests_per_s"]["peak"] == 9


def test_users_and_a_rate_may_stand_together_where_they_agree():
    users = {"active": 60, "think_s": 30}
    assert traffic(requests_per_s={"mean": 1, "peak": 2}, users=users)["requests_per_s"]["mean"] == 1
    found = refused(with_traffic(requests_per_s={"mean": 1, "peak": 3}, users=users))
    assert found["traffic.users"]["message"] == "contradicts traffic.requests_per_s"


def test_a_p95_between_the_mean_and_the_most_of_a_log_normal_is_taken():
    """exp(1.645^2 / 2) = 3.87 times the mean is the most that a log-normal can have."""
    assert traffic(input_tokens={"mean": 100, "p95": 100}, requests_per_s=1)["input_tokens"] == {
        "mean": 100,
        "p95": 100,
    }
    assert traffic(input_tokens={"mean": 100, "p95": 386}, requests_per_s=1)["input_tokens"]["p95"] == 386
    assert (
        "use a trace"
        in refused(with_traffic(input_tokens={"mean": 100, "p95": 388}))["traffic.input_tokens.p95"]["message"]
    )
    assert (
        refused(with_traffic(input_tokens={"mean": 100, "p95": 99}))["traffic.input_tokens.p95"]["allowed"] == ">= 100"
    )


@pytest.mark.parametrize("given", [{}, {"mean": 5, "trace": "a.csv"}])
def test_lengths_have_one_form(given):
    assert "must use exactly one form" in refused(with_traffic(input_tokens=given))["traffic.input_tokens"]["message"]


def test_hit_rates_of_both_caches_add_up_to_at_most_all():
    assert traffic(requests_per_s=1, prefix_cache_hit_rate=0.5, host_cache_hit_rate=0.5)["host_cache_hit_rate"] == 0.5
    found = refused(with_traffic(prefix_cache_hit_rate=0.5, host_cache_hit_rate=0.51))
    assert "must add up to at most 1" in found["traffic"]["message"]
    assert traffic(requests_per_s=1, prefix_cache_hit_rate=1.0)["host_cache_hit_rate"] is None


@pytest.mark.parametrize("hours", [0, 24, 168])
def test_the_grid_has_the_hours_of_a_day_or_a_week(hours):
    assert check_hours([0.4] * hours) == [0.4] * hours
    spec = {**GOOD, "tco": {"grid_kgco2e_per_kwh": [0.4] * (hours + 1)}}
    assert f"has {hours + 1} numbers, not 24 or 168" in str(refused(spec))


def test_whole_numbers_may_be_written_with_a_point():
    assert parse({**GOOD, "owned": {"h100": 2.0}})["owned"] == {"h100": 2}
    assert Section.whole_numbers(2.5) == 2.5
    assert isinstance(Section.whole_numbers(2.0), int)


# --- traces -----------------------------------------------------------------------------------------------------


def test_a_trace_is_sorted_and_begins_at_its_first_request():
    assert requests_of(csv((12.5, 30, 3), (10.0, 10, 1), (11.0, 20, 2))) == [(0.0, 10, 1), (1.0, 20, 2), (2.5, 30, 3)]


def test_a_trace_may_have_further_columns_in_any_order_and_a_mark_of_utf_8():
    text = "\ufeffoutput_tokens,user,arrival_s,input_tokens\n1,a,0,10\n2,b,4,20.0\n"
    assert requests_of(text) == [(0.0, 10, 1), (4.0, 20, 2)]


@pytest.mark.parametrize(("text", "says", "allowed"), [
    ("arrival_s,input_tokens\n0,1\n", "has no column output_tokens", "header line"),
    ("", "has no column arrival_s", "header line"),
    (csv((0, 1, 1)), "has only one arrival time", "two or more"),
    (csv((3, 1, 1), (3, 1, 1)), "has only one arrival time", "two or more"),
    (HEAD + "0,1,1\nx,1,1\n", "line 3: 'x' is not a time in seconds", "0 .. 1e+10"),
    (HEAD + "0,1,1\n-1,1,1\n", "line 3: '-1' is not a time in seconds", "0 .. 1e+10"),
    (HEAD + "0,1,1\n1,-1,1\n", "line 3: '-1' is not a number of tokens", "0 .. 1e+07"),
    (HEAD + "0,1,1\n1,2\n", "line 3: None is not a number of tokens", "0 .. 1e+07"),
    (HEAD + "0,1,1\nnan,1,1\n", "line 3: 'nan' is not a time", "0 .. 1e+10"),
    (HEAD + "0,1," + "1" * 140_000 + "\n", "is not CSV", "header line"),
])  # fmt: skip
def test_a_trace_that_cannot_be_used_names_the_line(text, says, allowed):
    with pytest.raises(WorkloadError) as caught:
        requests_of(text)
    (found,) = caught.value.errors
    assert found["field"] == "traffic.trace" and says in found["message"] and allowed in found["allowed"]


def test_figures_of_a_trace_by_hand():
    """Three gaps in 6 s. The 95th percentile of four lengths is the largest."""
    found = trace_statistics(csv((0, 10, 4), (1, 20, 4), (2, 30, 4), (6, 100, 8)))
    assert found == {
        "input_tokens": {"mean": 40, "p95": 100},
        "output_tokens": {"mean": 5, "p95": 8},
        "requests_per_s": {"mean": 0.5, "peak": 0.5},
    }


def test_a_p95_of_a_trace_is_never_below_its_mean():
    """Of 40 lengths the 38th counts; one enormous one beyond it makes the mean larger."""
    found = trace_statistics(csv(*((n, 1, 1) for n in range(39)), (39, 4001, 1)))
    assert found["input_tokens"] == {"mean": 101, "p95": 101}
    found = trace_statistics(csv(*((n, n + 1, 1) for n in range(40))))
    assert found["input_tokens"]["p95"] == 38


def test_the_peak_of_a_long_trace_is_its_busiest_minute():
    """One request a second for ten minutes, but thirty more in the minute from second 300 on: 90 in 60 s."""
    calm = [(float(n), 1, 1) for n in range(601)]
    burst = [(300 + 2 * n + 0.5, 1, 1) for n in range(30)]
    found = trace_statistics(csv(*calm, *burst))["requests_per_s"]
    assert found == {"mean": pytest.approx(630 / 600), "peak": 1.5}
    short = trace_statistics(csv(*calm[:599], *burst))["requests_per_s"]  # under ten minutes: too few windows
    assert short["peak"] == short["mean"] == pytest.approx(628 / 598)


@settings(max_examples=30, deadline=None, derandomize=True)
@given(st.lists(st.floats(0, 5000), min_size=2, max_size=200, unique=True))
def test_the_peak_is_never_below_the_mean_and_is_a_window_that_exists(arrivals):
    text = csv(*((at, 1, 1) for at in arrivals))
    times = [at for at, _, _ in requests_of(text)]
    found = trace_statistics(text)["requests_per_s"]
    busiest = max(sum(at - 60 < other <= at for other in times) for at in times) / 60
    assert found["peak"] == pytest.approx(max(found["mean"], busiest) if times[-1] >= 600 else found["mean"])


# --- a trace in a workload --------------------------------------------------------------------------------------

TRACE = csv((0, 100, 10), (10, 200, 20), (40, 300, 30))


def test_a_trace_says_lengths_and_rates_and_the_workload_is_its_own_file():
    spec = parse(traced(TRACE))
    assert spec["traffic"]["input_tokens"] == {"mean": 200, "p95": 300}
    assert spec["traffic"]["requests_per_s"] == {"mean": 0.05, "peak": 0.05}
    assert parse(spec) == spec


@pytest.mark.parametrize(("given", "field"), [
    ({"input_tokens": 200}, "traffic.input_tokens"), ({"output_tokens": 7}, "traffic.output_tokens"),
    ({"requests_per_s": 1}, "traffic.requests_per_s"), ({"users": {"active": 1, "think_s": 1}}, "traffic.users"),
])  # fmt: skip
def test_what_is_stated_beside_a_trace_must_agree_with_it(given, field):
    assert refused(traced(TRACE, **given))[field]["message"] == "contradicts traffic.trace"


def test_what_is_stated_as_the_trace_has_it_passes():
    assert parse(traced(TRACE, input_tokens={"mean": 200, "p95": 300}))["traffic"]["input_tokens"]["mean"] == 200


def test_embeddings_of_a_trace_make_vectors_whatever_it_says_of_answers():
    spec = parse({**traced(TRACE), "kind": "embedding"})
    assert spec["traffic"]["output_tokens"] == {"mean": 1, "p95": 1}


def test_a_batch_takes_lengths_from_a_trace_and_its_rate_from_the_deadline():
    spec = parse({**traced(TRACE), "kind": "batch", "batch": {"requests": 7200, "deadline_hours": 1, "every_hours": 4}})
    assert spec["traffic"]["input_tokens"] == {"mean": 200, "p95": 300}
    assert spec["traffic"]["requests_per_s"] == {"mean": 0.5, "peak": 2}


def test_the_engine_gets_the_trace_and_the_users():
    spec = parse(traced(TRACE))
    found = trace_of(spec["traffic"])
    assert found and (found.arrival_s, found.input_tokens, found.output_tokens) == (
        (0.0, 10.0, 40.0), (100, 200, 300), (10, 20, 30),
    )  # fmt: skip
    assert trace_of(traffic(requests_per_s=1)) is None
    users = users_of(traffic(users={"active": 60, "think_s": 30}))
    assert users and (users.active_requests, users.think_s) == (60, 30)
    assert users_of(traffic(requests_per_s=1)) is None


# --- trace files ------------------------------------------------------------------------------------------------


def test_a_trace_file_is_read_beside_the_workload(tmp_path: Path):
    (tmp_path / "day.csv").write_text(TRACE, encoding="utf-8-sig")
    spec = parse({"model": "m", "traffic": {"trace": "day.csv"}})
    assert with_traces(spec, tmp_path) == parse(traced(TRACE))


def test_a_file_of_lengths_gives_mean_and_p95(tmp_path: Path):
    rows = "".join(f"{n},x\n" for n in range(1, 21))
    (tmp_path / "in.csv").write_text("input_tokens,other\n" + rows)
    spec = parse({"model": "m", "traffic": {**LENGTHS, "input_tokens": {"trace": "in.csv"}, "requests_per_s": 1}})
    found = with_traces(spec, tmp_path)["traffic"]
    assert (found["input_tokens"]["mean"], found["input_tokens"]["p95"]) == (10.5, 19)
    assert found["output_tokens"] == {"mean": 100, "p95": 100}


def test_a_p95_of_a_file_is_never_below_its_mean(tmp_path: Path):
    (tmp_path / "in.csv").write_text("input_tokens\n" + "1\n" * 39 + "4001\n")
    assert lengths(tmp_path / "in.csv", "input_tokens", "here") == {"mean": 101, "p95": 101}


@pytest.mark.parametrize(("text", "says"), [
    ("other\n1\n", "in.csv has no column input_tokens"), ("input_tokens\n", "in.csv has no rows"),
    ("", "in.csv has no column input_tokens"),
    ("input_tokens\n5\n0\n", "line 3: '0' is not a number of tokens"), ("input_tokens\n2e8\n", "line 2: '2e8' is not"),
    ("m,input_tokens\n1\n", "line 2: None is not"), (None, "cannot be read"),
])  # fmt: skip
def test_a_file_that_cannot_be_used_names_the_field(tmp_path: Path, text, says):
    if text is not None:
        (tmp_path / "in.csv").write_text(text)
    with pytest.raises(WorkloadError) as caught:
        lengths(tmp_path / "in.csv", "input_tokens", "traffic.input_tokens.trace")
    (found,) = caught.value.errors
    assert found["field"] == "traffic.input_tokens.trace" and says in found["message"]


def test_a_trace_file_that_is_absent_or_not_text_is_refused(tmp_path: Path):
    (tmp_path / "bytes.csv").write_bytes(b"\xff\xfe\x00")
    for name in ("absent.csv", "bytes.csv"):
        spec = parse({"model": "m", "traffic": {"trace": name}})
        with pytest.raises(WorkloadError) as caught:
            with_traces(spec, tmp_path)
        assert caught.value.errors[0]["field"] == "traffic.trace"
        assert "cannot be read" in caught.value.errors[0]["message"]


def test_lengths_without_a_form_are_no_lengths():
    with pytest.raises(ValueError, match="either a mean"):
        Lengths()
