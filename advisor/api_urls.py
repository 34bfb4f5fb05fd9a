from django.urls import path

from advisor.accounts import rest
from advisor.api import (
    AdviceDetail,
    AdviceList,
    AdviceResult,
    CancelAdvice,
    EstimateOne,
    OneLoadTest,
    OneShare,
    OneToken,
    Quick,
    Root,
)
from advisor.web import accuracy_page, comments, document_views, load_test_views, share_links

urlpatterns = [
    path("", Root.as_view(), name="api-root"),
    path("advice", AdviceList.as_view(), name="api-advice-list"),
    path("advice/<uuid:pk>", AdviceDetail.as_view(), name="api-advice"),
    path("advice/<uuid:pk>/cancel", CancelAdvice.as_view(), name="api-advice-cancel"),
    path("advice/<uuid:pk>/result", AdviceResult.as_view(), name="api-advice-result"),
    path("advice/<uuid:pk>/documents/<str:name>", document_views.Document.as_view(), name="api-advice-document"),
    path("advice/<uuid:pk>/options/<int:rank>/load-tests", load_test_views.LoadTests.as_view(), name="api-load-tests"),
    path("advice/<uuid:pk>/options/<int:rank>/load-tests/<int:test>", OneLoadTest.as_view(), name="api-load-test"),
    path("advice/<uuid:pk>/comments", comments.Comments.as_view(), name="api-comments"),
    path("advice/<uuid:pk>/comments/<int:comment>", comments.OneComment.as_view(), name="api-comment"),
    path("advice/<uuid:pk>/shares", share_links.AllShares.as_view(), name="api-shares"),
    path("advice/<uuid:pk>/shares/<int:share>", OneShare.as_view(), name="api-share"),
    path("advice/<uuid:pk>/shares/<int:share>/end", share_links.EndShare.as_view(), name="api-share-end"),
    path("tokens", rest.AllTokens.as_view(), name="api-tokens"),
    path("tokens/<int:pk>", OneToken.as_view(), name="api-token"),
    path("tokens/<int:pk>/rotate", rest.RotateToken.as_view(), name="api-token-rotate"),
    path("own-tokens", rest.OwnTokens.as_view(), name="api-own-tokens"),
    path("own-tokens/<int:pk>", rest.OneOwnToken.as_view(), name="api-own-token"),
    path("own-tokens/<int:pk>/rotate", rest.RotateOwnToken.as_view(), name="api-own-token-rotate"),
    path("service-accounts", rest.ServiceAccounts.as_view(), name="api-service-accounts"),
    path("service-accounts/<int:pk>", rest.OneServiceAccount.as_view(), name="api-service-account"),
    path("members", rest.Members.as_view(), name="api-members"),
    path("members/<int:pk>", rest.OneMember.as_view(), name="api-member"),
    path("invitations", rest.Invitations.as_view(), name="api-invitations"),
    path("invitations/<int:pk>", rest.OneInvitation.as_view(), name="api-invitation"),
    path("audit", rest.Audit.as_view(), name="api-audit"),
    path("quick", Quick.as_view(), name="api-quick"),
    path("estimate", EstimateOne.as_view(), name="api-estimate"),
    path("fidelity", accuracy_page.Fidelity.as_view(), name="api-fidelity"),
    path("fidelity/rows", accuracy_page.FidelityRows.as_view(), name="api-fidelity-rows"),
]
