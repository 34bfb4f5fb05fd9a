"""What a memo says about signing: budget, gate, cost of a miss, alternatives beside it, and the approval block."""

import datetime
import math
from collections.abc import Iterator

from advisor.answer import likely
from advisor.engine.terms import HOURS_PER_MONTH
from advisor.report.documents.memos.parts import Line, Part, Row, fact, note, other, table
from advisor.report.documents.wording import counted, dollars, purchase_text
from advisor.result import (
    Answer,
    ApiOption,
    Currency,
    Decision,
    Option,
    PlanStep,
    PortfolioMoney,
    ServerPurchase,
    TrainingOption,
    machine_of,
    purchase_in,
)
from catalog import clock
from catalog.pricing.current import STALE_DAYS

Deployment = Option | TrainingOption
MOST_OTHERS = 4
OTHERS = ("option", "per month", "present value", "meets the limits", "costs least")
UNKNOWN = "not known"


def decision_about(answer: Answer, r: Deployment | ApiOption) -> Decision | None:
    """The decision of the answer, if it is about this option."""
    first = answer.recommendations[0] if answer.recommendations else None
    return answer.decision or answer.decide() if first is not None and first.rank == r.rank else None


# --- expected amount and budget ---------------------------------------------------------------------------------


def budget_rows(answer: Answer, r: Deployment | ApiOption) -> Iterator[Line]:
    """The expected amount of a month, the amount that is enough in 80% of the draws, and the limit that was stated."""
    decision = decision_about(answer, r)
    if decision and decision.expected_usd_per_month is not None:
        yield fact("expected per month, resizing included", decision.expected_usd_per_month)
    if decision and decision.budget_usd_per_month is not None:
        yield fact("budget per month: enough in 80% of the draws", decision.budget_usd_per_month)
    limit = stated_limit_usd(answer)
    if limit is not None:
        yield fact(
            "limit stated in the question, per month", limit, f"{dollars(limit)}{within_text(decision, r, limit)}"
        )


def stated_limit_usd(answer: Answer) -> float | None:
    """constraints.max_usd_per_month of the question."""
    spec = answer.workload if isinstance(answer.workload, dict) else {}
    limit = (spec.get("constraints") or {}).get("max_usd_per_month")
    return float(limit) if isinstance(limit, int | float) else None


def within_text(decision: Decision | None, r: Deployment | ApiOption, limit_usd: float) -> str:
    """Whether the budget, or where there is none the cost, is within the stated limit."""
    budget = decision.budget_usd_per_month if decision else None
    named, usd = ("the plan", r.usd_per_month) if budget is None else ("the budget", budget)
    return f": {named} is within it" if usd <= limit_usd else f": {named} exceeds it by {dollars(usd - limit_usd)}"


# --- gate -------------------------------------------------------------------------------------------------------


def gate_items(answer: Answer, r: Deployment | ApiOption) -> list[str]:
    """What to test or to ask for before signing, what that costs and is worth, and what can be signed today."""
    decision = decision_about(answer, r)
    gate = decision.gate if decision else None
    if gate is None:
        settle = decision.settle if decision else None
        return [settle.said.rstrip(".")] if settle and settle.kind != "none" else []
    cost = f"the test costs about {dollars(gate.test_usd)}" if gate.test_usd else "a quote costs nothing"
    worth = f"{dollars(gate.worth_usd_per_month)} a month, {dollars(gate.worth_usd)} over the horizon"
    items = [gate.said.rstrip("."), f"{cost} and is worth {worth}"]
    return [*items, *([f"can be signed today: {gate.sign_today}"] if gate.sign_today else [])]


# --- cost of a miss ---------------------------------------------------------------------------------------------


def miss_part(answer: Answer, r: Option) -> Part:
    """What it costs if the machines are slower or the load is higher than expected."""
    return Part(
        title="If the limits are missed", rows=table(("figure", "value"), miss_rows(answer, r), answer.currency)
    )


def miss_rows(answer: Answer, r: Option) -> Iterator[Line]:
    if r.slo_probability:
        yield note("probability that the limits are met", likely(r.slo_probability))
    bought = purchase_in(r)
    if bought is not None and (room := idle_replicas(r, bought)):
        idle = counted(bought.idle_accelerators, "idle accelerator")
        yield note("room in the servers", f"{idle}: {counted(room, 'more replica')} without a purchase")
    for step in last_steps(r):
        yield one_more(step, bought)
    decision = decision_about(answer, r)
    if decision and decision.expected_usd_per_month is not None:
        more = decision.expected_usd_per_month - r.usd_per_month
        if more > 0:
            yield fact("expected cost of resizing, per month", more)


def idle_replicas(r: Option, bought: ServerPurchase) -> int:
    """Replicas that the idle accelerators of bought servers can run."""
    each = math.ceil(r.accelerator_count / r.replicas) if r.replicas else 0
    return bought.idle_accelerators // each if each else 0


def last_steps(r: Option) -> list[PlanStep]:
    """The last purchase and the last rent of the plan, which can be extended."""
    steps = r.money.plan.steps if r.money and r.money.plan else []
    found = {("buy" if s.action == "buy" else "rent"): s for s in steps if s.action != "keep"}
    return list(found.values())


