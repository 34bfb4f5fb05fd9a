"""One ranking of deployments and hosted APIs: places by the objective, and the verdict on both."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from advisor.answer.choice import Arranged, Candidate, Choice, arrange, needed
from advisor.answer.hosted import asked_for, figures_of, needed_tokens_per_s, of_median, usd_per_hour
from advisor.answer.money import CURRENCY, cents, traffic_ratio
from advisor.answer.options.demand import API_LOSS
from advisor.answer.owned import KEEPS
from advisor.answer.question import Question
from advisor.answer.sentences import certainty
from advisor.engine.cost import HOURS_PER_MONTH, in_cents, present_value
from advisor.engine.search import MAX_RANKED, SearchResult, final_score, hosted_score
from advisor.engine.terms import Workload, usd_text
from advisor.inputs import number, rounded
from advisor.result import (
    Answer,
    ApiOption,
    CashFlow,
    CostPart,
    HostedOffer,
    Intervals,
    Option,
    Owned,
    Percentiles,
    PortfolioMoney,
    Scenario,
    ScenarioCost,
    Switch,
    Views,
)

MOST_NAMED = 5  # providers in the verdict
LIMITS = ("ttft_ms_p95", "tpot_ms_p95", "e2e_ms_p95", "tokens_per_s_per_user")
Json = dict[str, Any]


def ranked_together(
    question: Question,
    outcome: SearchResult,
    answer: Answer,
    on_demand: Sequence[tuple[float, Option]],
    choice: Choice,
) -> tuple[Answer, Arranged, Mapping[int | None, int]]:
    """(the answer with its hosted APIs ranked among its options by the same rule, the rule's view, the new ranks).

    `on_demand`: deployments that scale to zero, with their objective. The others keep their order. Under another
    objective than cost an API stands before the first deployment with a worse one. An API that nobody shows to meet the
    limits stands behind what keeps them.
    """
    workload = question.workload
    deployments = answer.deployments
    scores = [final_score(workload, s, outcome.scale) for s in outcome.shown[: len(deployments)]]
    apis = sorted(
        (
            (hosted_score(workload, outcome.scale, usd_per_hour(o), tpot_s(o)), o)
            for o in best_of_provider(question.spec, answer.hosted)
        ),
        key=lambda pair: (pair[0], pair[1].usd_per_month, pair[1].provider),
    )[:MAX_RANKED]
    others: list[tuple[float, HostedOffer | Option]] = [*apis, *on_demand]
    if not others:
        return answer, choice.arranged, {option.rank: option.rank or 0 for option in deployments}
    candidates = [*choice.candidates, *(_candidate(choice, each) for _, each in others)]
    arranged = arrange(candidates, *needed(question))
    if workload.objective == "cost":
        keys = _by_rule(arranged, len(deployments))
    else:
        keys = _by_score(arranged, scores, [score for score, _ in others])
    whole: list[Option | HostedOffer] = [*deployments, *(each for _, each in others)]
    order = [whole[k] for k in keys]
    at = {k: new for new, k in enumerate(keys)}
    arranged = Arranged(
        order=tuple(range(len(order))),
        tied=tuple(at[k] for k in arranged.tied) if workload.objective == "cost" else (),
        fails=frozenset(at[k] for k in arranged.fails),
    )
    ranks = {id(each): rank for rank, each in enumerate(order, 1)}
    place = {option.rank: ranks[id(option)] for option in deployments}
    options = [
        moved(each, rank, place) if isinstance(each, Option) else api_option(question, each, rank)
        for rank, each in enumerate(order, 1)
    ]
    ranked = answer.changed(
        recommendations=options,
        hosted=[offer.changed(rank=ranks.get(id(offer))) for offer in answer.hosted],
        views=moved_views(answer.views, place, options),
        scenarios=[moved_scenario(each, place, options, workload.horizon_months) for each in answer.scenarios],
        switch=moved_switch(answer.switch, place),
        owned=[moved_owned(each, place) for each in answer.owned],
    )
    return ranked, arranged, place


def _candidate(choice: Choice, each: HostedOffer | Option) -> Candidate:
    """A hosted API, or a deployment that scales to zero, as the rule sees it."""
    if isinstance(each, Option):
        usd = np.full(1, each.usd_per_month)  # its draws are not computed
        return Candidate(usd=usd, probability=each.slo_probability, seller=(each.accelerator, each.provider, "zero"))
    usd, known = choice.costs.drawn_api(each.usd_per_month), each.slo_state in KEEPS
    return Candidate(usd=usd, probability=None, verified=known, seller=("api", each.provider, "api"))


def _by_rule(arranged: Arranged, deployments: int) -> list[int]:
    """The order of the rule, the deployments among themselves as they stand."""
    waiting = iter(range(deployments))
    return [next(waiting) if k < deployments else k for k in arranged.order]


def _by_score(arranged: Arranged, scores: Sequence[float], others: Sequence[float]) -> list[int]:
    """Each other option before the first deployment with a worse objective; what fails the limits last."""
    count = len(scores)
    waiting = sorted((k for k in range(len(others)) if count + k not in arranged.fails), key=lambda k: others[k])
    order: list[int] = []
    for k, score in enumerate(scores):
        before = [j for j in waiting if others[j] < score]
        waiting = [j for j in waiting if j not in before]
        order += [*(count + j for j in before), k]
    failing = [count + k for k in range(len(others)) if count + k in arranged.fails]
    return [*order, *(count + j for j in waiting), *failing]


def moved_scenario(
    each: Scenario, place: Mapping[int | None, int], options: Sequence[Option | ApiOption], months: int
) -> Scenario:
    """The scenario at the new ranks, with the ranked APIs."""
    costs = [cost.changed(rank=place[cost.rank]) for cost in each.costs]
    for option in options:
        if isinstance(option, ApiOption):
            usd = option.usd_per_month * each.api_ratio
            costs.append(
                ScenarioCost(
                    rank=option.rank or 0,
                    usd_per_month=cents(usd),
                    total_usd=cents(usd * total_over_monthly(option, months)),
                )
            )
    costs.sort(key=lambda cost: cost.rank)
    first = min(costs, key=lambda cost: cost.usd_per_month, default=None)
    return each.changed(costs=costs, first_rank=first.rank if first else each.first_rank)


def moved_switch(switch: Switch | None, place: Mapping[int | None, int]) -> Switch | None:
    if switch is None:
        return None
    return switch.changed(first_rank=place[switch.first_rank], second_rank=place[switch.second_rank])


def moved_owned(each: Owned, place: Mapping[int | None, int]) -> Owned:
    """Owned machines with the new ranks of their options."""
    keep, sell = (plan.changed(rank=place[plan.rank]) if plan else None for plan in (each.keep, each.sell))
    return each.changed(keep=keep, sell=sell, rank=place.get(each.rank) if each.rank else None)


def best_of_provider(spec: Json, hosted: Sequence[HostedOffer]) -> list[HostedOffer]:
    """The cheapest endpoint of each provider that nothing rules out; `hosted` is in the order of cost."""
    best: dict[str, HostedOffer] = {}
    for offer in hosted if asked_for(spec) else ():
        if offer.rejection is None:
            best.setdefault(offer.provider, offer)
    return list(best.values())


def tpot_s(offer: HostedOffer) -> float | None:
    """Seconds per output token at the published speed; None: not published."""
    speed = offer.published_output_tokens_per_s
    return 1 / speed if speed else None


def moved(option: Option, rank: int, place: Mapping[int | None, int]) -> Option:
    """The option at its rank among all, with the ranks that it names."""
    if option.beats is None:
        return option.changed(rank=rank)
    beats = [each.changed(rank=place[each.rank]) for each in option.beats]
    return option.changed(rank=rank, beats=beats, tied_with=[place[other] for other in option.tied_with or []])


def moved_views(views: Views, place: Mapping[int | None, int], options: Sequence[Option | ApiOption]) -> Views:
    """The winners at their new ranks; an API may be the cheapest. Its latency at p95 is not known."""
    least = min(options, key=lambda option: (option.usd_per_month, option.rank or 0))
    return Views(**{name: place[rank] for name, rank in views.ranks().items()} | {"cheapest": least.rank})


def api_option(question: Question, offer: HostedOffer, rank: int) -> ApiOption:
    """A hosted API as an option; fields of a deployment are null in its JSON."""
    workload = question.workload
    fields = {name: getattr(offer, name) for name in type(offer).model_fields}
    nulls = {name: None for name, field in ApiOption.model_fields.items() if field.annotation is type(None)}
    speed = offer.published_output_tokens_per_s
    ttfts = figures_of(offer.to_json(), "ttft_ms")
    rate = question.spec["traffic"]["requests_per_s"]["mean"]
    unlimited = offer.slo_state == "no limit"
    return ApiOption(
        **fields
        | nulls
        | {
            "rank": rank,
            "label": f"{offer.provider_name or offer.provider} API, {offer.name}",
            "instance": offer.name,
            "region": ", ".join(offer.locations) or "unknown",
            "term": "per_token",
            "price_as_of": offer.as_of,
            "price_source": offer.source,
            "ttft_ms": median_alone(ttfts[0] if ttfts else None),
            "tpot_ms": median_alone(1e3 / speed if speed else None),
            "usd_per_hour": rounded(usd_per_hour(offer)),
            "tco_usd": rounded(
                float(present_value(offer.usd_per_month, workload.horizon_months, workload.discount_fraction))
            ),
            "requests_per_s": rounded(rate),
            "output_tokens_per_s": number(rate * workload.output_tokens.mean_tokens),
            "meets_slo": True if unlimited else None,
            "interval": Intervals(),
            "slo_probability": None,
            "accelerator_name": offer.accelerator or "",
            "how_to_call": how_to_call(offer),
            "reasons": reasons(offer),
            "payments": api_money(workload, offer),
        }
    )


def api_money(workload: Workload, offer: HostedOffer) -> PortfolioMoney:
    """The bill of every month of the forecast in cents; all totals are sums of these months."""
    months, rate = workload.horizon_months, workload.discount_fraction
    traffic = [x / traffic_ratio(workload) for x in workload.forecast or (1.0,) * months]
    flows = [no_cash(0)]
    totals = dict.fromkeys((charge.name for charge in offer.bill), 0.0)
    for month, share in enumerate(traffic, 1):
        paid = {charge.name: cents(charge.usd_per_month * share) for charge in offer.bill}
        totals = {name: totals[name] + paid[name] for name in totals}
        due = cents(math.fsum(paid.values()))
        worth = cents(due * (1.0 + rate) ** (-month / 12.0))
        flows.append(no_cash(month).changed(running_usd=due, total_usd=due, present_usd=worth))
    monthly = in_cents([charge.usd_per_month for charge in offer.bill])
    return PortfolioMoney(
        of="hosted API",
        currency=CURRENCY,
        prices_as_of=offer.as_of,
        horizon_months=months,
        discount_fraction_per_year=rate,
        usd_per_month=cents(offer.usd_per_month),
        capital_usd=0.0,
        npv_usd=cents(math.fsum(flow.present_usd for flow in flows)),
        parts=[
            CostPart(
                name=f"{charge.name} tokens",
                group="services",
                usd_per_hour=rounded(charge.usd_per_month / HOURS_PER_MONTH),
                usd_per_month=float(usd),
                total_usd=cents(totals[charge.name]),
            )
            for charge, usd in zip(offer.bill, monthly, strict=True)
        ],
        cash_flow=flows,
        items=[],
    )


def no_cash(month: int) -> CashFlow:
    return CashFlow(
        month=month, capital_usd=0.0, running_usd=0.0, value_left_usd=0.0, total_usd=0.0, present_usd=0.0,
        rent_usd=0.0, energy_usd=0.0, staff_usd=0.0, book_value_usd=0.0,
    )  # fmt: skip


def total_over_monthly(option: ApiOption, months: int) -> float:
    """All payments of the horizon over the monthly bill: the months where traffic never changes."""
    if option.payments is None or not option.usd_per_month:
        return float(months)
    return math.fsum(flow.total_usd for flow in option.payments.cash_flow) / option.usd_per_month


def median_alone(ms: float | None) -> Percentiles:
    return Percentiles(mean=None, p50=None if ms is None else number(ms), p95=None, p99=None)


def how_to_call(offer: HostedOffer) -> str:
    """The request as a shell command; without a known endpoint, where to look."""
    if not offer.base_url:
        return f"see the documentation of {offer.provider_name or offer.provider}: model {offer.name}"
    return (
        f"curl {offer.base_url.rstrip('/')}/chat/completions -H 'Authorization: Bearer YOUR_API_KEY' "
        f"-H 'Content-Type: application/json' "
        f'-d \'{{"model": "{offer.name}", "messages": [{{"role": "user", "content": "Hello"}}], "stream": true}}\''
    )


def reasons(offer: HostedOffer) -> list[str]:
    lines = [
        f"pays per token: {usd_text(offer.usd_per_month)} a month for this traffic, at prices published on "
        f"{offer.as_of}",
        "nothing to size or operate; capacity, rate limits and availability are the provider's",
    ]
    lines += [
        f"{s.kind} speed on {s.as_of}: {s.output_tokens_per_s:g} tokens/s per user ({s.source})"
        for s in offer.speeds
        if s.output_tokens_per_s
    ]
    if offer.quantization:
        lines.append(f"serves {offer.quantization} weights")
    if offer.accelerator:
        lines.append(f"runs on {offer.accelerator}")
    if offer.locations:
        lines.append(f"serves from {', '.join(offer.locations)}")
    return lines


# --- the verdict ------------------------------------------------------------------------------------------------


def verdict(spec: Json, answer: Answer, hardware: str) -> str:
    """The verdict on hardware, or on the API that ranks first with the first deployment behind it."""
    first = answer.recommendations[0] if answer.recommendations else None
    if isinstance(first, ApiOption):
        behind = [best_deployment(answer)] if spec["constraints"]["acquisition"] != ["api"] else []
        return " ".join([sentence(first), *fast_enough(spec, answer), API_LOSS, *behind])
    if spec["constraints"]["acquisition"] == ["api"]:
        return none_ranked(answer)
    if isinstance(first, Option) and first.scale_to_zero:
        return f"{first.label}, at {first.provider}: {first.scale_to_zero.said}."
    return hardware


def fast_enough(spec: Json, answer: Answer) -> list[str]:
    """The providers whose published speeds reach the limit on speed, at least in part; nothing without that limit."""
    needed = needed_tokens_per_s(spec["slo"])
    apis = [option for option in answer.recommendations if isinstance(option, ApiOption) and option.speeds]
    if needed is None or len(apis) < 2:
        return []
    named = [
        f"{o.provider_name or o.provider} ({' and '.join(f'{s.output_tokens_per_s:,.0f}' for s in o.speeds)})"
        for o in apis
    ]
    more = f" and {len(named) - MOST_NAMED} more" if len(named) > MOST_NAMED else ""
    return [f"Published speeds reach {needed:.3g} tokens/s per user at {', '.join(named[:MOST_NAMED])}{more}."]


def none_ranked(answer: Answer) -> str:
    if not answer.hosted:
        return "No provider in the catalog hosts this model at a current price."
    nearest = answer.hosted[0]
    why = f": {nearest.rejection.detail}" if nearest.rejection else ""
    cheapest = f"{nearest.provider_name or nearest.provider} {nearest.name}"
    return f"No hosted API of this model can be ranked. The cheapest is {cheapest}{why}."


def sentence(option: ApiOption) -> str:
    speed = option.published_output_tokens_per_s
    fast = f"published speed {speed:g} tokens/s" if speed else "speed not published"
    slo = {
        "no limit": "no latency limit to check",
        "reached": "its published speed reaches your limit as a median; p95 is not verified",
        "disputed": "published speeds disagree about your limit",
    }.get(option.slo_state, "your latency limits are not verified")
    days = option.price_age_days
    aged = f", {days} day{'' if days == 1 else 's'} old" if days is not None else ""
    return (
        f"A hosted API costs {usd_text(option.usd_per_month)} a month at {option.provider_name or option.provider} "
        f"({option.name}; price published {option.as_of}{aged}; {fast}; {slo}).{beside_others(option)}"
    )


def beside_others(option: ApiOption) -> str:
    """How usual the price is among other sellers of the model; empty in answers of earlier versions."""
    if option.price_others is None:
        return ""
    if not option.price_ratio:
        return " No other seller of this model is in the catalog, so its price cannot be compared."
    ask = " That is unusual: confirm it before you rely on it." if option.price_outlier else ""
    return f" Its price is {of_median(option.price_ratio, option.price_others)}.{ask}"


def best_deployment(answer: Answer) -> str:
    if not answer.deployments:
        return "No deployment in the catalog meets this workload; the reasons are listed per accelerator."
    best = answer.deployments[0]
    waits = f"; {best.scale_to_zero.said}" if best.scale_to_zero else ""
    slo = answer.workload.get("slo") or {} if isinstance(answer.workload, dict) else {}
    limited = any(slo.get(name) for name in LIMITS)
    meets = ", and it meets every limit in simulation" if limited else ""
    return (
        f"The best deployment that you run yourself is #{best.rank}, {best.label}: {usd_text(best.usd_per_month)} a "
        f"month{meets}{waits}.{certainty(answer.deployments)}"
    )
