"""What the page of a list shows about its filters: facets with counts, and the active filters."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from django.http import QueryDict

from catalog.lists.address import without

SHOWN_OPTIONS = 12  # of a facet; the rest opens on demand


@dataclass(frozen=True, kw_only=True, slots=True)
class Option:
    value: str
    label: str
    count: int | None  # None: it stands for several values
    is_chosen: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Facet:
    name: str
    title: str
    options: tuple[Option, ...]
    more: tuple[Option, ...]
    errors: Any

    @property
    def chosen_count(self) -> int:
        return sum(option.is_chosen for option in (*self.options, *self.more))


@dataclass(frozen=True, kw_only=True, slots=True)
class Chip:
    """An active filter, and the query string without it."""

    title: str
    label: str
    query: str


def facets(filterset: Any) -> list[Facet]:
    counts = filterset.counts()
    return [facet(filterset, name, counts.get(name, {})) for name in filterset.facet_filters]


def facet(filterset: Any, name: str, counted: dict[str, int]) -> Facet:
    """The values that leave rows or are chosen: named ones in their order, others by count."""
    words, chosen = filterset.filters[name].words, filterset.chosen().get(name, set())
    names = list(words) or sorted({*counted, *chosen}, key=lambda value: (-counted.get(value, 0), value))
    options = [
        Option(
            value=value,
            label=words.get(value, value),
            count=None if value in filterset.stands_for else counted.get(value, 0),
            is_chosen=value in (filterset.form.cleaned_data.get(name) or ()) or value in chosen,
        )
        for value in names
        if value in filterset.stands_for or counted.get(value) or value in chosen
    ]
    first = [each for n, each in enumerate(options) if n < SHOWN_OPTIONS or each.is_chosen]
    return Facet(
        name=name,
        title=filterset.filters[name].title,
        options=tuple(first),
        more=tuple(each for each in options if each not in first),
        errors=filterset.form.errors.get(name, ""),
    )


def chips(filterset: Any, query: QueryDict) -> list[Chip]:
    """Every active filter but the search, which its field shows."""
    return list(_chips(filterset, query))


def _chips(filterset: Any, query: QueryDict) -> Iterator[Chip]:
    for name, value in filterset.form.cleaned_data.items():
        if value in (None, "", []) or name == "search":
            continue
        each = filterset.filters[name]
        words = getattr(each, "words", None)
        if words is None:
            choices = dict(each.extra.get("choices", ()))
            given = query.get(name, "")
            yield Chip(title=str(each.label), label=str(choices.get(given, given)), query=without(query, name))
            continue
        for one in value:
            yield Chip(title=each.title, label=words.get(one, one), query=without(query, name, one))
