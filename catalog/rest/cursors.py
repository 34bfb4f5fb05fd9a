"""Places in a list: the row after which a page begins. A row that is added meanwhile moves no other to another page."""

import hashlib
import json
from collections.abc import Sequence
from typing import Any

from django.core import signing
from django.db.models import F, Q, QuerySet, TextField
from django.db.models.expressions import OrderBy
from django.db.models.functions import Left
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request

SALT = "assay.cursor"
MAX_CHARACTERS = 4000
SORTED_CHARACTERS = 100  # of a long text: the cursor holds them, and an address has its limits
NOT_OF_THE_LIST = ("cursor", "limit", "offset", "fields", "include", "format")  # that change no row and no order
OTHER_LIST = "This cursor is not valid, or of a list with other filters or another order. Leave it out to start again."
# Of a query {after: values of the keys, back: whether towards the start}; of a sequence {at: number} or {row: key}.
Place = dict[str, Any]


def of_list(request: Request) -> str:
    """A digest of the list that is asked for: its address, filters and order."""
    asked = sorted(pair for pair in request.query_params.lists() if pair[0] not in NOT_OF_THE_LIST)
    return hashlib.sha256(repr((request.path, asked)).encode()).hexdigest()[:12]


def written(request: Request, place: Place) -> str:
    text = json.dumps({**place, "list": of_list(request)}, default=str, separators=(",", ":"))
    return signing.Signer(salt=SALT).sign_object(json.loads(text), compress=True)


def read(request: Request) -> Place | None:
    """The place that `?cursor=` names; None: there is none. An empty one is the start. ValidationError: not of here."""
    text = request.query_params.get("cursor")
    if text is None:
        return None
    if "offset" in request.query_params:
        raise ValidationError({"cursor": ["Give cursor or offset, not both."]})
    if not text:
        return {}
    try:
        if len(text) > MAX_CHARACTERS:
            raise ValueError
        place = signing.Signer(salt=SALT).unsign_object(text)
    except (signing.BadSignature, ValueError):
        place = {}
    if place.get("list") != of_list(request):
        raise ValidationError({"cursor": [OTHER_LIST]})
    return dict(place)


class Rows:
    """A query with the columns that sort it, or a sequence, in pages.

    A sequence that grows in between has `key_of` a row and says how many rows there are up to it (`after`).
    """

    def __init__(self, found: Any) -> None:
        self.found, self.orders = found, list[OrderBy]()
        if isinstance(found, QuerySet):
            self.orders = orders_of(found)
            keys = {alias(n): order.expression for n, order in enumerate(self.orders)}
            query = found.annotate(**keys)
            long = [n for n in keys if isinstance(query.query.annotations[n].output_field, TextField)]
            keys |= {n: Left(keys[n], SORTED_CHARACTERS) for n in long}
            self.found = found.annotate(**keys).order_by(*(self.order(n) for n in range(len(self.orders))))

    def order(self, n: int, back: bool = False) -> OrderBy:
        """By the key, rows without it last; or everything reversed."""
        nulls = {"nulls_first" if back else "nulls_last": True}
        return OrderBy(F(alias(n)), descending=self.orders[n].descending != back, **nulls)

    def place_at(self, number: int) -> Place:
        """After so many rows of a sequence."""
        return {"row": self.found.key_of(number - 1)} if hasattr(self.found, "key_of") else {"at": number}

    def place_of(self, row: Any, back: bool = False) -> Place:
        return {"after": [getattr(row, alias(n)) for n in range(len(self.orders))], "back": back}

    def page(self, place: Place, limit: int) -> tuple[list[Any], Place | None, Place | None]:
        """The rows from a place on, and the places of the pages after and before them."""
        if not isinstance(self.found, QuerySet):
            at = self.found.after(place["row"]) if "row" in place else int(place.get("at", 0))
            rows = list(self.found[at : at + limit])
            before = (self.place_at(at - limit) if at > limit else {}) if at else None
            return rows, self.place_at(at + limit) if len(self.found) > at + limit else None, before
        back = bool(place.get("back"))
        query = self.found
        if back:
            query = query.order_by(*(self.order(n, back) for n in range(len(self.orders))))
        if "after" in place:
            query = query.filter(self.beyond(place["after"], back))
        rows = list(query[: limit + 1])
        more, rows = len(rows) > limit, rows[:limit]
        rows = rows[::-1] if back else rows
        if not rows:
            return [], None, None
        following = self.place_of(rows[-1]) if more or back else None
        preceding = self.place_of(rows[0], back=True) if ("after" in place if not back else more) else None
        return rows, following, preceding

    def beyond(self, values: Sequence[Any], back: bool) -> Q:
        """The rows after these values of the keys, or before them."""
        found, equal = Q(pk__in=()), Q()
        for n, value in enumerate(values):
            name, up = alias(n), self.orders[n].descending == back
            if value is not None:
                later = Q(**{f"{name}__{'gt' if up else 'lt'}": value})
                found |= equal & (later if back else later | Q(**{f"{name}__isnull": True}))
                equal &= Q(**{name: value})
            else:
                found |= equal & Q(**{f"{name}__isnull": False}) if back else Q(pk__in=())
                equal &= Q(**{f"{name}__isnull": True})
        return found


def alias(n: int) -> str:
    return f"cursor_key_{n}"


def orders_of(query: QuerySet[Any]) -> list[OrderBy]:
    """What sorts a query, with the primary key as the last, so that no two rows are equal."""
    terms: Sequence[Any] = query.query.order_by
    if not terms and query.query.default_ordering:
        terms = query.model._meta.ordering or ()
    found = [order_of(term) for term in terms]
    names = {getattr(order.expression, "name", "") for order in found}
    return found if names & {"pk", query.model._meta.pk.name} else [*found, F("pk").asc()]


def order_of(term: Any) -> OrderBy:
    if isinstance(term, str):
        return OrderBy(F(term.lstrip("-")), descending=term.startswith("-"))
    return term if isinstance(term, OrderBy) else OrderBy(term)
