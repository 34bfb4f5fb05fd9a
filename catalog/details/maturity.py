"""Framework maturity, from its first release date and its number of releases; unknown without these facts."""

from dataclasses import dataclass
from datetime import date

from catalog.models import Framework

# (level, minimum years since the first release, minimum releases), highest level first.
RULE = (("established", 3.0, 40), ("maturing", 1.5, 15), ("young", 0.0, 1))


@dataclass(frozen=True, kw_only=True, slots=True)
class Maturity:
    """A maturity level with its reason."""

    level: str  # established | maturing | young | unknown
    reason: str


def maturity(row: Framework) -> Maturity:
    """The maturity of one framework row."""
    facts = row.settings
    counted_on = row.sources["facts"]["as_of"] if "facts" in row.sources else ""
    return maturity_of(facts.get("first_release"), facts.get("releases"), counted_on)


def maturity_of(first_release: str | None, releases: int | None, counted_on: str) -> Maturity:
    """The maturity on the day the releases were counted. Dates are ISO dates."""
    if not first_release or not releases:
        return Maturity(level="unknown", reason="release history not in the catalog")
    years = (date.fromisoformat(counted_on) - date.fromisoformat(first_release)).days / 365.25
    level = next(level for level, min_years, min_count in RULE if years >= min_years and releases >= min_count)
    return Maturity(level=level, reason=f"{releases} releases in {years:.1f} years, counted {counted_on}")


def rule_text() -> str:
    """The rule in words, for the framework page."""
    parts = [f"{level}: at least {years:g} years and {releases} releases" for level, years, releases in RULE]
    return "; ".join(parts) + "; unknown without these figures"
