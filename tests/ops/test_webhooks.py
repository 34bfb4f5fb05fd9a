"""Webhooks: signed, sent again until received, written with what they tell about, and to public addresses only."""

import base64
import hashlib
import hmac
import json
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_network
from pathlib import Path
from threading import BoundedSemaphore, Event, Thread
from threading import enumerate as enumerate_threads
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID
from django.core import mail
from django.test import Client
from django.utils import timezone
from hypothesis import given
from hypothesis import strategies as st

from advisor import advise, inputs, leases, load_tests, webhooks
from advisor.api import tokens
from advisor.engine import ENGINE_VERSION
from advisor.models import Advice, LoadTest, WebhookDelivery, WebhookEndpoint
from advisor.result import Answer
from advisor.webhooks import addresses, sending
from catalog.models import AuditEvent, Organisation, default_organisation
from tests import clocks, sample_advice
from tests.people import member, organisation
from tests.world import World

pytestmark = pytest.mark.django_db
ALL = list(webhooks.EVENTS)
NOW = datetime(2026, 11, 26, 12, tzinfo=timezone.get_current_timezone())
State = WebhookDelivery.State


class Receiver(BaseHTTPRequestHandler):
    """Answers with the statuses of `plan`, the last one for ever, and keeps what it got."""

    plan: list[int] = [204]
    got: list[tuple[dict[str, str], bytes]] = []

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        type(self).got.append(({name.lower(): value for name, value in self.headers.items()}, body))
        status = self.plan.pop(0) if len(self.plan) > 1 else self.plan[0]
        self.send_response(status)
        if status in (301, 307):
            self.send_header("Location", f"http://127.0.0.1:{self.server.server_address[1]}/elsewhere")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *args: Any) -> None:
        pass


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}/hook?from=assay"
    server.shutdown()


@pytest.fixture
def url(address: str, settings: Any) -> str:
    settings.WEBHOOK_NETWORKS = (ip_network("127.0.0.0/8"),)
    Receiver.plan, Receiver.got = [204], []
    return address


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    at = [NOW]

    def moved(seconds: float) -> None:
        at[0] += timedelta(seconds=seconds)

    clocks.set_database(monkeypatch, lambda: at[0])
    monkeypatch.setattr(webhooks.sending.clock, "after", lambda s: sending.clock.now() + timedelta(seconds=s))
    return moved


def finished(state: str = "done", **fields: Any) -> Advice:
    """An answer that a worker has just ended, with its events."""
    made = sample_advice.advice(state="running", claim="mine", **fields)
    claim = advise.Claim(made.pk, made.attempt, name="mine")
    if state == "done":
        claim.finish(inputs.Snapshot(engine_version=ENGINE_VERSION), Answer.read(sample_advice.result()))
    else:
        claim.fail("The calculation failed.")
    made.refresh_from_db()
    return made


def hook(url: str, events: list[str] = ALL, owner: Organisation | None = None) -> WebhookEndpoint:
    return webhooks.create(owner or default_organisation(), url, events, "ada")


def is_signed(headers: dict[str, str], body: bytes, secret: str) -> bool:
    """As the specification of Standard Webhooks says, without Assay's code."""
    key = base64.b64decode(secret.removeprefix("whsec_"))
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.{body.decode()}".encode()
    wanted = "v1," + base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
    return wanted in headers["webhook-signature"].split(" ")


# --- what is sent -----------------------------------------------------------------------------------------------


def test_a_finished_answer_is_told_once_signed_and_without_secrets(url: str) -> None:
    row = hook(url)
    advice = finished()
    webhooks.advice_ended([advice.pk], "again")  # the same event is written once
    assert webhooks.send_due() == 1 and webhooks.send_due() == 0
    headers, body = Receiver.got[0]
    assert is_signed(headers, body, webhooks.secret_of(row)) and not is_signed(headers, body, "whsec_AAAA")
    told = json.loads(body)
    assert told["type"] == "advice.finished" and told["data"]["advice"] == str(advice.pk)
    assert told["data"]["verdict"].startswith("4 x H200") and told["data"]["state"] == "done"
    assert told["data"]["api"].endswith(f"/api/v1/advice/{advice.pk}") and len(body) < 3000
    assert abs(int(headers["webhook-timestamp"]) - timezone.now().timestamp()) < 60
    assert row.key_salt not in body.decode() and webhooks.secret_of(row) not in body.decode()
    log = WebhookDelivery.objects.get()
    assert (log.state, log.attempts, log.last_status, log.event_id) == (State.DELIVERED, 1, 204, headers["webhook-id"])


