"""The API for agents, `agent/v1`: register, lease, heartbeat, result, token rotation."""

import math
import re
from http import HTTPStatus
from typing import Any, cast

from django.conf import settings
from drf_spectacular.extensions import OpenApiAuthenticationExtension
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema, extend_schema_field
from rest_framework import exceptions, parsers, permissions, serializers, views
from rest_framework.authentication import BaseAuthentication
from rest_framework.request import Request
from rest_framework.response import Response

from advisor.api import JSONParser
from catalog.rest import Conflict, Pattern, Text, TooLarge, Unprocessable, Whole, YesNo, problems, read_body
from probes.agent.server import signing
from probes.agent.spec import PROTOCOL
from probes.api import limits
from probes.machines import agents, jobs
from probes.models import Agent, Result
from probes.received import intake, results

LOG_BYTES = 16 * 1024
MAX_TEXT = 120
RECEIVED = [(state.value, state.label) for state in Result.State if state != Result.State.REJECTED]


class UpgradeRequired(exceptions.APIException):
    status_code = HTTPStatus.UPGRADE_REQUIRED
    default_detail = (
        f"This server uses agent protocol {PROTOCOL}; send the header Agent-Protocol: {PROTOCOL}. If your agent uses "
        "another version, download /agent.pyz from this server and start it with the same state folder; it updates "
        "its token and key automatically."
    )


class NotSigned(exceptions.APIException):
    status_code = HTTPStatus.UNPROCESSABLE_ENTITY
    default_detail = "The signature of the result is missing or does not match this lease."


class AgentToken(BaseAuthentication):
    """Authorization: Bearer agt_... An unknown or revoked token gets 401, and the agent stops."""

    def authenticate(self, request: Request) -> tuple[Agent, str] | None:
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not token.startswith("agt_"):
            return None
        agent = agents.by_token(token.strip())
        if agent is None:
            limits.refused(request)
            raise exceptions.AuthenticationFailed(
                "This token is unknown, revoked or expired. Enroll the machine again."
            )
        limits.of_agent(request, agent.pk)
        agents.record_contact(agent, token.strip())
        return agent, token.strip()

    def authenticate_header(self, request: Request) -> str:
        return "Bearer"


class AgentTokenScheme(OpenApiAuthenticationExtension):
    target_class = AgentToken
    name = "agentToken"

    def get_security_definition(self, auto_schema: Any) -> dict[str, str]:
        return {"type": "http", "scheme": "bearer", "description": "The token from registration: agt_..."}


class IsAgent(permissions.BasePermission):
    def has_permission(self, request: Request, view: Any) -> bool:
        return isinstance(request.user, Agent)


class BodyParser(parsers.BaseParser):
    """Returns the raw bytes of a result, because they are hashed before they are parsed."""

    media_type = "application/json"

    def parse(self, stream: Any, media_type: str | None = None, parser_context: Any = None) -> Any:
        max_bytes = settings.PROBE_MAX_RESULT_BYTES
        return read_body(stream, max_bytes, TooLarge(f"A result has at most {max_bytes} bytes."))


# --- bodies -----------------------------------------------------------------------------------------------------


@extend_schema_field({"type": "object"})
class Facts(serializers.JSONField):
    """A JSON object of at most 64 KB."""

    def to_internal_value(self, data: Any) -> Any:
        if not isinstance(data, dict) or len(str(data)) > 64 * 1024:
            raise serializers.ValidationError("must be an object of at most 64 KB")
        try:
            intake.check_values(data)
        except intake.IntakeError as error:
            raise serializers.ValidationError(str(error)) from None
        return super().to_internal_value(data)


MAX_LABELS, LABEL_NAME, MAX_LABEL = 16, r"[A-Za-z0-9._-]{1,40}", 60


@extend_schema_field(
    {
        "type": "object",
        "additionalProperties": {"type": "string", "minLength": 1, "maxLength": MAX_LABEL},
        "propertyNames": {"pattern": f"^{LABEL_NAME}$"},
        "maxProperties": MAX_LABELS,
    }
)
class Labels(serializers.DictField):
    child = Text(max_length=MAX_LABEL)

    def to_internal_value(self, data: Any) -> Any:
        labels = super().to_internal_value(data)
        if len(labels) > MAX_LABELS or any(not re.fullmatch(LABEL_NAME, name) for name in labels):
            raise serializers.ValidationError("at most 16 labels; names may have letters, digits, and . _ -")
        return labels


