"""REST beside the agents' protocol: machines, jobs, results and enrolments for people's tools."""

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from catalog.models import Accelerator
from probes.machines import agents
from probes.models import Agent, Enrolment, Job, Result
from probes.received import results
from tests.probes import samples
from tests.probes.client import FakeAgent

pytestmark = pytest.mark.django_db


def post(client: Client, path: str, body: Any = None) -> Any:
    return client.post(f"/api/v1/{path}", body or {}, content_type="application/json")


def test_machines_are_listed_without_secrets_and_can_be_revoked(client: Client) -> None:
    agent = FakeAgent()
    (row,) = client.get("/api/v1/agents").json()["results"]
    assert row["status"] == "online" and "hash" not in str(row) and agent.token not in str(row)
    assert post(client, f"agents/{agent.pk}/revoke").json()["status"] == "revoked"
    assert agent.lease().status_code == 401


def test_a_job_is_queued_read_and_cancelled(client: Client) -> None:
    answer = post(client, "probe-jobs", {"spec": {"suite": "quick"}, "wanted": {"site": "lab"}})
    assert answer.status_code == 201 and answer.json()["state"] == "queued"
    pk = answer.json()["id"]
    assert client.get(f"/api/v1/probe-jobs/{pk}").json()["wanted"] == {"site": "lab"}
    assert post(client, f"probe-jobs/{pk}/cancel").json()["state"] == "cancelled"
    assert client.get("/api/v1/probe-jobs?state=cancelled").json()["count"] == 1


@pytest.mark.parametrize(
    "spec",
    [{"suite": "custom"}, {"suite": "quick", "kinds": ["shell"]}, {"suite": "quick", "max_s": 1e9}, {"suite": "all"}],
    ids=str,
)
def test_a_spec_that_is_not_data_of_the_list_is_refused(spec: dict[str, Any], client: Client) -> None:
    answer = post(client, "probe-jobs", {"spec": spec})
    assert answer.status_code in (400, 422) and answer.json()["errors"] and not Job.objects.exists()


@pytest.mark.parametrize(
    "body",
    [
        {"spec": {"suite": "quick", "max_s": "60"}},
        {"spec": {"suite": "quick", "max_s": True}},
        {"spec": {"suite": "quick", "kinds": [1]}},
        {"spec": {"suite": "quick"}, "agent": "1"},
        {"spec": {"suite": "quick"}, "wanted": {"site": 1}},
        {"spec": {"suite": "quick"}, "wanted": {"no spaces": "x"}},
    ],
    ids=str,
)
def test_a_value_of_another_type_than_described_is_refused_and_not_converted(body: Any, client: Client) -> None:
    answer = post(client, "probe-jobs", body)
    assert answer.status_code == 400 and answer.json()["errors"] and not Job.objects.exists()


@pytest.mark.parametrize(
    ("body", "key"),
    [
        ({"spec": {"suite": "quick"}, "priority": 1}, "priority"),
        ({"spec": {"suite": "quick"}, "wanted_labels": {"site": "lab"}}, "wanted_labels"),
        ({"spec": {"suite": "quick", "max_seconds": 60}}, "spec.max_seconds"),
        ({"spec": {"suite": "quick", "kind": ["gemm"]}}, "spec.kind"),
        ({"suite": "quick", "spec": {"suite": "quick"}}, "suite"),
    ],
    ids=str,
)
def test_an_unknown_key_is_an_error_and_not_dropped(body: Any, key: str, client: Client) -> None:
    answer = post(client, "probe-jobs", body)
    assert answer.status_code == 400 and not Job.objects.exists()
    assert [(e["field"], "Unknown key; allowed are" in e["message"]) for e in answer.json()["errors"]] == [(key, True)]


def test_a_whole_number_may_be_written_with_a_point(client: Client) -> None:
    answer = post(client, "probe-jobs", {"spec": {"suite": "quick", "max_bytes": 2097152.0}})
    assert answer.status_code == 201 and answer.json()["spec"]["max_bytes"] == 2097152


def test_a_result_has_its_measurements_and_rates_that_the_server_computed(client: Client, h200: Accelerator) -> None:
    result = results.import_file(samples.body(samples.document()))
    found = client.get(f"/api/v1/probe-results/{result.pk}").json()
    gemm = next(m for m in found["measurements"] if m["kind"] == "gemm")
    assert gemm["flops_per_s"] == pytest.approx(gemm["flops"] / gemm["median_s"])
    assert found["accelerator"] == "h200-sxm" and found["state"] == "quarantined"
    assert client.get(f"/api/v1/probe-results/{result.pk}/document").json()["schema"] == "assay-probe/1"
    assert post(client, f"probe-results/{result.pk}/release").json()["state"] == "accepted"
    assert post(client, f"probe-results/{result.pk}/release").status_code == 409
    assert "measurements" not in client.get("/api/v1/probe-results").json()["results"][0]


def test_an_enrolment_gives_its_token_once(client: Client) -> None:
    token = post(client, "enrolments", {"labels": {"site": "lab"}}).json()["token"]
    assert FakeAgent(token="none").register(token).status_code == 201
    assert token not in client.get("/api/v1/enrolments").content.decode()
    assert Enrolment.objects.get().agent == Agent.objects.get()


def test_with_users_changes_need_staff_and_enrolments_are_not_shown(client: Client) -> None:
    User.objects.create_user("ada", password="lovelace")
    FakeAgent()
    assert client.get("/api/v1/agents").status_code == 200
    for path in ("probe-jobs", "enrolments", f"agents/{Agent.objects.get().pk}/revoke"):
        assert post(client, path).status_code == 401
    assert client.get("/api/v1/enrolments").status_code == 401
    assert not Job.objects.exists() and agents.status(Agent.objects.get()) == "online"


def test_an_agents_token_opens_nothing_else(client: Client) -> None:
    User.objects.create_user("ada", password="lovelace")
    agent = FakeAgent()
    answer = agent.http.post("/api/v1/enrolments", {}, content_type="application/json", headers=agent.headers())
    assert answer.status_code == 401 and not Result.objects.exists()
