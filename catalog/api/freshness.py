"""How fresh the catalog is, for tools."""

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from catalog.accounts import caller_of
from catalog.details import freshness
from catalog.models import Organisation
from catalog.rest import refuse_unknown


class LoadSerializer(serializers.Serializer[Any]):
    version = serializers.CharField(help_text="First 12 digits of the digest of the catalog's files.")
    loaded_at = serializers.CharField(help_text="UTC.")


class KindSerializer(serializers.Serializer[Any]):
    name = serializers.CharField()
    rows = serializers.IntegerField()
    newest = serializers.CharField(help_text="Date of the newest row; empty: there are no rows.")
    oldest = serializers.CharField()
    age_days = serializers.IntegerField(allow_null=True, help_text="Of the newest row.")
    by_age = serializers.DictField(child=serializers.IntegerField(), help_text="Rows by age.")
    said = serializers.CharField(help_text="What else there is to know.")


class FrameworkFreshnessSerializer(serializers.Serializer[Any]):
    framework = serializers.CharField()
    name = serializers.CharField()
    version = serializers.CharField(help_text="Newest version in the catalog.")
    as_of = serializers.CharField()
    measured_version = serializers.CharField(help_text="Newest version with measured rows; empty: none.")


class BundleSerializer(serializers.Serializer[Any]):
    made_at = serializers.CharField(help_text="UTC; empty: none was applied.")
    key = serializers.CharField(help_text="Fingerprint of the key that signed it.")
    applied_at = serializers.CharField()
    error = serializers.CharField(help_text="Why the last scheduled bundle was not applied; empty: it was.")


class RefreshSerializer(serializers.Serializer[Any]):
    at = serializers.CharField(help_text="UTC; empty: never.")
    state = serializers.CharField()
    answers_checked = serializers.IntegerField()
    answers_changed = serializers.ListField(child=serializers.CharField(), help_text="Names of saved answers.")


class LackingModelSerializer(serializers.Serializer[Any]):
    name = serializers.CharField()
    hf_id = serializers.CharField(help_text="On Hugging Face; empty: no source states one.")
    providers = serializers.IntegerField(help_text="That list it.")
    tokens = serializers.IntegerField(help_text="Read and written on OpenRouter, in the rankings that were read.")
    sources = serializers.ListField(child=serializers.CharField())


class LackingOfferSerializer(serializers.Serializer[Any]):
    listed_by = serializers.CharField(help_text="Price source.")
    name = serializers.CharField(help_text="Instance or accelerator, as the source calls it.")
    what = serializers.CharField()
    offers = serializers.IntegerField()


class FreshnessSerializer(serializers.Serializer[Any]):
    as_of = serializers.CharField()
    catalog = LoadSerializer()
    kinds = KindSerializer(many=True)
    frameworks = FrameworkFreshnessSerializer(many=True)
    bundle = BundleSerializer()
    price_refresh = RefreshSerializer()
    lacking = serializers.DictField(
        child=serializers.DictField(child=serializers.CharField()),
        help_text="By price source: what it listed when it was last read and the catalog lacks, and what that is.",
    )

    lacking_models = LackingModelSerializer(many=True, help_text="Models that sources list, most used first.")
    lacking_offers = LackingOfferSerializer(many=True, help_text="Instances and accelerators, most offers first.")


class Freshness(APIView):
    @extend_schema(
        operation_id="freshness",
        summary="How fresh the catalog is",
        description="The newest date and version of prices, models, accelerators, frameworks and measurements.",
        responses=FreshnessSerializer,
    )
    def get(self, request: Request) -> Response:
        refuse_unknown(request, {"format"})
        return Response(freshness.found(caller_of(request).organisation or Organisation()))
