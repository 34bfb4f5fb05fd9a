"""API tokens in the admin, which can list and revoke them; `manage.py token` makes them."""

# mypy: allow-subclassing-any, allow-any-generics

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest

from advisor.api import tokens
from advisor.models import ApiToken


@admin.register(ApiToken)
class ApiTokenAdmin(admin.ModelAdmin):
    list_display = ("name", "scope", "status", "token_prefix", "made_by", "made_at", "expires_at", "last_used_at")
    list_filter = ("scope",)
    exclude = ("token_hash",)
    actions = ("revoke",)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: ApiToken | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: ApiToken | None = None) -> bool:
        return False

    @admin.action(description="Revoke the selected tokens", permissions=["revoke"])
    def revoke(self, request: HttpRequest, queryset: QuerySet[ApiToken]) -> None:
        revoked = sum(tokens.revoke(row, request.user.get_username()) for row in queryset)
        self.message_user(request, f"{revoked} tokens revoked.")

    def has_revoke_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("advisor.change_apitoken")
