"""The workbook: every formula, recomputed by another program, has the value that is written beside it."""

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import formulas
import openpyxl
import pytest

from advisor.report import documents
from advisor.result import Answer
from tests import sample_advice, sample_money
from tests.report import sample_plan

SHEETS = ["Summary", "Plan", "Cash flow", "Bill", "Assumptions", "Scenarios", "Ranges", "Bill of materials"]
Cells = dict[tuple[str, str], Any]
Recalculated = Callable[[dict[tuple[str, str], float]], Cells]


@pytest.fixture(scope="module")
def answer() -> Answer:
    return Answer.read(sample_plan.result())


@pytest.fixture(scope="module")
def content(answer: Answer) -> bytes:
    return documents.workbook(answer, 1)


def cells(content: bytes, computed: bool) -> Cells:
    """{(sheet, address): value or formula}."""
    book = openpyxl.load_workbook(io.BytesIO(content), data_only=computed)
    return {(s.title, c.coordinate): c.value for s in book for row in s.iter_rows() for c in row if c.value is not None}


@pytest.fixture
def recalculated(content: bytes, tmp_path: Path) -> Recalculated:
    """The values of all formulas when some inputs are changed."""

    def calculate(changes: dict[tuple[str, str], float]) -> Cells:
        book = openpyxl.load_workbook(io.BytesIO(content))
        for (sheet, address), value in changes.items():
            book[sheet][address] = value
        file = tmp_path / "book.xlsx"
        book.save(file)
        found = formulas.ExcelModel().loads(str(file)).finish().calculate()
        values = {key.upper(): value for key, value in found.items() if hasattr(value, "value")}
        return {
            (sheet, address): float(values[f"'[{file.name}]{sheet}'!{address}".upper()].value[0, 0])
            for (sheet, address), text in cells(content, computed=False).items()
            if isinstance(text, str) and text.startswith("=")
        }

    return calculate


def result_row(content: bytes, name: str) -> str:
    """The address of a result on the first sheet."""
    written = cells(content, computed=True)
    return next(f"B{at[1:]}" for (sheet, at), text in written.items() if sheet == "Summary" and text == name)


def test_every_formula_has_its_value(content: bytes, recalculated: Recalculated) -> None:
    written, again = cells(content, computed=True), recalculated({})
    assert len(again) > 150
    for place, value in again.items():
        assert written[place] == pytest.approx(value, abs=1e-6), place


def test_the_totals_are_those_of_the_answer_to_the_cent(
    content: bytes, answer: Answer, recalculated: Recalculated
) -> None:
    m, again = answer.deployments[0].money, recalculated({})
    assert m is not None
    for name, usd in (
        ("all payments, less resale", m.usd_over_horizon),
        ("sum of the bill", m.usd_over_horizon),
        ("present value of all payments", m.npv_usd),
        ("the same, added up by month", m.npv_usd),
        ("equal monthly payment with this present value", m.usd_per_month),
        ("all purchases", sample_plan.SERVER * (1 + sample_plan.SHARE)),
        ("resale", sample_plan.SOLD),
    ):
        assert again["Summary", result_row(content, name)] == pytest.approx(usd, abs=0.01), name


def test_a_month_is_hours_times_list_prices(content: bytes) -> None:
    written = cells(content, computed=True)
    for month, paid in enumerate(sample_plan.payments()):
        assert written["Cash flow", f"C{month + 2}"] == pytest.approx(paid["rent_usd"], abs=0.01)
        assert written["Cash flow", f"B{month + 2}"] == pytest.approx(paid["capital_usd"], abs=0.01)
        assert abs(written["Cash flow", f"H{month + 2}"]) < 0.02  # lost cents, not a plug


