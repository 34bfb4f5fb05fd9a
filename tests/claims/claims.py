"""Reads industry claims about AI hardware, compares them with the engine's figures, and writes the page."""

import csv
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import median
from typing import Any

from advisor.answer import single_estimate
from advisor.engine.network import Model
from advisor.engine.terms import Accelerator as Chip
from advisor.engine.terms import Efficiency, efficiency, usd_text
from advisor.inputs import calibrations, offers
from advisor.inputs import catalog_chip as chip_of
from advisor.inputs.from_catalog import model_row
from advisor.inputs.to_engine import model_of
from advisor.result import Estimate
from advisor.workload import deployment
from catalog.loading.fixtures import FixtureError
from catalog.models import Accelerator, Price
from catalog.pricing.derived import has_expired
from catalog.shipped import FIXTURES

FILE = FIXTURES / "claims.csv"
COLUMNS = ["id", "subject", "claim", "stated", "unit", "stated_conditions", "citation"]
LLAMA_70B, LLAMA_8B = "meta-llama/Llama-3.3-70B-Instruct", "meta-llama/Llama-3.1-8B"
VERDICTS = {
    "agrees": "the engine computes the stated figure, up to rounding",
    "conditional": "true under conditions that the claim omits; the reason names them",
    "refuted": "false as stated",
    "not judged": "this version does not compute it, or the claim states too little",
}
Json = dict[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Claim:
    id: str
    subject: str
    claim: str
    stated: str
    unit: str
    stated_conditions: str
    citation: str


@dataclass(frozen=True, slots=True)
class Finding:
    """The engine's result for one claim."""

    verdict: str
    figure: str
    reason: str


def read(path: Path = FILE) -> list[Claim]:
    """The claims in a file. Raises FixtureError for wrong columns or a duplicate ID."""
    with path.open(newline="", encoding="utf-8") as lines:
        reader = csv.DictReader(lines)
        if reader.fieldnames != COLUMNS:
            raise FixtureError(f"{path.name}: the columns are {', '.join(COLUMNS)}")
        claims = [Claim(**row) for row in reader]
    if duplicates := [key for key, number in Counter(c.id for c in claims).items() if number > 1]:
        raise FixtureError(f"{path.name}: {duplicates[0]} is set twice")
    return claims


class Desk:
    """What the checks use: chips, models, estimates and prices of the catalog, as known on one day."""

    def __init__(self) -> None:
        self._runs: dict[str, Estimate] = {}
        self._rents: dict[str, tuple[float, str]] = {}

    def chip(self, slug: str) -> Chip:
        return chip_of(Accelerator.objects.get(slug=slug))

    def model(self, hf_id: str) -> Model:
        return model_of(model_row(hf_id))

    @cached_property
    def scopes(self) -> Json:
        return calibrations()

    def efficiency(self, slug: str) -> Efficiency:
        a = self.chip(slug)
        return efficiency(self.scopes, slug, a.family, a.kind)

    def run(self, accelerator: str, **changes: Any) -> Estimate:
        """The estimate of one deployment; by default Llama 70B with 1,000 input and 200 output tokens."""
        arguments = {
            "model": LLAMA_70B,
            "isl": 1000,
            "osl": 200,
            "concurrency": 1,
            "accelerator": accelerator,
            **changes,
        }
        key = repr(sorted(arguments.items()))
        if key not in self._runs:
            self._runs[key] = single_estimate.answer(deployment.parse_deployment(arguments))
        return self._runs[key]

    @cached_property
    def day(self) -> Any:
        """The date of the newest public price, so that the page does not depend on the current day."""
        return Price.objects.filter(organisation=None).latest("as_of").as_of

    def rent(self, slug: str) -> float:
        """USD per chip-hour on demand: the median of the providers' lowest offers, current ones if there are any."""
        return self._rent(slug)[0]

    def rent_text(self, slug: str) -> str:
        """The rent as text, with its date if it has expired."""
        usd, day = self._rent(slug)
        return f"{usd_text(usd)} an hour{f', a price of {day}' if day else ''}"

    def _rent(self, slug: str) -> tuple[float, str]:
        if slug not in self._rents:
            rows = [p for p in offers.current([], None, self.day) if p.accelerator.slug == slug and p.usd_per_hour]
            current = [p for p in rows if not has_expired(p.as_of, self.day)]
            lowest: dict[str, float] = {}
            for p in current or rows:
                usd = float(p.usd_per_hour or 0) / p.accelerators
                lowest[p.provider] = min(lowest.get(p.provider, usd), usd)
            self._rents[slug] = median(lowest.values()), "" if current else max(p.as_of for p in rows).isoformat()
        return self._rents[slug]

    def usd_per_mtok(self, accelerator: str, chips: int, **changes: Any) -> float:
        """USD per million tokens (input and output) at full load and the median rent."""
        tokens_per_s = known(self.run(accelerator, tp=chips, **changes).total_tokens_per_s)
        return self.rent(accelerator) * chips / (tokens_per_s * 3600) * 1e6


def known(figure: float | None) -> float:
    """A figure that a claim needs. FixtureError: the deployment has none, because it does not fit."""
    if figure is None:
        raise FixtureError("a claim is checked with a deployment that does not fit")
    return figure


def rate(estimate: Estimate) -> float:
    """Output tokens/s."""
    return known(estimate.output_tokens_per_s)


def mean_tpot_ms(estimate: Estimate) -> float:
    return known(estimate.tpot_ms.mean if estimate.tpot_ms else None)


Check = Callable[[Desk], Finding]


def judged(checks: dict[str, Check]) -> list[tuple[Claim, Finding]]:
    """All claims with their findings. Raises FixtureError if claims and checks do not match."""
    claims, desk = read(), Desk()
    if unmatched := set(checks) ^ {c.id for c in claims}:
        raise FixtureError(f"claims and checks differ in {', '.join(sorted(unmatched))}")
    return [(claim, checks[claim.id](desk)) for claim in claims]


# --- the page ---------------------------------------------------------------------------------------------------


def page(findings: Iterable[tuple[Claim, Finding]], day: object) -> str:
    """The Markdown of docs/reference/claims.md."""
    findings = list(findings)
    counts = Counter(finding.verdict for _, finding in findings)
    total = ", ".join(f"{counts[verdict]} {verdict}" for verdict in VERDICTS)
    lines = [
        "# Industry claims, checked", "",
        "Which common figures about AI hardware and serving are true?", "",
        "Generated by `python -m tests.claims --write-docs docs/reference/claims.md`; do not edit. Each claim is "
        "compared with "
        "what this engine and catalog compute. If the two differ, the last column gives the reason.", "",
        f"{len(findings)} claims: {total}. Prices as of {day}. Rental prices are the median over providers of each "
        "provider's lowest on-demand offer. Unless stated otherwise, a request has 1,000 input and 200 output "
        "tokens.", "",
        *(f"- **{verdict}**: {meaning}" for verdict, meaning in VERDICTS.items()), "",
        "## Refuted", "",
        *(f"- {c.id}: {c.claim} ([{c.subject}](#{c.subject}))" for c, f in findings if f.verdict == "refuted"), "",
    ]  # fmt: skip
    for subject in dict.fromkeys(c.subject for c, _ in findings):
        lines += [f"## {subject.capitalize()}", "", row(HEAD), row(["---"] * len(HEAD))]
        lines += [
            row([c.id, c.claim, stated_text(c), f.figure, f.verdict, f.reason])
            for c, f in findings
            if c.subject == subject
        ]
        lines.append("")
    lines += ["## Sources of the claims", "", SOURCE, ""]
    return "\n".join(lines)


def write(file: Path, findings: Iterable[tuple[Claim, Finding]]) -> None:
    """Writes the page."""
    file.write_text(page(findings, Desk().day), encoding="utf-8")


HEAD = ["", "claim", "stated", "computed", "verdict", "reason"]
SOURCE = (
    "The claims were collected for this project in November 2026 from texts about AI hardware and inference. "
    "`fixtures/claims.csv` contains the figures and their conditions, not the texts."
)


def stated_text(claim: Claim) -> str:
    value = f"{claim.stated} {claim.unit}".strip() or "no figure"
    return f"{value} ({claim.stated_conditions})" if claim.stated_conditions else value


def row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(text.replace("|", "\\|") for text in cells) + " |"
