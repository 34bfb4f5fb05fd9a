"""The form holds what the workload file does: each field says what it asks; form and file are one question."""

from datetime import date
from typing import Any, get_args

import pytest
import yaml
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from pydantic import BaseModel

from advisor.models import Advice
from advisor.web import forms
from advisor.web.form_fields import FIELDS, LATENCY, LINED, TRACE_FILE, TRACE_TEXT, TRAFFIC_BY
from advisor.web.forms import WorkloadForm, as_file, from_spec
from advisor.workload import schema
from advisor.workload.schema import Spec, parse
from catalog.models import Accelerator, Assumption, ExchangeRate, ServedModel

pytestmark = pytest.mark.django_db
MODEL = "meta-llama/Llama-3.1-8B"

TRACE = "arrival_s,input_tokens,output_tokens\n0,100,10\n1.5,300,20\n4,200,30\n"
ASKED = {
    "name": "desk",
    "model": MODEL,
    "traffic.input_tokens.mean": "2000",
    "traffic.output_tokens.mean": "300",
    "traffic.requests_per_s.mean": "4",
}
TRAFFIC = {"input_tokens": 2000, "output_tokens": 300, "requests_per_s": 4}
# what is not asked by a field of its own: paths, and what only a file can hold, such as a config.json and whether its
# size is right: the form keeps both in its YAML
NOT_ASKED = {"workloads", "model.config", "model.confirm_size", "traffic.input_tokens.trace",
             "traffic.output_tokens.trace", "constraints.max_batched_tokens", "constraints.max_running_requests",
             *(f"constraints.layout.{name}" for name in ("tp", "pp", "ep", "dp"))}  # fmt: skip


@pytest.fixture(autouse=True)
def model() -> None:
    ServedModel.objects.create(slug="l", hf_id=MODEL, shape={}, as_of=date(2026, 11, 1))


def paths(kind: type[BaseModel], prefix: str = "") -> set[str]:
    """Every place of the workload file where a value can stand."""
    found = set()
    for name, field in kind.model_fields.items():
        path = prefix + name
        inner = [part for part in spread(field.annotation) if isinstance(part, type) and issubclass(part, BaseModel)]
        found |= {p for part in inner for p in paths(part, f"{path}.")} or {path}
    return found


def spread(annotation: Any) -> list[Any]:
    parts = get_args(annotation)
    return [p for part in parts for p in spread(part)] if parts else [annotation]


def test_every_place_of_the_file_has_its_field():
    asked = paths(Spec) - NOT_ASKED
    fields = set(FIELDS) - {TRACE_FILE, "tco", TRAFFIC_BY, LATENCY}
    grown = {path.rsplit(".", 1)[0] for path in fields if path.startswith(("weights.", "team."))}
    lines = {
        path for path in asked if path.rsplit(".", 1)[0] in fields and FIELDS[path.rsplit(".", 1)[0]].reads in LINED
    }
    assert asked - fields - grown - lines == set()
    assert {path.removeprefix("weights.") for path in fields if path.startswith("weights.")} == set(
        get_args(schema.Weight)
    )
    assert {path.removeprefix("team.") for path in fields if path.startswith("team.")} == set(get_args(schema.Stack))


def test_every_field_has_its_help():
    assert [path for path, field in FIELDS.items() if len(field.help) < 5] == [TRAFFIC_BY]  # its choices say all


def said(initial: dict[str, Any]) -> str:
    """What the summaries of the closed groups say was set."""
    return " · ".join(text for group in WorkloadForm(initial=initial).advanced_groups() for text in group["set"])


def sent(**changes: Any) -> dict[str, Any]:
    form = WorkloadForm({**ASKED, **changes})
    assert form.is_valid(), form.errors
    return form.spec


HOURS = ", ".join(str(hour / 10) for hour in range(1, 169))
FILLED = {
    "constraints.frameworks.deny": "",
    "constraints.kv_formats.allow": "bf16, fp16",
    "constraints.terms": ["on_demand", "spot"],
    "constraints.accelerators.allow": "h100-sxm",
    "speculative": "no",
    "disaggregated": "no",
    "variants": "adopt",
    "probe": "preferred",
    "use_measurements": "no",
    "objective": "balanced",
    "weights.cost": "2",
    "weights.lock_in": "0.5",
    "team.ttnn": "3",
    "tco": "pue: 1.2, depreciation-years: 4",
    "tco.power_cap_fraction": "0.8",
    "tco.grid_kgco2e_per_kwh": ", ".join(["0.3"] * 24),
    "traffic.load_curve": HOURS,
    "task": "code",
    "constraints.partitions": "required",
    "adapters.count": "50",
    "adapters.active": "8",
    "adapters.targets": "attention",
}


