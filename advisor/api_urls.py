from django.urls import path

from advisor.api import (
    AdviceDetail,
    AdviceList,
    AdviceResult,
    AdviceSummary,
    CancelAdvice,
    EstimateOne,
    Estimates,
    OneLoadTest,
    OneShare,
    OneToken,
    Quick,
    Root,
    Shares,
    Tokens,
)
from advisor.web import accuracy_page, comments, document_views, load_test_views

urlpatterns = [
    path("", Root.as_view(), name="api-root"),
    path("advice", AdviceList.as_view(), name="api-advice-list"),
    path("advice/<uuid:pk>", AdviceDetail.as_view(), name="api-advice"),
    path("advice/<uuid:pk>/cancel", CancelAdvice.as_view(), name="api-advice-cancel"),
    path("advice/<uuid:pk>/result", AdviceResult.as_view(), name="api-advice-result"),
    path("advice/<uuid:pk>/summary", AdviceSummary.as_view(), name="api-advice-summary"),
    path("advice/<uuid:pk>/documents/<str:name>", document_views.Document.as_view(), name="api-advice-document"),
    path("advice/<uuid:pk>/options/<int:rank>/load-tests", load_test_views.LoadTests.as_view(), name="api-load-tests"),
    path("advice/<uuid:pk>/options/<int:rank>/load-tests/<int:test>", OneLoadTest.as_view(), name="api-load-test"),
    path("advice/<uuid:pk>/comments", comments.Comments.as_view(), name="api-comments"),
    path("advice/<uuid:pk>/comments/<int:comment>", comments.OneComment.as_view(), name="api-comment"),
    path("advice/<uuid:pk>/shares", Shares.as_view(), name="api-shares"),
    path("advice/<uuid:pk>/shares/<int:share>", OneShare.as_view(), name="api-share"),
    path("tokens", Tokens.as_view(), name="api-tokens"),
    path("tokens/<int:pk>", OneToken.as_view(), name="api-token"),
    path("quick", Quick.as_view(), name="api-quick"),
    path("estimate", EstimateOne.as_view(), name="api-estimate"),
    path("estimates", Estimates.as_view(), name="api-estimates"),
    path("fidelity", accuracy_page.Fidelity.as_view(), name="api-fidelity"),
    path("fidelity/rows", accuracy_page.FidelityRows.as_view(), name="api-fidelity-rows"),
]
