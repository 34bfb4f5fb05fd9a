"""An answer as text: tables, Markdown and documents for finance."""

from advisor.report import documents, estimate_text, review, training_text
from advisor.report.asked import has_changing_traffic
from advisor.report.documents import (
    DOCUMENTS,
    EXPORTS,
    NO_ANSWER,
    NO_SHARED_ANSWER,
    XLSX,
    can_export,
    default_rank,
    exports_of,
    has_document,
)
from advisor.report.plan_figures import months, plan_payments, plan_totals
from advisor.report.quick_text import quick_table
from advisor.report.screen import (
    ORIGINS,
    answer_text,
    count_word,
    distinct,
    question_of,
    rejected_counts,
    screen_of,
    screen_text,
    title_of,
)
from advisor.report.summary import summary_of
from advisor.report.text import canonical, markdown, meetings, table
