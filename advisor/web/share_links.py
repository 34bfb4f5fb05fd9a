"""Links that show one answer to anyone who has them. Only a hash is stored: a link is shown once, when it is made."""

from datetime import timedelta
from typing import Any, ClassVar

from django.db import transaction
from django.db.models import QuerySet
from django.http import Http404
from django.shortcuts import get_object_or_404
from django.urls import reverse
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from advisor import advise
from advisor.api import JSONParser, OneAdvice, Shares, ShareSerializer
from advisor.models import Advice, Share, share_token
from catalog import clock
from catalog.accounts import Right, audit, caller_of, hashed, organisation_of
from catalog.rest import Body, Conflict, Whole, problems

MAX_DAYS = 366
PREFIX = 6  # characters of a token that are stored in clear, to tell links apart


def live(links: "QuerySet[Share]") -> "QuerySet[Share]":
    """Those that have not expired."""
    return links.filter(expires_at__gt=clock.now())


def make(advice: Advice, days: int, made_by: str) -> str:
    """The token of a new link."""
    hash_rest()
    token = share_token()
    Share.objects.create(
        organisation=advice.organisation,
        advice=advice,
        token_hash=hashed(token),
        token_prefix=token[:PREFIX],
        expires_at=clock.read() + timedelta(days=days),
        made_by=made_by,
    )
    return token


def create(advice: Advice, days: int, by: str) -> str:
    """The token of a new link, in a transaction that holds the advice."""
    token = make(advice, days, by)
    audit.record(advice.organisation, by, audit.Action.SHARE, advice.workload.name, f"{days} days")
    return token


@transaction.atomic
def end(advice: Advice, by: str, **which: Any) -> bool:
    """Ends a live link of an advice now; False: there is none."""
    ended = bool(live(advice.shares.all()).filter(**which).update(expires_at=clock.now()))
    if ended:
        audit.record(advice.organisation, by, audit.Action.SHARE_ENDED, advice.workload.name)
    return ended


def by_token(token: str) -> Share | None:
    """The live link with this token."""
    hash_rest()
    links = live(
        Share.objects.select_related("advice__workload", "advice__completion").defer(
            "advice__result", "advice__snapshot"
        )
    )
    return links.filter(token_hash=hashed(token)).first()


def hash_rest() -> None:
    """Hashes the tokens of links that processes of the previous version make while they still run."""
    for row in Share.objects.filter(token_hash=None).only("token"):
        values = {"token_hash": hashed(row.token), "token_prefix": row.token[:PREFIX], "token": share_token()}
        Share.objects.filter(pk=row.pk, token_hash=None).update(**values)


# --- REST: planners and `submit` tokens create and end links, admins also delete them -----------------------------


class ShareBody(Body):
    days = Whole(min_value=1, max_value=MAX_DAYS, default=30, help_text="Until the link expires")


class NewShareSerializer(ShareSerializer):
    url = serializers.URLField(help_text="The link. It is shown once; only its hash is stored.")  # type: ignore[assignment]


class AllShares(Shares):
    rights: ClassVar = {"GET": Right.PLAN, "POST": Right.PLAN}
    parser_classes = (JSONParser,)

    @extend_schema(
        operation_id="createShare",
        summary="Create a link with which anyone can read a finished recommendation",
        request=ShareBody,
        responses={201: NewShareSerializer, **problems(400, 401, 403, 404, 406, 409, 413, 415)},
    )
    def post(self, request: Request, pk: Any) -> Response:
        caller = caller_of(request)
        rows = advise.visible(organisation_of(request)).defer("result", "snapshot")
        advice = get_object_or_404(rows, pk=pk)
        body = ShareBody(data=request.data)
        body.is_valid(raise_exception=True)
        if not advice.is_done:
            raise Conflict(f"This recommendation is {advice.state}. Only finished ones can be shared.")
        try:
            with transaction.atomic():
                advise.hold(advice.pk)
                token = create(advice, body.validated_data["days"], caller.name)
        except Advice.DoesNotExist:
            raise Http404 from None
        row = by_token(token)
        url = request.build_absolute_uri(reverse("shared", args=[token]))
        return Response({**self.get_serializer(row).data, "url": url}, status=201)


class EndShare(OneAdvice):
    rights: ClassVar = {"POST": Right.PLAN}

    @extend_schema(
        operation_id="endShare",
        summary="End a link now",
        parameters=[OpenApiParameter("share", int, OpenApiParameter.PATH)],
        request=None,
        responses={200: ShareSerializer, **problems(401, 403, 404, 406, 409)},
    )
    def post(self, request: Request, pk: Any, share: int) -> Response:
        row = get_object_or_404(self.advice(pk).shares, pk=share)
        if not end(row.advice, caller_of(request).name, pk=row.pk):
            raise Conflict("This link has already ended.")
        row.refresh_from_db()
        return Response(ShareSerializer(row).data)
