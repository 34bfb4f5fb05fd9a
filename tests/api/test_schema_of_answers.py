"""The OpenAPI document is valid 3.1, and real responses fit it: null only where the document allows it."""

import copy
import json
from collections.abc import Iterator
from functools import cache
from typing import Any

import jsonschema_rs
import pytest
from django.test import Client
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.validation import validate_schema

from advisor.models import Share
from tests import sample_advice, sample_money
from tests.stored_answers import advice, stored

DIALECT = "https://json-schema.org/draft/2020-12/schema"
OF_30 = {"nullable", "example"}  # keywords of schemas that 3.1 does not have
Json = dict[str, Any]


@cache
def document() -> Json:
    return json.loads(json.dumps(SchemaGenerator().get_schema(request=None, public=True)))


def validator(schema: Json) -> jsonschema_rs.Draft202012Validator:
    known = {"components": document()["components"]} if "$ref" in json.dumps(schema) else {}
    return jsonschema_rs.Draft202012Validator({"$schema": DIALECT, **known, **schema})


def faults(schema: Json, value: Any) -> list[str]:
    return [f"{list(each.instance_path)}: {each.message[:200]}" for each in validator(schema).iter_errors(value)]


@cache
def answer_validator() -> jsonschema_rs.Draft202012Validator:
    return validator({"$ref": "#/components/schemas/Answer"})


def schemas(value: Any, where: str = "") -> Iterator[tuple[str, Json]]:
    """Every schema of the document with its place; the names of properties are not keywords."""
    if isinstance(value, list):
        for n, each in enumerate(value):
            yield from schemas(each, f"{where}/{n}")
    elif isinstance(value, dict):
        yield where, value
        for key, each in value.items():
            named = key in ("properties", "patternProperties", "schemas") and isinstance(each, dict)
            if key not in ("default", "enum", "const", "examples", "example"):
                parts = each.items() if named else [("", each)]
                for name, part in parts:
                    yield from schemas(part, f"{where}/{key}/{name}")


# --- the document -----------------------------------------------------------------------------------------------


def test_the_document_is_valid_openapi_31_without_words_of_30() -> None:
    assert document()["openapi"].startswith("3.1")
    validate_schema(document())
    assert [where for where, schema in schemas(document()["components"]) if OF_30 & set(schema)] == []


def test_every_schema_is_valid_json_schema_and_allows_its_own_default() -> None:
    for where, schema in schemas(document()["components"]["schemas"]):
        if "default" in schema and not where.endswith(("properties/", "required/")):
            assert faults(schema, schema["default"]) == [], where
    for name, schema in document()["components"]["schemas"].items():
        assert jsonschema_rs.meta.is_valid({"$schema": DIALECT, **schema}), name


# --- answers ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", stored())
def test_a_stored_answer_of_every_kind_fits_the_document(name: str) -> None:
    found = [
        f"{list(e.instance_path)}: {e.message[:200]}" for e in answer_validator().iter_errors(stored()[name]["answer"])
    ]
    assert found == []


