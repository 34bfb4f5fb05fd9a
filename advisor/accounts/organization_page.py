"""An organization for its admins, as a page and by REST: quotas, retention, export, and the deletion of everything."""

import tempfile
from typing import Any, ClassVar

from django import forms
from django.conf import settings
from django.contrib import messages
from django.http import FileResponse, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework import serializers, views
from rest_framework.request import Request
from rest_framework.response import Response

from advisor.api import JSONParser
from catalog.accounts import Right, caller_of, everything, needs, organisation_of, organizations, quotas, retention
from catalog.models import DEFAULT_ORGANISATION, Organisation
from catalog.rest import Body, Conflict, Unprocessable, Whole, problems

IN_MEMORY_BYTES = 5_000_000
KEPT_HERE = "The default organization cannot be deleted here, because the installation needs it."


def exported(organisation: Organisation, by: str) -> Any:
    """The ZIP file as a response."""
    file = tempfile.SpooledTemporaryFile(IN_MEMORY_BYTES)  # noqa: SIM115  # closed by the response
    everything.export(organisation, file, by)  # type: ignore[arg-type]
    file.seek(0)
    name = f"{organisation.slug}.zip"
    return FileResponse(file, as_attachment=True, filename=name, content_type="application/zip")


# --- page -------------------------------------------------------------------------------------------------------


class RetentionForm(forms.Form):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name, label in retention.NAMES.items():
            self.fields[name] = forms.IntegerField(
                label=f"{label[0].upper()}{label[1:]}, days", min_value=1, max_value=retention.MAX_DAYS, required=False,
                widget=forms.NumberInput(attrs={"placeholder": getattr(settings, name.upper()) or "forever"}),
            )  # fmt: skip


@never_cache
@needs(Right.ADMINISTER, "organization")
def page(request: HttpRequest) -> HttpResponse:
    """Quotas with what is used, the days that rows are kept, export and deletion; a POST sets the days."""
    organisation = organisation_of(request)
    form = RetentionForm(request.POST or None, initial=retention.own(organisation))
    if request.method == "POST" and form.is_valid():
        retention.change(organisation, form.cleaned_data, caller_of(request).name)
        messages.success(request, "Retention was changed.")
        return redirect("organization")
    context = {
        "organisation": organisation,
        "form": form,
        "quotas": quotas.lines(organisation),
        "rows": everything.counts(organisation),
        "may_delete": organisation.slug != DEFAULT_ORGANISATION,
    }
    return render(request, "accounts/organization.html", context, status=422 if form.errors else 200)


@require_POST
@needs(Right.ADMINISTER, "organization")
def export(request: HttpRequest) -> HttpResponse:
    return exported(organisation_of(request), caller_of(request).name)


@require_POST
@needs(Right.ADMINISTER, "organization")
def delete(request: HttpRequest) -> HttpResponse:
    """Deletes everything, if the slug was typed."""
    organisation = organisation_of(request)
    if organisation.slug == DEFAULT_ORGANISATION:
        messages.error(request, KEPT_HERE)
    elif request.POST.get("confirm", "").strip() != organisation.slug:
        messages.error(request, f"Nothing was deleted: type {organisation.slug} to confirm.")
    else:
        everything.delete(organisation, caller_of(request).name)
        return redirect("login")
    return redirect("organization")


# --- REST -------------------------------------------------------------------------------------------------------


class QuotaSerializer(serializers.Serializer[Any]):
    name = serializers.CharField()
    label = serializers.CharField()  # type: ignore[assignment]
    used = serializers.IntegerField()
    limit = serializers.IntegerField(allow_null=True, help_text="null: no limit")


class OrganizationSerializer(serializers.Serializer[Any]):
    slug = serializers.CharField()
    name = serializers.CharField()
    quotas = QuotaSerializer(many=True)
    retention = serializers.DictField(
        child=serializers.IntegerField(allow_null=True), help_text="Days; null: as the server's settings say"
    )
    rows = serializers.DictField(child=serializers.IntegerField(), help_text="Number of rows by table")


class RetentionBody(Body):
    def get_fields(self) -> Any:
        most = retention.MAX_DAYS
        return {name: Whole(min_value=1, max_value=most, required=False, allow_null=True) for name in retention.NAMES}


class ChangeBody(Body):
    retention = RetentionBody(required=False)


def shown(organisation: Organisation) -> dict[str, Any]:
    return {
        "slug": organisation.slug,
        "name": organisation.name,
        "quotas": [QuotaSerializer(line).data for line in quotas.lines(organisation)],
        "retention": retention.own(organisation),
        "rows": everything.counts(organisation),
    }


class OneOrganization(views.APIView):
    rights: ClassVar = dict.fromkeys(("GET", "PATCH", "DELETE"), Right.ADMINISTER)
    parser_classes = (JSONParser,)

    @extend_schema(
        operation_id="getOrganization",
        summary="Get the quotas, the retention and the number of rows of the organization",
        responses={200: OrganizationSerializer, **problems(401, 403, 406)},
    )
    def get(self, request: Request) -> Response:
        return Response(shown(organisation_of(request)))

    @extend_schema(
        operation_id="changeOrganization",
        summary="Change how long the organization keeps its rows",
        request=ChangeBody,
        responses={200: OrganizationSerializer, **problems(400, 401, 403, 406, 409, 413, 415)},
    )
    def patch(self, request: Request) -> Response:
        body = ChangeBody(data=request.data)
        body.is_valid(raise_exception=True)
        organisation = organisation_of(request)
        try:
            if days := dict(body.validated_data.get("retention", {})):
                retention.change(organisation, days, caller_of(request).name)
        except organizations.Refused as error:
            raise Conflict(str(error)) from None
        return Response(shown(organisation))

    @extend_schema(
        operation_id="deleteOrganization",
        summary="Delete the organization with all its data, and the accounts that belong to no other organization",
        parameters=[OpenApiParameter("confirm", str, description="The slug of the organization", required=True)],
        responses={204: None, **problems(400, 401, 403, 406, 409, 422)},
    )
    def delete(self, request: Request) -> Response:
        organisation = organisation_of(request)
        if request.query_params.get("confirm") != organisation.slug:
            raise Unprocessable({"confirm": [f"Give confirm={organisation.slug} to delete everything."]})
        if organisation.slug == DEFAULT_ORGANISATION:
            raise Conflict(KEPT_HERE)
        everything.delete(organisation, caller_of(request).name)
        return Response(status=204)


class ExportOrganization(views.APIView):
    rights: ClassVar = {"POST": Right.ADMINISTER}

    @extend_schema(
        operation_id="exportOrganization",
        summary="Export all data of the organization as a ZIP file of JSON lists",
        request=None,
        responses={(200, "application/zip"): OpenApiResponse(OpenApiTypes.BINARY), **problems(401, 403, 406)},
    )
    def post(self, request: Request) -> Any:
        return exported(organisation_of(request), caller_of(request).name)
