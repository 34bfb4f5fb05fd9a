"""No page and no call shows or changes what belongs to another organization: every URL is tried."""

import json
import re
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver
from django.utils import timezone
from drf_spectacular.generators import SchemaGenerator

from advisor.api import tokens
from advisor.models import (
    Advice,
    ApiToken,
    Comment,
    LoadTest,
    Option,
    Share,
    Study,
    StudyPiece,
    WebhookDelivery,
    WebhookEndpoint,
    Workload,
)
from catalog.models import (
    AuditEvent,
    Discount,
    HeldPrice,
    Invitation,
    Membership,
    Organisation,
    Price,
    PriceImport,
    SavedView,
    ServiceAccount,
)
from probes.machines import agents, jobs
from probes.models import Agent, Enrolment, Job, Result
from tests import sample_advice
from tests.people import member, organisation

pytestmark = pytest.mark.django_db
SECRET = "Tungsten"  # in the name of everything of the other organization
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
# What all organizations share, what only the holder of a secret link can open, and pages about the caller itself.
SHARED = (
    "catalog/", "docs/", "fidelity", "api/v1/accelerators", "api/v1/prices", "api/v1/api-prices", "api/v1/models",
    "api/v1/frameworks", "api/v1/quantizations", "api/v1/units", "api/v1/regions", "api/v1/assumptions",
    "api/v1/calibrations", "api/v1/fidelity", "workers/calibrations",
)  # fmt: skip
BY_SECRET = ("s/", "join/", "password/reset/", "api/v1/shared/")  # a link is the credential
NOT_OURS = ("admin/", "api/agent/", "static/")


@pytest.fixture
def theirs() -> dict[str, Any]:
    """Another organization with one row of everything, by the part of the URL that names it."""
    owner = organisation("theirs")
    advice = sample_advice.advice()
    Workload.objects.update(organisation=owner, name=SECRET)
    Advice.objects.update(organisation=owner)
    option = Option.objects.filter(advice=advice, rank=1).get()
    test = LoadTest.objects.create(option=option, file_sha256="x", file_name=SECRET, measured={"tool": "vllm"})
    share = Share.objects.create(organisation=owner, advice=advice, expires_at=timezone.now() + timedelta(days=1))
    comment = Comment.objects.create(advice=advice, text=SECRET, made_by=SECRET)
    service = ServiceAccount.objects.create(organisation=owner, name=SECRET, role="admin", made_by=SECRET)
    _, token = tokens.make(SECRET, "read", organisation=owner, holder=service)
    agent = Agent.objects.create(organisation=owner, name=SECRET)
    job = jobs.request({"suite": "quick"}, organisation=owner, wanted_agent=agent, requested_by=SECRET)
    result = Result.objects.create(
        organisation=owner, agent=agent, job=job, state="quarantined", reasons=["x"], device_name=SECRET
    )
    _, enrolment = agents.enrol({"site": SECRET}, SECRET, owner)
    Enrolment.objects.filter(pk=enrolment.pk).update(claims=agent, claimed_at=timezone.now())
    user = member(SECRET, "admin", owner)
    invitation = Invitation.objects.create(
        organisation=owner, email=f"{SECRET}@x.example", role="admin", token_hash="x", made_by=SECRET,
        expires_at=timezone.now() + timedelta(days=1),
    )  # fmt: skip
    imported = PriceImport.objects.create(
        organisation=owner, file_format="csv", file_name=SECRET, made_by=SECRET, created_rows=0, changed_rows=0,
        unchanged_rows=0,
    )  # fmt: skip
    offer = {
        "provider": SECRET,
        "instance": "one",
        "region": "",
        "accelerator": "x",
        "accelerators": "1",
        "term": "spot",
    }
    offer |= {"usd_per_hour": "1", "purchase_usd": "", "as_of": "2026-01-01", "source": SECRET}
    held = HeldPrice.objects.create(price_import=imported, row=offer, reason="x")
    Discount.objects.create(
        organisation=owner, provider=SECRET, discount_fraction=0.5, as_of="2026-01-01", source=SECRET
    )
    study = Study.objects.create(
        organisation=owner,
        name=SECRET,
        kind="grid",
        points=1,
        made_by=SECRET,
        state="running",
        prices_as_of="2026-01-01",
    )
    row = {"point": 0, "set": {}, "workload": SECRET}
    StudyPiece.objects.create(study=study, index=0, points=[{"index": 0}], size=1, state="done", result=[row])
    endpoint = WebhookEndpoint.objects.create(organisation=owner, url=f"https://{SECRET}.example/", events=[])
    delivery = WebhookDelivery.objects.create(endpoint=endpoint, event_id="x", body=SECRET, state="failed")
    view = SavedView.objects.create(organisation=owner, list_name="prices", name=SECRET)
    return {
        "webhooks": endpoint.pk, "delivery": delivery.pk,
        "advice": advice.pk, "studies": study.pk,
        "rank": 1, "test": test.pk, "share": share.pk, "comment": comment.pk, "tokens": token.pk,
        "own-tokens": token.pk, "service-accounts": service.pk,
        "workers": agent.pk, "agents": agent.pk, "jobs": job.pk, "probe-jobs": job.pk, "results": result.pk,
        "probe-results": result.pk, "claim": enrolment.pk, "members": Membership.objects.get(user=user).pk,
        "invitations": invitation.pk, "held": held.pk, "held-prices": held.pk, "saved-views": view.pk,
        "owner": owner,
    }  # fmt: skip


