"""How often agents may call, and how a machine's token ends and is renewed."""

import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from probes.api import limits
from probes.machines import agents
from probes.models import Agent
from tests.probes.client import HEADERS, FakeAgent

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def one_minute(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The limits' clock, which only a test moves."""
    now = [1_000_000_020.0]
    monkeypatch.setattr(time, "time", lambda: now[0])
    return now


def test_an_agent_that_asks_too_often_is_told_when_to_come_again(settings: Any, one_minute: list[float]) -> None:
    settings.PROBE_CALLS_PER_MINUTE_AGENT = 3
    agent, other = FakeAgent("a"), FakeAgent("b")
    assert [agent.lease().status_code for _ in range(4)] == [204, 204, 204, 429]
    answer = agent.lease()
    assert answer["Retry-After"] == "60"
    assert answer["Content-Type"] == "application/problem+json"
    assert other.lease().status_code == 204
    one_minute[0] += 60
    assert agent.lease().status_code == 204


def test_an_address_has_a_limit_of_its_own(settings: Any) -> None:
    settings.PROBE_CALLS_PER_MINUTE_ADDRESS = 4
    found = [FakeAgent(name) for name in "ab"]
    assert [found[n % 2].lease().status_code for n in range(4)] == [204, 204, 429, 429]


def test_who_guesses_tokens_is_refused_before_anything_is_looked_up(settings: Any) -> None:
    settings.PROBE_REFUSALS_PER_MINUTE = 3
    known = FakeAgent()
    stranger = FakeAgent(token="agt_guess")
    assert [stranger.lease().status_code for _ in range(5)] == [401, 401, 401, 429, 429]
    token, _ = agents.enrol({})
    assert FakeAgent("late", token="none").register(token).status_code == 429
    assert known.lease().status_code == 204  # from the same address, with a token of its own


def test_behind_a_proxy_the_address_is_what_the_proxy_saw(settings: Any, rf: Any) -> None:
    request = rf.get("/", headers={"x-forwarded-for": "6.6.6.6, 10.1.1.1"}, REMOTE_ADDR="10.0.0.1")
    assert limits.address(request) == "10.0.0.1"  # without one anybody could write the header
    settings.PROXIES = 1
    assert limits.address(request) == "10.1.1.1"
    settings.PROXIES = 3
    assert limits.address(request) == "10.0.0.1"


@pytest.mark.parametrize(
    ("given", "counted"),
    [
        ("2001:db8:1:2::1", "2001:db8:1:2::"),
        ("2001:db8:1:2:ffff::9", "2001:db8:1:2::"),
        ("::ffff:10.0.0.9", "10.0.0.9"),
    ],
)
def test_an_ipv6_network_counts_as_one_address(rf: Any, given: str, counted: str) -> None:
    assert limits.address(rf.get("/", REMOTE_ADDR=given)) == counted


@pytest.mark.parametrize("path", ["register", "lease"])
def test_a_body_that_is_too_large_is_refused(path: str) -> None:
    agent = FakeAgent()
    assert agent.post(path, {"name": "x" * (1 << 20)}).status_code == 413


def test_a_result_that_is_too_large_is_refused(settings: Any) -> None:
    from probes.machines import jobs

    settings.PROBE_MAX_RESULT_BYTES = 1000
    agent = FakeAgent()
    jobs.request({"suite": "quick"})
    given = agent.lease().json()
    assert agent.send(given["job_id"], given["attempt"], b" " * 1001).status_code == 413


# --- the life of a token ----------------------------------------------------------------------------------------


def test_a_machines_token_ends_and_is_renewed_from_half_of_its_life_on(later: Callable[[float], None]) -> None:
    agent, idle = FakeAgent("a"), FakeAgent("b")
    assert "Agent-Rotate" not in agent.lease()
    later(46 * 86400)
    assert agent.lease()["Agent-Rotate"] == "1"
    agent.token = agent.post("token/rotate", {}).json()["token"]
    assert "Agent-Rotate" not in agent.lease()
    later(45 * 86400)
    assert (agent.lease().status_code, idle.lease().status_code) == (204, 401)


def test_a_rotation_whose_answer_was_lost_can_be_asked_again_and_again(later: Callable[[float], None]) -> None:
    agent = FakeAgent()
    for _ in range(3):
        answer = agent.post("token/rotate", {})
        assert answer.status_code == 200
    former, agent.token = agent.token, answer.json()["token"]
    assert agent.lease().status_code == 204
    later(301)
    assert FakeAgent(token=former).lease().status_code == 401


def test_an_agents_token_polls_and_answers_for_its_own_machine_only() -> None:
    from probes.machines import jobs

    mine, other = FakeAgent("a"), FakeAgent("b")
    jobs.request({"suite": "quick"}, wanted_agent=Agent.objects.get(pk=mine.pk))
    given = mine.lease().json()
    for call in (other.heartbeat, other.fail):
        assert call(given["job_id"], given["attempt"]).status_code == 404
    assert other.send(given["job_id"], given["attempt"], b"{}").status_code == 404
    for path in ("/api/v1/agents", "/api/v1/probe-results", "/api/v1/advice"):
        answer = Client().get(path, headers={**HEADERS, "Authorization": f"Bearer {mine.token}"})
        assert answer.status_code == 401


def test_a_method_that_is_not_there_is_said_to_be_so_in_any_protocol(client: Client) -> None:
    for headers in ({}, {"Agent-Protocol": "1"}):
        answer = client.delete("/api/agent/v1/lease", headers=headers)
        assert answer.status_code == 405 and "POST" in answer["Allow"]


def test_no_token_is_kept_as_it_was_shown() -> None:
    token, row = agents.enrol({})
    agent = FakeAgent()
    agent.post("token/rotate", {})
    kept = f"{vars(row)} {Agent.objects.values()}"
    assert token not in kept and agent.token not in kept
    assert timezone.now() + timedelta(days=89) < Agent.objects.get().token_expires_at


@pytest.mark.parametrize("text", ["\0", "\ud800", "a\udfff"])
def test_facts_that_no_database_keeps_are_refused(text: str) -> None:
    token, _ = agents.enrol({})
    agent = FakeAgent(token="none")
    for n, facts in enumerate(({"a": [text]}, {text: 1})):
        assert agent.register(token, inventory=facts).status_code == 400
        assert FakeAgent(f"g-{n}").lease(device=facts).status_code == 400
    assert agent.register(token).status_code == 201


def test_a_job_is_queued_only_for_a_machine_of_this_installation(client: Client) -> None:
    from catalog.models import Organisation

    agent = FakeAgent()
    Agent.objects.update(organisation=Organisation.objects.create(slug="other", name="Other"))
    body = {"spec": {"suite": "quick"}, "agent": agent.pk}
    assert client.post("/api/v1/probe-jobs", body, content_type="application/json").status_code == 422
