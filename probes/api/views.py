"""REST API of machines, jobs, results, enrollments and calibrations. agent_api.py has the API for agents."""

from datetime import datetime
from typing import Any, ClassVar

from django.db.models import Prefetch, QuerySet
from django_filters.rest_framework import FilterSet
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiResponse, extend_schema, extend_schema_view
from rest_framework import decorators, exceptions, generics, mixins, serializers, viewsets
from rest_framework.request import Request
from rest_framework.response import Response

from advisor.api import JSONParser, Pages
from catalog import rest
from catalog.accounts import Right, caller_of, organisation_of, why_not
from catalog.lists import filters
from catalog.models import Calibration, Organisation
from catalog.rest import Conflict, Unprocessable, problems
from probes.agent import spec as specs
from probes.api.agent_views import Labels
from probes.fitted import calibrations
from probes.machines import agents, jobs
from probes.models import Agent, Enrolment, Job, Measurement, Result
from probes.received import results


class ProbeViewSet(viewsets.GenericViewSet[Any]):
    """Rows of the caller's organization. Operators change them."""

    rights: ClassVar = {"POST": Right.OPERATE}

    pagination_class = Pages
    parser_classes = [JSONParser]
    filterset_fields: list[str] = []

    def who(self) -> str:
        return caller_of(self.request).name

    def organisation(self) -> Organisation:
        return organisation_of(self.request)

    def get_queryset(self) -> QuerySet[Any]:
        """The caller's rows; none where the schema is described."""
        return super().get_queryset() if getattr(self, "swagger_fake_view", False) else self.rows()

    def rows(self) -> QuerySet[Any]:
        raise NotImplementedError


class AgentSerializer(serializers.ModelSerializer[Agent]):
    status = serializers.SerializerMethodField(help_text="online | late | offline | revoked")

    class Meta:
        model = Agent
        fields = [
            "id", "name", "status", "agent_version", "labels", "inventory", "capabilities", "token_prefix",
            "token_expires_at", "registered_at", "last_seen_at", "revoked_at", "trusted_at", "trusted_by",
        ]  # fmt: skip
        read_only_fields = fields

    def get_status(self, agent: Agent) -> str:
        return agents.status(agent)


class RotatedSerializer(AgentSerializer):
    token = serializers.CharField(help_text="Shown once; only its hash is stored")

    class Meta(AgentSerializer.Meta):
        fields = [*AgentSerializer.Meta.fields, "token"]
        read_only_fields = fields


class ApproveBody(rest.Body):
    claim = rest.Whole(required=False, allow_null=True, help_text="ID of the registration, where several wait")


@extend_schema_view(
    list=extend_schema(operation_id="listAgents", summary="List the machines that run probes"),
    retrieve=extend_schema(operation_id="getAgent", summary="Get a machine"),
)
class Agents(mixins.ListModelMixin, mixins.RetrieveModelMixin, ProbeViewSet):
    serializer_class = AgentSerializer
    queryset = Agent.objects.none()

    def rows(self) -> QuerySet[Agent]:
        return agents.visible(self.organisation())

    @extend_schema(
        operation_id="revokeAgent",
        summary="Revoke the token of a machine",
        request=None,
        responses={200: AgentSerializer, **problems(403, 404)},
    )
    @decorators.action(detail=True, methods=["post"])
    def revoke(self, request: Request, pk: Any = None) -> Response:
        agent = self.get_object()
        agents.revoke(agent, self.who())
        return self.reply(agent)

    @extend_schema(
        operation_id="trustAgent",
        summary="Trust a machine: its results count without a second machine",
        request=None,
        responses={200: AgentSerializer, **problems(403, 404)},
    )
    @decorators.action(detail=True, methods=["post"])
    def trust(self, request: Request, pk: Any = None) -> Response:
        agent = self.get_object()
        agents.trust(agent, self.who())
        results.refit_waiting(agent)
        return self.reply(agent)

    @extend_schema(
        operation_id="distrustAgent",
        summary="Stop trusting a machine: later results wait for a second machine or a person",
        request=None,
        responses={200: AgentSerializer, **problems(403, 404)},
    )
    @decorators.action(detail=True, methods=["post"])
    def distrust(self, request: Request, pk: Any = None) -> Response:
        agent = self.get_object()
        agents.distrust(agent, self.who())
        return self.reply(agent)

    @extend_schema(
        operation_id="approveAgent",
        summary="Approve a registration without proof that replaces this machine",
        description="409 unless exactly one registration waits for approval, or `claim` names one of them.",
        request=ApproveBody,
        responses={200: AgentSerializer, **problems(400, 403, 404, 409)},
    )
    @decorators.action(detail=True, methods=["post"])
    def approve(self, request: Request, pk: Any = None) -> Response:
        stated = (
            request.content_type.partition(";")[0] == "application/json"
        )  # a form, as of an empty POST, is no claim
        agent, body = self.get_object(), ApproveBody(data=request.data if stated else {})
        body.is_valid(raise_exception=True)
        waiting = agents.pending_claims(self.organisation(), agent)
        chosen = body.validated_data.get("claim")
        claims = list(waiting.filter(pk=chosen) if chosen is not None else waiting[:2])
        if len(claims) != 1:
            ids = ", ".join(str(each.pk) for each in waiting)
            raise Conflict(
                f"Name one of these registrations as claim: {ids}." if ids else
                "No registration is waiting for approval for this machine."
            )  # fmt: skip
        agents.approve(claims[0], self.who())
        return self.reply(agent)

    @extend_schema(
        operation_id="rotateAgent",
        summary="Create a new token and key for a machine",
        request=None,
        responses={200: RotatedSerializer, **problems(403, 404)},
    )
    @decorators.action(detail=True, methods=["post"])
    def rotate(self, request: Request, pk: Any = None) -> Response:
        agent = generics.get_object_or_404(self.rows().filter(revoked_at=None), pk=pk)  # 404 if pk is no number
        token = agents.rotate(agent, new_key=True, by=self.who()).token
        agent.refresh_from_db()
        return Response({**self.get_serializer(agent).data, "token": token})

    def reply(self, agent: Agent) -> Response:
        agent.refresh_from_db()
        return Response(self.get_serializer(agent).data)


