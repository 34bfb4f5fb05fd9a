"""What the OpenAPI document says beyond what the views declare."""

from dataclasses import dataclass
from typing import Any

from drf_spectacular.contrib.pydantic import PydanticExtension
from drf_spectacular.extensions import OpenApiSerializerExtension
from drf_spectacular.plumbing import ResolvedComponent
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiExample, OpenApiParameter
from pydantic import BaseModel
from pydantic.json_schema import model_json_schema

from advisor.api.parsers import KEY_LENGTH
from advisor.result import EXTRAS
from catalog.rest import CONTENT_TYPE

# --- documentation ----------------------------------------------------------------------------------------------


class PydanticSchema(PydanticExtension):
    """A pydantic model as a component; the models inside it become components whose names begin with `prefix`."""

    target_class = ""
    match_subclasses = False
    priority = 1
    prefix = ""

    def get_name(self, auto_schema: Any, direction: Any) -> str:
        super().get_name(auto_schema, direction)
        return self.target.__name__

    def map_serializer(self, auto_schema: Any, direction: Any) -> Any:
        schema = model_json_schema(self.target, ref_template=f"#/components/schemas/{self.prefix}{{model}}")
        for name, part in self.parts(schema.pop("$defs", {})).items():
            register(auto_schema, f"{self.prefix}{name}", part)
        return titled(schema, self.get_name(auto_schema, direction))

    def parts(self, sections: dict[str, Any]) -> dict[str, Any]:
        return sections


class WorkloadSchema(PydanticSchema):
    """The workload as it may be written, not as it is stored."""

    target_class = "advisor.workload.schema.Spec"
    prefix = "Workload"

    def get_name(self, auto_schema: Any, direction: Any) -> str:
        super().get_name(auto_schema, direction)
        return "Workload"

    def map_serializer(self, auto_schema: Any, direction: Any) -> Any:
        schema = super().map_serializer(auto_schema, direction)
        schema["properties"]["workloads"] = without_text(schema["properties"]["workloads"])
        return schema

    def parts(self, sections: dict[str, Any]) -> dict[str, Any]:
        return without_files(sections)


class DeploymentSchema(PydanticSchema):
    """The deployment as it may be written."""

    target_class = "advisor.workload.fixed.deployment.Deployment"
    prefix = "Deployment"

    def parts(self, sections: dict[str, Any]) -> dict[str, Any]:
        return without_files(sections)


class AnswerSchema(PydanticSchema):
    """The typed answer of `advise`."""

    target_class = "advisor.result.answer.Answer"
    prefix = "Answer"

    def map_serializer(self, auto_schema: Any, direction: Any) -> Any:
        schema = super().map_serializer(auto_schema, direction)
        schema["properties"]["workload"] = {
            "allOf": [{"$ref": "#/components/schemas/Workload"}],
            "description": schema["properties"]["workload"]["description"],
        }
        return schema


class EstimateSchema(PydanticSchema):
    """The typed answer of `estimate`; it shares sections with that of `advise`."""

    target_class = "advisor.result.estimate.Estimate"
    prefix = "Answer"


class AnswerSummarySchema(EstimateSchema):
    """An answer in 4 kB."""

    target_class = "advisor.result.decision.AnswerSummary"


class QuickRankingSchema(AnswerSchema):
    """The typed answer of a quick ranking; its workload is that of `advise`."""

    target_class = "advisor.result.quick.QuickRanking"
    prefix = ""


class TrainingRunSchema(DeploymentSchema):
    """The training run as it may be written; it shares sections with the deployment."""

    target_class = "advisor.workload.fixed.training_run.TrainingRun"


class TrainingEstimateSchema(EstimateSchema):
    """The typed answer of `estimate` for a training step."""

    target_class = "advisor.result.training.TrainingEstimate"


@dataclass(frozen=True, kw_only=True, slots=True)
class AnyOf:
    """A body that is one of these pydantic models, as a component of this name; all of them require these fields."""

    name: str
    models: tuple[type[BaseModel], ...]
    required: tuple[str, ...]


