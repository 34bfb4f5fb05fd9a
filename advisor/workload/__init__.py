"""The workload file: its schema, its error messages, and the trace files it refers to."""

from advisor.workload import deployment
from advisor.workload.contents import PROMPT_TOKENS, drawing_of, images_of, lengths_of, prompts_of, states_rate, unit_of
from advisor.workload.deployment import Deployment, Fixed, parse_deployment, parse_pool
from advisor.workload.errors import unknown
from advisor.workload.parts import check_parts
from advisor.workload.schema import (
    CACHE_FORMATS,
    CHOICES,
    CURVES,
    PORTFOLIO,
    RUNNABLE_KINDS,
    Spec,
    Stack,
    Task,
    Tco,
    Term,
    Weight,
    parse,
    unavailable,
)
from advisor.workload.text import (
    MAX_ERRORS,
    MAX_TEXT_BYTES,
    WorkloadError,
    check_size,
    cut,
    dotted,
    error,
    fold,
    load,
    more_errors,
    set_path,
    with_changes,
)
from advisor.workload.trace_files import with_traces
from advisor.workload.traffic import trace_of, users_of

__all__ = [
    "CACHE_FORMATS",
    "CHOICES",
    "CURVES",
    "Deployment",
    "Fixed",
    "MAX_ERRORS",
    "MAX_TEXT_BYTES",
    "PORTFOLIO",
    "PROMPT_TOKENS",
    "RUNNABLE_KINDS",
    "Spec",
    "Stack",
    "Task",
    "Tco",
    "Term",
    "Weight",
    "WorkloadError",
    "check_parts",
    "check_size",
    "cut",
    "deployment",
    "dotted",
    "drawing_of",
    "error",
    "fold",
    "images_of",
    "lengths_of",
    "load",
    "more_errors",
    "parse",
    "parse_deployment",
    "parse_pool",
    "prompts_of",
    "set_path",
    "states_rate",
    "trace_of",
    "unavailable",
    "unit_of",
    "unknown",
    "users_of",
    "with_changes",
    "with_traces",
]
