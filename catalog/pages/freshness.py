"""The page on how fresh the catalog is."""

from django.http import HttpRequest, HttpResponse
from django.views.decorators.cache import never_cache

from catalog.accounts import caller_of
from catalog.details import freshness
from catalog.models import Organisation
from catalog.pages.lists import page


@never_cache  # refreshes change it without a change of the catalog
def overview(request: HttpRequest) -> HttpResponse:
    """Newest date and version of each kind of data."""
    return page(
        request,
        "freshness",
        {"name": "freshness", "found": freshness.found(caller_of(request).organisation or Organisation())},
    )
