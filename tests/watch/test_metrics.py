"""/metrics: what it says, and to whom."""

from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone
from prometheus_client.parser import text_string_to_metric_families

from advisor import advise, leases
from advisor.models import Advice, Tally, Workload
from advisor.watch import tallies
from catalog.models import Organisation

pytestmark = pytest.mark.django_db


class Values(dict[tuple[str, frozenset[str]], float]):
    """Values by name and labels, in any order."""

    def __getitem__(self, key: tuple[str, tuple[str, ...]]) -> float:  # type: ignore[override]
        return super().__getitem__((key[0], frozenset(key[1])))

    def __contains__(self, key: object) -> bool:
        assert isinstance(key, tuple)
        return super().__contains__((key[0], frozenset(key[1])))


def values(client: Client, **headers: str) -> Values:
    response = client.get("/metrics", **headers)
    assert response.status_code == 200, response.content
    families = text_string_to_metric_families(response.content.decode())
    return Values({(s.name, frozenset(s.labels.values())): s.value for family in families for s in family.samples})


def queued(slug: str, age_s: float = 0.0) -> Advice:
    owner, _ = Organisation.objects.get_or_create(slug=slug, defaults={"name": slug})
    workload = Workload.objects.create(organisation=owner, name="w", spec={"name": "w"})
    advice = advise.queue(workload)
    Advice.objects.filter(pk=advice.pk).update(created_at=timezone.now() - timedelta(seconds=age_s))
    return advice


def test_the_age_of_the_queue_and_what_runs_for_each_organization(client: Client, woken: list[str]) -> None:
    queued("acme", 100)
    queued("beta", 50)
    running = queued("beta")
    assert advise.claimed(running.pk)
    found = values(client)
    assert found["assay_queue_length", ("answers",)] == 2
    assert 100 <= found["assay_queue_oldest_age_seconds", ("answers",)] < 700
    assert found["assay_queue_oldest_age_seconds", ("probe_jobs",)] == 0
    assert found["assay_answers_running", ("beta",)] == 1
    assert ("assay_answers_running", ("acme",)) not in found
    assert found["assay_answers_queued", ("acme",)] == 1


def test_an_answer_counts_its_attempt_its_end_and_the_seconds_of_its_parts(
    client: Client, woken: list[str], engine: Any
) -> None:
    advice = queued("acme", 3)
    advise.run(advice.pk)
    found = values(client)
    assert found["assay_attempts_total", ("answer",)] == 1
    assert found["assay_answers_ended_total", ("done",)] == 1
    assert found["assay_answers_ended_total", ("failed",)] == 0
    for part in ("wait", "catalog", "prepare", "write"):
        assert found["assay_answer_part_seconds_count", (part,)] == 1
        assert found["assay_answer_part_seconds_bucket", (part, "+Inf")] == 1
    assert 3 <= found["assay_answer_part_seconds_sum", ("wait",)] < 600
    assert found["assay_answer_part_seconds_bucket", ("wait", "1")] == 0


def test_an_expired_lease_is_counted(client: Client, woken: list[str]) -> None:
    advice = queued("acme")
    assert advise.claimed(advice.pk)
    Advice.objects.update(lease_until=timezone.now() - timedelta(hours=1))
    assert leases.end(advise.Claim) == (1, 0)
    assert values(client)["assay_lease_expiries_total", ("answer",)] == 1


def test_counts_survive_the_deletion_of_rows(client: Client, woken: list[str], engine: Any) -> None:
    advise.run(queued("acme").pk)
    Advice.objects.all().delete()
    assert values(client)["assay_answers_ended_total", ("done",)] == 1


def test_a_count_that_cannot_be_stored_fails_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    tallies.add({("x", "y"): 2})
    tallies.add({("x", "y"): 3, ("x", "z"): 0})
    assert tallies.read("x") == {"y": 5}
    with monkeypatch.context() as broken:
        broken.setattr(Tally._meta, "db_table", "no_such_table")
        from django.db import transaction

        with transaction.atomic():
            savepoint = transaction.savepoint()
            tallies.add({("x", "y"): 1})
            transaction.savepoint_rollback(savepoint)
    assert tallies.read("x") == {"y": 5}


@pytest.mark.parametrize("seconds", [0.0, 0.1, 0.11, 5.0, 599.0, 601.0])
def test_a_histogram_counts_each_value_once_and_in_every_higher_bucket(seconds: float) -> None:
    tallies.add(tallies.observed("h", "part", seconds))
    ((buckets, total),) = tallies.histograms("h").values()
    assert total == seconds
    for limit, count in buckets:
        assert count == (limit == "+Inf" or seconds <= float(limit))


def test_requests_are_counted_by_route_and_not_by_path(client: Client) -> None:
    def count(route: str, method: str, status: str) -> float:
        key, found = ("assay_http_requests_total", (route, method, status)), values(client)
        return found[key] if key in found else 0

    before = count("advice-list", "GET", "200"), count("none", "GET", "404"), count("none", "other", "405")
    client.get("/advice?state=done")
    client.get("/no-such-page")
    assert count("advice-list", "GET", "200") == before[0] + 1
    assert count("none", "GET", "404") == before[1] + 1
    client.generic("BREW", "/no-such-page")
    assert not [key for key in values(client) if "BREW" in key[1] or "/no-such-page" in key[1]]


@pytest.mark.parametrize(
    ("address", "headers", "status"),
    [
        ("127.0.0.1", {}, 200),
        ("::1", {}, 200),
        ("10.1.2.3", {}, 403),
        ("203.0.113.9", {}, 403),
        ("", {}, 403),
        ("127.0.0.1", {"HTTP_X_FORWARDED_FOR": "127.0.0.1"}, 403),
        ("127.0.0.1", {"HTTP_X_REAL_IP": "203.0.113.9"}, 403),
        ("127.0.0.1", {"HTTP_FORWARDED": "for=203.0.113.9"}, 403),
    ],
)
def test_without_a_token_only_this_machine_may_read_them(
    client: Client, address: str, headers: dict[str, str], status: int
) -> None:
    response = client.get("/metrics", REMOTE_ADDR=address, HTTP_HOST="10.1.1.1:8000", **headers)
    assert response.status_code == status
    assert (b"assay_" in response.content) == (status == 200)


def test_with_a_token_everybody_needs_it(client: Client, settings: Any) -> None:
    settings.METRICS_TOKEN, settings.SECURE_SSL_REDIRECT = "sécret", True
    assert client.get("/metrics").status_code == 403
    assert client.get("/metrics", HTTP_AUTHORIZATION="Bearer wrong").status_code == 403
    sent = "Bearer sécret".encode().decode("latin-1")
    assert client.get("/metrics", HTTP_AUTHORIZATION=sent, REMOTE_ADDR="203.0.113.9").status_code in (200, 403)
    settings.METRICS_TOKEN = "secret"
    response = client.get("/metrics", HTTP_AUTHORIZATION="Bearer secret", REMOTE_ADDR="203.0.113.9")
    assert response.status_code == 200
    assert client.post("/metrics", HTTP_AUTHORIZATION="Bearer secret").status_code != 200


def test_a_database_that_is_away_leaves_the_checks(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    from advisor.ops import health

    monkeypatch.setattr(health, "database", lambda: health.Check("database", False, "away"))
    found = values(client)
    assert found["assay_check_ok", ("database",)] == 0
    assert not [name for name, _ in found if name.startswith("assay_queue")]
