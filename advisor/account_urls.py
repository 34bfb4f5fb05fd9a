from django.urls import path

from advisor.accounts import audit_page, organization_page, pages, sign_in_link, single_sign_on, webhook_pages
from catalog.accounts import for_any_account

urlpatterns = [
    path("login", pages.SignIn.as_view(), name="login"),
    path("logout", for_any_account(pages.SignOut.as_view()), name="logout"),
    path("sign-in/provider", single_sign_on.begin, name="single-sign-on"),
    path("sign-in/provider/callback", single_sign_on.callback, name="single-sign-on-callback"),
    path("sign-in/link/<str:token>", sign_in_link.page, name="sign-in-link"),
    path("password/reset", pages.Reset.as_view(), name="password-reset"),
    path("password/reset/sent", pages.ResetSent.as_view(), name="password-reset-sent"),
    path("password/reset/done", pages.ResetDone.as_view(), name="password-reset-done"),
    path("password/reset/<uidb64>/<token>", pages.ResetConfirm.as_view(), name="password-reset-confirm"),
    path("join/<str:token>", pages.join, name="join"),
    path("account", pages.account, name="account"),
    path("account/organization", pages.switch, name="account-organization"),
    path("members", pages.member_list, name="members"),
    path("members/<int:pk>/role", pages.member_role, name="member-role"),
    path("members/<int:pk>/remove", pages.member_remove, name="member-remove"),
    path("members/invitations/<int:pk>/revoke", pages.invitation_revoke, name="invitation-revoke"),
    path("tokens", pages.token_list, name="tokens"),
    path("account/tokens", pages.own_tokens, name="own-tokens"),
    path("account/tokens/<int:pk>/revoke", pages.own_token_revoke, name="own-token-revoke"),
    path("service-accounts", pages.service_account_new, name="service-account-new"),
    path("service-accounts/<int:pk>", pages.service_account_change, name="service-account-change"),
    path("tokens/<int:pk>/delete", pages.token_delete, name="token-delete"),
    path("webhooks", webhook_pages.every, name="webhooks"),
    path("webhooks/<int:pk>", webhook_pages.one, name="webhook"),
    path("webhooks/<int:pk>/deliveries/<int:delivery>", webhook_pages.redeliver, name="webhook-redeliver"),
    path("organization", organization_page.page, name="organization"),
    path("organization/export", organization_page.export, name="organization-export"),
    path("organization/delete", organization_page.delete, name="organization-delete"),
    path("audit", audit_page.page, name="audit"),
]
