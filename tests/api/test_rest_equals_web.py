"""REST equals the pages: every address of the pages has its call, and what a page does, its call does.

Each action is done twice in the same world, once on the page and once by REST with a token of the same person. Then the
rows of the database and the page that shows the result are the same. Files are the same, byte for byte.
"""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from django.apps import apps
from django.core.cache import caches
from django.core.files.uploadedfile import SimpleUploadedFile
from django.db import models, transaction
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver
from django.utils import timezone
from django.utils.html import escape
from drf_spectacular.generators import SchemaGenerator

from advisor.api import tokens
from advisor.models import ApiToken, Comment, Share, Study, StudyPiece
from advisor.report import DOCUMENTS
from advisor.web import share_links
from catalog.accounts import audit
from catalog.models import (
    Calibration,
    Invitation,
    SavedView,
    ServedModel,
    ServiceAccount,
)
from catalog.pricing import own
from probes.machines import agents, jobs
from probes.models import Agent, Enrolment, Result
from tests import sample_advice, sample_load_results, sample_money
from tests.clocks import TODAY
from tests.people import member
from tests.same_answers import quiet

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("frozen")]
Json = dict[str, Any]

SESSION = "it is about the browser's session: signing in and out, the cookie of a reader, the person's own password"
# Every address of the pages by its name: the calls that do the same, or (SESSION, NO_DATA) why there is none.
NO_DATA = "documentation, or the state of the installation for its operator"
CALLS: dict[str, str] = {
    "ask": "POST /advice, POST /advice/{id}/successors, GET /advice/{id}",
    "portfolio": "POST /advice, POST /advice/{id}/successors",
    "quick-estimate": "POST /quick",
    "fidelity": "GET /fidelity, GET /fidelity/rows",
    "advice-list": "GET /advice",
    "advice-freshness": "GET /advice/freshness, POST /advice/freshness",
    "compare": "GET /compare, GET /compare.csv",
    "advice": "GET /advice/{id}, GET /advice/{id}/result, GET /advice/{id}/summary",
    "advice-assumptions": "GET /advice/{id}/result, GET /assumptions",
    "advice-cancel": "POST /advice/{id}/cancel",
    "advice-delete": "DELETE /advice/{id}",
    "advice-rescore": "POST /advice/{id}/rescore",
    "what-if": "GET /advice/{id}/what-if, POST /advice/{id}/what-if, GET /advice/{id}/successors",
    "advice-share": "POST /advice/{id}/shares, GET /advice/{id}/shares",
    "advice-unshare": "POST /advice/{id}/shares/{share}/end",
    "share-delete": "DELETE /advice/{id}/shares/{share}",
    "advice-option": "GET /advice/{id}/result, GET /advice/{id}/options/{rank}/load-tests",
    "compare-deployment": "POST /deployments/compare",
    "load-test-upload": "POST /advice/{id}/options/{rank}/load-tests",
    "load-test-switch": "PATCH /advice/{id}/options/{rank}/load-tests/{test}",
    "load-test-delete": "DELETE /advice/{id}/options/{rank}/load-tests/{test}",
    "advice-json": "GET /advice/{id}/result",
    "advice-workload": "GET /advice/{id}/workload.yaml",
    "advice-csv": "GET /advice/{id}/options.csv",
    "advice-markdown": "GET /advice/{id}/advice.md",
    "advice-document": "GET /advice/{id}/documents/{name}",
    "price-updates": "GET /price-updates, GET /held-prices",
    "price-decide": "POST /held-prices/{id}/release, POST /held-prices/{id}/discard",
    "comment-add": "POST /advice/{id}/comments, GET /advice/{id}/comments",
    "comment-delete": "DELETE /advice/{id}/comments/{comment}",
    "studies": "POST /studies, GET /studies",
    "study": "GET /studies/{id}, GET /studies/{id}/results",
    "study-cancel": "POST /studies/{id}/cancel",
    "study-resume": "POST /studies/{id}/resume",
    "study-delete": "DELETE /studies/{id}",
    "study-file": "GET /studies/{id}/results.csv, GET /studies/{id}/results.parquet",
    "shared": "GET /shared/{token}",
    "shared-what-if": "GET /shared/{token}/what-if",
    "shared-document": "GET /shared/{token}/documents/{name}",
    "shared-option": "GET /shared/{token}",
    "catalog:home": "GET /accelerators",
    "catalog:list": "GET /accelerators, GET /prices, GET /api-prices, GET /models, GET /frameworks, "
    "GET /quantizations, GET /units, GET /regions, GET /evidence",
    "catalog:price-index": "GET /prices",
    "catalog:price-index-one": "GET /prices",
    "catalog:freshness": "GET /freshness",
    "catalog:views": "POST /saved-views, GET /saved-views, DELETE /saved-views/{id}",
    "catalog:compare": "GET /accelerators/{slug}, GET /models/{slug}",
    "catalog:own-price": "POST /own-prices",
    "catalog:own-upload": "POST /own-prices",
    "catalog:own-prices": "GET /own-prices, GET /discounts, POST /held-prices/{id}/release, "
    "POST /held-prices/{id}/discard",
    "catalog:own-discount": "POST /discounts",
    "catalog:model-import": "POST /models/import",
    "catalog:accelerator": "GET /accelerators/{slug}",
    "catalog:model": "GET /models/{slug}",
    "catalog:model-share": "POST /models/{slug}/share",
    "catalog:model-delete": "DELETE /models/{slug}",
    "catalog:framework-versions": "GET /frameworks",
    "catalog:framework": "GET /frameworks/{slug}",
    "catalog:quantization": "GET /quantizations/{slug}",
    "catalog:unit": "GET /units/{slug}",
    "catalog:region": "GET /regions/{slug}",
    "members": "POST /invitations, GET /invitations, GET /members",
    "member-role": "PATCH /members/{id}",
    "member-remove": "DELETE /members/{id}",
    "invitation-revoke": "DELETE /invitations/{id}",
    "tokens": "POST /tokens, GET /tokens, GET /service-accounts",
    "own-tokens": "POST /own-tokens, GET /own-tokens",
    "own-token-revoke": "POST /own-tokens/{id}/revoke",
    "service-account-new": "POST /service-accounts",
    "service-account-change": "PATCH /service-accounts/{id}, DELETE /service-accounts/{id}",
    "token-delete": "DELETE /tokens/{id}, POST /tokens/{id}/revoke",
    "organization": "GET /organization, PATCH /organization",
    "organization-export": "POST /organization/export",
    "organization-delete": "DELETE /organization",
    "audit": "GET /audit",
    "workers": "GET /agents, GET /probe-jobs, GET /probe-results",
    "worker-enrol": "POST /enrolments",
    "worker-queue": "POST /probe-jobs",
    "probe-results": "GET /probe-results",
    "probe-result": "GET /probe-results/{id}",
    "probe-release": "POST /probe-results/{id}/release",
    "probe-result-json": "GET /probe-results/{id}/document",
    "probe-compare": "GET /probe-results/{id}",
    "probe-cancel": "POST /probe-jobs/{id}/cancel",
    "worker": "GET /agents/{id}",
    "worker-revoke": "POST /agents/{id}/revoke",
    "worker-rotate": "POST /agents/{id}/rotate",
    "worker-trust": "POST /agents/{id}/trust, POST /agents/{id}/distrust",
    "worker-approve": "POST /agents/{id}/approve",
    "probe-calibrations": "GET /calibrations",
    "probe-calibration": "GET /calibrations/{id}",
    "probe-calibration-undo": "POST /calibrations/{id}/undo",
    "advice-actuals": "POST /advice/{id}/actuals",
    "webhooks": "GET /webhooks, POST /webhooks",
    "webhook": (
        "GET /webhooks/{id}, PATCH /webhooks/{id}, DELETE /webhooks/{id}, POST /webhooks/{id}/rotate, "
        "POST /webhooks/{id}/test, GET /webhooks/{id}/deliveries"
    ),
    "webhook-redeliver": "POST /webhooks/{id}/deliveries/{delivery}/redeliver",
    **dict.fromkeys(
        (
            "login", "logout", "single-sign-on", "single-sign-on-callback", "sign-in-link", "password-reset",
            "password-reset-sent", "password-reset-done", "password-reset-confirm", "join", "account",
            "account-organization", "language", "/admin/login/",
        ),
        SESSION,
    ),
    **dict.fromkeys(
        ("documentation", "documentation-home", "healthz", "readyz", "status", "agent-file", "schema", "api-docs"),
        NO_DATA,
    ),
}  # fmt: skip


