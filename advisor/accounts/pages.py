"""The pages of accounts: sign in, reset a password, join an organization, the own account, members and tokens."""

import hashlib
from contextlib import suppress
from typing import Any

from axes.utils import reset as forget_failures
from django.conf import settings
from django.contrib import messages
from django.contrib.auth import BACKEND_SESSION_KEY, login, update_session_auth_hash
from django.contrib.auth.decorators import login_not_required, login_required
from django.contrib.auth.forms import PasswordChangeForm
from django.contrib.auth.models import User
from django.contrib.auth.views import (
    LoginView,
    LogoutView,
    PasswordResetCompleteView,
    PasswordResetConfirmView,
    PasswordResetDoneView,
    PasswordResetView,
)
from django.core.cache import cache
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse, reverse_lazy
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST
from redis.exceptions import RedisError

from advisor import deletion
from advisor.accounts import emails, forms, records, single_sign_on
from advisor.api import tokens
from advisor.models import ApiToken
from catalog.accounts import (
    SESSION_KEY,
    Caller,
    Right,
    audit,
    caller_of,
    for_any_account,
    invitations,
    needs,
    organisation_of,
    organizations,
    refused,
    service_accounts,
)
from catalog.models import Invitation, Membership, Organisation, Role, ServiceAccount, default_organisation
from catalog.pages import confirmed

PASSWORDS = "django.contrib.auth.backends.ModelBackend"
SINGLE_SIGN_ON = "advisor.accounts.single_sign_on.Backend"
NO_PASSWORDS = "Password sign-in is turned off on this server. Use single sign-on."
RESET_PAUSE_S = 300  # one e-mail to an address within this time
UNPROCESSABLE = 422


# --- sign in and passwords --------------------------------------------------------------------------------------


class SignIn(LoginView):
    """Also the sign-in page of the admin site, so that every attempt is audited."""

    template_name = "accounts/login.html"

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        known = {"has_passwords": settings.PASSWORD_SIGN_IN, "provider": settings.OIDC_ISSUER and settings.OIDC_NAME}
        return super().get_context_data(**kwargs) | known

    def post(self, *args: Any, **kwargs: Any) -> HttpResponse:
        if not settings.PASSWORD_SIGN_IN:
            raise PermissionDenied(NO_PASSWORDS)
        return super().post(*args, **kwargs)

    def form_valid(self, form: Any) -> HttpResponse:
        with transaction.atomic():
            response = super().form_valid(form)
            records.of_user(form.get_user(), audit.Action.SIGN_IN)
        return response

    def form_invalid(self, form: Any) -> HttpResponse:
        name = str(form.data.get("username", ""))[:150]
        if name and not getattr(self.request, "axes_locked_out", False):
            user = User.objects.filter(username=name).first()
            if user:
                records.of_user(user, audit.Action.SIGN_IN_FAILED)
            else:
                audit.record(default_organisation(), "", audit.Action.SIGN_IN_FAILED, name, "no such account")
        return super().form_invalid(form)


class SignOut(LogoutView):
    """With single sign-on, shows how to sign out at the provider, too."""

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        was_there = request.session.get(BACKEND_SESSION_KEY) == SINGLE_SIGN_ON
        response: HttpResponse = super().post(request, *args, **kwargs)
        if not was_there:
            return response
        context = {"address": single_sign_on.sign_out_address(), "provider": settings.OIDC_NAME}
        return render(request, "accounts/signed_out.html", context)


class WithPasswords:
    """A page that exists only where people sign in with passwords."""

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        if not settings.PASSWORD_SIGN_IN:
            raise PermissionDenied(NO_PASSWORDS)
        return super().dispatch(request, *args, **kwargs)  # type: ignore[misc]


