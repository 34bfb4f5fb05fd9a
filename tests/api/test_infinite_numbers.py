"""Numbers that JSON does not have are refused by their key at every entrance, or read where they are harmless."""

import inspect
import json
from typing import Any

import pytest
from django.core.management import call_command
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver
from drf_spectacular.generators import SchemaGenerator
from rest_framework.parsers import BaseParser

from advisor.api import JSONParser
from advisor.deployments import DeploymentError, Given, read_files
from advisor.web.load_test_views import FileParser
from catalog.api.changes import FilesParser
from catalog.rest import StrictJSONParser
from probes.api.agent_views import BodyParser

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("frozen")]
NUMBERS = ["Infinity", "-Infinity", "NaN", "1e999"]


def parsers(patterns: Any) -> set[type[BaseParser]]:
    found = set[type[BaseParser]]()
    for each in patterns:
        if isinstance(each, URLResolver):
            found |= parsers(each.url_patterns)
        elif isinstance(each, URLPattern) and (view := getattr(each.callback, "cls", None)):
            if "request.data" not in inspect.getsource(view):  # it reads no body
                continue
            found |= {p for p in view.parser_classes if p.media_type == "application/json"}
    return found


def test_each_reader_of_bodies_is_strict_or_has_a_validation_that_names_the_key() -> None:
    """The workload's and the load tests' are tried below, the probes' are bytes; config.json of Mamba has one."""
    known = (JSONParser, FileParser, FilesParser, BodyParser)
    for each in parsers(get_resolver().url_patterns):
        assert issubclass(each, known) or issubclass(each, StrictJSONParser) and each.finite, each


def keys() -> list[tuple[str, str, str]]:
    """(method, path, key) of each key of each body that needs no other row."""
    schema = SchemaGenerator(api_version="1").get_schema(request=None, public=True)
    found = []
    for path, calls in schema["paths"].items():
        for method, call in calls.items():
            body = (
                call.get("requestBody", {}).get("content", {}).get("application/json") if method != "parameters" else 0
            )
            if not body or "{" in path or "/agent/" in path:
                continue
            named = body["schema"].get("$ref", "").rpartition("/")[2]
            properties = schema["components"]["schemas"].get(named, {}).get("properties", {})
            found += [(method, path, key) for key in [*properties, "unknown_key"]]
    return found


def test_every_key_of_every_body_is_refused_by_name() -> None:
    client, trouble, seen = Client(), [], 0
    client.raise_request_exception = False
    for i, (method, path, key) in enumerate(keys()):
        body = f'{{"{key}": {NUMBERS[i % 4]}}}'
        answer = client.generic(method.upper(), path, body, content_type="application/json")
        if answer.status_code in (401, 403, 404, 429) or b'"detail": "kind: is required"' in answer.content:
            continue
        seen += 1
        if not 400 <= answer.status_code < 500 or key not in answer.content.decode():
            trouble.append(f"{method} {path} {body}: {answer.status_code} {answer.content[:200]!r}")
    assert seen > 50 and not trouble, "\n".join(trouble)


@pytest.mark.parametrize("number", NUMBERS)
def test_a_workload_and_its_files_name_the_key(number: str, tmp_path: Any, capsys: Any) -> None:
    text = f'{{"model": "m", "traffic": {{"input_tokens": 5, "output_tokens": 5, "requests_per_s": {number}}}}}'
    for path in ("/api/v1/advice", "/api/v1/quick"):
        answer = Client().post(path, text, content_type="application/json")
        assert answer.status_code == 422 and "traffic.requests_per_s" in answer.content.decode()
    study = f'{{"kind": "grid", "workload": {text}, "axes": {{}}}}'
    answer = Client().post("/api/v1/studies", study, content_type="application/json")
    assert answer.status_code == 422 and "requests_per_s" in answer.content.decode(), answer.content
    (tmp_path / "w.yaml").write_text(text)
    with pytest.raises(SystemExit):
        call_command("advise", str(tmp_path / "w.yaml"))
    said = capsys.readouterr()
    assert "traffic.requests_per_s" in said.out + said.err
    (tmp_path / "s.json").write_text(f'{{"catalog_version": {{"x": {number}}}}}')
    with pytest.raises(SystemExit):
        call_command("advise", "fixtures/workloads/support-chat.yaml", "--snapshot", str(tmp_path / "s.json"))
    said = capsys.readouterr()
    assert "a number that is not finite: catalog_version.x" in said.out + said.err


@pytest.mark.parametrize("number", NUMBERS)
def test_a_deployment_is_read_or_refused_and_never_has_such_a_number(number: str) -> None:
    texts = [
        f'{{"apiVersion": "v1", "kind": "Pod", "spec": {{"containers": [{{"image": "vllm/vllm-openai:v0.11.0", "args": '
        f'["--model", "a/b", "--max-model-len", {number}], "resources": {{"limits": '
        f'{{"nvidia.com/gpu": {number}}}}}}}]}}}}',
        f"vllm:num_requests_running{{model_name=\"m\"}} {number.replace('Infinity', 'Inf')}\n"
        f"vllm:prompt_tokens_total{{model_name=\"m\"}} {number.replace('Infinity', 'Inf')}\n"
        "vllm:request_success_total{model_name=\"m\"} 3\n",
    ]  # fmt: skip
    for text in texts:
        try:
            records = read_files([Given("file", text.encode())])
        except DeploymentError:
            continue
        for record in records:
            json.dumps([record.settings.as_json(), record.seen.as_json() if record.seen else {}], allow_nan=False)
