"""REST calls for an organization's own prices and discounts."""

from collections.abc import Mapping, Sequence
from typing import Any

from django.db.models import QuerySet
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import (
    OpenApiExample,
    PolymorphicProxySerializer,
    extend_schema,
    extend_schema_field,
    extend_schema_view,
)
from rest_framework import exceptions, generics, permissions, serializers
from rest_framework.request import Request
from rest_framework.response import Response

from catalog.accounts import Right, caller_of, organisation_of
from catalog.loading.bounded import Bounds
from catalog.loading.fixtures import CONFIDENCES, ORIGINS, TERMS, UNITS_SOLD, FixtureError
from catalog.models import Accelerator, Discount, Price
from catalog.pricing import own
from catalog.pricing.derived import age
from catalog.rest import CONTENT_TYPE, Number, OneOf, Pages, StrictJSONParser, Text, Unprocessable, Whole, YesNo

MAX_ROWS = 1000


class Members(permissions.BasePermission):
    """Visitors of an open installation do not see the organization's prices."""

    message = "Only people of the organization see its prices."

    def has_permission(self, request: Request, view: Any) -> bool:
        return caller_of(request).is_member


class PricesParser(StrictJSONParser):
    bounds = Bounds(max_bytes=own.MAX_BYTES, max_values=60 * MAX_ROWS)  # a price has about 20 keys and values
    too_large = exceptions.ParseError("The body is larger than 900 kB. Send fewer prices in one call.")


# --- bodies: the types here, the meaning in own.RowForm ---------------------------------------------------------


class Amount(Number):
    def __init__(self, **options: Any) -> None:
        super().__init__(**{"min_value": 0, "max_value": 10**12, **options})


@extend_schema_field(OpenApiTypes.DATE)
class Day(Text):
    """A date as text; own.RowForm reads it."""


class OwnPriceBody(serializers.Serializer[Any]):
    provider = Text(max_length=60)
    instance = Text(max_length=120)
    accelerator = Text(max_length=120, help_text="Slug or name in the catalog.")
    accelerators = Whole(min_value=1, max_value=own.MAX_ACCELERATORS, help_text="In the whole instance.")
    term = OneOf(choices=TERMS)
    as_of = Day(help_text="Date of the price.")
    source = Text(max_length=own.MAX_TEXT, help_text="Such as: quote 4711 of Acme.")  # type: ignore[assignment]
    usd_per_hour = Amount(required=False, allow_null=True, help_text="Rent of the whole instance.")
    purchase_usd = Amount(required=False, allow_null=True, help_text="Of the whole, if the term is purchase.")
    listed_price = Amount(required=False, allow_null=True, help_text="The price in `currency`, converted to USD.")
    currency = Text(required=False, min_length=3, max_length=3, help_text="USD, or one with an exchange rate.")
    region = Text(required=False, allow_blank=True, max_length=60)
    country = Text(required=False, allow_blank=True, max_length=60, help_text="Such as DE.")
    kind = OneOf(required=False, choices=list(own.KIND_NAMES), help_text="Derived if left out.")
    confidence = OneOf(required=False, choices=CONFIDENCES, help_text="high if left out.")
    notes = Text(required=False, allow_blank=True, max_length=own.MAX_TEXT)
    origin = OneOf(required=False, choices=[name for name in ORIGINS if name != "index"])
    purchase_usd_min = Amount(required=False, allow_null=True)
    purchase_usd_max = Amount(required=False, allow_null=True)
    unit = OneOf(required=False, choices=UNITS_SOLD)
    marks = Text(required=False, allow_blank=True, max_length=60)
    vcpus = Amount(required=False, allow_null=True)
    host_memory_gib = Amount(required=False, allow_null=True)
    smallest_unit_accelerators = Text(
        required=False,
        allow_blank=True,
        max_length=10,
        help_text="Smallest number of chips sold together, for a price per chip.",
    )
    smallest_unit_source = Text(required=False, allow_blank=True, max_length=own.MAX_TEXT)
    accept_unusual = YesNo(required=False, help_text="Save the price even if it looks like a mistake.")