def pages(patterns: Any, prefix: str = "", space: str = "") -> set[str]:
    """The names of all addresses but the API's and the admin site's."""
    found = set()
    for each in patterns:
        path = prefix + str(each.pattern)
        if path.startswith(("api/v1/", "api/agent/")):
            continue
        if isinstance(each, URLResolver) and each.app_name != "admin":
            found |= pages(each.url_patterns, path, f"{each.namespace}:" if each.namespace else space)
        elif isinstance(each, URLPattern):
            found.add(space + each.name if each.name else f"/{path}")
    return found


def test_every_address_of_the_pages_has_its_calls_or_a_reason() -> None:
    assert pages(get_resolver().url_patterns) == set(CALLS)


def test_the_calls_of_the_pages_are_described() -> None:
    described = SchemaGenerator(api_version="1").get_schema(request=None, public=True)["paths"]
    known = {f"{method.upper()} {path.removeprefix('/api/v1')}" for path, each in described.items() for method in each}
    named = {call for calls in CALLS.values() if "/" in calls for call in calls.split(", ")}
    assert named <= known, named - known
    # and no call of people is without a page, but for those that only programs need
    programs = {
        "GET /", "POST /estimate", "POST /estimates", "POST /tokens/{id}/rotate", "POST /own-tokens/{id}/rotate",
        "DELETE /own-tokens/{id}", "GET /assumptions/{key}", "GET /prices/{id}", "GET /api-prices/{id}",
        "GET /probe-jobs/{id}", "GET /enrolments", "GET /evidence", "GET /version", "POST /advice/batch",
    }  # fmt: skip
    ours = {call for call in known if not call.partition(" ")[2].startswith("/api/")}
    assert ours - named <= programs, ours - named - programs


