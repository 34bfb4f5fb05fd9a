"""The scorecard as a page, as files and over REST, with the same filters in the URL."""

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

from advisor.api import Pages
from advisor.fidelity import Card, Json, Line, scorecard, stored
from advisor.web.charts import fidelity as fidelity_chart
from catalog.lists import export
from catalog.rest import PAGE, Unprocessable, problems, refuse_empty, refuse_unknown
from catalog.revision import kept

Pairs = tuple[tuple[str, str], ...]  # query parameters: (name, value)
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
COLUMNS: Mapping[str, str] = {  # sort key -> heading, for tables of groups
    "name": "",
    "n": "Rows",
    "median_ape": "Median error",
    "group_median_ape": "Median of groups",
    "p90_ape": "p90 error",
    "bias": "Bias",
    "coverage_90": "Inside 90%",
}
MAX_IDS = 200
QUESTION = "for_"  # prefix of the query parameters that name the chip, model and framework of a question
LIKE = (
    ("accelerator", "model", "framework"),
    ("accelerator", "framework"),
    ("accelerator",),
    ("framework",),
    ("model",),
)


class FilterForm(forms.Form):
    """The filters of the scorecard; an unknown value is an error of its field."""

    def __init__(self, data: Any, card: Card) -> None:
        super().__init__(data)
        values = values_of(card.head.digest)
        for name, title in LABELS.items():
            choices = [("", "Any"), *((value, value) for value in values[name])]
            self.fields[name] = forms.ChoiceField(choices=choices, required=False, label=title)
        self.fields["disputed"] = forms.ChoiceField(choices=DISPUTED, required=False, label="Disputed rows")


@functools.lru_cache(maxsize=1)
def values_of(digest: str) -> Mapping[str, list[str]]:
    card = scorecard.card()
    return scorecard.filter_choices(card.lines if card else ())


def ids_of(query: QueryDict) -> list[str]:
    """The row IDs in the URL, without duplicates."""
    return list(dict.fromkeys(row_id for part in query.getlist("id") for row_id in part.split(",") if row_id))[:MAX_IDS]


# --- page -------------------------------------------------------------------------------------------------------


@require_safe
@kept
def page(request: HttpRequest) -> HttpResponse:
    """The scorecard page; with ?format=csv or json, its rows as a file."""
    card = scorecard.card()
    if card is None:
        return render(request, "advisor/fidelity.html", {"head": None})
    form = FilterForm(request.GET, card)
    form.is_valid()
    filters = tuple((name, value) for name, value in form.cleaned_data.items() if value)
    keys = tuple(ids_of(request.GET))
    if (file_format := request.GET.get("format", "")) in ("csv", "json"):
        return saved(scorecard.filtered(card.listed(keys), dict(filters), keys), file_format)
    sort = request.GET.get("sort", "")
    asked = tuple((name, request.GET.get(QUESTION + name, "")) for name in LIKE[0])
    question = {"question": for_question(card, asked), "asks": choices_of_question(card, dict(asked))}
    return render(request, "advisor/fidelity.html", {"form": form, **context(card, filters, keys, sort), **question})


def for_question(card: Card, asked: Pairs) -> list[Json]:
    """Errors of the rows with the chip, model and framework of a question, then of those that share less with it."""
    named = {name: value for name, value in asked if value}
    shared = dict.fromkeys(tuple(name for name in names if name in named) for names in LIKE)
    found = []
    for names in filter(None, shared):
        same = tuple((name, named[name]) for name in names)
        lines = scorecard.filtered(card.lines, dict(same) | {"disputed": "without"})
        found.append({
            "said": ", ".join(value for _, value in same),
            "href": address(same) + "#narrow-title",
            "groups": len({line.point.group for line in lines}),
            "figures": scorecard.figures(lines) if lines else None,
        })  # fmt: skip
    return found


def choices_of_question(card: Card, asked: Mapping[str, str]) -> list[Json]:
    """The fields of the question, with the values that rows have and the one that is asked for."""
    values = values_of(card.head.digest)
    return [
        {"name": QUESTION + name, "label": LABELS[name], "values": values[name], "asked": asked[name]}
        for name in LIKE[0]
    ]


