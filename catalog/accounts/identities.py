"""Accounts of people whom an OpenID Connect provider knows, and the memberships that its groups give.

A person is known by issuer and subject, never by e-mail address: addresses change and are given to somebody else. Only
the first sign-in uses a verified address, to find the account that an invitation made.
"""

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Q
from django.utils.translation import gettext as _

from catalog.accounts import audit
from catalog.accounts.invitations import pending
from catalog.accounts.organizations import Refused
from catalog.models import Identity, Membership, Organisation, Role

BY = "single sign-on"
RANK = {role: number for number, role in enumerate(Role.values)}
Mapping = Iterable[tuple[str, str, str]]  # (group, slug of the organization, role)
RevokeTokens = Callable[[Organisation, str], int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Person:
    """What a provider states about whoever signed in there."""

    issuer: str
    subject: str
    email: str  # verified by the provider; empty: none is
    name: str
    groups: tuple[str, ...] | None  # None: the provider sent no claim of groups


def signed_in(person: Person, mapping: Mapping, claim: str, revoke_tokens: RevokeTokens) -> User:
    """The account of a person, with the memberships that the groups give now.

    `claim`: name of the claim of groups. Refused: the account is deactivated, somebody else's, or of no organization;
    memberships that the groups no longer give have ended nevertheless.
    """
    wanted = roles_of(person.groups or (), mapping)
    with transaction.atomic():
        user = known(person)
        if user is None and (wanted or pending().filter(email__iexact=person.email).exclude(email="").exists()):
            user = created(person)
        if user is not None:
            apply(user, wanted, revoke_tokens)
    if user is None or not belongs_somewhere(user, person.email):
        raise Refused(no_organization(person, claim))
    return user


def roles_of(groups: Iterable[str], mapping: Mapping) -> dict[str, str]:
    """The role in each organization (by slug) that the groups give: the highest, if several do."""
    given = {name.removeprefix("/") for name in groups}  # Keycloak writes the path of a group
    found: dict[str, str] = {}
    for group, slug, role in mapping:
        if group.removeprefix("/") in given and RANK[role] > RANK.get(found.get(slug, ""), -1):
            found[slug] = role
    return found


def known(person: Person) -> User | None:
    """The account of this person; None: there is none yet. Refused: it may not be used."""
    identity = Identity.objects.filter(issuer=person.issuer, subject=person.subject).select_related("user").first()
    user = identity.user if identity else linked(person)
    if user is not None and not user.is_active:
        raise Refused(_("Your account here is deactivated. Ask your administrator."))
    return user


def linked(person: Person) -> User | None:
    """The account with this verified e-mail address, which becomes the person's. Refused: it is not theirs for sure."""
    same = Q(email__iexact=person.email) | Q(username__iexact=person.email)
    found = list(User.objects.filter(same)) if person.email else []
    if not found:
        return None
    user = found[0]
    taken = Identity.objects.filter(user=user, issuer=person.issuer).exists()
    if len(found) > 1 or taken or user.is_staff or user.is_superuser:
        raise Refused(
            _(
                "There is already an account with the address %(email)s that single sign-on may not take over. Ask "
                "your administrator to change its address or to delete it."
            )
            % {"email": person.email}
        )
    if user.is_active:
        Identity.objects.create(user=user, issuer=person.issuer, subject=person.subject)
        end_password(user)
    return user


def end_password(user: User) -> None:
    """Ends the password and the sessions: whoever sent the invitation could have accepted it, and chosen them."""
    if user.has_usable_password():
        user.set_unusable_password()
        user.save(update_fields=["password"])
        for row in user.memberships.select_related("organisation"):
            audit.record(row.organisation, BY, audit.Action.PASSWORD, user.get_username(), "ended")


def created(person: Person) -> User:
    # Never an address that is not verified: invitations are found by user name, too.
    digest = hashlib.sha256(f"{person.issuer} {person.subject}".encode()).hexdigest()
    user = User.objects.create_user((person.email or f"sso-{digest[:12]}").lower(), person.email)
    User.objects.filter(pk=user.pk).update(first_name=person.name[:150])
    Identity.objects.create(user=user, issuer=person.issuer, subject=person.subject)
    return user


def apply(user: User, wanted: dict[str, str], revoke_tokens: RevokeTokens) -> None:
    """Makes the memberships those that the groups give.

    Where a group names an organization, it decides about the role, also of somebody who was invited. Memberships in
    other organizations end if a group gave them, and stay if an invitation did.
    """
    name = user.get_username()
    rows = {row.organisation.slug: row for row in user.memberships.select_related("organisation")}
    for organisation in Organisation.objects.filter(slug__in=set(wanted)):
        role, row = wanted[organisation.slug], rows.get(organisation.slug)
        if row is None:
            Membership.objects.create(user=user, organisation=organisation, role=role, made_by=BY, by_group=True)
            audit.record(organisation, name, audit.Action.JOIN, organisation.name, f"{role}, by {BY}")
        elif row.role != role or not row.by_group:
            Membership.objects.filter(pk=row.pk).update(role=role, by_group=True)
            if row.role != role:
                audit.record(organisation, BY, audit.Action.ROLE, name, f"{row.role} to {role}")
    for slug, row in rows.items():
        if row.by_group and slug not in wanted:
            ended = revoke_tokens(row.organisation, name)
            row.delete()
            detail = f"no group; {ended} tokens revoked" if ended else "no group"
            audit.record(row.organisation, BY, audit.Action.MEMBER_REMOVED, name, detail)


def belongs_somewhere(user: User, email: str) -> bool:
    invited = bool(email) and pending().filter(email__iexact=email).exists()
    return invited or user.is_staff or user.memberships.exists()


def no_organization(person: Person, claim: str) -> str:
    if person.groups is None:
        sent = _("The provider sent no claim %(claim)r.") % {"claim": claim}
    elif person.groups:
        sent = _("The provider sent these groups: %(groups)s.") % {"groups": ", ".join(person.groups)[:500]}
    else:
        sent = _("The provider sent no groups.")
    needed = _("None of your groups opens an organization here. Ask your administrator to add you to one that does.")
    return f"{needed} {sent}"
