"""Webhooks of an organization for its admins, by REST and as pages: endpoints, their secrets and their deliveries."""

from typing import Any, ClassVar

from django import forms
from django.contrib import messages
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST
from django_filters import rest_framework as filters
from drf_spectacular.utils import OpenApiExample, OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from advisor import webhooks
from advisor.accounts.rest import ID, ONE_REFUSALS, REFUSALS, Listed, OfAdmins
from advisor.models import WebhookDelivery, WebhookEndpoint
from catalog.accounts import Right, caller_of, needs, organisation_of
from catalog.rest import Body, Conflict, OneOf, Text, Unprocessable, YesNo, problems

SHOWN = 50  # deliveries on the page
DISABLED = "This webhook is disabled. Enable it first."
WAITS = "This delivery still waits for its next attempt."
Refused = (webhooks.RefusedUrl, webhooks.TooMany)


# --- REST -------------------------------------------------------------------------------------------------------


class WebhookSerializer(serializers.ModelSerializer[WebhookEndpoint]):
    events = serializers.ListField(child=serializers.ChoiceField(choices=list(webhooks.EVENTS)))

    class Meta:
        model = WebhookEndpoint
        fields = [
            *("id", "url", "events", "made_by", "made_at", "disabled_at", "disabled_because"),
            *("answered_at", "tried_at", "old_key_until"),
        ]
        read_only_fields = fields
        extra_kwargs: ClassVar = {
            "answered_at": {"help_text": "The last delivery that the receiver accepted"},
            "tried_at": {"help_text": "The last attempt"},
            "old_key_until": {"help_text": "Until then, the secret before the rotation signs, too"},
        }


class WebhookWithSecretSerializer(WebhookSerializer):
    secret = serializers.CharField(help_text="Shown once. Verify signatures with it, as Standard Webhooks describes.")

    class Meta(WebhookSerializer.Meta):
        fields = [*WebhookSerializer.Meta.fields, "secret"]
        read_only_fields = fields


class DeliverySerializer(serializers.ModelSerializer[WebhookDelivery]):
    class Meta:
        model = WebhookDelivery
        fields = [
            *("id", "event_id", "type", "body", "state", "attempts", "next_attempt_at", "created_at", "ended_at"),
            *("last_status", "last_error"),
        ]
        read_only_fields = fields
        extra_kwargs: ClassVar = {
            "event_id": {"help_text": "The header webhook-id, the same in every attempt"},
            "body": {"help_text": "The JSON document that is sent"},
            "last_status": {"help_text": "HTTP status of the last answer; null: there was none"},
        }


class Events(serializers.ListField):
    child = OneOf(choices=list(webhooks.EVENTS))

    def to_internal_value(self, data: Any) -> list[str]:
        return sorted(set(super().to_internal_value(data)))


class WebhookChange(Body):
    url = Text(max_length=500, required=False)
    events = Events(required=False, min_length=1, max_length=20)
    disabled = YesNo(required=False, help_text="A disabled webhook gets no events; those that wait are kept.")


class WebhookBody(Body):
    url = Text(max_length=500, help_text="https:// and a public address")
    events = Events(min_length=1, max_length=20)


class DeliveryFilter(filters.FilterSet):
    state = filters.ChoiceFilter(choices=WebhookDelivery.State.choices)
    type = filters.ChoiceFilter(choices=[(name, name) for name in (*webhooks.EVENTS, "ping")])

    class Meta:
        model = WebhookDelivery
        fields: ClassVar[list[str]] = []


class Webhooks(Listed):
    serializer_class = WebhookSerializer
    queryset = WebhookEndpoint.objects.none()

    @extend_schema(
        operation_id="listWebhooks",
        summary="List the webhooks",
        responses={200: WebhookSerializer, **REFUSALS},
    )
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        return super().get(request, *args, **kwargs)

    @extend_schema(
        operation_id="createWebhook",
        summary="Create a webhook, whose secret is shown once",
        request=WebhookBody,
        examples=[
            OpenApiExample(
                "answers", {"url": "https://example.com/assay", "events": ["advice.finished"]}, request_only=True
            )
        ],
        responses={201: WebhookWithSecretSerializer, **REFUSALS},
    )
    def post(self, request: Request) -> Response:
        asked = self.body(WebhookBody)
        try:
            row = webhooks.create(organisation_of(request), asked["url"], asked["events"], self.by())
        except webhooks.RefusedUrl as error:
            raise Unprocessable({"url": [str(error)]}) from None
        except webhooks.TooMany as error:
            raise Conflict(str(error)) from None
        return self.shown(row, 201, secret=webhooks.secret_of(row))


