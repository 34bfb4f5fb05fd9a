"""Organizations, members, roles, invitations, secret tokens and the audit log."""

from catalog.accounts import audit, identities, invitations, organizations, quotas, retention, service_accounts
from catalog.accounts.access import (
    OF_SCOPE,
    SESSION_KEY,
    Caller,
    MembersOnly,
    Right,
    caller_of,
    for_any_account,
    for_templates,
    memberships_of,
    needed_role,
    needs,
    organisation_of,
    refused,
    rights_behind,
    why_not,
)
from catalog.accounts.secret_tokens import hashed, new_token

__all__ = [
    "Caller",
    "MembersOnly",
    "OF_SCOPE",
    "Right",
    "SESSION_KEY",
    "audit",
    "caller_of",
    "for_any_account",
    "for_templates",
    "hashed",
    "identities",
    "invitations",
    "memberships_of",
    "needed_role",
    "needs",
    "new_token",
    "organisation_of",
    "organizations",
    "quotas",
    "refused",
    "retention",
    "rights_behind",
    "service_accounts",
    "why_not",
]