# --- one world --------------------------------------------------------------------------------------------------


@dataclass(kw_only=True)
class World:
    """One row of everything that people of an organization change, and its two doors."""

    web: Client
    token: str
    ids: Json

    def path(self, text: str) -> str:
        return text.format(**self.ids)

    def posts(self, path: str, **data: Any) -> Any:
        return self.web.post(self.path(path), data)

    def calls(self, method: str, path: str, body: Any = None) -> Any:
        headers = {"Authorization": f"Bearer {self.token}"}
        content = b"" if body is None else json.dumps(body)
        return Client().generic(method, "/api/v1" + self.path(path), content, "application/json", headers=headers)


@pytest.fixture
def world(woken: list[str]) -> World:
    ada, bob = member("ada", "admin"), member("bob", "planner")
    advice = sample_advice.advice(sample_money.result())
    owner = advice.organisation
    running, queued = sample_advice.advice(state="running"), sample_advice.advice()
    test = sample_load_results.vllm()
    from advisor import load_tests

    loaded, _ = load_tests.record(advice.options.get(rank=1), json.dumps(test).encode(), "first.json", False, "ada")
    share = share_links.make(advice, 30, "ada")
    study, ended = (
        Study.objects.create(
            organisation=owner, name="loads", kind="grid", axes=[["load", "float64"]], points=1, state=state, phase=1,
            prices_as_of=TODAY, made_by="ada",
        )
        for state in ("running", "cancelled")
    )  # fmt: skip
    for each, state in ((study, "queued"), (ended, "cancelled")):
        points = [{"index": 0, "set": {"load": 1}, "asked": {"name": "chat"}}]
        StudyPiece.objects.create(study=each, index=0, points=points, size=1, state=state)
    book = own.Book(owner)
    read = own.read(book, [(1, {**PRICE, "usd_per_hour": "9999"})])
    ((_, held),) = own.save(book, read.lines, "ada", own.FORM, "quote").held
    agent = Agent.objects.create(organisation=owner, name="gpu", key_salt="x", token_expires_at=timezone.now())
    _, enrolment = agents.enrol({"rack": "1"}, "ada", owner)
    Enrolment.objects.filter(pk=enrolment.pk).update(claims=agent, claimed_at=timezone.now())
    job = jobs.request({"suite": "quick"}, organisation=owner, wanted_agent=agent)
    result = Result.objects.create(
        organisation=owner, agent=agent, job=job, state="quarantined", reasons=["too fast"], document={"a": 1},
        suite="quick", duration_s=1.0, started_at=timezone.now(),
    )  # fmt: skip
    invitation = Invitation.objects.create(
        organisation=owner, email="eve@acme.example", role="viewer", token_hash="x", made_by="ada",
        expires_at=timezone.now() + timedelta(days=1),
    )  # fmt: skip
    service = ServiceAccount.objects.create(organisation=owner, name="nightly", role="viewer", made_by="ada")
    brought = ServedModel.objects.create(
        slug="acme-7b", hf_id="acme/7B", organisation=owner, as_of=TODAY, shape=ServedModel.objects.all()[0].shape
    )
    web = Client()
    web.force_login(ada)
    mine, row = tokens.make("parity", "admin", made_by="ada", organisation=owner, holder=ada)
    tokens.record_use(row)
    ids = {
        "advice": advice.pk, "running": running.pk, "other": queued.pk, "test": loaded.pk,
        "link": share, "share": Share.objects.get().pk, "study": study.pk, "ended": ended.pk, "held": held.pk,
        "agent": agent.pk, "claim": enrolment.pk, "job": job.pk, "result": result.pk, "invitation": invitation.pk,
        "comment": Comment.objects.create(advice=advice, text="Ask.", author=ada, made_by="ada").pk,
        "service": service.pk, "member": bob.memberships.get().pk if hasattr(bob, "memberships") else membership(bob),
        "view": SavedView.objects.create(organisation=owner, list_name="prices", name="old", made_by="ada").pk,
        "ci": tokens.make("ci", "read", made_by="ada", organisation=owner)[1].pk,
        "own": tokens.make("laptop", "read", made_by="ada", organisation=owner, holder=ada)[1].pk,
        "model": brought.slug, "organisation": owner.slug,
        "calibration": Calibration.objects.order_by("pk").values_list("pk", flat=True)[0],
    }  # fmt: skip
    return World(web=web, token=mine, ids=ids)


