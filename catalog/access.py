"""Who may change the catalog, machines and results: staff; before this installation has a user, everybody."""

from typing import Any

from django.conf import settings
from django.contrib.auth.models import User


def may_change(user: Any) -> bool:
    return bool(getattr(user, "is_staff", False)) or (settings.OPEN and not User.objects.exists())
