"""The form holds what the workload file does: each field says what it asks; form and file are one question."""

from datetime import date
from typing import Any, get_args

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from pydantic import BaseModel

from advisor import workload
from advisor.models import Advice
from advisor.web import forms
from advisor.web.form_fields import FIELDS, TRACE_FILE, TRACE_TEXT
from advisor.web.forms import WorkloadForm, as_file, from_spec
from advisor.workload.schema import Spec, parse
from catalog.models import Accelerator, Assumption, ServedModel

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
# what is not asked by a field of its own: kinds that are not answered, paths, and what only a file can hold
NOT_ASKED = {"workloads", "training", "finetuning", "model.config", "traffic.input_tokens.trace",
             "traffic.output_tokens.trace"}  # fmt: skip


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
    asked = {path for path in paths(Spec) if not path.startswith(("training.", "finetuning."))} - NOT_ASKED
    fields = set(FIELDS) - {TRACE_FILE, "tco"}
    grown = {path.rsplit(".", 1)[0] for path in fields if path.startswith(("weights.", "team."))}
    assert asked - fields - grown == set()
    assert {path.removeprefix("weights.") for path in fields if path.startswith("weights.")} == set(
        get_args(workload.Weight)
    )
    assert {path.removeprefix("team.") for path in fields if path.startswith("team.")} == set(get_args(workload.Stack))


def test_every_field_has_its_help():
    assert [path for path, field in FIELDS.items() if len(field.help) < 5] == []


def sent(**changes: str) -> dict[str, Any]:
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
    assert spec["constraints"]["kv_formats"] == {"allow": ["bf16", "fp16"], "deny": []}
    assert spec["adapters"] == {"count": 50, "rank": 16, "active": 8, "targets": "attention"}
    assert spec["constraints"]["partitions"] == "required"
    assert spec["tco"]["pue"] == 1.2 and spec["traffic"]["load_curve"][167] == 16.8
    assert parse(as_file(spec)) == spec
    initial = from_spec(spec)
    assert "yaml" not in initial
    assert parse(WorkloadForm().combined(initial)) == spec


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
        (b"\xff\xfe\x00", {}, "not a UTF-8 CSV file"),
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
