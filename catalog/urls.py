from django.urls import path, re_path

from catalog import views

app_name = "catalog"
urlpatterns = [
    path("", views.home, name="home"),
    re_path(rf"^(?P<name>{'|'.join(views.LISTS)})$", views.listing, name="list"),
    path("accelerators/<slug:slug>", views.accelerator, name="accelerator"),
    path("models/<slug:slug>", views.model, name="model"),
    path("frameworks/<str:slug>/<str:version>", views.framework, name="framework"),
    path("quantizations/<slug:slug>", views.quantization, name="quantization"),
]