class OfWebhook(OfAdmins):
    serializer_class: Any = WebhookSerializer
    queryset = WebhookEndpoint.objects.none()

    def rows(self) -> QuerySet[WebhookEndpoint]:
        return super().rows().select_related("organisation")


class OneWebhook(OfWebhook):
    @extend_schema(
        operation_id="getWebhook",
        summary="Get a webhook",
        parameters=[ID],
        responses={200: WebhookSerializer, **problems(401, 403, 404, 406)},
    )
    def get(self, request: Request, pk: int) -> Response:
        return self.shown(self.one(pk))

    @extend_schema(
        operation_id="changeWebhook",
        summary="Change the URL or the events of a webhook, disable or enable it",
        parameters=[ID],
        request=WebhookChange,
        responses={200: WebhookSerializer, **problems(404), **REFUSALS},
    )
    def patch(self, request: Request, pk: int) -> Response:
        try:
            return self.shown(webhooks.change(self.one(pk), self.by(), **self.body(WebhookChange)))
        except webhooks.RefusedUrl as error:
            raise Unprocessable({"url": [str(error)]}) from None

    @extend_schema(
        operation_id="deleteWebhook",
        summary="Delete a webhook with its deliveries",
        parameters=[ID],
        responses={204: None, **ONE_REFUSALS},
    )
    def delete(self, request: Request, pk: int) -> Response:
        webhooks.delete(self.one(pk), self.by())
        return Response(status=204)


class RotateWebhook(OfWebhook):
    @extend_schema(
        operation_id="rotateWebhookSecret",
        summary="Give a webhook a new secret; the old one signs, too, for a day",
        parameters=[ID],
        request=None,
        responses={200: WebhookWithSecretSerializer, **ONE_REFUSALS},
    )
    def post(self, request: Request, pk: int) -> Response:
        row = webhooks.rotate(self.one(pk), self.by())
        return self.shown(row, secret=webhooks.secret_of(row))


class PingWebhook(OfWebhook):
    serializer_class = DeliverySerializer

    @extend_schema(
        operation_id="testWebhook",
        summary="Send a test event",
        parameters=[ID],
        request=None,
        responses={202: DeliverySerializer, **ONE_REFUSALS},
    )
    def post(self, request: Request, pk: int) -> Response:
        row = self.one(pk)
        if row.disabled_at is not None:
            raise Conflict(DISABLED)
        return self.shown(webhooks.ping(row), 202)


class Deliveries(Listed):
    serializer_class = DeliverySerializer
    filterset_class = DeliveryFilter
    queryset = WebhookDelivery.objects.none()

    def rows(self) -> QuerySet[WebhookDelivery]:
        return deliveries(self.request, self.kwargs["pk"])

    @extend_schema(
        operation_id="listWebhookDeliveries",
        summary="List the deliveries of a webhook, newest first",
        parameters=[ID],
        responses={200: DeliverySerializer, **problems(404), **REFUSALS},
    )
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        return super().get(request, *args, **kwargs)


class Redeliver(OfAdmins):
    serializer_class = DeliverySerializer
    queryset = WebhookDelivery.objects.none()

    @extend_schema(
        operation_id="redeliverWebhook",
        summary="Send a delivery again, with the same event id",
        parameters=[ID, OpenApiParameter("delivery", int, OpenApiParameter.PATH)],
        request=None,
        responses={202: DeliverySerializer, **ONE_REFUSALS},
    )
    def post(self, request: Request, pk: int, delivery: int) -> Response:
        row = get_object_or_404(deliveries(request, pk), pk=delivery)
        if why := not_again(row, self.by()):
            raise Conflict(why)
        return self.shown(get_object_or_404(deliveries(request, pk), pk=delivery), 202)


