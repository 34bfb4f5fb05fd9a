"""Use cases of invitations: invite, revoke and join. Each is one audited transaction."""

import secrets
from datetime import timedelta

from django.contrib.auth.models import User
from django.db import IntegrityError, transaction
from django.db.models import Q, QuerySet
from django.utils.translation import gettext as _

from catalog import clock
from catalog.accounts import audit
from catalog.accounts.organizations import Refused
from catalog.accounts.secret_tokens import hashed
from catalog.models import Invitation, Membership, Organisation

INVITATION_DAYS = 7


def pending(organisation: Organisation | None = None) -> QuerySet[Invitation]:
    """Invitations that can still be accepted."""
    rows = Invitation.objects.filter(accepted_at=None, revoked_at=None, expires_at__gt=clock.now())
    return rows if organisation is None else rows.filter(organisation=organisation)


def account_of(email: str) -> User | None:
    """The active account with this e-mail address or user name."""
    rows = User.objects.filter(Q(email__iexact=email) | Q(username__iexact=email), is_active=True)
    return rows.order_by("pk").first()


@transaction.atomic
def invite(organisation: Organisation, email: str, role: str, by: str) -> tuple[str, Invitation]:
    """(the token for the link, the invitation). It replaces an earlier one to the same address.

    Refused: the address belongs to a member.
    """
    account = account_of(email)
    if account and Membership.objects.filter(organisation=organisation, user=account).exists():
        raise Refused(_("%(email)s is already a member.") % {"email": email})
    now, token = clock.read(), secrets.token_urlsafe(32)
    pending(organisation).filter(email__iexact=email).update(revoked_at=now)
    row = Invitation.objects.create(
        organisation=organisation,
        email=email,
        role=role,
        token_hash=hashed(token),
        made_by=by[:150],
        expires_at=now + timedelta(days=INVITATION_DAYS),
    )
    audit.record(organisation, by, audit.Action.INVITE, email, role)
    return token, row


@transaction.atomic
def revoke(row: Invitation, by: str) -> bool:
    """Ends an invitation. False: it was accepted, revoked or expired before."""
    done = bool(pending().filter(pk=row.pk).update(revoked_at=clock.now()))
    if done:
        audit.record(row.organisation, by, audit.Action.INVITATION_REVOKED, row.email)
    return done


def by_token(token: str) -> Invitation | None:
    return pending().filter(token_hash=hashed(token)).select_related("organisation").first()


@transaction.atomic
def join(row: Invitation, user: User) -> Membership:
    """Makes an account a member. Refused: the invitation was used or revoked meanwhile, or is for somebody else."""
    if row.email.lower() not in (user.email.lower(), user.username.lower()):
        raise Refused(_("This invitation is for %(email)s.") % {"email": row.email})
    if not pending().filter(pk=row.pk).update(accepted_at=clock.now()):  # atomic: only one request gets row count 1
        raise Refused(_("This invitation was already used or revoked."))
    values = {"role": row.role, "made_by": row.made_by}
    membership, is_new = Membership.objects.get_or_create(user=user, organisation=row.organisation, defaults=values)
    if is_new:
        audit.record(row.organisation, user.username, audit.Action.JOIN, row.organisation.name, row.role)
    return membership


def join_as_new(row: Invitation, name: str, password: str) -> User:
    """Creates the account that the invitation is for, and makes it a member. Refused: as in `join`."""
    try:
        with transaction.atomic():
            user = User.objects.create_user(row.email.lower(), row.email, password, first_name=name)
            join(row, user)
    except IntegrityError:
        raise Refused(_("There is already an account for %(email)s. Sign in first.") % {"email": row.email}) from None
    return user
