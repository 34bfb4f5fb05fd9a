"""Quotas of an organization: refused with the quota's name and whom to ask, in form, API and command."""

from typing import Any

import pytest
from django.core.management import call_command
from django.test import Client

from advisor import advise
from advisor.api import tokens
from advisor.models import Advice
from catalog.accounts import quotas
from catalog.management.errors import BadInput
from catalog.models import AuditEvent, Organisation, Quota, Usage
from probes.machines import agents
from probes.models import Agent
from tests import sample_advice
from tests.people import member, organisation

pytestmark = pytest.mark.django_db
ESTIMATE = {"model": "meta-llama/Llama-3.1-8B", "accelerator": "h200-sxm", "weights": "bf16", "isl": 100, "osl": 10,
            "concurrency": 1}  # fmt: skip
QUESTION = {"model": "meta-llama/Llama-3.1-8B", "traffic": {"requests_per_s": 1, "input_tokens": 9, "output_tokens": 9}}


@pytest.fixture
def acme() -> Organisation:
    return organisation("acme")


@pytest.fixture
def caller(acme: Organisation) -> Client:
    member("first", "viewer", acme)  # a token from before the first account would end with it
    return Client(headers={"Authorization": f"Bearer {tokens.make('ci', 'admin', organisation=acme)[0]}"})


def ask(client: Client) -> Any:
    return client.post("/api/v1/advice", QUESTION, "application/json")


def limit(owner: Organisation, **limits: int | None) -> None:
    quotas.change(owner, limits, "root")


@pytest.mark.usefixtures("frozen")
@pytest.mark.parametrize(
    ("name", "status"), [("max_waiting_answers", 429), ("max_answers_per_day", 429), ("max_stored_answers", 409)]
)
def test_answers_beyond_a_quota_are_refused(
    acme: Organisation, caller: Client, woken: list[str], name: str, status: int
) -> None:
    limit(acme, **{name: 2})
    assert [ask(caller).status_code for _ in range(3)] == [202, 202, status]
    answer = ask(caller)
    problem = answer.json()
    assert problem["type"] == "urn:assay:problem:quota" and problem["title"] == "Quota reached"
    assert "Acme" in problem["detail"] and name in problem["detail"] and "2 of 2" in problem["detail"]
    assert "administrator of this installation" in problem["detail"]
    assert ("Retry-After" in answer) is (status == 429) and Advice.objects.count() == 2
    others = Client(headers={"Authorization": f"Bearer {tokens.make('x', 'submit')[0]}"})
    assert ask(others).status_code == 202  # of another organization
    limit(acme, **{name: None})
    assert ask(caller).status_code == 202


@pytest.mark.usefixtures("frozen")
def test_the_form_and_a_re_run_say_it_too(acme: Organisation, woken: list[str]) -> None:
    limit(acme, max_answers_per_day=0)
    done = sample_advice.advice()
    Advice.objects.update(organisation=acme)
    client = Client()
    client.force_login(member("ada", "planner", acme))
    page = client.post(f"/advice/{done.pk}/rescore", follow=True).content.decode()
    assert "max_answers_per_day" in page and Advice.objects.count() == 1
    done.refresh_from_db()
    with pytest.raises(quotas.QuotaReached):
        advise.rescore(done, "ada")
    assert advise.rescore(done).supersedes == done  # after a measurement, nobody asked


@pytest.mark.usefixtures("frozen")
def test_estimates_are_counted_only_where_they_are_limited(acme: Organisation, caller: Client) -> None:
    assert caller.post("/api/v1/estimate", ESTIMATE, "application/json").status_code == 200
    assert not Usage.objects.exists()
    limit(acme, max_estimates_per_day=1)
    codes = [caller.post("/api/v1/estimate", ESTIMATE, "application/json").status_code for _ in range(2)]
    assert codes == [200, 429]
    line = next(each for each in quotas.lines(acme) if each.name == "max_estimates_per_day")
    assert (line.used, line.limit) == (1, 1)


def test_machines_beyond_the_quota_are_neither_enrolled_nor_registered(acme: Organisation, caller: Client) -> None:
    token, _ = agents.enrol({}, "ada", acme)
    limit(acme, max_machines=1)
    Agent.objects.create(organisation=acme, name="gpu", token_hash="x")
    answer = caller.post("/api/v1/enrolments", {}, "application/json")
    assert answer.status_code == 409 and "max_machines" in answer.json()["detail"]
    client = Client()
    client.force_login(member("ada", "operator", acme))
    assert "max_machines" in client.post("/workers/enrol", {"labels": "a=b"}).content.decode()
    with pytest.raises(quotas.QuotaReached):
        agents.register(token, "new", {"name": "second", "version": "1", "labels": {}, "inventory": {}})
    assert Agent.objects.count() == 1
    Agent.objects.update(revoked_at="2026-01-01T00:00Z")
    assert caller.post("/api/v1/enrolments", {}, "application/json").status_code == 201


def test_commands_set_quotas_and_admins_see_them(acme: Organisation, capsys: Any) -> None:
    call_command("organization", "limit", "acme", "--max-machines", "3", "--max-answers-per-day", "100")
    call_command("organization", "limit", "acme", "--max-machines", "none")
    assert "answers a day: 0 of 100" in capsys.readouterr().out
    row = Quota.objects.get(organisation=acme)
    assert (row.max_machines, row.max_answers_per_day) == (None, 100)
    assert AuditEvent.objects.filter(organisation=acme, action="limits").count() == 2
    for wrong, text in ((["limit", "acme"], "give at least one of"), (["limit", "none"], "choose one of acme")):
        with pytest.raises(BadInput, match=text):
            call_command("organization", *wrong)
    client = Client()
    client.force_login(member("ada", "admin", acme))
    page = client.get("/organization").content.decode()
    assert "answers a day" in page and "<td>100</td>" in page
    (line,) = [q for q in client.get("/api/v1/organization").json()["quotas"] if q["name"] == "max_answers_per_day"]
    assert line == {"name": "max_answers_per_day", "label": "answers a day", "used": 0, "limit": 100}
