"""Who may change the catalog, machines and results: staff, or anyone while the installation has no user."""

from typing import Any

from django.conf import settings
from django.contrib.auth.models import User


def may_change(user: Any) -> bool:
    """Whether `user` may change data. Signed-in users and tokens always need staff rights."""
    if getattr(user, "is_authenticated", False):
        return bool(getattr(user, "is_staff", False))
    return settings.OPEN and not User.objects.exists()
