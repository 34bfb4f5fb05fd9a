"""Every field of the form takes numbers with units, shows what it reads back, and refuses what has two readings."""

from datetime import date
from typing import Any

import pytest
from django.utils import translation
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from advisor.web.form_fields import FIELDS, NUMBER, WHOLE, Field, in_field, read, typed
from advisor.web.form_fields.fields import TOKENS
from advisor.web.form_fields.values import quantity
from advisor.web.forms import WorkloadForm, as_file, from_spec
from advisor.workload.schema import parse
from catalog.models import Accelerator, ServedModel

pytestmark = pytest.mark.django_db
MODEL = "meta-llama/Llama-3.3-70B-Instruct"
ASKED = {
    "model": "llama-3.3-70b",
    "traffic.input_tokens.mean": "6k",
    "traffic.output_tokens.mean": "400",
    "traffic.requests_per_s.mean": "6",
    "traffic.requests_per_s.peak": "900/min",
    "form.latency": "own",
    "slo.ttft_ms_p95": "2s",
    "slo.tpot_ms_p95": "30 ms",
    "constraints.regions.allow": "Europe",
    "constraints.max_usd_per_month": "$40k",
    "traffic.growth_fraction_per_year": "40%",
    "tco.horizon_months": "3 years",
}
NUMERIC = [field for field in FIELDS.values() if field.reads in (NUMBER, WHOLE, TOKENS)]


@pytest.fixture(autouse=True)
def catalog() -> None:
    for hf_id in (MODEL, "mistralai/Mistral-7B-v0.1", "mistralai/Mistral-7B-v0.3"):
        ServedModel.objects.create(slug=hf_id[-12:].lower(), hf_id=hf_id, shape={}, as_of=date(2026, 11, 1))
    seen = {"memory_gib": 80, "memory_gb_per_s": 1, "as_of": date(2026, 11, 1), "vendor": "nvidia"}
    for slug, name in (("h100-sxm", "H100 SXM5 80GB"), ("h100-pcie", "H100 PCIe 80GB"), ("l40s", "L40S")):
        Accelerator.objects.create(slug=slug, name=name, **seen)


def errors(**changes: str) -> dict[str, str]:
    form = WorkloadForm({**ASKED, **changes})
    assert not form.is_valid()
    return {name: " ".join(map(str, found)) for name, found in form.errors.items()}


def test_a_question_in_a_planners_words_is_the_question() -> None:
    form = WorkloadForm({**ASKED, "owned": "2 x 8 H100 SXM, 4 L40S"})
    assert form.is_valid(), form.errors
    spec = form.spec
    assert spec["model"] == MODEL and spec["owned"] == {"h100-sxm": 16, "l40s": 4}
    assert spec["traffic"]["input_tokens"]["mean"] == 6000
    assert spec["traffic"]["requests_per_s"] == {"mean": 6, "peak": 15}
    assert (spec["slo"]["ttft_ms_p95"], spec["slo"]["tpot_ms_p95"]) == (2000, 30)
    assert spec["constraints"]["max_usd_per_month"] == 40_000
    assert spec["constraints"]["regions"]["allow"] == ["europe"]
    assert spec["traffic"]["growth_fraction_per_year"] == 0.4 and spec["tco"]["horizon_months"] == 36
    assert parse(as_file(spec)) == spec
    again = WorkloadForm(from_spec(spec))
    assert again.is_valid() and again.spec == spec


@pytest.mark.parametrize("field", NUMERIC, ids=lambda field: field.path)
@pytest.mark.parametrize("language", ["en", "de"])
def test_every_number_is_shown_as_its_field_takes_it(field: Field, language: str) -> None:
    held = quantity(field.path)
    low, high = max(held.low, -1e6), min(held.high, 1e6)

    @settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.integers(int(low) + 1, int(high)) if held.whole else st.floats(low, high, exclude_min=True))
    def each(value: float) -> None:
        with translation.override(language):
            assert read(in_field(field, typed(value, field)), field) == value

    each()


@pytest.mark.parametrize("field", NUMERIC, ids=lambda field: field.path)
def test_every_number_of_a_fresh_form_is_a_valid_entry(field: Field) -> None:
    shown = WorkloadForm(initial=from_spec(parse({"model": "m", "traffic": {"input_tokens": 9, "output_tokens": 9,
                                                                          "requests_per_s": 1}})))  # fmt: skip
    text = shown[field.path].value()
    assert text is None or isinstance(read(str(text), field), int | float)


@pytest.mark.parametrize(("field", "text", "ways"), [
    ("traffic.requests_per_s.mean", "1,500", ("1500", "1.5")),
    ("traffic.requests_per_s.mean", "1.500", ("1500", "1.5")),
    ("tco.discount_rate", "8", ("8%", "800%")), ("slo.ttft_ms_p95", "2m", ("2 min", "2 million ms")),
    ("traffic.prefix_cache_hit_rate", "30", ("30%", "3000%")),
    ("constraints.max_usd_per_month", "€40k", ("EUR", "$40k")),
    ("owned", "2 x 8 H100", ("h100-sxm", "h100-pcie")), ("model", "mistral-7b", ("7B-v0.1", "7B-v0.3")),
    ("tco", "vat-fraction: 19", ("19%", "1900%")), ("yaml", "slo: {tokens_per_s_per_user: '1,500'}", ("1500", "1.5")),
])  # fmt: skip
def test_doubt_is_an_error_beside_the_field_with_what_was_typed(field: str, text: str, ways: tuple[str, ...]) -> None:
    found = errors(**{field: text})
    assert set(found) == {field}
    shown = "1,500" if field == "yaml" else "H100" if field == "owned" else text.rpartition(": ")[2]
    assert shown in found[field] and all(way in found[field] for way in ways)


def test_a_model_is_resolved_beside_other_errors() -> None:
    assert set(errors(**{"slo.ttft_ms_p95": "2m", "objective": "costs"})) == {"slo.ttft_ms_p95", "objective"}
    assert set(errors(**{"slo.ttft_ms_p95": "soon"})) == {"slo.ttft_ms_p95"}
    both = errors(**{"slo.ttft_ms_p95": "soon", "model": "mistral-7b"})
    assert set(both) == {"slo.ttft_ms_p95", "model"} and "could mean" in both["model"]
    assert "30 ms" in both["slo.ttft_ms_p95"]  # what to write instead


def test_a_portfolio_in_yaml_gets_no_limit_of_the_form() -> None:
    part = {"name": "a", "model": MODEL, "traffic": {"input_tokens": 9, "output_tokens": 9, "requests_per_s": 1}}
    form = WorkloadForm({"kind": "portfolio", "form.latency": "chat", "slo.e2e_ms_p95": "900", "yaml": yaml_of([part])})
    assert form.is_valid(), form.errors
    assert not any(form.spec["slo"][key] for key in ("ttft_ms_p95", "tpot_ms_p95", "e2e_ms_p95"))
    assert not any(form.spec["workloads"][0]["slo"][key] for key in ("ttft_ms_p95", "tpot_ms_p95", "e2e_ms_p95"))


def yaml_of(parts: list[dict[str, Any]]) -> str:
    import yaml

    return yaml.safe_dump({"workloads": parts})