class Reset(WithPasswords, PasswordResetView):
    template_name = "accounts/reset.html"
    email_template_name = "accounts/reset_email.txt"
    subject_template_name = "accounts/reset_subject.txt"
    success_url = reverse_lazy("password-reset-sent")

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        return super().get_context_data(**kwargs) | {"can_send": emails.can_send()}

    def form_valid(self, form: Any) -> HttpResponse:
        """Sends at most one e-mail to an address in RESET_PAUSE_S. The page is the same whether it is known or not."""
        address = hashlib.sha256(form.cleaned_data["email"].lower().encode()).hexdigest()
        is_first = True
        with suppress(RedisError, OSError):
            is_first = cache.add(f"reset.{address}", 1, RESET_PAUSE_S)
        self.extra_email_context = {"server": emails.link("")}
        return super().form_valid(form) if is_first else redirect("password-reset-sent")


class ResetSent(PasswordResetDoneView):
    template_name = "accounts/reset_sent.html"


class ResetConfirm(WithPasswords, PasswordResetConfirmView):
    template_name = "accounts/reset_confirm.html"
    success_url = reverse_lazy("password-reset-done")

    def form_valid(self, form: Any) -> HttpResponse:
        with transaction.atomic():
            response = super().form_valid(form)
            records.of_user(form.user, audit.Action.PASSWORD, "reset by e-mail")
        forget_failures(username=form.user.get_username())  # so that the new password works at once
        return response


class ResetDone(PasswordResetCompleteView):
    template_name = "accounts/reset_done.html"


# --- join -------------------------------------------------------------------------------------------------------


@login_not_required
@never_cache
def join(request: HttpRequest, token: str) -> HttpResponse:
    """Accepts an invitation: with the account that is signed in, or by creating one."""
    invitation = invitations.by_token(token)
    if invitation is None:
        raise Http404("This invitation is invalid, used or expired. Ask for a new one.")
    account = request.user if isinstance(request.user, User) else None
    form = None
    if account is None and settings.PASSWORD_SIGN_IN and invitations.account_of(invitation.email) is None:
        form = forms.JoinForm(request.POST or None, invitation=invitation)
    try:
        if request.method == "POST" and account is not None:
            return joined(request, invitations.join(invitation, account).organisation)
        if request.method == "POST" and form is not None and form.is_valid():
            given = form.cleaned_data
            user = invitations.join_as_new(invitation, given["name"], given["new_password1"])
            login(request, user, PASSWORDS)
            return joined(request, invitation.organisation)
    except organizations.Refused as error:
        messages.error(request, str(error))
        return redirect("join", token)
    is_theirs = account is not None and invitation.email.lower() in (account.email.lower(), account.username.lower())
    context = {"invitation": invitation, "form": form, "account": account, "is_theirs": is_theirs}
    context |= {"provider": settings.OIDC_ISSUER and settings.OIDC_NAME, "has_passwords": settings.PASSWORD_SIGN_IN}
    return render(request, "accounts/join.html", context, status=UNPROCESSABLE if form and form.errors else 200)


def joined(request: HttpRequest, organisation: Organisation) -> HttpResponse:
    request.session[SESSION_KEY] = organisation.pk
    messages.success(request, _("You joined %(organization)s.") % {"organization": organisation.name})
    return redirect("ask")


# --- the own account --------------------------------------------------------------------------------------------


@never_cache
@for_any_account
@login_required
def account(request: HttpRequest) -> HttpResponse:
    """Name, password and organizations."""
    user = get_object_or_404(User, pk=request.user.pk)
    asked = request.POST.get("form") if request.method == "POST" else ""
    has_password = settings.PASSWORD_SIGN_IN and (user.has_usable_password() or not user.identities.exists())
    name = forms.NameForm(request.POST if asked == "name" else None, instance=user)
    password: Any = PasswordChangeForm(user, request.POST if asked == "password" else None)
    password.fields["old_password"].widget.attrs.pop("autofocus", None)  # the page begins with other things
    if asked == "name" and name.is_valid():
        name.save()
        messages.success(request, _("Your name was changed."))
        return redirect("account")
    if asked == "password" and has_password and password.is_valid():
        with transaction.atomic():
            password.save()
            records.of_user(user, audit.Action.PASSWORD)
        update_session_auth_hash(request, user)
        messages.success(request, _("Your password was changed."))
        return redirect("account")
    context = {"name": name, "password": password if has_password else None}
    wrong = bool(name.errors or password.errors)
    return render(request, "accounts/account.html", context, status=UNPROCESSABLE if wrong else 200)


