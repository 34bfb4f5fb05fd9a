"""Forecast against actual of an answer, by REST and as a page. Nothing of what is uploaded is stored."""

from typing import Any, ClassVar

from django import forms
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.views.decorators.cache import never_cache
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework import exceptions
from rest_framework.parsers import MultiPartParser
from rest_framework.request import Request
from rest_framework.response import Response

from advisor import advise
from advisor.actuals.bill import Bill, read_bill
from advisor.actuals.comparison import Forecast, compared, forecast_of, lines, said
from advisor.actuals.files import ActualsError
from advisor.actuals.tokens import read_tokens
from advisor.api import OneAdvice, limits
from advisor.models import Advice
from catalog import clock
from catalog.accounts import Right, needs, organisation_of
from catalog.loading.bounded import WEB
from catalog.models import ExchangeRate, Price
from catalog.rest import Conflict, TooLarge, Unprocessable, problems

Json = dict[str, Any]
TEXT = {"type": "string", "maxLength": 200}
QUERY = [
    OpenApiParameter("rank", {"type": "integer", "minimum": 1, "maximum": 999}, description="Of the option; default 1"),
    OpenApiParameter("tag", TEXT, description="Key of the tag that costs are split by"),
    OpenApiParameter("only", TEXT, description="KEY=VALUE: count rows of the bill with this tag alone"),
    OpenApiParameter("currency", TEXT, description="Count rows in this currency alone"),
    OpenApiParameter("model", TEXT, description="Count tokens of this model or deployment alone"),
]
FILES = {
    "type": "object",
    "properties": {
        "bill": {"type": "string", "format": "binary", "description": "FOCUS 1.2 as CSV, gzipped CSV or Parquet"},
        "tokens": {"type": "string", "format": "binary", "description": "Tokens served: CSV, or JSON of Prometheus"},
    },
    "required": ["bill"],
}


def instances() -> dict[str, int]:
    """Accelerators of each instance type in the catalog, by its name in lower case."""
    rows = Price.objects.filter(organisation=None).exclude(instance__contains=" ")
    return {name.lower(): count for name, count in rows.values_list("instance", "accelerators").distinct()}


def per_usd(currency: str) -> float:
    """What a US dollar costs in a currency, at the newest rate. ActualsError: there is none."""
    if currency == "USD":
        return 1.0
    rate = ExchangeRate.objects.filter(currency=currency, as_of__lte=clock.today()).order_by("-as_of").first()
    if rate is None:
        raise ActualsError(f"is in {currency or 'no currency'}, for which the catalog has no exchange rate")
    return float(rate.per_usd)


def measured(
    bill: Any, tokens: Any, option: Json | None, tag: str = "", only: str = "", currency: str = "", model: str = ""
) -> Json:
    """Forecast against actual. bill, tokens: a path or bytes; tokens may be None. ActualsError names the file."""
    key, equals, value = only.partition("=")
    if only and not (key and equals):
        raise ActualsError("only: give KEY=VALUE, a tag of the bill")
    pair = (key, value) if only else None
    read: Bill = _of("bill", lambda: read_bill(bill, tag=tag, only=pair, currency=currency, accelerators=instances()))
    served = _of("tokens", lambda: read_tokens(tokens, model)) if tokens is not None else {}
    forecast: Forecast | None = None
    if option is not None:
        forecast = forecast_of(option, _of("bill", lambda: per_usd(read.currency)))
    return compared(read, served, forecast, tag)


def _of(name: str, act: Any) -> Any:
    try:
        return act()
    except ActualsError as error:
        raise ActualsError(f"{name}: {error}") from None


def option_of(answer: Json | None, rank: int) -> Json:
    """The JSON of an option of an answer. ActualsError: there is none."""
    given = (answer or {}).get("recommendations")
    options = [each for each in given if isinstance(each, dict)] if isinstance(given, list) else []
    found = next((option for option in options if option.get("rank") == rank), None)
    if found is None:
        raise ActualsError(f"rank: there is no option {rank}; this answer has {len(options)}")
    return dict(found)