def membership(user: Any) -> int:
    from catalog.models import Membership

    return int(Membership.objects.get(user=user).pk)


# --- what both doors leave --------------------------------------------------------------------------------------

SECRETS = ("token", "token_hash", "token_prefix", "key_salt", "claim", "id", "password", "last_login", "session_data")
BY_DOOR = ("file_format", "file_name", "idempotency_key", "request_id")  # how it came in
AGO = re.compile(r"(<time[^>]*>)[^<]*|\b(?:now|a second|\d+\s+seconds?)(?: ago)?")
UNWATCHED = ("session", "tally", "usage", "accessattempt", "accesslog", "permission")


def tables() -> list[type[models.Model]]:
    found = [
        model for app in ("advisor", "catalog", "probes", "auth") for model in apps.get_app_config(app).get_models()
    ]
    return [each for each in found if each._meta.model_name not in UNWATCHED]


def state(before: dict[str, set[Any]]) -> dict[str, list[str]]:
    """The rows of every table that hold an organization's data, without secrets, times and keys."""
    found = {}
    for table in tables():
        name, rows = table._meta.label, table._default_manager.order_by("pk").values()
        fields = {field.name for field in table._meta.concrete_fields}
        if name.startswith("catalog."):
            rows = rows.filter(organisation__isnull=False) if "organisation" in fields else rows[:0]
        told = [{"is_new": row[table._meta.pk.attname] not in before[name]} | kept_of(table, row) for row in rows]
        text = "\n".join(json.dumps(each, default=str, sort_keys=True) for each in told)
        found[name] = sorted(secretless(quiet(text)).splitlines())
    return found


def kept_of(table: type[models.Model], row: Json) -> Json:
    shown = {}
    for field in table._meta.concrete_fields:
        value = row[field.attname]
        if field.name in SECRETS or field.name in BY_DOOR or field.primary_key:
            continue
        if field.name == "what" and row["action"] == audit.Action.PRICES:  # names the file, or the call
            continue
        shown[field.name] = value is not None if isinstance(field, models.DateTimeField) else value
    return shown


def keys() -> dict[str, set[Any]]:
    return {each._meta.label: set(each._default_manager.values_list("pk", flat=True)) for each in tables()}


def shown(world: World, path: str) -> str:
    """The page without what each visit changes, and without messages that are shown once."""
    caches["pages"].clear()
    world.web.cookies.pop("messages", None)
    page = world.web.get(world.path(path))
    assert page.status_code in (200, 404), (path, page.status_code)
    return secretless(AGO.sub(r"\1", quiet(page.content.decode())))


def secretless(text: str) -> str:
    for table in (ApiToken, Share, Agent, Enrolment):
        for prefix in table.objects.exclude(token_prefix="").values_list("token_prefix", flat=True):
            text = text.replace(prefix, "PREFIX")
    return text


