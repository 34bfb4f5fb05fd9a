"""Generated calls of the API, checked against its own description: a world with real ids, three callers, the checks."""

import copy
import json
from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import hypothesis
import schemathesis
from django.core.handlers.wsgi import WSGIHandler
from django.db import transaction
from django.utils import timezone
from drf_spectacular.generators import SchemaGenerator
from pydantic import BaseModel, ValidationError
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.config import SchemathesisConfig
from schemathesis.core.failures import FailureGroup
from schemathesis.core.result import Ok
from schemathesis.specs.openapi import checks

from advisor import load_tests, webhooks, workload
from advisor.api import tokens
from advisor.engine.estimate.simulated import Estimate
from advisor.fidelity.scores import scoring
from advisor.models import Comment, Share, Study, StudyPiece, WebhookDelivery
from advisor.workload.contents import with_one_vector
from advisor.workload.fixed.training_run import TRAINING_KINDS
from catalog import models as catalog
from catalog.loading import scored
from probes.machines import agents, jobs
from probes.models import Result
from tests import sample_advice, sample_load_results, sample_money
from tests.clocks import TODAY
from tests.laboratory import score_files
from tests.measured_samples import CATALOG, row
from tests.probes import samples
from tests.probes.client import FakeAgent

Json = dict[str, Any]
CALLERS = ("anonymous", "token", "admin")
# A body may fit the description and still ask for what is not in the catalog or contradicts itself: 422.
ACCEPTED = ["2xx", "401", "403", "404", "409", "422", "429"]
REFUSED = ["400", "401", "403", "404", "405", "406", "409", "411", "413", "415", "422", "426", "429"]
CONFIG = {
    # NUL is refused in every text (test_api_hostile.py); no description of a text says so.
    "generation": {"with-security-parameters": False, "allow-x00": False},
    "analysis": {"constants": {"enabled": False}},  # of the modules that happen to be imported: not the same each time
    "checks": {
        "positive_data_acceptance": {"expected-statuses": ACCEPTED},
        "negative_data_rejection": {"expected-statuses": REFUSED},
        "missing_required_header": {"expected-statuses": REFUSED},
    },
    "operations": [
        # The body is a file of one of four load generators, which the description leaves open.
        {
            "include-operation-id": "addLoadTest",
            "checks": {"positive_data_acceptance": {"expected-statuses": [*ACCEPTED, "400"]}},
        },
        # Idempotency-Key is the hash of the body, which a generator does not find.
        {
            "include-operation-id": "putResult",
            "checks": {"positive_data_acceptance": {"expected-statuses": [*ACCEPTED, "400"]}},
        },
    ],
}


CROSS_CHECKED = {"one_of", "below_mean", "beyond_log_normal", "hit_rates", "day", "spread"}
OPERATIONS = ("askForAdvice", "estimateDeployment")


@schemathesis.check
def refused_for_its_content_alone(ctx: Any, response: Any, case: Any) -> bool | None:
    """422 for a body that fits its description: for what it means, and not for a type or a bound."""
    operation = case.operation.definition.raw.get("operationId")
    if operation not in OPERATIONS or response.status_code != 422 or not case.meta.generation.mode.is_positive:
        return None
    if not isinstance(case.body, dict):
        return None  # nothing was sent
    body = case.body["workload"] if set(case.body) == {"workload"} else case.body
    if operation == "askForAdvice":
        spec: type[BaseModel] = workload.Spec
    else:
        spec = workload.TrainingRun if body.get("kind") in TRAINING_KINDS else workload.Deployment
    try:
        spec.model_validate(with_one_vector(body))
    except ValidationError as trouble:
        plain = [each for each in trouble.errors(include_url=False) if each["type"] not in CROSS_CHECKED]
        plain = [each for each in plain if not ("output_tokens" in each["loc"] and each["input"] == 0)]
        assert not plain, f"the description allows what the server refuses: {plain[0]['loc']}: {plain[0]['msg']}"
    return None


CHECKS = [
    not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_headers_conformance,
    checks.response_schema_conformance,
    checks.positive_data_acceptance,
    checks.negative_data_rejection,
    checks.missing_required_header,
    checks.unsupported_method,
    refused_for_its_content_alone,
]


UNGUESSED = {"fields", "cursor"}  # no generator guesses the name of a field, or a signed place


