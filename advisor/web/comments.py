"""Comments on an advice: on its page and over REST. Shared links do not show them."""

from typing import Any

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.urls import reverse
from django.views.decorators.http import require_POST
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import generics, serializers
from rest_framework.request import Request
from rest_framework.response import Response

from advisor import advise, deletion
from advisor.api import JSONParser, Pages
from advisor.models import Advice, Comment
from catalog.accounts import Caller, Right, audit, caller_of, needs, organisation_of
from catalog.rest import Body, Text, problems

MAX_CHARACTERS = 4000
WHOSE = "Only its author and admins can delete a comment."


def add_to(advice: Advice, text: str, caller: Caller) -> Comment:
    """Adds a comment to an advice that the caller sees. Advice.DoesNotExist: it was deleted."""
    with transaction.atomic():
        advise.hold(advice.pk)
        comment = Comment.objects.create(advice=advice, text=text, author=caller.person, made_by=caller.name[:150])
        audit.record(advice.organisation, caller.name, audit.Action.COMMENT, advice.workload.name)
    return comment


def may_delete(comment: Comment, caller: Caller) -> bool:
    person = caller.person
    is_author = person is not None and comment.author_id == person.pk and caller.may(Right.PLAN)
    return is_author or caller.may(Right.ADMINISTER)


def shown(advice: Advice, caller: Caller) -> list[tuple[Comment, bool]]:
    """The comments with whether the caller may delete each."""
    return [(comment, may_delete(comment, caller)) for comment in advice.comments.all()]


def advice_or_404(request: HttpRequest | Request, pk: Any) -> Advice:
    return get_object_or_404(advise.visible(organisation_of(request)).defer("snapshot", "result"), pk=pk)


# --- page -------------------------------------------------------------------------------------------------------


@require_POST
@needs(Right.PLAN, "advice-list")
def add(request: HttpRequest, pk: Any) -> HttpResponse:
    advice, text = advice_or_404(request, pk), request.POST.get("text", "").replace("\0", "").strip()
    if not text or len(text) > MAX_CHARACTERS:
        messages.error(request, f"Write a comment of at most {MAX_CHARACTERS} characters.")
    else:
        add_to(advice, text, caller_of(request))
    return redirect(reverse("advice", args=[pk]) + "#comments")


@require_POST
@needs(Right.PLAN, "advice-list")
def delete(request: HttpRequest, pk: Any, comment: int) -> HttpResponse:
    row, caller = get_object_or_404(advice_or_404(request, pk).comments, pk=comment), caller_of(request)
    if not may_delete(row, caller):
        raise PermissionDenied(WHOSE)
    deletion.delete_comment(row, caller.name)
    messages.success(request, "Comment deleted.")
    return redirect(reverse("advice", args=[pk]) + "#comments")


# --- REST -------------------------------------------------------------------------------------------------------


class CommentSerializer(serializers.ModelSerializer[Comment]):
    class Meta:
        model = Comment
        fields = ["id", "text", "made_by", "made_at"]
        read_only_fields = ["id", "made_by", "made_at"]


class CommentBody(Body):
    text = Text(max_length=MAX_CHARACTERS)

    def validate_text(self, text: str) -> str:
        if not text.strip():
            raise serializers.ValidationError("Write something.")
        return text


class Comments(generics.ListAPIView[Comment]):
    serializer_class = CommentSerializer
    pagination_class = Pages
    parser_classes = (JSONParser,)
    queryset = Comment.objects.none()

    def get_queryset(self) -> QuerySet[Comment]:
        if getattr(self, "swagger_fake_view", False):
            return super().get_queryset()
        return advice_or_404(self.request, self.kwargs["pk"]).comments.all()

    @extend_schema(
        operation_id="listComments",
        summary="List the comments on a recommendation, oldest first",
        responses={200: CommentSerializer(many=True), **problems(404, 406)},
    )
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        return super().get(request, *args, **kwargs)

    @extend_schema(
        operation_id="addComment",
        summary="Comment on a recommendation",
        request=CommentBody,
        responses={201: CommentSerializer, **problems(400, 403, 404, 406, 413, 415)},
    )
    def post(self, request: Request, pk: Any) -> Response:
        advice = advice_or_404(request, pk)
        body = CommentBody(data=request.data)
        body.is_valid(raise_exception=True)
        comment = add_to(advice, body.validated_data["text"], caller_of(request))
        return Response(CommentSerializer(comment).data, status=201)


class OneComment(generics.GenericAPIView[Comment]):
    @extend_schema(
        operation_id="deleteComment",
        summary="Delete a comment: its author or an admin",
        parameters=[OpenApiParameter("comment", int, OpenApiParameter.PATH)],
        responses={204: None, **problems(401, 403, 404)},
    )
    def delete(self, request: Request, pk: Any, comment: int) -> Response:
        row, caller = get_object_or_404(advice_or_404(request, pk).comments, pk=comment), caller_of(request)
        if not may_delete(row, caller):
            raise PermissionDenied(WHOSE)
        deletion.delete_comment(row, caller.name)
        return Response(status=204)
