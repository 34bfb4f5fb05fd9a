"""Put a load test's result beside the option that it tested: import_loadtest OPTION FILE."""

import re
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from advisor import load_tests
from advisor.load_tests import MAX_BYTES, LoadResultError
from advisor.models import Option
from catalog.management.errors import BadInput

UUID = "[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"


def option_of(text: str) -> Option:
    """An option by its number, or by ADVICE/RANK as its page's address has them."""
    if match := re.fullmatch(rf"({UUID})/(?:options/)?(\d{{1,9}})", text):
        found = Option.objects.filter(advice__pk=match[1], rank=int(match[2])).first()
    else:
        found = Option.objects.filter(pk=int(text)).first() if re.fullmatch(r"[1-9]\d{0,17}", text) else None
    if found is None:
        raise BadInput(f"{text}: no such option. Its page shows its number; ADVICE-ID/RANK is taken too.")
    return found


class Command(BaseCommand):
    help = "Import a result of vllm bench serve, guidellm, aiperf or genai-perf and print predicted against measured."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("option", metavar="OPTION_ID", help="the number on its page, or ADVICE-ID/RANK")
        parser.add_argument("file", type=Path, metavar="FILE")
        parser.add_argument("--calibration", action="store_true", help="may be exported as measured rows")

    def handle(self, *args: Any, option: str, file: Path, calibration: bool, **options: Any) -> None:
        found = option_of(option)
        if not file.is_file():
            raise BadInput(f"{file}: no such file; give the result file of the load test")
        if file.stat().st_size > MAX_BYTES:
            raise BadInput(f"{file}: larger than {MAX_BYTES // 2**20} MiB; leave the requests' texts out of it")
        try:
            test, is_new = load_tests.record(found, file.read_bytes(), file.name, calibration)
        except OSError as error:
            raise BadInput(f"{file} cannot be read: {error.strerror}; check its permissions") from error
        except LoadResultError as error:
            raise BadInput(f"{file}: {error}") from error
        self.stdout.write(f"load test {test.pk} of option {found.pk}: {'recorded' if is_new else 'already there'}")
        for line in lines(load_tests.compare(load_tests.predicted(found), test.measured)):
            self.stdout.write(line)


def lines(said: dict[str, Any]) -> list[str]:
    words = {True: "inside the interval", False: "OUTSIDE the interval", None: ""}
    table = [
        f"{r['metric']:<16} predicted {r['predicted']:>10.4g}   measured {r['measured']:>10.4g} {r['unit']:<4}"
        f" {words[r['inside']]}".rstrip()
        for r in said["rows"]
    ]
    return [*table, *(f"another load: {why}" for why in said["differences"])]
