"""/healthz says that the process lives; /readyz and `manage.py doctor` say whether it can work, check by check."""

from datetime import timedelta
from typing import Any

import pytest
from django.core.management import call_command
from django.db import OperationalError
from django.db.migrations.recorder import MigrationRecorder
from django.test import Client
from django.utils import timezone

from advisor.models import Duty
from advisor.ops import health
from catalog.loading import load
from catalog.models import Accelerator, CatalogLoad

NAMES = {"database", "migrations", "catalog", "broker", "disk", "sweep"}
POD = "10.244.3.17:8000"


@pytest.fixture
def ready(db: None) -> None:
    CatalogLoad.objects.create(version=load.shipped_version())
    Duty.objects.create(name="swept", last_run_at=timezone.now())


def checks(client: Client, status: int) -> dict[str, Any]:
    response = client.get("/readyz", HTTP_HOST=POD)
    assert response.status_code == status, response.json()
    found = response.json()
    assert set(found["checks"]) == NAMES and all(check["detail"] for check in found["checks"].values())
    assert found["status"] == ("ready" if status == 200 else "unavailable")
    assert ("Retry-After" in response) == ("reason" in found) == (status == 503)
    return dict(found["checks"])


def failing(found: dict[str, Any]) -> set[str]:
    return {name for name, check in found.items() if not check["ok"]}


def test_liveness_needs_no_known_host_no_tls_and_no_database(settings: Any) -> None:
    settings.SECURE_SSL_REDIRECT = settings.SESSION_COOKIE_SECURE = True
    response = Client().get("/healthz", HTTP_HOST=POD)  # without the db fixture, a query is an error
    assert (response.status_code, response.json()) == (200, {"status": "ok"})
    assert Client().head("/healthz", HTTP_HOST="any name at all").status_code == 200


def test_readiness_needs_no_known_host_and_no_tls(settings: Any, ready: None) -> None:
    settings.SECURE_SSL_REDIRECT = True
    assert failing(checks(Client(), 200)) == set()


def test_a_database_that_does_not_answer_is_not_ready(client: Client, ready: None, monkeypatch: Any) -> None:
    def refused() -> None:
        raise OperationalError("could not connect to db.internal as assay")

    with monkeypatch.context() as away:
        away.setattr(health.connection, "cursor", refused)
        away.setattr(health.connection, "close", lambda: None)
        found = checks(client, 503)
    assert failing(found) == {"database", "migrations", "catalog", "sweep"}
    assert "db.internal" not in str(found)


def test_an_unapplied_migration_is_not_ready(client: Client, ready: None) -> None:
    MigrationRecorder.Migration.objects.filter(app="advisor").order_by("-id").first().delete()  # type: ignore[union-attr]
    found = checks(client, 503)
    assert failing(found) == {"migrations"} and "manage.py migrate" in found["migrations"]["detail"]


def test_an_empty_catalog_is_not_ready(client: Client, ready: None) -> None:
    CatalogLoad.objects.all().delete()
    assert failing(checks(client, 503)) == {"catalog"}


def test_a_catalog_of_an_earlier_version_is_not_ready_until_that_of_the_code_is_loaded(
    client: Client, ready: None
) -> None:
    CatalogLoad.objects.update(version="1" * 64)
    found = checks(client, 503)
    assert failing(found) == {"catalog"} and "manage.py load_catalog" in found["catalog"]["detail"]
    CatalogLoad.objects.create(version=load.shipped_version())
    assert failing(checks(client, 200)) == set()


@pytest.mark.parametrize("origin", ["", "bundle", "directory"])
def test_what_was_loaded_after_the_catalog_of_the_code_is_not_older(client: Client, ready: None, origin: str) -> None:
    CatalogLoad.objects.create(version="2" * 64, origin=origin)
    assert failing(checks(client, 200)) == set()


def test_a_bundle_is_older_only_if_its_files_are(client: Client, ready: None) -> None:
    """The code's own catalog was never loaded: the code was upgraded after the bundle was applied."""
    CatalogLoad.objects.update(version="2" * 64, origin=CatalogLoad.Origin.BUNDLE)
    assert failing(checks(client, 503)) == {"catalog"}
    day = load.newest_shipped() - timedelta(days=1)
    Accelerator.objects.create(slug="x", memory_gib=1, memory_gb_per_s=1, as_of=day)
    assert failing(checks(client, 503)) == {"catalog"}
    Accelerator.objects.update(as_of=load.newest_shipped())
    assert failing(checks(client, 200)) == set()


def test_an_operators_own_catalog_has_no_version_to_compare(client: Client, ready: None) -> None:
    CatalogLoad.objects.update(version="2" * 64, origin=CatalogLoad.Origin.DIRECTORY)
    assert failing(checks(client, 200)) == set()


def test_a_disk_with_less_space_than_asked_is_not_ready(client: Client, ready: None, settings: Any) -> None:
    settings.MIN_FREE_MB = 10**9
    found = checks(client, 503)
    assert failing(found) == {"disk"} and "ASSAY_MIN_FREE_MB" in found["disk"]["detail"]


def test_a_broker_folder_that_is_gone_is_not_ready(client: Client, ready: None, settings: Any, tmp_path: Any) -> None:
    settings.REDIS_URL, settings.BROKER_DIR = "", tmp_path
    assert failing(checks(client, 503)) == {"broker"}


def test_an_old_sweep_is_reported_and_takes_no_web_process_away(client: Client, ready: None) -> None:
    Duty.objects.update(last_run_at=timezone.now() - timedelta(hours=1))
    found = checks(client, 200)
    assert failing(found) == {"sweep"} and not found["sweep"]["required"]
    Duty.objects.all().delete()
    assert failing(checks(client, 200)) == {"sweep"}


def test_doctor_shows_the_same_checks(capsys: pytest.CaptureFixture[str], ready: None, settings: Any) -> None:
    settings.MIN_FREE_MB = 10**9
    with pytest.raises(SystemExit) as ended:
        call_command("doctor")
    lines = capsys.readouterr().out.splitlines()
    assert ended.value.code == 1
    assert {line.split()[1] for line in lines} >= NAMES
    assert next(line for line in lines if " disk " in line).startswith("LOOK")
