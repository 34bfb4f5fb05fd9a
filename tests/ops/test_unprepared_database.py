"""A command on a database that is not prepared, or does not answer, ends with one sentence that says what to do."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("", "The database is not prepared for this version; run manage.py prepare"),
        ("postgres://assay:hidden@127.0.0.1:9/assay", "start it, or correct DATABASE_URL."),
        ("nonsense", "DATABASE_URL: use a URL such as postgres://assay:PASSWORD@host/assay"),
    ],
)
def test_a_command_says_what_to_do_about_the_database(url: str, said: str, tmp_path: Path) -> None:
    env = {name: value for name, value in os.environ.items() if name != "DATABASE_URL"}
    env |= {"ASSAY_VAR": str(tmp_path), **({"DATABASE_URL": url} if url else {})}
    command = [sys.executable, "manage.py", "evidence", "status"]
    found = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert found.returncode == 1 and said in found.stderr and "hidden" not in found.stderr, found.stderr
    assert url == "nonsense" or "Traceback" not in found.stderr