def deliveries(request: Request | HttpRequest, pk: int) -> QuerySet[WebhookDelivery]:
    """The deliveries of a webhook of the caller's organization. Http404: there is no such webhook."""
    row = get_object_or_404(WebhookEndpoint, organisation=organisation_of(request), pk=pk)
    return row.deliveries.select_related("endpoint__organisation")


def not_again(row: WebhookDelivery, by: str) -> str:
    """Why a delivery cannot be sent again; empty: it is."""
    if row.endpoint.disabled_at is not None:
        return DISABLED
    return "" if webhooks.again(row, by) else WAITS


# --- pages ------------------------------------------------------------------------------------------------------


class WebhookForm(forms.Form):
    url = forms.CharField(label="URL", max_length=500, help_text="https:// and a public address")
    events = forms.MultipleChoiceField(
        label="Events", choices=list(webhooks.EVENTS.items()), widget=forms.CheckboxSelectMultiple
    )


@never_cache
@needs(Right.ADMINISTER, "webhooks")
def every(request: HttpRequest) -> HttpResponse:
    """The organization's webhooks; a POST creates one, whose secret is shown once."""
    organisation, form = organisation_of(request), WebhookForm(request.POST or None)
    context: dict[str, Any] = {"organisation": organisation, "form": form}
    if request.method == "POST" and form.is_valid():
        given = form.cleaned_data
        try:
            context["row"] = webhooks.create(organisation, given["url"], given["events"], caller_of(request).name)
            context |= {"secret": webhooks.secret_of(context["row"]), "form": WebhookForm()}
        except Refused as error:
            form.add_error("url", str(error))
    context["webhooks"] = WebhookEndpoint.objects.filter(organisation=organisation)
    return render(request, "accounts/webhooks.html", context, status=422 if form.errors else 200)


@never_cache
@needs(Right.ADMINISTER, "webhooks")
def one(request: HttpRequest, pk: int) -> HttpResponse:
    """A webhook with its newest deliveries; a POST changes it or does something with it."""
    row = get_object_or_404(WebhookEndpoint, organisation=organisation_of(request), pk=pk)
    form = WebhookForm(request.POST or None, initial={"url": row.url, "events": row.events})
    context: dict[str, Any] = {"row": row, "deliveries": row.deliveries.all()[:SHOWN]}
    do, by = request.POST.get("do", ""), caller_of(request).name
    if request.method == "POST" and do == "rotate":
        row = context["row"] = webhooks.rotate(row, by)
        context["secret"] = webhooks.secret_of(row)
    elif request.method == "POST" and do in ACTIONS:
        ACTIONS[do](request, row, by)
        return redirect("webhooks") if do == "delete" else redirect("webhook", pk=pk)
    elif request.method == "POST" and form.is_valid():
        try:
            webhooks.change(row, by, **form.cleaned_data)
            messages.success(request, "Webhook changed.")
            return redirect("webhook", pk=pk)
        except webhooks.RefusedUrl as error:
            form.add_error("url", str(error))
    context["form"] = WebhookForm(initial=form.initial) if do else form
    return render(request, "accounts/webhook.html", context, status=422 if context["form"].errors else 200)


def tested(request: HttpRequest, row: WebhookEndpoint, by: str) -> None:
    if row.disabled_at is not None:
        messages.error(request, DISABLED)
    else:
        webhooks.ping(row)
        messages.success(request, "A test event was queued. Reload this page to see its delivery.")


def switched(request: HttpRequest, row: WebhookEndpoint, by: str) -> None:
    webhooks.change(row, by, disabled=row.disabled_at is None)
    messages.success(request, "Webhook enabled." if row.disabled_at is None else "Webhook disabled.")


def deleted(request: HttpRequest, row: WebhookEndpoint, by: str) -> None:
    webhooks.delete(row, by)
    messages.success(request, "Webhook deleted.")


ACTIONS = {"test": tested, "switch": switched, "delete": deleted}


@require_POST
@needs(Right.ADMINISTER, "webhooks")
def redeliver(request: HttpRequest, pk: int, delivery: int) -> HttpResponse:
    why = not_again(get_object_or_404(deliveries(request, pk), pk=delivery), caller_of(request).name)
    messages.error(request, why) if why else messages.success(request, "The delivery was queued again.")
    return redirect("webhook", pk=pk)
