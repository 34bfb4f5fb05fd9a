"""Who is asking, for which organization, and what they may do: for pages, REST calls and single-user mode.

Every query for rows of an organization uses `organisation_of(request)`. Every page or call that changes something names
the right that it needs: pages with `needs`, REST views with `rights`, which advisor.api.tokens.Allowed reads.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import wraps
from typing import Any

from django.conf import settings
from django.contrib.auth.models import User
from django.contrib.auth.views import redirect_to_login
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.functional import SimpleLazyObject
from django.utils.translation import override

from catalog.models import DEFAULT_ORGANISATION, Membership, Organisation, Role, default_organisation

SESSION_KEY = "organisation"  # the one that a user of several chose
View = Callable[..., HttpResponse]


class Right(StrEnum):
    READ = "read"
    PLAN = "plan"  # ask, comment, share, upload load tests
    PRICE = "price"  # add the organization's prices and discounts
    OPERATE = "operate"  # machines, probe jobs, results, enrollments
    ADMINISTER = "administer"  # members, invitations, tokens, deletions, the audit log
    MAINTAIN = "maintain"  # change what all organizations share: public prices, models, calibrations


READER = frozenset({Right.READ})
PLANNER = READER | {Right.PLAN, Right.PRICE}
OPERATOR = PLANNER | {Right.OPERATE}
ADMIN = OPERATOR | {Right.ADMINISTER}
OF_ROLE = {Role.VIEWER: READER, Role.PLANNER: PLANNER, Role.OPERATOR: OPERATOR, Role.ADMIN: ADMIN}
OF_SCOPE = {  # ApiToken.Scope
    "read": READER,
    "submit": READER | {Right.PLAN},
    "prices": READER | {Right.PRICE},
    "admin": ADMIN,
}
OF_VISITOR = READER | {Right.PLAN}  # of an open installation that has users


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who is asking, in which organization, with which rights."""

    name: str  # user name or "token NAME"; empty: a visitor
    organisation: Organisation | None  # None: an account without a membership, which may do nothing
    rights: frozenset[Right]
    role: str = ""  # of a member
    user: Any = None
    memberships: tuple[Membership, ...] = ()
    is_alone: bool = False  # single-user mode: no accounts exist, and everything is allowed

    def may(self, right: Right) -> bool:
        return right in self.rights

    @property
    def account(self) -> Any:
        """The user, if it is one that can sign in; None for tokens and visitors."""
        return self.user if self.role else None

    @property
    def person(self) -> Any:
        """The account, also where one of its tokens asks; None for visitors and tokens of an organization."""
        token = getattr(self.user, "token", None)
        return token.user if token else self.account

    @property
    def is_member(self) -> bool:
        """Whether the caller belongs to the organization; visitors of an open installation do not."""
        return self.organisation is not None and (self.is_alone or bool(self.name))

    @property
    def own(self) -> Organisation | None:
        """The organization whose own rows the caller sees in lists; None: a visitor."""
        return self.organisation if self.is_member else None

    @property
    def role_label(self) -> str:
        return str(Role(self.role).label) if self.role else ""

    # for templates
    @property
    def may_plan(self) -> bool:
        return self.may(Right.PLAN)

    @property
    def may_price(self) -> bool:
        return self.may(Right.PRICE)

    @property
    def may_operate(self) -> bool:
        return self.may(Right.OPERATE)

    @property
    def may_administer(self) -> bool:
        return self.may(Right.ADMINISTER)

    @property
    def may_maintain(self) -> bool:
        return self.may(Right.MAINTAIN)

    @property
    def may_delete_shared(self) -> bool:
        """Delete what all organizations share, such as an imported model."""
        return self.may(Right.MAINTAIN) and self.may(Right.ADMINISTER)


# --- who is asking ----------------------------------------------------------------------------------------------


def caller_of(request: Any) -> Caller:
    """The caller of a Django or REST framework request; read from the database once per request and user."""
    user = request.user
    known = getattr(request, "_assay_caller", None)
    if known is None or known[0] is not user:
        known = (user, _caller(user, getattr(request, "session", {})))
        request._assay_caller = known
    caller: Caller = known[1]
    return caller


def _caller(user: Any, session: Any) -> Caller:
    token = getattr(user, "token", None)
    if token is not None:
        rights = with_shared(OF_SCOPE[token.scope] & rights_behind(token), token.organisation)
        return Caller(name=user.get_username(), organisation=token.organisation, rights=rights, user=user)
    if user is not None and user.is_authenticated:
        return _member(user, session.get(SESSION_KEY))
    if not settings.OPEN:
        return Caller(name="", organisation=None, rights=frozenset())
    owner = default_organisation()
    if User.objects.exists():
        return Caller(name="", organisation=owner, rights=OF_VISITOR)
    return Caller(name="", organisation=owner, rights=with_shared(ADMIN, owner), is_alone=True)


