"""Accounts: sign-in, invitations, members, tokens and the audit log."""

from advisor.accounts import audit_page, members, pages

__all__ = ["audit_page", "members", "pages"]
