"""Idempotency keys of tokens, the versions of the service, deprecations, and work per token."""

from datetime import UTC, datetime
from typing import Any

import pytest
from django.core.cache import cache
from django.test import Client, override_settings
from django.urls import path
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.settings import patched_settings
from drf_spectacular.utils import OpenApiParameter, extend_schema
from hypothesis import given
from hypothesis import strategies as st
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from advisor.api import limits, tokens
from advisor.api.lifecycle.deprecation import Deprecation, deprecated
from advisor.engine import ENGINE_VERSION
from advisor.models import Advice
from catalog.models import default_organisation
from tests import sample_advice
from tests.people import member

ASK = sample_advice.SPEC
YAML = "application/yaml"


def bearer(name: str = "ci", scope: str = "submit") -> dict[str, str]:
    return {"Authorization": f"Bearer {tokens.make(name, scope)[0]}"}


# --- idempotency keys -------------------------------------------------------------------------------------------


@pytest.mark.django_db
@pytest.mark.usefixtures("frozen")
def test_a_key_belongs_to_its_token_and_a_repeated_call_says_so(woken: list[str]) -> None:
    client, first, second = Client(), bearer(), bearer()  # of the same name

    def ask(who: dict[str, str], body: str = ASK) -> Any:
        return client.post("/api/v1/advice", body, YAML, headers={**who, "Idempotency-Key": "k"})

    answers = [ask(first), ask(first), ask(second)]
    assert [each.status_code for each in answers] == [202, 202, 202]
    ids = [each.json()["id"] for each in answers]
    assert ids[0] == ids[1] != ids[2] and Advice.objects.count() == 2
    assert [each.get("Idempotency-Replayed") for each in answers] == [None, "true", None]
    other = ask(first, ASK.replace("support-chat", "other"))
    assert other.status_code == 409 and other.json()["type"] == "urn:assay:problem:key-reused"
    client.force_login(member("ada", "planner"))
    by_account = client.post("/api/v1/advice", ASK, YAML, headers={"Idempotency-Key": "k"})
    assert by_account.json()["id"] not in ids


@pytest.mark.django_db
@pytest.mark.usefixtures("frozen")
def test_keys_from_before_they_had_owners_still_name_their_answer(woken: list[str]) -> None:
    who = bearer("ci")
    made = Client().post("/api/v1/advice", ASK, YAML, headers={**who, "Idempotency-Key": "k"}).json()["id"]
    Advice.objects.update(key_owner="")  # as the last version wrote it
    again = Client().post("/api/v1/advice", ASK, YAML, headers={**who, "Idempotency-Key": "k"})
    assert again.json()["id"] == made and again["Idempotency-Replayed"] == "true"


@pytest.mark.django_db
@pytest.mark.usefixtures("frozen")
def test_studies_have_the_same_keys(woken: list[str]) -> None:
    study = {"kind": "grid", "workload": {"model": "meta-llama/Llama-3.1-8B", "traffic": {
        "input_tokens": 200, "output_tokens": 30, "requests_per_s": {"mean": 4}}},
        "grid": {"traffic.requests_per_s.mean": [2, 4]}}  # fmt: skip
    who, other = bearer(), bearer()
    found = [
        Client().post("/api/v1/studies", study, "application/json", headers={**each, "Idempotency-Key": "k"})
        for each in (who, who, other)
    ]
    assert [each.status_code for each in found] == [202] * 3, found[0].json()
    assert found[0].json()["id"] == found[1].json()["id"] != found[2].json()["id"]
    assert [each.get("Idempotency-Replayed") for each in found] == [None, "true", None]


# --- versions ---------------------------------------------------------------------------------------------------


@pytest.mark.django_db
def test_the_version_names_the_service_its_api_and_its_catalog(settings: Any) -> None:
    settings.REVISION = "abc123"
    told = Client().get("/api/v1/version").json()
    assert told["application"] == told["engine"] == ENGINE_VERSION
    assert (told["api"], told["revision"], told["min_client_version"]) == ("1", "abc123", "0.1.0")
    assert set(told["catalog"]) == {"version", "loaded_at", "prices_as_of"}
    settings.REVISION = ""
    assert Client().get("/api/v1/version").json()["revision"] is None


# --- deprecations -----------------------------------------------------------------------------------------------

SINCE, SUNSET = datetime(2027, 1, 1, tzinfo=UTC), datetime(2027, 7, 1, 12, tzinfo=UTC)
PAGE = "https://assay.example/docs/changes"