def context(card: Card, filters: Pairs, keys: tuple[str, ...], sort: str) -> Json:
    measures = measured(card.head.digest, filters, keys)
    targets = scorecard.against_targets(card)
    ids = (("id", ",".join(keys)),) if keys else ()
    return measures | {
        "head": card.head,
        "keys": keys,
        "sort": sort,
        "total": len(card.lines),
        "targets": targets,
        "missed": sum(target["met"] is False for target in targets),
        "judged": sum(target["met"] is not None for target in targets),
        "tables": [table(groups, by, filters, ids, sort) for by, groups in measures["groups"].items()],
        "left_out": left_out(card),
        "reliability": probabilities(),
        "peers": stored.PEERS,
        "same_rows": stored.peers_on_the_same_rows(card.head.digest),
        "decisions": stored.track_record_shown(),
        "save": address((*filters, *ids)),
    }


def same_rows_json(entry: Json) -> Json:
    """An entry of `peers_on_the_same_rows` with the errors of the tool and of Assay apart."""
    ours = {"peer": 0, "assay": 1}
    return {
        **{key: value for key, value in entry.items() if key != "errors"},
        **{who: {key: pair[i] for key, pair in entry["errors"].items()} for who, i in ours.items()},
    }


@functools.lru_cache(maxsize=32)
def measured(digest: str, filters: Pairs, keys: tuple[str, ...]) -> Json:
    """Everything that depends on the filters only. Cached: all rows take a quarter of a second."""
    card = scorecard.card()
    assert card is not None
    lines = scorecard.filtered(card.listed(keys), dict(filters), keys)
    hues = fidelity_chart.hues(lines)
    return {
        "count": len(lines),
        "overall": scorecard.figures(lines),
        "groups": {by: scorecard.groups(lines, by) for by in scorecard.GROUPINGS},
        "pictures": fidelity_chart.pictures(lines),
        "chips": [(chip, hue) for chip, hue in hues.items() if hue < fidelity_chart.HUES],
        "other_chips": sum(hue == fidelity_chart.HUES for hue in hues.values()),
        "rows": [shown(line, card) for line in (lines if keys else scorecard.worst(lines))],
        "coverage": scorecard.coverage(lines),
    }


def table(summaries: list[Json], by: str, filters: Pairs, ids: Pairs, sort: str) -> Json:
    """One table of groups, with the URLs of its headings and groups."""
    heads = [
        {
            "title": title or scorecard.GROUPINGS[by],
            "href": address((*filters, *ids, ("sort", next_sort(column, sort)))),
            "aria": {column: "ascending", f"-{column}": "descending"}.get(sort, "none"),
            "num": column != "name",
        }
        for column, title in COLUMNS.items()
    ]
    filters = tuple(pair for pair in filters if pair[0] != by) + ((("sort", sort),) if sort else ())
    groups = [
        group | {"href": address((*filters, (by, group["name"]))) if group["name"] else ""}
        for group in scorecard.sorted_groups(summaries, sort)
    ]
    return {"by": by, "title": scorecard.GROUPINGS[by], "heads": heads, "groups": groups}


def next_sort(column: str, sort: str) -> str:
    """The sort key for a click on a heading: names start ascending, figures descending."""
    first, second = (column, f"-{column}") if column == "name" else (f"-{column}", column)
    return second if sort == first else first


def address(pairs: Pairs) -> str:
    return "?" + urlencode(pairs)


def shown(line: Line, card: Card) -> Json:
    """A row with the likely reason for its error and its source."""
    row = line.row
    reason = f"disputed: {row.note}" if row.circumstance == "disputed" else stored.REASONS.get(row.circumstance, "")
    source = card.head.sources.get(row.source_key) or {}
    return {"row": row, "ape": line.point.ape, "reason": reason, "source": source}


@functools.lru_cache(maxsize=1)
def probabilities() -> tuple[Json, ...]:
    """Predicted probabilities of meeting limits, and how often held-out groups meet them."""
    tables = stored.fit_scores().get("reliability") or {}
    most = stored.MOST_CALIBRATION_ERROR
    return tuple(
        {"basis": basis, "figure": name, **table, "met": table["calibration_error"] <= most}
        for basis, figures in tables.items()
        for name, table in figures.items()
    )


def left_out(card: Card) -> list[Json]:
    """The cross-validation of the fit as tables."""
    return [
        {
            "title": title,
            "kinds": (kinds := list(dict.fromkeys(kind for errors in lines.values() for kind in errors))),
            "lines": [(name, [errors.get(kind) for kind in kinds]) for name, errors in lines.items()],
        }
        for title, lines in card.head.left_out.items()
    ]


