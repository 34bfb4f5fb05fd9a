"""The scorecard as a page, as files and over REST: the same filters in the address everywhere."""

import functools
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from django import forms
from django.http import HttpRequest, HttpResponse, JsonResponse, QueryDict
from django.shortcuts import render
from django.views.decorators.http import require_safe
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework import exceptions, views
from rest_framework.request import Request
from rest_framework.response import Response

from advisor.api import Pages, Unprocessable, problems
from advisor.fidelity import PEERS, REASONS, Card, Json, Line, scorecard
from advisor.web import fidelity_chart
from catalog.export import text
from catalog.listing import refuse_empty, refuse_unknown

Pairs = tuple[tuple[str, str], ...]  # of the address: (name, value)
LABELS: Mapping[str, str] = {
    "metric": "Metric",
    "accelerator": "Chip",
    "family": "Chip family",
    "model": "Model",
    "framework": "Framework",
    "version": "Framework version",
    "phase": "Phase",
    "basis": "Evidence",
    "source": "Source",
}
DISPUTED = (("", "Included"), ("without", "Excluded"), ("only", "Only disputed"))
COLUMNS: Mapping[str, str] = {  # of a table of groups: what it is sorted by -> heading
    "name": "",
    "n": "Rows",
    "median_ape": "Median error",
    "group_median_ape": "Median of groups",
    "p90_ape": "p90 error",
    "bias": "Bias",
    "coverage_90": "Inside 90 %",
}
MOST_IDS = 200


class Narrow(forms.Form):
    """What the scorecard is narrowed by; an unknown value is an error beside its field."""

    def __init__(self, data: Any, found: Card) -> None:
        super().__init__(data)
        values = values_of(found.head.digest)
        for name, title in LABELS.items():
            choices = [("", "Any"), *((value, value) for value in values[name])]
            self.fields[name] = forms.ChoiceField(choices=choices, required=False, label=title)
        self.fields["disputed"] = forms.ChoiceField(choices=DISPUTED, required=False, label="Disputed rows")


@functools.lru_cache(maxsize=1)
def values_of(digest: str) -> Mapping[str, list[str]]:
    found = scorecard.card()
    return scorecard.choices(found.lines if found else ())


def ids_of(query: QueryDict) -> list[str]:
    """The rows that are named in the address, each once."""
    return list(dict.fromkeys(each for part in query.getlist("id") for each in part.split(",") if each))[:MOST_IDS]


# --- page -------------------------------------------------------------------------------------------------------


@require_safe
def page(request: HttpRequest) -> HttpResponse:
    """The scorecard; ?format=csv or json: its rows as a file."""
    found = scorecard.card()
    if found is None:
        return render(request, "advisor/fidelity.html", {"head": None})
    form = Narrow(request.GET, found)
    form.is_valid()
    asked = tuple((name, value) for name, value in form.cleaned_data.items() if value)
    keys = tuple(ids_of(request.GET))
    if (kind := request.GET.get("format", "")) in ("csv", "json"):
        return saved(scorecard.narrowed(found.lines, dict(asked), keys), kind)
    sort = request.GET.get("sort", "")
    return render(request, "advisor/fidelity.html", {"form": form, **context(found, asked, keys, sort)})


def context(found: Card, asked: Pairs, keys: tuple[str, ...], sort: str) -> Json:
    measures = measured(found.head.digest, asked, keys)
    targets = scorecard.against_targets(found)
    named = (("id", ",".join(keys)),) if keys else ()
    return measures | {
        "head": found.head,
        "keys": keys,
        "sort": sort,
        "total": len(found.lines),
        "targets": targets,
        "missed": sum(target["met"] is False for target in targets),
        "judged": sum(target["met"] is not None for target in targets),
        "tables": [table(groups, by, asked, named, sort) for by, groups in measures["groups"].items()],
        "left_out": left_out(found),
        "peers": PEERS,
        "save": address((*asked, *named)),
    }


@functools.lru_cache(maxsize=32)
def measured(digest: str, asked: Pairs, keys: tuple[str, ...]) -> Json:
    """What follows from the narrowed rows; kept, because the whole card takes a quarter of a second."""
    found = scorecard.card()
    assert found is not None
    lines = scorecard.narrowed(found.lines, dict(asked), keys)
    colour = fidelity_chart.hues(lines)
    return {
        "count": len(lines),
        "overall": scorecard.figures(lines),
        "groups": {by: scorecard.groups(lines, by) for by in scorecard.GROUPINGS},
        "pictures": fidelity_chart.pictures(lines),
        "chips": [(chip, hue) for chip, hue in colour.items() if hue < fidelity_chart.HUES],
        "other_chips": sum(hue == fidelity_chart.HUES for hue in colour.values()),
        "rows": [shown(line, found) for line in (lines if keys else scorecard.worst(lines))],
        "coverage": scorecard.coverage(lines),
    }


def table(found: list[Json], by: str, asked: Pairs, named: Pairs, sort: str) -> Json:
    """One table of groups with the addresses of its headings and of its groups."""
    heads = [
        {
            "title": title or scorecard.GROUPINGS[by],
            "href": address((*asked, *named, ("sort", following(column, sort)))),
            "aria": {column: "ascending", f"-{column}": "descending"}.get(sort, "none"),
            "num": column != "name",
        }
        for column, title in COLUMNS.items()
    ]
    kept = tuple(pair for pair in asked if pair[0] != by) + ((("sort", sort),) if sort else ())
    groups = [
        group | {"href": address((*kept, (by, group["name"]))) if group["name"] else ""}
        for group in scorecard.ordered(found, sort)
    ]
    return {"by": by, "title": scorecard.GROUPINGS[by], "heads": heads, "groups": groups}