class AnyOfSchema(OpenApiSerializerExtension):
    """A component that refers to those of the models."""

    target_class = "advisor.api.openapi.AnyOf"

    def get_name(self, auto_schema: Any, direction: Any) -> str:
        return str(self.target.name)

    def get_identity(self, auto_schema: Any, direction: Any) -> Any:
        return self.target

    def map_serializer(self, auto_schema: Any, direction: Any) -> Any:
        parts = [auto_schema.resolve_serializer(model, direction).ref for model in self.target.models]
        return {"anyOf": parts, "required": list(self.target.required), "title": self.target.name}


FILES = (("Config", "config"), ("Lengths", "trace"), ("Traffic", "trace"))


class BodySchema(OpenApiSerializerExtension):
    """A body that refuses unknown keys says so."""

    target_class = "catalog.rest.fields.Body"
    match_subclasses = True

    def map_serializer(self, auto_schema: Any, direction: Any) -> Any:
        schema = auto_schema._map_serializer(self.target, direction, bypass_extensions=True)
        return schema | {"additionalProperties": False}


def without_files(sections: dict[str, Any]) -> dict[str, Any]:
    """The sections as the API takes them: a path of a file is for the command line alone."""
    for section, key in FILES:
        if section in sections:
            sections[section]["properties"][key] = without_text(sections[section]["properties"][key])
    return sections


def without_text(schema: Any) -> Any:
    """A schema with no alternative that is a text."""
    if isinstance(schema, list):
        return [without_text(each) for each in schema if not (isinstance(each, dict) and each.get("type") == "string")]
    if isinstance(schema, dict):
        return {key: without_text(value) for key, value in schema.items()}
    return schema


def register(auto_schema: Any, name: str, schema: dict[str, Any]) -> None:
    kind = ResolvedComponent.SCHEMA
    component = ResolvedComponent(name=name, type=kind, object=name, schema=titled(schema, name))
    auto_schema.registry.register_on_missing(component)


def titled(schema: dict[str, Any], name: str) -> dict[str, Any]:
    """The schema titled like its component: client generators name classes by title, and need each of them once."""
    fields = {key: without_const({**field}) for key, field in schema.get("properties", {}).items()}
    for field in fields.values():
        field.pop("title", None)
    return {**schema, "title": name} | ({"properties": fields} if fields else {})


def without_const(schema: Any) -> Any:
    """One allowed value as an enum: openapi-python-client refuses numbers beside a const."""
    if isinstance(schema, list):
        return [without_const(each) for each in schema]
    if isinstance(schema, dict):
        plain = {key: without_const(value) for key, value in schema.items()}
        return plain | {"enum": [plain.pop("const")]} if isinstance(plain.get("const"), str) else plain
    return schema


def plain_nullables(result: dict[str, Any], **given: Any) -> dict[str, Any]:
    """A JSON column that may be empty: any value, where the generator writes "one of any value and null"."""
    for schema in result["components"]["schemas"].values():
        for part in schema.get("properties", {}).values():
            if part.get("oneOf") == [{}, {"type": "null"}]:
                del part["oneOf"]
    return result


def workload_alone_or_inside(result: dict[str, Any], **given: Any) -> dict[str, Any]:
    """A workload may also be sent as {"workload": ...}, as an answer holds it."""
    for path in ("/api/v1/advice", "/api/v1/quick"):
        for media in result["paths"][path]["post"]["requestBody"]["content"].values():
            alone = media["schema"]
            inside = {"type": "object", "properties": {"workload": alone}, "required": ["workload"]}
            media["schema"] = {"anyOf": [alone, {**inside, "additionalProperties": False}]}
    return result


FIELDS = {
    "name": "fields", "in": "query", "required": False, "schema": {"type": "string"},
    "description": "Only these fields, separated by commas, with dots for inner ones: `id,links.self`; of a list, of "
    "each row. 400 names those that there are.",
}  # fmt: skip


def document_fields(result: dict[str, Any], **given: Any) -> dict[str, Any]:
    """The choice of fields, of every call that reads JSON."""
    for path, operations in result["paths"].items():
        read = operations.get("get")
        if read and path.startswith("/api/v1/") and "application/json" in read["responses"]["200"].get("content", {}):
            read.setdefault("parameters", []).append(FIELDS)
    return result


