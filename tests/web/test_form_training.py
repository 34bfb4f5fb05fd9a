"""The form of a training or fine-tuning run: what is typed, what is hidden, and the way back into the form."""

from datetime import date
from typing import Any

import pytest
from django.test import Client

from advisor.web import forms
from advisor.web.form_fields import FIELDS, read, typed
from advisor.web.forms import WorkloadForm, as_file, from_spec
from advisor.workload.schema import parse
from advisor.workload.text import load
from catalog.models import ServedModel

pytestmark = pytest.mark.django_db
TOKENS = FIELDS["training.tokens"]
MODEL = "meta-llama/Llama-3.1-8B"
RUN = {"name": "run", "model": MODEL, "kind": "training", "training.tokens": "2T", "training.recompute": "auto"}
TUNE = {
    "name": "tune",
    "model": MODEL,
    "kind": "finetuning",
    "finetuning.tokens": "50M",
    "finetuning.recompute": "auto",
}
SERVE = {
    "traffic.input_tokens.mean": "lots",
    "traffic.requests_per_s.mean": "4",
    "slo.ttft_ms_p95": "soon",
    "batch.requests": "many",
    "adapters.count": "x",
    "structured_output": "yes",
}


@pytest.fixture(autouse=True)
def model() -> None:
    ServedModel.objects.create(slug="l", hf_id=MODEL, shape={}, as_of=date(2026, 11, 1))


def spec_of(data: dict[str, str]) -> dict[str, Any]:
    form = WorkloadForm(data)
    assert form.is_valid(), form.errors
    return form.spec


@pytest.mark.parametrize(("text", "tokens"), [
    ("2T", 2e12), ("100B", 1e11), ("50 M", 5e7), ("0.5t", 5e11), ("260k", 2.6e5), ("1e12", 1e12), ("4,000,000", 4e6),
    ("4194304", 4194304), ("2Q", "2Q"), ("T", "T"), ("-1B", -1_000_000_000),
])  # fmt: skip
def test_tokens_are_read_with_their_letter(text: str, tokens: object) -> None:
    assert read(text, TOKENS) == tokens


@pytest.mark.parametrize(("tokens", "text"), [
    (2e12, "2T"), (1.5e10, "15B"), (4e6, "4M"), (2.6e5, "260k"), (4194304.0, "4194304"), (500, "500"),
])  # fmt: skip
def test_tokens_are_shown_as_short_as_is_exact(tokens: float, text: str) -> None:
    assert typed(tokens, TOKENS) == text
    assert read(text, TOKENS) == tokens


@pytest.mark.parametrize("data", [
    RUN,
    {**RUN, "training.tokens": "", "training.budget_usd": "250,000"},
    {**RUN, "training.continued": "yes", "training.deadline_days": "30", "training.every_days": "60",
     "training.precision": "mxfp8", "training.optimizer": "muon", "training.recompute": "full",
     "training.sequence_length": "32768", "training.global_batch_tokens": "4194304"},
    TUNE,
    {**TUNE, "finetuning.method": "qlora", "finetuning.rank": "64", "finetuning.every_days": "7",
     "finetuning.optimizer": "adamw_8bit"},
])  # fmt: skip
def test_an_edited_run_is_the_same_question(data: dict[str, str]) -> None:
    spec = spec_of(data)
    again = from_spec(spec)
    assert "yaml" not in again
    assert parse(WorkloadForm().combined(again)) == spec
    assert parse(as_file(spec)) == spec


def test_a_file_of_a_run_leaves_out_what_is_the_default() -> None:
    assert load(as_file(spec_of(RUN)))["training"] == {"tokens": 2e12}
    assert load(as_file(spec_of(TUNE)))["finetuning"] == {"tokens": 5e7}


@pytest.mark.parametrize("data", [RUN, TUNE])
def test_what_only_serving_asks_is_not_sent_with_a_run(data: dict[str, str]) -> None:
    assert spec_of({**data, **SERVE}) == spec_of(data)