@deprecated(Deprecation(since=SINCE, sunset=SUNSET, link=PAGE))
class Old(APIView):
    @extend_schema(operation_id="old", responses={200: dict})
    def get(self, request: Request) -> Response:
        return Response({}, headers={"Link": "<next>; rel=next"})


@deprecated(Deprecation(since=SINCE, link=PAGE, parameter="ancient"))
class Partly(APIView):
    @extend_schema(
        operation_id="partly",
        responses={200: dict},
        parameters=[OpenApiParameter("ancient"), OpenApiParameter("new")],
    )
    def get(self, request: Request) -> Response:
        return Response({})


class Current(APIView):
    @extend_schema(operation_id="current", responses={200: dict})
    def get(self, request: Request) -> Response:
        return Response({})


urlpatterns = [
    path("api/v1/old", Old.as_view()),
    path("api/v1/partly", Partly.as_view()),
    path("api/v1/current", Current.as_view()),
]


@pytest.mark.django_db
@override_settings(ROOT_URLCONF=__name__)
def test_responses_of_what_is_deprecated_have_the_headers_of_the_rfcs() -> None:
    answer = Client().get("/api/v1/old")
    assert answer["Deprecation"] == f"@{int(SINCE.timestamp())}" == "@1798761600"
    assert answer["Sunset"] == "Thu, 01 Jul 2027 12:00:00 GMT"
    assert answer["Link"] == f'<next>; rel=next, <{PAGE}>; rel="deprecation"; type="text/html"'
    assert Client().post("/api/v1/old").status_code == 405 and "Deprecation" in Client().post("/api/v1/old")
    for address in ("/api/v1/current", "/api/v1/partly?new=1"):
        assert "Deprecation" not in Client().get(address) and "Link" not in Client().get(address)
    partly = Client().get("/api/v1/partly?ancient=1")
    assert partly["Deprecation"] == "@1798761600" and "Sunset" not in partly


def test_the_description_marks_what_is_deprecated() -> None:
    with patched_settings({"POSTPROCESSING_HOOKS": []}):  # those of the service look for its own operations
        found = SchemaGenerator(patterns=urlpatterns).get_schema(request=None, public=True)["paths"]
    operations = {name.rpartition("/")[2]: found[name]["get"] for name in found}
    assert {name: bool(each.get("deprecated")) for name, each in operations.items()} == {
        "old": True, "partly": False, "current": False,
    }  # fmt: skip
    marked = {each["name"]: each.get("deprecated", False) for each in operations["partly"]["parameters"]}
    assert marked == {"ancient": True, "new": False}


# --- work per token ---------------------------------------------------------------------------------------------


@pytest.mark.django_db
@given(calls=st.lists(st.tuples(st.sampled_from(["a", "b", ""]), st.integers(1, 60)), max_size=20))
def test_each_token_may_cause_so_much_work_a_minute_and_others_are_not_counted(calls: list[tuple[str, int]]) -> None:
    from types import SimpleNamespace

    used = {"a": 0, "b": 0, "": 0}
    with override_settings(WORK_PER_MINUTE=100), pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits.time, "time", lambda: 1_000_000_030.0)
        cache.clear()
        for name, units in calls:
            user = SimpleNamespace(token=SimpleNamespace(pk=name)) if name else SimpleNamespace(pk=None)
            request: Any = SimpleNamespace(user=user, META={"REMOTE_ADDR": "10.0.0.1"})
            used[name] += units
            if name and used[name] > 100:
                with pytest.raises(limits.Exceeded):
                    limits.of_work(request, units)
            else:
                limits.of_work(request, units)


@pytest.mark.django_db
@pytest.mark.usefixtures("frozen")
def test_questions_quick_rankings_and_bills_share_the_work_of_their_token(settings: Any, woken: list[str]) -> None:
    cache.clear()
    settings.WORK_PER_MINUTE = 2 * limits.ADVICE
    mine, other = bearer(), bearer()
    found = [Client().post("/api/v1/advice", ASK, YAML, headers=mine) for _ in range(3)]
    assert [each.status_code for each in found] == [202, 202, 429]
    assert found[2]["RateLimit-Limit"] == "20" and int(found[2]["Retry-After"]) <= 60
    assert Client().get("/api/v1/advice", headers=mine).status_code == 200  # a read is no work
    assert Client().post("/api/v1/advice", ASK, YAML, headers=other).status_code == 202
    assert Advice.objects.filter(organisation=default_organisation()).count() == 3