@pytest.fixture
def named() -> None:
    chip = {"memory_gib": 80, "memory_gb_per_s": 3350, "as_of": date(2026, 11, 1)}
    Accelerator.objects.create(slug="h100-sxm", name="H100", vendor="nvidia", **chip)
    for key in ("pue", "depreciation-years"):
        Assumption.objects.create(key=key, value=1.0, unit="x", as_of=date(2026, 11, 1))


@pytest.mark.usefixtures("named")
def test_a_form_is_a_file_is_the_same_question():
    spec = sent(**FILLED)
    assert spec["weights"] == {"cost": 2, "lock_in": 0.5} and spec["team"] == {"ttnn": 3}
    assert (spec["speculative"], spec["disaggregated"], spec["probe"]) == ("no", "no", "preferred")
    assert spec["use_measurements"] == "no"
    assert spec["constraints"]["kv_formats"] == {"allow": ["bf16", "fp16"], "deny": []}
    assert spec["adapters"] == {"count": 50, "rank": 16, "active": 8, "targets": "attention"}
    assert spec["constraints"]["partitions"] == "required"
    assert spec["tco"]["pue"] == 1.2 and spec["traffic"]["load_curve"][167] == 16.8
    assert parse(as_file(spec)) == spec
    initial = from_spec(spec)
    assert "yaml" not in initial
    assert parse(WorkloadForm().combined(initial)) == spec


def test_a_config_whose_size_is_doubtful_is_confirmed_in_the_yaml_and_kept_there():
    config = {
        "model_type": "llama", "hidden_size": 4096, "vocab_size": 128_256, "num_hidden_layers": 32,
        "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14_336,
        "max_position_embeddings": 131_072, "_name_or_path": "acme/Our-70B",
    }  # fmt: skip
    own = {"config": config, "confirm_size": False}
    form = WorkloadForm({"yaml": yaml.safe_dump({"model": own, "traffic": TRAFFIC})})
    assert not form.is_valid()
    (told,) = form.errors["yaml"]
    assert "says 70 B" in told and "confirm_size: true" in told
    form = WorkloadForm({"yaml": yaml.safe_dump({"model": own | {"confirm_size": True}, "traffic": TRAFFIC})})
    assert form.is_valid(), form.errors
    again = WorkloadForm(from_spec(form.spec))
    assert again.is_valid() and again.spec == form.spec and again.spec["model"]["confirm_size"] is True


def test_arrivals_and_shared_prefixes_go_through_the_form():
    given = {"traffic.burstiness": "2.5", "traffic.peak_window_s": "5 min", "slo.headroom_fraction": "15%"}
    spec = sent(**given, **{"traffic.prefixes": "50% 200 8\r\n0.1, 100"})
    assert (spec["traffic"]["burstiness"], spec["traffic"]["peak_window_s"]) == (2.5, 300)
    assert spec["traffic"]["prefixes"] == [
        {"share": 0.5, "tokens": 200, "count": 8},
        {"share": 0.1, "tokens": 100, "count": 1},
    ]
    assert spec["slo"]["headroom_fraction"] == 0.15
    initial = from_spec(spec)
    assert "yaml" not in initial and initial["traffic.prefixes"] == "0.5 200 8\n0.1 100 1"
    assert parse(WorkloadForm().combined(initial)) == parse(as_file(spec)) == spec


ASSUMED = {
    "rent-change-per-year": "-0.2",
    "electricity-change-per-year": "0.03",
    "hardware-price-change-per-year": "-0.1",
    "residual-value-year-3": "0.3",
    "minimum-engineers-own": "2",
    "minimum-engineers-rented": "0.5",
    "income-tax-fraction": "0.25",
    "vat-fraction": "0.19",
    "commitment-exit-fraction": "0.1",
    "purchase-lead-months": "6",
    "depreciation-years": "4",
}
FINANCE = {
    "constraints.max_capex_usd": "1,500,000",
    "traffic.ramp_months": "6",
    "traffic.seasonality": "1, 1, 1.2, 0.9, 1, 1, 0.8, 0.7, 1, 1.1, 1.3, 1.5",
    "traffic.ends_after_months": "30",
    "tco.currency": "EUR",
    "tco": "pue: 1.2",
    **{f"tco.{key}": value for key, value in ASSUMED.items()},
    "tco.price_paths.rent": "12 0.8 0.7 0.9\r\n24, 0.65",
    "tco.price_paths.electricity": "36 1.1 - 1.3",
    "tco.price_paths.hardware": "12 0.9",
    "tco.price_paths.resale": "12 0.9 0.5 1\n36 0.7 0.3 0.9",
    "tco.scenarios": "launch: day two: load 2, rent 0.9\nas it is",
}


