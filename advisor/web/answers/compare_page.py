"""The page that compares two to four answers, options or scenarios, and its CSV."""

import re
from collections.abc import Sequence
from urllib.parse import urlencode
from uuid import UUID

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from advisor import advise
from advisor.web.answers import comparison
from advisor.web.answers.comparison import LETTERS, Item
from advisor.web.views import answer_of, is_uuid, or_unreadable
from catalog.accounts import organisation_of
from catalog.lists import export
from catalog.models import Organisation

KEY = re.compile(r"([0-9a-f-]{36})(?::([0-9]{1,4}))?(?:@(.{1,60}))?")  # answer, rank, name of a scenario
UNKNOWN_ITEM = "There is no such answer, option or scenario."


def items_of(organisation: Organisation, keys: Sequence[str]) -> list[Item]:
    """The items that the address names; 404 where the organization has no such answer, option or scenario."""
    parsed = [KEY.fullmatch(key) for key in keys]
    if not all(found and is_uuid(found[1]) for found in parsed):
        raise Http404(UNKNOWN_ITEM)
    named = [(UUID(found[1]), found[2], found[3]) for found in parsed if found]
    visible = advise.visible(organisation).defer("result", "snapshot")
    rows = {row.pk: row for row in visible.filter(pk__in={pk for pk, _, _ in named})}
    if any(pk not in rows for pk, _, _ in named):
        raise Http404(UNKNOWN_ITEM)
    answers = {pk: answer_of(row) if row.is_done else None for pk, row in rows.items()}
    items = []
    for letter, key, (pk, rank, scenario) in zip(LETTERS, keys, named, strict=False):
        answer = answers[pk]
        chosen = next((each for each in answer.scenarios if each.name == scenario), None) if answer else None
        item = Item(
            letter=letter, key=key, advice=rows[pk], answer=answer, rank=int(rank) if rank else None, scenario=chosen
        )
        if (rank and item.option is None) or (scenario and item.scenario_cost is None):
            raise Http404(UNKNOWN_ITEM)
        items.append(item)
    return items


@never_cache
@require_safe
@or_unreadable
def page(request: HttpRequest) -> HttpResponse:
    keys = keys_of(request.GET.getlist("item"))
    if not comparison.LEAST <= len(keys) <= comparison.MOST:
        return render(request, "advisor/compare.html", {"given": len(keys)}, status=422)
    items = items_of(organisation_of(request), keys)
    if request.GET.get("format") == "csv":
        return csv_file(items)
    show_all = request.GET.get("question") == "all"
    address = reverse("compare")
    context = {
        "items": [(item, remove_url(address, keys, item.key)) for item in items],
        "cautions": comparison.cautions(items),
        "question": comparison.question(items, show_all),
        "show_all": show_all,
        "groups": comparison.groups(items),
        "columns": len(items) + 1,
        "query": urlencode({"item": keys}, doseq=True),
    }
    return render(request, "advisor/compare.html", context)


def keys_of(given: Sequence[str]) -> list[str]:
    """The items of an address, each once."""
    return list(dict.fromkeys(key.strip().lower() if "@" not in key else key for key in given))


def csv_file(items: Sequence[Item]) -> HttpResponse:
    names, lines = comparison.table(items)
    headers = {"Content-Disposition": 'attachment; filename="comparison.csv"'}
    return HttpResponse(export.text(names, lines), content_type="text/csv; charset=utf-8", headers=headers)


def remove_url(address: str, keys: Sequence[str], key: str) -> str:
    """The comparison without one item; empty where too few would be left."""
    if len(keys) <= comparison.LEAST:
        return ""
    return f"{address}?{urlencode({'item': [each for each in keys if each != key]}, doseq=True)}"
