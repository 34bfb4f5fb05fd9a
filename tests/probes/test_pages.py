"""The workers' pages: they say what is there, work without scripts, and change nothing for strangers."""

import hashlib
import re
import zipfile
from io import BytesIO
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.test import Client

from catalog import clock
from catalog.models import Accelerator
from probes.fitted import fitting
from probes.machines import agents, jobs
from probes.models import Agent, Enrolment, Job, Lease, Result
from probes.received import results
from tests.people import member
from tests.probes import samples
from tests.probes.client import FakeAgent

pytestmark = pytest.mark.django_db


def ran(agent: FakeAgent, **changes: Any) -> Result:
    job = jobs.request({"suite": "full"}, wanted_agent=Agent.objects.get(pk=agent.pk))
    given = agent.lease().json()
    Lease.objects.filter(job=job).update(leased_at=clock.read() - jobs.timedelta(seconds=600))
    agent.send(given["job_id"], given["attempt"], samples.body(samples.document(job.spec, **changes)))
    return Result.objects.latest("pk")


@pytest.fixture
def two(h200: Accelerator) -> list[Result]:
    agent, other = FakeAgent("gpu-a", labels={"site": "lab"}), FakeAgent("gpu-b")
    device = {"driver": "999.9", "count": 4}
    found = [ran(agent), ran(other, device=device), ran(agent, started_at=samples.begun(30), duration_s=1e5)]
    fitting.run(found[0].pk)
    return found


def pages(two: list[Result]) -> list[str]:
    agent = two[0].agent_id
    inner = [f"/workers/results/{r.pk}" for r in two]
    compare = f"/workers/compare?a={two[0].pk}&b={two[1].pk}"
    return ["/workers", "/workers/enrol", f"/workers/{agent}", "/workers/results", "/workers/compare", compare, *inner]


def text(client: Client, path: str) -> str:
    response = client.get(path)
    assert response.status_code == 200, path
    return response.content.decode()


def test_pages_keep_the_content_policy_and_have_captions_and_headings(client: Client, two: list[Result]) -> None:
    for path in pages(two):
        found = text(client, path)
        assert not re.search(r"<style|\sstyle=|\son[a-z]+=|<script>(?!</script>)", found), path
        assert found.count("<table") == found.count("<caption") and len(re.findall("<h1", found)) == 1, path
        assert not re.search(r"<th(?![^>]*scope=)[ >]", found), path
        assert "· Assay</title>" in found and 'aria-current="page">Workers' in found, path


def test_the_list_says_who_is_there_and_what_ran(client: Client, two: list[Result]) -> None:
    found = text(client, "/workers")
    assert "gpu-a" in found and "site=lab" in found and "online" in found and "quarantined" in found


def test_a_result_shows_figures_pictures_and_efficiencies(client: Client, two: list[Result]) -> None:
    found = text(client, f"/workers/results/{two[0].pk}")
    assert "Roofline" in found and "Matrix multiplies by rows" in found and "Memory by size" in found
    assert "memory_fraction" in found and "gemm bf16" in found and "TFLOP/s" in found
    assert "Collectives by size" in text(client, f"/workers/results/{two[1].pk}")


def test_a_result_in_quarantine_says_why_and_a_person_can_release_it(client: Client, two: list[Result]) -> None:
    path = f"/workers/results/{two[2].pk}"
    assert "its lease was" in text(client, path)
    client.post(f"{path}/release")
    found = text(client, path)
    assert "Released by somebody" in found and Result.objects.get(pk=two[2].pk).state == "accepted"


def test_drift_shows_from_the_second_accepted_result(client: Client, two: list[Result]) -> None:
    assert "Headline rates over time" not in text(client, f"/workers/{two[0].agent_id}")
    results.release(two[2])
    assert "Headline rates over time" in text(client, f"/workers/{two[0].agent_id}")


def test_two_results_are_compared_with_ratios_and_what_differs(client: Client, two: list[Result]) -> None:
    found = text(client, f"/workers/compare?a={two[0].pk}&b={two[1].pk}")
    assert "device driver" in found and "999.9" in found and "memory_read" in found and "1.00" in found
    assert client.get("/workers/compare?a=1e5&b=x").status_code == 200
    assert client.get("/workers/compare?a=99999&b=99998").status_code == 404