@pytest.fixture
def rates() -> None:
    for key in ("pue", *ASSUMED):
        Assumption.objects.create(key=key, value=1.0, unit="x", as_of=date(2026, 11, 1))
    ExchangeRate.objects.create(currency="EUR", per_usd="0.86", as_of=date(2026, 11, 1), source="a bank")


@pytest.mark.usefixtures("rates")
def test_forecast_and_finance_go_through_the_form():
    spec = sent(**FINANCE)
    assert spec["constraints"]["max_capex_usd"] == 1_500_000
    traffic, tco = spec["traffic"], spec["tco"]
    assert (traffic["ramp_months"], traffic["ends_after_months"]) == (6, 30)
    assert traffic["seasonality"][2] == 1.2 and len(traffic["seasonality"]) == 12
    assert {key: tco[key] for key in ASSUMED} == {key: float(value) for key, value in ASSUMED.items()}
    assert (tco["currency"], tco["pue"]) == ("EUR", 1.2)
    assert tco["price_paths"]["rent"] == [
        {"month": 12, "ratio": 0.8, "low": 0.7, "high": 0.9},
        {"month": 24, "ratio": 0.65, "low": None, "high": None},
    ]
    assert tco["price_paths"]["electricity"] == [{"month": 36, "ratio": 1.1, "low": None, "high": 1.3}]
    assert [(case["name"], case["load"], case["rent"]) for case in tco["scenarios"]] == [
        ("launch: day two", 2, 0.9),
        ("as it is", 1, 1),
    ]
    assert parse(as_file(spec)) == spec
    initial = from_spec(spec)
    assert "yaml" not in initial and initial["tco"] == "pue: 1.2"
    assert initial["tco.price_paths.rent"] == "12 0.8 0.7 0.9\n24 0.65"
    assert initial["tco.price_paths.electricity"] == "36 1.1 - 1.3"
    assert initial["tco.scenarios"] == "launch: day two: load 2, rent 0.9\nas it is:"
    assert parse(WorkloadForm().combined(initial)) == spec
    assert "Discount rate" not in said(initial) and "Ramp-up, months: 6" in said(initial)


@pytest.mark.usefixtures("rates")
@pytest.mark.parametrize("field", FINANCE)
def test_each_field_of_finance_goes_through_the_form_alone(field: str):
    spec = sent(**{field: FINANCE[field]})
    assert spec != sent()
    assert parse(as_file(spec)) == spec and parse(WorkloadForm().combined(from_spec(spec))) == spec


def test_a_scenario_that_lines_cannot_hold_stays_in_the_yaml():
    spec = parse({"model": MODEL, "traffic": TRAFFIC, "tco": {"scenarios": [{"name": "two\nlines", "load": 2}]}})
    initial = from_spec(spec)
    assert "two" in initial["yaml"] and "tco.scenarios" not in initial
    assert parse(WorkloadForm().combined(initial)) == spec


def test_traffic_that_does_not_change_leaves_the_forecast_out():
    spec = sent()
    assert "ramp_months" not in as_file(spec) and "price_paths" not in as_file(spec)
    assert said(from_spec(spec)) == ""


@pytest.mark.usefixtures("rates")
def test_the_form_suggests_the_currencies_of_the_catalog():
    assert WorkloadForm().suggestions()["currencies"] == ["USD", "EUR"]


@pytest.mark.usefixtures("rates")
@pytest.mark.parametrize(
    ("field", "typed", "says"),
    [
        ("constraints.max_capex_usd", "-1", "at least 0"),
        ("traffic.ramp_months", "121", "at most 120"),
        ("traffic.ramp_months", "soon", "whole number"),
        ("traffic.seasonality", "1, high, 1", 'must be a number, not "high"'),
        ("traffic.seasonality", "1, 0, 1", "greater than 0"),
        ("traffic.ends_after_months", "0", "at least 1"),
        ("tco.currency", "XXX", "not in the catalog"),
        ("tco.rent-change-per-year", "-0.95", "-0.9"),
        ("tco.electricity-change-per-year", "cheap", "must be a number"),
        ("tco.hardware-price-change-per-year", "11", "10"),
        ("tco.residual-value-year-3", "-0.5", "out of range"),
        ("tco.income-tax-fraction", "25", "25% or 2500%"),
        ("tco.vat-fraction", "119%", "0 .. 1"),
        ("tco.commitment-exit-fraction", "200%", "0 .. 1"),
        ("tco.purchase-lead-months", "61", "0 .. 60"),
        ("tco.depreciation-years", "0", "0.25"),
        ("tco.minimum-engineers-own", "-1", "out of range"),
        ("tco.minimum-engineers-rented", "few", "must be a number"),
        ("tco.price_paths.rent", "12", "line 1 (12) must be two to four numbers"),
        ("tco.price_paths.electricity", "12 0.8\n24 low", "line 2 (24 low)"),
        ("tco.price_paths.hardware", "0 0.8", "line 1, month: must be at least 1"),
        ("tco.price_paths.resale", "1.5 0.8", "line 1, month: must be a whole number"),
        ("tco.scenarios", "launch: load", "line 1 (launch: load) must be a name"),
        ("tco.scenarios", "launch: lod 2", "did you mean load"),
    ],
)
def test_an_error_in_finance_stands_beside_its_field(field: str, typed: str, says: str):
    form = WorkloadForm({**ASKED, field: typed})
    assert not form.is_valid()
    assert list(form.errors) == [field] and any(says in said for said in form.errors[field]), form.errors


