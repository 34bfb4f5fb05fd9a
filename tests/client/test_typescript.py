"""The TypeScript client: a program that uses it is compiled by tsc and run by Node.js against servers."""

import json
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command

from advisor.models import Advice
from tests.client import build
from tests.conftest import FOUND
from tests.docs import FENCE

# not the mark `node`: a machine may have Node.js and reach no registry of packages
pytestmark = [pytest.mark.django_db, pytest.mark.skipif(not FOUND["node"], reason="node not found")]
PAUSE_S = 1
BAD_MODEL = "const wrong: Workload = { name: 'x', traffic: { input_tokens: 'many' } };"


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package that `make clients` builds, without building the Python one."""
    folder = tmp_path_factory.mktemp("typescript")
    call_command("spectacular", "--file", str(folder / "openapi.yaml"))
    try:
        build.typescript(folder / "openapi.yaml", folder / "assay-client")
    except subprocess.CalledProcessError as error:
        if error.cmd[:2] == ["npm", "ci"]:
            pytest.skip("npm cannot install the packages of the TypeScript client here")
        raise
    return folder / "assay-client"


@pytest.fixture(scope="module")
def program(package: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of a program that installed the package."""
    folder = tmp_path_factory.mktemp("program")
    (folder / "node_modules").mkdir()
    (folder / "node_modules" / "assay-client").symlink_to(package)
    (folder / "package.json").write_text('{"type": "module"}')
    shutil.copy(Path(__file__).with_name("consumer.ts"), folder)
    return folder


def compiled(program: Path, package: Path, file: str) -> subprocess.CompletedProcess[str]:
    options = ("--strict", "--target", "es2022", "--module", "nodenext", "--lib", "es2022,dom")
    command = [package / "node_modules/.bin/tsc", *options, file]
    return subprocess.run(command, cwd=program, capture_output=True, text=True)


class Busy(BaseHTTPRequestHandler):
    """Refuses the first of two equal calls with 429; some paths answer as proxies and failed advice do."""

    seen: list[tuple[str, float]]
    ADVICE = {"state": "running", "error": "", "result": None}
    PAGES = {
        "/api/v1/advice/a-page": (200, "application/json", b"<html>Sign in</html>"),
        "/api/v1/advice/a-gateway": (502, "text/html", b"<html>Bad gateway</html>"),
        "/api/v1/advice/late": (200, "application/json", json.dumps(ADVICE).encode()),
        "/api/v1/advice/failed": (
            200,
            "application/json",
            json.dumps(ADVICE | {"state": "failed", "error": "Lost."}).encode(),
        ),
    }

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        self.reply(*self.PAGES[path])

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.seen.append((self.path, time.monotonic()))
        if len(self.seen) != 2:
            said = json.dumps({"detail": "Too many calls.", "errors": []}).encode()
            self.reply(429, "application/problem+json", said)
        else:
            self.reply(200, "application/json", b'{"fits": true}')

    def reply(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        for name, value in (("Content-Type", kind), ("Content-Length", len(body)), ("Retry-After", PAUSE_S)):
            self.send_header(name, str(value))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *given: Any) -> None:
        pass


@pytest.fixture(scope="module")
def busy() -> Iterator[str]:
    Busy.seen = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), Busy)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


@pytest.fixture(scope="module")
def found(program: Path, package: Path, server: str, token: str, busy: str) -> dict[str, Any]:
    """What the program printed."""
    done = compiled(program, package, "consumer.ts")
    assert done.returncode == 0, done.stdout
    command = ["node", "consumer.js", server, token, busy, "http://127.0.0.1:9"]
    ran = subprocess.run(command, cwd=program, capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stderr
    printed: dict[str, Any] = json.loads(ran.stdout)
    return printed


def test_a_workload_is_submitted_polled_and_read_with_its_types(found: dict[str, Any]) -> None:
    advice = Advice.objects.get(pk=found["id"])
    best = advice.answer["recommendations"][0]
    assert advice.state == "done" and found["sameId"] == found["id"]
    assert found["verdict"] == advice.answer["verdict"]
    assert found["best"] == {
        "accelerator": "l40s",
        "usd": best["usd_per_month"],
        "weightsGib": best["memory"]["weights_gib"],
    }
    assert found["fits"] is True and found["slugs"] == ["l40s"]


def test_refusals_name_the_status_and_the_keys(found: dict[str, Any]) -> None:
    assert found["invalid"]["status"] == 422
    assert "traffic.input_tokens.mean" in {each["field"] for each in found["invalid"]["errors"]}
    assert "traffic.input_tokens.mean: " in found["invalid"]["said"]
    assert found["unknown"]["status"] == 404 and found["token"]["status"] == 401


def test_it_waits_as_long_as_a_busy_server_says(found: dict[str, Any]) -> None:
    assert found["afterPause"] is True
    (_, refused), (_, repeated), _ = Busy.seen
    assert repeated - refused >= PAUSE_S
    assert found["impatient"] == {"status": 429, "errors": [], "said": "Too many calls."}


def test_what_is_no_answer_is_said(found: dict[str, Any]) -> None:
    assert "not JSON" in found["page"]["said"]
    assert found["gateway"]["status"] == 502 and "answered 502" in found["gateway"]["said"]
    assert "not finished after 0 seconds" in found["late"]["said"]
    assert found["failed"]["said"] == "Advice failed is failed. Lost."
    assert "http://127.0.0.1:9 does not answer" in found["gone"]["said"]
    assert "https://assay.example" in found["address"]["said"]


def test_the_program_of_the_page(program: Path, package: Path, server: str, token: str, found: dict[str, Any]) -> None:
    page = (build.ROOT / "docs" / "reference" / "api.md").read_text()
    [block] = [body for kind, body in FENCE.findall(page) if kind == "ts"]
    consumer = (program / "consumer.ts").read_text()
    workload = consumer[consumer.index("const chat: Workload") : consumer.index("async function")].replace(
        "chat", "workload", 1
    )
    declared = 'import type { Workload } from "assay-client";\ndeclare const process: any;\n'
    (program / "page.ts").write_text(declared + workload + block)
    done = compiled(program, package, "page.ts")
    assert done.returncode == 0, done.stdout
    env = {**os.environ, "ASSAY_URL": server, "ASSAY_TOKEN": token}
    ran = subprocess.run(["node", "page.js"], cwd=program, env=env, capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0 and ran.stdout.startswith(found["verdict"]), ran.stderr
    assert float(ran.stdout.split()[-2]) == pytest.approx(found["best"]["usd"])


def test_a_wrong_type_does_not_compile(program: Path, package: Path) -> None:
    (program / "wrong.ts").write_text(f'import type {{ Workload }} from "assay-client";\n{BAD_MODEL}\n')
    done = compiled(program, package, "wrong.ts")
    assert done.returncode and "Type 'string' is not assignable to type 'number" in done.stdout
