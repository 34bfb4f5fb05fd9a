"""One machine that lies, or is broken, changes no figure that others share, and no answer."""

import copy
from typing import Any

import pytest

from catalog import clock
from catalog.models import Accelerator, Calibration
from probes.fitted import fitting
from probes.machines import jobs
from probes.models import Agent, Job, Lease, Result
from probes.received import results
from tests.probes import samples
from tests.probes.client import FakeAgent

pytestmark = pytest.mark.django_db
NAME = "accelerator:h200-sxm"


def slower(factor: float, **changes: Any) -> dict[str, Any]:
    """What an H200 sends whose every time is so many times longer."""
    entries = copy.deepcopy(samples.document()["results"])
    for e in entries:
        e["time_s"] = {k: v * factor if k != "n" else v for k, v in e["time_s"].items()}
    return samples.document(results=entries, **changes)


def sends(agent: FakeAgent, document: dict[str, Any], spec: dict[str, Any] | None = None) -> Result:
    """Measured for a job of its own; whatever may be fitted is fitted."""
    job = jobs.request(spec or {"suite": "full"}, wanted_agent=Agent.objects.get(pk=agent.pk))
    given = agent.lease().json()
    Lease.objects.filter(job=job).update(leased_at=clock.read() - jobs.timedelta(seconds=600))
    body = samples.body({**document, "spec": job.spec, "suite": document["suite"]} if spec else document)
    agent.send(given["job_id"], given["attempt"], body)
    result = Result.objects.latest("pk")
    for waiting in results.usable().filter(fitted_at=None):
        fitting.run(waiting.pk)
    result.refresh_from_db()
    return result


def honest(count: int) -> list[Result]:
    """So many machines that differ by a per cent or two."""
    documents = [slower(1 + 0.004 * n, started_at=samples.begun(n)) for n in range(count)]
    return [sends(FakeAgent(f"honest-{n}"), document) for n, document in enumerate(documents)]


def figures() -> dict[str, float]:
    newest = Calibration.objects.filter(name=NAME).order_by("-created_at", "-pk").first()
    return dict(newest.values) if newest else {}


@pytest.mark.parametrize(("version", "others"), [("1", 2), ("2", 3), ("999", 2), ("1 ", 3)])
def test_no_name_of_a_suite_hides_a_machine_from_the_comparison(h200: Accelerator, version: str, others: int) -> None:
    honest(others)
    rogue = sends(FakeAgent("rogue"), slower(5, suite_version=version))
    assert rogue.state == "quarantined"
    assert any("times the median of" in reason for reason in rogue.reasons), rogue.reasons


def test_a_suite_of_another_name_than_the_one_that_was_issued_is_kept_apart(h200: Accelerator) -> None:
    document = samples.document()
    rogue = sends(FakeAgent("rogue"), {**document, "suite": "custom"})
    assert rogue.state == "quarantined" and any("its spec differs" in reason for reason in rogue.reasons)


def test_a_suite_that_no_other_machine_ran_is_compared_with_what_is_confirmed(h200: Accelerator) -> None:
    honest(3)
    spec = {"suite": "quick"}
    rogue = sends(FakeAgent("rogue"), slower(2) | {"suite": "quick", "spec_hash": spec_hash(spec)}, spec)
    assert rogue.suite == "quick" and rogue.state == "quarantined"
    assert any("3 other machines with this chip" in reason for reason in rogue.reasons), rogue.reasons


def spec_hash(spec: dict[str, Any]) -> str:
    return str(jobs.specs.spec_hash(jobs.specs.checked(spec)))


def test_the_server_records_each_suite_that_it_issued(h200: Accelerator) -> None:
    job = jobs.request({"suite": "quick"})
    assert (job.spec["suite"], job.suite_version, job.spec_hash) == ("quick", "1", spec_hash({"suite": "quick"}))


def test_a_rogue_result_that_a_person_releases_is_outvoted_and_not_alone_in_its_suite(h200: Accelerator) -> None:
    """Even then its word is one of the vouched ones; taken back, it says nothing."""
    honest(3)
    before = figures()
    rogue = sends(FakeAgent("rogue"), slower(1.2, suite_version="999"))
    assert rogue.state == "quarantined" and rogue.method == "1"
    assert figures() == before


# --- a single machine -------------------------------------------------------------------------------------------


def test_the_first_machine_changes_nothing_until_a_second_one_agrees(h200: Accelerator) -> None:
    first = sends(FakeAgent("a"), samples.document())
    assert first.state == "accepted" and "memory_fraction" in first.waiting and not Calibration.objects.exists()
    assert results.standing(first) == "waiting for a second machine or a person"
    second = sends(FakeAgent("b"), slower(1.01, started_at=samples.begun(1)))
    first.refresh_from_db()
    assert not first.waiting and not second.waiting and first.calibration == second.calibration
    row = Calibration.objects.get()
    assert row.results == [first.pk, second.pk] and row.values["memory_fraction"] == pytest.approx(0.92, rel=0.02)


