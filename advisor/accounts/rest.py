"""REST calls of an organization's admins: members, invitations, service accounts, tokens and the audit log; and of
members for their own tokens."""

from typing import Any, ClassVar

from django.conf import settings
from django.db.models import Model, QuerySet
from django.shortcuts import get_object_or_404
from django.urls import reverse
from django_filters import rest_framework as filters
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import exceptions, generics, serializers
from rest_framework.request import Request
from rest_framework.response import Response

from advisor import deletion
from advisor.accounts import emails
from advisor.api import JSONParser, Pages, Tokens, TokenSerializer, tokens
from advisor.models import ApiToken
from catalog import rest
from catalog.accounts import (
    Right,
    audit,
    caller_of,
    invitations,
    organisation_of,
    organizations,
    service_accounts,
)
from catalog.models import AuditEvent, Invitation, Membership, Role, ServiceAccount
from catalog.rest import Body, Conflict, OneOf, Text, Unprocessable, Whole, YesNo, problems

METHODS = ("GET", "POST", "PATCH", "DELETE")
REFUSALS = problems(400, 401, 403, 406, 409, 413, 415, 422)
ONE_REFUSALS = problems(401, 403, 404, 406, 409)
ID = OpenApiParameter("id", int, OpenApiParameter.PATH)


class OfAdmins(generics.GenericAPIView[Any]):
    """Rows of the caller's organization, for its admins and `admin` tokens."""

    rights: ClassVar[dict[str, Right]] = dict.fromkeys(METHODS, Right.ADMINISTER)
    parser_classes = (JSONParser,)
    pagination_class: Any = Pages

    queryset: Any = None

    def rows(self) -> QuerySet[Any]:
        """All rows of the organization; `get_queryset` is also called to describe the API, without a caller."""
        found: QuerySet[Any] = self.queryset.model.objects.filter(organisation=organisation_of(self.request))
        return found

    def get_queryset(self) -> Any:
        return self.queryset if getattr(self, "swagger_fake_view", False) else self.rows()

    def one(self, pk: int) -> Any:
        return get_object_or_404(self.rows(), pk=pk)

    def body(self, kind: type[Body]) -> dict[str, Any]:
        given = kind(data=self.request.data)
        given.is_valid(raise_exception=True)
        return dict(given.validated_data)

    def shown(self, row: Model, status: int = 200, **more: Any) -> Response:
        return Response({**self.get_serializer(row).data, **more}, status=status)

    def by(self) -> str:
        return caller_of(self.request).name


class Listed(OfAdmins, generics.ListAPIView[Any]):
    pass


def conflict(error: organizations.Refused) -> Conflict:
    return Conflict(str(error))


# --- members ----------------------------------------------------------------------------------------------------


class MemberSerializer(serializers.ModelSerializer[Membership]):
    user = serializers.CharField(source="user.username")
    email = serializers.CharField(source="user.email")
    last_sign_in_at = serializers.DateTimeField(source="user.last_login", allow_null=True)

    class Meta:
        model = Membership
        fields = ["id", "user", "email", "role", "by_group", "made_by", "made_at", "last_sign_in_at"]
        read_only_fields = fields


class RoleBody(Body):
    role = OneOf(choices=Role.values, required=False)


class Members(Listed):
    serializer_class = MemberSerializer
    queryset = Membership.objects.none()

    def rows(self) -> QuerySet[Membership]:
        return super().rows().select_related("user").order_by("pk")

    @extend_schema(
        operation_id="listMembers",
        summary="List the members with their roles",
        responses={200: MemberSerializer, **REFUSALS},
    )
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        return super().get(request, *args, **kwargs)


class OneMember(OfAdmins):
    serializer_class = MemberSerializer
    queryset = Membership.objects.none()

    def rows(self) -> QuerySet[Membership]:
        return super().rows().select_related("user", "organisation")

    @extend_schema(
        operation_id="changeMember",
        summary="Change the role of a member",
        parameters=[ID],
        request=RoleBody,
        responses={200: MemberSerializer, **problems(404), **REFUSALS},
    )
    def patch(self, request: Request, pk: int) -> Response:
        row = self.one(pk)
        try:
            organizations.change_role(row, self.body(RoleBody).get("role", row.role), self.by())
        except organizations.Refused as error:
            raise conflict(error) from None
        return self.shown(self.one(pk))

    @extend_schema(
        operation_id="removeMember",
        summary="Remove a member and revoke their tokens",
        parameters=[ID],
        responses={204: None, **ONE_REFUSALS},
    )
    def delete(self, request: Request, pk: int) -> Response:
        try:
            organizations.remove(self.one(pk), self.by(), tokens.revoke_made_by)
        except organizations.Refused as error:
            raise conflict(error) from None
        return Response(status=204)