@pytest.mark.parametrize(
    ("changes", "name", "expected"),
    [
        ({("Summary", "B6"): 0.0}, "present value of all payments", lambda m: m.usd_over_horizon),
        pytest.param(
            {("Plan", "K3"): 2 * sample_plan.SERVER}, "all purchases", lambda m: 2 * 117_500.0, marks=pytest.mark.soak
        ),
        ({("Plan", "N2"): 2 * sample_plan.PRICE}, "sum of the bill",
         lambda m: m.usd_over_horizon + sum(sample_plan.RENTED.values()) * 730 * sample_plan.PRICE),
        pytest.param(
            {("Summary", "B10"): 0.5}, "all payments, less resale",
            lambda m: m.usd_over_horizon + sample_plan.SOLD / 2, marks=pytest.mark.soak,
        ),
        ({("Summary", "B8"): 2.0}, "sum of the bill", lambda m: m.usd_over_horizon + 12 * sample_plan.STAFF),
    ],
)  # fmt: skip
def test_a_changed_input_changes_the_results(
    content: bytes,
    answer: Answer,
    recalculated: Recalculated,
    changes: dict[tuple[str, str], float],
    name: str,
    expected: Callable[[Any], float],
) -> None:
    m = answer.deployments[0].money
    assert recalculated(changes)["Summary", result_row(content, name)] == pytest.approx(expected(m), abs=0.1)


def test_the_planners_currency_is_a_formula_over_the_rate(content: bytes, recalculated: Recalculated) -> None:
    row = result_row(content, "all payments, less resale")[1:]
    again = recalculated({("Summary", "B11"): 2.0})
    assert again["Summary", f"F{row}"] == pytest.approx(2 * again["Summary", f"B{row}"])
    assert cells(content, computed=True)["Summary", f"F{row}"] == pytest.approx(0.9 * again["Summary", f"B{row}"])


def test_cash_and_bill_are_also_in_the_planners_currency(content: bytes) -> None:
    written = cells(content, computed=True)
    heads = {
        text: at[:-1]
        for (sheet, at), text in written.items()
        if sheet == "Cash flow" and at[-1:] == "1" and at[-2].isalpha()
    }
    column = heads["total, EUR (rate of 2026-11-20)"]
    assert written["Cash flow", f"{column}5"] == pytest.approx(0.9 * written["Cash flow", "I5"])
    assert written["Bill", "K1"] == "over the plan, EUR (rate of 2026-11-20)"
    assert written["Bill", "K3"] == pytest.approx(0.9 * written["Bill", "G3"])


def test_taxes_come_after_the_total(answer: Answer, content: bytes, recalculated: Recalculated) -> None:
    m = answer.deployments[0].money
    assert m is not None
    again, after = recalculated({}), 0.75 * m.usd_over_horizon
    assert again["Summary", result_row(content, "all payments after taxes")] == pytest.approx(after, abs=0.01)
    written = cells(content, computed=True)
    row = result_row(content, "present value after taxes")[1:]
    assert written["Summary", f"D{row}"] == 90_000.0 and written["Summary", f"F{row}"] == pytest.approx(81_000.0)
    lines = {text: at[1:] for (sheet, at), text in written.items() if sheet == "Bill" and at[0] == "A"}
    assert again["Bill", f"G{lines['total after taxes']}"] == pytest.approx(after, abs=0.01)
    assert again["Bill", f"G{lines['income tax saved on all expenses (25%)']}"] == pytest.approx(
        after - 4 * after / 3, abs=0.01
    )


def test_every_sheet_is_there_and_texts_are_never_formulas(answer: Answer) -> None:
    evil = answer.changed(workload={**answer.workload, "name": "=1+1"})
    book = openpyxl.load_workbook(io.BytesIO(documents.workbook(evil, 1)))
    assert book.sheetnames == SHEETS
    assert book["Summary"]["A1"].data_type == "s" and book["Summary"]["A1"].value.startswith("=1+1")
    assert all(book[name].freeze_panes for name in ("Plan", "Cash flow", "Bill", "Assumptions", "Scenarios", "Ranges"))


@pytest.mark.parametrize("make", [sample_advice.result, sample_money.result])
def test_answers_of_earlier_versions_have_a_workbook(make: Callable[[], dict[str, Any]]) -> None:
    written = cells(documents.workbook(Answer.read(make()), 1), computed=True)
    assert {sheet for sheet, _ in written} >= {"Summary", "Assumptions", "Scenarios", "Ranges"}


def test_the_same_answer_gives_the_same_file(answer: Answer, content: bytes) -> None:
    assert documents.workbook(answer, 1) == content
