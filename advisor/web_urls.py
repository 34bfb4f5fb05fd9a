from django.urls import path

from advisor.web import accuracy_page, comments, deletion_views, document_views, load_test_views, price_pages, views

urlpatterns = [
    path("", views.ask, name="ask"),
    path("fidelity", accuracy_page.page, name="fidelity"),
    path("advice", views.advice_list, name="advice-list"),
    path("advice/<uuid:pk>", views.advice, name="advice"),
    path("advice/<uuid:pk>/cancel", views.cancel, name="advice-cancel"),
    path("advice/<uuid:pk>/delete", deletion_views.advice, name="advice-delete"),
    path("advice/<uuid:pk>/rescore", views.rescore, name="advice-rescore"),
    path("advice/<uuid:pk>/share", views.share, name="advice-share"),
    path("advice/<uuid:pk>/unshare", views.unshare, name="advice-unshare"),
    path("advice/<uuid:pk>/shares/<int:share>/delete", deletion_views.share, name="share-delete"),
    path("advice/<uuid:pk>/options/<int:rank>", views.option, name="advice-option"),
    path("advice/<uuid:pk>/options/<int:rank>/load-tests", load_test_views.upload, name="load-test-upload"),
    path("advice/<uuid:pk>/options/<int:rank>/load-tests/<int:test>", load_test_views.switch, name="load-test-switch"),
    path(
        "advice/<uuid:pk>/options/<int:rank>/load-tests/<int:test>/delete",
        deletion_views.load_test,
        name="load-test-delete",
    ),
    path("advice/<uuid:pk>/result.json", views.export_json, name="advice-json"),
    path("advice/<uuid:pk>/workload.yaml", views.export_workload, name="advice-workload"),
    path("advice/<uuid:pk>/options.csv", views.export_csv, name="advice-csv"),
    path("advice/<uuid:pk>/advice.md", views.export_markdown, name="advice-markdown"),
    path("advice/<uuid:pk>/documents/<str:name>", document_views.page, name="advice-document"),
    path("catalog/prices/updates", price_pages.updates, name="price-updates"),
    path("catalog/prices/held/<int:pk>", price_pages.decide, name="price-decide"),
    path("advice/<uuid:pk>/comments", comments.add, name="comment-add"),
    path("advice/<uuid:pk>/comments/<int:comment>/delete", comments.delete, name="comment-delete"),
    path("s/<str:token>", views.shared, name="shared"),
    path("s/<str:token>/documents/<str:name>", document_views.shared_page, name="shared-document"),
    path("s/<str:token>/options/<int:rank>", views.shared_option, name="shared-option"),
]
