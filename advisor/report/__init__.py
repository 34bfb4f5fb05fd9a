"""An answer as text: tables, Markdown and documents for finance."""

from advisor.report import documents, estimate_text, support_matrix, training_text
from advisor.report.documents import (
    DOCUMENTS,
    NO_ANSWER,
    NO_SHARED_ANSWER,
    XLSX,
    default_rank,
    first_rank,
    has_document,
)
from advisor.report.text import canonical, head, markdown, meeting, meetings, table

__all__ = [
    "DOCUMENTS",
    "NO_ANSWER",
    "NO_SHARED_ANSWER",
    "XLSX",
    "canonical",
    "default_rank",
    "documents",
    "estimate_text",
    "first_rank",
    "has_document",
    "head",
    "markdown",
    "meeting",
    "meetings",
    "support_matrix",
    "table",
    "training_text",
]
