"""Answers every shipped workload and worked example, renders the pages, and prints which first choices changed.

python -m tests.examples                 # everything
python -m tests.examples NAME ...        # only questions about these workloads
python -m tests.examples --pages         # the pages from the stored answers, nothing is computed
"""

import contextlib
import io
import json
import os
import shlex
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime
from typing import Any

from tests.examples import ROOT, STORE, WORKLOADS, Ask, asks, commands, facts, pages, stored
from tests.examples.changes import change
from tests.examples.render import rendered
from tests.examples.summary import summary

CLAIMS = ROOT / "docs" / "reference" / "claims.md"
Json = dict[str, Any]


def main(arguments: list[str]) -> None:
    before = stored()
    if "--pages" not in arguments:
        with tempfile.TemporaryDirectory() as folder:
            os.environ["ASSAY_VAR"] = folder
            load()
            wanted = {ask: paths for ask, paths in asks().items() if not arguments or ask.name in arguments}
            answered = all_answers(wanted, before)
            answered |= {command: {"text": printed(command).rstrip()} for command in commands()}
            if not arguments:
                from tests.claims import checks, claims  # their models need Django

                claims.write(CLAIMS, claims.judged(checks.CHECKS))
        known = {ask.key for ask in asks()} | {*commands()}
        kept = {key: value for key, value in sorted((before | answered).items()) if key in known}
        STORE.write_text(
            json.dumps(
                {"asked_on": f"{datetime.now(UTC):%Y-%m-%d}", "prices": facts.prices(), "answers": kept},
                indent=1,
                ensure_ascii=False,
            )
            + "\n"
        )
    if old := facts.old_rents():
        print(f"decided by a rent over {facts.MOST_DAYS} days old: {', '.join(old)}")
    setup()
    answers = stored()
    for page in pages():
        text = page.read_text()
        if (new := rendered(text, answers)) != text:
            page.write_text(new)
            print(f"wrote {page.name}")


def load() -> None:
    setup()
    from django.core.management import call_command

    call_command("migrate", verbosity=0)
    call_command("load_catalog", verbosity=0)  # with measurements: they correct what a reader of the pages gets, too


def setup() -> None:
    import django

    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "advisor.settings")
    django.setup()


def all_answers(wanted: dict[Ask, dict[str, None]], before: dict[str, Json]) -> dict[str, Json]:
    """The summaries by key; prints what changed as it comes."""
    found, changed = {}, 0
    with ProcessPoolExecutor(os.cpu_count() or 1, initializer=setup) as pool:
        for ask, (kept, line, seconds) in zip(
            wanted,
            pool.map(answered, wanted, [list(p) for p in wanted.values()], map(before.get, keys(wanted))),
            strict=True,
        ):
            found[ask.key] = kept
            changed += line is not None
            print(f"{seconds:5.1f} s CPU  {line or f'{ask.key}: unchanged'}", flush=True)
    print(f"{changed} of {len(found)} first choices or their costs changed")
    return found


def keys(wanted: dict[Ask, dict[str, None]]) -> list[str]:
    return [ask.key for ask in wanted]


def answered(ask: Ask, paths: list[str], before: Json | None) -> tuple[Json, str | None, float]:
    from advisor.advise import default_organisation
    from advisor.answer import recommend
    from advisor.inputs import take_snapshot
    from advisor.management.commands.advise import question

    began = time.process_time()
    spec = question(WORKLOADS / f"{ask.name}.yaml", list(ask.changes), None)
    answer = recommend(spec, take_snapshot(spec, default_organisation())).to_json()
    kept = summary(answer, paths)
    line = change(ask.key, before, kept, answer) if before else f"{ask.key}: new"
    return kept, line, time.process_time() - began


def printed(command: str) -> str:
    """What a command of manage.py prints; its exit code is part of the example, not a failure."""
    from django.core.management import call_command

    out, (name, *arguments) = io.StringIO(), shlex.split(command)
    with contextlib.suppress(SystemExit):
        call_command(name, *arguments, stdout=out)
    return out.getvalue()


if __name__ == "__main__":
    main(sys.argv[1:])
