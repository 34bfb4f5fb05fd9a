"""The form: the same validation as the file, errors beside their fields, nothing typed is lost."""

from datetime import date
from typing import Any

import pytest

from advisor.web import forms
from advisor.web.forms import WorkloadForm, defaults, from_spec
from advisor.workload.schema import parse
from catalog.models import Accelerator, Price, ServedModel

pytestmark = pytest.mark.django_db
TRAFFIC = {"input_tokens": 500, "output_tokens": 100, "requests_per_s": 2}
GOOD = {
    "name": "my chat",
    "model": "meta-llama/Llama-3.1-8B",
    "traffic.input_tokens.mean": "2,000",
    "traffic.output_tokens.mean": "300",
    "traffic.requests_per_s.mean": "4",
}


@pytest.fixture(autouse=True)
def model() -> None:
    ServedModel.objects.create(slug="l", hf_id="meta-llama/Llama-3.1-8B", shape={}, as_of=date(2026, 11, 1))


def spec_of(**changes: Any) -> dict[str, Any]:
    form = WorkloadForm({**GOOD, **changes})
    assert form.is_valid(), form.errors
    return form.spec


def errors_of(**changes: Any) -> dict[str, list[str]]:
    form = WorkloadForm({**GOOD, **changes})
    assert not form.is_valid()
    return {name: list(map(str, found)) for name, found in form.errors.items()}


def test_a_filled_form_is_a_workload() -> None:
    spec = spec_of(**{"slo.ttft_ms_p95": "800", "constraints.vendors.deny": "", "objective": "latency"})
    assert spec["traffic"]["input_tokens"]["mean"] == 2000
    assert (spec["name"], spec["slo"]["ttft_ms_p95"], spec["objective"]) == ("my chat", 800, "latency")


@pytest.mark.parametrize(
    ("field", "typed", "says"),
    [
        ("traffic.input_tokens.mean", "many", 'must be a number, not "many"'),
        ("traffic.input_tokens.p95", "1", "below the mean"),
        ("slo.tpot_ms_p95", "-5", "greater than 0"),
        ("model", "Llama-3.1-8c", "did you mean meta-llama/Llama-3.1-8B"),
        ("constraints.max_accelerators", "2.5", "whole number"),
        ("constraints.vendors.deny", "nvdia", "not in the catalog"),
        ("team.cuda", "9", "at most 5"),
        ("yaml", "a: {b", "not valid YAML"),
        ("yaml", "modle: x", "did you mean model"),
        ("yaml", "slo: {ttft_ms_p95: fast}", "slo.ttft_ms_p95"),
    ],
)
def test_an_error_stands_at_its_field(field: str, typed: str, says: str) -> None:
    errors = errors_of(**{field: typed})
    assert list(errors) == [field]
    assert says in errors[field][0]


def test_every_wrong_field_is_told_at_once() -> None:
    wrong = {
        "model": "no/such",
        "traffic.input_tokens.mean": "nan",
        "traffic.output_tokens.mean": "-1",
        "constraints.vendors.deny": "nvdia",
        "traffic.requests_per_s.mean": "",
    }
    assert set(errors_of(**wrong)) == set(wrong)


def test_a_fresh_form_asks_for_every_way_of_paying() -> None:
    assert defaults()["constraints.acquisition"] == ["rent", "own", "api"]
    assert parse({"model": "m", "traffic": TRAFFIC})["constraints"]["acquisition"] == ["rent", "own", "api"]


def test_an_empty_form_names_what_is_required() -> None:
    form = WorkloadForm({})
    assert not form.is_valid()
    assert {"model"} <= set(form.errors)


def test_yaml_adds_to_the_form_and_a_whole_workload_replaces_it() -> None:
    assert spec_of(yaml="weights: {cost: 2}")["weights"] == {"cost": 2}
    whole = "name: other\nmodel: meta-llama/Llama-3.1-8B\n"
    whole += "traffic: {input_tokens: 9, output_tokens: 9, requests_per_s: 1}"
    spec = spec_of(yaml=whole, **{"slo.ttft_ms_p95": "800"})
    assert (spec["name"], spec["slo"]["ttft_ms_p95"]) == ("other", None)


