"""How typed text becomes values of the workload file and back, field by field."""

import re
from types import SimpleNamespace
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.http import QueryDict
from hypothesis import given
from hypothesis import strategies as st

from advisor.web import forms
from advisor.web.form_fields import COUNTS, CURVE, FIELDS, LIST, NUMBER, VALUES, WHOLE, Field
from advisor.web.form_fields.fields import TEXT
from advisor.web.form_fields.values import shown
from advisor.web.forms import WorkloadForm, as_file, dig, drop, from_spec, overlay, prune, to_raw
from advisor.workload import Unclear
from advisor.workload.schema import parse
from advisor.workload.text import load
from tests.workload.test_traffic import TRACE, traced
from tests.workload.test_workload_refused import GOOD


def read(text: str, reads: str) -> object:
    return forms.read(text, Field("path", "label", reads, "help"))


# --- what is typed ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("text", "value"), [
    ("12", 12), ("-3", -3), ("+4", 4), ("1.5", 1.5), ("1e3", 1000), ("2,000,000", 2000000), ("1,234,567.5", 1234567.5),
    ("12 000", 12000), ("12_000", 12000), ("1\u00a0000", 1000), ("2,00", 2), ("many", "many"), ("6k", 6000),
    ("1.5 GB", "1.5 GB"),    ("9" * 18, int("9" * 18)), ("9" * 19, float("9" * 19)),
    ("1234,567", "1234,567"), ("x1,000", "x1,000"),
])  # fmt: skip
def test_numbers_are_read_as_people_write_them_and_other_text_stays(text, value):
    for reads in (NUMBER, WHOLE):
        found = read(text, reads)
        assert found == value and type(found) is type(value)
    assert read(text, TEXT) == text


def test_a_list_is_separated_by_commas():
    assert read("nvidia, amd,, intel ", LIST) == ["nvidia", "amd", "intel"]
    assert read(" , ", LIST) == []


def test_counts_are_names_with_whole_numbers_and_what_is_not_stays_as_typed():
    assert read("a100: 16, h100 :8,", COUNTS) == {"a100": 16, "h100": 8}
    assert read("a100: many, h100: 1.5", COUNTS) == {"a100": "many", "h100": "1.5"}
    assert read("2 x 8 H100, 4 L40S", COUNTS) == {"H100": 16, "L40S": 4}
    assert read("a100 16", COUNTS) == "a100 16"


def test_cost_assumptions_are_names_with_numbers():
    assert read("pue: 1.2, depreciation-years: 4, ", VALUES) == {"pue": 1.2, "depreciation-years": 4}
    tco = Field("tco", "label", VALUES, "help")
    assert forms.read("vat-fraction: 19%, depreciation-years: 48 months", tco) == {
        "vat-fraction": 0.19, "depreciation-years": 4,
    }  # fmt: skip
    assert read("pue", VALUES) == {"pue": ""}


def test_a_curve_is_a_word_or_numbers():
    assert read("office_hours", CURVE) == "office_hours"
    assert read("1, 2;3\n4.5 x", CURVE) == [1, 2, 3, 4.5, "x"]


def test_empty_fields_say_nothing():
    cleaned = {"name": "", "model": "m", "constraints.terms": [], "traffic.input_tokens.mean": None, "unknown": "x"}
    assert to_raw(cleaned) == {"model": "m"}
    assert to_raw({"constraints.terms": ["spot"], "slo.ttft_ms_p95": "800", "traffic.users.active": "5"}) == {
        "constraints": {"terms": ["spot"]}, "slo": {"ttft_ms_p95": 800}, "traffic": {"users": {"active": 5}},
    }  # fmt: skip


def test_yaml_is_laid_over_the_form_section_by_section():
    under = {"a": {"b": 1, "c": 2}, "d": 3, "e": {"f": 4}}
    over = {"a": {"c": 5, "g": {"h": 6}}, "d": {"i": 7}, "e": 8}
    assert overlay(under, over) == {"a": {"b": 1, "c": 5, "g": {"h": 6}}, "d": {"i": 7}, "e": 8}
    assert under["a"] == {"b": 1, "c": 2}


# --- what is shown ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("value", "text"), [
    (2000.0, "2000"), (0.1, "0.1"), (1 / 3, repr(1 / 3)), (1e20, "1e+20"), (7, "7"), ("flat", "flat"),
    ({"a100": 16, "h100": 8}, "a100: 16, h100: 8"), (["a", "b"], "a, b"), ([1.5, 2], "1.5, 2"),
])  # fmt: skip
def test_values_are_shown_as_they_are_typed(value, text):
    assert shown(value) == text


@given(st.floats(-1e15, 1e15))
def test_a_number_that_is_shown_is_read_as_itself_or_has_two_readings(number):
    """The form writes those that have two in another way: tests/web/test_form_grammar."""
    text = shown(number)
    try:
        assert read(text, NUMBER) == number
    except Unclear:
        assert re.fullmatch(r"-?\d{1,3}\.\d{3}", text)


