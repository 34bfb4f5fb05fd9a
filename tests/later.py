"""Runs tests on a later day and with later prices: what a test of behavior says must not depend on either.

python -m tests.later [--day 2027-06-01] [--prices] [pytest arguments]

--day moves the clock of every process that the tests start (Linux, with a C compiler). --prices gives tests that load
the shipped catalog other prices: each one 7% higher and dated a month later, and every tenth row gone.
"""

import argparse
import csv
import os
import shutil
import subprocess
import sys
import tempfile
from datetime import date, datetime, timedelta
from pathlib import Path

from tests.clocks import TODAY

ROOT = Path(__file__).resolve().parents[1]
USD = (
    *("usd_per_hour", "listed_price", "purchase_usd", "purchase_usd_min", "purchase_usd_max"),
    *("usd_per_mtok_input", "usd_per_mtok_cached_input", "usd_per_mtok_output"),
)
OFFER = ("provider", "instance", "name", "region", "accelerator", "term", "as_of")  # one price a day
RISE, LATER, LEFT_OUT = 1.07, timedelta(days=30), 10


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--day", type=date.fromisoformat)
    parser.add_argument("--prices", action="store_true")
    given, rest = parser.parse_known_args(arguments)
    environment = dict(os.environ)
    with tempfile.TemporaryDirectory() as folder:
        if given.day:
            environment |= clock(Path(folder), given.day)
        if given.prices:
            environment["ASSAY_TEST_FIXTURES"] = str(fixtures(Path(folder) / "fixtures"))
        return subprocess.run([sys.executable, "-m", "pytest", *rest], cwd=ROOT, env=environment).returncode


def library(folder: Path) -> str:
    """Compiles what moves the clock; its path is for LD_PRELOAD."""
    compiled = folder / "later.so"
    source = Path(__file__).with_suffix(".c")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(compiled), str(source), "-ldl"], check=True)
    return str(compiled)


def clock(folder: Path, day: date) -> dict[str, str]:
    return {"LD_PRELOAD": library(folder), "CLOCK_SHIFT_S": str((day - datetime.now().date()).days * 86_400)}


def fixtures(folder: Path) -> Path:
    """The shipped fixtures with other prices."""
    shutil.copytree(ROOT / "fixtures", folder)
    for file in [*folder.glob("prices/*.csv"), folder / "api_prices.csv"]:
        with file.open(newline="") as given:
            reader = csv.DictReader(given)
            lines, columns = list(reader), reader.fieldnames or ()
        with file.open("w", newline="") as written:
            writer = csv.DictWriter(written, columns)
            writer.writeheader()
            rows = [moved(line) for n, line in enumerate(lines) if n % LEFT_OUT]
            writer.writerows({tuple(map(row.get, OFFER)): row for row in rows}.values())
    return folder


def moved(line: dict[str, str]) -> dict[str, str]:
    """A row of a price file with a higher price and a later date, at most the day of the tests."""
    later = min(date.fromisoformat(line["as_of"]) + LATER, TODAY)
    risen = {name: f"{float(line[name]) * RISE:.4f}" for name in USD if line.get(name)}
    return {**line, **risen, "as_of": max(later, date.fromisoformat(line["as_of"])).isoformat()}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
