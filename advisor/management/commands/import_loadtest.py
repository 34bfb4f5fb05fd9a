"""Imports the result of a load test and compares it with the prediction for its option."""

import re
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from advisor import load_tests
from advisor.load_tests import LoadResultError
from advisor.models import Option
from catalog.loading.bounded import FILES
from catalog.management.errors import BadInput

UUID = "[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"


def option_of(text: str) -> Option:
    """The option with this number, or of ADVICE-ID/RANK. Raises BadInput."""
    if match := re.fullmatch(rf"({UUID})/(?:options/)?(\d{{1,9}})", text):
        option = Option.objects.filter(advice__pk=match[1], rank=int(match[2])).first()
    else:
        option = Option.objects.filter(pk=int(text)).first() if re.fullmatch(r"[1-9]\d{0,17}", text) else None
    if option is None:
        raise BadInput(f"{text}: no such option. Use the number on its page, or ADVICE-ID/RANK.")
    return option


class Command(BaseCommand):
    help = "Imports a result file of a load generator and compares it with the prediction."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("option", metavar="OPTION_ID", help="the number on its page, or ADVICE-ID/RANK")
        parser.add_argument("file", type=Path, metavar="FILE")
        parser.add_argument("--calibration", action="store_true", help="allow export as measured rows")

    def handle(self, *args: Any, option: str, file: Path, calibration: bool, **options: Any) -> None:
        target = option_of(option)
        if file.is_dir():
            raise BadInput(f"{file}: is a folder; give one file of it, such as the summary.json of vllm bench sweep")
        if not file.is_file():
            raise BadInput(f"{file}: no such file; give the result file of the load test")
        if file.stat().st_size > FILES.max_bytes:
            raise BadInput(f"{file}: is larger than {FILES.max_bytes // 2**20} MiB; remove the texts of the requests")
        try:
            test, is_new = load_tests.record(target, file.read_bytes(), file.name, calibration, bounds=FILES)
        except OSError as error:
            raise BadInput(f"{file} cannot be read: {error.strerror}; check its permissions") from error
        except LoadResultError as error:
            raise BadInput(f"{file}: {error}") from error
        self.stdout.write(f"load test {test.pk} of option {target.pk}: {'recorded' if is_new else 'already recorded'}")
        if place := test.measured.get("place"):
            self.stdout.write(f"used {place}")
        for line in lines(load_tests.compare(load_tests.predicted(target), test.measured)):
            self.stdout.write(line)
        for line in effect_lines(load_tests.correct(test), test.measured["matched"]):
            self.stdout.write(line)


def effect_lines(effect: dict[str, Any], matched: dict[str, Any]) -> list[str]:
    """What the load test changes, before and after."""
    figures = [
        f"{row['name']}: predicted {row['predicted']:,.4g} ms for this load, measured {row['measured']:,.4g}, after "
        f"correction {row['after']:,.4g}"
        for row in effect.get("figures", ())
    ]
    if figures:
        figures = [f"Simulated: {matched['load']}.", *figures]
    if not effect["rows"]:
        return [*figures, f"Nothing changes: {effect['why_nothing']}."]
    table = load_tests.changes(effect)
    head = f"Step times of this deployment: x{effect['factor_before']:.3f} before, x{effect['factor_after']:.3f} now."
    notes = [effect["said"]] if effect["said"] else []
    if effect["why_nothing"]:
        notes.append(f"Nothing changes: {effect['why_nothing']}.")
    return [*figures, head, *notes, *table, "New answers use this load test. Ask again to store one."]


def lines(comparison: dict[str, Any]) -> list[str]:
    texts = {True: "inside the interval", False: "OUTSIDE the interval", None: ""}
    table = [
        f"{r['metric']:<16} predicted {r['predicted']:>10.4g}   measured {r['measured']:>10.4g} {r['unit']:<4}"
        f" {texts[r['inside']]}".rstrip()
        for r in comparison["rows"]
    ]
    return [*table, *(f"different load: {reason}" for reason in comparison["differences"])]
