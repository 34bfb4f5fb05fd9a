"""The assumptions of an answer as a form: defaults, differences, reset, and a new request with what was changed."""

import pytest
from django.test import Client

from advisor.models import Advice
from tests import sample_advice

pytestmark = pytest.mark.django_db


@pytest.fixture
def path() -> str:
    answer = sample_advice.result()
    answer["assumptions"] = [
        {"name": "pue", "value": 1.3, "default": 1.3, "unit": "ratio", "source": "https://example.org/pue",
         "low": 1.1, "high": 1.6},
        {"name": "maintenance-fraction-per-year", "value": 0.07, "default": 0.05, "unit": "fraction_per_year",
         "source": "workload"},
        {"name": "load-by-hour", "value": [1, 2], "unit": "ratio", "source": "workload"},
    ]  # fmt: skip
    advice = sample_advice.advice(answer)
    advice.workload.spec["tco"]["maintenance-fraction-per-year"] = 0.07
    advice.workload.save()
    return f"/advice/{advice.pk}/assumptions"


def fields(**values: str) -> dict[str, str]:
    return {f"a:{name.replace('_', '-')}": text for name, text in values.items()}


def test_each_number_has_its_unit_default_range_and_source(client: Client, path: str) -> None:
    text = client.get(path).content.decode()
    assert 'name="a:pue" value="1.3"' in text and "1.1–1.6" in text and "https://example.org/pue" in text
    assert "Changed from the defaults (1)" in text and "1 further assumption" in text
    assert "load-by-hour" not in text


def test_a_change_is_listed_and_a_reset_puts_the_default_back(client: Client, path: str) -> None:
    sent = fields(pue="1.2", maintenance_fraction_per_year="0.07")
    text = client.post(path, {**sent, "diff": "1"}).content.decode()
    assert "Changed from the defaults (2)" in text and 'name="a:pue" value="1.2"' in text
    text = client.post(path, {**sent, "reset": "pue"}).content.decode()
    assert "Changed from the defaults (1)" in text and 'name="a:pue" value="1.3"' in text
    text = client.post(path, {**sent, "reset": "*"}).content.decode()
    assert "Changed from the defaults (0)" in text
    assert Advice.objects.count() == 1


@pytest.mark.usefixtures("frozen")
def test_a_run_asks_again_with_the_changes_alone(client: Client, path: str) -> None:
    response = client.post(path, {**fields(pue="1.2", maintenance_fraction_per_year=""), "run": "1"})
    made = Advice.objects.get(pk=response["Location"].split("/")[-1])
    assert made.workload.spec["tco"]["pue"] == 1.2
    assert "maintenance-fraction-per-year" not in made.workload.spec["tco"]


def test_what_is_no_number_or_out_of_range_is_refused_with_the_reason(client: Client, path: str) -> None:
    for text in ("many", "-3"):
        response = client.post(path, {**fields(pue=text, maintenance_fraction_per_year="0.07"), "run": "1"})
        assert response.status_code == 422 and "pue" in response.content.decode().split('role="alert"')[1][:200]
    assert Advice.objects.count() == 1
