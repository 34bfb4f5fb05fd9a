"""Where owning, renting and the cheapest hosted API cost the same. All use the plans that the options are ranked by."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from advisor.answer.money.bill import plans_of, traffic_ratio, ways_to_pay
from advisor.answer.money.plan import cents
from advisor.answer.question import Question
from advisor.engine.cost import HOURS_PER_MONTH, break_even_share, break_even_tokens
from advisor.engine.plans import OTHER, Plan, break_even_month
from advisor.engine.search import Scored
from advisor.engine.terms import Workload
from advisor.inputs import number
from advisor.result import BreakEven, CostPath, HostedOffer, Option


def with_break_even(
    question: Question,
    shown: Sequence[Scored],
    options: Sequence[Option],
    hosted: Sequence[HostedOffer],
) -> list[Option]:
    """The options, each with where its ways to pay meet each other and the cheapest hosted API."""
    usable = [offer for offer in hosted if offer.rejection is None] or hosted  # the cheapest, ranked if one is
    api = usable[0] if usable else None
    made = []
    for option, s in zip(options, shown, strict=False):
        if option.money is None or s.planned is None:
            made.append(option)
            continue
        plans = plans_of(ways_to_pay(question, s))
        known = any(plan is s.planned.plan for plan in plans.values())
        drawn = plans if known else {chosen_way(s): s.planned.plan} | plans
        money = option.money.changed(
            break_even=list(break_evens(option, plans, api, question.workload, s)),
            paths=list(paths(drawn, api, question.workload)),
        )
        made.append(option.changed(money=money))
    return made


def chosen_way(s: Scored) -> str:
    """How the option itself is paid for, where that is neither `own` nor the rent that is compared: a term, spot."""
    return "own" if s.offer.acquisition == "own" else f"rent {s.offer.term}"


def paths(plans: Mapping[str, Plan], api: HostedOffer | None, workload: Workload) -> Iterator[CostPath]:
    """What each way has cost by each month; nothing where there is only one."""
    compared = dict(plans)
    if api is not None and plans:
        plan = next(iter(plans.values()))
        compared[f"API of {api.provider_name or api.provider}"] = paid_monthly(plan, api.usd_per_month, workload)
    if len(compared) > 1:
        for name, plan in compared.items():
            yield CostPath(name=name, cumulative_usd=[cents(usd) for usd in np.cumsum(plan.total_by_month).tolist()])


def break_evens(
    option: Option, plans: Mapping[str, Plan], api: HostedOffer | None, workload: Workload, chosen: Scored
) -> Iterator[BreakEven]:
    """Owning against renting (month, share of hours), and both against the API (tokens per month).

    A rented option is compared with the API as it is rented, also on spot or for a term.
    """
    own = plans.get("own")
    rented, rent = next(((name, plan) for name, plan in plans.items() if name != "own"), ("", None))
    if own and rent:
        yield BreakEven(
            between=["own", rented],
            month=break_even_month(own, rent),
            share_of_hours=number(break_even_share(own.usd_per_month, rent.usd_per_month)),
            tokens_per_month=None,
            within_capacity=None,
            said="owning costs less from this month on; against rent by the hour, above this share of the hours",
        )
    if api is None or not api.usd_per_mtok_blended:
        return
    if chosen.offer.acquisition == "rent" and chosen.planned:
        rent = chosen.planned.plan
    for name, plan in (("own", own), ("rent", rent)):
        if plan:
            tokens = break_even_tokens(plan.usd_per_month, api.usd_per_mtok_blended)
            yield BreakEven(
                between=[name, f"API of {api.provider_name or api.provider}"],
                month=break_even_month(plan, paid_monthly(plan, api.usd_per_month, workload))
                if name == "own"
                else None,
                share_of_hours=None,
                tokens_per_month=number(tokens),
                within_capacity=within_capacity(option, workload, tokens),
                said="above this many tokens a month, prompts and answers together, these machines cost less",
            )


def paid_monthly(plan: Plan, usd_per_month: float, workload: Workload) -> Plan:
    """A plan that pays this in a mean month of the forecast, each month in step with its traffic."""
    traffic = np.asarray(workload.forecast or np.ones(plan.prices.months)) / traffic_ratio(workload)
    nothing = {name: np.zeros(plan.prices.months + 1) for name in plan.payments}
    return replace(plan, payments=nothing | {OTHER: np.concatenate([[0.0], usd_per_month * traffic])})


def within_capacity(option: Option, workload: Workload, tokens_per_month: float) -> bool | None:
    """Whether the machines can serve that many tokens at this mix and this ratio of peak to mean; None: not known.

    The peak reaches their capacity first. Latency limits may bind below it, so a `True` is to be tested.
    """
    blended, capacity = option.usd_per_mtok_blended, option.capacity_requests_per_s
    if not blended or not capacity or not workload.requests_per_s_peak:
        return None
    planned = option.usd_per_hour * HOURS_PER_MONTH / blended * 1e6  # tokens of a mean month of the forecast
    return tokens_per_month <= planned * capacity / workload.requests_per_s_peak
