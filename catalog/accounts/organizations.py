"""Use cases of organizations: create one, change a role, remove a member. Each is one audited transaction."""

from collections.abc import Callable

from django.contrib.auth.models import User
from django.db import IntegrityError, transaction
from django.db.models import QuerySet
from django.utils.text import slugify
from django.utils.translation import gettext as _

from catalog.accounts import audit
from catalog.models import DEFAULT_ORGANISATION, Membership, Organisation, Role


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
    """Changes the role of a member. False: it already has it. Refused: staff, the last admin, or a role of a group."""
    if role == row.role:
        return False
    if row.by_group:
        raise Refused(_("A group of the provider of single sign-on gives this role. Change the groups there."))
    refuse_staff_and_last_admin(row)
    changed = Membership.objects.filter(pk=row.pk, role=row.role).update(role=role)
    if changed:
        audit.record(row.organisation, by, audit.Action.ROLE, row.user.get_username(), f"{row.role} to {role}")
    return bool(changed)


@transaction.atomic
def remove(row: Membership, by: str, revoke_tokens: Callable[[Organisation, str], int]) -> None:
    """Ends a membership. `revoke_tokens` revokes the member's API tokens. Refused: as in `change_role`."""
    refuse_staff_and_last_admin(row)
    name = row.user.get_username()
    ended = revoke_tokens(row.organisation, name)
    row.delete()
    audit.record(row.organisation, by, audit.Action.MEMBER_REMOVED, name, f"{ended} tokens revoked" if ended else "")