QUESTION = {
    "name": "desk", "model": "meta-llama/Llama-3.1-8B-Instruct",
    "traffic": {"input_tokens": {"mean": 2000}, "output_tokens": {"mean": 300}, "requests_per_s": {"mean": 4}},
}  # fmt: skip
TYPED = {
    "name": "desk", "model": "meta-llama/Llama-3.1-8B-Instruct", "traffic.input_tokens.mean": "2000",
    "traffic.output_tokens.mean": "300", "traffic.requests_per_s.mean": "4",
}  # fmt: skip
PRICE = {
    "accelerator": "h100-sxm", "accelerators": 8, "provider": "acme", "instance": "big-8", "term": "on_demand",
    "as_of": TODAY.isoformat(), "source": "quote 4711", "confidence": "high",
}  # fmt: skip
CSV = "provider,instance,accelerator,accelerators,term,usd_per_hour,as_of,source\n"
CSV += f"acme,big-8,h100-sxm,8,on_demand,20,{TODAY.isoformat()},quote 4711\n"
DISCOUNT = {"provider": "aws", "as_of": TODAY.isoformat(), "source": "contract 12"}
QWEN = {
    "model_type": "qwen2", "hidden_size": 3584, "vocab_size": 152064, "num_hidden_layers": 28,
    "num_attention_heads": 28, "num_key_value_heads": 4, "intermediate_size": 18944, "max_position_embeddings": 131072,
}  # fmt: skip
STUDY = "kind: grid\nworkload:\n  model: meta-llama/Llama-3.1-8B-Instruct\n  traffic: {input_tokens: 2000, "
STUDY += "output_tokens: 300, requests_per_s: {mean: 4}}\ngrid:\n  traffic.requests_per_s.mean: [2, 4]\n"
TEST = sample_load_results.vllm(rate=5.9)
Do = Callable[[World], Any]
# name of the address -> (what the page is sent, what the call is sent, the page that shows it)
ACTIONS: dict[str, tuple[Do, Do, str]] = {
    "ask": (lambda w: w.posts("/", **TYPED), lambda w: w.calls("POST", "/advice", QUESTION), "/advice"),
    "ask, from an answer": (
        lambda w: w.posts("/", **TYPED, **{"from": w.ids["advice"]}),
        lambda w: w.calls("POST", "/advice/{advice}/successors", QUESTION),
        "/advice/{advice}",
    ),
    "advice-cancel": (
        lambda w: w.posts("/advice/{running}/cancel"),
        lambda w: w.calls("POST", "/advice/{running}/cancel"),
        "/advice/{running}",
    ),
    "advice-delete": (
        lambda w: w.posts("/advice/{other}/delete"),
        lambda w: w.calls("DELETE", "/advice/{other}"),
        "/advice",
    ),
    "advice-rescore": (
        lambda w: w.posts("/advice/{advice}/rescore"),
        lambda w: w.calls("POST", "/advice/{advice}/rescore", {}),
        "/advice/{advice}",
    ),
    "advice-rescore, at its prices": (
        lambda w: w.posts("/advice/{advice}/rescore", prices="then"),
        lambda w: w.calls("POST", "/advice/{advice}/rescore", {"prices": "then"}),
        "/advice/{advice}",
    ),
    "what-if": (
        lambda w: w.posts("/advice/{advice}/what-if", vendor="amd", budget="50000", name="AMD only"),
        lambda w: w.calls(
            "POST", "/advice/{advice}/what-if", {"name": "AMD only", "controls": {"vendor": ["amd"], "budget": 50000}}
        ),
        "/advice/{advice}",
    ),
    "advice-share": (
        lambda w: w.posts("/advice/{advice}/share", days="7"),
        lambda w: w.calls("POST", "/advice/{advice}/shares", {"days": 7}),
        "/advice/{advice}",
    ),
    "advice-unshare": (
        lambda w: w.posts("/advice/{advice}/unshare", link=w.ids["share"]),
        lambda w: w.calls("POST", "/advice/{advice}/shares/{share}/end"),
        "/advice/{advice}",
    ),
    "share-delete": (
        lambda w: w.posts("/advice/{advice}/shares/{share}/delete"),
        lambda w: w.calls("DELETE", "/advice/{advice}/shares/{share}"),
        "/advice/{advice}",
    ),
    "load-test-upload": (
        lambda w: w.posts(
            "/advice/{advice}/options/1/load-tests", calibrates="on",
            result=SimpleUploadedFile("run.json", json.dumps(TEST).encode()),
        ),
        lambda w: w.calls("POST", "/advice/{advice}/options/1/load-tests?calibration=true", TEST),
        "",  # the page names the file, which a call has no name of
    ),
    "load-test-switch": (
        lambda w: w.posts("/advice/{advice}/options/1/load-tests/{test}", calibrates="on"),
        lambda w: w.calls("PATCH", "/advice/{advice}/options/1/load-tests/{test}", {"calibrates": True}),
        "/advice/{advice}/options/1?section=run",
    ),
    "load-test-delete": (
        lambda w: w.posts("/advice/{advice}/options/1/load-tests/{test}/delete"),
        lambda w: w.calls("DELETE", "/advice/{advice}/options/1/load-tests/{test}"),
        "/advice/{advice}/options/1?section=run",
    ),
    "comment-add": (
        lambda w: w.posts("/advice/{advice}/comments", text="Ask for a quote."),
        lambda w: w.calls("POST", "/advice/{advice}/comments", {"text": "Ask for a quote."}),
        "/advice/{advice}",
    ),
    "comment-delete": (
        lambda w: w.posts("/advice/{advice}/comments/{comment}/delete"),
        lambda w: w.calls("DELETE", "/advice/{advice}/comments/{comment}"),
        "/advice/{advice}",
    ),
    "price-decide": (
        lambda w: w.posts("/catalog/prices/held/{held}", decision="release"),
        lambda w: w.calls("POST", "/held-prices/{held}/release"),
        "/catalog/prices/updates",
    ),
    "catalog:own-prices": (
        lambda w: w.posts("/catalog/prices/own", discard=w.ids["held"]),
        lambda w: w.calls("POST", "/held-prices/{held}/discard"),
        "/catalog/prices/own",
    ),
    "studies": (
        lambda w: w.posts("/studies", file=STUDY),
        lambda w: w.calls("POST", "/studies", {**GRID, "grid": {"traffic.requests_per_s.mean": [2, 4]}}),
        "/studies",
    ),
    "study-cancel": (
        lambda w: w.posts("/studies/{study}/cancel"),
        lambda w: w.calls("POST", "/studies/{study}/cancel"),
        "/studies/{study}",
    ),
    "study-resume": (
        lambda w: w.posts("/studies/{ended}/resume"),
        lambda w: w.calls("POST", "/studies/{ended}/resume"),
        "/studies/{ended}",
    ),
    "study-delete": (
        lambda w: w.posts("/studies/{study}/delete"),
        lambda w: w.calls("DELETE", "/studies/{study}"),
        "/studies",
    ),
    "catalog:views": (
        lambda w: w.posts("/catalog/views", list_name="prices", name="spot", query="term=spot&x=1"),
        lambda w: w.calls("POST", "/saved-views", {"list_name": "prices", "name": "spot", "query": "term=spot&x=1"}),
        "/catalog/views",
    ),
    "catalog:views, deleted": (
        lambda w: w.posts("/catalog/views", delete=w.ids["view"]),
        lambda w: w.calls("DELETE", "/saved-views/{view}"),
        "/catalog/views",
    ),
    "catalog:own-price": (
        lambda w: w.posts("/catalog/prices/new", **PRICE, price="20", currency="USD", per="instance"),
        lambda w: w.calls("POST", "/own-prices", {**PRICE, "usd_per_hour": 20}),
        "/catalog/prices/own",
    ),
    "catalog:own-upload": (
        lambda w: w.posts("/catalog/prices/upload", table=CSV, save="1"),
        lambda w: w.calls("POST", "/own-prices", [{**PRICE, "usd_per_hour": 20}]),
        "/catalog/prices/own",
    ),
    "catalog:own-discount": (
        lambda w: w.posts("/catalog/discounts/new", **DISCOUNT, discount_percent="15"),
        lambda w: w.calls("POST", "/discounts", {**DISCOUNT, "discount_fraction": 0.15}),
        "/catalog/prices/own",
    ),
    "catalog:model-import": (
        lambda w: w.posts("/catalog/models/import", config=json.dumps(QWEN), name="acme/our-7b", keep="1"),
        lambda w: w.calls("POST", "/models/import", {"config": QWEN, "name": "acme/our-7b"}),
        "/catalog/models/acme-our-7b",
    ),
    "catalog:model-share": (
        lambda w: w.posts("/catalog/models/{model}/share"),
        lambda w: w.calls("POST", "/models/{model}/share"),
        "/catalog/models/{model}",
    ),
    "catalog:model-delete": (
        lambda w: w.posts("/catalog/models/{model}/delete"),
        lambda w: w.calls("DELETE", "/models/{model}"),
        "/catalog/models?search=acme",
    ),
    "members": (
        lambda w: w.posts("/members", email="zoe@acme.example", role="viewer"),
        lambda w: w.calls("POST", "/invitations", {"email": "zoe@acme.example", "role": "viewer"}),
        "/members",
    ),
    "member-role": (
        lambda w: w.posts("/members/{member}/role", role="operator"),
        lambda w: w.calls("PATCH", "/members/{member}", {"role": "operator"}),
        "/members",
    ),
    "member-remove": (
        lambda w: w.posts("/members/{member}/remove"),
        lambda w: w.calls("DELETE", "/members/{member}"),
        "/members",
    ),
    "invitation-revoke": (
        lambda w: w.posts("/members/invitations/{invitation}/revoke"),
        lambda w: w.calls("DELETE", "/invitations/{invitation}"),
        "/members",
    ),
    "tokens": (
        lambda w: w.posts("/tokens", name="build", scope="read", days="30"),
        lambda w: w.calls("POST", "/tokens", {"name": "build", "scope": "read", "days": 30}),
        "/tokens",
    ),
    "own-token-revoke": (
        lambda w: w.posts("/account/tokens/{own}/revoke"),
        lambda w: w.calls("POST", "/own-tokens/{own}/revoke"),
        "/account/tokens",
    ),
    "token-delete": (
        lambda w: w.posts("/tokens/{ci}/delete"),
        lambda w: w.calls("DELETE", "/tokens/{ci}"),
        "/tokens",
    ),
    "service-account-new": (
        lambda w: w.posts("/service-accounts", name="weekly", role="planner"),
        lambda w: w.calls("POST", "/service-accounts", {"name": "weekly", "role": "planner"}),
        "/tokens",
    ),
    "service-account-change": (
        lambda w: w.posts("/service-accounts/{service}", do="disable"),
        lambda w: w.calls("PATCH", "/service-accounts/{service}", {"disabled": True}),
        "/tokens",
    ),
    "service-account-change, deleted": (
        lambda w: w.posts("/service-accounts/{service}", do="delete"),
        lambda w: w.calls("DELETE", "/service-accounts/{service}"),
        "/tokens",
    ),
    "organization": (
        lambda w: w.posts("/organization", keep_audit_days="400"),
        lambda w: w.calls("PATCH", "/organization", {"retention": {"keep_audit_days": 400}}),
        "/organization",
    ),
    "worker-enrol": (
        lambda w: w.posts("/workers/enrol", labels="rack=2"),
        lambda w: w.calls("POST", "/enrolments", {"labels": {"rack": "2"}}),
        "/workers",
    ),
    "worker-queue": (
        lambda w: w.posts("/workers/queue", suite="quick", machines=[w.ids["agent"]]),
        lambda w: w.calls("POST", "/probe-jobs", {"spec": {"suite": "quick"}, "agent": w.ids["agent"]}),
        "/workers",
    ),
    "probe-cancel": (
        lambda w: w.posts("/workers/jobs/{job}/cancel"),
        lambda w: w.calls("POST", "/probe-jobs/{job}/cancel"),
        "/workers",
    ),
    "probe-release": (
        lambda w: w.posts("/workers/results/{result}/release"),
        lambda w: w.calls("POST", "/probe-results/{result}/release"),
        "/workers/results/{result}",
    ),
    "worker-revoke": (
        lambda w: w.posts("/workers/{agent}/revoke"),
        lambda w: w.calls("POST", "/agents/{agent}/revoke"),
        "/workers/{agent}",
    ),
    "worker-rotate": (
        lambda w: w.posts("/workers/{agent}/rotate"),
        lambda w: w.calls("POST", "/agents/{agent}/rotate"),
        "/workers/{agent}",
    ),
    "worker-trust": (
        lambda w: w.posts("/workers/{agent}/trust"),
        lambda w: w.calls("POST", "/agents/{agent}/trust"),
        "/workers/{agent}",
    ),
    "worker-approve": (
        lambda w: w.posts("/workers/{agent}/approve/{claim}"),
        lambda w: w.calls("POST", "/agents/{agent}/approve", {"claim": w.ids["claim"]}),
        "/workers/{agent}",
    ),
}  # fmt: skip
GRID = {"kind": "grid", "workload": {k: v for k, v in QUESTION.items() if k != "name"}}