def patterns(found: Any, prefix: str = "") -> list[str]:
    paths = []
    for each in found:
        if isinstance(each, URLResolver):
            paths += patterns(each.url_patterns, prefix + str(each.pattern))
        elif isinstance(each, URLPattern):
            paths.append(prefix + str(each.pattern))
    return paths


def filled(pattern: str, theirs: dict[str, Any]) -> str:
    """The address with the other organization's objects: `<int:pk>` after `workers/` is its machine."""
    path = re.sub(r"\(\?P<(\w+)>[^)]*\)", r"<\1>", re.sub(r"[\^$]|\\Z|/\?", "", pattern)).replace("\\.", ".")
    done = ""
    for part in re.split(r"(<[^>]+>)", path):
        if not part.startswith("<"):
            done += part
            continue
        name = part.strip("<>").rpartition(":")[2]
        named = [key for key in done.split("/") if key in theirs]
        done += str(theirs[name] if name in theirs else theirs[named[-1]] if named and name == "pk" else "md")
    return "/" + done


def states() -> list[Any]:
    """Every row of the tables that hold an organization's data."""
    tables = (
        Advice, Option, LoadTest, Share, Comment, ApiToken, Agent, Job, Result, Enrolment, Membership, Invitation,
        HeldPrice, PriceImport, Discount, Price, AuditEvent, Workload, ServiceAccount, Study, StudyPiece, SavedView,
        WebhookEndpoint, WebhookDelivery,
    )  # fmt: skip
    rows = [list(table.objects.order_by("pk").values()) for table in tables]  # type: ignore[attr-defined]
    return [[row | {"last_used_at": None} for row in each] for each in rows]  # of the token that asks


def private() -> list[str]:
    return [p for p in patterns(get_resolver().url_patterns) if not p.startswith((*SHARED, *BY_SECRET, *NOT_OURS))]


@pytest.mark.parametrize("door", ["session", "token"])
def test_no_address_opens_what_belongs_to_another_organization(theirs: dict[str, Any], door: str) -> None:
    """As an admin of the default organization, who may everything there."""
    named = [p for p in private() if re.search(r"<|\(\?P", p) and (p.startswith("api/v1/") or door == "session")]
    named.append("catalog/prices/held/<int:pk>")
    assert len(named) > (40 if door == "session" else 15)
    client = Client()
    headers = {}
    if door == "session":
        client.force_login(member("ada", "admin"))
    else:
        headers = {"Authorization": f"Bearer {tokens.make('ours', 'admin')[0]}"}
    before = states()
    for pattern in named:
        path = filled(pattern, theirs)
        for method in METHODS:
            answer = client.generic(method, path, b"{}", "application/json", headers=headers)
            assert answer.status_code in (403, 404, 405), f"{method} {path}: {answer.status_code}"
    assert states() == before


def asked(operation: dict[str, Any], schemas: dict[str, Any]) -> tuple[set[str], set[str]]:
    """The names of an operation's query parameters, and of the keys of its body."""
    query = {each["name"] for each in operation.get("parameters", ()) if each["in"] == "query"}
    keys, todo = set[str](), [each["schema"] for each in operation.get("requestBody", {}).get("content", {}).values()]
    while todo:
        each = todo.pop()
        keys |= each.get("properties", {}).keys()
        todo += [schemas[each["$ref"].rpartition("/")[2]]] if "$ref" in each else []
        todo += [part for kind in ("anyOf", "oneOf", "allOf") for part in each.get(kind, ())]
        todo += [each["items"]] if "items" in each else []
    return query, keys


