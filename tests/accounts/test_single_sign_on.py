"""Sign-in at an OpenID Connect provider that the test starts: tokens, groups, accounts, and what is refused."""

from collections.abc import Iterator
from typing import Any

import pytest
import requests
from django.contrib.auth.models import User
from django.core.cache import caches
from django.core.exceptions import ImproperlyConfigured
from django.test import Client

from advisor.accounts import single_sign_on
from advisor.api import tokens
from advisor.settings import groups_with_roles
from catalog.accounts import invitations
from catalog.models import AuditEvent, Identity, Membership, Organisation, Role
from tests.accounts.provider import CLIENT, SECRET, Provider, query_of, running
from tests.people import member, organisation

pytestmark = pytest.mark.django_db
ADA: dict[str, Any] = {
    "sub": "ada-1",
    "email": "ada@acme.example",
    "email_verified": True,
    "name": "Ada L.",
    "groups": ["all", "users"],
}
GROUPS = "users=acme:planner, admins=acme:admin, ops=acme:operator, lab=lab:viewer"


@pytest.fixture(scope="module")
def server() -> Iterator[Provider]:
    with running() as provider:
        yield provider


@pytest.fixture
def idp(server: Provider, settings: Any) -> Provider:
    fresh = Provider(address=server.address, person=dict(ADA))
    server.__dict__.update(fresh.__dict__)
    settings.OIDC_ISSUER = server.address
    settings.OIDC_RP_CLIENT_ID, settings.OIDC_RP_CLIENT_SECRET = CLIENT, SECRET
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
    settings.OIDC_GROUPS = groups_with_roles(GROUPS)
    settings.AUTHENTICATION_BACKENDS = [
        "advisor.accounts.single_sign_on.Backend",
        "axes.backends.AxesStandaloneBackend",
        "advisor.accounts.sign_in_link.Backend",
    ]
    caches["pages"].clear()
    return server


@pytest.fixture
def acme(idp: Provider) -> Organisation:
    User.objects.create_superuser("root", "root@acme.example")
    organisation("lab")
    return organisation("acme")


def came_back(client: Client, **change: str) -> Any:
    """The page after a browser went to the provider and back; `change`: of the query of the way back."""
    there = client.get("/sign-in/provider?next=/account")
    assert there.status_code == 302, there.content.decode()
    back = requests.get(there["Location"], allow_redirects=False, timeout=5).headers["Location"]
    return client.get("/sign-in/provider/callback", query_of(back) | change)


def text_of(answer: Any) -> str:
    return " ".join(answer.content.decode().replace("&#x27;", "'").split())


def roles() -> dict[str, str]:
    rows = Membership.objects.filter(user__identities__subject="ada-1")
    return dict(rows.values_list("organisation__slug", "role"))


def test_a_person_signs_in_with_pkce_and_gets_the_role_of_the_group(
    idp: Provider, acme: Organisation, client: Client
) -> None:
    there = client.get("/sign-in/provider")["Location"]
    asked = query_of(there)
    assert (asked["response_type"], asked["code_challenge_method"], asked["client_id"]) == ("code", "S256", CLIENT)
    assert len(asked["state"]) == len(asked["nonce"]) == 32 and "groups" not in asked["scope"]
    answer = came_back(client)
    assert answer.status_code == 302 and answer["Location"] == "/account"
    user = User.objects.get(username="ada@acme.example")
    assert (user.email, user.first_name, user.has_usable_password()) == ("ada@acme.example", "Ada L.", False)
    assert roles() == {"acme": "planner"} and not user.is_staff
    page = text_of(client.get("/account"))
    assert "Acme" in page and "Change the password" not in page
    assert client.session.get_expiry_age() <= 12 * 3600
    assert list(AuditEvent.objects.order_by("pk").values_list("action", flat=True)) == ["join", "sign_in"]