@pytest.mark.parametrize("half", [0, 1])  # so that two processes share them
def test_a_call_does_what_the_page_does(world: World, half: int) -> None:
    before, trouble = keys(), []
    at_start = state(before)
    for name, (page, call, where) in list(ACTIONS.items())[half::2]:
        left = []
        for door in (page, call):
            with transaction.atomic():
                answer = door(world)
                if answer.status_code >= 400:
                    trouble.append(f"{name}: {answer.status_code} {answer.content.decode()[:300]}")
                rows = state(before)
                if rows == at_start:
                    trouble.append(f"{name}: nothing changed")
                left.append((rows, shown(world, where) if where else ""))
                transaction.set_rollback(True)
        (rows, seen), (rows_called, seen_called) = left
        trouble += [
            f"{name}: {table}: {sorted(set(rows[table]) ^ set(rows_called[table]))}"
            for table in rows
            if rows[table] != rows_called[table]
        ]
        if seen != seen_called:
            trouble.append(f"{name}: {where}: {differing(seen, seen_called)}")
    assert not trouble, "\n".join(trouble)


def differing(one: str, other: str) -> list[str]:
    lines = [set(each.replace("<", "\n<").splitlines()) for each in (one, other)]
    return sorted(lines[0] ^ lines[1])[:10]


