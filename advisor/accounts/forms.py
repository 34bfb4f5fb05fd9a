"""Forms of accounts, members and tokens. Django's own forms do passwords."""

from typing import Any

from django import forms
from django.conf import settings
from django.contrib.auth.forms import SetPasswordForm
from django.contrib.auth.models import User
from django.db.models import QuerySet
from django.utils.translation import gettext_lazy as _

from advisor.models import ApiToken
from catalog.models import Invitation, Role, ServiceAccount


class InviteForm(forms.Form):
    email = forms.EmailField(label=_("E-mail address"), max_length=150)  # it becomes the user name
    role = forms.ChoiceField(label=_("Role"), choices=Role.choices, initial=Role.PLANNER)


class RoleForm(forms.Form):
    role = forms.ChoiceField(label=_("Role"), choices=Role.choices)


class NameForm(forms.ModelForm):
    class Meta:
        model = User
        fields = ("first_name", "last_name")


class JoinForm(SetPasswordForm):
    """Name and password of a new account."""

    name = forms.CharField(label=_("Your name"), max_length=150, widget=forms.TextInput({"autocomplete": "name"}))
    field_order = ("name", "new_password1", "new_password2")

    def __init__(self, *args: Any, invitation: Invitation, **kwargs: Any) -> None:
        super().__init__(User(username=invitation.email, email=invitation.email), *args, **kwargs)


class TokenForm(forms.Form):
    name = forms.CharField(label="Name", max_length=120, help_text="The program that will use it, such as CI.")
    scope = forms.ChoiceField(
        label="Scope",
        choices=[
            (ApiToken.Scope.READ, "read"),
            (ApiToken.Scope.SUBMIT, "submit: read, and ask for advice"),
            (ApiToken.Scope.PRICES, "prices: read, and add own prices"),
            (ApiToken.Scope.ADMIN, "admin: everything"),
        ],
    )
    days = forms.IntegerField(
        label="Valid for days", min_value=1, max_value=settings.TOKEN_MAX_DAYS, initial=settings.TOKEN_DAYS
    )
    service_account = forms.ModelChoiceField(
        ServiceAccount.objects.none(), label="Service account", required=False, empty_label="none: of the organization",
        help_text="The token belongs to it and never allows more than its role.",
    )  # fmt: skip

    def __init__(self, *args: Any, holders: QuerySet[ServiceAccount] | None, **kwargs: Any) -> None:
        """`holders`: service accounts to choose from; None: a personal token."""
        super().__init__(*args, **kwargs)
        field: Any = self.fields["service_account"]
        if holders:
            field.queryset = holders
        else:
            del self.fields["service_account"]


class ServiceAccountForm(forms.Form):
    name = forms.CharField(label="Name", max_length=120, help_text="The program, such as nightly-report.")
    role = forms.ChoiceField(label="Role", choices=Role.choices, initial=Role.VIEWER)
