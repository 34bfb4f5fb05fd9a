"""Events of a user in the audit logs of the organizations that it belongs to."""

from django.contrib.auth.models import User

from catalog.accounts import audit, memberships_of


def of_user(user: User, action: audit.Action, detail: str = "") -> None:
    for membership in memberships_of(user):
        audit.record(membership.organisation, user.get_username(), action, user.get_username(), detail)