FILES = {  # path of the page's file: that of the call
    "/advice/{advice}/workload.yaml": "/advice/{advice}/workload.yaml",
    "/advice/{advice}/options.csv": "/advice/{advice}/options.csv",
    "/advice/{advice}/advice.md": "/advice/{advice}/advice.md",
    **{
        f"/advice/{{advice}}/documents/{name}": f"/advice/{{advice}}/documents/{name}"
        for name in DOCUMENTS
        if not name.endswith((".xlsx", ".yaml"))  # a ZIP has the time of each member; this option has no manifest
    },
    "/s/{link}/documents/memo.md": "/shared/{link}/documents/memo.md",
    "/advice/compare?item={advice}&item={other}&format=csv": "/compare.csv?item={advice}&item={other}",
    "/studies/{ended}/results.csv": "/studies/{ended}/results.csv",
}


def test_a_file_of_a_call_is_the_file_of_the_page(world: World) -> None:
    for page, call in FILES.items():
        one, other = world.web.get(world.path(page)), world.calls("GET", call)
        assert one.status_code == other.status_code == 200, (page, one.status_code, other.content[:300])
        assert one.content == other.content and one["Content-Type"] == other["Content-Type"], page
        assert one.get("Content-Disposition") == other.get("Content-Disposition"), page


