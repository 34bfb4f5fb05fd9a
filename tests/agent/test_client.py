"""Every answer that a server, a proxy or an impostor can give ends in one of the client's own words."""

import pytest

from probes.agent.server import client
from tests.agent.fake_server import JOB, TOKEN, FakeServer, Reply

CAPABILITIES = {"backend": "cpu", "kinds": ["gemm"], "device": {}}


def server(fake: FakeServer) -> client.Server:
    return client.Server(fake.url, TOKEN)


def lease(fake: FakeServer) -> client.Job | float:
    return client.lease(server(fake), CAPABILITIES)[0]


def test_every_request_names_protocol_version_and_token(fake: FakeServer) -> None:
    lease(fake)
    headers = {name.lower(): value for name, value in fake.seen[0].headers.items()}
    assert (headers["agent-protocol"], headers["authorization"]) == ("2", f"Bearer {TOKEN}")
    assert headers["user-agent"].startswith("assay-agent/")


def test_a_job_comes_as_it_was_leased(fake: FakeServer) -> None:
    job = lease(fake)
    assert isinstance(job, client.Job)
    assert (job.job_id, job.attempt, job.spec, job.heartbeat_s) == (JOB["job_id"], 1, JOB["spec"], 0.05)


def test_nothing_to_do_gives_the_servers_pace(fake: FakeServer) -> None:
    fake.replies["lease"] = [Reply(204, headers={"Retry-After": "7"})]
    assert lease(fake) == 7.0


@pytest.mark.parametrize(
    "change",
    [
        {"job_id": "../../etc/passwd"},
        {"job_id": "a/b"},
        {"job_id": ""},
        {"job_id": "x" * 65},
        {"attempt": "one"},
        {"attempt": None},
        {"deadline_s": float("nan")},
        {"spec": ...},
        {"nonce": ...},
        {"nonce": "../x"},
    ],
)
def test_a_job_that_cannot_be_read_is_asked_for_again(fake: FakeServer, change: dict[str, object]) -> None:
    body = {name: value for name, value in {**JOB, **change}.items() if value is not ...}
    fake.replies["lease"] = [Reply(body=body)]
    with pytest.raises(client.Unreachable, match="cannot be read"):
        lease(fake)


@pytest.mark.parametrize(("given", "kept"), [(1e-9, 0.05), (1e9, 60.0)])
def test_the_servers_pace_counts_within_bounds(fake: FakeServer, given: float, kept: float) -> None:
    fake.replies["lease"] = [Reply(body={**JOB, "heartbeat_s": given})]
    job = lease(fake)
    assert isinstance(job, client.Job) and job.heartbeat_s == kept


@pytest.mark.parametrize(
    ("status", "expected", "words"),
    [
        (400, client.Refused, "refused: no"),
        (401, client.Unauthorised, "does not accept this token"),
        (404, client.Gone, "refused"),
        (409, client.Gone, "refused"),
        (422, client.Refused, "refused"),
        (426, client.Refused, "Update agent.pyz"),
        (429, client.Unreachable, "asks to retry later"),
        (500, client.Unreachable, "asks to retry later"),
        (503, client.Unreachable, "asks to retry later"),
    ],
)
def test_each_status_has_one_meaning(fake: FakeServer, status: int, expected: type[Exception], words: str) -> None:
    fake.replies["lease"] = [Reply(status, {"detail": "no"})]
    with pytest.raises(expected, match=words) as caught:
        lease(fake)
    assert type(caught.value) is expected


@pytest.mark.parametrize("status", [429, 503])
def test_retry_after_is_passed_on(fake: FakeServer, status: int) -> None:
    fake.replies["lease"] = [Reply(status, headers={"Retry-After": "12"})]
    with pytest.raises(client.Unreachable) as caught:
        lease(fake)
    assert caught.value.retry_after_s == 12.0


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("5", 5.0), ("1e9", 3600.0), ("-3", 0.0), ("nan", None), ("Wed, 21 Oct 2026 07:28:00 GMT", None), (None, None)],
)
def test_retry_after_of_every_form(text: str | None, seconds: float | None) -> None:
    assert client.seconds(text) == seconds


