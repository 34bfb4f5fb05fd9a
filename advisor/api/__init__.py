"""The REST API: advice, estimates, tokens, rate limits and problem documents."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from advisor.api import body_fields, limits, tokens
from advisor.api.body_fields import Text, Whole, YesNo
from advisor.api.limits import Exceeded, address, count, reached, rest_s
from advisor.api.openapi import problems
from advisor.api.parsers import StrictJSONParser
from advisor.api.problems import (
    Conflict,
    TooLarge,
    Unprocessable,
    problem_response,
    refusal,
    unavailable,
)
from advisor.api.tokens import hashed, new_token

if TYPE_CHECKING:
    from advisor.api.deletions import OneLoadTest, OneShare, OneToken, Shares, Tokens
    from advisor.api.quick import Quick
    from advisor.api.views import (
        AdviceDetail,
        AdviceList,
        AdviceResult,
        CancelAdvice,
        EstimateOne,
        OneAdvice,
        Pages,
        Root,
    )

# Loaded on first use: Django REST framework's settings name classes of this room, and its views read them on import.
VIEWS = {
    "advisor.api.deletions": ("OneLoadTest", "OneShare", "OneToken", "Shares", "Tokens"),
    "advisor.api.quick": ("Quick",),
    "advisor.api.views": (
        "AdviceDetail", "AdviceList", "AdviceResult", "CancelAdvice", "EstimateOne", "OneAdvice", "Pages", "Root",
    ),
}  # fmt: skip

__all__ = [
    "AdviceDetail",
    "AdviceList",
    "AdviceResult",
    "CancelAdvice",
    "Conflict",
    "EstimateOne",
    "Exceeded",
    "OneAdvice",
    "OneLoadTest",
    "OneShare",
    "OneToken",
    "Pages",
    "Quick",
    "Root",
    "Shares",
    "StrictJSONParser",
    "Text",
    "Tokens",
    "TooLarge",
    "Unprocessable",
    "Whole",
    "YesNo",
    "address",
    "body_fields",
    "count",
    "hashed",
    "limits",
    "new_token",
    "problem_response",
    "problems",
    "reached",
    "refusal",
    "rest_s",
    "tokens",
    "unavailable",
]


def __getattr__(name: str) -> Any:
    for module, names in VIEWS.items():
        if name in names:
            return getattr(import_module(module), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
