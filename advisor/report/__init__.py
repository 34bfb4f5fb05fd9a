"""An answer as text: tables, Markdown and documents for finance."""

from advisor.report import documents, estimate_text, support_matrix
from advisor.report.documents import DOCUMENTS, NO_ANSWER, NO_SHARED_ANSWER, first_rank, has_papers
from advisor.report.text import canonical, head, markdown, meeting, table

__all__ = [
    "DOCUMENTS",
    "NO_ANSWER",
    "NO_SHARED_ANSWER",
    "canonical",
    "documents",
    "estimate_text",
    "first_rank",
    "has_papers",
    "head",
    "markdown",
    "meeting",
    "support_matrix",
    "table",
]