class RegisterBody(serializers.Serializer[Any]):
    enrolment_token = Text(max_length=100)
    install_id = Pattern(r"^[A-Za-z0-9_-]{8,80}$")
    agent_version = Text(max_length=40)
    name = Text(max_length=MAX_TEXT)
    labels = Labels(required=False, default=dict)
    inventory = Facts(required=False, default=dict)
    proof = Pattern(
        rf"^({signing.SIGNATURE.pattern})?$",
        required=False,
        allow_blank=True,
        default="",
        help_text="From a machine that is already registered: v1= and, in hex, HMAC-SHA256 with its signing key over "
        "`assay-register-v1`, its install_id and the SHA-256 of the enrollment token, one per line",
    )


class Registered(serializers.Serializer[Any]):
    agent_id = serializers.IntegerField()
    token = serializers.CharField()
    signing_key = serializers.CharField(help_text="32 bytes in hex; used to sign results")
    poll_s = serializers.IntegerField()
    heartbeat_s = serializers.FloatField()
    lease_s = serializers.FloatField()
    max_result_bytes = serializers.IntegerField()


class Capabilities(serializers.Serializer[Any]):
    backend = Text(max_length=20, required=False, allow_null=True)
    kinds = serializers.ListField(child=Text(max_length=40), max_length=100, required=False, allow_null=True)
    device = Facts(required=False, allow_null=True)


class LeaseBody(serializers.Serializer[Any]):
    capabilities = Capabilities(required=False)
    agent_version = Text(max_length=40, required=False)


class Leased(serializers.Serializer[Any]):
    job_id = serializers.UUIDField()
    attempt = serializers.IntegerField()
    nonce = serializers.CharField(help_text="Covered by the signature of the result")
    suite_version = serializers.CharField()
    spec = serializers.DictField()
    lease_s = serializers.FloatField()
    heartbeat_s = serializers.FloatField()
    deadline_s = serializers.FloatField(help_text="Maximum duration of the attempt, from now")


class HeartbeatBody(serializers.Serializer[Any]):
    attempt = Whole(min_value=1, max_value=1_000_000)
    stage = Text(max_length=MAX_TEXT, required=False, allow_blank=True, default="")
    done = Whole(min_value=0, max_value=1_000_000, required=False, default=0)
    total = Whole(min_value=0, max_value=1_000_000, required=False, default=0)


class HeartbeatReply(serializers.Serializer[Any]):
    lease_s = serializers.FloatField()

    def get_fields(self) -> Any:
        return {"continue": serializers.BooleanField(), **super().get_fields()}


class FailBody(serializers.Serializer[Any]):
    code = Text(max_length=60)
    retriable = YesNo()
    log = Text(max_length=LOG_BYTES, required=False, allow_blank=True, default="")


class Received(serializers.Serializer[Any]):
    state = serializers.ChoiceField(RECEIVED)
    reasons = serializers.ListField(child=serializers.CharField())


class NewToken(serializers.Serializer[Any]):
    token = serializers.CharField()
    signing_key = serializers.CharField(required=False, help_text="Only if the machine has none yet")


class Ended(serializers.Serializer[Any]):
    state = serializers.CharField(help_text="New state of the job")


# --- views ------------------------------------------------------------------------------------------------------

HEADER = OpenApiParameter("Agent-Protocol", OpenApiTypes.STR, OpenApiParameter.HEADER, required=True, enum=[PROTOCOL])
HASH = OpenApiParameter(
    "Idempotency-Key",
    OpenApiTypes.STR,
    OpenApiParameter.HEADER,
    required=True,
    description="SHA-256 of the body, in lowercase hex",
    pattern="^[0-9a-f]{64}$",
)
SIGNATURE = OpenApiParameter(
    signing.HEADER, OpenApiTypes.STR, OpenApiParameter.HEADER, required=True,
    description="v1= and, in hex, HMAC-SHA256 with the signing key over these lines: `assay-result-v1`, job ID, "
    "attempt, lease nonce, SHA-256 of the canonical spec, device identity, SHA-256 of the body. See "
    "docs/how-to/agents.md.",
)  # fmt: skip
RETRY = OpenApiParameter(
    "Retry-After", OpenApiTypes.INT, OpenApiParameter.HEADER, response=[204], description="Seconds until the next poll"
)

