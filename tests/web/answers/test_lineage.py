"""A question that is changed in the form keeps its lineage, as a what-if does."""

from typing import Any

import pytest
from django.test import Client

from advisor import advise, refresh
from advisor.models import Advice
from advisor.web import forms
from tests import sample_advice
from tests.people import organisation

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("frozen", "woken")]


def resubmitted(client: Client, earlier: Advice, **changes: str) -> Advice:
    """The form of an earlier question, with some fields changed."""
    filled: dict[str, Any] = {key: value for key, value in forms.from_spec(earlier.workload.spec).items() if value}
    page = client.post("/", {**filled, "from": str(earlier.pk), **changes})
    assert page.status_code == 302, page.content.decode()[:2000]
    return Advice.objects.get(pk=page["Location"].rpartition("/")[2])


def test_a_changed_question_names_the_answer_it_was_changed_from(client: Client) -> None:
    earlier = sample_advice.advice()
    text = client.get(f"/?from={earlier.pk}").content.decode()
    assert f'<input type="hidden" name="from" value="{earlier.pk}">' in text
    made = resubmitted(client, earlier, **{"constraints.max_usd_per_month": "9000"})
    assert made.supersedes_id == earlier.pk
    Advice.objects.filter(pk=made.pk).update(state="failed", error="x")
    text = client.get(f"/advice/{made.pk}").content.decode()
    assert "Budget, USD per month: not set → 9,000" in text
    assert f"/advice/compare?item={earlier.pk}&amp;item={made.pk}" in text
    text = client.get(f"/advice/{earlier.pk}").content.decode()
    assert "1 changed question asked from this answer" in text and "A newer answer" not in text


def test_another_organizations_answer_is_no_ancestor(client: Client) -> None:
    earlier = sample_advice.advice()
    Advice.objects.filter(pk=earlier.pk).update(organisation=organisation())
    assert resubmitted(client, earlier).supersedes_id is None


def test_a_changed_question_is_held_for_measurements_and_a_rerun_is_not() -> None:
    earlier = sample_advice.advice()
    earlier.workload.spec["probe"] = "quick"
    changed = {**earlier.workload.spec, "objective": "latency"}
    assert advise.request(changed, supersedes=earlier).held_until
    assert not advise.rescore(earlier).held_until


def test_the_refresh_of_prices_still_watches_a_question_that_was_changed() -> None:
    earlier = sample_advice.advice()
    sample_advice.advice(supersedes=earlier).workload.spec["objective"] = "latency"
    newer = Advice.objects.get(supersedes=earlier)
    newer.workload.spec["objective"] = "latency"
    newer.workload.save()
    renewed = sample_advice.advice(supersedes=newer)
    renewed.workload.spec["objective"] = "latency"
    renewed.workload.save()
    assert {advice.pk for advice in refresh._watched()} == {earlier.pk, renewed.pk}
