"""A portfolio is asked by rows, without YAML and without a script."""

from datetime import date
from typing import Any

import pytest
import yaml
from django.test import Client

from advisor.models import Advice
from advisor.web import forms
from advisor.web.portfolio_form import MOST_ROWS, PortfolioForm
from advisor.workload.schema import parse
from catalog.models import Accelerator, ServedModel

pytestmark = pytest.mark.django_db
MODEL, SMALL = "meta-llama/Llama-3.3-70B-Instruct", "meta-llama/Llama-3.1-8B"
CHAT = {
    "row1-name": "chat",
    "row1-kind": "serving",
    "row1-model": "llama-3.3-70b",
    "row1-traffic.requests_per_s.mean": "4",
    "row1-traffic.requests_per_s.peak": "720/min",
    "row1-traffic.input_tokens.mean": "2k",
    "row1-traffic.output_tokens.mean": "300",
    "row1-slo.ttft_ms_p95": "1.5 s",
}
TUNE = {
    "row3-name": "tune",
    "row3-kind": "finetuning",
    "row3-model": "Llama 3.1 8B",
    "row3-finetuning.tokens": "50M",
    "row3-finetuning.method": "lora",
    "row3-finetuning.every_days": "4 weeks",
}
FLEET = {"name": "both", "constraints.max_usd_per_month": "$60k", "owned": "2 x 8 H100 SXM"}


@pytest.fixture(autouse=True)
def catalog() -> None:
    for slug, hf_id in (("l70", MODEL), ("l8", SMALL)):
        ServedModel.objects.create(slug=slug, hf_id=hf_id, shape={}, as_of=date(2026, 11, 1))
    seen = {"memory_gib": 80, "memory_gb_per_s": 1, "as_of": date(2026, 11, 1), "vendor": "nvidia"}
    for slug, name in (("h100-sxm", "H100 SXM5 80GB"), ("h100-pcie", "H100 PCIe 80GB")):
        Accelerator.objects.create(slug=slug, name=name, **seen)


def text_of(page: Any) -> str:
    return str(page.content.decode())


def test_rows_become_one_portfolio(client: Client) -> None:
    page = client.post("/portfolio", {**CHAT, "row2-kind": "serving", **TUNE, **FLEET})
    assert page.status_code == 302
    spec = Advice.objects.get().workload.spec
    assert (spec["kind"], spec["name"], spec["owned"]) == ("portfolio", "both", {"h100-sxm": 16})
    assert spec["constraints"]["max_usd_per_month"] == 60_000
    chat, tune = spec["workloads"]
    assert (chat["model"], tune["model"]) == (MODEL, SMALL)
    assert chat["traffic"]["requests_per_s"] == {"mean": 4, "peak": 12} and chat["slo"]["ttft_ms_p95"] == 1500
    assert chat["slo"]["tpot_ms_p95"] is None and spec["slo"]["ttft_ms_p95"] is None  # nothing is added
    assert (tune["finetuning"]["tokens"], tune["finetuning"]["method"]) == (5e7, "lora")
    assert tune["finetuning"]["every_days"] == 28


def test_a_row_is_added_and_removed_and_nothing_typed_is_lost(client: Client) -> None:
    empty = text_of(client.get("/portfolio"))
    assert empty.count('data-job="row') == 3 and 'data-job="rowNEW"' in empty  # two rows and the template of a new one
    more = text_of(client.post("/portfolio", {**CHAT, **TUNE, "add": "1"}))
    assert [n for n in range(1, 9) if f'data-job="row{n}"' in more] == [1, 3, 4]
    assert 'value="720/min"' in more and 'value="50M"' in more and 'id="errors"' not in more
    fewer = text_of(client.post("/portfolio", {**CHAT, **TUNE, "remove": "row1"}))
    assert [n for n in range(1, 9) if f'data-job="row{n}"' in fewer] == [3] and "720/min" not in fewer
    assert not Advice.objects.exists()


