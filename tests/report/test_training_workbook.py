"""The workbook of a training run: every formula, recomputed by another program, and the total of the answer."""

import io
from pathlib import Path

import formulas
import openpyxl
import pytest

from advisor.report import documents
from advisor.result import Answer
from tests.report.test_workbook import cells, result_row
from tests.sample_training import result

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("frozen")]


@pytest.mark.parametrize("name", ["pretrain", "bought"])
def test_formulas_give_the_total_of_the_run(name: str, tmp_path: Path) -> None:
    answer = Answer.read(result(name))
    content = documents.workbook(answer, 1)
    file = tmp_path / "book.xlsx"
    openpyxl.load_workbook(io.BytesIO(content)).save(file)
    found = formulas.ExcelModel().loads(str(file)).finish().calculate()
    again = {key.upper(): value for key, value in found.items() if hasattr(value, "value")}
    written, texts = cells(content, computed=True), cells(content, computed=False)
    checked = [place for place, text in texts.items() if isinstance(text, str) and text.startswith("=")]
    assert len(checked) > 30
    for sheet, at in checked:
        value = float(again[f"'[{file.name}]{sheet}'!{at}".upper()].value[0, 0])
        assert written[sheet, at] == pytest.approx(value, abs=1e-6), (sheet, at)
    m = answer.training_runs[0].money
    assert m is not None
    for row, usd in (
        ("all payments, less resale", m.usd_over_horizon),
        ("sum of the bill", m.usd_over_horizon),
        ("present value of all payments", m.npv_usd),
        ("the same, added up by month", m.npv_usd),
        ("equal monthly payment with this present value", m.usd_per_month),
    ):
        assert written["Summary", result_row(content, row)] == pytest.approx(usd, abs=0.01), row
