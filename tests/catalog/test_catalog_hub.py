"""The Hugging Face Hub is contacted only where that is enabled, at one host; an ID is never a path."""

import builtins
import io
import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.test import Client

from catalog.importers.models import hub
from catalog.loading.fixtures import FixtureError
from catalog.models import ServedModel
from tests.engine.hf_configs import CONFIGS

pytestmark = pytest.mark.django_db
LLAMA = CONFIGS["meta-llama/Llama-3.1-8B"]
PAGE = "/catalog/models/import"
PATHS = [
    "/etc/passwd", "../../etc/passwd", "a/../../etc/passwd", "owner/..", "../name", "owner/.hidden", ".owner/name",
    "owner/name/more", "owner/na..me", "owner//name", "owner/name\n", "owner/na me", "file:///etc/passwd",
    "https://evil.example/x", "owner/name?x=1", "owner/name#x", "owner/%2e%2e", "öwner/name", "owner", "/name",
    "owner/",
]  # fmt: skip


class Hub(ThreadingHTTPServer):
    """Answers each path from `answers`: (status, headers, body); `asked` keeps the paths."""

    daemon_threads = True
    block_on_close = False

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answers: dict[str, tuple[int, dict[str, str], bytes]] = {}
        self.asked: list[str] = []
        self.stuck = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    server: Hub

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        if "stuck" in self.path:
            self.server.stuck.wait(30)
        status, headers, body = self.server.answers.get(self.path, (404, {}, b""))
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def server(settings: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    found = Hub()
    thread = threading.Thread(target=found.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    settings.HUB_URL = found.url
    yield found
    found.stuck.set()
    found.shutdown()
    thread.join()
    found.server_close()


def put(server: Hub, hub_id: str, body: bytes, status: int = 200, **headers: str) -> str:
    path = f"/{hub_id}/resolve/main/config.json"
    server.answers[path] = (status, headers, body)
    return path


# --- what is not an ID ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("hub_id", PATHS)
def test_what_is_not_owner_and_name_is_refused_before_anything_is_read(server: Hub, hub_id: str) -> None:
    with pytest.raises(FixtureError, match="owner/name"):
        hub.config_json(hub_id)
    assert server.asked == []


@pytest.mark.parametrize("enabled", [False, True])
def test_the_import_page_does_not_read_or_reveal_local_files(
    client: Client, tmp_path: Path, settings: Any, enabled: bool
) -> None:
    settings.HUB_URL = "https://hub.invalid" if enabled else ""
    there = tmp_path / "secret.json"
    there.write_text(json.dumps(LLAMA | {"model_type": "s3cret"}))
    said = []
    for path in (there, tmp_path / "absent.json", tmp_path):
        answer = client.post(PAGE, {"hf_id": str(path)})
        assert answer.status_code == 422
        text = answer.content.decode()
        assert "s3cret" not in text
        said.append("Enter owner/name" in text if enabled else hub.DISABLED in text)
    assert said == [True] * 3  # the same answer whether or not the file exists


def test_an_id_that_is_also_a_file_beside_the_server_is_not_read(
    client: Client, tmp_path: Path, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "fixtures").mkdir()
    (tmp_path / "fixtures" / "config.json").write_text(json.dumps(LLAMA))
    answer = client.post(PAGE, {"hf_id": "fixtures/config.json"})
    assert answer.status_code == 422 and "8,030,261,248" not in answer.content.decode()


@pytest.mark.parametrize(
    "changes",
    [
        {"model": {"config": "PATH"}},
        {"traffic": {"input_tokens": {"trace": "PATH"}, "output_tokens": 5, "requests_per_s": 1}},
        {"traffic": {"trace": "PATH"}},
        {"kind": "portfolio", "workloads": ["PATH"], "model": None, "traffic": None},
    ],
    ids=["config", "lengths", "trace", "portfolio"],
)
@pytest.mark.parametrize("how", ["json", "yaml", "form"])
def test_no_file_that_a_question_names_is_opened(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], how: str
) -> None:
    there, opened, usual = tmp_path / "there.json", list[str](), io.open
    there.write_text(json.dumps(LLAMA))

    def seen(file: Any, *given: Any, **named: Any) -> Any:
        opened.append(str(file))
        return usual(file, *given, **named)

    monkeypatch.setattr(io, "open", seen)  # what pathlib calls
    monkeypatch.setattr(builtins, "open", seen)
    traffic = {"input_tokens": 5, "output_tokens": 5, "requests_per_s": 1}
    asked = {"name": "n", "model": "acme/m", "traffic": traffic, **changes}
    text = json.dumps({k: v for k, v in asked.items() if v is not None}).replace("PATH", str(there))
    if how == "form":
        answer = client.post("/", {"yaml": text})
    else:
        answer = client.generic("POST", "/api/v1/advice", text, f"application/{how}")
    assert answer.status_code == 422 and "file paths are not accepted here" in answer.content.decode()
    assert str(there) not in opened


def test_an_estimate_does_not_open_the_file_that_it_names(client: Client) -> None:
    fixed = {"model": {"config": "/etc/passwd"}, "accelerator": "h100-sxm", "weights": "fp8", "isl": 1, "osl": 1}
    answer = client.post("/api/v1/estimate", fixed, content_type="application/json")
    assert answer.status_code == 422 and "file paths are not accepted here" in answer.content.decode()


def test_the_engine_does_not_open_a_path_that_reached_a_stored_question() -> None:
    from advisor.inputs.from_catalog import model_row
    from advisor.workload.text import WorkloadError

    with pytest.raises(WorkloadError, match="file paths are not accepted here"):
        model_row({"config": "/etc/passwd"})


# --- whether and where the hub is contacted ---------------------------------------------------------------------


def test_without_the_setting_no_hub_is_contacted_and_the_page_says_what_to_do(server: Hub, settings: Any) -> None:
    settings.HUB_URL = ""
    answer = Client().post(PAGE, {"hf_id": "acme/model"})
    assert answer.status_code == 422 and hub.DISABLED in answer.content.decode()
    assert hub.DISABLED in Client().get(PAGE).content.decode()
    with pytest.raises(CommandError, match="give the path of a config.json, or set ASSAY_HUB_URL"):
        call_command("import_model", "acme/model")
    assert server.asked == []


def test_with_the_setting_page_and_command_read_the_id(server: Hub, client: Client) -> None:
    path = put(server, "acme/Llama-X.1", json.dumps(LLAMA).encode())
    assert "8,030,261,248" in client.post(PAGE, {"hf_id": "acme/Llama-X.1"}).content.decode()
    out = StringIO()
    call_command("import_model", "acme/Llama-X.1", stdout=out)
    assert out.getvalue().startswith("acme-llama-x-1: created")
    beside = path.replace("config.json", "hf_quant_config.json")  # no quantization is in config.json itself
    assert server.asked == [path, beside] * 2
    assert ServedModel.objects.get().sources["shape"]["source"] == server.url + path


@pytest.mark.parametrize(
    "url",
    [
        "http://huggingface.co",
        "ftp://127.0.0.1",
        "file:///etc",
        "huggingface.co",
        "https://a@b",
        "https://",
        "https://h/?q",
    ],
)
def test_only_an_https_address_may_be_the_hub(settings: Any, url: str) -> None:
    settings.HUB_URL = url
    with pytest.raises(FixtureError, match="ASSAY_HUB_URL must be an https URL"):
        hub.config_json("acme/model")


# --- what the hub answers ---------------------------------------------------------------------------------------


def test_a_redirect_on_the_same_host_is_followed_and_one_elsewhere_is_not(server: Hub) -> None:
    elsewhere = Hub()
    threading.Thread(target=elsewhere.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    there = put(server, "acme/new", b'{"a": 1}')
    put(server, "acme/old", b"", 307, Location=there)
    assert hub.config_json("acme/old")[0] == '{"a": 1}'
    for target in (elsewhere.url + there, "file:///etc/passwd", server.url.replace("127.0.0.1", "localhost") + there):
        put(server, "acme/away", b"", 302, Location=target)
        with pytest.raises(FixtureError, match="redirected to another host|HTTP 302"):
            hub.config_json("acme/away")
    elsewhere.shutdown()
    elsewhere.server_close()
    assert elsewhere.asked == []


def test_endless_redirects_end(server: Hub) -> None:
    put(server, "acme/loop", b"", 302, Location="/acme/loop/resolve/main/config.json")
    with pytest.raises(FixtureError, match="HTTP 302"):
        hub.config_json("acme/loop")
    assert len(server.asked) <= hub.MAX_REDIRECTS + 1


def test_no_more_than_the_limit_is_read_of_an_answer(server: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "MAX_BYTES", 1000)
    put(server, "acme/fits", b" " * 1000)
    put(server, "acme/large", b" " * 1001)
    put(server, "acme/huge", b" " * 1001, **{"Content-Length": str(10**12)})
    assert len(hub.config_json("acme/fits")[0]) == 1000
    for name in ("acme/large", "acme/huge"):
        with pytest.raises(FixtureError, match="larger than 1,000 bytes"):
            hub.config_json(name)


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (401, b"", "requires a login"),
        (404, b"", "no such model"),
        (500, b"", "HTTP 500"),
        (200, b"\xff\xfe", "not UTF-8"),
    ],
)
def test_what_the_hub_refuses_is_explained(server: Hub, status: int, body: bytes, said: str) -> None:
    put(server, "acme/model", body, status)
    with pytest.raises(FixtureError, match=said):
        hub.config_json("acme/model")


