"""Django admin of machines and enrollments: read-only, except that tokens can be revoked."""

# mypy: allow-subclassing-any, allow-any-generics

from django.contrib import admin
from django.db.models import Model, QuerySet
from django.http import HttpRequest

from probes.machines import agents
from probes.models import Agent, Enrolment


class ReadOnly(admin.ModelAdmin):
    """Rows that the admin cannot add, change or delete."""

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False


@admin.register(Agent)
class AgentAdmin(ReadOnly):
    list_display = ("name", "state", "token_prefix", "registered_at", "token_expires_at", "last_seen_at", "revoked_at")
    exclude = ("token_hash", "old_token_hash", "key_salt", "old_key_salt")
    actions = ("revoke",)

    @admin.display(description="state")
    def state(self, agent: Agent) -> str:
        return agents.status(agent)

    @admin.action(description="Revoke the selected machines", permissions=["revoke"])
    def revoke(self, request: HttpRequest, queryset: QuerySet[Agent]) -> None:
        count = sum(agents.revoke(agent, request.user.get_username()) for agent in queryset)
        self.message_user(request, f"{count} revoked. Their next call will be refused.")

    def has_revoke_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("probes.change_agent")


@admin.register(Enrolment)
class EnrolmentAdmin(ReadOnly):
    list_display = ("token_prefix", "made_by", "made_at", "expires_at", "used_at", "agent")
    exclude = ("token_hash",)
