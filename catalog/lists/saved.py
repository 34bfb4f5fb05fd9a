"""Saved views: filters, sorting and columns of a list under a name, for everyone in an organization."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.db import transaction

from catalog.accounts import organisation_of
from catalog.models import Organisation, SavedView

MAX_VIEWS = 50  # of one list in one organization


@dataclass(frozen=True, slots=True)
class View:
    name: str
    query: str
    is_open: bool


def of_list(request: Any, name: str) -> list[View]:
    """The organization's views of a list. The page is kept for each viewer and each state of the catalog."""
    rows = SavedView.objects.filter(organisation=organisation_of(request), list_name=name).order_by("name")
    here = request.META.get("QUERY_STRING", "")
    return [View(row.name, f"?{row.query}", row.query == here) for row in rows[:MAX_VIEWS]]


class TooMany(ValueError):
    """A list has MAX_VIEWS views."""


@transaction.atomic
def save(owner: Organisation, given: Mapping[str, str], by: str) -> SavedView:
    """Stores the view `list_name`, `name`, `query`. Raises TooMany.

    It replaces one of the same name: a new row, so that kept pages are made again.
    """
    rows = SavedView.objects.filter(organisation=owner, list_name=given["list_name"])
    if rows.exclude(name=given["name"]).count() >= MAX_VIEWS:
        raise TooMany(f"There are {MAX_VIEWS} views of this list. Delete one first.")
    rows.filter(name=given["name"]).delete()
    names = ("list_name", "name", "query")
    return SavedView.objects.create(organisation=owner, made_by=by, **{name: given[name] for name in names})