class JobSerializer(serializers.ModelSerializer[Job]):
    results: serializers.PrimaryKeyRelatedField[Any] = serializers.PrimaryKeyRelatedField(many=True, read_only=True)

    class Meta:
        model = Job
        fields = [
            "id", "spec", "wanted", "wanted_agent", "advice", "requested_by", "requested_at", "deadline_at", "state",
            "suite_version", "spec_hash", "attempt", "agent", "lease_expires_at", "stage", "done_steps", "total_steps",
            "finished_at", "error", "results",
        ]  # fmt: skip
        read_only_fields = fields


class JobFilter(FilterSet):
    agent = filters.Whole(field_name="agent__id", label="Machine ID")

    class Meta:
        model = Job
        fields = ["state", "agent"]


class SpecBody(rest.Body):
    suite = serializers.ChoiceField(list(specs.SUITE_SECONDS))
    kinds = serializers.ListField(child=rest.Text(max_length=40), required=False, allow_null=True)
    max_s = rest.Number(min_value=1, max_value=specs.MAX_SUITE_S, required=False, allow_null=True)
    max_bytes = rest.Whole(min_value=specs.MIN_BYTES, max_value=specs.MAX_BYTES, required=False, allow_null=True)


class JobBody(rest.Body):
    spec = SpecBody()
    wanted = Labels(required=False, default=dict, help_text="Labels that the machine must have")
    agent = rest.Whole(required=False, allow_null=True, help_text="ID of the only machine that may run it")


def machine(organisation: Organisation, pk: int | None) -> Agent | None:
    """The machine of an organization for a job. Unprocessable (422): it does not exist or was revoked."""
    if pk is None:
        return None
    agent = agents.visible(organisation).filter(pk=pk, revoked_at=None).first()
    if agent is None:
        raise Unprocessable({"agent": [f"Machine {pk} does not exist or was revoked. See /api/v1/agents."]})
    return agent


@extend_schema_view(
    list=extend_schema(operation_id="listProbeJobs", summary="List probe jobs, newest first"),
    retrieve=extend_schema(operation_id="getProbeJob", summary="Get the state, lease and results of a job"),
)
class Jobs(mixins.ListModelMixin, mixins.RetrieveModelMixin, ProbeViewSet):
    serializer_class = JobSerializer
    queryset = Job.objects.none()
    filterset_class = JobFilter

    def rows(self) -> QuerySet[Job]:
        return jobs.visible(self.organisation()).prefetch_related(Prefetch("results", Result.objects.only("job")))

    @extend_schema(
        operation_id="queueProbe",
        summary="Queue a probe job",
        request=JobBody,
        responses={201: JobSerializer, **problems(400, 403, 413, 415, 422)},
    )
    def create(self, request: Request) -> Response:
        body = JobBody(data=request.data)
        body.is_valid(raise_exception=True)
        asked = body.validated_data
        try:
            job = jobs.request(
                asked["spec"],
                asked["wanted"],
                wanted_agent=machine(self.organisation(), asked.get("agent")),
                requested_by=self.who()[:150],
                organisation=self.organisation(),
            )
        except specs.SpecError as error:
            raise Unprocessable({"spec": [str(error)]}) from None
        return Response(self.get_serializer(job).data, status=201)

    @extend_schema(
        operation_id="cancelProbe",
        summary="Cancel a queued or running job",
        request=None,
        responses={200: JobSerializer, **problems(403, 404, 409)},
    )
    @decorators.action(detail=True, methods=["post"])
    def cancel(self, request: Request, pk: Any = None) -> Response:
        job = self.get_object()
        if not jobs.cancel(job) and job.state != Job.State.CANCELLED:
            raise Conflict(f"This job is {job.state}; only queued or running jobs can be canceled.")
        return Response(self.get_serializer(job).data)


