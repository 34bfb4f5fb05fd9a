from django.urls import path
from rest_framework.routers import SimpleRouter

from catalog import api
from catalog.pricing import own_api

router = SimpleRouter(trailing_slash=False)
router.register("accelerators", api.Accelerators, basename="api-accelerator")
router.register("prices", api.Prices, basename="api-price")
router.register("api-prices", api.ApiPrices, basename="api-api-price")
router.register("models", api.Models, basename="api-model")
router.register("frameworks", api.Frameworks, basename="api-framework")
router.register("quantizations", api.Quantizations, basename="api-quantization")
router.register("units", api.Units, basename="api-unit")
router.register("regions", api.Regions, basename="api-region")
router.register("assumptions", api.Assumptions, basename="api-assumption")

urlpatterns = [
    *router.urls,
    path("own-prices", own_api.OwnPrices.as_view(), name="api-own-prices"),
    path("discounts", own_api.Discounts.as_view(), name="api-discounts"),
]
