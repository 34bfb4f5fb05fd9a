"""However much is wrong with what was sent: a short answer, with a count, without work for each error."""

import json
import re
from datetime import date
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.test import Client

from advisor import workload
from advisor.workload import errors
from advisor.workload.text import MAX_ERRORS, WorkloadError
from catalog.models import CatalogLoad, ServedModel

pytestmark = pytest.mark.django_db
TRAFFIC = {"input_tokens": 500, "output_tokens": 100, "requests_per_s": 2}
GOOD = {"name": "n", "model": "acme/m", "traffic": TRAFFIC}
FIXED = {"model": "acme/m", "accelerator": "h100-sxm", "weights": "fp8", "isl": 1, "osl": 1}
UNKNOWN_KEYS = {f"unknown_key_of_some_length_{n:06}": 0 for n in range(18_000)}  # 650 KB
MOST_BYTES = 100_000


@pytest.fixture(autouse=True)
def model() -> None:
    ServedModel.objects.create(slug="m", hf_id="acme/m", shape={}, as_of=date(2026, 11, 1))


@pytest.fixture
def compared(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names for which near ones were looked for: the slow part of an error."""
    found: list[str] = []

    def near(given: object, *others: Any, **named: Any) -> str:
        found.append(str(given))
        return ""

    monkeypatch.setattr(errors, "near", near)
    return found


def post(path: str, body: Any, kind: str = "application/json") -> Any:
    data = body if isinstance(body, str) else json.dumps(body)
    answer = Client().generic("POST", f"/api/v1/{path}", data, kind)
    assert len(answer.content) < MOST_BYTES
    return answer


@pytest.mark.parametrize(("path", "base"), [("advice", GOOD), ("estimate", FIXED)])
def test_thousands_of_unknown_keys_are_fifty_errors_and_a_count(path: str, base: Any, compared: list[str]) -> None:
    answer = post(path, base | UNKNOWN_KEYS)
    assert answer.status_code == 422
    body = answer.json()
    assert len(body["errors"]) == MAX_ERRORS == 50 and body["error_count"] == len(UNKNOWN_KEYS)
    assert "unknown key" in body["errors"][0]["message"] and body["errors"][0]["allowed"]
    assert len(body["detail"]) <= 2003
    assert len(compared) == MAX_ERRORS


@pytest.mark.parametrize(
    "changes",
    [
        {"traffic": TRAFFIC | UNKNOWN_KEYS},
        {"tco": dict.fromkeys(UNKNOWN_KEYS, 1)},
        {"owned": {f"chip-{n}": 1 for n in range(200)}, "inventory": {f"chip-{n}": 1 for n in range(200)}},
        {"constraints": {"regions": {"allow": [f"r{n}" for n in range(200)], "deny": [f"d{n}" for n in range(200)]}}},
        {"traffic": TRAFFIC | {"load_curve": ["x"] * 10_000}},
        {"team": dict.fromkeys(UNKNOWN_KEYS, 1)},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_wherever_the_errors_are_few_are_explained(changes: Any, compared: list[str]) -> None:
    answer = post("advice", GOOD | changes)
    assert answer.status_code == 422 and 0 < len(answer.json()["errors"]) <= MAX_ERRORS
    assert len(compared) <= MAX_ERRORS


def test_unknown_keys_in_the_workloads_of_a_portfolio_are_counted_together() -> None:
    part = GOOD | dict.fromkeys(list(UNKNOWN_KEYS)[:800], 0)
    answer = post("advice", {"kind": "portfolio", "workloads": [part] * 20})
    assert answer.status_code == 422 and len(answer.json()["errors"]) == MAX_ERRORS
    assert answer.json()["error_count"] == 20 * 800


def test_unknown_names_of_a_whole_portfolio_are_compared_fifty_times(compared: list[str]) -> None:
    part = GOOD | {"owned": {f"chip-{n}": 1 for n in range(200)}}
    answer = post("advice", {"kind": "portfolio", "workloads": [part] * 20})
    assert answer.json()["error_count"] == 20 * 200 and len(compared) == MAX_ERRORS


def test_more_values_than_any_workload_has_are_refused_as_one_error() -> None:
    answer = post("advice", {"a": [0] * 300_000})
    assert answer.status_code == 400 and "at most 20,000 values" in answer.json()["detail"]
    with pytest.raises(WorkloadError, match="too many values"):
        workload.parse({"a": [0] * 300_000})


@pytest.mark.parametrize("kind", ["application/json", "application/yaml"])
def test_a_long_key_is_not_repeated_for_each_value_below_it(kind: str) -> None:
    answer = post("advice", json.dumps({"k" * 400_000: [-1] * 10_000}), kind)
    assert answer.status_code == 400 and len(answer.content) < 2000
    assert "yaml" in kind or "key that is too long" in answer.json()["detail"]  # YAML has no keys of that length


@pytest.mark.parametrize("kind", ["application/json", "application/yaml"])
def test_a_key_given_twice_among_thousands_is_found_in_one_pass(kind: str) -> None:
    count = 70_000 if "json" in kind else 9_000
    keys = ",".join(f'"{n}": 0' for n in range(count))
    answer = post("advice", f'{{{keys}, "{count - 1}": 0}}', kind)
    assert answer.status_code == 400 and re.search("(given|set) twice", answer.json()["detail"])


def test_the_form_shows_fifty_errors_and_a_count(compared: list[str]) -> None:
    text = json.dumps(GOOD | dict.fromkeys(list(UNKNOWN_KEYS)[:5000], 0))
    answer = Client().post("/", {"yaml": text})
    page = answer.content.decode().replace(text, "")
    assert answer.status_code == 422 and page.count("unknown key") == 2 * MAX_ERRORS  # summary and field
    assert "and 4,950 more errors" in page and len(compared) <= 2 * MAX_ERRORS


def test_the_command_line_shows_fifty_errors_and_a_count(tmp_path: Path) -> None:
    CatalogLoad.objects.create(version="1")
    file, said = tmp_path / "w.yaml", StringIO()
    file.write_text(json.dumps(GOOD | dict.fromkeys(list(UNKNOWN_KEYS)[:60], 0)))
    with pytest.raises(SystemExit):
        call_command("advise", str(file), stderr=said)
    lines = said.getvalue().splitlines()
    assert len(lines) == MAX_ERRORS + 1 and lines[-1] == "and 10 more errors"


def test_errors_of_other_calls_are_bounded_too(client: Client) -> None:
    body = {"spec": {"suite": "quick", "kinds": ["x" * 41] * 10_000}}
    answer = post("probe-jobs", body)
    assert answer.status_code == 400 and len(answer.json()["errors"]) == MAX_ERRORS
    assert answer.json()["error_count"] == 10_000
    query = "&".join(f"p{n}=1" for n in range(900))
    answer = client.get(f"/api/v1/models?{query}")
    assert answer.status_code == 400 and answer.json()["error_count"] == 900
    assert len(answer.json()["errors"]) == MAX_ERRORS