def one_more(step: PlanStep, bought: ServerPurchase | None) -> Line:
    """What one more machine of a step costs."""
    if step.action == "buy" and bought is not None and bought.servers_usd:
        usd = (step.unit_usd_once or 0.0) * bought.capital_usd / bought.servers_usd
        wait = (
            f"; delivery takes about {counted(step.order_months_before, 'month')}" if step.order_months_before else ""
        )
        said = f"{dollars(usd)} with its share of network and spares{wait}"
        return fact(f"one more {machine_of(step)}", usd, said)
    usd = (step.unit_usd_per_hour or 0.0) * HOURS_PER_MONTH
    seller = f" at {step.provider}" if step.provider else ""
    return fact(f"one more {step.instance}{seller}, rented", usd, f"{dollars(usd)} per month")


# --- alternatives -----------------------------------------------------------------------------------------------


def alternative_rows(answer: Answer, r: Deployment | ApiOption, currency: Currency | None) -> list[Row]:
    """This option and the others of the ranking: cost, present value and probabilities. Variants are left out."""
    shown: dict[str, Deployment | ApiOption] = {}
    for o in answer.recommendations:
        if o.rank != r.rank:
            shown.setdefault(signed_text(o), o)
    shown.pop(signed_text(r), None)
    lines = [alternative(f"option {r.rank}, this one: {signed_text(r)}", r)]
    lines += [alternative(f"option {o.rank}: {name}", o) for name, o in list(shown.items())[:MOST_OTHERS]]
    return table(OTHERS, lines, currency, ("per month", "present value"))


def signed_text(o: Deployment | ApiOption) -> str:
    """What is signed for an option; two options that differ in how the same machines are run are one."""
    return other(o) if isinstance(o, ApiOption) else purchase_text(o)


def alternative(name: str, o: Deployment | ApiOption) -> Line:
    worth = present_usd(o)
    return Line(
        cells=(name, dollars(o.usd_per_month), dollars(worth), meets_text(o), least_of(o)), usd=(o.usd_per_month, worth)
    )


def present_usd(o: Deployment | ApiOption) -> float:
    """Present value of all costs over the horizon; of a training, of all runs."""
    if isinstance(o, TrainingOption):
        return o.usd_total
    return o.money.npv_usd if isinstance(o, Option) and o.money else o.tco_usd


def meets_text(o: Deployment | ApiOption) -> str:
    if isinstance(o, ApiOption):
        return "not verified"
    found = o.deadline_probability if isinstance(o, TrainingOption) else o.slo_probability
    return likely(found) if found else UNKNOWN


def least_of(o: Deployment | ApiOption) -> str:
    """Share of the draws in which it costs least."""
    ranges = o.money.ranges if not isinstance(o, ApiOption) and o.money else None
    return likely(ranges.wins_probability) if ranges else UNKNOWN


# --- approval ---------------------------------------------------------------------------------------------------


def approval_part(answer: Answer, r: Deployment | ApiOption, prices_as_of: str) -> Part:
    """What is approved and until when, with lines for the names and signatures."""
    decision = decision_about(answer, r)
    budget = decision.budget_usd_per_month if decision else None
    money = r.payments if isinstance(r, ApiOption) else r.money
    amount = f"{dollars(budget if budget is not None else r.usd_per_month)} per month"
    if money is not None:
        amount += f" for {counted(money.horizon_months, 'month')}"
    bought = None if isinstance(r, ApiOption) else purchase_in(r)
    return Part(
        title="Approval", rows=approval_rows(amount, bought.capital_usd if bought else 0.0, prices_as_of), is_form=True
    )


def portfolio_approval(m: PortfolioMoney) -> Part:
    capital = math.fsum(flow.capital_usd for flow in m.cash_flow)
    amount = f"{dollars(m.usd_per_month)} per month for {counted(m.horizon_months, 'month')}"
    return Part(title="Approval", rows=approval_rows(amount, capital, m.prices_as_of), is_form=True)


def approval_rows(amount: str, capital_usd: float, prices_as_of: str) -> list[Row]:
    part = "; the purchases, less resale, are part of it"
    bought = [("purchases", dollars(capital_usd))] if capital_usd else []
    signed = [(name, "") for name in ("requested by", "date, signature", "approved by", "date, signature")]
    return [
        ("approval", ""),
        ("amount", f"{amount}{part if bought else ''}"),
        *bought,
        ("valid until", valid_text(prices_as_of)),
        *signed,
    ]


def valid_text(prices_as_of: str) -> str:
    """The day until which the prices hold: some time after their date; or that they need a new quote."""
    try:
        day = datetime.date.fromisoformat(prices_as_of)
    except ValueError:
        return "the date of the price is not known: get a quote first"
    until, age = day + datetime.timedelta(days=STALE_DAYS), (clock.today() - day).days
    if until < clock.today():
        return f"needs a new quote: the oldest price is {age:,} days old ({day.isoformat()})"
    return f"{until.isoformat()}, {STALE_DAYS} days after the oldest price ({day.isoformat()})"
