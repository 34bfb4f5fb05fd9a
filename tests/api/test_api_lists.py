"""Lists of the API: what they do not know is refused by name, where every row would look like an answer."""

from typing import Any

import pytest
from django.test import Client

pytestmark = pytest.mark.django_db
LISTS = "accelerators prices models frameworks units regions assumptions advice agents probe-jobs enrolments".split()


def get(path: str) -> Any:
    return Client().get(f"/api/v1/{path}")


@pytest.mark.parametrize("name", LISTS)
@pytest.mark.parametrize("asked", ["limit=0", "limit=ten", "offset=-1", "memory_gib__gte=80"])
def test_what_a_list_does_not_know_is_refused_by_name(name: str, asked: str) -> None:
    assert get(name).status_code == 200
    refused = get(f"{name}?{asked}")
    assert refused.status_code == 400
    assert [each["field"] for each in refused.json()["errors"]] == [asked.partition("=")[0]]


@pytest.mark.parametrize(
    ("name", "asked"),
    [
        ("models", "limit="),
        ("models", "context_min=0.5"),
        ("prices", "since="),
        ("prices", "since=2026-1-5"),
        ("prices", "since=5/1/2026"),
        ("prices", "usd_per_chip_hour_max=1_0"),
        ("accelerators", "year_min=0.5"),
        ("accelerators", "year_min=" + "9" * 60),
        ("accelerators", "memory_gib_min=nan"),
        ("accelerators", "memory_gib_min=٥"),
        ("accelerators", "served=maybe"),
        ("accelerators", "dtype="),
        ("accelerators", "ordering="),
        ("accelerators", "ordering=name&sort=unknown"),
        ("accelerators", "dtype=fp8&dtype=bf16"),
        ("accelerators", "kind=gpu&kind=car"),
        ("prices", "age=old"),
    ],
)
def test_a_value_that_the_description_does_not_allow_is_refused(name: str, asked: str) -> None:
    refused = get(f"{name}?{asked}")
    assert refused.status_code == 400 and refused.json()["errors"], refused.content


@pytest.mark.parametrize("name", ["probe-jobs", "probe-results"])
@pytest.mark.parametrize("pk", ["7", "9" * 50, "-" + "9" * 50])
def test_a_machine_that_is_not_there_has_no_jobs_and_no_results(name: str, pk: str) -> None:
    assert get(f"{name}?agent={pk}").json()["count"] == 0


@pytest.mark.parametrize("asked", ["limit=2&offset=1", "limit=99999", "offset=" + "9" * 30, "ordering=-name"])
def test_what_it_knows_is_taken(asked: str) -> None:
    assert get(f"accelerators?{asked}&vendor=nvidia&search=&served=true&sort=name&format=json").status_code == 200


@pytest.mark.parametrize("key", ["ordering", "sort"])
def test_a_column_that_nobody_can_sort_by_is_named_with_those_there_are(key: str) -> None:
    (error,) = get(f"accelerators?{key}=-memory_gib,price").json()["errors"]
    assert error["field"] == key
    assert error["message"].startswith("cannot sort by price; use one of ") and "memory_gib" in error["message"]


def test_the_root_leads_everywhere() -> None:
    answer = get("").json()
    assert {f"http://testserver/api/v1/{name}" for name in (*LISTS, "estimate", "fidelity")} <= set(answer.values())
    for name, url in answer.items():
        expected = 405 if name in ("estimate", "estimates", "quick") else 200  # POST alone
        expected = 404 if name == "fidelity" else expected  # no scorecard is loaded
        assert Client().get(url).status_code == expected, name