def following(column: str, sort: str) -> str:
    """What a heading sorts by next: names upwards first, figures downwards first."""
    first, second = (column, f"-{column}") if column == "name" else (f"-{column}", column)
    return second if sort == first else first


def address(pairs: Pairs) -> str:
    return "?" + urlencode(pairs)


def shown(line: Line, found: Card) -> Json:
    """A row with its reason in words and its source by name."""
    row = line.row
    reason = f"disputed: {row.note}" if row.circumstance == "disputed" else REASONS.get(row.circumstance, "")
    source = found.head.sources.get(row.source_key) or {}
    return {"row": row, "ape": line.point.ape, "reason": reason, "source": source}


def left_out(found: Card) -> list[Json]:
    """The fit's own cross-validation as tables."""
    return [
        {
            "title": title,
            "kinds": (kinds := list(dict.fromkeys(kind for errors in lines.values() for kind in errors))),
            "lines": [(name, [errors.get(kind) for kind in kinds]) for name, errors in lines.items()],
        }
        for title, lines in found.head.left_out.items()
    ]


def saved(lines: list[Line], kind: str) -> HttpResponse:
    rows = [scorecard.row_json(line) for line in lines]
    if kind == "json":
        response: HttpResponse = JsonResponse({"count": len(rows), "results": rows})
    else:
        names = list(rows[0]) if rows else ["id"]
        body = text(names, [[row[name] for name in names] for row in rows])
        response = HttpResponse(body, content_type="text/csv; charset=utf-8")
    response["Content-Disposition"] = f'attachment; filename="fidelity.{kind}"'
    return response


# --- REST -------------------------------------------------------------------------------------------------------

PARAMETERS = [
    *(OpenApiParameter(name, OpenApiTypes.STR, description=f"{title}, exactly") for name, title in LABELS.items()),
    OpenApiParameter("disputed", OpenApiTypes.STR, enum=["without", "only"], description="Rows that contradict others"),
    OpenApiParameter("id", OpenApiTypes.STR, description=f"Rows by id, comma-separated, at most {MOST_IDS}"),
]
SORTS = [*COLUMNS, *(f"-{name}" for name in COLUMNS)]
SORT = OpenApiParameter("sort", OpenApiTypes.STR, enum=SORTS, description="Of the groups; '-' for descending")


def asked_rows(request: Request) -> tuple[Card, list[Line]]:
    """The scorecard and its narrowed rows; 404 without one, 422 for a value that no row has."""
    found = scorecard.card()
    if found is None:
        raise exceptions.NotFound("No scorecard is loaded: run manage.py load_catalog.")
    form = Narrow(request.query_params, found)
    refuse_unknown(request, {*form.fields, "id", "sort", "limit", "offset", "format"}, repeatable=("id",))
    refuse_empty(request, ("disputed", "sort"))
    if (sort := request.query_params.get("sort")) and sort not in SORTS:
        raise exceptions.ValidationError({"sort": [f"There is no such column; there are {', '.join(COLUMNS)}."]})
    if not form.is_valid():
        wrong = {name: [str(each) for each in errors] for name, errors in form.errors.items()}
        raise exceptions.ValidationError(wrong) if "disputed" in wrong else Unprocessable(wrong)
    return found, scorecard.narrowed(found.lines, form.cleaned_data, ids_of(request.query_params))


class Fidelity(views.APIView):
    @extend_schema(
        operation_id="getFidelity",
        summary="How far predictions are from measured figures",
        description="Errors over the rows that fit the filters, by group; targets are over all rows.",
        parameters=[*PARAMETERS, SORT],
        responses={200: OpenApiResponse(OpenApiTypes.OBJECT), **problems(400, 404, 406, 422)},
    )
    def get(self, request: Request) -> Response:
        found, lines = asked_rows(request)
        sort = request.query_params.get("sort", "")
        return Response(
            {
                "engine_version": found.head.engine_version,
                "calibration": found.head.calibration,
                "as_of": found.head.as_of.isoformat(),
                "rows": len(found.lines),
                "skipped": found.head.skipped,
                "overall": scorecard.figures(lines),
                "groups": {by: scorecard.ordered(scorecard.groups(lines, by), sort) for by in scorecard.GROUPINGS},
                "coverage": scorecard.coverage(lines),
                "worst": [scorecard.row_json(line) for line in scorecard.worst(lines)],
                "targets": scorecard.against_targets(found),
                "left_out": found.head.left_out,
                "intervals": found.head.intervals,
                "peers": [
                    dict(zip(("system", "error", "conditions", "stated_in"), peer, strict=True)) for peer in PEERS
                ],
                "sources": found.head.sources,
            }
        )


class FidelityRows(views.APIView):
    @extend_schema(
        operation_id="listFidelityRows",
        summary="The scored rows, measured beside predicted",
        parameters=[
            *PARAMETERS,
            OpenApiParameter("limit", {"type": "integer", "minimum": 1}),
            OpenApiParameter("offset", {"type": "integer", "minimum": 0}),
        ],
        responses={200: OpenApiResponse(OpenApiTypes.OBJECT), **problems(400, 404, 406, 422)},
    )
    def get(self, request: Request) -> Response:
        _, lines = asked_rows(request)
        pages = Pages()
        shown_lines: Any = pages.paginate_queryset(lines, request, view=self)
        return pages.get_paginated_response([scorecard.row_json(line) for line in shown_lines])
