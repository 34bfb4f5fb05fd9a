"""Bundles that a server fetches by itself: from a URL with its ETag or the newest file of a folder, once each."""

import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from advisor import bundles, tasks
from catalog.bundles import BundleError, undo
from catalog.bundles.archive import new_key, pack
from catalog.details import freshness
from catalog.models import Accelerator, CatalogBundle
from catalog.pricing import download, sync
from tests.catalog.test_bundles import NOW
from tests.conftest import FROZEN

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("frozen")]
SECRET, PUBLIC = new_key()
PATH = "accelerators/a30.yaml"


def made(day: int, secret: str = SECRET) -> bytes:
    text = (FROZEN / PATH).read_text().replace("release_year: 2021", f"release_year: {2010 + day}")
    return pack({f"catalog/{PATH}": text.encode()}, {}, NOW + timedelta(days=day), secret)


class Bundles(BaseHTTPRequestHandler):
    """Serves `body`; 304 for the ETag of what it serves."""

    body = b""
    served: list[int] = []

    def do_GET(self) -> None:
        etag = f'"{hash(self.body)}"'
        status = 304 if self.headers.get("If-None-Match") == etag else 200
        self.served.append(status)
        self.send_response(status)
        self.send_header("ETag", etag)
        self.send_header("Content-Length", str(len(self.body) if status == 200 else 0))
        self.end_headers()
        self.wfile.write(self.body if status == 200 else b"")

    def log_message(self, *args: Any) -> None:
        pass


@pytest.fixture
def address(settings: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setattr(download, "BACKOFF_S", 0.0)
    monkeypatch.setattr(download, "JITTER_S", 0.0)
    settings.BUNDLE_KEYS = [PUBLIC]
    Bundles.served = []
    httpd = ThreadingHTTPServer(("127.0.0.1", 0), Bundles)
    Thread(target=httpd.serve_forever, daemon=True).start()
    settings.BUNDLE_URL = f"http://127.0.0.1:{httpd.server_address[1]}/newest.bundle"
    yield settings.BUNDLE_URL
    httpd.shutdown()


def year() -> int | None:
    return Accelerator.objects.get(slug="a30").release_year


def test_each_bundle_at_a_url_is_applied_once_and_not_again_after_it_was_undone(address: str) -> None:
    Bundles.body = made(1)
    tasks.apply_bundle()
    assert year() == 2011
    undo("me")
    before = year()
    tasks.apply_bundle()
    assert (year(), Bundles.served) == (before, [200, 304])
    Bundles.body = made(2)
    tasks.apply_bundle()
    assert year() == 2012 and CatalogBundle.objects.count() == 2


def test_what_is_refused_changes_nothing_and_is_shown_until_one_is_applied(address: str, capsys: Any) -> None:
    Bundles.body = made(1, new_key()[0])
    before = year()
    with pytest.raises(BundleError):
        tasks.apply_bundle()
    assert year() == before and "not in ASSAY_BUNDLE_KEYS" in freshness.found()["bundle"]["error"]
    call_command("status")
    assert "the last scheduled bundle was not applied" in capsys.readouterr().out
    Bundles.body = made(1)
    tasks.apply_bundle()
    assert freshness.found()["bundle"]["error"] == ""


def test_an_address_that_does_not_answer_is_named(address: str) -> None:
    gone = address.replace("http://127.0.0.1", "http://127.0.0.2")
    with pytest.raises(CommandError, match="127.0.0.2"):
        call_command("prices", "sync", "--bundle", gone)
    assert "127.0.0.2" in freshness.found()["bundle"]["error"]


def test_of_a_folder_the_newest_file_counts(tmp_path: Path, settings: Any, capsys: Any) -> None:
    settings.BUNDLE_KEYS = [PUBLIC]
    assert bundles.refresh_from(str(tmp_path), "me") is None
    (tmp_path / "one.bundle").write_bytes(made(1))
    assert bundles.refresh_from(str(tmp_path), "me") is not None and year() == 2011
    call_command("prices", "sync", "--bundle", tmp_path)
    assert "nothing new" in capsys.readouterr().out
    (tmp_path / "two.bundle").write_bytes(made(2))
    assert bundles.refresh_from(str(tmp_path), "me") is not None and year() == 2012


def test_only_one_run_at_a_time(tmp_path: Path, settings: Any) -> None:
    settings.BUNDLE_KEYS = [PUBLIC]
    (tmp_path / "one.bundle").write_bytes(made(1))
    with sync.only_one("another") as row:
        with pytest.raises(sync.AlreadyRunning):
            bundles.refresh_from(str(tmp_path), "me")
        sync.finish(row, "done")
    assert not CatalogBundle.objects.exists()
    assert bundles.refresh_from(str(tmp_path), "me") is not None  # it was not noted as read


@pytest.mark.parametrize("on", [False, True])
def test_nothing_is_fetched_until_an_address_is_set(on: bool) -> None:
    said = subprocess.run(
        [sys.executable, "-c", "from advisor import settings; print(sorted(settings.CELERY_BEAT_SCHEDULE))"],
        env=os.environ | ({"ASSAY_BUNDLE_URL": "/bundles"} if on else {}), capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    assert ("catalog" in said) is on and "prices" not in said