def _member(user: Any, chosen: int | None) -> Caller:
    """The caller behind an account, in the chosen organization of its own, else in the first one."""
    rows = memberships_of(user)
    if not rows:
        return Caller(name=user.get_username(), organisation=None, rights=frozenset(), user=user)
    row = next((each for each in rows if each.organisation_id == chosen), rows[0])
    rights = with_shared(OF_ROLE[Role(row.role)], row.organisation)
    return Caller(
        name=user.get_username(),
        organisation=row.organisation,
        rights=rights,
        role=row.role,
        user=user,
        memberships=tuple(rows),
    )


def rights_behind(token: Any) -> frozenset[Right]:
    """What the holder of an ApiToken may do now: a person's or a service account's role; all for an organization's."""
    if token.service_account is not None:
        return OF_ROLE[Role(token.service_account.role)]
    if token.user is None:
        return ADMIN
    rows = memberships_of(token.user) if token.user.is_active else []
    return next((OF_ROLE[Role(row.role)] for row in rows if row.organisation_id == token.organisation_id), frozenset())


def memberships_of(user: Any) -> list[Membership]:
    """The user's memberships. Staff of the installation (`createsuperuser`) are admins of the default organization."""
    rows = list(Membership.objects.filter(user=user).select_related("organisation"))
    if user.is_staff:
        owner = default_organisation()
        others = [row for row in rows if row.organisation_id != owner.pk]
        return [Membership(user=user, organisation=owner, role=Role.ADMIN), *others]
    return rows


def with_shared(rights: frozenset[Right], organisation: Organisation) -> frozenset[Right]:
    """Those who operate the default organization maintain what all organizations share."""
    keeps = Right.OPERATE in rights and organisation.slug == DEFAULT_ORGANISATION
    return rights | {Right.MAINTAIN} if keeps else rights


def organisation_of(request: Any) -> Organisation:
    """The organization whose rows the caller sees. PermissionDenied: none."""
    found = caller_of(request).organisation
    if found is None:
        raise PermissionDenied(without_organisation())
    return found


def for_templates(request: HttpRequest) -> dict[str, Any]:
    """Context processor: `caller`."""
    return {"caller": SimpleLazyObject(lambda: caller_of(request))}


# --- refusing ---------------------------------------------------------------------------------------------------


def needs(right: Right, then: str = "") -> Callable[[View], View]:
    """Restricts a page. Others are asked to sign in, or get 403 if they have.

    `then`: name of the page to show after signing in where the request changes something.
    """

    def decorated(view: View) -> View:
        @wraps(view)
        def checked(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
            return refused(request, right, then) or view(request, *args, **kwargs)

        return checked

    return decorated


def refused(request: HttpRequest, right: Right, then: str = "") -> HttpResponse | None:
    """None if the caller has this right, else a redirect to the sign-in page. Raises PermissionDenied for accounts."""
    caller = caller_of(request)
    if caller.may(right):
        return None
    if request.user.is_authenticated:
        raise PermissionDenied(why_not(caller, right))
    is_read = request.method in ("GET", "HEAD") or not then
    return redirect_to_login(request.get_full_path() if is_read else reverse(then))


def why_not(caller: Caller, right: Right) -> str:
    """Why the caller may not do this, and who can change that."""
    token = getattr(caller.user, "token", None)
    if token is not None and right != Right.MAINTAIN:
        if right in OF_SCOPE[token.scope] and not caller.may(right):
            return f"The role behind this token does not allow this call. {needed_role(right)}"
        scopes = " or ".join(scope for scope, opened in OF_SCOPE.items() if right in opened) or "admin"
        return f"This token's scope is {token.scope}, which does not allow this call. It needs the scope {scopes}."
    if caller.organisation is None:
        return without_organisation()
    if right == Right.MAINTAIN:
        return needed_role(right)
    with override("en"):  # as all refusals
        own = str(Role(caller.role).label) if caller.role else "none"
    return (
        f"Your role in {caller.organisation.name} is {own}. {needed_role(right)} Ask an admin of the "
        "organization to change your role."
    )


def needed_role(right: Right) -> str:
    """Which role has a right, as a sentence."""
    if right == Right.MAINTAIN:
        return (
            "This changes what all organizations share. Only operators and admins of the default "
            "organization may do it."
        )
    role = next(role for role, rights in OF_ROLE.items() if right in rights)
    with override("en"):
        needed = str(role.label)
    return f"This needs the role {needed}{'' if role == Role.ADMIN else ' or higher'}."


def without_organisation() -> str:
    return "Your account belongs to no organization. Ask an admin of your organization for an invitation."


def for_any_account(view: View) -> View:
    """Marks a page that also works for accounts without an organization."""
    view.needs_no_organisation = True  # type: ignore[attr-defined]
    return view


class MembersOnly:
    """Middleware: refuses accounts without an organization, except on pages for everybody."""

    def __init__(self, get_response: View) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        return self.get_response(request)

    def process_view(self, request: HttpRequest, view: View, args: Any, kwargs: Any) -> None:
        is_public = not getattr(view, "login_required", True)  # set by login_not_required, and for REST views
        if is_public or getattr(view, "needs_no_organisation", False) or not request.user.is_authenticated:
            return
        if caller_of(request).organisation is None:
            raise PermissionDenied(without_organisation())