def test_failures_and_lost_workers_are_told_and_cancellations_are_not(url: str) -> None:
    hook(url)
    failed = finished("failed")
    lost = sample_advice.advice(state="running", attempt=3, lease_until=NOW - timedelta(days=1))
    assert leases.end(advise.Claim) == (0, 1)
    advise.cancel(sample_advice.advice(state="queued"))
    webhooks.send_due()
    told = {json.loads(body)["data"]["advice"]: json.loads(body)["data"] for _, body in Receiver.got}
    assert told.keys() == {str(failed.pk), str(lost.pk)}
    assert all(data["state"] == "failed" and data["error"] for data in told.values())


def test_a_rerun_with_another_first_choice_is_told_with_both(url: str) -> None:
    hook(url, ["winner.changed"])
    earlier = sample_advice.advice()
    finished(supersedes=earlier)
    assert not WebhookDelivery.objects.exists()  # the same first choice
    earlier.options.filter(rank=1).update(label="8 x B200", usd_per_month=9000)
    later = finished(supersedes=earlier)
    data = json.loads(WebhookDelivery.objects.get().body)["data"]
    assert data["before"] == {"label": "8 x B200", "usd_per_month": 9000.0}
    assert data["after"]["label"].startswith("4 x H200") and data["advice"] == str(later.pk)
    assert data["compared_with"] == str(earlier.pk)


