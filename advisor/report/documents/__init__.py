"""Documents: decision memo, bill of materials, costs, assumptions, cash flow, workbook, files for other systems."""

from collections.abc import Callable

from django.template.loader import render_to_string

from advisor.report.documents.exports import EXPORTS, can_export, exports_of
from advisor.report.documents.memos.memo import memo, memo_markdown
from advisor.report.documents.order import order_document
from advisor.report.documents.subject import NO_ANSWER, NO_SHARED_ANSWER, default_rank, has_document, has_papers
from advisor.report.documents.tables import assumptions_csv, bill_of_materials, cash_flow_csv, costs_csv
from advisor.report.documents.workbook import workbook
from advisor.result import Answer

__all__ = [
    "DOCUMENTS",
    "EXPORTS",
    "NO_ANSWER",
    "NO_SHARED_ANSWER",
    "XLSX",
    "can_export",
    "default_rank",
    "exports_of",
    "has_document",
    "has_papers",
]
XLSX = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"


def memo_text(answer: Answer, rank: int) -> str:
    return memo_markdown(memo(answer, rank))


def memo_html(answer: Answer, rank: int) -> str:
    return render_to_string("advisor/memo.html", {"memo": memo(answer, rank)})


def order_text(answer: Answer, rank: int) -> str:
    return memo_markdown(order_document(answer, rank))


def order_html(answer: Answer, rank: int) -> str:
    return render_to_string("advisor/memo.html", {"memo": order_document(answer, rank)})


DOCUMENTS: dict[str, tuple[str, Callable[[Answer, int], str | bytes]]] = {
    "memo.html": ("text/html", memo_html),
    "memo.md": ("text/markdown", memo_text),
    "bill-of-materials.html": ("text/html", order_html),
    "bill-of-materials.md": ("text/markdown", order_text),
    "bill-of-materials.csv": ("text/csv", bill_of_materials),
    "costs.csv": ("text/csv", costs_csv),
    "assumptions.csv": ("text/csv", assumptions_csv),
    "cash-flow.csv": ("text/csv", cash_flow_csv),
    "workbook.xlsx": (XLSX, workbook),
    **EXPORTS,
}
