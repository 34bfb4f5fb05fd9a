"""A study sees its organization's own models, and counts for its quotas like what it computes."""

from typing import Any

import pytest
from django.test import Client

from advisor import workload
from advisor.models import Study
from advisor.studies import pieces
from catalog.accounts import quotas
from catalog.models import Organisation, Usage, default_organisation
from tests.accounts.test_own_models import NAME, call_import
from tests.people import member, organisation
from tests.studies import sample

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("frozen", "messages")]
ESTIMATES = {"kind": "estimates", "models": [NAME], "accelerators": ["l40s"], "isl": 100, "osl": 10, "tp": 1}
SHARED = {**ESTIMATES, "models": ["meta-llama/Llama-3.1-8B"]}


@pytest.fixture
def acme() -> Organisation:
    return organisation("acme")


def test_estimates_of_an_own_model_are_those_of_its_organization_alone(acme: Organisation) -> None:
    call_import(acme)
    study = pieces.request(ESTIMATES, acme, "ada", awake=False)
    pieces.drain(study.pk, pause_s=0)
    (row,) = pieces.Rows(study)[:]
    assert (row["state"], row["set"]["model"], row["fits"]) == ("done", NAME, True)
    for other in (default_organisation(), organisation("theirs")):
        with pytest.raises(workload.WorkloadError, match="is not in the catalog"):
            pieces.request(ESTIMATES, other, "eve", awake=False)
    everything: dict[str, Any] = {**ESTIMATES, "models": "all"}
    counts = [pieces.request(everything, owner, "bob", awake=False).points for owner in (acme, default_organisation())]
    assert counts[0] == counts[1] + 1


def test_a_study_of_answers_counts_each_of_them(acme: Organisation) -> None:
    quotas.change(acme, {"max_answers_per_day": 4}, "root")
    study = pieces.request(sample.GRID, acme, "ada", "key")
    assert pieces.request(sample.GRID, acme, "ada", "key") == study  # repeated, not counted again
    with pytest.raises(quotas.QuotaReached, match=r"has 3 of 4 answers a day .* This request needs 3\."):
        pieces.request(sample.GRID, acme, "ada")
    assert Study.objects.get() == study and Usage.objects.get().answers == 3
    client = Client()
    client.force_login(member("ada", "planner", acme))
    answer = client.post("/api/v1/studies", sample.GRID, "application/json")
    assert (answer.status_code, answer.json()["type"]) == (429, "urn:assay:problem:quota")
    assert pieces.request(sample.GRID, default_organisation(), "ada").points == 3


def test_twenty_estimates_of_a_study_count_as_one(acme: Organisation) -> None:
    quotas.change(acme, {"max_estimates_per_day": 2}, "root")
    pieces.request({**SHARED, "weights": ["bf16", "fp8"]}, acme, "ada")
    assert Usage.objects.get().estimates == 1
    quotas.use_estimates(acme, quotas.PER_COUNT)
    with pytest.raises(quotas.QuotaReached, match="max_estimates_per_day"):
        pieces.request(SHARED, acme, "ada")
    assert Study.objects.count() == 1
