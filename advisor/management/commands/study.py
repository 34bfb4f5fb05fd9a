import subprocess
import sys
import time
from argparse import ArgumentParser
from functools import partial
from pathlib import Path
from typing import Any, NoReturn
from uuid import UUID

from django.conf import settings
from django.core.management.base import BaseCommand

from advisor import workload
from advisor.advise import QueueFull
from advisor.management.commands.advise import (
    BadFile,
    lines,
    read,
    replace_file,
    require_catalog,
    with_models,
)
from advisor.models import Study
from catalog.management.errors import BAD_INPUT, BadInput
from catalog.models import default_organisation

Json = dict[str, Any]
POLL_S = 1.0
MAX_WORKERS = 64
BY = "manage.py"


class Command(BaseCommand):
    help = "Runs studies: many workloads, a grid of values, models by accelerators, or the prices of many days."

    def add_arguments(self, parser: ArgumentParser) -> None:
        actions = parser.add_subparsers(dest="do", required=True, metavar="create | run | list | show | ...")
        for name, text in (
            ("create", "check a study file and queue its pieces for the service's workers"),
            ("run", "check a study file and compute it here, without a broker"),
        ):
            action = actions.add_parser(name, help=text)
            action.add_argument("file", type=Path, help="study file (YAML or JSON)")
            if name == "run":
                action.add_argument("--workers", type=int, default=1, help="processes; default: %(default)s")
                action.add_argument("--out", type=Path, metavar="FILE", help="then write the results, .csv or .parquet")
        actions.add_parser("list", help="list all studies with their progress")
        for name, text in (
            ("show", "show the state, the progress and the CPU time"),
            ("cancel", "cancel a study; finished pieces keep their results"),
            ("resume", "queue the canceled and failed pieces of a study again"),
            ("work", "compute pieces of a study in this process until none is left"),
            ("export", "write the results so far"),
        ):
            action = actions.add_parser(name, help=text)
            action.add_argument("id", help="ID of the study, as `list` shows it")
            if name == "export":
                action.add_argument("--format", choices=["csv", "parquet"], help="default: the ending of the file")
                action.add_argument("--out", type=Path, metavar="FILE", required=True, help="the file; -: print CSV")

    def handle(self, *args: Any, **options: Any) -> None:
        do = options.pop("do")
        if do in ("create", "run"):
            require_catalog()
            self.begin(do, **{name: options[name] for name in ("file", "workers", "out") if name in options})
        elif do == "list":
            self.list_all()
        else:
            act = {"show": self.show, "cancel": self.cancel, "resume": self.resume, "work": self.work}
            study = one(options["id"])
            if do == "export":
                self.export(study, options["out"], options["format"])
            else:
                act[do](study)

    def begin(self, do: str, file: Path, workers: int = 0, out: Path | None = None) -> None:
        from advisor.studies import pieces

        if do == "run" and not 1 <= workers <= MAX_WORKERS:
            raise BadInput(f"--workers: {workers} is not a number from 1 to {MAX_WORKERS}")
        if out is not None:
            format_of(out, None)
        try:
            raw = study_file(file)
            complete = partial(with_files, file.parent)
            owner = default_organisation()
            study = pieces.request(raw, owner, BY, complete=complete, awake=do == "create")
        except workload.WorkloadError as error:
            self.refuse(*lines(error))
        except (BadFile, QueueFull) as error:
            self.refuse(str(error))
        self.stdout.write(f"{study.pk}  {study.name}: {study.points} rows")
        if do == "run":
            self.compute(study, workers)
            if out is not None:
                self.export(study, out, None)

    def compute(self, study: Study, workers: int) -> None:
        """Computes the study in processes of its own, and shows its progress."""
        from advisor.studies import pieces

        command = [sys.executable, str(settings.BASE_DIR / "manage.py"), "study", "work", str(study.pk)]
        started = [subprocess.Popen(command, stdout=subprocess.DEVNULL) for _ in range(workers)]
        try:
            shown = -1
            while any(process.poll() is None for process in started):
                time.sleep(POLL_S)
                done = pieces.progress(study)
                if done.ended > shown:
                    self.stderr.write(f"{done.ended} of {done.pieces} pieces")
                shown = done.ended
        finally:
            for process in started:
                process.terminate()
        study.refresh_from_db()
        self.show(study)

    def list_all(self) -> None:
        from advisor.studies import pieces

        for study in Study.objects.all():
            done = pieces.progress(study)
            share = f"{done.done + done.failed} of {done.pieces} pieces"
            self.stdout.write(
                f"{study.pk}  {study.state:9}  {share:20}  {study.created_at:%Y-%m-%d %H:%M}  {study.name}"
            )
        if not Study.objects.exists():
            self.stdout.write("No studies. Create one with manage.py study create FILE")

    def show(self, study: Study) -> None:
        from advisor.studies import pieces

        done = pieces.progress(study)
        self.stdout.write(f"{study.name} ({study.kind}): {study.state}" + (f", {study.error}" if study.error else ""))
        counts = f"{done.done} done, {done.running} running, {done.waiting} waiting, {done.failed} failed"
        self.stdout.write(f"pieces: {counts}, {done.cancelled} canceled of {done.pieces}; rows: {study.points}")
        self.stdout.write(f"prices of {study.prices_as_of}, catalog {study.catalog_version[:12] or 'not read yet'}")
        if done.cpu_s:
            share = done.overhead_cpu_s / (done.cpu_s + done.overhead_cpu_s)
            self.stdout.write(f"CPU time: {done.cpu_s:.1f} s of answers, {share:.2%} of the total for coordination")

    def cancel(self, study: Study) -> None:
        from advisor.studies import pieces

        if not pieces.cancel(study):
            self.refuse(f"this study is {study.state}; only a queued or running one can be canceled")
        self.stdout.write(f"{study.name}: canceled")

    def resume(self, study: Study) -> None:
        from advisor.studies import pieces

        try:
            resumed = pieces.resume(study)
        except QueueFull as error:
            self.refuse(str(error))
        if not resumed:
            self.refuse(f"this study is {study.state}, and no piece of it failed or was canceled")
        self.stdout.write(f"{study.name}: {study.state}")

    def work(self, study: Study) -> None:
        from advisor.studies import pieces

        self.stdout.write(f"{pieces.drain(study.pk)} pieces computed")

    def export(self, study: Study, out: Path, form: str | None) -> None:
        from advisor.studies import pieces, tables

        form = format_of(out, form)
        table, rows = pieces.table_of(study), pieces.Rows(study)[:]
        if str(out) == "-":
            self.stdout.write(tables.csv_text(table, rows), ending="")
            return
        content = tables.parquet(table, rows) if form == "parquet" else tables.csv_text(table, rows).encode()
        try:
            replace_file(out, content)
        except BadFile as error:
            self.refuse(str(error))
        self.stdout.write(f"{out}: {len(rows)} of {study.points} rows")

    def refuse(self, *lines: str) -> NoReturn:
        self.stderr.write("\n".join(lines))
        sys.exit(BAD_INPUT)


