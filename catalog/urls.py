from django.urls import path, re_path

from catalog.pages import deletion, details, freshness, lists, model_import, own_prices, price_index, saved_views

app_name = "catalog"
urlpatterns = [
    path("", lists.home, name="home"),
    re_path(rf"^(?P<name>{'|'.join(lists.LISTS)})$", lists.listing, name="list"),
    path("prices/index", price_index.overview, name="price-index"),
    path("prices/index/<slug:slug>", price_index.one, name="price-index-one"),
    path("freshness", freshness.overview, name="freshness"),
    path("views", saved_views.views, name="views"),
    path("compare", details.compare, name="compare"),
    path("prices/new", own_prices.new_price, name="own-price"),
    path("prices/upload", own_prices.upload, name="own-upload"),
    path("prices/own", own_prices.own_prices, name="own-prices"),
    path("discounts/new", own_prices.new_discount, name="own-discount"),
    path("models/import", model_import.model_import, name="model-import"),
    path("accelerators/<slug:slug>", details.accelerator, name="accelerator"),
    path("models/<slug:slug>", details.model, name="model"),
    path("models/<slug:slug>/share", details.model_share, name="model-share"),
    path("models/<slug:slug>/delete", deletion.model_page, name="model-delete"),
    path("frameworks/<str:slug>", details.framework_versions, name="framework-versions"),
    path("frameworks/<str:slug>/<str:version>", details.framework, name="framework"),
    path("quantizations/<slug:slug>", details.quantization, name="quantization"),
    path("units/<slug:slug>", details.unit, name="unit"),
    path("regions/<slug:slug>", details.region, name="region"),
]
