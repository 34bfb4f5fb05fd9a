"""Use cases of organizations: create, invite, join, change a role, remove a member. Each is one audited transaction."""

import secrets
from datetime import timedelta

from django.conf import settings
from django.contrib.auth.models import User
from django.core.mail import send_mail
from django.db import IntegrityError, transaction
from django.db.models import Q, QuerySet
from django.template.loader import render_to_string
from django.utils.text import slugify
from django.utils.translation import gettext as _
from structlog import get_logger

from advisor.api import hashed
from advisor.models import ApiToken
from catalog import clock
from catalog.accounts import audit
from catalog.models import DEFAULT_ORGANISATION, Invitation, Membership, Organisation, Role

log = get_logger("assay.accounts")
INVITATION_DAYS = 7


class Refused(ValueError):
    """The change is not allowed; the message says why, in words for people."""


def create_organisation(slug: str, name: str, by: str) -> Organisation:
    """A new organization. Refused: the slug is taken or is none."""
    if not slug or slugify(slug) != slug:
        raise Refused(_("%(slug)r is not a slug: use lower-case letters, digits and hyphens") % {"slug": slug})
    try:
        with transaction.atomic():
            organisation = Organisation.objects.create(slug=slug, name=name or slug)
            audit.record(organisation, by, audit.Action.ORGANIZATION, organisation.name)
    except IntegrityError:
        raise Refused(_("there is already an organization %(slug)r") % {"slug": slug}) from None
    return organisation


# --- invitations ------------------------------------------------------------------------------------------------


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


def send_invitation(row: Invitation, url: str) -> bool:
    """Sends the link by e-mail. False: the e-mail could not be sent, so the link must be passed on otherwise."""
    context = {"invitation": row, "url": url, "days": INVITATION_DAYS}
    subject = render_to_string("accounts/invitation_subject.txt", context).strip()
    try:
        return bool(send_mail(subject, render_to_string("accounts/invitation_email.txt", context), None, [row.email]))
    except OSError as error:  # of the connection, and every SMTP error
        log.warning("invitation not sent", error=type(error).__name__)
        return False


@transaction.atomic
def revoke_invitation(row: Invitation, by: str) -> bool:
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


# --- members ----------------------------------------------------------------------------------------------------


def staff_of(organisation: Organisation) -> QuerySet[User]:
    """Staff of the installation, who are admins of the default organization."""
    staff = User.objects.filter(is_staff=True, is_active=True).order_by("username")
    return staff if organisation.slug == DEFAULT_ORGANISATION else staff.none()


def refuse_staff_and_last_admin(row: Membership) -> None:
    """Refused: nobody could manage the organization without this admin, or the role follows from being staff."""
    Organisation.objects.select_for_update().get(pk=row.organisation_id)  # one change at a time
    staff = staff_of(row.organisation)
    if staff.filter(pk=row.user_id).exists():
        raise Refused(
            _("%(name)s is staff of this installation, and so an admin here. Change that in the admin site.")
            % {"name": row.user.get_username()}
        )
    others = Membership.objects.filter(organisation=row.organisation, role=Role.ADMIN, user__is_active=True)
    if row.role == Role.ADMIN and not (others.exclude(pk=row.pk).exists() or staff.exists()):
        raise Refused(_("This is the last admin. Make someone else an admin first."))


@transaction.atomic
def change_role(row: Membership, role: str, by: str) -> bool:
    """Changes the role of a member. False: it already has it. Refused: staff, or the last admin."""
    if role == row.role:
        return False
    refuse_staff_and_last_admin(row)
    changed = Membership.objects.filter(pk=row.pk, role=row.role).update(role=role)
    if changed:
        audit.record(row.organisation, by, audit.Action.ROLE, row.user.get_username(), f"{row.role} to {role}")
    return bool(changed)


@transaction.atomic
def remove(row: Membership, by: str) -> None:
    """Ends a membership, and revokes the organization's tokens that this member made. Refused: as in `change_role`."""
    refuse_staff_and_last_admin(row)
    name = row.user.get_username()
    tokens = ApiToken.objects.filter(organisation=row.organisation, made_by=name, revoked_at=None)
    ended = tokens.filter(expires_at__gt=clock.now()).update(revoked_at=clock.now())
    row.delete()
    audit.record(row.organisation, by, audit.Action.MEMBER_REMOVED, name, f"{ended} tokens revoked" if ended else "")


def link(path: str) -> str:
    """The address of a page for e-mails. Not that of the request: its Host header is chosen by whoever sends it."""
    return settings.PUBLIC_URL.rstrip("/") + path