def test_a_hub_that_is_away_says_what_to_do(settings: Any) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as gone:
        settings.HUB_URL = f"http://127.0.0.1:{gone.server_port}"
    with pytest.raises(FixtureError, match="could not be read: .* Download config.json"):
        hub.config_json("acme/model")


def test_a_stuck_hub_is_given_up_and_holds_only_two_threads(server: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "TOTAL_TIMEOUT_S", 0.05)
    for _ in range(2):
        with pytest.raises(FixtureError, match="did not answer within"):
            hub.config_json("acme/stuck")
    with pytest.raises(FixtureError, match="try again in a few seconds"):
        hub.config_json("acme/stuck")
    server.stuck.set()
    while hub.downloads._value < 2:  # both threads end
        time.sleep(0.01)


# --- files ------------------------------------------------------------------------------------------------------


def test_an_upload_or_a_file_beyond_the_limit_is_refused(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from django.core.files.uploadedfile import SimpleUploadedFile

    monkeypatch.setattr(hub, "MAX_BYTES", 1000)
    answer = client.post(PAGE, {"upload": SimpleUploadedFile("config.json", b" " * 1001)})
    assert answer.status_code == 422 and "larger than 1,000 bytes" in answer.content.decode()
    large = tmp_path / "config.json"
    large.write_bytes(b" " * 1001)
    with pytest.raises(CommandError, match="larger than 1,000 bytes"):
        call_command("import_model", str(large), "--slug", "x")


def test_a_workload_file_beyond_the_limit_is_refused_by_the_command_line(tmp_path: Path) -> None:
    from advisor.management.commands.advise import BadFile, read

    large = tmp_path / "workload.yaml"
    large.write_bytes(b" " * 1_000_001)
    with pytest.raises(BadFile, match="larger than 1,000,000 bytes"):
        read(large, "workload file")
