"""The REST API: advice, estimates, tokens and rate limits."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from advisor.api import limits, tokens
from advisor.api.limits import Exceeded, address, count, reached, rest_s
from advisor.api.page_tokens import is_program
from advisor.api.parsers import PARSERS, JSONParser, workload_in
from advisor.api.problems import incomplete, unavailable

if TYPE_CHECKING:
    from advisor.api.bulk_estimates import AdviceBatch, Estimates, Quick, Unready
    from advisor.api.deletions import OneLoadTest, OneShare, OneToken, Shares, Tokens
    from advisor.api.description import Description
    from advisor.api.lifecycle import Version
    from advisor.api.openapi import INCLUDE
    from advisor.api.serializers import (
        AdviceSerializer,
        AdviceSummarySerializer,
        AnswerField,
        ShareSerializer,
        TokenSerializer,
    )
    from advisor.api.studies import (
        CancelStudy,
        ResumeStudy,
        StudyCsv,
        StudyDetail,
        StudyList,
        StudyParquet,
        StudyResults,
        file_of,
    )
    from advisor.api.views import (
        AdviceDetail,
        AdviceFilters,
        AdviceList,
        AdviceResult,
        AdviceSummary,
        CancelAdvice,
        EstimateOne,
        OneAdvice,
        Pages,
        Root,
        within_limits,
    )

# Loaded on first use: Django REST framework's settings name classes of this room, and its views read them on import.
VIEWS = {
    "advisor.api.deletions": ("OneLoadTest", "OneShare", "OneToken", "Shares", "Tokens"),
    "advisor.api.bulk_estimates": ("AdviceBatch", "Estimates", "Quick", "Unready"),
    "advisor.api.description": ("Description",),
    "advisor.api.lifecycle": ("Version",),
    "advisor.api.openapi": ("INCLUDE",),
    "advisor.api.serializers": (
        "AdviceSerializer", "AdviceSummarySerializer", "AnswerField", "ShareSerializer", "TokenSerializer",
    ),
    "advisor.api.studies": (
        "CancelStudy", "ResumeStudy", "StudyCsv", "StudyDetail", "StudyList", "StudyParquet", "StudyResults", "file_of",
    ),
    "advisor.api.views": (
        "AdviceDetail", "AdviceFilters", "AdviceList", "AdviceResult", "AdviceSummary", "CancelAdvice",
        "EstimateOne", "OneAdvice", "Pages", "Root", "within_limits",
    ),
}  # fmt: skip

__all__ = [
    "AdviceBatch",
    "AdviceDetail",
    "AdviceFilters",
    "AdviceList",
    "AdviceResult",
    "AdviceSerializer",
    "AdviceSummary",
    "AdviceSummarySerializer",
    "AnswerField",
    "CancelAdvice",
    "Description",
    "CancelStudy",
    "EstimateOne",
    "Estimates",
    "Exceeded",
    "INCLUDE",
    "JSONParser",
    "OneAdvice",
    "OneLoadTest",
    "OneShare",
    "OneToken",
    "PARSERS",
    "Pages",
    "Quick",
    "ResumeStudy",
    "Root",
    "ShareSerializer",
    "Shares",
    "StudyCsv",
    "StudyDetail",
    "StudyList",
    "StudyParquet",
    "StudyResults",
    "TokenSerializer",
    "Tokens",
    "Unready",
    "Version",
    "address",
    "count",
    "file_of",
    "incomplete",
    "is_program",
    "limits",
    "reached",
    "rest_s",
    "tokens",
    "unavailable",
    "within_limits",
    "workload_in",
]


def __getattr__(name: str) -> Any:
    for module, names in VIEWS.items():
        if name in names:
            return getattr(import_module(module), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
