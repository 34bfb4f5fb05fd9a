"""The audit log: who did what in an organization. Call `record` in the transaction of the action."""

from django.db import models

from catalog.models import AuditEvent, Organisation


class Action(models.TextChoices):
    SIGN_IN = "sign_in", "signed in"
    SIGN_IN_FAILED = "sign_in_failed", "failed to sign in"
    PASSWORD = "password", "changed a password"
    ORGANIZATION = "organization", "created an organization"
    INVITE = "invite", "invited"
    INVITATION_REVOKED = "invitation_revoked", "revoked an invitation"
    JOIN = "join", "joined"
    ROLE = "role", "changed a role"
    MEMBER_REMOVED = "member_removed", "removed a member"
    SHARE = "share", "created a link"
    SHARE_ENDED = "share_ended", "revoked a link"
    DELETE = "delete", "deleted"
    TOKEN = "token", "created a token"
    TOKEN_REVOKED = "token_revoked", "revoked a token"
    SERVICE_ACCOUNT = "service_account", "changed a service account"
    LIMITS = "limits", "changed quotas or retention"
    EXPORT = "export", "exported everything"
    PRICES = "prices", "added prices"
    DISCOUNTS = "discounts", "added discounts"
    PRICE_DECISION = "price_decision", "decided about a price"
    EVIDENCE_DECISION = "evidence_decision", "decided about a figure"
    ENROLL = "enroll", "created an enrollment"
    MACHINE = "machine", "registered a machine"
    MACHINE_CHANGED = "machine_changed", "changed a machine"
    RESULT = "result", "released a result"
    CALIBRATION = "calibration", "undid a calibration"
    COMMENT = "comment", "commented"
    WEBHOOK = "webhook", "changed a webhook"
    MODEL = "model", "added a model"


def record(organisation: Organisation, who: str, action: Action, what: object = "", detail: str = "") -> None:
    """Adds one event. `who`: a user name, `token NAME`, `machine NAME` or `manage.py`; empty in single-user mode."""
    AuditEvent.objects.create(
        organisation=organisation, who=who[:150], action=action, what=str(what)[:200], detail=detail[:500]
    )
