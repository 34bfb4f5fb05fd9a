"""Nobody becomes another machine: registering its install_id needs its key, or a person's approval."""

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.test import Client

from catalog.models import Accelerator
from probes.machines import agents
from probes.models import Agent, Enrolment
from tests.people import member
from tests.probes.client import FakeAgent

pytestmark = pytest.mark.django_db


def enrolment(**values: Any) -> str:
    return agents.enrol({}, **values)[0]


@pytest.fixture
def victim(h200: Accelerator) -> FakeAgent:
    agent = FakeAgent(trusted=True)
    assert agent.lease().status_code == 204
    return agent


def stranger(proof: str | None = None, token: str = "") -> Any:
    """Registers with the installation id of the victim, which has its name."""
    body = {} if proof is None else {"proof": proof}
    return FakeAgent(token="none").register(token or enrolment(), **body)


@pytest.mark.parametrize("proof", [None, "v1=" + "0" * 64])
def test_an_install_id_that_is_taken_is_refused_and_the_machine_goes_on(victim: FakeAgent, proof: str | None) -> None:
    answer = stranger(proof)
    assert answer.status_code == 409 and "does not prove" in answer.json()["detail"]
    assert "agents approve" in answer.json()["detail"]
    assert victim.lease().status_code == 204 and Agent.objects.get().trusted_at


def test_a_machine_that_proves_its_key_stays_the_machine_that_it_was(victim: FakeAgent) -> None:
    token = enrolment()
    answer = stranger(victim.proof(token), token)
    assert answer.status_code == 201 and answer.json()["agent_id"] == victim.pk
    assert answer.json()["signing_key"] == victim.key and Agent.objects.get().trusted_at
    victim.takes(answer.json())
    assert victim.lease().status_code == 204


def test_a_proof_is_worth_nothing_with_another_enrolment(victim: FakeAgent) -> None:
    assert stranger(victim.proof(enrolment())).status_code == 409


def test_another_machines_key_proves_nothing(victim: FakeAgent) -> None:
    token, other = enrolment(), FakeAgent("other")
    proof = FakeAgent.proof(victim, token)
    victim.key = other.key
    assert stranger(victim.proof(token), token).status_code == 409
    assert stranger(proof, token).status_code == 201  # the enrolment was not spent by the refusal


def test_an_enrolment_seen_by_others_takes_nothing_once_its_machine_has_called(h200: Accelerator) -> None:
    token, agent = enrolment(), FakeAgent(token="none")
    agent.takes(agent.register(token).json())
    assert agent.lease().status_code == 204
    assert stranger(token=token).status_code == 409
    assert agent.lease().status_code == 204


def test_a_machine_registered_before_there_were_keys_is_not_taken_over(victim: FakeAgent) -> None:
    Agent.objects.update(key_salt="")
    assert stranger("v1=" + "0" * 64).status_code == 409 and victim.lease().status_code == 204


def test_a_person_approves_a_machine_that_lost_its_key_and_the_trust_in_it_ends(victim: FakeAgent, capsys: Any) -> None:
    token = enrolment()
    assert stranger(token=token).status_code == 409
    call_command("agents")
    listed = capsys.readouterr().out
    assert "waits for approval as gpu-1: gpu-1 with NVIDIA H200 from 127.0.0.1" in listed
    call_command("agents", "approve", "gpu-1")
    answer = stranger(token=token)
    assert answer.status_code == 201 and answer.json()["agent_id"] == victim.pk
    assert answer.json()["signing_key"] != victim.key and Agent.objects.get().trusted_at is None
    assert victim.lease().status_code == 401
    assert not agents.pending_claims(Agent.objects.get().organisation).exists()


def test_an_approval_is_for_one_enrolment_only(victim: FakeAgent) -> None:
    first, second = enrolment(), enrolment()
    for token in (first, second):
        assert stranger(token=token).status_code == 409
    with pytest.raises(CommandError, match="several registrations wait"):
        call_command("agents", "approve", str(victim.pk))
    call_command("agents", "approve", str(victim.pk), "--enrolment", first[:12])
    assert stranger(token=second).status_code == 409 and victim.lease().status_code == 204
    assert stranger(token=first).status_code == 201


def test_nothing_to_approve_is_said(victim: FakeAgent) -> None:
    with pytest.raises(CommandError, match="no registration waits"):
        call_command("agents", "approve", "gpu-1")
    with pytest.raises(CommandError, match="no machine is called nobody"):
        call_command("agents", "trust", "nobody")


def test_the_machines_page_shows_who_asks_and_staff_alone_approve(victim: FakeAgent, client: Client) -> None:
    token = enrolment()
    stranger(token=token)
    claim = Enrolment.objects.get(claims=victim.pk)
    for path in ("/workers", f"/workers/{victim.pk}"):
        assert "is trying to register as" in client.get(path).content.decode()
    member("ada")
    path = f"/workers/{victim.pk}/approve/{claim.pk}"
    assert client.post(path)["Location"].startswith("/login") and stranger(token=token).status_code == 409
    client.force_login(User.objects.get())
    assert client.post(path).status_code == 403
    User.objects.update(is_staff=True)
    claim.refresh_from_db()
    client.post(path)
    assert stranger(token=token).status_code == 201


def test_the_api_approves_the_only_registration_that_waits(victim: FakeAgent, client: Client) -> None:
    path, token = f"/api/v1/agents/{victim.pk}/approve", enrolment()
    assert client.post(path).status_code == 409
    stranger(token=token)
    assert client.post(path).status_code == 200
    assert stranger(token=token).status_code == 201


def test_two_that_register_one_new_installation_at_the_same_moment_are_not_one(
    h200: Accelerator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second looked before the first was stored."""
    agent = FakeAgent()
    looked = Agent.objects.filter(pk=None)
    monkeypatch.setattr(agents.Agent.objects, "filter", lambda **given: looked)
    with pytest.raises(agents.IdentityTaken):
        facts = {"name": "gpu-1", "agent_version": "1", "labels": {}, "inventory": {}}
        agents.register(enrolment(), Agent.objects.get(pk=agent.pk).install_id, facts)
