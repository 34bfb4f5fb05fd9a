from django.urls import path

from advisor import accuracy, api, finance_views, load_test_views

urlpatterns = [
    path("", api.Root.as_view(), name="api-root"),
    path("advice", api.AdviceList.as_view(), name="api-advice-list"),
    path("advice/<uuid:pk>", api.AdviceDetail.as_view(), name="api-advice"),
    path("advice/<uuid:pk>/cancel", api.CancelAdvice.as_view(), name="api-advice-cancel"),
    path("advice/<uuid:pk>/result", api.AdviceResult.as_view(), name="api-advice-result"),
    path("advice/<uuid:pk>/documents/<str:name>", finance_views.Document.as_view(), name="api-advice-document"),
    path("advice/<uuid:pk>/options/<int:rank>/load-tests", load_test_views.LoadTests.as_view(), name="api-load-tests"),
    path("advice/<uuid:pk>/options/<int:rank>/load-tests/<int:test>", api.OneLoadTest.as_view(), name="api-load-test"),
    path("advice/<uuid:pk>/shares", api.Shares.as_view(), name="api-shares"),
    path("advice/<uuid:pk>/shares/<int:share>", api.OneShare.as_view(), name="api-share"),
    path("tokens", api.Tokens.as_view(), name="api-tokens"),
    path("tokens/<int:pk>", api.OneToken.as_view(), name="api-token"),
    path("estimate", api.EstimateOne.as_view(), name="api-estimate"),
    path("fidelity", accuracy.Fidelity.as_view(), name="api-fidelity"),
    path("fidelity/rows", accuracy.FidelityRows.as_view(), name="api-fidelity-rows"),
]