class MeasurementSerializer(serializers.ModelSerializer[Measurement]):
    flops_per_s = serializers.FloatField(read_only=True, allow_null=True)
    bytes_per_s = serializers.FloatField(read_only=True, allow_null=True)

    class Meta:
        model = Measurement
        exclude = ("id", "result")


class ResultSerializer(serializers.ModelSerializer[Result]):
    accelerator: serializers.SlugRelatedField[Any] = serializers.SlugRelatedField(slug_field="slug", read_only=True)
    standing = serializers.SerializerMethodField(
        help_text="Why the result does not count yet, or no longer; empty if it does"
    )

    class Meta:
        model = Result
        exclude: tuple[str, ...] = ("organisation", "document", "report")

    def get_standing(self, result: Result) -> str:
        return results.standing(result)


class ResultFilter(FilterSet):
    agent = filters.Whole(field_name="agent__id", label="Machine ID")

    class Meta:
        model = Result
        fields = ["state", "agent", "accelerator__slug", "suite"]


class WholeResultSerializer(ResultSerializer):
    measurements = MeasurementSerializer(many=True, read_only=True)

    class Meta(ResultSerializer.Meta):
        exclude = ("organisation", "document")


@extend_schema_view(
    list=extend_schema(operation_id="listProbeResults", summary="List results, newest first"),
    retrieve=extend_schema(
        operation_id="getProbeResult", summary="Get a result with its measurements", responses=WholeResultSerializer
    ),
)
class Results(mixins.ListModelMixin, mixins.RetrieveModelMixin, ProbeViewSet):
    serializer_class = ResultSerializer
    queryset = Result.objects.none()
    filterset_class = ResultFilter

    def rows(self) -> QuerySet[Result]:
        return results.visible(self.organisation())

    def get_serializer_class(self) -> Any:
        return WholeResultSerializer if self.action == "retrieve" else ResultSerializer

    @extend_schema(
        operation_id="releaseProbeResult",
        summary="Release a result that is quarantined, waiting for a second machine, or excluded",
        request=None,
        responses={200: ResultSerializer, **problems(403, 404, 409)},
    )
    @decorators.action(detail=True, methods=["post"])
    def release(self, request: Request, pk: Any = None) -> Response:
        result = self.get_object()
        if not results.release(result, self.who()):
            raise Conflict(f"This result is {result.state}: it already counts, or it can never be used.")
        return Response(self.get_serializer(result).data)

    @extend_schema(
        operation_id="getProbeDocument",
        summary="Get the document as the machine sent it",
        responses={200: OpenApiResponse(OpenApiTypes.OBJECT), **problems(404)},
    )
    @decorators.action(detail=True, methods=["get"])
    def document(self, request: Request, pk: Any = None) -> Response:
        return Response(self.get_object().document or {})


class EnrolmentSerializer(serializers.ModelSerializer[Enrolment]):
    class Meta:
        model = Enrolment
        fields = ["id", "token_prefix", "labels", "trusted", "made_by", "made_at", "expires_at", "used_at", "agent"]
        read_only_fields = fields


class NewEnrolmentSerializer(EnrolmentSerializer):
    token = serializers.CharField(help_text="Shown once; only its hash is stored")

    class Meta(EnrolmentSerializer.Meta):
        fields = [*EnrolmentSerializer.Meta.fields, "token"]
        read_only_fields = fields


class EnrolBody(rest.Body):
    labels = Labels(required=False, default=dict)
    trusted = rest.YesNo(
        required=False, default=False, help_text="The machine's results count without a second machine"
    )


