from django.urls import path
from rest_framework.routers import SimpleRouter

from catalog.api import changes, freshness, lists, own_prices

router = SimpleRouter(trailing_slash=False)
router.register("accelerators", lists.Accelerators, basename="api-accelerator")
router.register("prices", lists.Prices, basename="api-price")
router.register("api-prices", lists.ApiPrices, basename="api-api-price")
router.register("models", lists.Models, basename="api-model")
router.register("frameworks", lists.Frameworks, basename="api-framework")
router.register("quantizations", lists.Quantizations, basename="api-quantization")
router.register("units", lists.Units, basename="api-unit")
router.register("regions", lists.Regions, basename="api-region")
router.register("assumptions", lists.Assumptions, basename="api-assumption")
router.register("evidence", lists.Evidence, basename="api-evidence")

urlpatterns = [
    path("models/import", changes.ModelImport.as_view(), name="api-model-import"),
    path("saved-views", changes.SavedViews.as_view(), name="api-saved-views"),
    path("saved-views/<int:pk>", changes.OneSavedView.as_view(), name="api-saved-view"),
    *router.urls,
    path("freshness", freshness.Freshness.as_view(), name="api-freshness"),
    path("own-prices", own_prices.OwnPrices.as_view(), name="api-own-prices"),
    path("discounts", own_prices.Discounts.as_view(), name="api-discounts"),
]
