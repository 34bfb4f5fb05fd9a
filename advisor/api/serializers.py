"""What the API says of an advice."""

from functools import partial
from typing import Any, cast
from uuid import UUID

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers
from rest_framework.reverse import reverse

from advisor import advise
from advisor.answer import calibration_marks
from advisor.api.parsers import included
from advisor.later import sections
from advisor.models import Advice, ApiToken, Share
from advisor.result import SECTIONS, short, without_due


class LinksSerializer(serializers.Serializer[Any]):
    self = serializers.URLField()
    html = serializers.URLField()
    result = serializers.URLField(allow_null=True)
    summary = serializers.URLField(allow_null=True, help_text="The answer in at most 4 kB")
    cancel = serializers.URLField(allow_null=True)


class SectionsSerializer(serializers.Serializer[Any]):
    due = serializers.ListField(child=serializers.CharField(), help_text=f"Still being computed: {', '.join(SECTIONS)}")
    done = serializers.ListField(child=serializers.CharField())
    missing = serializers.CharField(allow_blank=True, help_text="Why those in neither list will not be computed")


class ReusedSerializer(serializers.Serializer[Any]):
    id = serializers.UUIDField()
    finished_at = serializers.DateTimeField()


class AdviceSummarySerializer(serializers.ModelSerializer[Advice]):
    name = serializers.CharField(source="workload.name")
    kind = serializers.SerializerMethodField(help_text="What the workload does")
    tags = serializers.SerializerMethodField()
    ahead = serializers.SerializerMethodField(
        help_text="How many queued requests will start before it; null: it is not queued, or waits for measurements"
    )
    sections = serializers.SerializerMethodField(
        help_text="What is computed after the verdict; null until the state is done"
    )
    reused_from = ReusedSerializer(
        allow_null=True,
        read_only=True,
        help_text="The earlier answer to the same question that is given again, because nothing it depends on has "
        "changed; null: this one was computed",
    )
    links = serializers.SerializerMethodField()

    class Meta:
        model = Advice
        fields = [
            "id",
            "name",
            "kind",
            "tags",
            "state",
            "stage",
            "progress_fraction",
            "attempt",
            "created_at",
            "made_by",
            "held_until",
            "started_at",
            "finished_at",
            "error",
            "engine_version",
            "catalog_version",
            "prices_as_of",
            "supersedes",
            "ahead",
            "sections",
            "reused_from",
            "links",
        ]

    def get_kind(self, advice: Advice) -> str:
        return str(advice.workload.spec.get("kind", "serving"))

    def get_tags(self, advice: Advice) -> list[str]:
        return list(advice.workload.spec.get("tags", ()))

    def get_ahead(self, advice: Advice) -> int | None:
        if advice.state != Advice.State.QUEUED:
            return None
        places = cast(dict[str, dict[UUID, int]], self.context)  # read once for all rows of a page
        if "ahead" not in places:
            places["ahead"] = advise.ahead()
        return places["ahead"].get(advice.pk)

    @extend_schema_field(SectionsSerializer(allow_null=True))
    def get_sections(self, advice: Advice) -> dict[str, Any] | None:
        if not advice.is_done:
            return None
        absent = sections.absent(advice)
        done = [name for name in SECTIONS if name not in absent]
        return {"due": absent if advice.is_due else [], "done": done, "missing": sections.missing(advice)}

    @extend_schema_field(LinksSerializer)
    def get_links(self, advice: Advice) -> dict[str, str | None]:
        request = self.context["request"]
        absolute = partial(reverse, args=[advice.pk], request=request)
        is_open = advice.state in (Advice.State.QUEUED, Advice.State.RUNNING)
        return {
            "self": absolute("api-advice"),
            "html": absolute("advice"),
            "result": absolute("api-advice-result") if advice.state == Advice.State.DONE else None,
            "summary": absolute("api-advice-summary") if advice.state == Advice.State.DONE else None,
            "cancel": absolute("api-advice-cancel") if is_open else None,
        }


class UsedCalibrationSerializer(serializers.Serializer[Any]):
    id = serializers.IntegerField()
    name = serializers.CharField()
    measured_on = serializers.DateField()
    undone_on = serializers.DateField(allow_null=True, help_text="Since then its figures are no longer used")
    undone_by = serializers.CharField(allow_blank=True)


@extend_schema_field({"allOf": [{"$ref": "#/components/schemas/Workload"}]})
class WorkloadField(serializers.DictField):
    """A workload file's content."""


@extend_schema_field({"$ref": "#/components/schemas/Answer"})  # the field adds null
class AnswerField(serializers.DictField):
    """advisor.result.Answer as JSON, with the parts that the request includes."""

    def get_attribute(self, advice: Advice) -> Any:
        answer = advice.answer
        return None if answer is None else without_due(answer, sections.absent(advice))

    def to_representation(self, answer: Any) -> Any:
        return short(answer, included(self.context["request"]))


class AdviceSerializer(AdviceSummarySerializer):
    workload = WorkloadField(source="workload.spec", help_text="The workload with every default filled in")
    result = AnswerField(
        source="answer",
        allow_null=True,
        help_text="The answer when state is done, as `manage.py advise --format json` prints it, without the keys of "
        "sections that are not computed. `include` adds parts.",
    )
    calibrations = serializers.SerializerMethodField(help_text="Calibrations of chips that the answer used")

    class Meta(AdviceSummarySerializer.Meta):
        fields = [*AdviceSummarySerializer.Meta.fields, "workload", "result", "calibrations"]

    @extend_schema_field(UsedCalibrationSerializer(many=True))
    def get_calibrations(self, advice: Advice) -> list[dict[str, Any]]:
        return calibration_marks.used(advice.result)


class ShareSerializer(serializers.ModelSerializer[Share]):
    url = serializers.SerializerMethodField(help_text="Always null: only a hash of a link is stored.")

    class Meta:
        model = Share
        fields = ["id", "url", "token_prefix", "created_at", "made_by", "expires_at"]

    def get_url(self, share: Share) -> str | None:
        return None


class TokenSerializer(serializers.ModelSerializer[ApiToken]):
    status = serializers.ChoiceField(["live", "ended", "revoked"], read_only=True)
    user = serializers.CharField(
        source="user.username",
        default=None,
        allow_null=True,
        read_only=True,
        help_text="The person whose role limits it",
    )
    service_account = serializers.CharField(
        source="service_account.name", default=None, allow_null=True, read_only=True, help_text="Whose role bounds it"
    )

    class Meta:
        model = ApiToken
        fields = [
            "id", "name", "token_prefix", "scope", "status", "user", "service_account", "made_by", "made_at",
            "expires_at", "last_used_at", "revoked_at",
        ]  # fmt: skip
