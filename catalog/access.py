"""Who may change the catalog, machines and results: staff; visitors too, while the installation has no user."""

from typing import Any

from django.conf import settings
from django.contrib.auth.models import User


def may_change(user: Any) -> bool:
    """A user or the holder of a token has no more than their own rights, even where a visitor has more."""
    if getattr(user, "is_authenticated", False):
        return bool(getattr(user, "is_staff", False))
    return settings.OPEN and not User.objects.exists()
