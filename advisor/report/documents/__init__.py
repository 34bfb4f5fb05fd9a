"""Documents for finance: decision memo, bill of materials, assumptions, cash flow, workbook."""

from collections.abc import Callable

from django.template.loader import render_to_string

from advisor.report.documents.memos.memo import memo, memo_markdown
from advisor.report.documents.subject import NO_ANSWER, NO_SHARED_ANSWER, default_rank, has_document, has_papers
from advisor.report.documents.tables import assumptions_csv, bill_of_materials, cash_flow_csv
from advisor.report.documents.workbook import workbook
from advisor.result import Answer

__all__ = [
    "DOCUMENTS",
    "NO_ANSWER",
    "NO_SHARED_ANSWER",
    "XLSX",
    "default_rank",
    "has_document",
    "has_papers",
]
XLSX = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"


def memo_text(answer: Answer, rank: int) -> str:
    return memo_markdown(memo(answer, rank))


def memo_html(answer: Answer, rank: int) -> str:
    return render_to_string("advisor/memo.html", {"memo": memo(answer, rank)})


DOCUMENTS: dict[str, tuple[str, Callable[[Answer, int], str | bytes]]] = {
    "memo.html": ("text/html", memo_html),
    "memo.md": ("text/markdown", memo_text),
    "bill-of-materials.csv": ("text/csv", bill_of_materials),
    "assumptions.csv": ("text/csv", assumptions_csv),
    "cash-flow.csv": ("text/csv", cash_flow_csv),
    "workbook.xlsx": (XLSX, workbook),
}
