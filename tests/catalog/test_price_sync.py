"""Refreshing prices from public sources: over HTTP from a real server and from files, and the report."""

import json
from collections.abc import Iterator
from datetime import date, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import StringIO
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from django.core import mail
from django.core.management import CommandError, call_command
from django.test import Client
from django.utils import timezone

from advisor import advise, refresh, webhooks
from advisor.inputs import Snapshot
from advisor.models import Advice, WebhookDelivery, Workload
from catalog.importers.prices.offers import offer as offer_of
from catalog.loading.moves import moving
from catalog.models import Accelerator, HeldPrice, Price, PriceRefresh, PriceSource
from catalog.pricing import download, sources, sync
from tests.clocks import TODAY

SAMPLES = Path(__file__).parent / "price_samples"
DAILY = SAMPLES / "gpu_price_index.csv"


class Answers(BaseHTTPRequestHandler):
    """Answers with what the test has put into `plan`: a status, a body and an ETag, one after the other."""

    plan: list[tuple[int, str, str]] = []
    seen: list[dict[str, str]] = []

    def do_GET(self) -> None:
        type(self).seen.append(dict(self.headers))
        status, body, etag = self.plan.pop(0) if len(self.plan) > 1 else self.plan[0]
        if etag and self.headers.get("If-None-Match") == etag:
            status, body = 304, ""
        self.send_response(status)
        if etag:
            self.send_header("ETag", etag)
        self.send_header("Content-Length", str(len(body.encode())))
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *args: Any) -> None:
        pass


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setattr(download, "BACKOFF_S", 0.0)
    monkeypatch.setattr(download, "JITTER_S", 0.0)
    Answers.plan, Answers.seen = [], []
    httpd = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    Thread(target=httpd.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{httpd.server_address[1]}/daily.csv"
    httpd.shutdown()


@pytest.fixture
def chips(db: None) -> None:
    for slug in ("h100-sxm", "h200-sxm", "b200", "a100-80gb-sxm", "a100-40gb-sxm", "l40s", "b300", "mi300x"):
        Accelerator.objects.create(
            slug=slug, name=slug, vendor="v", family="f", kind="gpu", memory_gib=80, memory_gb_per_s=1,
            as_of="2026-01-01",
        )  # fmt: skip


@pytest.fixture
def daily(server: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The daily readings, served by the test's server."""
    source = sources.SOURCES["gpu-price-index"]
    served = sources.Source(name=source.name, title=source.title, download=sources._one(server), rows=source.rows)
    monkeypatch.setitem(sources.SOURCES, source.name, served)
    return server


def run(*args: str) -> str:
    out = StringIO()
    call_command("prices", *args, stdout=out)
    return out.getvalue()


def test_a_busy_server_is_asked_again(server: str) -> None:
    Answers.plan = [(503, "", ""), (429, "", ""), (200, "prices", '"1"')]
    page = download.get(download.session(), server)
    assert (page.text, page.etag, len(Answers.seen)) == ("prices", '"1"', 3)


def test_an_unchanged_page_is_not_read_again(server: str) -> None:
    Answers.plan = [(200, "prices", '"1"')]
    page = download.get(download.session(), server, etag='"1"')
    assert page.text is None and Answers.seen[0]["If-None-Match"] == '"1"'


def test_a_refusal_and_a_page_that_is_not_text_name_the_address_and_change_nothing(server: str) -> None:
    Answers.plan = [(403, "", "")]
    with pytest.raises(download.Unreachable, match=r"answered with HTTP 403; nothing was changed"):
        download.get(download.session(), server)


def test_without_network_the_message_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download, "RETRIES", 0)
    with pytest.raises(download.Unreachable, match=r"cannot be reached \(ConnectionError\).*--file"):
        download.get(download.session(), "http://127.0.0.1:1/")


def test_a_key_goes_into_a_header_and_into_no_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download, "RETRIES", 0)
    monkeypatch.setattr(sources, "GCP", "http://127.0.0.1:1/skus?a=b")
    monkeypatch.setenv("ASSAY_GCP_BILLING_KEY", "very-secret")
    with pytest.raises(download.Unreachable) as refused:
        sources.SOURCES["gcp"].download(download.session(), {})
    assert "very-secret" not in str(refused.value) + repr(refused.value.__cause__)