@pytest.mark.parametrize("slug", [item["slug"] for item in forms.presets()])
def test_a_preset_as_a_file_is_the_same_question(slug: str):
    spec = forms.preset(slug)
    assert spec is not None and parse(as_file(spec)) == spec


@pytest.mark.parametrize(
    ("field", "typed", "says"),
    [
        ("constraints.kv_formats.deny", "int3", "bf16, fp16 or fp8"),
        ("weights.cost", "much", "must be a number"),
        ("team.qaic", "9", "at most 5"),
        ("traffic.load_curve", "busy", "office_hours"),
        ("traffic.load_curve", "1, 2, 3", "168"),
        ("constraints.frameworks.allow", "vlm", "not in the catalog"),
        ("adapters.count", "many", "whole number"),
        ("adapters.count", "-1", "at least 0"),
        ("tco", "pue", "must be a number"),
        ("tco", "no-such-key: 1", "not in the catalog"),
        ("tco.power_cap_fraction", "0.1", "0.3"),
        ("tco.grid_kgco2e_per_kwh", "0.3, 0.4", "24"),
    ],
)
def test_an_error_stands_beside_its_field(field: str, typed: str, says: str):
    form = WorkloadForm({**ASKED, field: typed})
    assert not form.is_valid()
    assert list(form.errors) == [field] and says in str(form.errors[field])


# --- the recorded trace as a file -------------------------------------------------------------------------------

RECORDED = {"name": "desk", "model": MODEL}


def post(client: Client, content: bytes, **changes: str):
    return client.post("/", {**RECORDED, **changes, TRACE_FILE: SimpleUploadedFile("requests.csv", content)})


def test_a_trace_is_sent_as_a_file_and_comes_back_in_the_workload_file(client: Client):
    page = post(client, TRACE.encode())
    assert page.status_code == 302
    advice = Advice.objects.get()
    assert advice.workload.spec["traffic"]["input_tokens"]["mean"] == 200
    text = client.get(f"/advice/{advice.pk}/workload.yaml")
    assert text["Content-Disposition"] == 'attachment; filename="desk.yaml"'
    assert "input_tokens: {mean" not in text.content.decode()
    assert parse(text.content) == advice.workload.spec


@pytest.mark.parametrize(
    ("content", "changes", "says"),
    [
        (b"\xff\xfe\x00", {}, "cannot be read as text: not UTF-16"),
        (b"x" * 900_001, {}, "900,001 bytes"),
        (TRACE.encode(), {TRACE_TEXT: TRACE}, "not both"),
        (b"a,b\n1,2\n", {}, "has no column arrival_s"),
        (b"x" * 200_000, {}, "is not CSV"),
    ],
)
def test_a_file_that_is_no_trace_is_told_beside_it(client: Client, content: bytes, changes: dict, says: str):
    page = post(client, content, **changes)
    assert page.status_code == 422 and says in page.content.decode()


def test_a_trace_is_not_lost_when_something_else_is_wrong(client: Client):
    page = post(client, TRACE.encode(), **{"slo.ttft_ms_p95": "soon"})
    assert page.status_code == 422 and "1.5,300,20" in page.content.decode()


def test_no_checked_term_means_on_demand_one_and_three_years() -> None:
    assert parse({"name": "x", "model": MODEL, "traffic": TRAFFIC})["constraints"]["terms"] is None
    assert "on-demand and terms of one and three years" in str(FIELDS["constraints.terms"].help)


def test_what_a_group_of_boxes_means_when_none_is_checked_is_its_default() -> None:
    """The help text names everything that the schema takes instead; `all three` means every choice."""
    default = parse({"name": "x", "model": MODEL, "traffic": TRAFFIC})["constraints"]
    for name in ("acquisition", "exclude"):
        field = FIELDS[f"constraints.{name}"]
        said, labels = str(field.help), {value: str(label) for value, label in field.choices}
        assert said.startswith("None checked: ")
        if set(default[name]) == set(labels):
            assert said == "None checked: all three" and len(labels) == 3
            continue
        for value in default[name]:
            assert labels[value].split()[-1].rstrip("s") in said or labels[value].split()[0] in said, value
        assert len(default[name]) == said.split(";")[0].count(",") + 1 + said.count(" and ")
