"""Compiled code of another formula is never used."""

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
STEP = """
import numpy as np
from advisor.engine.scheduler import loop
from advisor.engine.scheduler.state import Costs
line = np.array([0.0, 10.0])
costs = Costs(**{name: line if kind is np.ndarray else 0.0 for name, kind in Costs.__annotations__.items()})
print(loop._linear_s(costs, 4))
"""


def test_an_edit_of_a_formula_in_another_file_recompiles_what_was_kept_on_disk(tmp_path: Path) -> None:
    engine = tmp_path / "advisor" / "engine"
    shutil.copytree(ROOT / "advisor" / "engine", engine, ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "advisor" / "__init__.py").touch()

    def seconds() -> float:
        done = subprocess.run([sys.executable, "-c", STEP], cwd=tmp_path, capture_output=True, text=True, check=True)
        return float(done.stdout)

    assert seconds() == 4.0
    formulas = engine / "step" / "duration.py"
    text = formulas.read_text()
    assert text.count("    return low_s +") == 1
    formulas.write_text(text.replace("    return low_s +", "    return 2 * low_s + 2 *"))
    assert seconds() == 8.0
    formulas.write_text(text)
    assert seconds() == 4.0