def test_what_a_run_asks_is_not_sent_with_other_kinds() -> None:
    serving = {
        "name": "desk", "model": MODEL, "kind": "serving", "traffic.input_tokens.mean": "2000",
        "traffic.output_tokens.mean": "300", "traffic.requests_per_s.mean": "4",
    }  # fmt: skip
    assert spec_of({**serving, "training.tokens": "lots", "finetuning.rank": "-1"}) == spec_of(serving)
    assert spec_of({**TUNE, "training.tokens": "lots", "training.precision": "fp8"}) == spec_of(TUNE)


def test_a_kind_in_the_yaml_decides_which_fields_are_sent() -> None:
    data = {**TUNE, "kind": "serving", "yaml": "kind: finetuning"}
    assert spec_of(data)["finetuning"]["tokens"] == 5e7


@pytest.mark.parametrize(("data", "field", "typed", "says"), [
    (RUN, "training.tokens", "", "or “budget for the run, USD”"),
    (RUN, "training.tokens", "2 zillion", "must be a number"),
    (RUN, "training.budget_usd", "5", "either tokens or “budget for the run, USD”"),
    (RUN, "training.sequence_length", "8", "at least 16"),
    (RUN, "training.global_batch_tokens", "4k", "less than one sequence"),
    (RUN, "training.deadline_days", "soon", "must be a number"),
    (TUNE, "finetuning.tokens", "", "required"),
    (TUNE, "finetuning.rank", "0", "at least 1"),
    (TUNE, "finetuning.every_days", "-7", "greater than 0"),
])  # fmt: skip
def test_an_error_of_a_run_stands_beside_its_field(data: dict[str, str], field: str, typed: str, says: str) -> None:
    form = WorkloadForm({**data, field: typed})
    assert not form.is_valid()
    placed = "training.tokens" if field == "training.budget_usd" else field
    assert list(form.errors) == [placed] and says in str(form.errors[placed])


def test_a_refused_run_keeps_what_was_typed(client: Client) -> None:
    page = client.post("/", {**RUN, "training.tokens": "2 zillion", "training.deadline_days": "30"})
    text = page.content.decode()
    assert page.status_code == 422
    assert 'value="2 zillion"' in text and 'href="#id_training.tokens"' in text


def test_the_two_kinds_of_runs_ask_the_same_questions_in_the_same_words() -> None:
    shared = 0
    for path in FIELDS:
        section, _, name = path.partition(".")
        other = FIELDS.get(f"finetuning.{name}")
        if section == "training" and other:
            shared += 1
            assert (other.label, other.reads, other.choices) == (
                FIELDS[path].label, FIELDS[path].reads, FIELDS[path].choices,
            )  # fmt: skip
    assert shared == 8


@pytest.mark.parametrize("slug", ["pretrain-8b", "continue-70b", "finetune-lora-8b"])
def test_an_example_of_a_run_fills_the_form(client: Client, slug: str) -> None:
    spec = forms.preset(slug)
    assert spec is not None
    section = spec[spec["kind"]]
    text = client.get(f"/?preset={slug}").content.decode()
    assert f'value="{typed(section["tokens"], TOKENS)}"' in text


def test_the_form_asks_for_reinforcement_learning() -> None:
    typed = {
        "name": "rl",
        "model": MODEL,
        "kind": "finetuning",
        "finetuning.objective": "grpo",
        "finetuning.iterations": "500",
        "finetuning.response_tokens": "1000",
        "finetuning.reference": "no",
        "finetuning.recompute": "auto",
    }
    section = spec_of(typed)["finetuning"]
    assert section["objective"] == "grpo" and section["reference"] == "no" and section["iterations"] == 500
    assert section["samples_per_prompt"] == 8 and section["tokens"] is None
    form = WorkloadForm({**typed, "finetuning.response_tokens": ""})
    assert not form.is_valid() and "finetuning.response_tokens" in form.errors
    assert WorkloadForm(from_spec(spec_of(typed))).is_valid()  # the way back
