"""The pages of accounts: sign-in, invitations, members, tokens and the audit log."""

from advisor.accounts import audit_page, emails, pages

__all__ = ["audit_page", "emails", "pages"]