def nulls_and_texts(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths of the numbers in an answer, outside what is free text or a table of any keys."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in items:
        if isinstance(each, int | float) and not isinstance(each, bool):
            yield *path, key
        yield from nulls_and_texts(each, (*path, key))


def test_a_text_where_a_number_belongs_does_not_fit() -> None:
    """The check of answers sees into every part of them."""
    answer = stored()["support-chat"]["answer"]
    paths = [path for path in nulls_and_texts(answer) if path[0] in ("recommendations", "near_misses", "candidates")]
    for path in paths[:: max(len(paths) // 40, 1)]:
        wrong = copy.deepcopy(answer)
        place = wrong
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = "many"
        assert not answer_validator().is_valid(wrong), path


# --- responses --------------------------------------------------------------------------------------------------


def described(path: str, method: str = "get", status: str = "200") -> Json:
    content = document()["paths"][path][method]["responses"][status]["content"]
    found: Json = content["application/json"]["schema"]
    return found


def lists_of_get() -> list[str]:
    """Those that need no parameter."""
    gets = {path: methods["get"] for path, methods in document()["paths"].items() if "get" in methods}
    return [
        path
        for path, get in gets.items()
        if "{" not in path and not any(each.get("required") for each in get.get("parameters", ()))
    ]


@pytest.fixture
def rows(db: None, frozen: None) -> dict[str, str]:
    """Rows with and without what may be missing, and the IDs in paths."""
    done = sample_advice.advice(sample_money.result())
    for state in ("queued", "running", "cancelled"):
        sample_advice.advice(state=state)
    sample_advice.advice(state="failed", error="out of memory")
    for name in ("infeasible", "shared-fleet", "pretrain-8b"):
        advice(name).save()
    Share.objects.create(organisation=done.organisation, advice=done, expires_at="2030-01-01T00:00:00Z")
    return {"id": str(done.pk)}


def test_every_list_fits_the_document(rows: dict[str, str], client: Client) -> None:
    for path in lists_of_get():
        for page in ("", "?limit=2&offset=1"):
            paged = page if "Paginated" in json.dumps(described(path)) else ""
            answer = client.get(path + paged)
            if answer.status_code == 404 and "fidelity" in path:
                continue  # no scorecard is loaded
            assert answer.status_code == 200, (path, answer.content)
            assert faults(described(path), answer.json()) == [], path


def test_every_object_of_a_list_fits_the_document(rows: dict[str, str], client: Client) -> None:
    checked = 0
    for path in lists_of_get():
        one = next((each for each in document()["paths"] if each.startswith(f"{path}/{{") and each.count("/") == 4), "")
        if not one or "get" not in document()["paths"][one]:
            continue
        for row in client.get(path).json()["results"][:5]:
            key = row.get(one.split("{")[1].rstrip("}"))
            answer = client.get(f"{path}/{key}")
            assert answer.status_code == 200 and faults(described(one), answer.json()) == [], (path, key)
            checked += 1
    assert checked > 40


LLAMA = "meta-llama/Llama-3.1-8B"
FIXED = {"model": LLAMA, "accelerator": "h100-sxm", "weights": "fp8", "isl": 1000, "osl": 200, "concurrency": 8}
STEP = {"kind": "training", "model": LLAMA, "accelerator": "h100-sxm", "count": 8, "sequence_length": 4096}
POOLS = {"prefill_pool": {"workers": 1}, "decode_pool": {"workers": 2}}
TRAFFIC = {"input_tokens": 1000, "output_tokens": 200, "requests_per_s": 2}
READING = {"input_tokens": 256, "requests_per_s": 40}
CALLS = {
    "a deployment": ("estimate", FIXED),
    "one without measurements": ("estimate", {**FIXED, "use_measurements": False}),
    "one that does not fit": ("estimate", {**FIXED, "accelerator": "t4", "weights": "fp16"}),
    "one at a rate": ("estimate", {**FIXED, "concurrency": "max", "client": "poisson:2"}),
    "one of two pools": ("estimate", {**FIXED, **POOLS}),
    "an encoder": ("estimate", {**FIXED, "model": "BAAI/bge-m3", "weights": "bf16", "osl": 0}),
    "one without a price": ("estimate", {**FIXED, "accelerator": "tpu-v7", "weights": "bf16"}),
    "a training step": ("estimate", {**STEP, "global_batch": 16}),
    "one that runs out of memory": ("estimate", {**STEP, "count": 1, "sequence_length": 65_536, "global_batch": 8}),
    "a preference step": ("estimate", {**STEP, "kind": "finetuning", "objective": "grpo", "global_batch": 64}),
    "a quick ranking": ("quick", {"name": "q", "model": LLAMA, "traffic": TRAFFIC}),
    "one that nothing meets": ("quick", {"name": "q", "model": LLAMA, "traffic": TRAFFIC, "slo": {"ttft_ms_p95": 1}}),
    "one of vectors": ("quick", {"name": "q", "kind": "embedding", "model": "BAAI/bge-m3", "traffic": READING}),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_every_kind_of_estimate_fits_the_document(name: str, db: None, frozen: None, client: Client) -> None:
    call, body = CALLS[name]
    answer = client.post(f"/api/v1/{call}", body, content_type="application/json")
    assert answer.status_code in (200, 422), answer.content
    content = document()["paths"][f"/api/v1/{call}"]["post"]["responses"][str(answer.status_code)]["content"]
    assert faults(next(iter(content.values()))["schema"], answer.json()) == []
    assert answer.status_code == 200, answer.content
