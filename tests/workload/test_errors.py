"""Limits of the text of a workload, what errors say, and which names are suggested."""

import json
from typing import Any

import pytest

from advisor.workload.errors import allowed_keys, kind_of, sections_in, unknown
from advisor.workload.schema import Spec, parse
from advisor.workload.text import (
    MAX_ERRORS,
    MAX_TEXT_BYTES,
    WorkloadError,
    check_plain,
    check_size,
    cut,
    dotted,
    error,
    has_surrogate,
    listed,
    load,
    more_errors,
    near,
    nearest,
    past_day,
    set_path,
    unstorable,
)
from tests.clocks import TODAY
from tests.workload.test_workload_refused import GOOD, refused


def says(data: str | bytes) -> dict[str, str]:
    with pytest.raises(WorkloadError) as caught:
        load(data)
    (found,) = caught.value.errors
    return found


# --- text -------------------------------------------------------------------------------------------------------


def test_a_workload_is_at_most_a_megabyte():
    fits = "a: '" + "x" * (MAX_TEXT_BYTES - 5) + "'"
    assert MAX_TEXT_BYTES == 1_000_000 and len(fits) == MAX_TEXT_BYTES and load(fits)
    assert says(fits + " ")["message"] == "is 1000001 bytes long"


def test_sections_are_at_most_23_deep():
    """The whole is a level, and so is the value at the bottom."""

    def nested(levels: int) -> str:
        return json.dumps({"a": None}) if not levels else f'{{"a": {nested(levels - 1)}}}'

    assert load(nested(22))
    assert "nested too deeply" in says(nested(23))["message"]


def test_a_workload_has_at_most_20_000_values():
    """The mapping, its key and the list are three of them."""
    assert load("a: [" + ",".join("1" * 19_997) + "]")
    assert "too many values" in says("a: [" + ",".join("1" * 19_998) + "]")["message"]
    check_size({"a": [1] * 19_999})
    with pytest.raises(WorkloadError, match="too many values"):
        check_size({"a": [1] * 20_000})


def test_keys_are_at_most_200_characters():
    check_size({"k" * 200: [{"k" * 200: 1}]})
    with pytest.raises(WorkloadError, match="key that is too long"):
        check_size([{"a": {"k" * 201: 1}}])


def test_a_key_is_set_once_and_is_text():
    assert says("a: 1\nb: 2\na: 3\n") == {"field": "a", "message": "is set twice (line 3)", "allowed": "each key once"}
    assert says("7: x")["message"] == "keys must be text"
    assert load("a: {b: 1}\nc: {b: 2}") == {"a": {"b": 1}, "c": {"b": 2}}


def test_text_that_is_no_yaml_is_told_by_line_and_column():
    assert says("a: 1\nb: [1")["message"].startswith("not valid YAML at line 2, column 6")
    assert says(b"\xff")["message"] == "not readable as UTF-8 YAML text"
    assert says("- 1")["message"] == says("")["message"] == "must be a mapping of keys to values"
    assert says("a: &x 1\nb: *x")["message"] == "YAML aliases are not allowed"


@pytest.mark.parametrize(("written", "value"), [
    ("~", None), ("null", None), ("", None), ("true", True), ("FALSE", False), ("yes", "yes"), ("no", "no"),
    ("12", 12), ("-3", -3), ("+7", 7), ("010", 10), ("1_000", "1_000"), ("0x1f", "0x1f"), ("12:30", "12:30"),
    ("1.5", 1.5), (".5", 0.5), ("1.", 1.0), ("2e3", 2000.0), ("2.0e12", 2e12), ("1e9999", float("inf")),
    ("1e10000", "1e10000"), (".inf", float("inf")), ("-.INF", float("-inf")), ("2026-11-21", "2026-11-21"),
    ("9" * 20, 10**20 - 1), ("9" * 21, "9" * 21), ("'12'", "12"),
])  # fmt: skip
def test_scalars_are_those_of_yaml_1_2(written, value):
    found = load(f"a: {written}")["a"]
    assert found == value and type(found) is type(value)


# --- values that cannot be stored -------------------------------------------------------------------------------


def stored(value: Any) -> list[tuple[str, str]]:
    return [(found["field"], found["message"]) for found in unstorable(value)]


def test_what_cannot_be_stored_is_named_with_its_place():
    value = {"a": [1, float("nan")], "b": {"c": "x\x00", "d": "\ud800", "e": 10**20, "f": "größe"}, "g\x00": 1}
    assert stored(value) == [
        ("a[1]", "is not a finite number"), ("b.c", "contains characters that cannot be stored"),
        ("b.d", "contains characters that cannot be stored"), ("b.e", "has too many digits"),
        ("", "contains characters that cannot be stored"),
    ]  # fmt: skip
    assert stored({"a": {1: 2}}) == [("a", "keys must be text")]
    assert stored([10**20 - 1, -(10**20) + 1, 1e300, True, None, ""]) == []
    assert stored([-(10**20)]) == [("[0]", "has too many digits")]
    with pytest.raises(WorkloadError, match="finite"):
        check_plain({"a": float("inf")})
    check_plain(GOOD)


