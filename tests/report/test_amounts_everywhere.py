"""The same amount is written the same way on pages, in Markdown, in documents, in sentences and in the catalog."""

import random

import pytest

from advisor import report
from advisor.engine.terms import usd_text
from advisor.report import documents
from advisor.report import text as report_text
from advisor.report.documents import wording
from advisor.result import Answer
from advisor.templatetags import units
from catalog.templatetags.amounts import amount
from tests.report import sample_plan

DRAW = random.Random(32)
AMOUNTS = [0.0, 81_999.6, 99.996, 0.0453, 99.5, *(10 ** DRAW.uniform(-6, 8) for _ in range(500))]


def test_every_surface_writes_an_amount_alike() -> None:
    for usd in AMOUNTS:
        text = usd_text(usd)
        assert text == units.dollars(usd) == wording.dollars(usd)
        assert text == f"${report_text.usd_figure(usd)}" == f"${amount(usd)}"


@pytest.mark.parametrize("usd", [81_999.6, 45.678, 0.0453])
def test_an_answer_writes_a_cost_alike_on_the_command_line_in_markdown_and_in_the_memo(usd: float) -> None:
    found = sample_plan.result()
    found["recommendations"][0]["usd_per_month"] = usd
    answer = Answer.read(found)
    for shown in (report.table(answer), report.markdown(answer), documents.memo_text(answer, 1)):
        assert usd_text(usd).removeprefix("$") in shown


def test_an_unknown_amount_is_a_dash() -> None:
    assert (units.dollars(None), report_text.usd_figure(None)) == ("–", "-")