def test_only_what_differs_from_the_defaults_is_kept():
    defaults = {"a": 1, "b": {"c": 2, "d": None}, "e": [1]}
    assert prune({"a": 1, "b": {"c": 3, "d": None}, "e": [1], "f": 0, "g": {}, "h": []}, defaults) == {
        "b": {"c": 3},
        "f": 0,
    }
    assert prune({"a": {"x": 1}, "b": 2}, defaults) == {"a": {"x": 1}, "b": 2}


def test_paths_are_looked_up_and_removed_with_the_sections_that_they_empty():
    raw: dict[str, Any] = {"a": {"b": {"c": 1}, "d": 2}, "e": 3}
    assert (dig(raw, "a.b.c"), dig(raw, "a.b.x"), dig(raw, "e.f"), dig(raw, "a")) == (1, None, None, raw["a"])
    for path in ("a.b.c", "e.f", "x.y", "x"):
        drop(raw, path.split("."))
    assert raw == {"a": {"d": 2}, "e": 3}
    drop(raw, ["a", "d"])
    assert raw == {"e": 3}


# --- a workload as a form and as a file --------------------------------------------------------------------------

USERS = {**GOOD, "traffic": {"input_tokens": 5, "output_tokens": 6, "users": {"active": 60, "think_s": 30}}}
BATCH = {**GOOD, "kind": "batch", "batch": {"requests": 7200, "deadline_hours": 1}}
BATCH["traffic"] = {"input_tokens": 5, "output_tokens": 6}
VECTORS = {**GOOD, "kind": "embedding", "traffic": {"input_tokens": 5, "requests_per_s": 2}}


def initial(data: dict[str, Any]) -> dict[str, Any]:
    found = from_spec(parse(data))
    return {path: value for path, value in found.items() if path.startswith(("traffic.", "yaml"))}


RATES = {"traffic.requests_per_s.mean", "traffic.requests_per_s.peak"}


def test_a_form_shows_what_was_asked_and_not_what_follows_from_it():
    assert "traffic.requests_per_s.mean" in initial(GOOD)
    for data in (USERS, BATCH):
        assert not RATES & initial(data).keys()
    assert "traffic.output_tokens.mean" in initial(GOOD)
    assert not {"traffic.output_tokens.mean", "traffic.output_tokens.p95"} & initial(VECTORS).keys()
    recorded = initial(traced(TRACE))
    assert not {path for path in recorded if "_tokens." in path or path in RATES}
    assert "traffic.trace.csv" in recorded


@pytest.mark.parametrize(("data", "left"), [
    (GOOD, {"input_tokens", "output_tokens", "requests_per_s"}),
    (USERS, {"input_tokens", "output_tokens", "users"}),
    (BATCH, {"input_tokens", "output_tokens"}),
    (VECTORS, {"input_tokens", "requests_per_s"}),
    (traced(TRACE), {"trace"}),
])  # fmt: skip
def test_a_workload_file_has_what_was_asked_and_is_the_same_question(data, left):
    text = as_file(parse(data))
    assert load(text)["traffic"].keys() - {"prefix_cache_hit_rate"} == left
    assert parse(text) == parse(data)


def test_what_has_no_field_goes_into_the_yaml_and_names_keep_their_letters():
    found = from_spec(parse({**GOOD, "training": None, "finetuning": None, "adapters": {"count": 3}, "name": "Größe"}))
    assert found["adapters.count"] == "3" and found["name"] == "Größe" and "yaml" not in found
    own = from_spec(parse({**GOOD, "model": {"config": {"note": "größer"}}, "objective": "latency"}))
    assert list(own) == ["yaml"]
    assert "größer" in own["yaml"] and own["yaml"].index("model") < own["yaml"].index("objective")
    assert load(own["yaml"])["objective"] == "latency"
    rest = from_spec({**parse(GOOD), "zusätze": {"größe": 1}})
    assert load(rest["yaml"]) == {"zusätze": {"größe": 1}} and "größe" in rest["yaml"]


def test_overridden_costs_beside_those_with_fields_of_their_own():
    found = from_spec(parse({**GOOD, "tco": {"pue": 1.2, "horizon_months": 24, "spare-fraction": 0.1}}))
    assert (found["tco"], found["tco.horizon_months"]) == ("pue: 1.2, spare-fraction: 0.1", "24")


def test_a_file_keeps_letters_the_order_of_keys_and_lines_of_120():
    text = as_file(parse({**GOOD, "name": ("Größe " * 17).strip()}))
    assert text.splitlines()[0] == "name: " + ("Größe " * 17).strip()
    assert text.index("name") < text.index("model") < text.index("traffic")


# --- errors -----------------------------------------------------------------------------------------------------


def placed(field: str, allowed: str = "", yaml: str = "", **typed: str) -> dict[str, list[str]]:
    form = WorkloadForm({"yaml": yaml, **typed})
    form.cleaned_data, form._errors = {}, forms.forms.utils.ErrorDict()
    form.place({"field": field, "message": "is wrong", "allowed": allowed})
    return {name: list(map(str, errors)) for name, errors in form._errors.items()}