def test_values_are_at_most_24_deep():
    value: Any = 1
    for _ in range(24):
        value = [value]
    assert stored(value) == []
    ((field, message),) = stored([value])
    assert message == "nested too deeply" and field == "[0]" * 25
    deep: Any = 1
    for _ in range(30):
        deep = {"a": deep}
    with pytest.raises(WorkloadError) as caught:
        parse({**GOOD, "model": {"config": deep}, "modle": 1})
    assert [found["message"] for found in caught.value.errors] == ["nested too deeply"]


def test_surrogates_are_those_of_utf_16():
    assert [has_surrogate(text) for text in ("\ud7ff", "\ud800", "\udfff", "\ue000", "")] == [
        False,
        True,
        True,
        False,
        False,
    ]


# --- errors -----------------------------------------------------------------------------------------------------


def test_fifty_errors_are_explained_and_the_rest_is_counted():
    errors = [error(f"f{n}", "is wrong") for n in range(52)]
    assert more_errors(errors) == ["and 2 more errors"] and more_errors(errors[:50]) == []
    text = str(WorkloadError(errors))
    assert text.startswith("f0: is wrong; f1") and text.endswith("f49: is wrong; and 2 more errors")
    assert str(WorkloadError([error("", "is wrong")])) == "workload: is wrong"


def test_more_wrong_fields_than_fifty_are_named_without_an_explanation():
    found = refused({**GOOD, **{f"objectiv{n}": 1 for n in range(60)}})
    explained = [item for item in found.values() if item["allowed"]]
    assert len(found) == 60 and len(explained) == MAX_ERRORS
    assert {item["message"] for item in found.values() if not item["allowed"]} == {"is not valid"}


def test_what_was_sent_is_repeated_in_part():
    found = error("f" * 300, "m" * 2000, "a" * 5000)
    assert [len(found[key]) for key in ("field", "message", "allowed")] == [203, 1003, 4003]
    assert cut("abc", 3) == "abc" and cut("abcd", 3) == "abc..."


def test_places_are_written_with_dots_and_brackets():
    assert dotted(("traffic", "load_curve", 3)) == "traffic.load_curve[3]"
    assert dotted(()) == "" and dotted((0, "kind")) == "[0].kind"


@pytest.mark.parametrize(("data", "field", "message", "allowed"), [
    ({"slo": {"ttft_ms_p95": 0}}, "slo.ttft_ms_p95", "must be greater than 0", "> 0"),
    ({"slo": {"ttft_ms_p95": 2e15}}, "slo.ttft_ms_p95", "must be at most 1e+15", "<= 1e+15"),
    ({"team": {"cuda": -1}}, "team.cuda", "must be at least 0", ">= 0"),
    ({"name": ""}, "name", "is empty", "at least 1 character"),
    ({"name": "x" * 121}, "name", "is too long", "at most 120 characters"),
    ({"name": "a\tb"}, "name", "contains invalid characters", "printable text"),
    ({"name": 5}, "name", "must be text, not 5", "text"),
    ({"constraints": {"terms": []}}, "constraints.terms", "has too few entries", "at least 1"),
    ({"constraints": {"acquisition": ["rent"] * 4}}, "constraints.acquisition", "has too many entries", "at most 3"),
    ({"constraints": {"terms": "spot"}}, "constraints.terms", 'must be a list, not "spot"', "a list"),
    ({"constraints": {"regions": ["eu"]}}, "constraints.regions", 'must be a section of keys, not ["eu"]',
     "keys allow, deny"),
    ({"constraints": {"regions": 5}}, "constraints.regions", "must be a section of keys, not 5", "keys allow, deny"),
    ({"owned": []}, "owned", "must be a section of keys, not []", "a section of keys"),
    ({"owned": {"h100": 0}}, "owned.h100", "must be at least 1", ">= 1"),
    ({"objective": "speed"}, "objective", "is not a valid choice",
     "cost, latency, throughput, energy, carbon or balanced"),
    ({"prices_as_of": "soon"}, "prices_as_of", "is not a date", "a date such as 2026-10-21"),
])  # fmt: skip
def test_an_error_says_what_is_wrong_and_what_is_allowed(data, field, message, allowed):
    found = refused({**GOOD, **data})[field]
    assert found["message"] == message
    assert found["allowed"] == allowed


@pytest.mark.parametrize(("field", "most"), [
    ("slo.e2e_ms_p95", 1e15), ("constraints.max_usd_per_month", 1e15), ("constraints.max_accelerators", 10_000_000),
    ("traffic.input_tokens.mean", 1e8), ("traffic.requests_per_s.mean", 1e6), ("weights.cost", 1e15),
    ("traffic.prefix_cache_hit_rate", 1), ("traffic.growth_fraction_per_year", 100), ("inventory.h100", 10_000_000),
    ("adapters.count", 100_000), ("team.cuda", 5),
])  # fmt: skip
def test_numbers_have_a_largest_value(field, most):
    spec = json.loads(json.dumps(GOOD))
    spec["traffic"] |= {"input_tokens": {"mean": 500}, "requests_per_s": {"mean": 2}}
    assert parse(set_path(spec, field, f"{most:g}" if most > 1e7 else str(most)))
    over = most * 1.01 if most > 100 and "e" in f"{most:g}" else most + 1
    assert field in refused(set_path(spec, field, f"{over:.10g}"))