def test_what_a_page_says_in_json_is_what_the_call_says(world: World) -> None:
    one = world.web.get(world.path("/advice/{advice}/result.json")).json()
    assert world.calls("GET", "/advice/{advice}/result?include=all").json() == one
    one = world.web.get("/catalog/prices/updates?format=json").json()
    assert world.calls("GET", "/price-updates").json() == one
    asked = "?vendor=amd&budget=90000"
    one = world.web.get(world.path("/advice/{advice}/what-if") + asked, headers={"Accept": "application/json"}).json()
    assert world.calls("GET", "/advice/{advice}/what-if" + asked).json() == one
    shared = Client().get(world.path("/api/v1/shared/{link}/what-if") + asked)
    assert shared.json()["ranking"]["workload"] == one["ranking"]["workload"] and "noindex" in shared["X-Robots-Tag"]


def test_a_comparison_has_the_figures_of_its_page(world: World) -> None:
    query = world.path("?item={advice}:1&item={advice}:2")
    found = world.calls("GET", f"/compare{query}").json()
    text = world.web.get(f"/advice/compare{query}").content.decode()
    rows = [row for group in found["groups"] if group["title"] != "Question" for row in group["rows"]]
    assert len(rows) > 10 and [item["letter"] for item in found["items"]] == ["A", "B"]
    for row in rows:
        assert all(str(escape(cell["text"])) in text for cell in row["cells"]), row
    assert world.calls("GET", "/compare?item=x&item=y").status_code == 404
    assert world.calls("GET", world.path("/compare?item={advice}")).status_code == 422


def test_a_shared_answer_is_read_without_an_account_until_its_link_ends(world: World) -> None:
    path = world.path("/api/v1/shared/{link}")
    found = Client().get(path)
    assert found.json()["result"]["recommendations"] and "calibrations" not in found.json()["result"]
    assert found["X-Robots-Tag"] == "noindex, nofollow" and found["Referrer-Policy"] == "no-referrer"
    world.posts("/advice/{advice}/unshare", link=world.ids["share"])
    assert [Client().get(f"{path}{end}").status_code for end in ("", "/what-if", "/documents/memo.md")] == [404] * 3


def test_hostile_bodies_of_the_calls_of_pages_are_refused(world: World) -> None:
    wrong: list[tuple[str, str, Any, int]] = [
        ("POST", "/advice/{advice}/rescore", {"prices": "tomorrow"}, 400),
        ("POST", "/advice/{running}/rescore", {}, 409),
        ("POST", "/advice/{advice}/what-if", {"controls": {"colour": "red"}}, 422),
        ("POST", "/advice/{advice}/what-if", {"controls": {"budget": {"a": 1}}}, 422),
        ("POST", "/advice/{advice}/what-if", {"controls": {}}, 422),
        ("POST", "/advice/{advice}/what-if", {"controls": {"vendor": ["nobody"]}}, 422),
        ("POST", "/advice/{running}/what-if", {"controls": {"budget": 1}}, 409),
        ("GET", "/advice/{advice}/what-if?colour=red", None, 422),
        ("PATCH", "/advice/{advice}/options/1/load-tests/{test}", {"calibrates": "yes"}, 400),
        ("PATCH", "/advice/{advice}/options/1/load-tests/999999", {"calibrates": True}, 404),
        ("POST", "/saved-views", {"list_name": "secrets", "name": "x"}, 400),
        ("POST", "/saved-views", {"list_name": "prices", "name": "x", "query": "search=" + "x" * 3000}, 400),
        ("POST", "/models/import", {}, 422),
        ("POST", "/models/import", {"config": {"model_type": "nothing"}}, 422),
        ("POST", "/models/import", {"config": QWEN, "hf_id": "a/b"}, 422),
        ("POST", "/models/import", {"hf_id": "../../etc/passwd"}, 422),
        ("POST", "/held-prices/999999/release", None, 404),
        ("POST", "/agents/{agent}/approve", {"claim": 999999}, 409),
        ("GET", "/advice/{running}/options.csv", None, 409),
        ("GET", "/compare?item=a&what=b", None, 400),
    ]
    for method, path, body, status in wrong:
        answer = world.calls(method, path, body)
        assert answer.status_code == status, (method, path, body, answer.status_code, answer.content[:300])
        assert answer["Content-Type"] == "application/problem+json" and answer.json()["detail"]