# --- invitations ------------------------------------------------------------------------------------------------


class InvitationSerializer(serializers.ModelSerializer[Invitation]):
    class Meta:
        model = Invitation
        fields = ["id", "email", "role", "made_by", "made_at", "expires_at"]
        read_only_fields = fields


class NewInvitationSerializer(InvitationSerializer):
    url = serializers.CharField(help_text="The link to join. It is shown once; only its hash is stored.")
    was_sent = serializers.BooleanField(help_text="Whether an e-mail with the link was sent")

    class Meta(InvitationSerializer.Meta):
        fields = [*InvitationSerializer.Meta.fields, "url", "was_sent"]
        read_only_fields = fields


class InviteBody(Body):
    email = serializers.EmailField(max_length=150)
    role = OneOf(choices=Role.values, default=Role.PLANNER)


class Invitations(Listed):
    serializer_class = InvitationSerializer
    queryset = Invitation.objects.none()

    def rows(self) -> QuerySet[Invitation]:
        return invitations.pending(organisation_of(self.request))

    @extend_schema(
        operation_id="listInvitations",
        summary="List the open invitations",
        responses={200: InvitationSerializer, **REFUSALS},
    )
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        return super().get(request, *args, **kwargs)

    @extend_schema(
        operation_id="invite",
        summary="Invite somebody by e-mail",
        description="It replaces an earlier invitation of the same address. 409: the address belongs to a member.",
        request=InviteBody,
        responses={201: NewInvitationSerializer, **REFUSALS},
    )
    def post(self, request: Request) -> Response:
        asked = self.body(InviteBody)
        try:
            token, row = invitations.invite(organisation_of(request), asked["email"], asked["role"], self.by())
        except organizations.Refused as error:
            raise conflict(error) from None
        url = emails.link(reverse("join", args=[token]))
        return self.shown(row, 201, url=url, was_sent=emails.send_invitation(row, url))


class OneInvitation(OfAdmins):
    serializer_class = InvitationSerializer
    queryset = Invitation.objects.none()

    def rows(self) -> QuerySet[Invitation]:
        return invitations.pending(organisation_of(self.request)).select_related("organisation")

    @extend_schema(
        operation_id="revokeInvitation",
        summary="Revoke an open invitation",
        parameters=[ID],
        responses={204: None, **ONE_REFUSALS},
    )
    def delete(self, request: Request, pk: int) -> Response:
        invitations.revoke(self.one(pk), self.by())
        return Response(status=204)


# --- service accounts -------------------------------------------------------------------------------------------


class ServiceAccountSerializer(serializers.ModelSerializer[ServiceAccount]):
    class Meta:
        model = ServiceAccount
        fields = ["id", "name", "role", "made_by", "made_at", "disabled_at"]
        read_only_fields = fields


class ServiceAccountBody(Body):
    name = Text(max_length=120)
    role = OneOf(choices=Role.values)


class ServiceAccountChange(Body):
    role = OneOf(choices=Role.values, required=False)
    disabled = YesNo(required=False, help_text="The tokens of a disabled one are refused.")


class ServiceAccounts(Listed):
    serializer_class = ServiceAccountSerializer
    queryset = ServiceAccount.objects.none()

    @extend_schema(
        operation_id="listServiceAccounts",
        summary="List the service accounts",
        responses={200: ServiceAccountSerializer, **REFUSALS},
    )
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        return super().get(request, *args, **kwargs)

    @extend_schema(
        operation_id="createServiceAccount",
        summary="Create a service account: a program with a role",
        request=ServiceAccountBody,
        responses={201: ServiceAccountSerializer, **REFUSALS},
    )
    def post(self, request: Request) -> Response:
        asked = self.body(ServiceAccountBody)
        try:
            row = service_accounts.create(organisation_of(request), asked["name"], asked["role"], self.by())
        except organizations.Refused as error:
            raise conflict(error) from None
        return self.shown(row, 201)


