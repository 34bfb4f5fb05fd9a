from django.urls import path, re_path

from catalog import deleting, importing, pages, views
from catalog.lists import saved_pages
from catalog.pricing import index_pages, own_pages

app_name = "catalog"
urlpatterns = [
    path("", views.home, name="home"),
    re_path(rf"^(?P<name>{'|'.join(views.LISTS)})$", views.listing, name="list"),
    path("prices/index", index_pages.overview, name="price-index"),
    path("prices/index/<slug:slug>", index_pages.one, name="price-index-one"),
    path("views", saved_pages.views, name="views"),
    path("compare", pages.compare, name="compare"),
    path("prices/new", own_pages.new_price, name="own-price"),
    path("prices/upload", own_pages.upload, name="own-upload"),
    path("prices/own", own_pages.own_prices, name="own-prices"),
    path("discounts/new", own_pages.new_discount, name="own-discount"),
    path("models/import", importing.model_import, name="model-import"),
    path("accelerators/<slug:slug>", pages.accelerator, name="accelerator"),
    path("models/<slug:slug>", pages.model, name="model"),
    path("models/<slug:slug>/delete", deleting.model_page, name="model-delete"),
    path("frameworks/<str:slug>", pages.framework_versions, name="framework-versions"),
    path("frameworks/<str:slug>/<str:version>", pages.framework, name="framework"),
    path("quantizations/<slug:slug>", pages.quantization, name="quantization"),
    path("units/<slug:slug>", pages.unit, name="unit"),
    path("regions/<slug:slug>", pages.region, name="region"),
]
