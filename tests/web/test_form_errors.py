"""Errors of the form use the words of the form: labels instead of paths, and the fields that a section needs."""

from datetime import date
from typing import Any

import pytest
from django.test import Client

from advisor.models import Advice
from advisor.web.form_html import error_text
from advisor.web.forms import WorkloadForm
from catalog.models import ServedModel

pytestmark = pytest.mark.django_db
MODEL, OTHER = "meta-llama/Llama-3.1-8B", "meta-llama/Llama-3.1-70B"
ASKED = {
    "model": MODEL,
    "traffic.input_tokens.mean": "2000",
    "traffic.output_tokens.mean": "300",
    "traffic.requests_per_s.mean": "4",
}


@pytest.fixture(autouse=True)
def models() -> None:
    for slug, name in (("l8", MODEL), ("l70", OTHER)):
        ServedModel.objects.create(slug=slug, hf_id=name, shape={}, as_of=date(2026, 11, 1))


def errors(data: dict[str, Any]) -> dict[str, list[str]]:
    form = WorkloadForm(data)
    assert not form.is_valid()
    return {name: list(map(str, found)) for name, found in form.errors.items()}


@pytest.mark.parametrize(("data", "fields"), [
    ({}, {"model", "traffic.input_tokens.mean", "traffic.output_tokens.mean", "traffic.requests_per_s.mean"}),
    ({"model": MODEL, "form.traffic": "users", "traffic.input_tokens.mean": "9", "traffic.output_tokens.mean": "9"},
     {"traffic.users.active", "traffic.users.think_s"}),
    ({"model": MODEL, "kind": "embedding", "traffic.input_tokens.mean": "9"}, {"traffic.requests_per_s.mean"}),
    ({"model": MODEL, "kind": "batch", "traffic.input_tokens.mean": "9", "traffic.output_tokens.mean": "9"},
     {"batch.requests", "batch.deadline_hours"}),
    ({"model": MODEL, "kind": "training"}, {"training.tokens"}),
])  # fmt: skip
def test_what_is_missing_is_said_at_each_field_that_needs_it(data: dict[str, str], fields: set[str]) -> None:
    found = errors(data)
    assert set(found) == fields and all(said[0].startswith("is required") for said in found.values())


def test_a_message_names_other_fields_by_their_labels() -> None:
    item = {"field": "training.deadline_days", "message": "is longer than every_days, so runs would overlap"}
    said = error_text({**item, "allowed": "<= 30"}, "training.deadline_days")
    assert said == "is longer than “Repeat every, days”, so runs would overlap (allowed: <= 30)"
    item = {"field": "traffic.users", "message": "contradicts traffic.requests_per_s", "allowed": ""}
    assert error_text(item, "traffic.users.active") == "contradicts “Requests per second”"


def test_an_error_in_the_yaml_keeps_the_keys_that_were_written() -> None:
    item = {"field": "slo.ttft_ms_p95", "message": "must be a number", "allowed": "a number"}
    assert error_text(item, "yaml") == "slo.ttft_ms_p95: must be a number"


def test_what_the_kind_or_a_switch_leaves_out_is_not_sent() -> None:
    def spec(**changes: str) -> dict[str, Any]:
        form = WorkloadForm({**ASKED, **changes})
        assert form.is_valid(), form.errors
        return form.spec

    users = {"traffic.users.active": "60", "traffic.users.think_s": "30"}
    assert spec(**users, **{"form.traffic": "requests"})["traffic"]["users"] is None
    assert spec(**users, **{"form.traffic": "users"})["traffic"]["requests_per_s"]["peak"] == 2
    assert spec(kind="embedding")["traffic"]["output_tokens"]["mean"] == 1
    batch = {"kind": "batch", "batch.requests": "7200", "batch.deadline_hours": "1"}
    assert spec(**batch)["traffic"]["requests_per_s"]["mean"] == 2
    own = {"slo.ttft_ms_p95": "700", "form.latency": "own"}
    assert spec(**own)["slo"]["ttft_ms_p95"] == 700
    assert spec(**{**own, "form.latency": "interactive"})["slo"]["tpot_ms_p95"] == 20
    assert spec(**{**own, "form.latency": "none"})["slo"]["ttft_ms_p95"] is None


def test_each_of_several_models_gets_its_own_answer(client: Client) -> None:
    page = client.post("/", {**ASKED, "model": f"{MODEL}, {OTHER},{MODEL}"})
    assert page["Location"] == "/advice"
    assert sorted(advice.workload.spec["model"] for advice in Advice.objects.all()) == sorted([MODEL, OTHER])
    assert errors({**ASKED, "model": f"{MODEL}, no/such"}).keys() == {"model"}
    assert "at most 4" in errors({**ASKED, "model": "a, b, c, d, e"})["model"][0]


def test_named_latency_limits_are_those_of_the_examples() -> None:
    from advisor.web import forms
    from advisor.web.form_fields import LATENCIES

    for name, slug in (("chat", "support-chat"), ("interactive", "code-assistant"), ("documents", "long-document-rag")):
        slo = (forms.preset(slug) or {})["slo"]
        assert (slo["ttft_ms_p95"], slo["tpot_ms_p95"]) == LATENCIES[name][1:]
        assert forms.from_spec(forms.preset(slug) or {})["form.latency"] == name