class AdviceActuals(OneAdvice):
    rights: ClassVar = {"POST": Right.READ}
    parser_classes = (MultiPartParser,)

    @extend_schema(
        operation_id="compareActuals",
        summary="Compare a bill and the tokens served with the forecast of an answer",
        description="Files of at most 4 MiB; `manage.py actuals` reads larger ones. Nothing is stored. Amounts are in "
        "the currency of the bill; totals agree with it to the cent.",
        parameters=QUERY,
        request={"multipart/form-data": FILES},
        responses={200: OpenApiResponse(OpenApiTypes.OBJECT), **problems(400, 401, 404, 406, 409, 413, 415, 422)},
    )
    def post(self, request: Request, pk: Any) -> Response:
        advice, query = self.advice(pk), request.query_params
        if not advice.is_done:
            raise Conflict(f"This recommendation is {advice.state}: it has no forecast.")
        rank = query.get("rank", "1")
        if not (rank.isascii() and rank.isdigit() and 0 < len(rank) < 4 and int(rank)):
            raise exceptions.ValidationError({"rank": ["Give a whole number from 1 to 999."]})
        given = [request.FILES.get(name) for name in ("bill", "tokens")]
        if given[0] is None:
            raise exceptions.ValidationError({"bill": ["Give the file of the bill."]})
        if any(file is not None and file.size > WEB.max_bytes for file in given):
            raise TooLarge("A file is larger than 4 MiB; use manage.py actuals.")
        limits.of_work(request, limits.BILL)
        contents = [None if file is None else file.read() for file in given]
        asked = {name: query.get(name, "")[:200] for name in ("tag", "only", "currency", "model")}
        try:
            return Response(measured(contents[0], contents[1], option_of(advice.answer, int(rank)), **asked))
        except ActualsError as error:
            field, _, text = str(error).partition(": ")
            raise Unprocessable({field: [text]}) from None


class ActualsForm(forms.Form):
    bill = forms.FileField(label="Bill in FOCUS (CSV, gzipped CSV or Parquet)")
    tokens = forms.FileField(label="Tokens served (CSV, or JSON of Prometheus)", required=False)
    rank = forms.IntegerField(label="Option", min_value=1, max_value=999, initial=1)
    tag = forms.CharField(label="Split costs by tag", max_length=200, required=False)
    only = forms.CharField(label="Only rows with the tag KEY=VALUE", max_length=200, required=False)
    currency = forms.CharField(label="Only rows in this currency", max_length=200, required=False)
    model = forms.CharField(label="Only tokens of this model", max_length=200, required=False)


@never_cache
@needs(Right.READ, "actuals")
def page(request: HttpRequest, pk: Any) -> HttpResponse:
    """The form, and after a POST the table of forecast and actual."""
    advice = get_object_or_404(advise.visible(organisation_of(request)), pk=pk, state=Advice.State.DONE)
    form = ActualsForm(request.POST or None, request.FILES or None)
    context: Json = {"advice": advice, "form": form}
    if request.method == "POST" and form.is_valid():
        given = form.cleaned_data
        try:
            files = [given[name].read(WEB.max_bytes + 1) if given[name] else None for name in ("bill", "tokens")]
            if any(len(content or b"") > WEB.max_bytes for content in files):
                raise ActualsError("a file is larger than 4 MiB; use manage.py actuals")
            asked = {name: given[name] for name in ("tag", "only", "currency", "model")}
            result = measured(files[0], files[1], option_of(advice.answer, given["rank"]), **asked)
            context |= {"lines": lines(result), "said": said(result)}
        except ActualsError as error:
            form.add_error(None, str(error))
    return render(request, "advisor/actuals.html", context, status=422 if form.errors else 200)
