"""What is deleted with an advice, who may delete, and that nothing else is lost."""

import json
from collections.abc import Callable
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.db import connection
from django.test import Client
from django.utils import timezone

from advisor import advise, deletion, load_tests
from advisor.api import tokens
from advisor.models import Advice, ApiToken, LoadTest, Option, Share, Workload
from catalog.importers.models import hf
from catalog.loading.load import upsert
from catalog.models import ApiPrice, ServedModel
from probes.machines import jobs
from probes.models import Job
from tests import answers, sample_advice, sample_money
from tests.catalog.test_catalog_import_page import QWEN
from tests.pages import every_section
from tests.people import member
from tests.sample_load_results import vllm, written

pytestmark = pytest.mark.django_db
State = Advice.State


def share(advice: Advice) -> Share:
    ends = timezone.now() + timedelta(days=1)
    return Share.objects.create(organisation=advice.organisation, advice=advice, expires_at=ends)


def load_test(advice: Advice) -> LoadTest:
    return load_tests.record(advice.options.get(rank=1), written(vllm()), "r.json")[0]


def imported_model(name: str = "acme/our-7b") -> ServedModel:
    row = hf.model_row(QWEN, name, "config.json as given", None)
    upsert(ServedModel, ("slug",), [row])
    return ServedModel.objects.get(slug=row["slug"])


# --- what goes and what stays -----------------------------------------------------------------------------------


def test_an_advice_goes_with_its_options_links_load_tests_and_question(client: Client) -> None:
    advice, other = sample_advice.advice(), sample_advice.advice()
    link = share(advice)
    load_test(advice)
    assert client.delete(f"/api/v1/advice/{advice.pk}").status_code == 204
    assert [Advice.objects.get(), Workload.objects.get()] == [other, other.workload]
    assert Option.objects.count() == other.options.count()
    assert not Share.objects.exists() and not LoadTest.objects.exists()
    for path in (f"/advice/{advice.pk}", f"/s/{link.token}", f"/api/v1/advice/{advice.pk}"):
        assert client.get(path).status_code == 404
    assert client.delete(f"/api/v1/advice/{advice.pk}").status_code == 404


def test_newer_answers_stay_and_follow_the_one_before(client: Client, woken: list[str]) -> None:
    first = sample_advice.advice()
    middle = advise.rescore(first)
    Advice.objects.filter(pk=middle.pk).update(state=State.CANCELLED)
    middle.refresh_from_db()
    last = advise.rescore(middle)
    assert client.delete(f"/api/v1/advice/{middle.pk}").status_code == 204
    last.refresh_from_db()
    assert last.supersedes == first and Workload.objects.count() == 1
    assert f"/advice/{last.pk}" in client.get(f"/advice/{first.pk}").content.decode()
    assert client.delete(f"/api/v1/advice/{first.pk}").status_code == 204
    last.refresh_from_db()
    assert last.supersedes is None and client.get(f"/advice/{last.pk}").status_code == 200


def test_a_running_one_is_stopped_and_its_worker_writes_nothing(
    client: Client, woken: list[str], engine: SimpleNamespace
) -> None:
    advice = answers.queued()
    claim = advise.claimed(advice.pk)
    assert claim and client.delete(f"/api/v1/advice/{advice.pk}").status_code == 204
    with pytest.raises(advise.LostLease):
        claim.report("searching", 0.5)
    with pytest.raises(advise.LostLease):
        claim.finish(answers.snapshot({}, None), answers.recommend({"name": "late"}, {}))
    with pytest.raises(advise.LostLease):
        advise.compute(claim)
    advise.run(advice.pk)
    assert not Advice.objects.exists() and not Option.objects.exists()


def test_what_machines_measured_for_a_deleted_advice_stays(client: Client) -> None:
    advice = sample_advice.advice()
    job = jobs.request({"suite": "quick"}, advice=advice)
    assert client.delete(f"/api/v1/advice/{advice.pk}").status_code == 204
    assert Job.objects.get(pk=job.pk).advice is None


