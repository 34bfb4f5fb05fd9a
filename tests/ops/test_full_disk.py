"""A full disk refuses new work in plain words and loses nothing that was accepted."""

import errno
from pathlib import Path
from typing import Any

import pytest
from django.db import OperationalError, connection
from django.test import Client

from advisor import advise, storage
from advisor.models import Advice, Option, Workload
from tests import answers

pytestmark = pytest.mark.django_db(transaction=True)
State = Advice.State
QUESTION = {
    "name": "small",
    "model": {"config": "config.json"},
    "traffic": {"input_tokens": 1000, "output_tokens": 200, "requests_per_s": 2},
}


def no_space(*args: Any, **given: Any) -> Any:
    raise OSError(errno.ENOSPC, "No space left on device")


def disk_is_full(*args: Any, **given: Any) -> Any:
    """What Django raises when PostgreSQL runs out of disk."""
    import psycopg

    raise OperationalError("could not extend file") from psycopg.errors.DiskFull("could not extend file")


@pytest.mark.parametrize("error", [no_space, disk_is_full])
@pytest.mark.parametrize("path", ["/api/v1/advice", "/"])
def test_a_question_that_cannot_be_stored_is_refused_with_the_reason(
    client: Client, monkeypatch: pytest.MonkeyPatch, error: Any, path: str
) -> None:
    from advisor.api import views as api_views
    from advisor.web import views

    client.raise_request_exception = False
    monkeypatch.setattr(api_views, "workload_in", error)
    monkeypatch.setattr(views, "started_from", error)
    send = client.post(path, QUESTION, "application/json") if path.startswith("/api") else client.get(path)
    assert send.status_code == 503 and int(send["Retry-After"]) > 0
    assert "disk is full" in send.content.decode()
    assert not Workload.objects.exists()


def test_sqlites_own_error_is_recognized() -> None:
    if connection.vendor != "sqlite":
        pytest.skip("about SQLite")
    with connection.cursor() as cursor:
        pages, free, page_bytes = (
            cursor.execute(f"pragma {name}").fetchone()[0] for name in ("page_count", "freelist_count", "page_size")
        )
        cursor.execute(f"pragma max_page_count = {pages + 1}")
        text = "x" * (10**6 + free * page_bytes)  # more than what earlier tests freed
        try:
            with pytest.raises(OperationalError) as caught:
                Workload.objects.create(organisation=advise.default_organisation(), name="large", spec={"x": text})
        finally:
            cursor.execute("pragma max_page_count = 1073741823")
    assert storage.is_full(caught.value)
    assert not storage.is_full(OperationalError("database is locked"))
    assert not Workload.objects.exists()


def test_an_answer_that_cannot_be_written_goes_back_to_the_queue_at_no_cost(
    engine: Any, woken: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    advice = answers.queued()
    with monkeypatch.context() as broken:
        broken.setattr(type(Option.objects), "bulk_create", disk_is_full)
        for _ in range(5):
            advise.run(advice.pk)
    advice.refresh_from_db()
    assert (advice.state, advice.attempt, advice.lease_until) == (State.QUEUED, 0, None)
    advise.run(advice.pk)
    advice.refresh_from_db()
    assert (advice.state, advice.attempt, advice.options.count()) == (State.DONE, 1, 2)


def test_a_worker_on_a_full_disk_waits_until_it_can_return_its_job(
    engine: Any, woken: list[str], monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    """On SQLite even the return of the job needs a free page; a lease that runs out would cost an attempt."""
    advice, return_to_queue, tries = answers.queued(), advise.Claim.return_to_queue, []

    def full_at_first(claim: advise.Claim, **given: Any) -> bool:
        tries.append(claim.attempt)
        return return_to_queue(claim, **given) if len(tries) == 3 else disk_is_full()

    settings.ADVICE_LEASE_S = 5.0
    monkeypatch.setattr(type(Option.objects), "bulk_create", disk_is_full)
    monkeypatch.setattr(advise.Claim, "return_to_queue", full_at_first)
    advise.run(advice.pk)
    advice.refresh_from_db()
    assert (advice.state, advice.attempt, tries) == (State.QUEUED, 0, [1, 1, 1])


def test_a_worker_does_not_start_where_the_answer_may_not_fit(engine: Any, woken: list[str], settings: Any) -> None:
    advice = answers.queued()
    settings.MIN_FREE_MB = 10**9
    advise.run(advice.pk)
    advice.refresh_from_db()
    assert (advice.state, advice.attempt) == (State.QUEUED, 0)
    settings.MIN_FREE_MB = 0
    advise.run(advice.pk)
    advice.refresh_from_db()
    assert advice.state == State.DONE


def test_a_question_whose_message_does_not_fit_waits_for_the_sweep(monkeypatch: pytest.MonkeyPatch) -> None:
    from django.conf import settings

    if settings.REDIS_URL:
        pytest.skip("about the broker of files")
    with monkeypatch.context() as broken:
        broken.setattr(Path, "write_text", no_space)
        advice = answers.queued()
    assert (advice.state, advice.attempt) == (State.QUEUED, 0)
    assert Advice.objects.filter(pk=advice.pk).exists()
