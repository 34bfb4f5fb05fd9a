"""The API's description: valid, complete, exported by a command."""

import json
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command


@pytest.fixture(scope="module")
def schema(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    file = tmp_path_factory.mktemp("schema") / "openapi.json"
    call_command("export_openapi", str(file))
    return json.loads(file.read_text())


def references(value: Any) -> set[str]:
    if isinstance(value, dict):
        found = {value["$ref"]} if isinstance(value.get("$ref"), str) else set()
        return found.union(*map(references, value.values()))
    return set().union(*map(references, value)) if isinstance(value, list) else set()


def test_every_reference_leads_somewhere(schema: dict[str, Any]) -> None:
    names = {f"#/components/schemas/{name}" for name in schema["components"]["schemas"]}
    assert references(schema) <= names


def test_asking_is_described_with_its_location_and_its_problems(schema: dict[str, Any]) -> None:
    post = schema["paths"]["/api/v1/advice"]["post"]
    assert "Location" in post["responses"]["202"]["headers"]
    assert {"400", "409", "413", "415", "422", "429"} <= set(post["responses"])
    assert "application/problem+json" in post["responses"]["422"]["content"]
    assert set(post["requestBody"]["content"]) == {"application/json", "application/yaml"}


def test_a_workload_may_be_written_short(schema: dict[str, Any]) -> None:
    traffic = schema["components"]["schemas"]["WorkloadTraffic"]["properties"]
    kinds = [option.get("type") for option in traffic["input_tokens"]["anyOf"]]
    assert "number" in kinds


def test_a_file_of_the_server_cannot_be_named_in_the_description(schema: dict[str, Any]) -> None:
    parts = schema["components"]["schemas"]
    for section, key in (("Config", "config"), ("Lengths", "trace"), ("Traffic", "trace")):
        described = parts[f"Workload{section}"]["properties"].get(key, {})
        assert '"type": "string"' not in json.dumps(described).replace('"$ref"', ""), (section, described)


def test_sorting_names_the_columns(schema: dict[str, Any]) -> None:
    parameters = {p["name"]: p for p in schema["paths"]["/api/v1/models"]["get"]["parameters"]}
    assert {"family", "-family"} <= set(parameters["ordering"]["schema"]["items"]["enum"])
    assert parameters["limit"]["schema"]["minimum"] == 1


def test_yaml_by_name(tmp_path: Path) -> None:
    call_command("export_openapi", str(tmp_path / "openapi.yaml"))
    assert (tmp_path / "openapi.yaml").read_text().startswith("openapi: 3.1")


def test_every_call_says_how_it_refuses(schema: dict[str, Any]) -> None:
    assert "Problem" in schema["components"]["schemas"]
    for path, operations in schema["paths"].items():
        for operation in operations.values():
            wanted = {"400", "401", "403", "406", "429"} | ({"404"} if "{" in path else set())
            assert wanted <= set(operation["responses"]), path


@pytest.mark.django_db
@pytest.mark.parametrize("name", ["models", "prices", "accelerators", "agents", "probe-jobs", "advice"])
@pytest.mark.parametrize("page", ["limit=5614224415220378370048", "offset=5614224415220378370048"])
def test_a_page_beyond_every_number_of_the_database_is_empty_and_no_failure(client: Any, name: str, page: str) -> None:
    assert client.get(f"/api/v1/{name}?{page}").status_code == 200
