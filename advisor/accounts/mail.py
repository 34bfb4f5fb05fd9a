"""E-mail on a server that nobody told how to send it."""

from collections.abc import Sequence

from django.contrib.auth.models import User
from django.core.mail import EmailMessage
from django.core.mail.backends.console import EmailBackend
from structlog import get_logger

log = get_logger("assay.accounts")


class Withheld(EmailBackend):
    """Prints e-mails while no accounts exist. With accounts, a log must not show links that open them."""

    def send_messages(self, messages: Sequence[EmailMessage]) -> int:
        if not User.objects.exists():
            return super().send_messages(messages) or 0
        for _ in messages:
            log.warning("e-mail not sent: set ASSAY_EMAIL_URL, or ASSAY_EMAIL_TO_LOG=true to print e-mails here")
        return 0
