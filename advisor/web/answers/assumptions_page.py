"""The assumptions of an answer as a form: change some, see what differs from the defaults, and ask again."""

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render

from advisor import advise
from advisor.engine.terms import kind_named
from advisor.result import Assumption
from advisor.templatetags.units import number, number_to_type, typed_number
from advisor.web.views import answer_of, finished, or_unreadable
from advisor.workload import PORTFOLIO, WorkloadError, parse
from catalog.accounts import Right, caller_of, needs, organisation_of

GROUPS = (  # title, and what the names of its assumptions contain; the first that fits
    ("Training runs", ("training",)),
    ("Scale to zero and starts", ("serverless", "cold-start", "-start-")),
    ("Staff", ("engineer", "operator", "staff", "team")),
    ("Energy and site", ("electricity", "pue", "power", "watts", "kwh", "colocation", "rack", "cooling", "grid")),
    ("Hosts and network", ("host", "server", "network", "storage", "egress", "disk", "cpu", "memory")),
    ("Resale and depreciation", ("residual", "depreciation", "resale", "service-years")),
    ("Prices, discounts and taxes", ("price", "rent", "discount", "tax", "vat", "commitment", "usd", "fraction")),
)  # fmt: skip
OTHER = "Other"
ALL = "*"  # the value of the button that resets every field


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One field: the assumption, its text, and how it differs from the default."""

    item: Assumption
    text: str
    error: str = ""

    @property
    def default(self) -> float | None:
        """The catalog's value; what the answer used where it has no other."""
        return number(self.item.value if self.item.default is None else self.item.default)

    @property
    def shown(self) -> str:
        """The text of the field."""
        return self.text if self.error else number_to_type(self.text)

    @property
    def differs(self) -> bool:
        return bool(self.text) and number(self.text) != self.default


def group_of(name: str) -> str:
    return next((title for title, parts in GROUPS if any(part in name for part in parts)), OTHER)


def editable(items: Sequence[Assumption]) -> list[Assumption]:
    """Those that are one number; lists and texts are set in the workload file."""
    return [item for item in items if isinstance(item.value, int | float) and not isinstance(item.value, bool)]


def written(value: object) -> str:
    figure = number(value)
    return "" if figure is None else f"{figure:.10g}"


def typed(item: Assumption, text: str) -> Row:
    try:
        return Row(item=item, text=typed_number(text))
    except ValueError as unclear:
        return Row(item=item, text=text, error=str(unclear))


def rows_of(items: Sequence[Assumption], given: Mapping[str, str], reset: str) -> list[Row]:
    """The fields as sent, or as the answer used them; `reset` names the one to put back to its default, or all."""
    rows = []
    for item in items:
        row = typed(item, given[item.name].strip()) if item.name in given else Row(item=item, text=written(item.value))
        if reset in (item.name, ALL) or not row.text:
            row = Row(item=item, text=written(row.default))
        elif not row.error and number(row.text) is None:
            row = Row(item=item, text=row.text, error="Enter a number.")
        rows.append(row)
    return rows


def changed(spec: dict[str, Any], rows: Sequence[Row]) -> dict[str, Any]:
    """The workload with these assumptions; one at its default leaves the workload, so that it follows the catalog."""
    made = copy.deepcopy(spec)
    for row in rows:
        if number(row.text) == number(row.item.value):
            continue
        if not row.differs and row.item.default is not None:
            made["tco"].pop(row.item.name, None)
        else:
            made["tco"][row.item.name] = number(row.text)
    return parse(made)


def grouped(rows: Sequence[Row], trains: bool) -> Iterator[tuple[str, list[Row]]]:
    """The groups that have fields, in the order of GROUPS; those of training runs last for other questions."""
    titles = [title for title, _ in GROUPS]
    for title in (*titles, OTHER) if trains else (*titles[1:], OTHER, titles[0]):
        if found := [row for row in rows if group_of(row.item.name) == title]:
            yield title, found


@needs(Right.PLAN, "advice-list")
@or_unreadable
def page(request: HttpRequest, pk: Any) -> HttpResponse:
    """The form; `run` asks again with what it holds, every other button shows it again."""
    caller = caller_of(request)
    advice = finished(organisation_of(request), pk)
    answer, sent = answer_of(advice), request.POST
    given = {key.removeprefix("a:"): str(value) for key, value in sent.items() if key.startswith("a:")}
    rows = rows_of(editable(answer.assumptions), given, sent.get("reset", ""))
    wrong: list[str] = []
    if "run" in sent and not any(row.error for row in rows):
        try:
            spec = changed(advice.workload.spec, rows)
            return redirect(
                "advice", advise.request(spec, caller.organisation, supersedes=advice, made_by=caller.name).pk
            )
        except advise.QueueFull as error:
            messages.error(request, str(error))
        except WorkloadError as trouble:
            wrong = [f"{each['field'].removeprefix('tco.')}: {each['message']}" for each in trouble.errors]
    kind = advice.workload.spec.get("kind")
    trains = kind != PORTFOLIO and kind_named(kind).trains
    context = {
        "advice": advice,
        "groups": list(grouped(rows, trains)),
        "differing": [row for row in rows if row.differs],
        "errors": [*wrong, *(f"{row.item.name}: {row.error}" for row in rows if row.error)],
        "fixed": len(answer.assumptions) - len(rows),
    }
    refused = bool(context["errors"]) and "run" in sent
    return render(request, "advisor/assumptions.html", context, status=422 if refused else 200)