class Described:
    """The API with rows of every kind in its database; `ids` are those that a path can name.

    `answered`: the statuses that each operation gave.
    """

    def __init__(self, folder: Path) -> None:
        self.answered: dict[str, set[int]] = {}
        score(folder)
        self.ids = seed()
        self.machine = FakeAgent("fuzzed")
        leased(self.machine, self.ids)
        self.bearers = {
            "token": tokens.make("fuzz submit", "submit")[0],
            "admin": tokens.make("fuzz admin", "admin")[0],
        }
        raw = SchemaGenerator(api_version="1").get_schema(request=None, public=True)
        # Calls that fit the description name rows that exist; those that do not fit name anything.
        self.schemas = {
            GenerationMode.POSITIVE: loaded(with_ids(copy.deepcopy(raw), self.ids)),
            GenerationMode.NEGATIVE: loaded(raw),
        }

    @property
    def labels(self) -> list[str]:
        found = self.schemas[GenerationMode.POSITIVE].get_all_operations()
        return [each.ok().label for each in found if isinstance(each, Ok)]

    @property
    def done(self) -> set[str]:
        return {label for label, statuses in self.answered.items() if any(status < 300 for status in statuses)}

    def headers(self, caller: str, path: str) -> dict[str, str]:
        if caller == "anonymous":
            return {}
        bearer = self.machine.token if "/agent/" in path else self.bearers[caller]
        return {"Authorization": f"Bearer {bearer}"}

    def trouble(self, case: Any, caller: str) -> Iterator[str]:
        """What is wrong with the answer to one call, which leaves nothing behind."""
        headers = {"Accept-Encoding": "identity", **self.headers(caller, case.path)}  # the client unpacks nothing
        with transaction.atomic():
            response = case.call(headers=headers)
            transaction.set_rollback(True)
        self.answered.setdefault(case.operation.label, set()).add(response.status_code)
        try:
            case.validate_response(response, checks=CHECKS, headers=headers)
        except FailureGroup as group:
            for each in group.exceptions:
                sent, said = case.as_curl_command()[:800], f"{response.status_code} {response.text[:200]}"
                yield f"{case.operation.label}: {each.title}: {str(each)[:600]}\n  {sent}\n  {said}"

    def generated(self, label: str, caller: str, many: int) -> list[str]:
        """The first trouble of each kind among `many` calls that fit the description and as many that do not."""
        found: dict[str, str] = {}
        for strategy in self.strategies(label):

            @hypothesis.given(case=strategy)
            @hypothesis.settings(
                max_examples=many,
                database=None,
                deadline=None,
                derandomize=True,
                phases=[hypothesis.Phase.generate],
                suppress_health_check=list(hypothesis.HealthCheck),
            )
            def check(case: Any) -> None:
                for text in self.trouble(case, caller):
                    found.setdefault(text.split(": ")[1], text)

            try:
                check()
            except hypothesis.errors.Unsatisfiable:
                pass  # nothing can be wrong with a call that has no parameters
        return list(found.values())

    def strategies(self, label: str) -> list[Any]:
        """Calls like the description's own examples, calls that fit it, calls that do not.

        Almost any text fits a path, so that finding one that does not takes long: `covered` has those.
        """
        fitting, other = (schema.find_operation_by_label(label) for schema in self.schemas.values())
        found = [*fitting.get_strategies_from_examples(), fitting.as_strategy(GenerationMode.POSITIVE)]
        wrong = [other.as_strategy(GenerationMode.NEGATIVE)] if any((*other.query, *other.headers, *other.body)) else []
        return found + wrong

    def covered(self, label: str, caller: str) -> list[str]:
        """The first trouble of each kind at the edges of every parameter and body."""
        found: dict[str, str] = {}
        for mode, schema in self.schemas.items():
            operation, how = schema.find_operation_by_label(label), schema.config.generation_for()
            for case in schema.iter_coverage_cases(operation, generation_modes=[mode], generation_config=how):
                for text in self.trouble(case, caller):
                    found.setdefault(text.split(": ")[1], text)
        return list(found.values())


def loaded(raw: Json) -> Any:
    schema = schemathesis.openapi.from_dict(raw, config=SchemathesisConfig.from_dict(CONFIG))
    schema.app = WSGIHandler()
    return schema


# --- rows that calls can name -----------------------------------------------------------------------------------


def score(folder: Path) -> None:
    """A scorecard of one measured row."""
    estimate = Estimate(fits=1.0, tpot_mean_s=0.012, ttft_mean_s=0.1)
    rows = scoring.predict([row()], CATALOG, lambda cases: [estimate for _ in cases], {"h100-sxm": "hopper"})
    score_files.write(rows, {}, {"errors": {}, "intervals": {}}, "abc", folder)
    scored.load(folder)