@require_POST
@for_any_account
@login_required
def switch(request: HttpRequest) -> HttpResponse:
    """Chooses the organization that the pages show, of those that the user belongs to."""
    chosen = request.POST.get("organisation", "")
    found = next((each for each in caller_of(request).memberships if str(each.organisation_id) == chosen), None)
    if found is None:
        raise Http404("You do not belong to this organization.")
    request.session[SESSION_KEY] = found.organisation_id
    messages.success(request, _("You switched to %(organization)s.") % {"organization": found.organisation.name})
    return redirect("ask")


# --- members ----------------------------------------------------------------------------------------------------


def of_admin(request: HttpRequest) -> Caller:
    """The caller, who is an admin (`needs`). Raises Http404 in single-user mode, where nobody has an account."""
    caller = caller_of(request)
    if caller.is_alone:
        raise Http404("This installation has no accounts. Create the first with manage.py createsuperuser.")
    return caller


@never_cache
@needs(Right.ADMINISTER)
def member_list(request: HttpRequest) -> HttpResponse:
    """Members and open invitations; a POST invites."""
    caller, organisation = of_admin(request), organisation_of(request)
    form = forms.InviteForm(request.POST or None)
    context: dict[str, Any] = {}
    if request.method == "POST" and form.is_valid():
        try:
            token, row = invitations.invite(
                organisation, form.cleaned_data["email"], form.cleaned_data["role"], caller.name
            )
        except organizations.Refused as error:
            form.add_error("email", str(error))
        else:
            url = emails.link(reverse("join", args=[token]))
            context |= {
                "can_send": emails.can_send(),
                "sent": row,
                "was_sent": emails.send_invitation(row, url),
                "url": url,
            }
            form = forms.InviteForm()
    rows = Membership.objects.filter(organisation=organisation).select_related("user").order_by("user__username")
    staff = organizations.staff_of(organisation)
    context |= {
        "form": form,
        "organisation": organisation,
        "members": rows.exclude(user__in=staff),
        "staff": staff,
        "roles": Role.choices,
        "invitations": invitations.pending(organisation),
    }
    return render(request, "accounts/members.html", context, status=UNPROCESSABLE if form.errors else 200)


def member_or_404(request: HttpRequest, pk: int) -> Membership:
    rows = Membership.objects.select_related("user", "organisation")
    return get_object_or_404(rows, pk=pk, organisation=organisation_of(request))


@require_POST
@needs(Right.ADMINISTER, "members")
def member_role(request: HttpRequest, pk: int) -> HttpResponse:
    caller, row = of_admin(request), member_or_404(request, pk)
    form = forms.RoleForm(request.POST)
    try:
        if form.is_valid() and organizations.change_role(row, form.cleaned_data["role"], caller.name):
            messages.success(request, _("The role of %(name)s was changed.") % {"name": row.user.get_username()})
    except organizations.Refused as error:
        messages.error(request, str(error))
    return redirect("members")


@never_cache
@needs(Right.ADMINISTER, "members")
def member_remove(request: HttpRequest, pk: int) -> HttpResponse:
    """Asks, then removes a member."""
    caller, row = of_admin(request), member_or_404(request, pk)
    if request.method != "POST":
        return render(request, "accounts/remove.html", {"member": row})
    try:
        organizations.remove(row, caller.name, tokens.revoke_made_by)
        messages.success(request, _("%(name)s was removed.") % {"name": row.user.get_username()})
    except organizations.Refused as error:
        messages.error(request, str(error))
    return redirect("members" if caller.account != row.user else "account")


@require_POST
@needs(Right.ADMINISTER, "members")
def invitation_revoke(request: HttpRequest, pk: int) -> HttpResponse:
    caller = of_admin(request)
    row = get_object_or_404(Invitation, pk=pk, organisation=organisation_of(request))
    ended = invitations.revoke(row, caller.name)
    messages.success(request, _("Invitation revoked.") if ended else _("This invitation had already ended."))
    return redirect("members")


# --- tokens -----------------------------------------------------------------------------------------------------


