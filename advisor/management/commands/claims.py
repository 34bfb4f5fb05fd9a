"""Compares industry claims with the engine's figures."""

from argparse import ArgumentParser
from collections import Counter
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand

from advisor.management.commands.advise import require_catalog
from catalog.loading.fixtures import FixtureError
from catalog.management.errors import BadInput, writing


class Command(BaseCommand):
    help = "Computes the engine's figure for each claim in fixtures/claims.csv and reports which claims hold."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--write-docs", type=Path, metavar="FILE", help="write the page, for example docs/reference/claims.md"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        from advisor.claims import (
            checks,
            claims,  # here, so that --help does not import the engine
        )

        require_catalog()
        try:
            findings = claims.judged(checks.CHECKS)
        except FixtureError as error:
            raise BadInput(str(error)) from error
        if options["write_docs"]:
            with writing(options["write_docs"]):
                options["write_docs"].write_text(claims.page(findings, claims.Desk().day), encoding="utf-8")
        for claim, finding in findings:
            self.stdout.write(f"{claim.id}  {finding.verdict:12}  {claim.claim}: {finding.figure}")
        counts = Counter(finding.verdict for _, finding in findings)
        self.stdout.write(", ".join(f"{number} {verdict}" for verdict, number in counts.most_common()))