class OneServiceAccount(OfAdmins):
    serializer_class = ServiceAccountSerializer
    queryset = ServiceAccount.objects.none()

    def rows(self) -> QuerySet[ServiceAccount]:
        return super().rows().select_related("organisation")

    @extend_schema(
        operation_id="changeServiceAccount",
        summary="Change the role, disable or enable a service account",
        parameters=[ID],
        request=ServiceAccountChange,
        responses={200: ServiceAccountSerializer, **problems(404), **REFUSALS},
    )
    def patch(self, request: Request, pk: int) -> Response:
        return self.shown(service_accounts.change(self.one(pk), self.by(), **self.body(ServiceAccountChange)))

    @extend_schema(
        operation_id="deleteServiceAccount",
        summary="Delete a service account with its tokens",
        parameters=[ID],
        responses={204: None, **ONE_REFUSALS},
    )
    def delete(self, request: Request, pk: int) -> Response:
        service_accounts.delete(self.one(pk), self.by())
        return Response(status=204)


# --- tokens -----------------------------------------------------------------------------------------------------


class CreatedTokenSerializer(TokenSerializer):
    token = serializers.CharField(help_text="Shown once; only its hash is stored")

    class Meta(TokenSerializer.Meta):
        fields = [*TokenSerializer.Meta.fields, "token"]


class OwnTokenBody(Body):
    name = Text(max_length=120)
    scope = OneOf(choices=ApiToken.Scope.choices)
    days = Whole(min_value=1, max_value=3660, required=False, help_text="Lifetime. The server has a maximum.")


class TokenBody(OwnTokenBody):
    service_account = Whole(required=False, allow_null=True, help_text="ID of the service account that holds it")


class WithTokens(OfAdmins):
    serializer_class = TokenSerializer
    queryset = ApiToken.objects.none()

    def rows(self) -> QuerySet[ApiToken]:
        return super().rows().select_related("user", "service_account", "organisation")

    def made(self, asked: dict[str, Any], holder: Any) -> Response:
        days = asked.get("days", settings.TOKEN_DAYS)
        if days > settings.TOKEN_MAX_DAYS:
            raise Unprocessable({"days": [f"Give at most {settings.TOKEN_MAX_DAYS} days."]})
        owner = organisation_of(self.request)
        token, row = tokens.make(asked["name"], asked["scope"], days, self.by(), owner, holder)
        return self.shown(row, 201, token=token)

    def rotated(self, pk: int) -> Response:
        row = self.one(pk)
        if row.status != "live":
            raise Conflict("This token has expired or was revoked. Create a new one.")
        token, fresh = tokens.rotate(row)
        return self.shown(fresh, 201, token=token)

    def revoked(self, pk: int) -> Response:
        if not tokens.revoke(self.one(pk), self.by()):
            raise Conflict("This token was revoked before.")
        return self.shown(self.one(pk))


class AllTokens(WithTokens, Tokens):
    """The list of `Tokens`, and creation."""

    @extend_schema(
        operation_id="createToken",
        summary="Create an API token of the organization, or of a service account",
        request=TokenBody,
        responses={201: CreatedTokenSerializer, **REFUSALS},
    )
    def post(self, request: Request) -> Response:
        asked, holder = self.body(TokenBody), None
        if (pk := asked.get("service_account")) is not None:
            rows = ServiceAccount.objects.filter(organisation=organisation_of(request), pk=pk)
            if (holder := rows.first()) is None:
                raise Unprocessable({"service_account": [f"There is no service account {pk}."]})
        return self.made(asked, holder)


class RotateToken(WithTokens):
    @extend_schema(
        operation_id="rotateApiToken",
        summary="Create a successor of a token; the old one works for another hour",
        parameters=[ID],
        request=None,
        responses={201: CreatedTokenSerializer, **ONE_REFUSALS},
    )
    def post(self, request: Request, pk: int) -> Response:
        return self.rotated(pk)


