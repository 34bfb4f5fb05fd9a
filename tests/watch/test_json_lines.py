"""With ASSAY_LOG_JSON, every line of the whole service is JSON, and lines of a request and of a job have their ids."""

import json
import os
import signal
import subprocess
import sys
import urllib.request
from http.cookies import SimpleCookie
from pathlib import Path
from typing import Any

import pytest

from advisor.ops.supervise import free_port
from tests import services
from tests.world import ROOT, World


def children(pid: int) -> dict[str, int]:
    found = {}
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        words = Path(f"/proc/{child}/cmdline").read_text().split("\0")
        found[next(word for word in words if word in ("gunicorn", "worker", "beat"))] = int(child)
    return found


def call(url: str, method: str = "GET", **headers: str) -> Any:
    request = urllib.request.Request(url, method=method, headers=headers)
    return urllib.request.urlopen(request, timeout=30)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("world", ["sqlite files"], indirect=True)
def test_every_line_of_the_service_is_json_and_carries_its_ids(world: World) -> None:
    world.extra |= {"ASSAY_LOG_JSON": "true", "ASSAY_LOG_LEVEL": "INFO", "PYTHONWARNINGS": "always"}
    world.extra |= {"DJANGO_SETTINGS_MODULE": "advisor.settings"}
    (first,) = world.ask()
    port, lines = free_port("127.0.0.1"), world.folder / "lines"
    base = f"http://127.0.0.1:{port}"
    with lines.open("wb") as out:
        up = subprocess.Popen(
            [sys.executable, "manage.py", "up", "--port", str(port)],
            cwd=ROOT, env=world.env, stdout=out, stderr=out, start_new_session=True,
        )  # fmt: skip
    world.processes.append(up)
    world.until(lambda: world.states() == ["failed"] and services.answers(port))
    with call(f"{base}/login", **{"X-Request-ID": "<script>"}) as page:
        assert page.headers["X-Request-ID"] not in ("", "<script>")
        cookie = SimpleCookie(page.headers["Set-Cookie"])["csrftoken"].value
    ids = {"Cookie": f"csrftoken={cookie}", "X-CSRFToken": cookie, "X-Request-ID": "ask-1"}
    with call(f"{base}/advice/{first}/rescore", "POST", **ids) as asked:
        assert asked.headers["X-Request-ID"] == "ask-1"  # of the page that it redirects to
    for _ in range(6):  # each of the two web processes answers some, with the counts of both
        with call(f"{base}/metrics") as scrape:
            assert b'assay_http_requests_total{method="GET",route="login",status="200"} 1.0' in scrape.read()
    os.kill(children(up.pid)["beat"], signal.SIGKILL)
    world.until(lambda: world.states() == ["failed"] * 2)
    world.until(lambda: b'"died"' in lines.read_bytes())
    up.terminate()
    up.wait()
    logged = [json.loads(line) for line in lines.read_text().splitlines() if line]
    assert all({"event", "level", "logger", "timestamp"} <= set(line) for line in logged)
    of_second = [line for line in logged if "advice" in line and line["advice"] != first]
    assert {"started", "calculation failed"} <= {line["event"] for line in of_second}
    assert all(line["request_id"] == "ask-1" and line["attempt"] == 1 for line in of_second)
    assert "Traceback" in next(line for line in of_second if line["event"] == "calculation failed")["exception"]
    requests = [line for line in logged if line["logger"] == "assay.http"]
    assert requests and all(line["request_id"] for line in requests)
    assert [line["route"] for line in requests if line["request_id"] == "ask-1"] == ["advice-rescore", "advice"]
    assert {"assay.http", "assay.leases", "assay.supervise"} <= {line["logger"] for line in logged}


def test_warnings_and_uncaught_exceptions_are_json_too(tmp_path: Path) -> None:
    code = (
        "import threading, warnings, django\ndjango.setup()\nwarnings.warn('old')\n"
        "t = threading.Thread(target=lambda: 1 / 0)\nt.start(); t.join()\nraise ValueError('two\\nlines')"
    )
    env = {**os.environ, "ASSAY_LOG_JSON": "true", "ASSAY_VAR": str(tmp_path / "var")}
    env |= {"DJANGO_SETTINGS_MODULE": "advisor.settings", "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], env=env, cwd=ROOT, capture_output=True, text=True)
    logged = [json.loads(line) for line in done.stderr.splitlines()]
    assert done.returncode == 1 and len(logged) == 3
    assert "old" in logged[0]["event"]
    assert "ZeroDivisionError" in logged[1]["exception"] and "two\nlines" in logged[2]["exception"]