ROTATE = OpenApiParameter(
    "Agent-Rotate", OpenApiTypes.STR, OpenApiParameter.HEADER, response=[200, 204], enum=["1"],
    description="Half of the token's lifetime has passed: call token/rotate before the next poll",
)  # fmt: skip


class AgentView(views.APIView):
    missing_credentials = "This call requires the machine's token. Send Authorization: Bearer agt_..."
    authentication_classes = [AgentToken]
    permission_classes = [IsAgent]
    parser_classes = [JSONParser]

    @property
    def agent(self) -> Agent:
        return cast(Agent, self.request.user)

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        if not hasattr(self, str(request.method).lower()):
            raise exceptions.MethodNotAllowed(str(request.method))  # before the check of the protocol version
        if request.headers.get("Agent-Protocol") != PROTOCOL:
            raise UpgradeRequired
        super().initial(request, *args, **kwargs)

    def read(self, body: type[serializers.Serializer[Any]]) -> dict[str, Any]:
        serializer = body(data=self.request.data)
        serializer.is_valid(raise_exception=True)
        return dict(serializer.validated_data)

    def handle_exception(self, exc: Exception) -> Response:
        if isinstance(exc, jobs.NoSuchJob):
            exc = exceptions.NotFound()
        if isinstance(exc, jobs.LostJob):
            exc = Conflict("This attempt no longer owns the job. Stop, and send nothing more for it.")
        return super().handle_exception(exc)


class Register(AgentView):
    authentication_classes = []
    permission_classes = [permissions.AllowAny]

    @extend_schema(
        operation_id="registerAgent",
        summary="Register a machine with an enrollment token",
        description="Idempotent by install_id: within an hour, the same installation can repeat the request with the "
        "same token, until it first uses its new token. If another machine has the install_id, the request is refused "
        "(409) unless it has `proof` or a person approves it; the other machine is not affected.",
        request=RegisterBody,
        parameters=[HEADER],
        responses={201: Registered, **problems(400, 401, 409, 413, 415, 426, 429)},
        auth=[],
    )
    def post(self, request: Request) -> Response:
        limits.check_refused(request)
        facts = self.read(RegisterBody)
        token, install_id, proof = (facts.pop(name) for name in ("enrolment_token", "install_id", "proof"))
        try:
            agent, token, key = agents.register(token, install_id, facts, proof, limits.address(request))
        except agents.IdentityTaken:
            limits.refused(request)
            raise Conflict(
                "Another machine is registered with this install_id, and this request does not prove that it is the "
                "same. If it is the same machine and lost its key, ask an administrator of this server to approve it "
                "(on its page under Workers, or with manage.py agents approve NAME), then run the same command again "
                "within an hour. If it is a copy of another machine, delete agent.json in its state folder and "
                "register again."
            ) from None
        except agents.NotEnrolled:
            limits.refused(request)
            raise exceptions.AuthenticationFailed(
                "This enrollment token is unknown, used or over an hour old. Create a new one (manage.py enrol)."
            ) from None
        pace = agents.pace()
        answer = {
            "agent_id": agent.pk,
            "token": token,
            "signing_key": key,
            "poll_s": pace.poll_s,
            "heartbeat_s": pace.heartbeat_s,
            "lease_s": pace.lease_s,
            "max_result_bytes": settings.PROBE_MAX_RESULT_BYTES,
        }
        return Response(answer, status=201)

    def get_authenticate_header(self, request: Request) -> str:
        return "Bearer"