class HeldSerializer(serializers.Serializer[Any]):
    id = serializers.IntegerField()
    row = serializers.IntegerField(help_text="Its place in the call, from 0.")
    reason = serializers.CharField()


class OwnPricesSaved(serializers.Serializer[Any]):
    created = serializers.IntegerField()
    changed = serializers.IntegerField(help_text="Known prices with another note or source.")
    unchanged = serializers.IntegerField()
    held = serializers.IntegerField(help_text="Prices that look like a mistake: not saved, see `held_prices`.")
    held_prices = HeldSerializer(many=True)


class DiscountsSaved(serializers.Serializer[Any]):
    created = serializers.IntegerField()
    changed = serializers.IntegerField()
    unchanged = serializers.IntegerField()


class OwnPriceSerializer(serializers.ModelSerializer[Price]):
    accelerator: serializers.SlugRelatedField[Accelerator] = serializers.SlugRelatedField(
        slug_field="slug", read_only=True
    )
    age = serializers.SerializerMethodField(help_text="fresh, ageing, stale or expired.")

    class Meta:
        model = Price
        exclude = ("organisation",)

    def get_age(self, row: Price) -> str:
        return age(row.as_of)


class DiscountSerializer(serializers.ModelSerializer[Discount]):
    accelerator: serializers.SlugRelatedField[Accelerator] = serializers.SlugRelatedField(
        slug_field="slug", read_only=True, allow_null=True
    )

    class Meta:
        model = Discount
        exclude = ("organisation",)


class DiscountBody(serializers.Serializer[Any]):
    provider = Text(max_length=60)
    accelerator = Text(required=False, allow_blank=True, max_length=120, help_text="All if left out.")
    term = OneOf(required=False, choices=TERMS, help_text="Every way to pay if left out.")
    discount_fraction = Amount(min_value=0.0001, max_value=0.9999, help_text="0.15 is 15% off.")
    as_of = Day()
    source = Text(max_length=own.MAX_TEXT)  # type: ignore[assignment]


def one_or_many(name: str, body: Any) -> PolymorphicProxySerializer:
    """A body of one object or a list of them, for the description."""
    return PolymorphicProxySerializer(
        component_name=name, serializers=[body, body(many=True)], resource_type_field_name=None, many=False
    )


def rows_of(data: Any, body: Any) -> list[dict[str, Any]]:
    """The rows of a body as text by column. Raises ValidationError for a wrong type, naming the field."""
    many = isinstance(data, list)
    rows = data if many else [data]
    if not data and data != 0 or len(rows) > MAX_ROWS:  # the description cannot say that a body is needed
        raise Unprocessable([f"Send from 1 to {MAX_ROWS:,} objects in one call."])
    serializer = body(data=rows, many=True)
    if not serializer.is_valid():
        raise exceptions.ValidationError(by_row(serializer.errors, many))
    known = set(body().fields)
    wrong = [(n, name, unknown(known)) for n, row in enumerate(rows) for name in row if name not in known]
    if wrong:
        raise Unprocessable(by_field(wrong, many))
    return [{name: plain(value) for name, value in row.items()} for row in serializer.validated_data]


def by_row(errors: Any, many: bool) -> Any:
    """A list serializer's errors, with the row's place before the field where there are several rows."""
    rows = dict(errors if isinstance(errors, dict) else enumerate(errors))
    return {f"[{n}]": found for n, found in rows.items() if found} if many else rows.get(0, errors)


def unknown(known: set[str]) -> str:
    return f"Unknown field. Allowed are {', '.join(sorted(known))}."


def plain(value: Any) -> Any:
    """A value as a form takes it."""
    return value if isinstance(value, bool) else "" if value is None else str(value)


def by_field(wrong: Sequence[tuple[int, str, str]], many: bool) -> Any:
    """Errors as (row, field, message), by field; of a list with the row's place: [2].term."""
    found: dict[str, list[str]] = {}
    for row, name, message in wrong:
        place = f"[{row}]" if many else ""
        found.setdefault(".".join(filter(None, (place, name))) or "non_field_errors", []).append(message)
    return found


