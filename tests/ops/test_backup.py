"""Backups: made while the service runs, restored whole or not at all, on both databases."""

import json
from pathlib import Path

import pytest

from tests.world import World


@pytest.mark.parametrize(
    "world", ["sqlite files", pytest.param("postgres files", marks=pytest.mark.postgres)], indirect=True
)
def test_a_backup_brings_back_what_was_there_or_is_refused_with_what_to_do(world: World, tmp_path: Path) -> None:
    world.extra |= {"DJANGO_SETTINGS_MODULE": "advisor.settings", "ASSAY_SWEEP_S": "0.001", "ASSAY_LOG_LEVEL": "ERROR"}
    found = json.loads(world.python("-m", "tests.ops.backup_drill", str(tmp_path)))
    assert (found["mode"], found["session"]) == ("0o600", False)
    assert "exists; give a new file name" in found["again"]
    assert "not empty" in found["not empty"] and "--replace" in found["not empty"]
    assert (found["before"], found["same"], found["after"], found["sessions"]) == (["ada", "bob"], True, ["ada"], 0)
    assert "checksum" in found["damaged"] and found["still"] == ["ada", "eve"]
    assert "newer schema than this version (advisor.9999_x)" in found["newer"] and "9.9" in found["newer"]
    assert "from oracle" in found["vendor"] and "of that kind" in found["vendor"]
    assert "has format 2; restore it with version 9.9" in found["format"]
    assert "cannot be read" in found["manifest"]
    assert "use another one" in found["cut"] and "not a complete Assay backup" in found["text"]
    assert "stop web, workers and beat first" in found["runs"]
    if world.database_url.startswith("sqlite"):
        assert "Another process uses the database" in found["in use"]
        assert (found["kept"], found["repaired"]) == (["ada", "eve"], ["ada"])
    else:
        assert "pg_dump is not on PATH; install PostgreSQL's client programs" in found["missing"]
        assert "install client programs of the server's version" in found["failing"] and not found["left"]