@pytest.mark.parametrize("raw", [b"<html>", b"\xff", b"[1]", b"[" * 100_000, b'{"a": "' + b"x" * (1 << 20) + b'"}'])
def test_an_answer_that_is_no_object_of_bounded_size_counts_as_none(fake: FakeServer, raw: bytes) -> None:
    fake.replies["lease"] = [Reply(raw=raw)]
    with pytest.raises(client.Unreachable):
        lease(fake)


def test_a_redirect_is_refused_and_not_followed(fake: FakeServer) -> None:
    fake.replies["lease"] = [Reply(307, headers={"Location": f"{fake.url}/api/agent/v1/register"})]
    with pytest.raises(client.Refused, match="redirects"):
        lease(fake)
    assert fake.counts() == {"lease": 1}


def test_a_cut_connection_is_no_answer(fake: FakeServer) -> None:
    fake.replies["result"] = [Reply(cut=100)]
    with pytest.raises(client.Unreachable) as caught:
        client.put_result(server(fake), "1", 1, b"x" * (3 << 20), "v1=00")
    assert not caught.value.answered


def test_nobody_there_is_no_answer(fake: FakeServer) -> None:
    fake.stop()
    try:
        with pytest.raises(client.Unreachable, match="does not answer"):
            lease(fake)
    finally:
        fake.start()


@pytest.mark.parametrize(
    "url", ["http://example.org", "ftp://host", "host:8000", "https://", "https://u:p@host", "https://h/?q"]
)
def test_an_address_that_is_not_safe_is_refused(url: str) -> None:
    with pytest.raises(client.Refused):
        client.checked_url(url)


@pytest.mark.parametrize(
    "url", ["https://example.org/", "http://127.0.0.1:8000", "http://localhost", "http://[::1]:8000"]
)
def test_https_and_this_machine_are_safe(url: str) -> None:
    assert client.checked_url(url) == url.rstrip("/")


def test_http_elsewhere_needs_a_word_from_the_operator() -> None:
    assert client.checked_url("http://example.org", allow_http=True) == "http://example.org"


def test_certificates_are_verified() -> None:
    import ssl
    import urllib.request

    handlers = [
        one for one in client.opener("https://example.org").handlers if isinstance(one, urllib.request.HTTPSHandler)
    ]
    (context,) = [one._context for one in handlers]  # type: ignore[attr-defined]
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)


def test_a_server_without_tls_behind_https_is_not_trusted(fake: FakeServer) -> None:
    with pytest.raises(client.Unreachable):
        client.lease(client.Server(fake.url.replace("http://", "https://"), TOKEN), CAPABILITIES)
    assert fake.seen == []


def test_the_environments_proxy_is_used_but_not_for_this_machine(
    fake: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    assert isinstance(lease(fake), client.Job)
    with pytest.raises(client.Unreachable):
        client.lease(client.Server("http://assay.invalid", TOKEN), CAPABILITIES)


@pytest.mark.parametrize("token", [None, "", "x", "agt_\n", 5])
def test_a_registration_without_a_usable_token_is_refused(fake: FakeServer, token: object) -> None:
    fake.replies["register"] = [Reply(201, {"agent_id": 1, "token": token, "signing_key": "ab" * 32})]
    with pytest.raises(client.Refused, match="no agent token"):
        client.register(client.Server(fake.url), "aet_x", "install", "name", {}, {})


@pytest.mark.parametrize("key", [None, "", "ab", "x" * 64, 5])
def test_a_registration_without_a_usable_key_is_refused(fake: FakeServer, key: object) -> None:
    fake.replies["register"] = [Reply(201, {"agent_id": 1, "token": TOKEN, "signing_key": key})]
    with pytest.raises(client.Refused, match="no signing key"):
        client.register(client.Server(fake.url), "aet_x", "install", "name", {}, {})


@pytest.mark.parametrize(("answer", "go_on"), [({"continue": True}, True), ({"continue": False}, False), ({}, True)])
def test_only_a_plain_no_stops_a_run(fake: FakeServer, answer: dict[str, bool], go_on: bool) -> None:
    fake.replies["heartbeat"] = [Reply(body=answer)]
    job = lease(fake)
    assert isinstance(job, client.Job)
    assert client.heartbeat(server(fake), job, "gemm", 1, 2) is go_on
    assert fake.of("heartbeat")[0].body == {"attempt": 1, "stage": "gemm", "done": 1, "total": 2}