def seed() -> dict[str, list[Any]]:
    advices = [sample_advice.advice(sample_money.result())]
    advices += [sample_advice.advice(state=state) for state in ("queued", "running", "cancelled")]
    advices += [sample_advice.advice(state="failed", error="out of memory")]
    job = jobs.request({"suite": "quick"})
    organisation, chip = advices[0].organisation, catalog.Accelerator.objects.get(slug="h200-sxm")
    document = samples.document()
    results = [
        Result.objects.create(
            organisation=organisation, body_hash=str(n), state=state, reasons=reasons, accelerator=chip,
            document=document, suite="full", duration_s=1.0, started_at=timezone.now(),
        )
        for n, (state, reasons) in enumerate([("accepted", []), ("quarantined", ["too fast"])])
    ]  # fmt: skip
    agents.enrol({"rack": "1"})
    first = advices[0].options.get(rank=1)
    test, _ = load_tests.records.record(first, json.dumps(sample_load_results.vllm()).encode(), "vllm.json")
    share = Share.objects.create(
        organisation=organisation, advice=advices[0], expires_at=timezone.now() + timedelta(days=1)
    )
    invitation = catalog.Invitation.objects.create(
        organisation=organisation, email="bob@acme.example", role="viewer", token_hash="x",
        expires_at=timezone.now() + timedelta(days=1),
    )  # fmt: skip
    service = catalog.ServiceAccount.objects.create(organisation=organisation, name="nightly", role="viewer")
    webhook = webhooks.create(organisation, "https://example.com/assay", ["advice.finished"], "ada")
    webhooks.ping(webhook)
    WebhookDelivery.objects.update(state="failed")
    comment = Comment.objects.create(advice=advices[0], text="Ask the vendor for a quote.", made_by="ada")
    return {
        "advice": [str(each.pk) for each in advices],
        "studies": [str(study(organisation, state).pk) for state in ("queued", *["cancelled"] * 5)],
        "comments": [comment.pk],
        "invitations": [invitation.pk],
        "service-accounts": [service.pk],
        "webhooks": [webhook.pk],
        "delivery": list(webhook.deliveries.values_list("pk", flat=True)),
        "done": [str(advices[0].pk)],
        "open": [str(each.pk) for each in advices if each.state in ("queued", "running")],
        "rank": [1, 2, 4],
        "probe-jobs": [str(job.pk)],
        "probe-results": [each.pk for each in results],
        "agents": [],
        "shares": [share.pk],
        "load-tests": [test.pk],
        "prices": list(catalog.Price.objects.filter(organisation=None).values_list("pk", flat=True)[:3]),
        "api-prices": list(catalog.ApiPrice.objects.values_list("pk", flat=True)[:3]),
        "accelerators": ["h200-sxm", "mi300x"],
        "models": list(catalog.ServedModel.objects.values_list("slug", flat=True)[:3]),
        "frameworks": ["vllm", "llama.cpp"],
        "quantizations": list(catalog.QuantizationMethod.objects.values_list("slug", flat=True)[:3]),
        "regions": list(catalog.Region.objects.values_list("slug", flat=True)[:3]),
        "units": list(catalog.Unit.objects.values_list("slug", flat=True)[:3]),
        "assumptions": list(catalog.Assumption.objects.values_list("key", flat=True)[:3]),
    }


def study(organisation: catalog.Organisation, state: str) -> Study:
    """A study of two points, of which one is computed."""
    made = Study.objects.create(
        organisation=organisation, name="loads", kind="grid", axes=[["traffic.requests_per_s.mean", "float64"]],
        points=2, state=state, phase=1, prices_as_of=TODAY,
    )  # fmt: skip
    for index, of in enumerate(("done", state if state == "cancelled" else "queued")):
        points = [{"index": index, "set": {"traffic.requests_per_s.mean": index}, "asked": {"name": "chat"}}]
        row = {"point": index, "set": points[0]["set"], "state": "done", "workload": "chat", "feasible": True}
        result = [row] if of == "done" else None
        StudyPiece.objects.create(study=made, index=index, points=points, size=1, state=of, result=result)
    return made


def leased(machine: FakeAgent, ids: dict[str, list[Any]]) -> None:
    """One job that the machine holds, and one that waits."""
    job = machine.lease().json()["job_id"]
    waiting = jobs.request({"suite": "quick"})
    ids["probe-jobs"] = [job, str(waiting.pk)]
    ids["agents"] = [machine.pk]
    ids["jobs"], ids["attempt"] = [job], [1]


def with_ids(raw: Json, ids: Mapping[str, list[Any]]) -> Json:
    """The description with the ids of rows as the only values of path parameters."""
    for path, operations in raw["paths"].items():
        parts = path.split("/")
        for operation in operations.values():
            known = [each for each in operation.get("parameters", ()) if each["name"] not in UNGUESSED]
            operation["parameters"] = known
            for parameter in known:
                if parameter["in"] == "path":
                    at = parts.index("{" + parameter["name"] + "}")
                    kind = parts[at - 1]
                    if kind == "advice" and parts[at + 1 :]:  # most of what is under an answer needs a result
                        kind = "open" if parts[at + 1 :] == ["cancel"] else "done"
                    real = ids.get(parameter["name"]) or ids.get(kind)
                    if real:
                        parameter["schema"] = {"enum": real}
    return raw