@extend_schema_view(list=extend_schema(operation_id="listEnrolments", summary="List enrollments, newest first"))
class Enrolments(mixins.ListModelMixin, ProbeViewSet):
    serializer_class = EnrolmentSerializer
    queryset = Enrolment.objects.none()

    rights: ClassVar = dict.fromkeys(("GET", "POST"), Right.OPERATE)

    def rows(self) -> QuerySet[Enrolment]:
        return Enrolment.objects.filter(organisation=self.organisation())

    @extend_schema(
        operation_id="enrol",
        summary="Create a token that registers one machine within an hour",
        request=EnrolBody,
        responses={201: NewEnrolmentSerializer, **problems(400, 403, 409, 413, 415)},
    )
    def create(self, request: Request) -> Response:
        body = EnrolBody(data=request.data)
        body.is_valid(raise_exception=True)
        asked = body.validated_data
        token, row = agents.enrol(asked["labels"], self.who()[:150], self.organisation(), trusted=asked["trusted"])
        return Response({**EnrolmentSerializer(row).data, "token": token}, status=201)


class ChangeSerializer(serializers.Serializer[Any]):
    figure = serializers.CharField()
    before = serializers.FloatField(allow_null=True)
    after = serializers.FloatField(allow_null=True)


class CalibrationSerializer(serializers.ModelSerializer[Calibration]):
    changes = ChangeSerializer(many=True, read_only=True)
    results = serializers.ListField(child=serializers.IntegerField(), read_only=True)
    undone_by = serializers.SerializerMethodField(help_text="The calibration that undid this one")
    undone_at = serializers.SerializerMethodField()

    class Meta:
        model = Calibration
        fields = [
            "id", "name", "basis", "fitted_on", "engine_version", "as_of", "created_at", "values", "changes", "results",
            "undoes", "made_by", "undone_by", "undone_at",
        ]  # fmt: skip
        read_only_fields = fields

    def get_undone_by(self, row: Calibration) -> int | None:
        undo = calibrations.undone_by(row)
        return undo.pk if undo else None

    def get_undone_at(self, row: Calibration) -> datetime | None:
        undo = calibrations.undone_by(row)
        return undo.created_at if undo else None


class WholeCalibrationSerializer(CalibrationSerializer):
    used_by = serializers.ListField(child=serializers.UUIDField(), help_text="Recent answers that used it")
    asked_again = serializers.ListField(child=serializers.UUIDField(), help_text="Answers recomputed because of it")

    class Meta(CalibrationSerializer.Meta):
        fields = [*CalibrationSerializer.Meta.fields, "used_by", "asked_again"]
        read_only_fields = fields

    def to_representation(self, instance: Calibration) -> Any:
        affected = calibrations.affected(instance, organisation_of(self.context["request"]))
        instance.used_by = [a.pk for a in affected.used]  # type: ignore[attr-defined]
        instance.asked_again = [a.pk for a in affected.recomputed]  # type: ignore[attr-defined]
        return super().to_representation(instance)


@extend_schema_view(
    list=extend_schema(operation_id="listCalibrations", summary="List calibrations from measurements"),
    retrieve=extend_schema(
        operation_id="getCalibration", summary="Get a calibration: figures before and after, and affected answers",
        responses=WholeCalibrationSerializer,
    ),
)  # fmt: skip
class Calibrations(mixins.ListModelMixin, mixins.RetrieveModelMixin, ProbeViewSet):
    serializer_class = CalibrationSerializer
    queryset = Calibration.objects.none()
    filterset_fields = ["name"]

    rights: ClassVar = {"POST": Right.OPERATE}  # and Right.MAINTAIN for those that all organizations share

    def rows(self) -> QuerySet[Calibration]:
        return calibrations.visible(caller_of(self.request).own)

    def get_serializer_class(self) -> Any:
        return WholeCalibrationSerializer if self.action == "retrieve" else CalibrationSerializer

    @extend_schema(
        operation_id="undoCalibration",
        summary="Undo a calibration: restore the previous figures and exclude its results",
        description="Adds and returns a new calibration. Recent answers are recomputed as successors.",
        request=None,
        responses={201: CalibrationSerializer, **problems(403, 404, 409)},
    )
    @decorators.action(detail=True, methods=["post"])
    def undo(self, request: Request, pk: Any = None) -> Response:
        row, caller = self.get_object(), caller_of(request)
        right = calibrations.right_to_change(row)
        if not caller.may(right):
            raise exceptions.PermissionDenied(why_not(caller, right))
        try:
            restored = calibrations.undo(row, self.who())
        except calibrations.CannotUndo as error:
            raise Conflict(str(error)) from None
        return Response(CalibrationSerializer(restored).data, status=201)
