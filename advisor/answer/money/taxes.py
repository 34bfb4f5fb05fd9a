"""A plan with taxes, as the workload sets them: VAT that cannot be recovered, and income tax."""

import numpy as np

from advisor.answer.money.plan import cents
from advisor.answer.question import Question
from advisor.engine.plans import CAPITAL, RESALE, STAFF, Plan, book_values
from advisor.result import Taxes

INCOME_TAX, VAT = "income-tax-fraction", "vat-fraction"


def taxes(question: Question, plan: Plan) -> Taxes | None:
    """VAT in everything paid but staff; income tax saved on expenses, depreciation and losses on sale. None: no tax.

    The payments of the plan include the VAT that cannot be recovered. Hardware is depreciated in a straight line over
    its depreciation period, and its book value is set off when it is sold. What an expense saves is saved in its month.
    """
    tco, rows = question.spec["tco"], question.snapshot.assumptions
    income, vat = (float(tco.get(key, rows[key]["value"])) for key in (INCOME_TAX, VAT))
    if not income and not vat:
        return None
    taxed = plan.total_by_month - plan.payments[RESALE] - plan.payments[STAFF]
    capital, book = plan.payments[CAPITAL], book_values(plan)
    sold = -plan.payments[RESALE]
    before = np.concatenate([[0.0], book[:-1]])
    left = book.copy()
    left[-1] = 0.0  # everything is sold at the horizon
    written_off = before + capital - left  # depreciation, and the book value of what is sold
    expenses = plan.total_by_month - capital - plan.payments[RESALE] + written_off - sold
    present = plan.prices.present(np.arange(plan.prices.months + 1))
    npv = float((plan.total_by_month - income * expenses) @ present)
    return Taxes(
        income_tax_fraction=income,
        vat_fraction=vat,
        vat_usd=cents(float(taxed.sum()) * vat / (1.0 + vat)),
        vat_included=True,
        npv_after_tax_usd=cents(npv),
        said=(
            f"all costs except staff include {vat * 100:.3g}% VAT; income tax of {income * 100:.3g}% is saved on "
            "expenses, straight-line depreciation and the difference between book value and resale price"
        ),
    )
