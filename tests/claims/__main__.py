"""Computes the engine's figure for each claim in fixtures/claims.csv and reports which claims hold.

python -m tests.claims                                            # needs a loaded catalog
python -m tests.claims --write-docs docs/reference/claims.md      # the page, too
"""

import os
from argparse import ArgumentParser
from collections import Counter
from pathlib import Path

import django


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "advisor.settings")
    django.setup()
    from tests.claims import checks, claims  # their models need Django

    arguments = ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    arguments.add_argument("--write-docs", type=Path, metavar="FILE")
    given = arguments.parse_args()
    findings = claims.judged(checks.CHECKS)
    if given.write_docs:
        claims.write(given.write_docs, findings)
    for claim, finding in findings:
        print(f"{claim.id}  {finding.verdict:12}  {claim.claim}: {finding.figure}")
    counts = Counter(finding.verdict for _, finding in findings)
    print(", ".join(f"{number} {verdict}" for verdict, number in counts.most_common()))


if __name__ == "__main__":
    main()
