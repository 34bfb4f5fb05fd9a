"""E-mails of accounts, and the addresses of pages in them."""

from django.conf import settings
from django.core.mail import send_mail
from django.template.loader import render_to_string
from structlog import get_logger

from catalog.accounts import invitations
from catalog.models import Invitation

log = get_logger("assay.accounts")


def send_invitation(row: Invitation, url: str) -> bool:
    """Sends the link by e-mail. False: the e-mail could not be sent, so the link must be passed on otherwise."""
    context = {"invitation": row, "url": url, "days": invitations.INVITATION_DAYS}
    subject = render_to_string("accounts/invitation_subject.txt", context).strip()
    try:
        return bool(send_mail(subject, render_to_string("accounts/invitation_email.txt", context), None, [row.email]))
    except OSError as error:  # of the connection, and every SMTP error
        log.warning("invitation not sent", error=type(error).__name__)
        return False


def can_send() -> bool:
    """Whether somebody told this server how to send e-mail."""
    return settings.EMAIL_BACKEND != "advisor.accounts.mail.Withheld"


def link(path: str) -> str:
    """The address of a page for e-mails. Not that of the request: its Host header is chosen by whoever sends it."""
    return settings.PUBLIC_URL.rstrip("/") + path
