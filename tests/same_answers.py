"""Compares everything that answers show before and after a change of the code, key by key and line by line.

python -m tests.same_answers record FOLDER [NAME ...]    # shipped workloads and the databases of earlier versions
python -m tests.same_answers compare BEFORE AFTER        # prints the differences or "0 differences"; exit code 1 if any

`record` writes for each answer its JSON and every page, export and document made from it, and the output of every
command that the documentation shows. NAME picks workloads of
fixtures/workloads and leaves out the old databases; "old" asks for those. It prints the CPU time of each answer.
"""

import json
import os
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from operator import eq
from pathlib import Path
from typing import Any

from tests.examples import WORKLOADS, commands
from tests.examples.__main__ import printed

SHOWN = 1000  # differences that are printed
DOCUMENT_PAGES = ("memo.html", "memo.md", "bill-of-materials.csv", "costs.csv", "cash-flow.csv", "assumptions.csv")
# What differs between two runs of the same code: identifiers, tokens, times and the sizes of compressed workbooks.
NOISE = (
    (re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"), "ID"),
    (re.compile(r'(nonce|csrfmiddlewaretoken" value|X-CSRFToken\S*)="?[\w+/=-]+'), r"\1"),
    (re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d[:\d.]*(Z|[+-]\d\d:\d\d| UTC)?"), "TIME"),
    (re.compile(r"import_loadtest \d+"), "import_loadtest N"),
    (re.compile(r"\b\d+(\.\d+)? (seconds?|minutes?|ms|s) ago\b"), "AGO"),
)
UNCOMPARED = {"computed_at", "cpu_s", "elapsed_s", "took_s"}
Json = dict[str, Any]


def record(folder: Path, names: list[str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    workloads = [name for name in names if name != "old"] or (
        [] if names else [file.stem for file in sorted(WORKLOADS.glob("*.yaml"))]
    )
    with tempfile.TemporaryDirectory() as var:
        os.environ["ASSAY_VAR"] = var
        load()
        with ProcessPoolExecutor(os.cpu_count() or 1, initializer=setup) as pool:
            for name, seconds in zip(workloads, pool.map(answered, workloads, [folder] * len(workloads)), strict=True):
                print(f"{seconds:5.1f} s CPU  {name}", flush=True)
        for number, command in enumerate([] if names else commands()):
            (folder / f"command-{number}.txt").write_text(f"{command}\n{quiet(printed(command))}")
    if not names or "old" in names:
        record_old(folder)


def setup() -> None:
    import django
    from django.test.utils import setup_test_environment

    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "advisor.settings")
    django.setup()
    setup_test_environment()


def load() -> None:
    import django

    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "advisor.settings")
    django.setup()
    from django.core.management import call_command

    call_command("migrate", verbosity=0)
    call_command("load_catalog", verbosity=0, no_scores=True)


def answered(name: str, folder: Path) -> float:
    from advisor.advise import default_organisation
    from advisor.answer import recommend
    from advisor.inputs import take_snapshot
    from advisor.management.commands.advise import question

    began = time.process_time()
    spec = question(WORKLOADS / f"{name}.yaml", [], None)
    snapshot = take_snapshot(spec, default_organisation())
    answer = recommend(spec, snapshot).to_json()
    seconds = time.process_time() - began
    store(folder, name, finished(spec, answer))
    return seconds


def finished(spec: Json, answer: Json) -> Any:
    """An advice with this answer, as a worker stores it."""
    from advisor import advise
    from advisor.models import Advice, Option, Workload
    from advisor.result import Answer
    from advisor.stored import RESULT_VERSION

    organisation = advise.default_organisation()
    workload = Workload.objects.create(organisation=organisation, name=spec.get("name", ""), spec=spec)
    made = Advice.objects.create(
        organisation=organisation, workload=workload, state="done", result=answer, result_version=RESULT_VERSION
    )
    options = Answer.read(answer).recommendations
    Option.objects.bulk_create(advise.option_row(made.pk, rank, option) for rank, option in enumerate(options, 1))
    return made


def store(folder: Path, name: str, advice: Any) -> None:
    for part, text in shown(advice):
        (folder / f"{name}.{part}".replace("/", "_")).write_text(text)


def shown(advice: Any) -> Iterator[tuple[str, str]]:
    """(file name, text) of the answer and of everything that shows it."""
    from django.test import Client

    from tests.pages import every_section

    result = Client().get(f"/api/v1/advice/{advice.pk}/result").json()
    yield "result.json", json.dumps(result, indent=1, sort_keys=True, ensure_ascii=False)
    paths = ["", "/options.csv", "/advice.md", "/workload.yaml", "/assumptions"]
    options = result["recommendations"]
    paths += [f"/options/{r['rank']}" for r in options[:: max(len(options) - 1, 1)]]
    if options or result.get("portfolio"):  # else there is nothing to sign
        paths += [f"/documents/{name}" for name in DOCUMENT_PAGES]
    for path in paths:
        kind = "txt" if "." in path and not path.endswith(".html") else "html"
        yield (
            f"page{path.replace('/', '-')}.{kind}",
            quiet(every_section(Client(), f"/advice/{advice.pk}{path}")) + "\n",
        )


def quiet(text: str) -> str:
    for pattern, instead in NOISE:
        text = pattern.sub(instead, text)
    return text


def record_old(folder: Path) -> None:
    from advisor.models import Advice
    from tests import old_databases

    for file in old_databases.FILES:
        with tempfile.TemporaryDirectory() as taken:
            database = old_databases.decompress(file, Path(taken))
            with old_databases.migrated(database, "sqlite"):
                setup_once()
                for advice in Advice.objects.filter(state="done").select_related("workload").order_by("created_at"):
                    store(folder, f"{database.stem}.{advice.workload.name}", advice)


def setup_once() -> None:
    from django.conf import settings

    if "testserver" not in settings.ALLOWED_HOSTS:
        settings.ALLOWED_HOSTS = [*settings.ALLOWED_HOSTS, "testserver"]


def compare(before: Path, after: Path) -> list[str]:
    """One line per difference."""
    found = []
    for name in sorted({path.name for folder in (before, after) for path in folder.iterdir()}):
        if not (before / name).exists() or not (after / name).exists():
            found.append(f"{name}: only in {before if (before / name).exists() else after}")
            continue
        was, now = (before / name).read_text(), (after / name).read_text()
        if was != now and name.endswith(".json"):
            found += [f"{name}: {line}" for line in differences("", json.loads(was), json.loads(now))]
        elif was != now:
            found += [f"{name}: {line}" for line in changed_lines(in_lines(was), in_lines(now))]
    return found


def differences(path: str, was: Any, now: Any, equal: Callable[[Any, Any], bool] = eq) -> Iterator[str]:
    if isinstance(was, dict) and isinstance(now, dict):
        for key in sorted((was.keys() | now.keys()) - UNCOMPARED):
            if key not in was or key not in now:
                yield f"{path}.{key} {'came' if key in now else 'went'}"
            else:
                yield from differences(f"{path}.{key}", was[key], now[key], equal)
    elif isinstance(was, list) and isinstance(now, list) and len(was) == len(now):
        for index, (old, new) in enumerate(zip(was, now, strict=True)):
            yield from differences(f"{path}[{index}]", old, new, equal)
    elif not equal(was, now):
        yield f"{path}: {str(was)[:100]} -> {str(now)[:100]}"


def in_lines(text: str) -> list[str]:
    """Lines of text; of HTML, one per element."""
    return [line for line in re.sub(r"(?=<)", "\n", text).splitlines() if line.strip()]


def changed_lines(was: list[str], now: list[str]) -> Iterable[str]:
    import difflib

    changes = difflib.unified_diff(was, now, lineterm="", n=0)
    return [line[:240] for line in changes if not line.startswith(("---", "+++", "@@"))]


def main(arguments: list[str]) -> None:
    if arguments[:1] == ["record"] and len(arguments) > 1:
        record(Path(arguments[1]), arguments[2:])
    elif arguments[:1] == ["compare"] and len(arguments) == 3:
        found = compare(Path(arguments[1]), Path(arguments[2]))
        print("\n".join(found[:SHOWN]))
        print(f"{len(found)} differences")
        sys.exit(bool(found))
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
