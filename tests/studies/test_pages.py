"""Studies over REST and in the browser's pages: create, watch, cancel, resume, download, delete."""

from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client

from advisor.models import Study
from advisor.studies import pieces
from catalog.models import AuditEvent
from tests.people import member, organisation
from tests.studies import sample

pytestmark = pytest.mark.django_db
Create = Callable[..., Study]
YAML = """
kind: grid
workload: {model: m, traffic: {input_tokens: 5, output_tokens: 5, requests_per_s: {mean: 1}}}
grid: {traffic.requests_per_s.mean: [1, 2, 4]}
"""


@pytest.fixture
def study(created: Create, quick: Any) -> Study:
    """Three points, one of them computed."""
    made = created(3)
    pieces.drain_reads(made.pk)
    claim = pieces.piece_of(made.pk)
    assert claim is not None
    pieces.work(claim)
    return made


def test_a_study_is_created_watched_and_canceled_over_rest(client: Client, created: Create, quick: Any) -> None:
    made = client.post("/api/v1/studies", sample.workloads(2), content_type="application/json")
    assert (made.status_code, made.json()["state"], made.json()["points"]) == (202, "queued", 2)
    url = made["Location"]
    pk = made.json()["id"]
    pieces.drain_reads(pk)
    shown = client.get(url).json()
    assert (shown["state"], shown["progress"]["waiting"], shown["progress"]["fraction"]) == ("running", 2, 0.0)
    assert client.get("/api/v1/studies?state=running").json()["count"] == 1
    assert client.post(f"{url}/cancel").json()["state"] == "cancelled"
    assert client.post(f"{url}/cancel").status_code == 200
    assert client.post(f"{url}/resume").json()["state"] == "running"
    pieces.drain(pk, pause_s=0)
    done = client.get(url).json()
    assert (done["state"], done["progress"]["done"]) == ("done", 2)
    assert client.post(f"{url}/cancel").status_code == 409 and client.post(f"{url}/resume").status_code == 409
    assert client.delete(url).status_code == 204 and client.get(url).status_code == 404
    assert AuditEvent.objects.filter(what__startswith="study").count() == 1


def test_yaml_and_bad_input_over_rest(client: Client, created: Create) -> None:
    assert client.post("/api/v1/studies", YAML, content_type="application/yaml").status_code == 202
    refused = client.post("/api/v1/studies", {"kind": "grid"}, content_type="application/json")
    assert refused.status_code == 422
    assert {each["field"] for each in refused.json()["errors"]} == {"workload", "grid"}
    assert client.post("/api/v1/studies", [], content_type="application/json").status_code == 422
    assert Study.objects.count() == 1


def test_the_page_shows_progress_and_the_rows_so_far_and_polls(client: Client, study: Study) -> None:
    url = f"/studies/{study.pk}"
    page = client.get(url).content.decode()
    assert "1 of 3 pieces" in page and f'hx-get="{url}?from=0"' in page and ">w" in page
    part = client.get(url, headers={"HX-Request": "true"}).content.decode()
    assert part.lstrip().startswith('<div id="study"') and "<html" not in part
    pieces.drain(study.pk, pause_s=0)
    ended = client.get(url).content.decode()
    assert "3 of 3 pieces" in ended and "hx-trigger" not in ended
    assert client.get(f"{url}/results.csv").content.decode().count("\n") == 4
    assert client.get(f"{url}/results.xlsx").status_code == 404


def test_the_form_creates_a_study_or_names_the_errors(client: Client, created: Create) -> None:
    made = client.post("/studies", {"file": YAML})
    assert made.status_code == 302 and made["Location"] == f"/studies/{Study.objects.get().pk}"
    wrong = client.post("/studies", {"file": "kind: grid\nworkload: {}\ngrid: {a: [1]}\n"})
    assert wrong.status_code == 422 and "workload.model: is required" in wrong.content.decode()
    assert "kind: grid" in wrong.content.decode()
    assert client.get("/studies").content.decode().count("variants</a>") == 1


def test_a_page_can_cancel_resume_and_delete(client: Client, study: Study) -> None:
    url = f"/studies/{study.pk}"
    for action, state in (("cancel", "cancelled"), ("resume", "running")):
        assert client.post(f"{url}/{action}").status_code == 302
        study.refresh_from_db()
        assert study.state == state
    assert client.get(f"{url}/cancel").status_code == 405
    client.post(f"{url}/delete")
    assert not Study.objects.exists()


def test_other_organizations_and_viewers_are_kept_out(client: Client, study: Study) -> None:
    client.force_login(member("bob", "admin", organisation()))
    urls = [f"/studies/{study.pk}", f"/api/v1/studies/{study.pk}", f"/api/v1/studies/{study.pk}/results.csv"]
    assert [client.get(url).status_code for url in urls] == [404, 404, 404]
    assert client.get("/api/v1/studies").json()["count"] == 0
    assert [client.post(f"{url}/cancel").status_code for url in urls[:2]] == [404, 404]
    client.force_login(member("eve", "viewer"))
    assert client.get(urls[0]).status_code == 200
    assert [client.post(f"{url}/cancel").status_code for url in urls[:2]] == [403, 403]
    assert client.post("/api/v1/studies", {}, content_type="application/json").status_code == 403
    client.force_login(member("ann", "planner"))
    assert client.delete(urls[1]).status_code == 403 and client.post(f"{urls[0]}/delete").status_code == 403
    study.refresh_from_db()
    assert study.state == "running"