def test_the_keys_of_a_section_are_suggested_where_it_stands():
    assert "did you mean ttft_ms_p95" in refused({**GOOD, "slo": {"ttft_ms": 1}})["slo.ttft_ms"]["message"]
    assert allowed_keys((), Spec)[:2] == ["name", "kind"]
    assert allowed_keys(("constraints", "site"), Spec) == ["max_kw", "kw_per_rack", "cooling", "region"]
    assert allowed_keys(("traffic", "input_tokens"), Spec) == ["mean", "p95", "trace"]
    assert sections_in(int) == []


# --- names ------------------------------------------------------------------------------------------------------

NAMES = ["h100-sxm", "h100-pcie", "h200-sxm", "a100-80gb-sxm", "MI300X"]


@pytest.mark.parametrize(("typed", "found"), [
    ("h100-sxn", ["h100-sxm"]), ("mi300x", ["MI300X"]), (" H200-SXM ", ["h200-sxm"]), ("a100", ["a100-80gb-sxm"]),
    ("80gb", ["a100-80gb-sxm"]), ("zzz", []), ("h", []), ("h100", ["h100-sxm"]),
])  # fmt: skip
def test_the_nearest_name_is_found_in_any_case(typed, found):
    assert nearest(typed, NAMES, 1, 0.65) == found


def test_names_that_begin_so_come_before_those_that_hold_it_and_short_ones_first():
    assert nearest("sxm", [*NAMES, "sxm-board", "sxm"], 3, 0.99) == ["sxm", "sxm-board", "h100-sxm"]
    assert near("h100", NAMES, limit=2) == "; did you mean h100-sxm or h100-pcie?"
    assert near("zzz", NAMES) == ""


def test_a_list_of_names_is_cut_and_says_where_the_rest_is():
    names = [f"n{k:02}" for k in range(45)]
    assert listed("n44", names[:3], "") == "n00, n01, n02"
    text = listed("n44", names, "/api/v1/models")
    assert text.startswith("n44, ") and text.endswith(", ... (45 in total; see /api/v1/models)")
    assert text.count(", ") == 40
    assert listed("x", names, "").endswith(", ... (45 in total)")
    assert "..." not in listed("x", names[:40], "")


def test_names_that_are_not_there_are_told_with_what_is():
    asked = []

    def known() -> list[str]:
        asked.append(1)
        return [*NAMES, ""]

    (found,) = unknown("constraints.accelerators.allow", ["h100-sxm", "h100-sxn"], known)
    assert found["field"] == "constraints.accelerators.allow"
    assert found["message"] == "h100-sxn is not in the catalog; did you mean h100-sxm or h200-sxm or h100-pcie?"
    assert "MI300X" in found["allowed"] and len(asked) == 1
    assert unknown("owned", [], known) == [] and len(asked) == 1
    (empty,) = unknown("owned", ["x"], lambda: [])
    assert empty["allowed"] == "none: the catalog is empty; run load_catalog"


def test_of_many_unknown_names_the_first_fifty_are_explained():
    found = unknown("owned", [f"x{n}" for n in range(5)], lambda: NAMES, before=48)
    assert [bool(item["allowed"]) for item in found] == [True, True, False, False, False]
    assert not any(item["allowed"] for item in unknown("owned", ["x"], lambda: NAMES, before=60))
    assert (kind_of("constraints.vendors.deny"), kind_of("owned"), kind_of("model")) == ("vendors", "owned", "model")


# --- paths and days ---------------------------------------------------------------------------------------------


def test_a_path_sets_a_value_and_makes_its_sections():
    spec = {"a": {"b": 1}, "c": None}
    assert set_path(spec, "a.d.e", "2") == {"a": {"b": 1, "d": {"e": 2}}, "c": None}
    assert set_path(spec, "c.f", "") == {"a": {"b": 1}, "c": {"f": ""}}
    assert set_path(spec, "a", "[1, x]") == {"a": [1, "x"], "c": None}
    with pytest.raises(WorkloadError, match="b is 1, not a section"):
        set_path(spec, "a.b.c", "1")
    with pytest.raises(WorkloadError, match="not a path"):
        set_path(spec, ".a", "1")


def test_today_is_a_day_that_has_been_wherever_one_is():
    """The day after today in UTC has begun somewhere; the one after that has not."""
    import datetime

    today = TODAY
    days = [(today + datetime.timedelta(days=n)).isoformat() for n in (-1, 0, 1, 3)]
    assert [past_day(day) for day in days[:3]] == days[:3]
    with pytest.raises(ValueError, match="in the future"):
        past_day(days[3])