def test_gcp_and_spot_prices_say_what_they_need(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ASSAY_GCP_BILLING_KEY", raising=False)
    with pytest.raises(download.Unreachable, match="ASSAY_GCP_BILLING_KEY"):
        sources.SOURCES["gcp"].download(download.session(), {})
    with pytest.raises(download.Unreachable, match="boto3"):
        sources.SOURCES["aws-spot"].download(download.session(), {})


def test_sync_is_off_until_a_source_is_named(chips: None) -> None:
    with pytest.raises(CommandError, match="no price source is turned on"):
        run("sync")
    assert not PriceRefresh.objects.exists()


def test_the_second_run_asks_with_the_etag_and_adds_nothing(chips: None, daily: str) -> None:
    Answers.plan = [(200, DAILY.read_text(), '"day 1"')]
    first = run("sync", "--from", "gpu-price-index")
    stored = Price.objects.count()
    assert stored and f"gpu-price-index: {stored} new, 0 changed" in first
    assert "unchanged since the last time" in run("sync", "--from", "gpu-price-index")
    assert Price.objects.count() == stored
    assert PriceSource.objects.get().etags == {daily: '"day 1"'}


def test_without_network_nothing_changes_and_the_command_fails(
    chips: None, daily: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    Answers.plan = [(500, "", "")]
    with pytest.raises(CommandError, match="nothing was changed"):
        run("sync", "--from", "gpu-price-index")
    assert not Price.objects.exists()
    assert PriceRefresh.objects.get().state == "failed"
    assert "HTTP 500" in PriceSource.objects.get().error
    assert "last attempt failed" in run("status")


def test_a_file_replaces_the_network(chips: None) -> None:
    assert "new, 0 changed" in run("sync", "--from", "gpu-price-index", "--file", str(DAILY))
    stored = Price.objects.count()
    assert stored and set(Price.objects.values_list("as_of", flat=True)) == {date(2026, 10, 10)}
    again = run("sync", "--from", "gpu-price-index", "--file", str(DAILY))
    assert "0 new, 0 changed, 0 confirmed" in again and Price.objects.count() == stored


def test_a_file_that_is_not_of_the_format_changes_nothing(chips: None, tmp_path: Path) -> None:
    wrong = tmp_path / "page.html"
    wrong.write_text("<html>Sign in</html>")
    for name in sync_names():
        with pytest.raises(CommandError):
            run("sync", "--from", name, "--file", str(wrong))
    assert not Price.objects.exists()


def sync_names() -> list[str]:
    return [name for name in sources.SOURCES if name not in ("gpuhunt", "skypilot")]  # they read files by column


def test_only_one_run_at_a_time_and_an_interrupted_one_does_not_block_for_ever(chips: None) -> None:
    now = timezone.now()
    running = PriceRefresh.objects.create(made_by="ann", lease_until=now + timedelta(minutes=5))
    with pytest.raises(CommandError, match="being refreshed already"):
        run("sync", "--from", "gpu-price-index", "--file", str(DAILY))
    PriceRefresh.objects.filter(pk=running.pk).update(lease_until=now - timedelta(minutes=1))
    run("sync", "--from", "gpu-price-index", "--file", str(DAILY))
    running.refresh_from_db()
    assert (running.state, running.error) == ("failed", "The run was interrupted.")


def offer(usd: float, as_of: date, **rest: Any) -> Price:
    fields = {"provider": "nebius", "instance": "HGX H100", "accelerators": 1, "region": "any", "term": "on_demand"}
    chip = Accelerator.objects.get(slug="h100-sxm")
    return Price.objects.create(
        **{**fields, **rest}, accelerator=chip, usd_per_hour=usd, as_of=as_of, source="list", kind="vm"
    )


def line(usd: float, as_of: date, **rest: str) -> dict[str, str]:
    return {
        "provider": "nebius", "instance": "HGX H100", "accelerator": "h100-sxm", "accelerators": "1", "region": "any",
        "vcpus": "", "host_memory_gib": "", "term": "on_demand", "usd_per_hour": str(usd), "purchase_usd": "",
        "kind": "vm", "as_of": as_of.isoformat(), "source": "list", "notes": "", **rest,
    }  # fmt: skip


def source_of(*rows: dict[str, str]) -> sources.Source:
    return sources.Source(
        name="azure", title="t", download=lambda opened, etags: sources.Download(texts={}),
        rows=lambda name, text, as_of, account: [offer_of(row, (account.row(),)) for row in rows],
    )  # fmt: skip


READ = sources.Download(texts={"page": "x"})


def test_an_unchanged_price_is_stored_again_only_after_a_week(chips: None) -> None:
    offer(3.0, TODAY - timedelta(days=3))
    done = sync.add(source_of(line(3.0, TODAY)), READ, "ann", TODAY)
    assert (done.added, done.changed_prices, done.confirmed, Price.objects.count()) == (0, 0, 0, 1)
    Price.objects.update(as_of=TODAY - timedelta(days=8))
    done = sync.add(source_of(line(3.0, TODAY)), READ, "ann", TODAY)
    assert (done.confirmed, Price.objects.count()) == (1, 2)


def test_a_changed_price_is_a_new_row_with_both_prices_in_the_report(chips: None) -> None:
    offer(2.95, TODAY - timedelta(days=3))
    done = sync.add(source_of(line(4.5, TODAY)), READ, "ann", TODAY)
    assert done.changed_prices == 1 and "2.95 USD -> 4.5 USD" in done.changed[0]
    assert Price.objects.count() == 2


def test_a_suspicious_price_is_held_and_named_in_the_report(chips: None) -> None:
    for k, usd in enumerate((24.0, 25.0, 26.0, 27.0)):
        offer(usd, TODAY - timedelta(days=3), provider=f"p{k}", accelerators=8)
    done = sync.add(source_of(line(2.1, TODAY, accelerators="8")), READ, "ann", TODAY)
    assert done.held == 1 and "price of one chip instead of 8" in done.quarantined[0]
    assert HeldPrice.objects.count() == 1 and Price.objects.count() == 4


def test_one_unreadable_row_leaves_the_whole_source_out(chips: None) -> None:
    done = sync.add(source_of(line(3.0, TODAY), line(3.0, TODAY, term="weekly", region="b")), READ, "ann", TODAY)
    assert "term" in done.error and not Price.objects.exists()


def test_the_report_names_the_answers_that_change(
    chips: None, daily: str, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    settings.PRICE_EMAILS, settings.PRICE_WEBHOOK_URL = ["buyer@example.com"], ""
    workload = Workload.objects.create(organisation=advise.default_organisation(), name="chat", spec={"name": "chat"})
    saved = Advice.objects.create(
        organisation=workload.organisation, workload=workload, state="done", result={"recommendations": []}
    )
    monkeypatch.setattr(
        refresh.inputs, "take_snapshot", lambda spec, owner: Snapshot(prices=[{"count": Price.objects.count()}])
    )
    monkeypatch.setattr(refresh.answer, "recommend", lambda spec, snapshot: found(snapshot.prices == [{"count": 0}]))
    Answers.plan = [(200, DAILY.read_text(), "")]
    said = run("sync", "--from", "gpu-price-index")
    assert "saved answers: 1 checked; 1 have another first choice" in said
    assert "chat: 8 x B200 ($800 a month) instead of 4 x H100 ($1,000)" in said
    report = PriceRefresh.objects.get().report
    assert report["answers_changed"][0]["advice"] == str(saved.pk)
    assert report["answers_changed"][0]["change_fraction"] == pytest.approx(-0.2)
    assert "1 saved answers change" in mail.outbox[0].subject and "8 x B200" in mail.outbox[0].body
    page = Client().get("/catalog/prices/updates").content.decode()
    assert "8 x B200 ($800 a month) instead of 4 x H100" in page and f"/advice/{saved.pk}" in page
    told = Client().get("/catalog/prices/updates?format=json").json()
    assert told["report"] == report


def test_webhooks_hear_which_offers_of_current_answers_moved_and_which_first_choices_changed(
    chips: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("provider", "instance", "region", "accelerator", "term")
    used, other = offer(3.0, TODAY - timedelta(days=3)), offer(9.0, TODAY - timedelta(days=3), provider="unused")
    option = {"acquisition": "rent", "price_as_of": "2026-01-01", "label": "4 x H100"}
    option |= {name: getattr(used, name) for name in names} | {"accelerator": used.accelerator.slug}
    owner = advise.default_organisation()
    workload = Workload.objects.create(organisation=owner, name="chat", spec={"name": "chat"})
    answer = {"recommendations": [option]}
    saved = Advice.objects.create(organisation=owner, workload=workload, state="done", result=answer, result_version=99)
    webhooks.create(owner, "https://example.com/", ["price.moved", "winner.changed"], "ada")
    monkeypatch.setattr(Advice, "answer", answer)
    monkeypatch.setattr(
        refresh.inputs, "take_snapshot", lambda spec, owner: Snapshot(prices=[{"count": Price.objects.count()}])
    )
    monkeypatch.setattr(refresh.answer, "recommend", lambda spec, snapshot: found(snapshot.prices == [{"count": 2}]))

    def act() -> list[Any]:
        with moving():
            for row, usd in ((used, 4.5), (other, 8.0)):
                Price.objects.create(**{**values(row), "usd_per_hour": usd, "as_of": TODAY})
        return []

    refresh.run_with("ann", act)
    told = {d.type: json.loads(d.body)["data"] for d in WebhookDelivery.objects.all()}
    assert told["price.moved"]["offer_count"] == 1
    moved = told["price.moved"]["offers"][0]
    assert moved["provider"] == used.provider and moved["answers"] == [str(saved.pk)]
    assert (moved["usd_before"]["per_hour"], moved["usd_after"]["per_hour"]) == (3.0, 4.5)
    assert told["winner.changed"]["after"] == {"label": "8 x B200", "usd_per_month": 800.0}
    refresh.run_with("ann", list)
    assert WebhookDelivery.objects.count() == 2  # nothing moved this time


def values(price: Price) -> dict[str, Any]:
    return {f.name: getattr(price, f.name) for f in Price._meta.fields if f.name != "id"}


def found(before: bool) -> Any:
    option = type(
        "Option", (), {"label": "4 x H100" if before else "8 x B200", "usd_per_month": 1000.0 if before else 800.0}
    )
    return type("Answer", (), {"portfolio": None, "recommendations": [option]})


def test_a_webhook_gets_the_report(chips: None, server: str, settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    posted: list[bytes] = []

    def do_post(handler: Answers) -> None:
        posted.append(handler.rfile.read(int(handler.headers["Content-Length"])))
        handler.send_response(204)
        handler.end_headers()

    monkeypatch.setattr(Answers, "do_POST", do_post, raising=False)
    settings.PRICE_WEBHOOK_URL = server
    run("sync", "--from", "gpu-price-index", "--file", str(DAILY))
    assert json.loads(posted[0])["report"]["sources"][0]["source"] == "gpu-price-index"


def test_held_prices_are_decided_on_the_page(chips: None, django_user_model: Any) -> None:
    for k, usd in enumerate((24.0, 25.0, 26.0, 27.0)):
        offer(usd, TODAY - timedelta(days=3), provider=f"p{k}", accelerators=8)
    sync.add(
        source_of(line(2.1, TODAY, accelerators="8"), line(1.9, TODAY, accelerators="8", region="b")),
        READ, "ann", TODAY,
    )  # fmt: skip
    client = Client()
    page = client.get("/catalog/prices/updates").content.decode()
    assert "looks like the price of one chip instead of 8" in page
    one, two = HeldPrice.objects.all()
    client.post(f"/catalog/prices/held/{one.pk}", {"decision": "release"})
    client.post(f"/catalog/prices/held/{two.pk}", {"decision": "discard"})
    one.refresh_from_db()
    two.refresh_from_db()
    assert (one.state, two.state, Price.objects.count()) == ("released", "discarded", 5)
    django_user_model.objects.create_user("reader", password="x")
    refused = client.post(f"/catalog/prices/held/{one.pk}", {"decision": "release"})
    assert refused.status_code == 302 and "/login" in refused["Location"]