def saved(lines: list[Line], kind: str) -> HttpResponse:
    rows = [scorecard.row_json(line) for line in lines]
    if kind == "json":
        response: HttpResponse = JsonResponse({"count": len(rows), "results": rows})
    else:
        names = list(rows[0]) if rows else ["id"]
        body = export.text(names, [[row[name] for name in names] for row in rows])
        response = HttpResponse(body, content_type="text/csv; charset=utf-8")
    response["Content-Disposition"] = f'attachment; filename="fidelity.{kind}"'
    return response


# --- REST -------------------------------------------------------------------------------------------------------

PARAMETERS = [
    *(OpenApiParameter(name, OpenApiTypes.STR, description=f"{title} (exact match)") for name, title in LABELS.items()),
    OpenApiParameter(
        "disputed", OpenApiTypes.STR, enum=["without", "only"], description="Exclude disputed rows, or only these"
    ),
    OpenApiParameter("id", OpenApiTypes.STR, description=f"Row IDs, comma-separated, at most {MAX_IDS}"),
]
SORTS = [*COLUMNS, *(f"-{name}" for name in COLUMNS)]
SORT = OpenApiParameter(
    "sort", OpenApiTypes.STR, enum=SORTS, description="Sort key of the groups; '-' in front for descending"
)


def asked_rows(request: Request) -> tuple[Card, list[Line]]:
    """The scorecard and its filtered rows. Raises 404 without a scorecard and 422 for a value that no row has."""
    card = scorecard.card()
    if card is None:
        raise exceptions.NotFound("No scorecard is loaded: run manage.py load_catalog.")
    form = FilterForm(request.query_params, card)
    refuse_unknown(request, {*form.fields, "id", "sort", *PAGE}, repeatable=("id",))
    refuse_empty(request, ("disputed", "sort"))
    if (sort := request.query_params.get("sort")) and sort not in SORTS:
        raise exceptions.ValidationError({"sort": [f"There is no such column. Columns: {', '.join(COLUMNS)}."]})
    if not form.is_valid():
        errors = {name: [str(message) for message in messages] for name, messages in form.errors.items()}
        raise exceptions.ValidationError(errors) if "disputed" in errors else Unprocessable(errors)
    keys = ids_of(request.query_params)
    return card, scorecard.filtered(card.listed(keys), form.cleaned_data, keys)


class Fidelity(views.APIView):
    @extend_schema(
        operation_id="getFidelity",
        summary="Prediction errors against measured figures",
        description="Errors by group over the rows that match the filters. Targets always use all rows.",
        parameters=[*PARAMETERS, SORT],
        responses={200: OpenApiResponse(OpenApiTypes.OBJECT), **problems(400, 404, 406, 422)},
    )
    def get(self, request: Request) -> Response:
        card, lines = asked_rows(request)
        sort = request.query_params.get("sort", "")
        return Response(
            {
                "engine_version": card.head.engine_version,
                "calibration": card.head.calibration,
                "as_of": card.head.as_of.isoformat(),
                "rows": len(card.lines),
                "skipped": card.head.skipped,
                "overall": scorecard.figures(lines),
                "groups": {
                    by: scorecard.sorted_groups(scorecard.groups(lines, by), sort) for by in scorecard.GROUPINGS
                },
                "coverage": scorecard.coverage(lines),
                "worst": [scorecard.row_json(line) for line in scorecard.worst(lines)],
                "targets": scorecard.against_targets(card),
                "left_out": card.head.left_out,
                "intervals": card.head.intervals,
                "reliability": probabilities(),
                "track_record": stored.track_record(),
                "peers": [
                    dict(zip(("system", "error", "conditions", "stated_in"), peer, strict=True))
                    for peer in stored.PEERS
                ],
                "peers_on_the_same_rows": [
                    same_rows_json(entry) for entry in stored.peers_on_the_same_rows(card.head.digest)
                ],
                "sources": card.head.sources,
            }
        )


class FidelityRows(views.APIView):
    @extend_schema(
        operation_id="listFidelityRows",
        summary="List scored rows with measured and predicted figures",
        parameters=[
            *PARAMETERS,
            OpenApiParameter("limit", {"type": "integer", "minimum": 1}),
            OpenApiParameter("offset", {"type": "integer", "minimum": 0}),
            OpenApiParameter("cursor", str),
        ],
        responses={200: OpenApiResponse(OpenApiTypes.OBJECT), **problems(400, 404, 406, 422)},
    )
    def get(self, request: Request) -> Response:
        _, lines = asked_rows(request)
        pages = Pages()
        shown_lines: Any = pages.paginate_queryset(lines, request, view=self)
        return pages.get_paginated_response([scorecard.row_json(line) for line in shown_lines])
