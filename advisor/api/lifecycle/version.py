"""GET /api/v1/version: of the application, its engine, its API and its catalog."""

from typing import Any

from django.conf import settings
from drf_spectacular.utils import extend_schema
from rest_framework import serializers, views
from rest_framework.request import Request
from rest_framework.response import Response

from advisor.engine import ENGINE_VERSION
from catalog.models import CatalogLoad, Price
from catalog.rest import problems

API_VERSION = "1"
MIN_CLIENT_VERSION = "0.1.0"  # older clients of this API lack what it requires


class CatalogVersionSerializer(serializers.Serializer[Any]):
    version = serializers.CharField(allow_null=True, help_text="Null: no catalog is loaded")
    loaded_at = serializers.DateTimeField(allow_null=True)
    prices_as_of = serializers.DateField(allow_null=True, help_text="The newest public price")


class VersionSerializer(serializers.Serializer[Any]):
    application = serializers.CharField(help_text="Version of Assay")
    engine = serializers.CharField(help_text="Version of the engine, as answers state it")
    api = serializers.CharField(help_text="Of the paths and documents of this API")
    min_client_version = serializers.CharField(help_text="Older clients may not work")
    revision = serializers.CharField(allow_null=True, help_text="Git commit; null: not known")
    catalog = CatalogVersionSerializer()


class Version(views.APIView):
    @extend_schema(
        operation_id="getVersion",
        summary="Get the versions of the service and its catalog",
        responses={200: VersionSerializer, **problems(401, 406)},
    )
    def get(self, request: Request) -> Response:
        load = CatalogLoad.objects.order_by("-loaded_at", "-pk").first()
        price = Price.objects.filter(organisation=None).order_by("-as_of").values_list("as_of", flat=True).first()
        catalog = {
            "version": load and load.version,
            "loaded_at": load and load.loaded_at,
            "prices_as_of": price,
        }
        found = {
            "application": ENGINE_VERSION,  # released together
            "engine": ENGINE_VERSION,
            "api": API_VERSION,
            "min_client_version": MIN_CLIENT_VERSION,
            "revision": settings.REVISION or None,
            "catalog": catalog,
        }
        return Response(VersionSerializer(found).data)
