"""What the memos of a deployment and of a training run say about money: what to sign, the plan, taxes, quotes."""

from collections.abc import Iterator

from advisor.engine.terms import HOURS_PER_MONTH
from advisor.report.documents.bill import income_tax_saved_usd, vat_beside_usd
from advisor.report.documents.memos.parts import Line, Row, fact, figure_rows, note, quote_text, row_name, table
from advisor.report.documents.wording import dollars, months_text, order_text, unit_price
from advisor.report.plan_figures import PlanFigure, plan_payments
from advisor.report.text import meetings, payment_month_text
from advisor.result import (
    Answer,
    Currency,
    Money,
    Option,
    Plan,
    PlanStep,
    Taxes,
    TrainingOption,
    machine_of,
    servers_text,
)
from advisor.templatetags.finance import rate as percent

MOST_STEPS = 8


def signed_rows(plan: Plan, currency: Currency | None) -> list[Row]:
    lines = [
        Line(
            cells=(
                f"{step.action} {up_to(step)}{servers_text(step.instances, step)}{term_text(step)}",
                seller(step),
                f"{unit_price(step)}{hours_text(step)}, as of {step.price_as_of}",
                ", ".join(filter(None, (when(step), order_text(step)))),
            ),
            usd=(step.unit_usd_once if step.unit_usd_once is not None else step.unit_usd_per_hour,),
        )
        for step in plan.steps[:MOST_STEPS]
    ]
    more = len(plan.steps) - MOST_STEPS
    lines += [Line(cells=(f"{more} more steps: see the bill of materials", "", "", ""))] if more > 0 else []
    return table(("action", "seller", "list price", "when"), lines, currency, ("list price",))


def up_to(step: PlanStep) -> str:
    """`up to`, where rent by the hour pays for fewer machines in some hours."""
    served = step.instances * (step.until_month - step.from_month + 1) * HOURS_PER_MONTH
    return "up to " if step.action == "rent" and step.instances > 1 and step.paid_hours < 0.999 * served else ""


def term_text(step: PlanStep) -> str:
    return f" ({step.term.replace('_', ' ')})" if step.action in ("rent", "reserve") else ""


def seller(step: PlanStep) -> str:
    place = f" ({step.region})" if step.region else ""
    return "a supplier" if step.action == "buy" else f"{step.provider}{place}"


def hours_text(step: PlanStep) -> str:
    return f" x {step.paid_hours:,.0f} h" if step.unit_usd_per_hour is not None else ""


def when(step: PlanStep) -> str:
    paid = f", paid until month {step.paid_until_month}" if step.paid_until_month > step.until_month else ""
    return f"{months_text(step.from_month, step.until_month)}{paid}"


def money_rows(answer: Answer, r: Option | TrainingOption) -> Iterator[Line]:
    """What is paid when, taxes, break-evens, and the figures of this part."""
    m = r.money
    if m is not None:
        yield fact("upfront purchase", m.capital_usd) if m.capital_usd else note("upfront purchase", no_upfront(m))
        if m.plan is not None:
            run = r if isinstance(r, TrainingOption) else None
            yield from (plan_row(each) for each in plan_payments(m, m.plan, run) if each.notable)
        if m.taxes is not None:
            yield from tax_rows(m, m.taxes)
        for met in [b.said for b in m.break_even] if isinstance(r, TrainingOption) else meetings(m):
            yield note("break-even", met)
    yield from figure_rows(r, answer, "Money")


def plan_row(each: PlanFigure) -> Line:
    name = row_name(each.label)
    return note(name, each.value) if each.usd is None else fact(name, each.usd, each.value)


def no_upfront(m: Money) -> str:
    """Why nothing is paid for machines today."""
    paid = [f for f in m.cash_flow if f.capital_usd > 0]
    if paid:
        return f"none today; {dollars(paid[0].capital_usd)} in {payment_month_text(paid[0].month)}"
    return "none (already owned)" if m.plan and any(s.action == "keep" for s in m.plan.steps) else "none (rented)"


def tax_rows(m: Money, taxes: Taxes) -> Iterator[Line]:
    """VAT and income tax over the horizon, and what is paid after both."""
    if taxes.vat_fraction:
        of = ", included above" if taxes.vat_included else ""
        yield fact(f"VAT that cannot be recovered ({percent(taxes.vat_fraction)}{of})", taxes.vat_usd)
    saved = income_tax_saved_usd(m)
    if taxes.income_tax_fraction:
        yield fact(f"income tax saved on all expenses ({percent(taxes.income_tax_fraction)})", -saved)
    yield fact("all payments after taxes", m.usd_over_horizon + vat_beside_usd(m) - saved)
    worth = f"{dollars(taxes.npv_after_tax_usd)} ({taxes.said})"
    yield fact("present value after taxes", taxes.npv_after_tax_usd, worth)


def quotes(r: Option | TrainingOption) -> list[str]:
    """One quote to get for each item of each seller."""
    steps = r.money.plan.steps if r.money and r.money.plan else None
    if steps is None:
        seller = "own" if r.acquisition == "own" else r.provider
        return [quote_text(r.instance or r.accelerator, seller, r.money.prices_as_of if r.money else r.price_as_of)]
    asked = [
        (one_text(s), "own" if s.action == "buy" else s.provider, s.price_as_of) for s in steps if s.term != "owned"
    ]
    return [quote_text(*each) for each in dict.fromkeys(asked)]


def one_text(step: PlanStep) -> str:
    """One machine of a step: a server with 8 x B200; by its product name where that is all that is known."""
    machine = machine_of(step)
    return machine if machine == step.instance else f"a {machine}"