def test_roles_are_those_of_the_groups_at_every_sign_in(idp: Provider, acme: Organisation) -> None:
    for groups, expected in (
        (["users"], {"acme": "planner"}),
        (["/users", "ops"], {"acme": "operator"}),  # the highest; Keycloak writes paths
        (["admins", "lab"], {"acme": "admin", "lab": "viewer"}),
        (["lab"], {"lab": "viewer"}),
        ([], {}),
        (["users"], {"acme": "planner"}),
    ):
        idp.person["groups"] = groups
        answer = came_back(Client())
        assert roles() == expected
        assert answer.status_code == (302 if expected else 403)
    assert User.objects.filter(username="ada@acme.example").count() == 1
    removed = AuditEvent.objects.filter(organisation=acme, action="member_removed")
    assert [(each.who, each.what, each.detail) for each in removed] == [
        ("single sign-on", "ada@acme.example", "no group")
    ]


def test_a_removed_group_ends_tokens_and_the_rights_of_the_open_session(idp: Provider, acme: Organisation) -> None:
    browser = Client()
    came_back(browser)
    _, token = tokens.make("ci", "read", made_by="ada@acme.example", organisation=acme)
    idp.person["groups"] = []
    came_back(Client())
    token.refresh_from_db()
    assert token.status == "revoked" and browser.get("/advice").status_code == 403


@pytest.mark.parametrize(
    ("groups", "says"),
    [
        (["strangers"], "The provider sent these groups: strangers."),
        ([], "The provider sent no groups."),
        (None, "The provider sent no claim 'groups'."),
    ],
)
def test_without_a_group_of_an_organization_a_page_says_what_to_ask_for(
    idp: Provider, acme: Organisation, client: Client, groups: Any, says: str
) -> None:
    idp.person["groups"] = groups
    answer = came_back(client)
    assert answer.status_code == 403 and "_auth_user_id" not in client.session
    assert "Ask your administrator to add you" in text_of(answer) and says in text_of(answer)
    assert not Identity.objects.exists() and User.objects.count() == 1  # no account is left


def test_groups_may_be_in_the_user_information_or_inside_another_claim(
    idp: Provider, acme: Organisation, settings: Any
) -> None:
    idp.person.pop("groups")
    idp.userinfo = {"groups": "admins"}
    came_back(Client())
    assert roles() == {"acme": "admin"}
    settings.OIDC_GROUPS_CLAIM = "realm_access.roles"
    idp.userinfo = {"realm_access": {"roles": ["ops"]}}
    came_back(Client())
    assert roles() == {"acme": "operator"}


# --- what is no valid sign-in -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrong",
    [
        {"nonce": "another"}, {"nonce": None}, {"aud": "another"}, {"aud": ["another"]}, {"iss": "https://evil.example"},
        {"exp": 1_000_000_000}, {"exp": None}, {"iat": 9_999_999_999}, {"sub": None}, {"azp": "another"},
    ],
    ids=str,
)  # fmt: skip
def test_an_id_token_with_a_wrong_claim_signs_nobody_in(
    idp: Provider, acme: Organisation, client: Client, wrong: dict[str, Any]
) -> None:
    idp.wrong = wrong
    answer = came_back(client)
    assert answer.status_code == 400 and "Start again" in text_of(answer)
    assert "_auth_user_id" not in client.session and User.objects.count() == 1


@pytest.mark.parametrize(
    ("algorithm", "key"), [("none", "right"), ("HS256", "right"), ("RS256", "wrong"), ("RS512", "right")]
)
def test_an_id_token_that_is_not_signed_as_agreed_signs_nobody_in(
    idp: Provider, acme: Organisation, client: Client, algorithm: str, key: str
) -> None:
    idp.algorithm, idp.key = algorithm, key
    assert came_back(client).status_code == 400
    assert "_auth_user_id" not in client.session and User.objects.count() == 1


def test_user_information_about_somebody_else_is_refused(idp: Provider, acme: Organisation, client: Client) -> None:
    idp.userinfo = {"sub": "eve", "groups": ["admins"]}
    assert came_back(client).status_code == 400 and User.objects.count() == 1


def test_a_foreign_state_and_a_code_used_twice_are_refused(idp: Provider, acme: Organisation, client: Client) -> None:
    assert came_back(client, state="another").status_code == 400
    back = requests.get(client.get("/sign-in/provider")["Location"], allow_redirects=False, timeout=5)
    query = query_of(back.headers["Location"])
    assert Client().get("/sign-in/provider/callback", query).status_code == 403  # started in another browser
    assert client.get("/sign-in/provider/callback", query).status_code == 302
    assert client.get("/sign-in/provider/callback", query).status_code == 400