REFUSALS: Mapping[Any, Any] = {(status, CONTENT_TYPE): OpenApiTypes.OBJECT for status in (400, 403, 415, 422)}
PRICE_EXAMPLE = OpenApiExample(
    "a quote in EUR",
    request_only=True,
    value={
        "provider": "acme",
        "instance": "big-8",
        "accelerator": "h100-sxm",
        "accelerators": 8,
        "term": "reserved_1y",
        "listed_price": 17.5,
        "currency": "EUR",
        "as_of": "2026-11-02",
        "source": "quote 4711 of Acme",
    },
)
DISCOUNT_EXAMPLE = OpenApiExample(
    "15% off",
    request_only=True,
    value={"provider": "aws", "discount_fraction": 0.15, "as_of": "2026-11-02", "source": "contract 12"},
)


class Private(generics.ListAPIView[Any]):
    """Rows of the caller's organization."""

    rights = {"POST": Right.PRICE}  # read by advisor.api.tokens.Allowed
    parser_classes = (PricesParser,)
    pagination_class = Pages

    def get_permissions(self) -> list[Any]:
        return [*super().get_permissions(), Members()]

    def get_queryset(self) -> QuerySet[Any]:
        rows = super().get_queryset()
        if getattr(self, "swagger_fake_view", False):
            return rows.none()
        return rows.filter(organisation=organisation_of(self.request))


@extend_schema_view(
    get=extend_schema(operation_id="listOwnPrices", summary="List the organization's own prices, newest first")
)
class OwnPrices(Private):
    queryset = Price.objects.select_related("accelerator").order_by("-as_of", "-pk")
    serializer_class = OwnPriceSerializer

    @extend_schema(
        operation_id="addOwnPrices",
        summary="Add the organization's own prices, one or a list",
        description=(
            "All are saved, or none. The same prices again change nothing. A price that looks like a mistake is held: "
            "it is not saved unless `accept_unusual` is true. Needs a token with the scope `prices` or `admin`."
        ),
        request=one_or_many("OwnPriceOrPrices", OwnPriceBody),
        responses={201: OwnPricesSaved, **REFUSALS},
        examples=[PRICE_EXAMPLE],
    )
    def post(self, request: Request) -> Response:
        rows, many = rows_of(request.data, OwnPriceBody), isinstance(request.data, list)
        book = own.Book(organisation_of(request))
        read = own.read(book, enumerate(rows))
        if read.wrong:
            raise Unprocessable(by_field(read.wrong, many))
        try:
            saved = own.save(book, read.lines, caller_of(request).name, own.REST, f"REST call with {len(rows)} prices")
        except FixtureError as error:
            raise Unprocessable([own.sentence(error)]) from error
        held = [{"id": each.pk, "row": line.number, "reason": each.reason} for line, each in saved.held]
        counts = {"created": saved.created, "changed": saved.changed, "unchanged": saved.unchanged}
        return Response({**counts, "held": len(held), "held_prices": held}, status=201)


@extend_schema_view(
    get=extend_schema(operation_id="listDiscounts", summary="List the organization's discounts, newest first")
)
class Discounts(Private):
    queryset = Discount.objects.select_related("accelerator").order_by("-as_of", "-pk")
    serializer_class = DiscountSerializer

    @extend_schema(
        operation_id="addDiscounts",
        summary="Add the organization's discounts, one or a list",
        description="All are saved, or none. Needs a token with the scope `prices` or `admin`.",
        request=one_or_many("DiscountOrDiscounts", DiscountBody),
        responses={201: DiscountsSaved, **REFUSALS},
        examples=[DISCOUNT_EXAMPLE],
    )
    def post(self, request: Request) -> Response:
        rows, many = rows_of(request.data, DiscountBody), isinstance(request.data, list)
        book = own.Book(organisation_of(request))
        forms = [own.DiscountRow(row, book=book) for row in rows]
        wrong = [(n, name, message) for n, form in enumerate(forms) for name, message in form.messages]
        if wrong:
            raise Unprocessable(by_field(wrong, many))
        try:
            done = own.save_discounts(book, [form.row for form in forms], caller_of(request).name)
        except FixtureError as error:
            raise Unprocessable([own.sentence(error)]) from error
        return Response({"created": done.created, "changed": done.changed, "unchanged": done.unchanged}, status=201)
