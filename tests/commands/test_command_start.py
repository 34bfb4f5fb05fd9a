"""`advise` answers --help and a file that it cannot read before it loads what computes an answer."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LATER = ("numpy", "scipy", "numba", "pandas", "pydantic", "django.db.models", "rest_framework", "advisor.engine")
ENDED = """
import sys
from advisor.__main__ import execute
try:
    execute(["manage.py", "advise", *sys.argv[1:]])
except SystemExit as end:
    sys.exit(f"{{end.code or 0}} {{[name for name in {later!r} if name in sys.modules]}}")
"""


@pytest.mark.parametrize(
    ("words", "code"), [(["--help"], 0), (["/nowhere.yaml"], 2), (["x.yaml", "--out", "memo.md"], 2)]
)
def test_nothing_that_computes_an_answer_is_loaded_for_help_and_an_unusable_call(words: list[str], code: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", ENDED.format(later=LATER), *words], cwd=ROOT, capture_output=True, text=True
    )
    assert done.stderr.splitlines()[-1] == f"{code} []"
