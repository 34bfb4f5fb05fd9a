"""The REST API: advice, estimates, tokens and rate limits."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from advisor.api import limits, tokens
from advisor.api.limits import Exceeded, address, count, reached, rest_s
from advisor.api.parsers import JSONParser
from advisor.api.problems import unavailable

if TYPE_CHECKING:
    from advisor.api.deletions import OneLoadTest, OneShare, OneToken, Shares, Tokens
    from advisor.api.quick import Quick
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
    "advisor.api.studies": (
        "CancelStudy", "ResumeStudy", "StudyCsv", "StudyDetail", "StudyList", "StudyParquet", "StudyResults", "file_of",
    ),
    "advisor.api.views": (
        "AdviceDetail", "AdviceList", "AdviceResult", "CancelAdvice", "EstimateOne", "OneAdvice", "Pages", "Root",
    ),
}  # fmt: skip

__all__ = [
    "AdviceDetail",
    "AdviceList",
    "AdviceResult",
    "CancelAdvice",
    "CancelStudy",
    "EstimateOne",
    "Exceeded",
    "JSONParser",
    "OneAdvice",
    "OneLoadTest",
    "OneShare",
    "OneToken",
    "Pages",
    "Quick",
    "ResumeStudy",
    "Root",
    "Shares",
    "StudyCsv",
    "StudyDetail",
    "StudyList",
    "StudyParquet",
    "StudyResults",
    "Tokens",
    "address",
    "count",
    "file_of",
    "limits",
    "reached",
    "rest_s",
    "tokens",
    "unavailable",
]


def __getattr__(name: str) -> Any:
    for module, names in VIEWS.items():
        if name in names:
            return getattr(import_module(module), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