def test_nothing_is_added_to_an_advice_that_was_just_deleted(
    client: Client, woken: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page was read before the deletion, the form came after it."""
    advice = sample_advice.advice()
    option = advice.options.get(rank=1)
    read: Callable[..., Any] = lambda *given, **named: advice  # noqa: E731
    deletion.delete_advice(advice, "test")
    monkeypatch.setattr("advisor.web.views.get_object_or_404", read)
    for change in ("share", "rescore"):
        assert client.post(f"/advice/{advice.pk}/{change}").status_code == 404
    with pytest.raises(load_tests.LoadResultError, match="was deleted"):
        load_tests.record(option, written(vllm()), "r.json")
    assert not deletion.delete_advice(advice, "test")


def test_a_link_and_a_load_test_are_deleted_alone(client: Client) -> None:
    advice = sample_advice.advice()
    link, test, other = share(advice), load_test(advice), sample_advice.advice()
    listed = client.get(f"/api/v1/advice/{advice.pk}/shares").json()["results"]
    assert [(each["id"], each["url"]) for each in listed] == [(link.pk, None)]
    wrong = f"/api/v1/advice/{other.pk}/shares/{link.pk}", f"/api/v1/advice/{advice.pk}/options/2/load-tests/{test.pk}"
    assert [client.delete(path).status_code for path in wrong] == [404, 404]
    right = f"/api/v1/advice/{advice.pk}/shares/{link.pk}", f"/api/v1/advice/{advice.pk}/options/1/load-tests/{test.pk}"
    assert [client.delete(path).status_code for path in right] == [204, 204]
    assert client.get(f"/s/{link.token}").status_code == 404
    assert not LoadTest.objects.exists() and Advice.objects.count() == 2


def test_an_imported_model_goes_with_its_history_and_its_answers_stay(client: Client) -> None:
    row = imported_model()
    ApiPrice.objects.create(
        provider="acme", name="our", model=row, usd_per_mtok_input=1, usd_per_mtok_output=1, as_of="2026-01-01"
    )
    answer = sample_money.result()
    answer["workload"]["model"] = row.hf_id
    advice = sample_advice.advice(answer, snapshot={"model": {"hf_id": row.hf_id}})
    Workload.objects.update(spec={**advice.workload.spec, "model": row.hf_id})
    link = share(advice)
    assert client.delete(f"/api/v1/models/{row.slug}").status_code == 204
    assert not ServedModel.objects.exists() and not ServedModel.history.exists() and not ApiPrice.objects.exists()
    for path in (
        f"/advice/{advice.pk}",
        f"/advice/{advice.pk}/options/1",
        "/advice",
        f"/s/{link.token}",
    ):
        assert client.get(path).status_code == 200
    for name in ("memo.md", "bill-of-materials.csv"):
        assert client.get(f"/advice/{advice.pk}/documents/{name}").status_code == 200
    again = client.post(f"/advice/{advice.pk}/rescore", {"prices": "then"}, follow=True)
    assert "This request cannot be re-run as it is" in again.content.decode()


def test_a_model_that_comes_with_assay_is_refused_with_the_reason(client: Client) -> None:
    slug = imported_model("BAAI/bge-m3").slug
    refused = client.delete(f"/api/v1/models/{slug}")
    assert refused.status_code == 409 and "load_catalog would restore it" in refused.json()["detail"]
    said = client.post(f"/catalog/models/{slug}/delete", follow=True).content.decode()
    assert "load_catalog would restore it" in said and ServedModel.objects.filter(slug=slug).exists()


def test_a_deleted_token_is_unknown(client: Client) -> None:
    token, row = tokens.make("ci", "read")
    (listed,) = client.get("/api/v1/tokens").json()["results"]
    assert listed["id"] == row.pk and row.token_hash not in json.dumps(listed) and token not in json.dumps(listed)
    assert client.delete(f"/api/v1/tokens/{row.pk}").status_code == 204
    assert client.get("/api/v1/advice", headers={"Authorization": f"Bearer {token}"}).status_code == 401


# --- who may ----------------------------------------------------------------------------------------------------


def everything() -> list[tuple[str, str]]:
    """(address in the API, page) of one of each thing that can be deleted; deleting the advice comes last."""
    row, advice = imported_model(), sample_advice.advice()
    link, test, token = share(advice), load_test(advice), tokens.make("other", "read")[1]
    return [
        (f"/api/v1/models/{row.slug}", f"/catalog/models/{row.slug}/delete"),
        (f"/api/v1/tokens/{token.pk}", f"/tokens/{token.pk}/delete"),
        (f"/api/v1/advice/{advice.pk}/shares/{link.pk}", f"/advice/{advice.pk}/shares/{link.pk}/delete"),
        (
            f"/api/v1/advice/{advice.pk}/options/1/load-tests/{test.pk}",
            f"/advice/{advice.pk}/options/1/load-tests/{test.pk}/delete",
        ),
        (f"/api/v1/advice/{advice.pk}", f"/advice/{advice.pk}/delete"),
    ]


def left() -> list[int]:
    kinds = (ServedModel, ApiToken, Share, LoadTest, Advice)
    return [kind.objects.exclude(**{"name": "caller"} if kind is ApiToken else {}).count() for kind in kinds]


@pytest.mark.parametrize(
    ("scope", "has_users", "status"),
    [("read", False, 403), ("submit", False, 403), ("submit", True, 403), ("admin", True, 204), ("admin", False, 204)],
)
def test_a_token_deletes_by_its_scope_alone(scope: str, has_users: bool, status: int) -> None:
    paths = everything()
    if has_users:
        User.objects.create_user("ada")
    bearer = {"Authorization": f"Bearer {tokens.make('caller', scope)[0]}"}
    assert [Client().delete(api, headers=bearer).status_code for api, _ in paths] == [status] * 5
    assert left() == ([0] * 5 if status == 204 else [1] * 5)
    assert Client().get("/api/v1/tokens", headers=bearer).status_code == (200 if status == 204 else 403)
    if status != 204:  # planners list links, too, to end them
        links = Client().get(paths[-1][0] + "/shares", headers=bearer).status_code
        assert links == (200 if scope == "submit" else 403)


@pytest.mark.parametrize(("who", "may"), [("visitor", False), ("user", False), ("staff", True)])
def test_where_there_are_users_only_staff_delete(who: str, may: bool, client: Client) -> None:
    paths = everything()
    User.objects.create_user("somebody")
    if who != "visitor":
        client.force_login(member(who, "operator", is_staff=who == "staff"))
    api, pages = [client.delete(path).status_code for path, _ in paths], []
    if may:
        assert api == [204] * 5
        paths = everything()
    pages = [client.post(page) for _, page in paths]
    if who == "visitor":
        assert {status in (401, 403) for status in api} == {True}
        assert all(page.status_code == 302 and page["Location"].startswith("/login") for page in pages)
        assert client.get("/tokens")["Location"].startswith("/login")
    if who == "user":
        assert api == [403] * 5 and [page.status_code for page in pages] == [403] * 5
        assert client.get("/tokens").status_code == 403
    assert left() == ([0] * 5 if may else [1] * 5)


def test_a_page_of_another_site_deletes_nothing(client: Client) -> None:
    paths = everything()
    foreign = {"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"}
    assert {client.delete(api, headers=foreign).status_code for api, _ in paths} <= {401, 403}
    strict = Client(enforce_csrf_checks=True)
    assert [strict.post(page).status_code for _, page in paths] == [403] * 5
    assert left() == [1] * 5


# --- pages ------------------------------------------------------------------------------------------------------


def test_each_page_asks_first_and_then_deletes(client: Client) -> None:
    for _, page in everything():
        asked = client.get(page).content.decode()
        assert "This cannot be undone" in asked and '<form method="post">' in asked and "csrfmiddlewaretoken" in asked
        done = client.post(page, follow=True)
        assert done.status_code == 200 and "Deleted: " in done.content.decode()
        assert client.get(page).status_code == 404
    assert left() == [0] * 5


def test_pages_lead_to_deletion_for_those_who_may(client: Client) -> None:
    pages = [page for _, page in everything()]
    advice = Advice.objects.get()
    shown = [
        every_section(client, path)
        for path in (
            f"/advice/{advice.pk}",
            f"/advice/{advice.pk}/options/1",
            "/catalog/models/acme-our-7b",
            "/tokens",
        )
    ]
    assert all(any(f'href="{page}"' in text for text in shown) for page in pages)
    link = Share.objects.get()
    assert "/delete" not in client.get(f"/s/{link.token}").content.decode()
    User.objects.create_user("ada")
    for path in (f"/advice/{advice.pk}", f"/advice/{advice.pk}/options/1", "/catalog/models/acme-our-7b"):
        assert "/delete" not in client.get(path).content.decode()


def test_the_page_says_what_goes_with_it(client: Client, woken: list[str]) -> None:
    advice = sample_advice.advice()
    share(advice)
    load_test(advice)
    advise.rescore(advice)
    said = client.get(f"/advice/{advice.pk}/delete").content.decode()
    for part in ("4 options", "1 link", "1 load test", "1 newer answer to this request will be kept"):
        assert part in said
    running = sample_advice.advice(state="running")
    assert "deleting it stops the run" in client.get(f"/advice/{running.pk}/delete").content.decode()


@pytest.mark.parametrize(("offers", "said"), [(0, ""), (1, "1 hosted API price"), (2, "2 hosted API prices")])
def test_the_page_counts_the_prices_that_go_with_a_model(client: Client, offers: int, said: str) -> None:
    row = imported_model()
    for n in range(offers):
        ApiPrice.objects.create(
            provider=f"acme {n}", name="our", model=row, usd_per_mtok_input=1, usd_per_mtok_output=1, as_of="2026-01-01"
        )
    text = client.get(f"/catalog/models/{row.slug}/delete").content.decode()
    assert said in text and ("hosted API price" in text) is bool(offers)


# --- command line -----------------------------------------------------------------------------------------------


def test_the_command_line_deletes_each_kind(capsys: pytest.CaptureFixture[str]) -> None:
    everything()
    ids = {
        "model": ServedModel.objects.get().slug,
        "share": str(Share.objects.get().pk),
        "load-test": str(LoadTest.objects.get().pk),
        "advice": str(Advice.objects.get().pk),
    }
    for kind, key in ids.items():
        call_command("delete", kind, key)
        assert f"{kind} {key}: deleted" in capsys.readouterr().out
        with pytest.raises(CommandError, match=f"no such {kind}: {key}"):
            call_command("delete", kind, key)
    row = ApiToken.objects.get()
    tokens.revoke(row)
    call_command("token", "delete", row.token_prefix)
    assert left() == [0] * 5


@pytest.mark.parametrize(("kind", "key"), [("advice", "x"), ("share", "x"), ("share", "9" * 40), ("model", "x")])
def test_an_unknown_id_is_refused_in_words(kind: str, key: str) -> None:
    with pytest.raises(CommandError, match=f"no such {kind}"):
        call_command("delete", kind, key)


@pytest.mark.skipif(connection.vendor != "sqlite", reason="PostgreSQL frees rows at its next vacuum")
def test_what_sqlite_deletes_is_overwritten(settings: Any) -> None:
    """A deleted row stays readable in the file otherwise, until its page is used again."""
    assert "PRAGMA secure_delete=ON" in settings.DATABASES["default"]["OPTIONS"]["init_command"]
    with connection.cursor() as cursor:
        assert cursor.execute("PRAGMA secure_delete").fetchone() == (1,)
