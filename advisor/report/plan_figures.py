"""The figures of a plan with their meaning, for its page and for the memo: what it costs, and what is paid when."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from advisor.report.text import largest_payment, payment_month_text
from advisor.result import Money, Plan, TrainingOption
from advisor.templatetags.finance import rate
from advisor.templatetags.units import dollars

PAYBACK = (
    "From the end of this month on, less cash has been paid than for rent by the hour. Resale counts once received."
)


@dataclass(frozen=True, kw_only=True, slots=True)
class PlanFigure:
    label: str
    means: str
    usd: float | None = None
    text: str = ""  # in place of the amount
    term: str = ""  # entry of the glossary; empty: the label
    ends: Sequence[float] = ()  # of its 90% range
    notable: bool = True  # whether it is worth a line in the memo and on the page of a run

    @property
    def value(self) -> str:
        return self.text or dollars(self.usd)


def months(count: float) -> str:
    return f"{count:g} month{'s' * (count != 1)}"


def plan_totals(money: Money, run: TrainingOption | None = None) -> Iterator[PlanFigure]:
    """What the whole plan costs; `run`: the training that it pays for."""
    over, ranges = months(money.horizon_months), money.ranges
    discount = rate(money.discount_fraction_per_year)
    all_payments = "All payments less resale, without discounting."
    if run is None:
        yield PlanFigure(
            label="Monthly equivalent", usd=money.usd_per_month, ends=ranges.usd_per_month if ranges else (),
            means="The equal monthly payment with the same present value as the plan. Options are compared by it.",
        )  # fmt: skip
        label, means = f"Total over {over}", all_payments
    elif run.every_days:
        yield PlanFigure(
            label="Cost of one run", usd=run.usd_per_run, ends=run.usd_per_run_range,
            means="All payments less resale, divided by the number of runs. The ranking and the verdict state it.",
        )  # fmt: skip
        label, means = f"Cost of all runs in {over}", all_payments
    else:
        label, means = "Cost of the run", f"{all_payments} The ranking and the verdict state it."
    ends = ranges.total_usd if ranges else ()
    yield PlanFigure(label=label, usd=money.usd_over_horizon, ends=ends, means=means)
    means = f"Present value of all payments less resale, at a discount rate of {discount} per year."
    if run is not None:
        means = f"The same as a present value, at a discount rate of {discount} per year. Plans are compared by it."
    yield PlanFigure(label="Present value of costs", usd=money.npv_usd, term="present value", means=means)


def plan_payments(money: Money, plan: Plan, run: TrainingOption | None = None) -> Iterator[PlanFigure]:
    """What is bought, owed and paid when, and how buying compares with rent."""
    end = "the horizon" if run is None else "the last run" if run.every_days else "the run"
    buys, rent = bool(plan.capex_usd), plan.rent_usd_per_month
    means = "Everything the plan buys over the horizon, with its share of network, storage and spares."
    yield PlanFigure(label="Purchases (capex)", usd=plan.capex_usd, term="capex", means=means, notable=buys)
    if buys or plan.resale_usd:
        means = "What the hardware brings when it leaves service or the horizon ends, less the cost of selling."
        yield PlanFigure(label="Resale", usd=plan.resale_usd, term="residual value", means=means)
    means = f"Payments still due after {end}, less what an exit recovers. The cost includes them."
    if plan.liability_months:
        means += f" The longest commitment runs {months(plan.liability_months)} longer than {end}."
    yield PlanFigure(
        label=f"Liability after {end}", usd=plan.liability_usd, term="liability", means=means,
        notable=plan.liability_usd > 0,
    )  # fmt: skip
    yield PlanFigure(
        label="Most expensive month, purchases spread over their service", usd=plan.most_usd_per_month,
        means="Its payments plus the monthly equivalent of the hardware in service, so purchases count in every month "
        "that they serve. A monthly budget limits it.",
    )  # fmt: skip
    month, usd = largest_payment(money)
    yield PlanFigure(
        label="Largest cash payment of a month", usd=usd, text=f"{dollars(usd)} ({payment_month_text(month)})",
        means=f"Purchases and running costs in the month that they are paid, without what is due after {end}.",
    )  # fmt: skip
    yield PlanFigure(
        label=f"Price of leaving after {months(plan.exit_month)}", usd=plan.exit_usd, term="lock-in",
        means="What ending the plan then costs: remaining commitments, and book value of hardware less its market "
        "value.", notable=plan.exit_usd > 0 or plan.exit_month < money.horizon_months,
    )  # fmt: skip
    if rent is not None:
        means = "The same deployment rented by the hour alone, for comparison."
        yield PlanFigure(label="Rent by the hour, per month", usd=rent, means=means, notable=buys and run is None)
    if buys:
        paid = f"month {plan.payback_month}" if plan.payback_month is not None else "not within the horizon"
        paid = "no rent to compare with" if rent is None else paid
        yield PlanFigure(label="Payback", text=paid, means=PAYBACK, notable=rent is not None)
        irr = plan.irr_fraction_per_year
        yield PlanFigure(
            label="Internal rate of return", text="none" if irr is None else f"{rate(irr)} per year",
            means="Yearly return on the purchase from what it saves against rent by the hour. Compare it with your "
            "own.", notable=irr is not None,
        )  # fmt: skip
