"""The pages and calls of accounts: sign-in, invitations, members, tokens, webhooks and the audit log."""

from advisor.accounts import (
    audit_page,
    emails,
    organization_page,
    pages,
    rest,
    sign_in_link,
    single_sign_on,
    webhook_pages,
)