def test_a_suite_is_queued_on_the_chosen_machines_and_can_be_cancelled(client: Client, h200: Accelerator) -> None:
    agent = FakeAgent()
    client.post("/workers/queue", {"suite": "custom", "kinds": ["gemm"], "machines": [agent.pk]})
    job = Job.objects.get()
    assert job.spec["kinds"] == ["gemm"] and job.wanted_agent_id == agent.pk
    assert "gemm" in text(client, "/workers")
    client.post(f"/workers/jobs/{job.pk}/cancel")
    job.refresh_from_db()
    assert job.state == "cancelled"


def test_a_wrong_choice_queues_nothing_and_says_so(client: Client) -> None:
    FakeAgent()
    response = client.post("/workers/queue", {"suite": "custom"})
    assert response.status_code == 422 and not Job.objects.exists()
    assert "Select at least one machine" in response.content.decode()
    assert "Select at least one kind" in response.content.decode()


def test_enrolling_shows_the_token_once_with_two_lines(client: Client, h200: Accelerator) -> None:
    page = client.post("/workers/enrol", {"labels": "site=lab\nrack = 7", "accelerator": "h200-sxm"}).content.decode()
    (token,) = re.findall(r"--token (aet_[\w-]+)", page)
    assert "curl -fsSO http://testserver/agent.pyz" in page
    served = hashlib.sha256(client.get("/agent.pyz").content).hexdigest()
    assert f"{served}  agent.pyz" in page.replace("&quot;", '"') and "sha256sum -c &amp;&amp; python3 agent.pyz" in page
    assert Enrolment.objects.get().labels == {"site": "lab", "rack": "7", "accelerator": "h200-sxm"}
    assert FakeAgent(token="none").register(token).status_code == 201
    assert token not in text(client, "/workers")
    assert client.post("/workers/enrol", {"labels": "nonsense"}).status_code == 422


def test_a_machine_is_revoked_and_its_token_renewed(client: Client) -> None:
    agent = FakeAgent()
    page = client.post(f"/workers/{agent.pk}/rotate").content.decode()
    (agent.token,) = re.findall(r"<code>(agt_[\w-]+)", page)
    assert agent.lease().status_code == 204
    client.post(f"/workers/{agent.pk}/revoke")
    assert agent.lease().status_code == 401
    assert agents.status(Agent.objects.get()) == "revoked"


def test_the_agent_is_served_as_one_file_that_holds_only_itself(client: Client) -> None:
    body = client.get("/agent.pyz").content
    names = zipfile.ZipFile(BytesIO(body)).namelist()
    assert body.startswith(b"#!/usr/bin/env python3") and "probes/agent/cli.py" in names
    assert all(name.startswith(("probes/agent/", "__main__", "probes/__init__")) for name in names)


UNSAFE = ["/workers/queue", "/workers/1/revoke", "/workers/1/rotate", "/workers/results/1/release", "/workers/enrol"]


@pytest.mark.parametrize("path", UNSAFE)
def test_with_users_changes_need_staff(path: str, client: Client) -> None:
    member("ada")
    response = client.post(path)
    assert response.status_code == 302 and response["Location"].startswith("/login?next=")
    client.force_login(User.objects.get())
    assert client.post(path).status_code == 403
    User.objects.update(is_staff=True)
    assert client.post(path).status_code in (200, 404, 422)


def test_reading_the_workers_needs_no_login_where_the_installation_is_open(client: Client) -> None:
    FakeAgent()
    User.objects.create_user("ada", password="lovelace")
    found = text(client, "/workers")
    assert "gpu-1" in found and "Enroll a machine" not in found and "Start measurement" not in found


def test_a_result_from_a_file_has_its_page(client: Client, h200: Accelerator, tmp_path: Any) -> None:
    file = tmp_path / "r.json"
    file.write_bytes(samples.body(samples.document()))
    call_command("import_probe", str(file))
    found = text(client, f"/workers/results/{Result.objects.get().pk}")
    assert "uploaded file" in found and "a person decides" in found


def test_a_hostile_name_is_text(client: Client, h200: Accelerator) -> None:
    agent = FakeAgent("<b>x</b>")
    found = ran(agent, device={"name": '"><script>alert(1)</script>'})
    for path in ("/workers", f"/workers/{agent.pk}", f"/workers/results/{found.pk}"):
        assert "<script>alert" not in text(client, path) and "<b>x" not in text(client, path)
