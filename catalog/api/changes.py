"""REST calls for what people add on the catalog's pages: saved views and models."""

import json
from typing import Any, ClassVar

from django.db.models import QuerySet
from django.forms.utils import ErrorDict
from django.shortcuts import get_object_or_404
from django.urls import reverse
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework import generics, serializers
from rest_framework.request import Request
from rest_framework.response import Response

from catalog.accounts import Right, caller_of, organisation_of
from catalog.api.lists import ModelSerializer
from catalog.api.own_prices import Members
from catalog.lists import saved
from catalog.loading.bounded import Bounds
from catalog.loading.fixtures import FixtureError
from catalog.models import SavedView, ServedModel
from catalog.pages import lists, model_import, saved_views
from catalog.rest import Body, OneOf, StrictJSONParser, Text, TooLarge, Unprocessable, Whole, YesNo, problems

REFUSALS = problems(400, 401, 403, 406, 409, 413, 415, 422)
MAX_BYTES = 2_000_000  # of a model's two files


class FilesParser(StrictJSONParser):
    bounds = Bounds(max_bytes=MAX_BYTES, max_values=100_000)
    finite = False  # config.json of Mamba has time_step_limit: [0, Infinity]
    too_large = TooLarge("The body is larger than 2 MB.")


def by_name(errors: ErrorDict) -> dict[str, list[str]]:
    """The errors of a page's form."""
    return {name: [str(text) for text in texts] for name, texts in errors.items()}


class ViewSerializer(serializers.ModelSerializer[SavedView]):
    html = serializers.SerializerMethodField(help_text="The list as the view shows it.")

    class Meta:
        model = SavedView
        fields = ["id", "list_name", "name", "query", "made_by", "made_at", "html"]
        read_only_fields = fields

    def get_html(self, row: SavedView) -> str:
        address = f"{reverse('catalog:list', args=[row.list_name])}?{row.query}"
        return str(self.context["request"].build_absolute_uri(address))


class ViewBody(Body):
    list_name = OneOf(choices=list(lists.LISTS))
    name = Text(max_length=60)
    query = Text(
        max_length=2000, required=False, allow_blank=True, help_text="Filters, sort and columns as in the address."
    )


class SavedViews(generics.ListAPIView[SavedView]):
    rights: ClassVar = {"POST": Right.PRICE}
    serializer_class = ViewSerializer
    parser_classes = (StrictJSONParser,)
    queryset = SavedView.objects.none()

    def get_queryset(self) -> QuerySet[SavedView]:
        if getattr(self, "swagger_fake_view", False):
            return super().get_queryset()
        return SavedView.objects.filter(organisation=organisation_of(self.request))

    @extend_schema(operation_id="listSavedViews", summary="List the saved views of the catalog's lists")
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        return super().get(request, *args, **kwargs)

    @extend_schema(
        operation_id="saveView",
        summary="Save a view of a list under a name",
        description="It replaces the view of the same list and name. What is no filter, sort or column is left out.",
        request=ViewBody,
        responses={201: ViewSerializer, **REFUSALS},
    )
    def post(self, request: Request) -> Response:
        body = ViewBody(data=request.data)
        body.is_valid(raise_exception=True)
        form = saved_views.ViewForm(body.validated_data)
        if not form.is_valid():
            raise Unprocessable(by_name(form.errors))
        try:
            row = saved.save(organisation_of(request), form.cleaned_data, caller_of(request).name)
        except saved.TooMany as error:
            raise Unprocessable({"name": [str(error)]}) from None
        return Response(self.get_serializer(row).data, status=201)


class OneSavedView(generics.GenericAPIView[SavedView]):
    rights: ClassVar = {"DELETE": Right.PRICE}
    serializer_class = ViewSerializer
    queryset = SavedView.objects.none()

    @extend_schema(
        operation_id="deleteSavedView",
        summary="Delete a saved view",
        parameters=[OpenApiParameter("id", int, OpenApiParameter.PATH)],
        responses={204: OpenApiResponse(description="Deleted."), **problems(401, 403, 404)},
    )
    def delete(self, request: Request, pk: int) -> Response:
        get_object_or_404(SavedView, organisation=organisation_of(request), pk=pk).delete()
        return Response(status=204)


# --- models -----------------------------------------------------------------------------------------------------


class ImportBody(Body):
    config = serializers.DictField(required=False, help_text="The content of config.json; or give hf_id.")
    quantization = serializers.DictField(required=False, help_text="The content of hf_quant_config.json.")
    hf_id = Text(required=False, max_length=200, help_text="A Hugging Face ID, where the server may download.")
    name = Text(required=False, max_length=120, help_text="In the catalog, such as acme/our-7b.")
    published_parameters = Whole(required=False, min_value=1, help_text="For comparison with the computed size.")
    confirm_size = YesNo(required=False, help_text="The size is right although the name or published size differs.")
    preview = YesNo(required=False, default=False, help_text="Only compute; add nothing.")


class ImportedSerializer(serializers.Serializer[Any]):
    slug = serializers.CharField()
    parameters = serializers.IntegerField(help_text="Computed from the shape.")
    active_parameters = serializers.IntegerField(help_text="Per token.")
    doubts = serializers.ListField(child=serializers.CharField(), help_text="What must be confirmed with confirm_size.")
    model = ModelSerializer(allow_null=True, help_text="The added model; null in a preview.")


class ModelImport(generics.GenericAPIView[ServedModel]):
    serializer_class = ImportedSerializer
    parser_classes = (FilesParser,)
    queryset = ServedModel.objects.none()

    def get_permissions(self) -> list[Any]:
        return [*super().get_permissions(), Members()]

    @extend_schema(
        operation_id="importModel",
        summary="Add a model from its config.json or its Hugging Face ID",
        description="Only the organization sees it. With `preview`, its size is computed and nothing is added.",
        request=ImportBody,
        responses={200: ImportedSerializer, 201: ImportedSerializer, **REFUSALS},
    )
    def post(self, request: Request) -> Response:
        body = ImportBody(data=request.data)
        body.is_valid(raise_exception=True)
        asked = {**body.validated_data}
        only_preview = asked.pop("preview")
        texts = {name: json.dumps(asked[name]) for name in ("config", "quantization") if name in asked}
        form = model_import.ImportForm({**asked, **texts})
        if not form.is_valid():
            raise Unprocessable(by_name(form.errors))
        try:
            files, name = form.given()
            row = model_import.row_of(files, name)
            known = model_import.preview(row, files, form.cleaned_data["published_parameters"])
            added = None
            if not only_preview:
                added = model_import.add(form, files, name, caller_of(request), "set confirm_size")
        except FixtureError as error:
            raise Unprocessable([str(error)]) from error
        found = {"slug": row["slug"], "parameters": known["computed"], "active_parameters": known["active"]}
        found |= {"doubts": known["doubts"], "model": added}
        return Response(ImportedSerializer(found).data, status=200 if only_preview else 201)
