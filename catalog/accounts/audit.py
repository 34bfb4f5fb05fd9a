"""The audit log: who did what in an organization. Call `record` in the transaction of the action."""

from django.db import models
from django.utils.translation import gettext_lazy as _

from catalog.models import AuditEvent, Organisation


class Action(models.TextChoices):
    SIGN_IN = "sign_in", _("signed in")
    SIGN_IN_FAILED = "sign_in_failed", _("failed to sign in")
    PASSWORD = "password", _("changed a password")
    ORGANIZATION = "organization", _("created an organization")
    INVITE = "invite", _("invited")
    INVITATION_REVOKED = "invitation_revoked", _("revoked an invitation")
    JOIN = "join", _("joined")
    ROLE = "role", _("changed a role")
    MEMBER_REMOVED = "member_removed", _("removed a member")
    SHARE = "share", _("created a link")
    SHARE_ENDED = "share_ended", _("revoked a link")
    DELETE = "delete", _("deleted")
    TOKEN = "token", _("created a token")
    TOKEN_REVOKED = "token_revoked", _("revoked a token")
    PRICES = "prices", _("added prices")
    DISCOUNTS = "discounts", _("added discounts")
    PRICE_DECISION = "price_decision", _("decided about a price")
    ENROLL = "enroll", _("created an enrollment")
    MACHINE = "machine", _("registered a machine")
    MACHINE_CHANGED = "machine_changed", _("changed a machine")
    RESULT = "result", _("released a result")
    CALIBRATION = "calibration", _("undid a calibration")
    COMMENT = "comment", _("commented")
    MODEL = "model", _("added a model")


def record(organisation: Organisation, who: str, action: Action, what: object = "", detail: str = "") -> None:
    """Adds one event. `who`: a user name, `token NAME`, `machine NAME` or `manage.py`; empty in single-user mode."""
    AuditEvent.objects.create(
        organisation=organisation, who=who[:150], action=action, what=str(what)[:200], detail=detail[:500]
    )