def test_the_provider_refuses(idp: Provider, acme: Organisation, client: Client) -> None:
    state = query_of(client.get("/sign-in/provider")["Location"])["state"]
    refusal = {"error": "access_denied", "error_description": "<b>no</b>", "state": state}
    answer = client.get("/sign-in/provider/callback", refusal)
    assert answer.status_code == 403 and "refused the sign-in: &lt;b&gt;no" in text_of(answer)
    for status in (400, 500):
        idp.token_status = status
        answer = came_back(client)
        assert answer.status_code == 502 and f"status {status}" in text_of(answer)


def test_a_provider_that_is_away_or_another_one_is_named_on_a_page(
    idp: Provider, acme: Organisation, client: Client, settings: Any
) -> None:
    settings.OIDC_ISSUER = "http://127.0.0.1:9"  # nobody listens
    answer = client.get("/sign-in/provider")
    assert answer.status_code == 503 and "does not respond" in text_of(answer)
    settings.OIDC_ISSUER = idp.address.replace("127.0.0.1", "localhost")
    assert client.get("/sign-in/provider").status_code == 400


def test_it_is_off_without_an_issuer(client: Client, settings: Any) -> None:
    settings.OIDC_ISSUER = ""
    assert client.get("/sign-in/provider").status_code == client.get("/sign-in/provider/callback").status_code == 404
    assert "sign-in/provider" not in text_of(client.get("/login"))


# --- whose account ----------------------------------------------------------------------------------------------


def test_people_are_known_by_subject_and_not_by_address(idp: Provider, acme: Organisation) -> None:
    came_back(Client())
    idp.person["email"] = "lovelace@acme.example"  # she married
    came_back(Client())
    assert User.objects.count() == 2 and Identity.objects.count() == 1
    idp.person |= {"sub": "eve-1", "email": "ada@acme.example"}  # her old address is somebody else's now
    answer = came_back(Client())
    assert answer.status_code == 403 and "may not take over" in text_of(answer)
    assert Identity.objects.count() == 1


def test_a_verified_address_finds_the_invited_account_and_an_unverified_one_none(
    idp: Provider, acme: Organisation, settings: Any
) -> None:
    bob = member("bob", "viewer", acme, email="ada@acme.example")
    idp.person["email_verified"] = False
    came_back(Client())
    stranger = Identity.objects.get().user
    assert stranger != bob and stranger.email == "" and stranger.username.startswith("sso-")
    stranger.delete()
    settings.OIDC_TRUST_EMAIL = True  # of providers that do not send email_verified
    came_back(Client())
    assert Identity.objects.get().user != bob  # this one sends that it is not verified
    Identity.objects.get().user.delete()
    idp.person.pop("email_verified")
    came_back(Client())
    assert Identity.objects.get().user == bob and roles() == {"acme": "planner"}  # the group decides


def test_the_password_of_an_account_ends_when_its_person_first_signs_in(idp: Provider, acme: Organisation) -> None:
    """An admin of another organization can accept the own invitation, and wait for the person's groups."""
    lab = Organisation.objects.get(slug="lab")
    word = "chosen by the inviter"
    token, row = invitations.invite(lab, "ada@acme.example", Role.VIEWER, "mallory")
    made = invitations.join_as_new(row, "Ada", word)
    mallory = Client()
    mallory.force_login(made, "advisor.accounts.sign_in_link.Backend")
    assert mallory.get("/account").status_code == 200
    ada = Client()
    came_back(ada)
    assert Identity.objects.get().user == made and roles() == {"acme": "planner", "lab": "viewer"}
    made.refresh_from_db()
    assert not made.has_usable_password() and not made.check_password(word)
    assert mallory.get("/account").status_code == 302 and ada.get("/account").status_code == 200
    assert AuditEvent.objects.get(action="password").organisation == lab


def test_a_link_with_an_error_signs_nobody_out_and_shows_no_foreign_text(idp: Provider, acme: Organisation) -> None:
    browser = Client()
    came_back(browser)
    for state in ("", "&state=made-up"):
        answer = browser.get(f"/sign-in/provider/callback?error=x&error_description=Call+555{state}")
        assert answer.status_code == 403 and "refused the sign-in" not in text_of(answer)
    assert browser.get("/account").status_code == 200


