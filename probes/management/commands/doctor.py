import sys
from typing import Any

from django.core.management.base import BaseCommand

from probes.status import checks


class Command(BaseCommand):
    help = "Runs the checks of /readyz and checks workers, queue, prices and machines. Exits with 1 if one fails."

    def handle(self, *args: Any, **options: Any) -> None:
        findings = list(checks.examine())
        for passed, name, detail in findings:
            self.stdout.write(f"{'ok  ' if passed else 'LOOK'}  {name:10} {detail}")
        sys.exit(0 if all(finding.passed for finding in findings) else 1)
