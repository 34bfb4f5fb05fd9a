"""A question without a name is called by its model and its load, and the name follows when they change."""

from typing import Any

import pytest
import yaml

from advisor import advise
from advisor.inputs import what_if, with_catalog_names
from advisor.stored import upgraded
from advisor.web import forms
from advisor.workload import parse
from catalog.models import default_organisation
from tests import sample_advice

pytestmark = pytest.mark.django_db
TEXT = {"input_tokens": 2000, "output_tokens": 300}
LLAMA = "meta-llama/Llama-3.3-70B-Instruct"


def question(**fields: Any) -> dict[str, Any]:
    return parse({"model": LLAMA, "traffic": {**TEXT, "requests_per_s": {"mean": 4, "peak": 12}}, **fields})


@pytest.mark.parametrize(("fields", "name"), [
    ({}, "Llama-3.3-70B-Instruct, 4 requests/s"),
    ({"traffic": {**TEXT, "requests_per_s": 20000}}, "Llama-3.3-70B-Instruct, 20,000 requests/s"),
    ({"traffic": {**TEXT, "users": {"active": 500, "think_s": 20}}}, "Llama-3.3-70B-Instruct, 500 users"),
    ({"kind": "batch", "traffic": TEXT, "batch": {"requests": 800000, "deadline_hours": 8}},
     "Llama-3.3-70B-Instruct, 800,000 requests in 8 h"),
    ({"kind": "training", "traffic": None, "training": {"tokens": 2e12, "deadline_days": 60}},
     "Llama-3.3-70B-Instruct, training on 2T tokens"),
    ({"kind": "training", "traffic": None, "training": {"budget_usd": 20000}},
     "Llama-3.3-70B-Instruct, training for $20,000"),
    ({"kind": "finetuning", "traffic": None, "finetuning": {"method": "lora", "tokens": 48e6}},
     "Llama-3.3-70B-Instruct, LoRA fine-tuning on 48M tokens"),
    ({"model": {"config": {"a": 1}}}, "own model, 4 requests/s"),
    ({"name": "support"}, "support"),
    ({"name": "untitled"}, "Llama-3.3-70B-Instruct, 4 requests/s"),
])  # fmt: skip
def test_a_question_is_named_from_its_model_and_load(fields: dict[str, Any], name: str) -> None:
    assert question(**fields)["name"] == name


def test_a_fleet_is_named_from_its_workloads() -> None:
    parts = [{"model": LLAMA, "traffic": {**TEXT, "requests_per_s": n}} for n in range(1, 6)]
    named = [parse({"kind": "portfolio", "workloads": parts[:n]})["name"] for n in (1, 2, 5)]
    assert named[0] == "Llama-3.3-70B-Instruct, 1 request/s on one fleet"
    assert named[1].endswith(" and Llama-3.3-70B-Instruct, 2 requests/s on one fleet")
    assert named[2].endswith(" and 3 more on one fleet") and len(named[2]) <= 120


def test_the_name_follows_a_changed_load_unless_the_planner_gave_it(frozen: None) -> None:
    for spec, name in ((question(), "Llama-3.3-70B-Instruct, 8 requests/s"), (question(name="support"), "support")):
        assert what_if.changed(spec, {"load": ["2"]})["name"] == name


def test_the_name_is_not_in_the_form_or_the_file_unless_the_planner_gave_it() -> None:
    for spec, is_given in ((question(), False), (question(name="support"), True)):
        assert ("name" in forms.from_spec(spec), "name" in yaml.safe_load(forms.as_file(spec))) == (is_given, is_given)


def test_a_short_name_of_a_model_is_resolved_in_the_name(frozen: None) -> None:
    spec = with_catalog_names(question(model="llama 3.3 70b instruct"))
    assert (spec["model"], spec["name"]) == (LLAMA, "Llama-3.3-70B-Instruct, 4 requests/s")


def test_lists_pages_and_exports_show_the_name(client: Any, frozen: None) -> None:
    advice = sample_advice.advice()
    asked = advise.request(question(), default_organisation())
    assert asked.workload.name == "Llama-3.3-70B-Instruct, 4 requests/s" in client.get("/advice").text
    old = upgraded({**advice.result, "workload": {**advice.result["workload"], "name": "untitled"}}, 2)
    assert old["workload"]["name"] == "Llama-3.3-70B-Instruct, 4 requests/s"
