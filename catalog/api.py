"""REST: the catalog, to read. Lists are filtered in the URL and paged."""

from django.http import Http404
from rest_framework import serializers, viewsets

from catalog import filters
from catalog.models import Accelerator, ApiPrice, Assumption, Framework, Price, QuantizationMethod, Region, ServedModel


class AcceleratorSerializer(serializers.ModelSerializer[Accelerator]):
    class Meta:
        model = Accelerator
        exclude = ("id",)


class PriceSerializer(serializers.ModelSerializer[Price]):
    accelerator: serializers.SlugRelatedField[Accelerator] = serializers.SlugRelatedField(
        slug_field="slug", read_only=True
    )

    class Meta:
        model = Price
        exclude = ("organisation",)


class ApiPriceSerializer(serializers.ModelSerializer[ApiPrice]):
    model: serializers.SlugRelatedField[ServedModel] = serializers.SlugRelatedField(slug_field="slug", read_only=True)

    class Meta:
        model = ApiPrice
        fields = "__all__"


class ModelSerializer(serializers.ModelSerializer[ServedModel]):
    class Meta:
        model = ServedModel
        exclude = ("id",)


class FrameworkSerializer(serializers.ModelSerializer[Framework]):
    class Meta:
        model = Framework
        fields = "__all__"


class QuantizationSerializer(serializers.ModelSerializer[QuantizationMethod]):
    class Meta:
        model = QuantizationMethod
        exclude = ("id",)


class RegionSerializer(serializers.ModelSerializer[Region]):
    class Meta:
        model = Region
        exclude = ("id",)


class AssumptionSerializer(serializers.ModelSerializer[Assumption]):
    class Meta:
        model = Assumption
        exclude = ("id",)


class Accelerators(viewsets.ReadOnlyModelViewSet[Accelerator]):
    """Chips with their rates, memory, links and power; every group of figures with its source."""

    queryset = Accelerator.objects.all()
    serializer_class = AcceleratorSerializer
    filterset_class = filters.AcceleratorFilter
    lookup_field = "slug"


class Prices(viewsets.ReadOnlyModelViewSet[Price]):
    """Public offers: whole instances by the hour, and what can be bought. Each with its date."""

    queryset = Price.objects.filter(organisation=None).select_related("accelerator")
    serializer_class = PriceSerializer
    filterset_class = filters.PriceFilter


class ApiPrices(viewsets.ReadOnlyModelViewSet[ApiPrice]):
    """What providers ask for hosted models, per million tokens. Each with its date."""

    queryset = ApiPrice.objects.select_related("model")
    serializer_class = ApiPriceSerializer
    filterset_class = filters.ApiPriceFilter


class Models(viewsets.ReadOnlyModelViewSet[ServedModel]):
    """Models with their shape and published size."""

    queryset = ServedModel.objects.all()
    serializer_class = ModelSerializer
    filterset_class = filters.ModelFilter
    lookup_field = "slug"


class Frameworks(viewsets.ReadOnlyModelViewSet[Framework]):
    """Serving frameworks, a row for each version."""

    queryset = Framework.objects.all()
    serializer_class = FrameworkSerializer
    filterset_class = filters.FrameworkFilter
    lookup_field = "slug"
    lookup_value_regex = "[^/]+"

    def get_object(self) -> Framework:
        """The newest version of the framework of that name."""
        newest = self.get_queryset().filter(slug=self.kwargs["slug"]).order_by("-as_of", "-pk").first()
        if newest is None:
            raise Http404
        return newest


class Quantizations(viewsets.ReadOnlyModelViewSet[QuantizationMethod]):
    """Ways to store weights and cache, with what is known of their quality."""

    queryset = QuantizationMethod.objects.all()
    serializer_class = QuantizationSerializer
    filterset_class = filters.QuantizationFilter
    lookup_field = "slug"


class Regions(viewsets.ReadOnlyModelViewSet[Region]):
    """Places with their electricity price and grid carbon."""

    queryset = Region.objects.all()
    serializer_class = RegionSerializer
    filterset_class = filters.RegionFilter
    lookup_field = "slug"


class Assumptions(viewsets.ReadOnlyModelViewSet[Assumption]):
    """Visible defaults of cost, power and reliability."""

    queryset = Assumption.objects.all()
    serializer_class = AssumptionSerializer
    lookup_field = "key"
