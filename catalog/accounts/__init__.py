"""Organizations, members, roles, invitations, secret tokens and the audit log."""

from catalog.accounts import (
    audit,
    everything,
    identities,
    invitations,
    organizations,
    quotas,
    retention,
    service_accounts,
)
from catalog.accounts.access import (
    SESSION_KEY,
    Caller,
    MembersOnly,
    Right,
    caller_of,
    for_any_account,
    for_templates,
    memberships_of,
    needs,
    organisation_of,
    refused,
    rights_behind,
    why_not,
)
from catalog.accounts.secret_tokens import hashed, new_token
