"""The page on how fresh the catalog is."""

from django.http import HttpRequest, HttpResponse

from catalog.details import freshness
from catalog.pages.lists import page
from catalog.revision import kept


@kept
def overview(request: HttpRequest) -> HttpResponse:
    """Newest date and version of each kind of data."""
    return page(request, "freshness", {"name": "freshness", "found": freshness.found()})