def test_the_same_machine_again_is_no_second_machine(h200: Accelerator) -> None:
    agent = FakeAgent("a")
    sends(agent, samples.document())
    assert sends(agent, samples.document(started_at=samples.begun(1))).waiting and not Calibration.objects.exists()


def test_a_card_that_is_enrolled_twice_is_no_second_machine(h200: Accelerator) -> None:
    card = {"uuid_hash": "one card"}
    for n, name in enumerate("ab"):
        agent = FakeAgent(name)
        Agent.objects.filter(pk=agent.pk).update(inventory={"device": samples.H200 | card})
        document = samples.document(device=card, started_at=samples.begun(n))
        result = sends_from(agent, document, samples.H200 | card)
        assert result.state == "accepted" and result.waiting
    assert not Calibration.objects.exists()


def sends_from(agent: FakeAgent, document: dict[str, Any], device: dict[str, Any]) -> Result:
    jobs.request({"suite": "full"}, wanted_agent=Agent.objects.get(pk=agent.pk))
    given, body = agent.lease(device=device).json(), samples.body(document)
    Lease.objects.update(leased_at=clock.read() - jobs.timedelta(seconds=600))
    signature = samples.signature(agent.key, given, body, device)
    agent.send(given["job_id"], given["attempt"], body, signature=signature)
    result = Result.objects.latest("pk")
    fitting.run(result.pk)
    result.refresh_from_db()
    return result


def test_two_machines_that_disagree_both_wait_whoever_came_first(h200: Accelerator) -> None:
    rogue = sends(FakeAgent("rogue"), slower(5))
    first = sends(FakeAgent("a"), samples.document(started_at=samples.begun(1)))
    assert first.state == "accepted" and "memory_fraction" in first.waiting and "memory_fraction" in rogue.waiting
    assert not figures().keys() & {"memory_fraction", "matmul_16_fraction", "kernel_s"}
    sends(FakeAgent("b"), slower(1.01, started_at=samples.begun(2)))
    rogue.refresh_from_db()
    assert figures()["memory_fraction"] == pytest.approx(0.92, rel=0.02) and "memory_fraction" in rogue.waiting


def test_a_machine_that_lies_about_one_kind_alone_moves_not_even_that(h200: Accelerator) -> None:
    honest(2)
    before = figures()
    document = samples.document(started_at=samples.begun(5))
    for e in document["results"]:
        if e["kind"] == "attention_decode":  # no headline figure: the comparison of those does not see it
            e["time_s"] = {k: v * 4 if k != "n" else v for k, v in e["time_s"].items()}
    document["duration_s"] *= 4
    rogue = sends(FakeAgent("rogue"), document)
    assert rogue.state == "accepted" and "sequence_head_bytes" in rogue.waiting
    assert figures()["sequence_head_bytes"] == pytest.approx(before["sequence_head_bytes"], rel=0.02)


def test_a_trusted_machine_counts_alone_and_trust_can_come_later(h200: Accelerator) -> None:
    from django.core.management import call_command

    result = sends(FakeAgent("a"), samples.document())
    assert result.waiting
    call_command("agents", "trust", "a")
    result.refresh_from_db()
    assert result.fitted_at is None and fitting.run(result.pk)
    assert sends(FakeAgent("rogue"), slower(1.25, started_at=samples.begun(1))).waiting
    assert figures()["memory_fraction"] == pytest.approx(0.92, rel=0.02)
    call_command("agents", "distrust", "a")
    assert Agent.objects.get(name="a").trusted_at is None


def test_a_machine_can_be_trusted_when_it_is_enrolled(h200: Accelerator) -> None:
    assert not sends(FakeAgent("a", trusted=True), samples.document()).waiting and Calibration.objects.exists()


def test_a_person_confirms_a_result_that_waits(h200: Accelerator, client: Any) -> None:
    result = sends(FakeAgent("a"), samples.document())
    path = f"/workers/results/{result.pk}"
    page = client.get(path).content.decode()
    assert "Waiting for a second machine or a person" in page and "Confirm" in page
    assert "waiting for a second machine" in client.get("/workers/results").content.decode()
    assert client.get(f"/api/v1/probe-results/{result.pk}").json()["standing"] == results.AWAITING
    client.post(f"{path}/release")
    fitting.run(result.pk)
    assert Calibration.objects.get().results == [result.pk]
    assert "Waiting for" not in client.get(path).content.decode()


def test_trust_is_given_and_taken_on_the_machines_page_and_over_rest(h200: Accelerator, client: Any) -> None:
    agent = FakeAgent("a")
    client.post(f"/workers/{agent.pk}/trust")
    assert "trusted since" in client.get(f"/workers/{agent.pk}").content.decode()
    client.post(f"/workers/{agent.pk}/trust", {"trusted": "no"})
    assert client.post(f"/api/v1/agents/{agent.pk}/trust").json()["trusted_at"]
    assert client.post(f"/api/v1/agents/{agent.pk}/distrust").json()["trusted_at"] is None
    assert Job.objects.count() == 0
