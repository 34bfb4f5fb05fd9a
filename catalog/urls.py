from django.urls import path, re_path

from catalog import deleting, importing, pages, views

app_name = "catalog"
urlpatterns = [
    path("", views.home, name="home"),
    re_path(rf"^(?P<name>{'|'.join(views.LISTS)})$", views.listing, name="list"),
    path("compare", pages.compare, name="compare"),
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
