"""A result counts for the lease, the machine, the device and the bytes that it was signed for, and for no other."""

import json
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from catalog import clock
from catalog.models import Accelerator
from probes.agent.server import signing
from probes.machines import agents, jobs
from probes.models import Agent, Job, Lease, Result
from probes.received import results
from tests.probes import samples
from tests.probes.client import FakeAgent

pytestmark = pytest.mark.django_db


def leased(agent: FakeAgent) -> tuple[str, int]:
    jobs.request({"suite": "full"}, wanted_agent=Agent.objects.get(pk=agent.pk))
    given = agent.lease().json()
    aged()
    return given["job_id"], given["attempt"]


def aged() -> None:
    """As if the leases were ten minutes old: the samples took some seconds of device time."""
    Lease.objects.update(leased_at=clock.read() - jobs.timedelta(seconds=600))


@pytest.fixture
def honest() -> bytes:
    return samples.body(samples.document())


def refused(answer: Any) -> bool:
    """422 with a text that says what to do, and nothing stored."""
    problem = answer.json()
    assert answer.status_code == 422 and answer["Content-Type"] == "application/problem+json", answer.content
    return "sign" in problem["detail"].lower() and not Result.objects.exists()


def test_an_unsigned_result_is_refused_and_the_attempt_goes_on(h200: Accelerator, honest: bytes) -> None:
    agent = FakeAgent()
    job, attempt = leased(agent)
    assert refused(agent.send(job, attempt, honest, signature=""))
    assert Job.objects.get().state == "leased"
    assert agent.send(job, attempt, honest).json()["state"] == "accepted"


@pytest.mark.parametrize("signature", ["v1=", "v1=" + "0" * 64, "v2=" + "0" * 64, "0" * 64, "v1=é"])
def test_a_signature_that_is_none_is_refused(h200: Accelerator, honest: bytes, signature: str) -> None:
    agent = FakeAgent()
    job, attempt = leased(agent)
    assert refused(agent.send(job, attempt, honest, signature=signature))


@pytest.mark.parametrize(
    "change",
    [
        {"nonce": "0" * 32},
        {"attempt": 2},
        {"device": signing.device_identity({**samples.H200, "uuid_hash": "another card"})},
        {"spec_hash": "0" * 64},
        {"job_id": "5f3a9c1e-0000-4000-8000-000000000000"},
        {"body_hash": samples.digest(b"another body")},
    ],
    ids=lambda change: f"wrong {next(iter(change))}",
)
def test_a_signature_for_anything_else_is_refused(h200: Accelerator, honest: bytes, change: dict[str, Any]) -> None:
    agent = FakeAgent()
    job, attempt = leased(agent)
    assert refused(agent.send(job, attempt, honest, signature=agent.signature(job, attempt, honest, **change)))


def test_a_result_with_its_signature_is_worth_nothing_for_another_job(h200: Accelerator, honest: bytes) -> None:
    agent = FakeAgent()
    job, attempt = leased(agent)
    signature = agent.signature(job, attempt, honest)
    assert agent.send(job, attempt, honest, signature=signature).json()["state"] == "accepted"
    other, attempt = leased(agent)
    answer = agent.send(other, attempt, honest, signature=signature)
    assert answer.status_code == 422 and Result.objects.count() == 1


def test_a_result_with_its_signature_is_worth_nothing_for_another_attempt(h200: Accelerator, honest: bytes) -> None:
    agent = FakeAgent()
    job, attempt = leased(agent)
    signature = agent.signature(job, attempt, honest)
    agent.fail(job, attempt)
    Job.objects.update(not_before_at=clock.read())
    assert agent.lease().json()["attempt"] == 2
    aged()
    assert refused(agent.send(job, 2, honest, signature=signature))


def test_a_body_that_was_cut_or_changed_after_it_was_signed_is_refused(h200: Accelerator, honest: bytes) -> None:
    agent = FakeAgent()
    job, attempt = leased(agent)
    signature = agent.signature(job, attempt, honest)
    for changed in (honest[:-10], honest.replace(b"NVIDIA H200", b"NVIDIA H100")):
        assert refused(agent.send(job, attempt, changed, signature=signature))


def test_another_machines_key_signs_nothing_for_this_one(h200: Accelerator, honest: bytes) -> None:
    agent, other = FakeAgent("a"), FakeAgent("b")
    job, attempt = leased(agent)
    agent.key = other.key
    assert refused(agent.send(job, attempt, honest))


def test_a_result_of_another_device_than_the_one_that_asked_is_kept_apart(h200: Accelerator) -> None:
    agent = FakeAgent()
    job, attempt = leased(agent)
    moved = samples.body(samples.document(device={"uuid_hash": "another card"}))
    answer = agent.send(job, attempt, moved).json()
    assert answer["state"] == "quarantined" and "a different device" in answer["reasons"][0]


def test_a_card_that_was_not_enrolled_is_kept_apart(h200: Accelerator) -> None:
    """The machine says it openly when it asks for the job."""
    agent = FakeAgent()
    Agent.objects.update(inventory={"device": {**samples.H200, "uuid_hash": "enrolled"}})
    jobs.request({"suite": "full"})
    device = {**samples.H200, "uuid_hash": "swapped"}
    given = agent.lease(device=device).json()
    aged()
    body = samples.body(samples.document(device=device))
    signature = samples.signature(agent.key, given, body, device)
    answer = agent.send(given["job_id"], given["attempt"], body, signature=signature).json()
    assert answer["state"] == "quarantined" and "enroll the machine again" in answer["reasons"][0]


