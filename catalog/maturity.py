"""How settled is a framework? A rule over facts that can be counted and dated; without the facts, unknown."""

from dataclasses import dataclass
from datetime import date

from catalog.models import Framework

# At least so many years since the first release, and so many releases, for each word; the first that holds.
RULE = (("established", 3.0, 40), ("maturing", 1.5, 15), ("young", 0.0, 1))


@dataclass(frozen=True, kw_only=True, slots=True)
class Maturity:
    """A word, and the facts that it follows from."""

    word: str  # established | maturing | young | unknown
    because: str


def maturity(row: Framework) -> Maturity:
    """The rule on the dated facts of this row."""
    facts = row.settings
    counted = row.sources["facts"]["as_of"] if "facts" in row.sources else ""
    return judged(facts.get("first_release"), facts.get("releases"), counted)


def judged(first_release: str | None, releases: int | None, counted_on: str) -> Maturity:
    """The rule on facts that were counted on this day; days are ISO dates."""
    if not first_release or not releases:
        return Maturity(word="unknown", because="the row does not state the first release and the number of releases")
    years = (date.fromisoformat(counted_on) - date.fromisoformat(first_release)).days / 365.25
    word = next(word for word, least_years, least in RULE if years >= least_years and releases >= least)
    return Maturity(word=word, because=f"{releases} releases in {years:.1f} years, counted {counted_on}")


def rule_words() -> str:
    """The rule as a sentence."""
    parts = [f"{word}: {years:g} years and {releases} releases or more" for word, years, releases in RULE]
    return "; ".join(parts) + "; unknown where they are not counted"