@never_cache
@needs(Right.ADMINISTER, "tokens")
def token_list(request: HttpRequest) -> HttpResponse:
    """The organization's API tokens with scope, state and last use; a POST creates one, which is shown once."""
    organisation = organisation_of(request)
    accounts = ServiceAccount.objects.filter(organisation=organisation)
    rows = ApiToken.objects.filter(organisation=organisation).select_related("user", "service_account")
    context = {"accounts": accounts, "roles": Role.choices, "account_form": forms.ServiceAccountForm()}
    return token_page(request, rows, accounts.filter(disabled_at=None), None, context)


@never_cache
@login_required
def own_tokens(request: HttpRequest) -> HttpResponse:
    """Lists the signed-in user's personal tokens in the chosen organization. POST creates a token and shows it once."""
    user, organisation = get_object_or_404(User, pk=request.user.pk), organisation_of(request)
    return token_page(request, ApiToken.objects.filter(organisation=organisation, user=user), None, user, {})


def token_page(
    request: HttpRequest,
    rows: QuerySet[ApiToken],
    holders: QuerySet[ServiceAccount] | None,
    person: User | None,
    context: dict[str, Any],
) -> HttpResponse:
    organisation, form = organisation_of(request), forms.TokenForm(request.POST or None, holders=holders)
    context |= {"form": form, "organisation": organisation, "person": person}
    if request.method == "POST" and form.is_valid():
        given, who = form.cleaned_data, caller_of(request).name
        holder = person or given.get("service_account")
        made = tokens.make(given["name"], given["scope"], given["days"], who, organisation, holder)
        context["token"], context["row"] = made
        context["form"] = forms.TokenForm(holders=holders)
    context["tokens"] = rows
    return render(request, "accounts/tokens.html", context, status=UNPROCESSABLE if form.errors else 200)


@require_POST
@login_required
def own_token_revoke(request: HttpRequest, pk: int) -> HttpResponse:
    rows = ApiToken.objects.filter(organisation=organisation_of(request), user=request.user.pk)
    ended = tokens.revoke(get_object_or_404(rows, pk=pk), caller_of(request).name)
    messages.success(request, "Token revoked." if ended else "This token was revoked before.")
    return redirect("own-tokens")


@require_POST
@needs(Right.ADMINISTER, "tokens")
def service_account_new(request: HttpRequest) -> HttpResponse:
    form = forms.ServiceAccountForm(request.POST)
    try:
        if form.is_valid():
            given, who = form.cleaned_data, caller_of(request).name
            service_accounts.create(organisation_of(request), given["name"], given["role"], who)
            messages.success(request, f"Service account {given['name']} created. Now create its token.")
        else:
            messages.error(request, "Give the service account a name of at most 120 characters and a role.")
    except organizations.Refused as error:
        messages.error(request, str(error))
    return redirect("tokens")


@require_POST
@needs(Right.ADMINISTER, "tokens")
def service_account_change(request: HttpRequest, pk: int) -> HttpResponse:
    """Sets the role, disables, enables or deletes, as the button says."""
    row = get_object_or_404(ServiceAccount, pk=pk, organisation=organisation_of(request))
    who, asked = caller_of(request).name, request.POST.get("do", "")
    if asked == "delete":
        service_accounts.delete(row, who)
    elif asked in ("disable", "enable"):
        service_accounts.change(row, who, disabled=asked == "disable")
    elif request.POST.get("role") in Role.values:
        service_accounts.change(row, who, role=request.POST["role"])
    messages.success(request, f"Service account {row.name} {'deleted' if asked == 'delete' else 'changed'}.")
    return redirect("tokens")


@never_cache
def token_delete(request: HttpRequest, pk: int) -> HttpResponse:
    if sent := refused(request, Right.ADMINISTER, "tokens"):
        return sent
    row = get_object_or_404(ApiToken, pk=pk, organisation=organisation_of(request))
    return confirmed(
        request,
        f"the token {row.token_prefix}… ({row.name})",
        ["Its next call will be refused."] if row.status == "live" else [],
        back=reverse("tokens"),
        then=reverse("tokens"),
        delete=lambda: deletion.delete_token(row, caller_of(request).name),
    )