def test_errors_stand_in_their_rows_and_names_are_resolved_beside_them(client: Client) -> None:
    wrong = {**CHAT, "row1-slo.ttft_ms_p95": "2m", **TUNE, "row3-model": "llama", **FLEET, "owned": "2 x 8 H100"}
    page = client.post("/portfolio", wrong)
    text = text_of(page)
    assert page.status_code == 422 and not Advice.objects.exists()
    told = text.split('id="errors"')[1].split("</ul>")[0]
    assert told.count("<li>") == 3
    assert "chat, Time to first token" in told and "2 min or 2 million ms" in told
    assert 'href="#id_row3-model"' in told and f"{SMALL}" in told and MODEL in told
    assert "Accelerators you own" in told and "h100-pcie or h100-sxm" in told


@pytest.mark.parametrize(("data", "says"), [
    ({}, "Fill in at least one workload."),
    ({**CHAT, "row1-model": f"{MODEL}, {SMALL}"}, "add a workload for each"),
    ({**CHAT, "row1-traffic.output_tokens.mean": ""}, "is required"),
    ({**CHAT, "yaml": "objective: costs"}, "objective"),
    ({**CHAT, "row1-yaml": "slo: {ttft: 1}"}, "unknown key"),
])  # fmt: skip
def test_what_is_missing_or_wrong_is_said(client: Client, data: dict[str, str], says: str) -> None:
    page = client.post("/portfolio", data)
    assert page.status_code == 422 and says in text_of(page)


def test_other_settings_of_a_row_and_of_the_fleet_are_yaml(client: Client) -> None:
    extra = {"row1-yaml": "traffic: {load_curve: office_hours}", "yaml": "objective: carbon"}
    assert client.post("/portfolio", {**CHAT, **extra, "row1-traffic.requests_per_s.peak": ""}).status_code == 302
    spec = Advice.objects.get().workload.spec
    assert spec["objective"] == "carbon" and spec["workloads"][0]["traffic"]["load_curve"] == "office_hours"


def posted(form: PortfolioForm) -> dict[str, Any]:
    """What a browser would send of the form as it is shown."""
    sent: dict[str, Any] = {}
    for part in (*form.rows, form.fleet):
        sent |= {part.add_prefix(name): part[name].value() for name in part.fields if part[name].value() is not None}
    return sent


@pytest.mark.parametrize("slug", [p["slug"] for p in forms.presets() if (forms.preset(p["slug"]) or {})["workloads"]])
def test_an_example_of_several_workloads_is_the_same_question_in_rows(slug: str) -> None:
    spec = forms.preset(slug)
    assert spec is not None
    form = PortfolioForm.of_spec(spec, None)
    parts = [row.combined(row.initial) for row in form.rows]
    form.fleet.rows = form.rows
    assert parse(form.fleet.combined(form.fleet.initial)) == spec and len(parts) == len(spec["workloads"])


def test_a_question_that_is_changed_opens_in_rows_and_is_the_same(client: Client) -> None:
    client.post("/portfolio", {**CHAT, **TUNE, **FLEET})
    advice = Advice.objects.get()
    page = client.get(f"/?from={advice.pk}", follow=True)
    assert page.redirect_chain == [(f"/portfolio?from={advice.pk}", 302)]
    assert client.post("/portfolio", posted(page.context["form"])).status_code == 302
    again = Advice.objects.exclude(pk=advice.pk).get()
    assert again.workload.spec == advice.workload.spec


def test_the_form_for_one_workload_leads_here(client: Client) -> None:
    assert 'href="/portfolio"' in text_of(client.get("/"))
    assert client.get("/?preset=shared-fleet")["Location"] == "/portfolio?preset=shared-fleet"
    assert client.get("/portfolio?preset=no-such").status_code == 404


def test_more_rows_than_a_portfolio_may_have_are_not_added(client: Client) -> None:
    rows = {f"row{n}-kind": "serving" for n in range(1, MOST_ROWS + 5)}
    assert text_of(client.post("/portfolio", {**rows, "add": "1"})).count('data-job="row') == MOST_ROWS + 1


def test_yaml_stays_the_alternative(client: Client) -> None:
    parts = [{"name": "a", "model": MODEL, "traffic": {"input_tokens": "2k", "output_tokens": 9, "requests_per_s": 1}}]
    written = yaml.safe_dump({"kind": "portfolio", "workloads": parts})
    assert client.post("/", {"form.latency": "chat", "yaml": written}).status_code == 302
    spec = Advice.objects.get().workload.spec
    assert spec["slo"]["ttft_ms_p95"] is None and spec["workloads"][0]["traffic"]["input_tokens"]["mean"] == 2000
