"""Spans reach the collector that the environment names; without the packages, the error says what to do."""

import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from tests.world import ROOT

USE = """
import advisor.wsgi
from django.conf import settings
from django.test import Client
from opentelemetry import trace
from advisor.watch import tracing
settings.ALLOWED_HOSTS = ["testserver"]
assert Client().get("/login").status_code == 200
with tracing.span("answer", advice="a1", attempt=1): pass
trace.get_tracer_provider().shutdown()
"""
LACKING = "import sys; sys.modules['opentelemetry.sdk'] = None\nimport advisor.wsgi"


def python(code: str, folder: Path, endpoint: str) -> "subprocess.CompletedProcess[str]":
    env = {**os.environ, "ASSAY_VAR": str(folder / "var"), "DJANGO_SETTINGS_MODULE": "advisor.settings"}
    env |= {"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint, "NO_PROXY": "127.0.0.1", "PYTHONPATH": str(ROOT)}
    return subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=env, capture_output=True, text=True)


def test_spans_of_requests_and_calculations_are_sent(tmp_path: Path, migrated: Path) -> None:
    pytest.importorskip("opentelemetry.sdk", reason="the extra `otel` is not installed")
    received: list[tuple[str, bytes]] = []

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            received.append((self.path, self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *given: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Collector)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    (tmp_path / "var").mkdir()
    (tmp_path / "var" / "assay.sqlite3").write_bytes(migrated.read_bytes())
    done = python(USE, tmp_path, f"http://127.0.0.1:{server.server_port}")
    server.shutdown()
    assert done.returncode == 0, done.stderr
    sent = b"".join(body for path, body in received if path == "/v1/traces")
    assert b"GET login" in sent and b"answer" in sent and b"a1" in sent and b"assay" in sent


def test_missing_packages_are_a_clear_error_only_if_an_endpoint_is_set(tmp_path: Path) -> None:
    refused = python(LACKING, tmp_path, "http://127.0.0.1:9")
    assert refused.returncode == 1
    assert "pip install 'assay[otel]', or unset it" in refused.stderr
    assert python(LACKING, tmp_path, "").returncode == 0
