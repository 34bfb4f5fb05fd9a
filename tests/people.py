"""Accounts with a role in an organization."""

from typing import Any

from django.contrib.auth.models import User

from catalog.models import Membership, Organisation, default_organisation


def member(name: str = "ada", role: str = "planner", organisation: Organisation | None = None, **fields: Any) -> User:
    """A new account that belongs to an organization (default: the default one)."""
    user = User.objects.create_user(name, **fields)
    Membership.objects.create(user=user, organisation=organisation or default_organisation(), role=role)
    return user


def organisation(slug: str = "acme") -> Organisation:
    return Organisation.objects.create(slug=slug, name=slug.title())