@pytest.mark.parametrize(("field", "name", "text"), [
    ("slo.ttft_ms_p95", "slo.ttft_ms_p95", "is wrong"),
    ("traffic.input_tokens", "traffic.input_tokens.mean", "is wrong"),
    ("constraints.terms[2]", "constraints.terms", "is wrong"),
    ("owned.a100", "owned", "a100: is wrong"),
    ("surprise.key", "__all__", "surprise.key: is wrong"),
    ("", "name", "is wrong"),
])  # fmt: skip
def test_an_error_stands_at_its_field_or_the_nearest(field, name, text):
    if field:
        assert placed(field) == {name: [text]}
    else:
        assert list(placed(field).values()) == [[text]]


def test_an_error_says_what_is_allowed_where_that_is_short():
    assert placed("slo.ttft_ms_p95", "> 0") == {"slo.ttft_ms_p95": ["is wrong (allowed: > 0)"]}
    assert placed("slo.ttft_ms_p95", "x" * 199)["slo.ttft_ms_p95"][0].endswith("x)")
    assert placed("slo.ttft_ms_p95", "x" * 200) == {"slo.ttft_ms_p95": ["is wrong"]}


def test_an_error_in_the_yaml_stands_there_unless_the_field_itself_was_filled_in():
    assert placed("slo.ttft_ms_p95", yaml="slo: {}") == {"yaml": ["slo.ttft_ms_p95: is wrong"]}
    assert placed("slo.ttft_ms_p95", yaml="slo: {}", **{"slo.ttft_ms_p95": "5"}) == {"slo.ttft_ms_p95": ["is wrong"]}
    assert placed("slo.ttft_ms_p95", yaml="  ") == {"slo.ttft_ms_p95": ["is wrong"]}


# --- a trace that is uploaded -----------------------------------------------------------------------------------


def uploaded(content: bytes, typed: str = "") -> tuple[WorkloadForm, dict[str, Any]]:
    data = QueryDict(mutable=True)
    data["traffic.trace.csv"] = typed
    form = WorkloadForm(data)
    form._errors = forms.forms.utils.ErrorDict()
    form.cleaned_data = cleaned = {
        "traffic.trace.file": SimpleUploadedFile("t.csv", content), "traffic.trace.csv": typed,
    }  # fmt: skip
    form.read_trace(cleaned)
    return form, cleaned


def test_an_uploaded_trace_is_as_if_its_text_had_been_typed():
    form, cleaned = uploaded(b"\xef\xbb\xbfa,b\n")
    assert cleaned == {"traffic.trace.csv": "a,b\n"}
    assert form["traffic.trace.csv"].value() == "a,b\n" and not form._errors


@pytest.mark.parametrize(("content", "typed", "says"), [
    (b"a", "b", "upload a file or paste its text, not both"),
    (b"x" * 900_001, "", "is 900,001 bytes; the limit is 900,000"),
    (b"\xffa", "", "cannot be read as text: not UTF-8"),
])  # fmt: skip
def test_an_upload_that_cannot_be_used_says_why(content, typed, says):
    form, cleaned = uploaded(content, typed)
    assert says in str(form.errors["traffic.trace.file"])
    assert cleaned.get("traffic.trace.csv", "") == typed


def test_the_largest_trace_passes_and_blank_text_does_not_count():
    form, cleaned = uploaded(b"x" * 900_000, "  \n")
    assert not form._errors and len(cleaned["traffic.trace.csv"]) == 900_000


# --- fields -----------------------------------------------------------------------------------------------------


def test_fields_take_text_of_the_length_that_they_need():
    fields = WorkloadForm().fields
    assert {fields[path].max_length for path, f in FIELDS.items() if f.reads == NUMBER} == {2000}
    assert fields["traffic.load_curve"].max_length == 8000
    assert fields["traffic.trace.csv"].max_length == 900_000
    assert not any(field.required for field in fields.values())


def test_keyboards_and_lists_fit_the_field():
    widgets = {path: SimpleNamespace(**field.widget.attrs) for path, field in WorkloadForm().fields.items()}
    assert widgets["slo.ttft_ms_p95"].inputmode == "decimal"
    assert widgets["constraints.max_accelerators"].inputmode == "numeric"
    assert not hasattr(widgets["name"], "inputmode") and not hasattr(widgets["name"], "list")
    assert (widgets["model"].list, widgets["constraints.regions.allow"].list) == ("models-list", "offered-list")


def test_the_name_of_a_preset_is_its_first_comment():
    found = forms.presets()
    assert [item["slug"] for item in found][: len(forms.COMMON)] == list(forms.COMMON)
    assert [item["slug"] for item in found][len(forms.COMMON) :] == sorted(
        item["slug"] for item in found[len(forms.COMMON) :]
    )
    assert all(item["name"] and item["about"] == forms.sentence(item["about"]) for item in found)
    assert forms.preset("no-such") is None
    assert forms.sentence("word by word") == "Word by word" and forms.sentence("") == ""