class RevokeToken(WithTokens):
    @extend_schema(
        operation_id="revokeApiToken",
        summary="End a token now; it stays in the list",
        parameters=[ID],
        request=None,
        responses={200: TokenSerializer, **ONE_REFUSALS},
    )
    def post(self, request: Request, pk: int) -> Response:
        return self.revoked(pk)


class OwnTokensOnly(WithTokens):
    rights: ClassVar[dict[str, Right]] = dict.fromkeys(METHODS, Right.READ)

    def account(self) -> Any:
        """The account that asks, by its session or by one of its tokens; None: it is none."""
        user = self.request.user
        return user.token.user if isinstance(user, tokens.Holder) else caller_of(self.request).account

    def person(self) -> Any:
        """The account that asks. PermissionDenied: it is none."""
        account = self.account()
        if account is None:
            raise exceptions.PermissionDenied("Only people with an account have personal tokens.")
        return account

    def rows(self) -> QuerySet[ApiToken]:
        account = self.account()
        return super().rows().filter(user=account) if account is not None else ApiToken.objects.none()


class OwnTokens(OwnTokensOnly, Listed):
    @extend_schema(
        operation_id="listOwnTokens",
        summary="List the caller's personal tokens",
        responses={200: TokenSerializer, **REFUSALS},
    )
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        return super().get(request, *args, **kwargs)

    @extend_schema(
        operation_id="createOwnToken",
        summary="Create a personal token: its scope, within the caller's role",
        description="Only in a session, so that nobody who finds a token can create more of them.",
        request=OwnTokenBody,
        responses={201: CreatedTokenSerializer, **REFUSALS},
    )
    def post(self, request: Request) -> Response:
        asked, person = self.body(OwnTokenBody), self.person()
        if isinstance(request.user, tokens.Holder):
            raise exceptions.PermissionDenied("Sign in to create a personal token; a token cannot create one.")
        return self.made(asked, person)


class OneOwnToken(OwnTokensOnly):
    @extend_schema(
        operation_id="deleteOwnToken",
        summary="Delete a personal token; its next call is refused",
        parameters=[ID],
        responses={204: None, **ONE_REFUSALS},
    )
    def delete(self, request: Request, pk: int) -> Response:
        deletion.delete_token(self.one(pk), self.by())
        return Response(status=204)


class RotateOwnToken(OwnTokensOnly):
    @extend_schema(
        operation_id="rotateOwnToken",
        summary="Create a successor of a personal token; the old one works for another hour",
        parameters=[ID],
        request=None,
        responses={201: CreatedTokenSerializer, **ONE_REFUSALS},
    )
    def post(self, request: Request, pk: int) -> Response:
        return self.rotated(pk)


class RevokeOwnToken(OwnTokensOnly):
    @extend_schema(
        operation_id="revokeOwnToken",
        summary="End a personal token now; it stays in the list",
        parameters=[ID],
        request=None,
        responses={200: TokenSerializer, **ONE_REFUSALS},
    )
    def post(self, request: Request, pk: int) -> Response:
        return self.revoked(pk)


# --- audit ------------------------------------------------------------------------------------------------------


class AuditSerializer(serializers.ModelSerializer[AuditEvent]):
    class Meta:
        model = AuditEvent
        fields = ["id", "at", "who", "action", "what", "detail"]
        read_only_fields = fields


class AuditFilter(filters.FilterSet):
    who = filters.CharFilter(field_name="who", lookup_expr="iexact", label="User, `token NAME` or `service NAME`")
    action = filters.ChoiceFilter(choices=audit.Action.choices)
    since = filters.DateFilter(field_name="at", lookup_expr="date__gte", label="First day (UTC)")
    until = filters.DateFilter(field_name="at", lookup_expr="date__lte", label="Last day (UTC)")

    class Meta:
        model = AuditEvent
        fields: ClassVar[list[str]] = []


class Audit(Listed):
    serializer_class = AuditSerializer
    filterset_class = AuditFilter
    queryset = AuditEvent.objects.none()
    pagination_class = rest.Pages

    @extend_schema(
        operation_id="listAuditEvents",
        summary="List the audit log, newest first",
        responses={200: AuditSerializer, **REFUSALS},
    )
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        return super().get(request, *args, **kwargs)
