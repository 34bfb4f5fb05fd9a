"""Compares a running deployment with its plan and its prediction."""

import json
import time
from argparse import ArgumentParser
from collections.abc import Callable
from pathlib import Path
from typing import Any

import requests

from advisor.management.commands.import_loadtest import option_of
from advisor.management.remote import ServerCommand, add_server, asked, posted
from catalog.loading.bounded import FILES, BoundedError, read_json
from catalog.management.errors import BadInput, at_least_one

TIMEOUT_S = 10
MOST_SCRAPE_BYTES = 16 * 2**20
Compare = Callable[[list[Any]], Any]  # of files


class Command(ServerCommand):
    help = (
        "Reads metrics, start-up logs, load-test results, manifests and scripts of a running deployment, and says how "
        "it compares with its plan and with the prediction for its load. Exit codes: 0 compared, 2 bad input."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "files", nargs="+", metavar="FILE|URL",
            help="a file, or the http(s) address of a server's /metrics; two scrapes of a server give rates",
        )  # fmt: skip
        plan = parser.add_mutually_exclusive_group()
        plan.add_argument("--plan", type=Path, metavar="ANSWER.json", help="JSON of manage.py advise --format json")
        plan.add_argument("--advice", metavar="ID/RANK", help="a stored option: ADVICE-ID/RANK or its number")
        plan.add_argument(
            "--workload", type=Path, metavar="FILE", help="a workload: its limits, and its load if none was measured"
        )
        parser.add_argument("--option", type=int, default=1, metavar="N", help="option of --plan; default: 1")
        parser.add_argument("--model", default="", help="catalog name of the model, if the files name it otherwise")
        parser.add_argument("--accelerator", default="", help="accelerator, if the files do not say it")
        parser.add_argument(
            "--servers",
            type=int,
            metavar="N",
            help="replicas that the measurement covers; default: one for each scraped server",
        )
        parser.add_argument(
            "--window", type=float, metavar="S", help="seconds over which the counters of a scrape count"
        )
        parser.add_argument("--wait", type=float, metavar="S", help="read each URL twice, this many seconds apart")
        parser.add_argument("--format", choices=["table", "json", "markdown"], default="table", help="default: table")
        add_server(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        from advisor import deployments  # here, so that --help does not load the engine

        if options["servers"] is not None:
            at_least_one("--servers", options["servers"])
        for name in ("window", "wait"):
            if options[name] is not None and not 0 < options[name] <= 86_400 * (365 if name == "window" else 1):
                raise BadInput(f"--{name}: {options[name]:g} is no number of seconds above 0")
        compare = (_on_server if options["server"] else _here)(options)  # refuses a plan before anything is read
        urls = [each for each in options["files"] if each.startswith(("http://", "https://"))]
        try:
            given = [_fetched(url) for url in urls]
            if options["wait"] and urls:
                time.sleep(options["wait"])
                given += [_fetched(url) for url in urls]
            given += [_read(Path(each)) for each in options["files"] if each not in urls]
            found = compare(given)
        except deployments.DeploymentError as error:
            raise BadInput(str(error)) from error
        if options["format"] == "json":
            self.stdout.write(json.dumps({"deployments": found}, indent=2, ensure_ascii=False))
        else:
            self.stdout.write(deployments.table(found, markdown=options["format"] == "markdown"))


def _here(options: dict[str, Any]) -> Compare:
    from advisor import deployments

    wanted = deployments.Asked(
        plan=_plan(options), model=options["model"], accelerator=options["accelerator"], servers=options["servers"]
    )

    def compare(given: list[Any]) -> Any:
        groups = deployments.grouped(deployments.read_files(given, options["window"], FILES))
        return [deployments.compared(group, wanted) for group in groups]

    return compare


def _on_server(options: dict[str, Any]) -> Compare:
    from advisor.workload import WorkloadError, load

    if options["plan"] is not None:
        raise BadInput("--plan: a server compares with its own answers; give --advice ID/RANK, or --server ''")
    stated = {name: options[name] for name in ("model", "accelerator", "servers")} | {"window_s": options["window"]}
    named = ""
    if options["advice"] is not None:
        named = f"--advice: {options['advice']}"
        advice, _, rank = options["advice"].replace("/options/", "/").partition("/")
        if not rank.isdecimal():
            raise BadInput(f"{named}: give ADVICE-ID/RANK; a server's options have no numbers")
        stated |= {"advice": advice, "option": int(rank)}
    if options["workload"] is not None:
        try:
            stated["workload"] = load(_read(options["workload"]).content)
        except WorkloadError as error:
            raise BadInput(f"{options['workload']}: {error.errors[0]['message']}") from error

    def compare(given: list[Any]) -> Any:
        files = [{"name": one.name, "text": one.content.decode("utf-8", "replace"), "at_s": one.at_s} for one in given]
        with asked(options["server"], named=named) as assay:
            body = _stated({**stated, "files": [_stated(each) for each in files]})
            return posted(assay, "deployments/compare", body)["deployments"]

    return compare


def _stated(body: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in body.items() if value not in ("", None)}


def _read(path: Path) -> Any:
    from advisor.deployments import Given

    try:
        if path.stat().st_size > FILES.max_bytes:
            raise BadInput(f"{path}: is larger than {FILES.max_bytes // 2**20} MiB")
        return Given(path.name, path.read_bytes(), path.stat().st_mtime)
    except OSError as error:
        raise BadInput(
            f"{path} cannot be read: {error.strerror}; give a file, or the URL of a server's metrics"
        ) from error


def _fetched(url: str) -> Any:
    """The text at an address that the operator gave; redirects are not followed."""
    from advisor.deployments import Given

    try:
        with requests.get(url, timeout=TIMEOUT_S, stream=True, allow_redirects=False) as answer:
            if answer.status_code != 200:
                raise BadInput(
                    f"{url} answers with status {answer.status_code}; give the address of the server's /metrics"
                )
            content = bytearray()
            for part in answer.iter_content(65_536):
                content += part
                if len(content) > MOST_SCRAPE_BYTES:
                    raise BadInput(
                        f"{url} sends more than {MOST_SCRAPE_BYTES // 2**20} MiB; give the address of /metrics"
                    )
    except (requests.RequestException, UnicodeError) as error:
        raise BadInput(f"{url} cannot be read: {type(error).__name__}; is the server running?") from error
    return Given(url, bytes(content), time.time())


def _plan(options: dict[str, Any]) -> Any:
    from advisor import deployments, load_tests
    from advisor.workload import WorkloadError, load, parse

    if options["plan"] is not None:
        try:
            return deployments.plan_of_answer(read_json(_read(options["plan"]).content, FILES), options["option"])
        except (BoundedError, ValueError) as error:
            raise BadInput(f"{options['plan']} {error}") from error
    if options["advice"] is not None:
        option = option_of(options["advice"])
        spec = option.advice.workload.spec
        try:
            planned = load_tests.predicted(option)
        except load_tests.LoadResultError as error:
            raise BadInput(f"--advice: {error}") from error
        return deployments.Plan(
            said=planned.label, slo=spec.get("slo") or {}, spec=spec, option=planned, option_name=options["advice"]
        )
    if options["workload"] is not None:
        try:
            spec = parse(load(_read(options["workload"]).content))
        except WorkloadError as error:
            first = error.errors[0]
            raise BadInput(f"{options['workload']}: {first['field']}: {first['message']}") from error
        return deployments.Plan(said=f"workload {spec['name']}", slo=spec["slo"] or {}, spec=spec)
    return None