def one(text: str) -> Study:
    try:
        study = Study.objects.filter(pk=UUID(text)).first()
    except ValueError:
        study = None
    if study is None:
        raise BadInput(f"no such study: {text}; `manage.py study list` shows the IDs")
    return study


def format_of(out: Path, form: str | None) -> str:
    """csv or parquet, from --format or the ending of the file."""
    found = form or ("csv" if str(out) == "-" else out.suffix.lower().lstrip("."))
    if found not in ("csv", "parquet"):
        raise BadInput(f"--out: {out} ends in neither .csv nor .parquet; give --format too")
    if found == "parquet" and str(out) == "-":
        raise BadInput("--out: Parquet cannot be printed; give a file")
    return found


def study_file(path: Path) -> Json:
    """The raw study, with the workload files that it names read from its folder."""
    raw = workload.load(read(path, "study file"))

    def loaded(part: Any, field: str) -> Any:
        if not isinstance(part, str):
            return part
        try:
            return workload.load(read(path.parent / part, "workload file"))
        except workload.WorkloadError as failure:
            errors = [{**each, "field": f"{field} ({part}) {each['field']}".strip()} for each in failure.errors]
            raise workload.WorkloadError(errors) from None

    if "workload" in raw:
        raw["workload"] = loaded(raw["workload"], "workload")
    if isinstance(raw.get("workloads"), list):
        raw["workloads"] = [loaded(part, f"workloads[{i}]") for i, part in enumerate(raw["workloads"])]
    return raw


def with_files(folder: Path, spec: Json) -> Json:
    """The workload with the model configuration and the traces that it refers to, read from the study's folder."""
    return workload.with_traces(with_models(spec, folder, lambda text: None), folder)