class LeaseJob(AgentView):
    @extend_schema(
        operation_id="leaseJob",
        summary="Lease the next job for this machine",
        request=LeaseBody,
        parameters=[HEADER, RETRY, ROTATE],
        responses={
            200: Leased,
            204: OpenApiResponse(description="No job"),
            **problems(400, 401, 413, 415, 426, 429),
        },
    )
    def post(self, request: Request) -> Response:
        asked, pace = self.read(LeaseBody), agents.pace()
        capabilities = asked.get("capabilities") or {}
        lease = jobs.lease(self.agent, capabilities.get("kinds"), capabilities.get("device"))
        if lease is None:
            return Response(status=204, headers={"Retry-After": str(pace.poll_s), **self.rotation_header()})
        job = lease.job
        answer = {
            "job_id": job.pk,
            "attempt": lease.attempt,
            "nonce": lease.nonce,
            "suite_version": job.suite_version,
            "spec": job.spec,
            "lease_s": pace.lease_s,
            "heartbeat_s": pace.heartbeat_s,
            "deadline_s": math.floor((lease.deadline_at - lease.leased_at).total_seconds()),
        }
        return Response(answer, headers=self.rotation_header())

    def rotation_header(self) -> dict[str, str]:
        return {"Agent-Rotate": "1"} if agents.should_rotate(self.agent) else {}


class Heartbeat(AgentView):
    @extend_schema(
        operation_id="heartbeat",
        summary="Renew the lease; continue: false means stop",
        request=HeartbeatBody,
        parameters=[HEADER],
        responses={200: HeartbeatReply, **problems(400, 401, 404, 409, 413, 415, 426, 429)},
    )
    def post(self, request: Request, pk: Any) -> Response:
        asked = self.read(HeartbeatBody)
        keep_going = jobs.heartbeat(self.agent, pk, **asked)
        return Response({"continue": keep_going, "lease_s": settings.PROBE_LEASE_S})


class PutResult(AgentView):
    parser_classes = [BodyParser]

    @extend_schema(
        operation_id="putResult",
        summary="Send the result of an attempt",
        description="A document in the format `assay-probe/1`. Repeating the same body returns the same answer; a "
        "different body gets 409. A wrong signature gets 422; nothing is stored, and the attempt continues.",
        request={"application/json": OpenApiTypes.OBJECT},
        parameters=[HEADER, HASH, SIGNATURE],
        responses={200: Received, **problems(400, 401, 404, 409, 413, 415, 422, 426, 429)},
    )
    def put(self, request: Request, pk: Any, attempt: int) -> Response:
        try:
            body = cast(bytes, request.data or b"")
            declared, signature = (request.headers.get(name, "") for name in ("Idempotency-Key", signing.HEADER))
            result = results.receive(self.agent, pk, attempt, body, declared, signature)
        except results.WrongHash:
            raise exceptions.ParseError("Idempotency-Key must be the SHA-256 of the body in hex.") from None
        except results.WrongSignature as error:
            raise NotSigned(str(error)) from None
        except results.OtherBody:
            raise Conflict("This attempt already sent a different result, which is kept.") from None
        if result.state == Result.State.REJECTED:
            raise Unprocessable({reason.partition(": ")[0]: [reason.partition(": ")[2]] for reason in result.reasons})
        return Response({"state": result.state, "reasons": result.reasons})


class FailAttempt(AgentView):
    @extend_schema(
        operation_id="failAttempt",
        summary="Report a failed attempt",
        request=FailBody,
        parameters=[HEADER],
        responses={200: Ended, **problems(400, 401, 404, 413, 415, 426, 429)},
    )
    def post(self, request: Request, pk: Any, attempt: int) -> Response:
        asked = self.read(FailBody)
        jobs.fail(self.agent, pk, attempt, asked["code"], asked["retriable"], asked["log"])
        return Response({"state": jobs.Job.objects.get(pk=pk).state})


class RotateToken(AgentView):
    @extend_schema(
        operation_id="rotateToken",
        summary="Get a new token; the old one works for five more minutes",
        description="The signing key does not change. A machine without a key (registered by an old version) gets one.",
        request=None,
        parameters=[HEADER],
        responses={200: NewToken, **problems(401, 426, 429)},
    )
    def post(self, request: Request) -> Response:
        token, key = agents.rotate(self.agent, str(self.request.auth))
        return Response({"token": token, **({"signing_key": key} if key else {})})
