"""The published schema against real answers, and a client generated from it that asks for advice and reads it."""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from django.core.management import call_command
from django.core.wsgi import get_wsgi_application

from advisor import advise
from advisor.answer import recommend
from advisor.inputs import take_snapshot
from advisor.models import Advice
from advisor.result import Answer
from advisor.workload import parse
from tests.api.test_schema_of_answers import answer_validator
from tests.client import build

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("frozen")]
CHAT = {
    "name": "client",
    "model": "meta-llama/Llama-3.1-8B",
    "traffic": {
        "input_tokens": {"mean": 1000, "p95": 3000},
        "output_tokens": {"mean": 200, "p95": 500},
        "requests_per_s": {"mean": 2, "peak": 4},
    },
    "slo": {"ttft_ms_p95": 2000, "tpot_ms_p95": 50},
    "constraints": {"accelerators": {"allow": ["h100-sxm", "l40s"]}},
}
EMBEDDING = {
    "name": "vectors",
    "kind": "embedding",
    "model": "BAAI/bge-m3",
    "traffic": {"input_tokens": 256, "requests_per_s": 40},
    "slo": {"e2e_ms_p95": 500},
    "constraints": {"accelerators": {"allow": ["l4", "l40s"]}},
}
BATCH = {
    "name": "nightly",
    "kind": "batch",
    "model": "meta-llama/Llama-3.1-8B",
    "traffic": {"input_tokens": 1000, "output_tokens": 200},
    "batch": {"requests": 100_000, "deadline_hours": 8},
    "constraints": {"accelerators": {"allow": ["h100-sxm", "l40s"]}},
}
TRAINING = {
    "name": "tune",
    "kind": "finetuning",
    "model": "meta-llama/Llama-3.1-8B",
    "finetuning": {"method": "lora", "tokens": 5e7},
    "constraints": {"accelerators": {"allow": ["h200-sxm"]}},
}
PORTFOLIO = {"name": "both", "kind": "portfolio", "workloads": [CHAT, BATCH]}
INFEASIBLE = {**CHAT, "name": "too-fast", "slo": {"ttft_ms_p95": 1}}
WORKLOADS = {each["name"]: each for each in (CHAT, EMBEDDING, BATCH, TRAINING, PORTFOLIO, INFEASIBLE)}


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The classes that openapi-python-client makes of the schema, in the package that `make clients` builds."""
    folder = tmp_path_factory.mktemp("client")
    call_command("spectacular", "--file", str(folder / "schema.yaml"))
    build.python(folder / "schema.yaml", folder / "python")
    sys.path.insert(0, str(folder / "python"))
    yield importlib.import_module("assay_client.generated")
    sys.path.remove(str(folder / "python"))


@pytest.fixture(scope="module")
def answers() -> dict[str, Answer]:
    return {}


def answer_to(name: str, answers: dict[str, Answer]) -> Answer:
    if name not in answers:
        spec = parse(WORKLOADS[name])
        answers[name] = recommend(spec, take_snapshot(spec, advise.default_organisation()))
    return answers[name]


@pytest.mark.parametrize("name", WORKLOADS)
def test_a_stored_answer_is_read_back_as_it_was(name: str, answers: dict[str, Answer]) -> None:
    answer = answer_to(name, answers)
    assert Answer.read(answer.to_json()).to_json() == answer.to_json()
    assert answer_validator().is_valid(answer.to_json())


@pytest.mark.parametrize("name", WORKLOADS)
def test_a_generated_client_loses_nothing_of_an_answer(name: str, answers: dict[str, Answer], client: Any) -> None:
    models = importlib.import_module(f"{client.__name__}.models")
    stored = answer_to(name, answers).to_json() | {"elapsed_s": 1.5}
    assert models.Answer.from_dict(stored).to_dict() == stored


def test_a_generated_client_asks_for_advice_and_reads_typed_options(client: Any) -> None:
    models, types = (importlib.import_module(f"{client.__name__}.{name}") for name in ("models", "types"))
    ask, get = (importlib.import_module(f"{client.__name__}.api.v1.{n}") for n in ("ask_for_advice", "get_advice"))
    transport = httpx.WSGITransport(app=get_wsgi_application())
    server = client.Client(base_url="http://127.0.0.1", httpx_args={"transport": transport})
    queued = ask.sync(client=server, body=models.Workload.from_dict(CHAT))
    assert isinstance(queued, models.Advice) and queued.state == models.AdviceState.QUEUED
    advise.run(queued.id)
    advice = get.sync(queued.id, client=server)
    assert isinstance(advice.result, models.Answer) and advice.workload.name == "client"
    best = advice.result.recommendations[0]
    assert isinstance(best, models.AnswerOption) and best.rank == 1
    assert best.usd_per_month == Advice.objects.get().answer["recommendations"][0]["usd_per_month"]
    assert isinstance(best.memory, models.AnswerMemory) and best.memory.weights_gib > 0
    assert isinstance(best.money, models.AnswerMoney) and best.money.ways_to_pay[0].provider == best.provider
    assert isinstance(best.batch, types.Unset)


def test_the_built_package_waits_for_an_answer_and_reads_typed_options(client: Any) -> None:
    assay_client = importlib.import_module("assay_client")
    models = importlib.import_module(f"{client.__name__}.models")
    transport = httpx.WSGITransport(app=get_wsgi_application())
    with assay_client.Assay("http://127.0.0.1", "", transport=transport) as assay:
        queued = assay.advise(CHAT, wait=False)
        advise.run(queued["id"])
        answer = assay.answer(queued["id"], include="all")
    best = answer.typed().recommendations[0]
    assert isinstance(best, models.AnswerOption) and best.usd_per_month == answer.rows[0]["usd_per_month"]
    assert answer.typed().to_dict() == answer.result


def test_a_generated_client_estimates_one_deployment(client: Any) -> None:
    models = importlib.import_module(f"{client.__name__}.models")
    estimate = importlib.import_module(f"{client.__name__}.api.v1.estimate_deployment")
    transport = httpx.WSGITransport(app=get_wsgi_application())
    server = client.Client(base_url="http://127.0.0.1", httpx_args={"transport": transport})
    body = {"model": CHAT["model"], "accelerator": "h100-sxm", "weights": "fp8", "isl": 1000, "osl": 200}
    result = estimate.sync(client=server, body=models.Deployment.from_dict({**body, "concurrency": 8}))
    assert isinstance(result, models.Estimate) and result.fits and result.tpot_ms.mean > 0


def test_a_generated_client_estimates_one_training_step(client: Any) -> None:
    models = importlib.import_module(f"{client.__name__}.models")
    estimate = importlib.import_module(f"{client.__name__}.api.v1.estimate_deployment")
    transport = httpx.WSGITransport(app=get_wsgi_application())
    server = client.Client(base_url="http://127.0.0.1", httpx_args={"transport": transport})
    body = {"kind": "training", "model": CHAT["model"], "accelerator": "h100-sxm", "count": 8, "sequence_length": 4096}
    result = estimate.sync(client=server, body=models.TrainingRun.from_dict({**body, "global_batch": 16}))
    assert isinstance(result, models.TrainingEstimate) and result.fits and 0 < result.mfu < 1
    assert isinstance(result.memory, models.AnswerTrainingMemory) and result.step[0].time_s > 0


# --- the schema itself ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def components(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    import yaml

    file = tmp_path_factory.mktemp("schema") / "schema.yaml"
    call_command("spectacular", "--file", str(file))
    schemas: dict[str, Any] = yaml.safe_load(file.read_text())["components"]["schemas"]
    return schemas


def sections(components: dict[str, Any]) -> dict[str, Any]:
    own = ("Estimate", "TrainingEstimate")
    return {
        name: c for name, c in components.items() if (name.startswith("Answer") or name in own) and "properties" in c
    }


def test_every_field_of_an_answer_is_described(components: dict[str, Any]) -> None:
    fields = {
        f"{name}.{field}": schema
        for name, section in sections(components).items()
        for field, schema in section["properties"].items()
    }
    assert len(fields) > 500
    assert [name for name, schema in fields.items() if not schema.get("description")] == []


def numbers(schema: Any) -> Iterator[dict[str, Any]]:
    if isinstance(schema, dict):
        if schema.get("type") in ("number", "integer"):
            yield schema
        for value in schema.values():
            yield from numbers(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from numbers(value)


def test_every_number_of_an_answer_has_a_unit(components: dict[str, Any]) -> None:
    without = [
        (name, field)
        for name, section in sections(components).items()
        for field, schema in section["properties"].items()
        if any("x-unit" not in number for number in numbers(schema))
    ]
    assert without == []


def test_no_two_components_share_a_title(components: dict[str, Any]) -> None:
    titles = [component["title"] for component in components.values() if "title" in component]
    assert len(titles) == len(set(titles))


def test_the_reference_page_is_that_of_the_types(tmp_path: Path) -> None:
    call_command("export_openapi", str(tmp_path / "answer.md"))
    page = Path(__file__).resolve().parents[2] / "docs" / "reference" / "answer.md"
    assert (tmp_path / "answer.md").read_text() == page.read_text()