def test_a_load_test_that_is_switched_is_told_once_a_change(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    hook(url, ["calibration.changed"])
    option = sample_advice.advice().options.get(rank=1)
    test = LoadTest.objects.create(option=option, file_sha256="x", measured={})
    monkeypatch.setattr(load_tests.records, "refuse_other_loads", lambda *args: None)
    for wanted in (True, True, False):
        load_tests.set_calibrates(test, wanted)
    bodies = WebhookDelivery.objects.order_by("pk").values_list("body", flat=True)
    assert [json.loads(body)["data"]["calibrates"] for body in bodies] == [True, False]


def test_nothing_is_written_if_what_it_tells_about_is_rolled_back(url: str) -> None:
    hook(url)
    made = sample_advice.advice(state="running", claim="mine")
    with pytest.raises(leases.LostLease):
        advise.Claim(made.pk, made.attempt, name="another worker").finish(
            inputs.Snapshot(engine_version=ENGINE_VERSION), Answer.read(sample_advice.result())
        )
    assert not WebhookDelivery.objects.exists()


# --- retries ----------------------------------------------------------------------------------------------------


def test_an_error_is_tried_again_with_the_same_id_and_a_fresh_signature(
    url: str, later: Callable[[float], None]
) -> None:
    row = hook(url)
    Receiver.plan = [500, 307, 204]
    finished()
    for _ in range(3):
        assert webhooks.send_due() == 1 and webhooks.send_due() == 0
        later(60)
    ids = {headers["webhook-id"] for headers, _ in Receiver.got}
    assert len(Receiver.got) == 3 and len(ids) == 1 and len({h["webhook-timestamp"] for h, _ in Receiver.got}) == 3
    assert all(is_signed(headers, body, webhooks.secret_of(row)) for headers, body in Receiver.got)
    assert WebhookDelivery.objects.get().state == State.DELIVERED


def test_attempts_end_after_about_a_day_and_the_silent_endpoint_is_disabled(
    url: str, later: Callable[[float], None]
) -> None:
    member("ada", "admin", email="ada@acme.example")
    row = hook(url)
    Receiver.plan = [503]
    finished()
    waited = 0
    while WebhookDelivery.objects.filter(state=State.WAITING).exists():
        webhooks.send_due()
        step = 60 if waited < 3600 else 900
        later(step)
        waited += step
    assert 17 * 3600 < waited < 27 * 3600 and len(Receiver.got) == 10
    row.refresh_from_db()
    assert row.disabled_at and "HTTP 503" in row.disabled_because
    assert AuditEvent.objects.filter(action="webhook", detail__startswith="disabled").exists()
    finished()
    assert WebhookDelivery.objects.count() == 1  # nothing is written for a disabled one
    webhooks.change(row, "ada", disabled=False)
    assert webhooks.again(WebhookDelivery.objects.get(), "ada")
    Receiver.plan = [200]
    assert webhooks.send_due() == 1 and WebhookDelivery.objects.get().state == State.DELIVERED


def test_the_administrators_are_told(url: str, django_capture_on_commit_callbacks: Any) -> None:
    member("ada", "admin", email="ada@acme.example")
    member("bob", "viewer", email="bob@acme.example")
    hook(url)
    Receiver.plan = [410]
    finished()
    with django_capture_on_commit_callbacks(execute=True):
        webhooks.send_due()
    assert [message.to for message in mail.outbox] == [["ada@acme.example"]] and "http://127.0.0.1" in mail.outbox[
        0
    ].body
    assert "from=assay" not in mail.outbox[0].body + mail.outbox[0].subject
    assert WebhookDelivery.objects.get().state == State.FAILED


def test_one_poisoned_event_neither_stops_the_others_nor_disables(url: str, later: Callable[[float], None]) -> None:
    hook(url)
    Receiver.plan = [500, 204]
    finished(), finished()
    for _ in range(20):
        webhooks.send_due()
        later(60)
    assert set(WebhookDelivery.objects.values_list("state", flat=True)) == {State.DELIVERED}


@given(
    plan=st.lists(st.sampled_from([200, 204, 500, 429, "lost", "lost after"]), max_size=8),
    ends=st.lists(st.sampled_from(["done", "failed"]), min_size=1, max_size=3),
)
def test_every_ended_answer_reaches_every_endpoint_whatever_happens_to_workers(
    plan: list[Any], ends: list[str]
) -> None:
    """A worker is lost before it sends, or before it writes that it sent. One row for each, and the same id always."""
    sent: list[tuple[int, str]] = []
    moved = [NOW]
    with pytest.MonkeyPatch.context() as patch:
        clocks.set_database(patch, lambda: moved[0])
        patch.setattr(sending.clock, "after", lambda s: sending.clock.now() + timedelta(seconds=s))
        WebhookEndpoint.objects.all().delete()
        patch.setattr(addresses, "checked", lambda url: None)
        rows = [hook(f"https://{n}.example/hook") for n in range(2)]
        answers = [str(finished(state).pk) for state in ends]
        wanted = {(row.pk, pk) for row in rows for pk in answers}

        def post(url: str, body: bytes, headers: Any) -> tuple[int | None, str]:
            step = plan.pop(0) if plan else 200
            if step == "lost":
                raise KeyboardInterrupt
            received = step in (200, 204, "lost after")
            if received:
                sent.append((next(r.pk for r in rows if r.url == url), json.loads(body)["data"]["advice"]))
            if step == "lost after":
                raise KeyboardInterrupt
            return int(step), "" if received else f"HTTP {step}"

        patch.setattr(addresses, "post", post)
        for turn in range(200):  # a day and a half: eight failures of one event take up to 19 hours
            try:
                webhooks.send_due()
            except KeyboardInterrupt:
                pass
            moved[0] += timedelta(seconds=61 * (1 + turn // 10))
            if not WebhookDelivery.objects.filter(state=State.WAITING).exists():
                break
    assert set(sent) == wanted
    assert WebhookDelivery.objects.filter(state=State.DELIVERED).count() == len(wanted)


def test_events_arrive_in_order_and_endpoints_take_turns(url: str, later: Callable[[float], None]) -> None:
    rows = [hook(f"{url}&n={n}", ["advice.finished"]) for n in range(2)]
    wanted = []
    for _ in range(3):
        wanted.append(str(finished().pk))
        later(1)
    tried = []
    while (delivery := sending.claimed()) is not None:
        sending.attempt(delivery)
        tried.append(delivery.endpoint_id)
        later(1)
    assert tried == [row.pk for row in rows] * 3
    assert [json.loads(body)["data"]["advice"] for _, body in Receiver.got] == [pk for pk in wanted for _ in rows]


def test_a_rotated_secret_and_an_old_secret_key_sign_for_a_while(
    url: str, settings: Any, later: Callable[[float], None]
) -> None:
    row = hook(url)
    old = webhooks.secret_of(row)
    row = webhooks.rotate(row, "ada")
    new = webhooks.secret_of(row)
    settings.SECRET_KEY_FALLBACKS, settings.SECRET_KEY = [settings.SECRET_KEY], "another"
    webhooks.ping(row)
    webhooks.send_due()
    assert old != new and all(is_signed(*Receiver.got[0], secret) for secret in (old, new))
    later(86_500)
    webhooks.ping(row)
    webhooks.send_due()
    assert [is_signed(*Receiver.got[1], secret) for secret in (old, new)] == [False, True]


# --- addresses --------------------------------------------------------------------------------------------------

PRIVATE = (
    "127.0.0.1 10.1.2.3 192.168.0.1 172.16.5.5 169.254.169.254 100.100.100.200 0.0.0.0 224.0.0.1 255.255.255.255 "
    "168.63.129.16 ::1 fe80::1 fd00:ec2::254 ::ffff:10.0.0.1 64:ff9b::a00:1 2002:a00:1::1 ff02::1 :: 240.0.0.1 "
    "192.0.0.192 fec0::1 3fff::1 ::127.0.0.1 64:ff9b:1::a00:1"
).split()


@pytest.mark.parametrize("private", PRIVATE)
def test_names_that_resolve_to_private_addresses_are_not_called(private: str, monkeypatch: pytest.MonkeyPatch) -> None:
    family = socket.AF_INET6 if ":" in private else socket.AF_INET
    found = [(socket.AF_INET, 1, 6, "", ("8.8.8.8", 443)), (family, 1, 6, "", (private, 443))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *args, **kw: found)
    monkeypatch.setattr(socket, "create_connection", lambda *args: pytest.fail("connected"))
    status, error = addresses.post("https://rebound.example/hook", b"{}", {})
    assert status is None and "is not a public address" in error
    host = f"[{private}]" if ":" in private else private
    with pytest.raises(webhooks.RefusedUrl):
        addresses.checked(f"https://{host}/hook")


def test_the_connection_goes_to_the_address_that_was_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    resolved, places = [], []

    def resolve(*args: Any, **kw: Any) -> Any:
        resolved.append(args)
        return [(socket.AF_INET, 1, 6, "", ("8.8.8.8" if len(resolved) == 1 else "127.0.0.1", 443))]

    def connect(place: Any, *args: Any) -> Any:
        places.append(place)
        raise ConnectionRefusedError("refused")

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    monkeypatch.setattr(socket, "create_connection", connect)
    assert addresses.post("https://rebound.example/hook", b"{}", {})[0] is None
    assert places == [("8.8.8.8", 443)] and len(resolved) == 1


@pytest.mark.parametrize(
    "bad",
    ["http://example.com/", "ftp://example.com/", "https://", "example.com", "https://a:b@example.com/", "",
     "https://example.com/#x", "https://exa mple.com/", "https://example.com:99999/", "https://[::1", "https://é.com/",
     "https://x/" + "a" * 500, "https://example.com:0/", "https://a\nb.com", "file:///etc/passwd", "https://2130706433/",
     "https://0x7f.1/", "https://127.1/"],
)  # fmt: skip
def test_other_urls_are_refused_when_given_or_when_called(bad: str) -> None:
    assert addresses.post(bad, b"{}", {})[0] is None


def test_without_tls_only_allowed_loopback_addresses_are_called(url: str, settings: Any) -> None:
    assert addresses.post(url, b"{}", {}) == (204, "")
    settings.WEBHOOK_NETWORKS = (ip_network("127.0.0.0/8"), ip_network("10.0.0.0/8"))
    with pytest.raises(webhooks.RefusedUrl, match="http:// is only for loopback"):
        addresses.checked("http://10.0.0.1/hook")
    addresses.checked("https://10.0.0.1/hook")
    settings.WEBHOOK_NETWORKS = ()
    assert addresses.post(url, b"{}", {})[0] is None and len(Receiver.got) == 1


@pytest.fixture
def brief(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.WEBHOOK_NETWORKS = (ip_network("127.0.0.0/8"),)
    monkeypatch.setattr(addresses, "TOTAL_S", 0.2)


def test_a_receiver_that_does_not_answer_in_time_is_an_error(brief: None) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        for scheme in ("http", "https"):
            found = addresses.post(f"{scheme}://127.0.0.1:{silent.getsockname()[1]}/", b"{}", {})
            assert found == (None, "no answer within 0.2 s")


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_receiver_that_sends_single_bytes_is_ended_in_time(scheme: str, brief: None) -> None:
    """Each byte restarts the timeout of a read: of the answer, and of the handshake."""
    stop = Event()

    def drip(server: socket.socket) -> None:
        taken, _ = server.accept()
        first = b"HTTP/1.1 200 " if scheme == "http" else b"\x16\x03\x03\x40\x00\x02"
        with suppress(OSError):
            taken.sendall(first)
            while not stop.wait(0.02):
                taken.sendall(b"x")

    with socket.create_server(("127.0.0.1", 0)) as server:
        dripping = Thread(target=drip, args=[server])
        dripping.start()
        found = addresses.post(f"{scheme}://127.0.0.1:{server.getsockname()[1]}/", b"{}", {})
        assert found == (None, "no answer within 0.2 s") and dripping.is_alive()
        stop.set()
        dripping.join()


def test_a_name_server_that_hangs_holds_up_a_delivery_for_its_time_and_few_threads(
    brief: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    answered, asked = Event(), list[str]()

    def hanging(host: str, *args: Any, **kw: Any) -> Any:
        asked.append(host)
        answered.wait(60)
        return [(socket.AF_INET, 1, 6, "", ("127.0.0.1", 1))]

    monkeypatch.setattr(socket, "getaddrinfo", hanging)
    monkeypatch.setattr(addresses, "lookups", BoundedSemaphore(2))
    for _ in range(3):
        assert addresses.post("https://slow.example/", b"{}", {}) == (None, "no answer within 0.2 s")
    assert len(asked) == 2
    answered.set()
    for thread in enumerate_threads():
        if thread.name == addresses.LOOKUP:
            thread.join()


def certificate(name: str, folder: Path) -> Path:
    """A self-signed certificate for a host, with its key, in one PEM file."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    begins = datetime.now(UTC) - timedelta(days=1)
    made = x509.CertificateBuilder(subject, subject, key.public_key(), 1, begins, begins + timedelta(days=9))
    made = made.add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
    made = made.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    pem = folder / f"{name}.pem"
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    pem.write_bytes(private + made.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM))
    return pem


def test_https_checks_the_certificate_for_the_name_of_the_url(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pem = certificate("hooks.example", tmp_path)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    Thread(target=server.serve_forever, daemon=True).start()
    port = server.server_address[1]
    found = [(socket.AF_INET, 1, 6, "", ("127.0.0.1", port))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *args, **kw: found)
    assert "certificate is not valid" in addresses.post(f"https://hooks.example:{port}/", b"{}", {})[1]
    monkeypatch.setenv("SSL_CERT_FILE", str(pem))
    assert addresses.post(f"https://hooks.example:{port}/x", b"{}", {}) == (204, "")
    assert Receiver.got[0][0]["host"] == f"hooks.example:{port}"
    assert "certificate is not valid" in addresses.post(f"https://other.example:{port}/", b"{}", {})[1]
    server.shutdown()


# --- REST and pages ---------------------------------------------------------------------------------------------


def bearer(scope: str = "admin", owner: Organisation | None = None) -> dict[str, str]:
    return {"Authorization": f"Bearer {tokens.make('ci', scope, organisation=owner)[0]}"}


def test_a_webhook_lives_over_rest(url: str, client: Client) -> None:
    headers, kind = bearer(), "application/json"
    asked = {"url": url, "events": ["advice.finished", "advice.finished"]}
    made = client.post("/api/v1/webhooks", asked, kind, headers=headers).json()
    path = f"/api/v1/webhooks/{made['id']}"
    assert made["secret"].startswith("whsec_") and made["events"] == ["advice.finished"]
    assert "secret" not in client.get(path, headers=headers).json()
    assert client.post(f"{path}/test", headers=headers).status_code == 202
    webhooks.send_due()
    assert is_signed(*Receiver.got[0], made["secret"]) and json.loads(Receiver.got[0][1])["type"] == "ping"
    log = client.get(f"{path}/deliveries?state=delivered", headers=headers).json()
    assert log["count"] == 1 and log["results"][0]["last_status"] == 204
    again = f"{path}/deliveries/{log['results'][0]['id']}/redeliver"
    assert [client.post(again, headers=headers).status_code for _ in range(2)] == [202, 409]
    assert client.post(f"{path}/rotate", headers=headers).json()["secret"] != made["secret"]
    changed = client.patch(path, {"disabled": True}, kind, headers=headers).json()
    assert changed["disabled_at"] and client.post(f"{path}/test", headers=headers).status_code == 409
    bad = client.patch(path, {"url": "https://10.0.0.1/"}, kind, headers=headers)
    assert bad.status_code == 422 and bad.json()["errors"][0]["field"] == "url"
    assert client.post("/api/v1/webhooks", {**asked, "events": ["x"]}, kind, headers=headers).status_code == 400
    for n in range(webhooks.endpoints.MOST):
        status = client.post("/api/v1/webhooks", {**asked, "url": f"{url}{n}"}, kind, headers=headers).status_code
    assert status == 409
    assert client.delete(path, headers=headers).status_code == 204
    said = list(AuditEvent.objects.filter(action__in=("webhook", "delete")).values_list("detail", flat=True))
    assert "new secret" in said and not any("whsec_" in each for each in said)
    whole = repr(list(AuditEvent.objects.values_list("what", "detail")))
    assert "http://127.0.0.1" in whole and "from=assay" not in whole and "/hook" not in whole


def test_only_administrators_of_the_organization_see_them(url: str, client: Client) -> None:
    row = hook(url)
    webhooks.ping(row)
    theirs = organisation("theirs")
    delivery = WebhookDelivery.objects.get().pk
    for path in ("", "/deliveries"):
        assert client.get(f"/api/v1/webhooks/{row.pk}{path}", headers=bearer("admin", theirs)).status_code == 404
        assert client.get(f"/api/v1/webhooks/{row.pk}{path}", headers=bearer("submit")).status_code == 403
    again = f"/api/v1/webhooks/{row.pk}/deliveries/{delivery}/redeliver"
    assert client.post(again, headers=bearer("admin", theirs)).status_code == 404
    finished()
    hook(url, owner=theirs)
    assert WebhookDelivery.objects.filter(endpoint__organisation=theirs).count() == 0


def test_the_pages_do_the_same(url: str, client: Client) -> None:
    client.force_login(member("ada", "admin"))
    assert "private" not in client.get("/webhooks").content.decode()
    refused = client.post("/webhooks", {"url": "https://192.168.1.1/", "events": ["price.moved"]})
    assert refused.status_code == 422 and "is not a public address" in refused.content.decode()
    made = client.post("/webhooks", {"url": url, "events": ["price.moved", "winner.changed"]}).content.decode()
    row = WebhookEndpoint.objects.get()
    assert webhooks.secret_of(row) in made and row.events == ["price.moved", "winner.changed"]
    path = f"/webhooks/{row.pk}"
    assert webhooks.secret_of(row) not in client.get(path).content.decode()
    client.post(path, {"do": "test"})
    webhooks.send_due()
    page = client.get(path).content.decode()
    delivery = WebhookDelivery.objects.get()
    assert delivery.event_id in page and "delivered" in page
    client.post(f"{path}/deliveries/{delivery.pk}")
    assert WebhookDelivery.objects.get().state == State.WAITING
    rotated = client.post(path, {"do": "rotate"}).content.decode()
    row.refresh_from_db()
    assert webhooks.secret_of(row) in rotated
    client.post(path, {"url": url, "events": ["price.moved"]})
    client.post(path, {"do": "switch"})
    row.refresh_from_db()
    assert row.events == ["price.moved"] and row.disabled_at
    assert client.post(path, {"do": "delete"}).status_code == 302 and not WebhookEndpoint.objects.exists()
    client.force_login(member("bob", "operator"))
    assert client.get("/webhooks").status_code == 403


# --- several at once --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("world", [pytest.param("postgres files", marks=pytest.mark.postgres)], indirect=True)
def test_no_two_that_touch_a_webhook_wait_for_each_other(world: World) -> None:
    """Sending, deleting, telling and sending again, each stopped before every statement while another runs."""
    world.extra["DJANGO_SETTINGS_MODULE"] = "advisor.settings"
    report = json.loads(world.python("-m", "tests.ops.webhook_locks").splitlines()[-1])
    assert report["errors"] == [] and report["pauses"] > 100