# --- keys -------------------------------------------------------------------------------------------------------


def test_a_key_is_not_in_the_database_and_ends_with_the_servers_secret(settings: Any) -> None:
    agent = FakeAgent()
    row = Agent.objects.get()
    assert agent.key not in str(vars(row)) and list(agents.keys(row)) == [agent.key]
    settings.SECRET_KEY, former = "another secret of this server", settings.SECRET_KEY
    assert agent.key not in agents.keys(row)
    settings.SECRET_KEY_FALLBACKS = [former]
    assert agent.key in agents.keys(row)


def test_renewing_the_token_keeps_the_key_and_does_not_show_it(h200: Accelerator, honest: bytes) -> None:
    """Whoever read the token alone cannot get the key with it."""
    agent = FakeAgent()
    job, attempt = leased(agent)
    answer = agent.post("token/rotate", {}).json()
    assert set(answer) == {"token"}
    agent.token = answer["token"]
    assert agent.send(job, attempt, honest).json()["state"] == "accepted"


def test_a_machine_of_an_earlier_version_gets_its_key_with_its_next_token(h200: Accelerator, honest: bytes) -> None:
    agent = FakeAgent()
    Agent.objects.update(key_salt="")
    job, attempt = leased(agent)
    answer = agent.send(job, attempt, honest)
    assert answer.status_code == 422 and "no signing key yet" in answer.json()["detail"]
    lost = agent.post("token/rotate", {}).json()  # this answer does not arrive
    given = agent.post("token/rotate", {}).json()
    assert lost["signing_key"] != given["signing_key"]
    agent.token, agent.key = given["token"], given["signing_key"]
    assert agent.send(job, attempt, honest).json()["state"] == "accepted"
    assert "signing_key" not in agent.post("token/rotate", {}).json()


def test_a_machine_without_a_key_is_told_to_renew_its_token() -> None:
    agent = FakeAgent()
    assert "Agent-Rotate" not in agent.lease()
    Agent.objects.update(key_salt="")
    assert agent.lease()["Agent-Rotate"] == "1"


def test_an_agent_before_signatures_is_told_to_fetch_the_newest(h200: Accelerator) -> None:
    answer = FakeAgent().post("lease", {}, **{"Agent-Protocol": "1"})
    assert answer.status_code == 426
    assert "agent.pyz" in answer.json()["detail"] and "same state folder" in answer.json()["detail"]


def test_a_person_replaces_token_and_key_and_the_former_work_five_minutes_more(
    h200: Accelerator, honest: bytes, later: Any
) -> None:
    agent = FakeAgent()
    job, attempt = leased(agent)
    new = agents.rotate(Agent.objects.get(), new_key=True)
    assert new.key != agent.key
    assert agent.send(job, attempt, honest).json()["state"] == "accepted"
    job, attempt = leased(agent)
    later(301)
    agent.token = new.token
    assert agent.send(job, attempt, honest).status_code == 422
    given = agent.post("token/rotate", {}).json()
    assert "signing_key" not in given  # the call before it was made with the new token: it had arrived


# --- files ------------------------------------------------------------------------------------------------------


def signed_file(agent: FakeAgent, path: Path, **changes: Any) -> Path:
    """As `probe --out` writes it on a machine without a network."""
    document, install_id = samples.document(), samples.digest(agent.name.encode())
    value = signing.of_file(agent.key, install_id, document)
    path.write_bytes(samples.body({**document, "signature": {"install_id": install_id, "value": value}, **changes}))
    return path


def test_a_file_that_an_enrolled_machine_signed_is_that_machines(h200: Accelerator, tmp_path: Path) -> None:
    agent = FakeAgent()
    call_command("import_probe", str(signed_file(agent, tmp_path / "r.json")))
    result = Result.objects.get()
    assert (result.state, result.agent_id, result.reasons) == ("accepted", agent.pk, [])


@pytest.mark.parametrize("change", [{"duration_s": 9.0}, {"host": {"cpu": "another"}}])
def test_a_signed_file_that_was_changed_is_kept_apart_and_cannot_be_approved_in_passing(
    h200: Accelerator, tmp_path: Path, change: dict[str, Any]
) -> None:
    file = signed_file(FakeAgent(), tmp_path / "r.json", **change)
    call_command("import_probe", str(file), "--approve")
    result = Result.objects.get()
    assert result.state == "quarantined" and "its signature is not that of gpu-1" in result.reasons[-1]


def test_a_file_of_a_revoked_machine_is_kept_apart(h200: Accelerator, tmp_path: Path) -> None:
    agent = FakeAgent()
    agents.revoke(Agent.objects.get())
    call_command("import_probe", str(signed_file(agent, tmp_path / "r.json")))
    assert "which is revoked" in Result.objects.get().reasons[-1]


def test_a_file_that_a_stranger_signed_waits_for_a_person(h200: Accelerator, tmp_path: Path, client: Any) -> None:
    file = signed_file(FakeAgent(), tmp_path / "r.json")
    Agent.objects.all().delete()
    call_command("import_probe", str(file))
    result = Result.objects.get()
    assert result.state == "quarantined" and result.reasons == [results.UNSIGNED]
    client.post(f"/workers/results/{result.pk}/release")
    result.refresh_from_db()
    assert (result.state, result.released_by) == ("accepted", "somebody")


def test_a_signature_of_another_form_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    path.write_text(json.dumps({**samples.document(), "signature": "v1=0"}))
    with pytest.raises(CommandError, match="signature"):
        call_command("import_probe", str(path))