def document_refusals(result: dict[str, Any], **given: Any) -> dict[str, Any]:
    """What any call can be answered with, where its view does not say so itself (a hook of the generator)."""
    known = {"description": "", "content": {CONTENT_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}}
    for path, operations in result["paths"].items():
        for operation in operations.values():
            anywhere = {"400", "401", "403", "406", "429"} | ({"404"} if "{" in path else set())
            for status in sorted(anywhere - set(operation["responses"])):
                operation["responses"][status] = known
    return result


EXAMPLE = OpenApiExample(
    "support chat",
    request_only=True,
    value={
        "name": "support-chat",
        "model": "meta-llama/Llama-3.3-70B-Instruct",
        "traffic": {
            "input_tokens": {"mean": 2000, "p95": 6000},
            "output_tokens": {"mean": 300, "p95": 800},
            "requests_per_s": {"mean": 4, "peak": 12},
        },
        "slo": {"ttft_ms_p95": 1000, "tpot_ms_p95": 40},
        "objective": "cost",
    },
)
KEY_PARAMETER = OpenApiParameter(
    "Idempotency-Key",
    OpenApiTypes.STR,
    OpenApiParameter.HEADER,
    pattern=f"^[ -~]{{0,{KEY_LENGTH}}}$",
    description=f"At most {KEY_LENGTH} characters; the same key of the same token (else account) and "
    "the same body give the first response again, with `Idempotency-Replayed: true`; another body gives 409.",
)
REPLAYED_HEADER = OpenApiParameter(
    "Idempotency-Replayed",
    {"type": "string", "enum": ["true"]},
    OpenApiParameter.HEADER,
    response=[200, 202],
    description="Present if an earlier call with this Idempotency-Key was answered.",
)
INCLUDE = OpenApiParameter(
    "include",
    OpenApiTypes.STR,
    description="Parts of the answer to add, separated by commas: "
    + "; ".join(f"`{name}` ({what})" for name, what in EXTRAS.items())
    + "; or `all`.",
)
LONGEST_S = 30  # that a request may wait for an answer
WAIT = OpenApiParameter(
    "wait",
    {"type": "integer", "minimum": 0, "maximum": LONGEST_S},
    description=f"Seconds to wait for the answer, at most {LONGEST_S}. A quarter of the threads may wait; other "
    "requests respond at once, with `Retry-After` if the answer is not finished.",
)
FRESH = OpenApiParameter(
    "fresh",
    {"type": "integer", "enum": [0, 1]},
    description="1: compute the answer even if the same question was answered before.",
)
LOCATION = OpenApiParameter(
    "Location",
    OpenApiTypes.URI,
    OpenApiParameter.HEADER,
    response=[202],
    description="Where to watch the recommendation.",
)


ESTIMATE_EXAMPLE = OpenApiExample(
    "70B on four H200",
    request_only=True,
    value={
        "model": "meta-llama/Llama-3.3-70B-Instruct",
        "accelerator": "h200-sxm",
        "tp": 2,
        "dp": 2,
        "weights": "fp8",
        "isl": 2000,
        "osl": 300,
        "concurrency": 64,
    },
)
STUDY_EXAMPLE = OpenApiExample(
    "One workload at three loads",
    request_only=True,
    value={
        "kind": "grid",
        "workload": {
            "model": "meta-llama/Llama-3.3-70B-Instruct",
            "traffic": {"input_tokens": 2000, "output_tokens": 300, "requests_per_s": {"mean": 4}},
        },
        "grid": {"traffic.requests_per_s.mean": [2, 4, 8]},
    },
)
TRAINING_EXAMPLE = OpenApiExample(
    "one training step of 8B on eight H100",
    request_only=True,
    value={
        "kind": "training",
        "model": "meta-llama/Llama-3.1-8B",
        "accelerator": "h100-sxm",
        "count": 8,
        "sequence_length": 8192,
        "micro_batch": 1,
        "global_batch": 64,
        "zero": 3,
        "recompute": "full",
    },
)
