"""Writes the database of this version, with finished answers of every kind, as a fixture of later versions.

    python -m tests.save_database          # writes tests/databases/<engine version>.sqlite3.xz

Run it once when a version is released, before anything of the next one changes, and commit the file: later versions
must still show these answers (tests/ops/test_old_answers.py). The file holds only public catalog rows and made-up load
tests and probe results.
"""

import lzma
import os
import sqlite3
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "tests" / "databases"
QUESTIONS = (
    "support-chat",  # serving at a rate, rented
    "bank-owned",  # serving, bought
    "nightly-batch",  # batch
    "embedding",
    "shared-fleet",  # portfolio
    "small-models",  # several models on one card
)
IMPOSSIBLE = {"slo": {"ttft_ms_p95": 1, "tpot_ms_p95": 0.1}}
KEPT = ("advisor_", "probes_", "catalog_organisation", "catalog_accelerator", "catalog_calibration", "django_")


def fill() -> None:
    """Ask, answer, share, test and measure, in the database that the environment names."""
    import django

    django.setup()
    from datetime import timedelta

    from django.utils import timezone

    from advisor import advise, load_tests
    from advisor.api import tokens
    from advisor.management.commands.advise import question
    from advisor.models import Option, Share
    from probes.machines import agents
    from probes.received import results
    from tests import sample_load_results
    from tests.probes import samples

    folder = ROOT / "fixtures" / "workloads"
    specs = [question(folder / f"{name}.yaml", [], None) for name in QUESTIONS]
    specs.append({**specs[0], "name": "impossible", "slo": {**specs[0]["slo"], **IMPOSSIBLE["slo"]}})
    for spec in specs:
        advice = advise.request(spec)
        advise.run(advice.pk)
        advice.refresh_from_db()
        print(spec["name"], advice.state, advice.error)
    failed = advise.request({**specs[0], "name": "failed"})
    advise.claimed(failed.pk).fail("The worker was lost 3 times during this calculation; it will not be tried again.")
    advise.cancel(advise.request({**specs[0], "name": "cancelled"}))
    advise.request({**specs[0], "name": "queued"})
    first = Option.objects.filter(advice__workload__name="support-chat").order_by("rank").first()
    Share.objects.create(
        organisation=first.advice.organisation,
        advice=first.advice,
        token="share-of-an-earlier-version",
        expires_at=timezone.now() + timedelta(days=36500),
    )
    import json

    load_tests.record(first, json.dumps(sample_load_results.vllm()).encode(), "vllm.json", False)
    tokens.make("reader", "read", days=366)
    token, _ = agents.enrol({"accelerator": "h200-sxm"})
    agents.register(
        token,
        "install-of-earlier",
        {"name": "gpu-1", "agent_version": "0.1.0", "labels": {}, "inventory": {"device": samples.H200}},
    )
    results.import_file(json.dumps(samples.document()).encode(), approve=True, by="somebody")


def save(database: Path, target: Path) -> None:
    """Compress the database without the catalog rows that no answer refers to."""
    with sqlite3.connect(database) as connection:
        connection.execute("PRAGMA journal_mode=DELETE")
        connection.execute("PRAGMA foreign_keys=OFF")
        names = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type='table'")]
        for name in names:
            if not name.startswith((*KEPT, "sqlite_")):
                connection.execute(f'DELETE FROM "{name}"')
        connection.commit()
        connection.execute("VACUUM")
    connection.close()
    target.write_bytes(lzma.compress(database.read_bytes(), preset=9 | lzma.PRESET_EXTREME))
    print(f"{target.relative_to(ROOT)}: {target.stat().st_size / 1e6:.2f} MB")


def main() -> None:
    from advisor.engine import ENGINE_VERSION

    target = FOLDER / f"{ENGINE_VERSION}.sqlite3.xz"
    if target.exists():
        sys.exit(f"{target.relative_to(ROOT)} is there already: a saved version is never saved again")
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        env = {k: v for k, v in os.environ.items() if k not in ("DATABASE_URL", "REDIS_URL")} | {"ASSAY_VAR": folder}
        env["DJANGO_SETTINGS_MODULE"] = "advisor.settings"
        for command in (["migrate", "--verbosity", "0"], ["load_catalog", "--verbosity", "0"]):
            subprocess.run([sys.executable, "manage.py", *command], cwd=ROOT, env=env, check=True)
        subprocess.run([sys.executable, "-m", "tests.save_database", "fill"], cwd=ROOT, env=env, check=True)
        save(Path(folder) / "assay.sqlite3", target)


if __name__ == "__main__":
    fill() if sys.argv[1:] == ["fill"] else main()