def test_errors_of_a_whole_workload_stand_at_the_yaml() -> None:
    errors = errors_of(yaml="model: meta-llama/Llama-3.1-8B\ntraffic: {input_tokens: -1, output_tokens: 1}")
    assert list(errors) == ["yaml"]


@pytest.mark.parametrize("slug", [item["slug"] for item in forms.presets()])
def test_a_workload_survives_the_way_through_the_form(slug: str) -> None:
    spec = forms.preset(slug)
    assert spec is not None
    assert parse(WorkloadForm().combined(from_spec(spec))) == spec


def test_what_the_fields_cannot_hold_goes_through_the_yaml() -> None:
    text = """
    model: {config: {hidden_size: 4096}}
    traffic: {input_tokens: 9, output_tokens: 9, users: {active: 3, think_s: 7}, load_curve: office_hours}
    owned: {a100-80gb-sxm: 16}
    tco: {pue: 1.2}
    weights: {cost: 2}
    """
    spec = parse(text)
    assert parse(WorkloadForm().combined(from_spec(spec))) == spec
    named = parse(text.replace("{config: {hidden_size: 4096}}", "m"))
    assert parse(WorkloadForm().combined(from_spec(named))) == named


def closed(form: WorkloadForm) -> dict[str, list[str]]:
    return {group["title"]: group["set"] for group in form.advanced_groups() if group["set"]}


def test_a_closed_group_says_what_is_set_in_it() -> None:
    assert closed(WorkloadForm(initial=defaults())) == {}
    assert closed(WorkloadForm(initial={"team.cuda": "4"})) == {"Weights and team": ["Team experience with CUDA: 4"]}
    posted = WorkloadForm({**GOOD, "objective": "carbon", "constraints.acquisition": ["own"]})
    assert closed(posted)["Objective"] == ["Optimize for: lowest carbon"]
    assert closed(posted)["Buying"] == ["Rent, buy or hosted API: buy"]
    assert closed(WorkloadForm({**GOOD, "seasonality": "", "yaml": "x " * 40}))["Workload file"][0].endswith("…")


def test_a_group_with_an_error_is_open_and_no_other() -> None:
    form = WorkloadForm({**GOOD, "yaml": "a: ["})
    assert [group["title"] for group in form.advanced_groups() if group["wrong"]] == ["Workload file"]


def test_lists_offer_each_name_of_the_catalog_once_in_order() -> None:
    """Of accelerators those that serve; regions, vendors and providers as the price lists spell them."""
    seen = {"release_year": 2026, "memory_gib": 80, "memory_gb_per_s": 1, "as_of": date(2026, 11, 1)}
    for slug, vendor, served in (("b", "nvidia", True), ("a", "amd", True), ("c", "amd", False)):
        Accelerator.objects.create(slug=slug, name=slug, vendor=vendor, served=served, **seen)
    for provider, region in (("zeta", "south"), ("acme", "south"), ("acme", "north")):
        chip = Accelerator.objects.get(slug="a")
        plain = {"instance": "i", "accelerators": 1, "term": "spot", "usd_per_hour": 1, "as_of": date(2026, 11, 1)}
        Price.objects.create(provider=provider, region=region, accelerator=chip, **plain)
    found = WorkloadForm().suggestions()
    assert found["offered"] == ["north", "south"] and found["providers"] == ["acme", "zeta"]
    assert sorted(found["accelerators"]) == ["a", "b"] and found["vendors"] == ["amd", "nvidia"]
    assert found["models"] == ["meta-llama/Llama-3.1-8B"]
    assert found["caches"] == ["bf16", "fp16", "fp8"] and found["curves"] == ["flat", "office_hours"]