def test_staff_accounts_are_never_found_by_address(idp: Provider, acme: Organisation, client: Client) -> None:
    idp.person["email"] = "ROOT@acme.example"
    answer = came_back(client)
    assert answer.status_code == 403 and "may not take over" in text_of(answer) and not Identity.objects.exists()


def test_a_deactivated_account_stays_out(idp: Provider, acme: Organisation) -> None:
    came_back(Client())
    User.objects.filter(username="ada@acme.example").update(is_active=False)
    answer = came_back(Client())
    assert answer.status_code == 403 and "deactivated" in text_of(answer)


def test_an_invited_person_signs_in_without_a_group_and_stays_a_member(
    idp: Provider, acme: Organisation, settings: Any
) -> None:
    settings.PASSWORD_SIGN_IN = False
    idp.person["groups"] = ["lab"]
    token, _ = invitations.invite(acme, "ada@acme.example", Role.OPERATOR, "root")
    browser = Client()
    assert "Sign in with" in text_of(browser.get(f"/join/{token}"))
    came_back(browser)
    assert browser.post(f"/join/{token}").status_code == 302
    assert roles() == {"acme": "operator", "lab": "viewer"}
    idp.person["groups"] = []
    came_back(browser)
    assert roles() == {"acme": "operator"}


def test_an_admin_cannot_change_a_role_that_a_group_gives(idp: Provider, acme: Organisation, client: Client) -> None:
    came_back(Client())
    client.force_login(member("boss", "admin", acme), "advisor.accounts.sign_in_link.Backend")
    row = Membership.objects.get(by_group=True)
    answer = client.post(f"/members/{row.pk}/role", {"role": "admin"}, follow=True)
    assert "group of the provider" in text_of(answer) and roles() == {"acme": "planner"}


# --- passwords, signing out and settings ------------------------------------------------------------------------


def test_with_passwords_off_nobody_signs_in_with_one(idp: Provider, acme: Organisation, settings: Any) -> None:
    settings.PASSWORD_SIGN_IN = False
    member("bob", "admin", acme, password="a long enough word", is_staff=True)
    page = text_of(Client().get("/login"))
    assert "Sign in with single sign-on" in page and "Password" not in page
    for path in ("/login", "/admin/login/", "/password/reset"):
        answer = Client().post(path, {"username": "bob", "password": "a long enough word", "email": "x@acme.example"})
        assert answer.status_code == 403, path
    assert User.objects.get(username="bob").last_login is None


def test_signing_out_offers_to_sign_out_at_the_provider(idp: Provider, acme: Organisation, client: Client) -> None:
    came_back(client)
    page = text_of(client.post("/logout"))
    assert f"{idp.address}/end?client_id=assay" in page and "_auth_user_id" not in client.session


def test_a_locked_address_does_not_keep_out_those_whom_the_provider_knows(
    idp: Provider, acme: Organisation, client: Client, settings: Any
) -> None:
    settings.AUTHENTICATION_BACKENDS += ["django.contrib.auth.backends.ModelBackend"]
    settings.LOGIN_FAILURES_ADDRESS = 10
    for number in range(12):
        client.post("/login", {"username": f"guess{number // 6}", "password": "wrong"})
    assert client.post("/login", {"username": "root", "password": "wrong"}).status_code == 429
    assert came_back(client).status_code == 302


@pytest.mark.parametrize("text", ["users", "users=acme", "users=acme:member", "=acme:admin", "a=b:admin,x"])
def test_a_mapping_that_cannot_be_read_says_how_to_write_it(text: str) -> None:
    with pytest.raises(ImproperlyConfigured, match="GROUP=ORGANIZATION:ROLE"):
        groups_with_roles(text)


def test_names_of_groups_may_have_commas_and_equals_signs() -> None:
    assert groups_with_roles("cn=a,ou=b=acme:admin; x=lab:viewer") == (
        ("cn=a,ou=b", "acme", "admin"), ("x", "lab", "viewer"),
    )  # fmt: skip
    assert groups_with_roles("") == ()


def test_the_providers_addresses_are_read_once_in_ten_minutes(idp: Provider, acme: Organisation) -> None:
    single_sign_on.provider()
    single_sign_on.provider()
    assert idp.calls.count("/.well-known/openid-configuration") == 1
