"""Machines and the leave to register them, in the admin: seen there, and their tokens taken back."""

# mypy: allow-subclassing-any, allow-any-generics

from django.contrib import admin
from django.db.models import Model, QuerySet
from django.http import HttpRequest

from probes import agents
from probes.models import Agent, Enrolment


class Seen(admin.ModelAdmin):
    """Rows that only the use-cases change."""

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False


@admin.register(Agent)
class AgentAdmin(Seen):
    list_display = ("name", "state", "token_prefix", "registered_at", "token_expires_at", "last_seen_at", "revoked_at")
    exclude = ("token_hash", "old_token_hash", "key_salt", "old_key_salt")
    actions = ("revoke",)

    @admin.display(description="state")
    def state(self, agent: Agent) -> str:
        return agents.status(agent)

    @admin.action(description="Revoke the chosen machines", permissions=["revoke"])
    def revoke(self, request: HttpRequest, queryset: QuerySet[Agent]) -> None:
        done = sum(agents.revoke(agent) for agent in queryset)
        self.message_user(request, f"{done} revoked: their next call is refused.")

    def has_revoke_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("probes.change_agent")


@admin.register(Enrolment)
class EnrolmentAdmin(Seen):
    list_display = ("token_prefix", "made_by", "made_at", "expires_at", "used_at", "agent")
    exclude = ("token_hash",)
