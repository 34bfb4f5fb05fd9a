"""Saved views: filters, sorting and columns of a list under a name, for everyone in an organization."""

from dataclasses import dataclass
from typing import Any

from catalog.accounts import organisation_of
from catalog.models import SavedView

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
