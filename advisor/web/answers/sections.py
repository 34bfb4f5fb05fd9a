"""The sections of an answer and of an option: one page each, by question."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True, slots=True)
class Section:
    """One page of an answer."""

    slug: str  # of the address: ?section=cost
    title: str
    template: str


def sections_of(kind: str, titles: Sequence[tuple[str, str]]) -> tuple[Section, ...]:
    """The sections of a kind of page; the templates are in a folder of that name."""
    return tuple(
        Section(slug=slug, title=title, template=f"advisor/sections/{kind}/{slug}.html") for slug, title in titles
    )


TITLES = (
    ("why", "Why this"),
    ("performance", "Performance"),
    ("cost", "Cost"),
    ("run", "How to run it"),
    ("confidence", "Confidence"),
    ("alternatives", "Alternatives"),
)
SERVING, TRAINING = sections_of("answer", TITLES), sections_of("training", TITLES)
PORTFOLIO = sections_of("portfolio", (("why", "The fleet"), ("cost", "Cost"), ("confidence", "Sources")))
OF_NOTHING = (("alternatives", "Why nothing fits"), ("confidence", "Sources"))
NOTHING, NO_RUN = sections_of("answer", OF_NOTHING), sections_of("training", OF_NOTHING)
OF_OPTIONS = (*TITLES[:3], ("plan", "Payment plan"), *TITLES[3:])
OPTION, RUN = sections_of("option", OF_OPTIONS), sections_of("run", OF_OPTIONS)


EXPLAINING = {"why", "alternatives"}  # slugs of the sections that are shown only once the answer is complete


def asked_for(sections: Sequence[Section], slug: str) -> tuple[Section, ...]:
    """The section of a request: the one named, or the first."""
    return next(((section,) for section in sections if section.slug == slug), tuple(sections[:1]))


def context(sections: Sequence[Section], slug: str) -> dict[str, Any]:
    """What the navigation and the page show: `parts` are the sections on it."""
    shown = asked_for(sections, slug)
    return {
        "sections": sections,
        "parts": shown,
        "section": shown[0].slug,
        "is_first": shown[0] is sections[0],
    }


def needs(parts: Iterable[Section], *slugs: str) -> bool:
    """Whether one of these sections is on the page."""
    return any(section.slug in slugs for section in parts)