@pytest.mark.usefixtures("woken")
def test_no_parameter_and_no_body_reaches_another_organization(theirs: dict[str, Any]) -> None:
    """Each id of the other organization, in each parameter and each key of a body that a call knows; paths of ours."""
    described = SchemaGenerator().get_schema(request=None, public=True)
    headers = {"Authorization": f"Bearer {tokens.make('ours', 'admin')[0]}"}
    ids = sorted(
        {str(value) for key, value in theirs.items() if key not in ("rank", "owner")} | {str(theirs["owner"].pk)}
    )
    before, client, tried = states(), Client(raise_request_exception=True), 0

    def call(method: str, path: str, body: Any = None) -> None:
        nonlocal tried
        answer = client.generic(method, path, json.dumps(body), "application/json", headers=headers)
        assert answer.status_code < 500, f"{method} {path} {body}"
        if not answer.streaming:
            assert SECRET not in answer.content.decode(errors="ignore"), f"{method} {path} {body}"
        tried += 1

    for pattern, operations in described["paths"].items():
        if pattern.startswith(("/api/agent/", "/api/v1/shared/")) or "{" in pattern:
            continue  # of machines and links; paths with ids are tried above
        for method, operation in operations.items():
            query, keys = asked(operation, described["components"]["schemas"])
            for value in ids:
                for name in query - {"wait"}:
                    call(method.upper(), f"{pattern}?{name}={value}", {})
            for name in keys if method != "get" else ():
                for given in (*ids, *map(int, filter(str.isdigit, ids)), ids):
                    call(method.upper(), pattern, {name: given})
    after = states()
    assert tried > 1000
    for old, new in zip(before, after, strict=True):
        assert all(row in new for row in old)


def test_no_list_names_anything_of_another_organization(theirs: dict[str, Any]) -> None:
    client = Client()
    client.force_login(member("ada", "admin"))
    open_lists = [p for p in patterns(get_resolver().url_patterns) if not re.search(r"<|\(\?P", p)]
    assert len(open_lists) > 35
    for pattern in open_lists:
        for query in ("", "?format=json", "?format=csv"):
            answer = client.get("/" + pattern.replace("^", "").replace("$", "").replace("\\Z", "") + query)
            if answer.status_code == 200 and not answer.streaming:
                assert SECRET not in answer.content.decode(errors="ignore"), f"/{pattern}{query}"


def test_its_own_members_reach_it(theirs: dict[str, Any]) -> None:
    """So that the 404s above are about the organization."""
    client = Client()
    client.force_login(Membership.objects.get(pk=theirs["members"]).user)
    for path in ("advice/{advice}", "workers/{workers}", "workers/results/{results}", "advice/{advice}/workload.yaml",
                 "api/v1/advice/{advice}/comments", "studies/{studies}", "studies/{studies}/results.csv",
                 "api/v1/studies/{studies}/results", "api/v1/probe-jobs/{jobs}", "tokens/{tokens}/delete"):  # fmt: skip
        assert client.get("/" + path.format(**theirs)).status_code == 200, path
    for path in ("advice", "members", "audit", "tokens", "workers", "catalog/prices/own", "api/v1/discounts",
                 "api/v1/members", "api/v1/invitations", "api/v1/service-accounts", "api/v1/tokens",
                 "api/v1/audit", "studies", "api/v1/studies"):  # fmt: skip
        assert SECRET in client.get(f"/{path}").content.decode(), path


def test_what_a_member_makes_belongs_to_its_organization(woken: list[str], theirs: dict[str, Any]) -> None:
    client = Client()
    client.force_login(Membership.objects.get(pk=theirs["members"]).user)
    default = Organisation.objects.get(slug="default")
    made = {
        "/advice/{advice}/rescore": {}, "/advice/{advice}/share": {}, "/workers/enrol": {"labels": "a=b"}, "/tokens": {
            "name": "ci", "scope": "read", "days": 5
        }, "/workers/queue": {"suite": "quick", "machines": theirs["workers"]},
    }  # fmt: skip
    counted = (Advice, Share, Enrolment, ApiToken, Job)
    before = [table.objects.filter(organisation=theirs["owner"]).count() for table in counted]  # type: ignore[attr-defined]
    for path, given in made.items():
        assert client.post(path.format(**theirs), given).status_code in (200, 302), path
    after = [table.objects.filter(organisation=theirs["owner"]).count() for table in counted]  # type: ignore[attr-defined]
    assert after == [count + 1 for count in before]
    assert not any(table.objects.filter(organisation=default).exists() for table in counted)  # type: ignore[attr-defined]
    assert not AuditEvent.objects.filter(organisation=default).exists()
