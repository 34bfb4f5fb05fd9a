"""The REST API: advice, estimates, tokens, rate limits and problem documents."""

from advisor.api import body_fields, tokens
from advisor.api.body_fields import Text, Whole, YesNo
from advisor.api.deletions import OneLoadTest, OneShare, OneToken, Shares, Tokens
from advisor.api.limits import Exceeded, address, count, reached, rest_s
from advisor.api.openapi import problems
from advisor.api.parsers import StrictJSONParser, unique
from advisor.api.problems import Conflict, TooLarge, Unprocessable, problem_response, queue_is_full, unavailable
from advisor.api.tokens import hashed, new_token
from advisor.api.views import AdviceDetail, AdviceList, AdviceResult, CancelAdvice, EstimateOne, OneAdvice, Pages, Root

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
    "new_token",
    "problem_response",
    "problems",
    "queue_is_full",
    "reached",
    "rest_s",
    "tokens",
    "unavailable",
    "unique",
]
