"""How often tokens and addresses may call the people's API, and how an answer says so."""

import time
from typing import Any

import pytest
from django.core.cache import cache
from django.test import Client
from redis.exceptions import ConnectionError as RedisConnectionError

from advisor.api import tokens
from tests.people import member
from tests.probes.client import FakeAgent

pytestmark = pytest.mark.django_db
LIST, ESTIMATE = "/api/v1/models", "/api/v1/estimate"


@pytest.fixture(autouse=True)
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The limits' clock: ten seconds into a minute that only a test moves on."""
    found = [1_000_000_030.0]
    monkeypatch.setattr(time, "time", lambda: found[0])
    cache.clear()
    return found


def bearer(scope: str = "read") -> dict[str, str]:
    return {"Authorization": f"Bearer {tokens.make('ci', scope)[0]}"}


def test_an_address_that_calls_too_often_is_told_when_to_come_again(settings: Any, now: list[float]) -> None:
    settings.API_PER_MINUTE_ADDRESS = 2
    for remaining in ("1", "0"):
        answer = Client().get(LIST)
        assert answer.status_code == 200
        assert (answer["RateLimit-Limit"], answer["RateLimit-Remaining"]) == ("2", remaining)
        assert (answer["RateLimit-Reset"], answer["RateLimit-Policy"]) == ("50", "2;w=60")
    refused = Client().get(LIST)
    assert refused.status_code == 429 and refused["Content-Type"] == "application/problem+json"
    assert refused["Retry-After"] == refused["RateLimit-Reset"] == "50" and refused["RateLimit-Remaining"] == "0"
    assert refused.json()["status"] == 429
    assert Client(REMOTE_ADDR="10.0.0.9").get(LIST).status_code == 200
    now[0] += 50
    assert Client().get(LIST).status_code == 200


def test_a_token_has_a_limit_of_its_own_wherever_it_calls_from(settings: Any) -> None:
    settings.API_PER_MINUTE_TOKEN, settings.API_PER_MINUTE_ADDRESS = 2, 100
    mine, other = bearer(), bearer()
    found = [Client(REMOTE_ADDR=f"10.0.0.{n}").get(LIST, headers=mine) for n in range(3)]
    assert [each.status_code for each in found] == [200, 200, 429]
    assert [each["RateLimit-Limit"] for each in found] == ["2", "2", "2"]  # the tightest one
    assert found[-1]["Retry-After"] == "50"
    assert Client().get(LIST, headers=other).status_code == Client().get(LIST).status_code == 200


def test_tokens_behind_one_address_share_no_limit_of_it(settings: Any) -> None:
    """All calls come from one address, as behind one NAT."""
    settings.API_PER_MINUTE_ADDRESS = settings.ESTIMATES_PER_MINUTE = settings.QUICK_PER_MINUTE = 1
    for call in ("estimate", "quick"):
        for headers in (bearer("submit"), bearer("submit")):
            found = [
                Client().post(f"/api/v1/{call}", {}, content_type="application/json", headers=headers) for _ in range(2)
            ]
            assert [each.status_code for each in found] == [422, 429], call
            assert found[1]["RateLimit-Limit"] == "1" and found[1]["Retry-After"]
    assert [Client().get(LIST).status_code for _ in range(2)] == [200, 429]  # visitors share that of their address


def test_accounts_and_visitors_are_told_apart_for_estimates(settings: Any) -> None:
    settings.ESTIMATES_PER_MINUTE = 1
    clients = [Client(), Client(), Client(), Client()]
    for client, name in zip(clients, ("ada", "bob"), strict=False):
        client.force_login(member(name))
    found = [client.post(ESTIMATE, {}, content_type="application/json").status_code for client in clients]
    assert found == [422, 422, 422, 429]


def test_a_call_with_a_token_that_nobody_checks_counts_for_its_address(settings: Any) -> None:
    settings.API_PER_MINUTE_ADDRESS = 1
    headers = bearer()
    assert [Client().get("/api/v1/nothing-here", headers=headers).status_code for _ in range(2)] == [404, 429]
    assert Client().get(LIST, headers=headers).status_code == 200


def test_pages_that_a_token_reads_count_for_it(settings: Any) -> None:
    settings.API_PER_MINUTE_TOKEN = 1
    headers = bearer()
    found = [Client().get("/catalog/models?format=csv", headers=headers) for _ in range(2)]
    assert [each.status_code for each in found] == [200, 429] and found[0]["RateLimit-Remaining"] == "0"
    assert Client().get("/catalog/models?format=csv").status_code == 200


def test_unknown_tokens_count_for_their_address(settings: Any) -> None:
    settings.API_PER_MINUTE_ADDRESS = 2
    guesses = [Client().get(LIST, headers={"Authorization": f"Bearer aat_{n}"}).status_code for n in range(3)]
    assert guesses == [401, 401, 429]


def test_estimates_have_a_lower_limit_because_a_web_thread_computes_them(settings: Any) -> None:
    settings.ESTIMATES_PER_MINUTE = 1
    found = [Client().post(ESTIMATE, {}, content_type="application/json") for _ in range(2)]
    assert [each.status_code for each in found] == [422, 429] and found[1]["RateLimit-Limit"] == "1"


def test_pages_and_machines_are_not_counted_against_the_limit_of_people(settings: Any) -> None:
    settings.API_PER_MINUTE_ADDRESS = 1
    agent = FakeAgent()
    assert [agent.lease().status_code for _ in range(3)] == [204] * 3
    assert [Client().get("/catalog/models").status_code for _ in range(3)] == [200] * 3
    assert agent.lease()["RateLimit-Limit"] == "120"


def test_without_a_limit_there_are_no_headers() -> None:
    assert "RateLimit-Limit" not in Client().get(LIST)


def test_while_the_counters_are_down_people_are_served_and_agents_asked_to_come_again(
    settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent, headers = FakeAgent(), bearer()
    settings.API_PER_MINUTE_TOKEN = settings.API_PER_MINUTE_ADDRESS = 5

    def away(*given: Any, **named: Any) -> None:
        raise RedisConnectionError("refused")

    for name in ("add", "incr", "get"):
        monkeypatch.setattr(cache, name, away)
    assert Client().get(LIST, headers=headers).status_code == 200
    answer = agent.lease()
    assert answer.status_code == 503 and answer["Retry-After"] == "5"
    assert answer["Content-Type"] == "application/problem+json"
