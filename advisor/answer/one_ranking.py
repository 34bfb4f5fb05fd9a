"""One ranking of deployments and hosted APIs: places by the objective, and the verdict on both."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from advisor.answer.demand import API_LOSS
from advisor.answer.hosted import asked_for, figures_of, needed_tokens_per_s, usd_per_hour
from advisor.answer.money import cents
from advisor.answer.sentences import certainty
from advisor.engine.cost import present_value
from advisor.engine.search import MAX_RANKED, SearchResult, final_score, hosted_score
from advisor.engine.spec import Workload
from advisor.inputs import number, rounded
from advisor.result import (
    Answer,
    ApiOption,
    HostedOffer,
    Intervals,
    Option,
    Owned,
    Percentiles,
    Scenario,
    ScenarioCost,
    Switch,
    Views,
)

MOST_NAMED = 5  # providers in the verdict
Json = dict[str, Any]


def ranked_together(
    spec: Json,
    workload: Workload,
    outcome: SearchResult,
    answer: Answer,
    on_demand: Sequence[tuple[float, Option]] = (),
    displaces: Callable[[float], bool] | None = None,
) -> Answer:
    """The answer with its hosted APIs ranked among its options by the same objective.

    `on_demand`: deployments that scale to zero, with their objective. The others keep their order. An API stands
    before the first deployment with a worse objective; one whose published speeds disagree about a limit stands behind
    everything that keeps it. `displaces`: whether something at this monthly cost may stand before the first deployment,
    which keeps owned machines; None: whatever has the better objective may.
    """
    deployments = answer.deployments
    scores = [final_score(workload, s, outcome.scale) for s in outcome.shown[: len(deployments)]]
    apis = sorted(
        (
            (hosted_score(workload, outcome.scale, usd_per_hour(o), tpot_s(o)), o)
            for o in best_of_provider(spec, answer.hosted)
        ),
        key=lambda pair: (pair[0], pair[1].usd_per_month, pair[1].provider),
    )[:MAX_RANKED]
    if not apis and not on_demand:
        return answer
    order: list[Option | HostedOffer] = []
    sure: list[tuple[float, Option | HostedOffer]] = [pair for pair in apis if pair[1].slo_state != "disputed"]
    waiting = sorted([*sure, *on_demand], key=lambda pair: (pair[0], pair[1].usd_per_month))
    disputed = [offer for _, offer in apis if offer.slo_state == "disputed"]
    for option, score in zip(deployments, scores, strict=True):
        before = [pair for pair in waiting if pair[0] < score]
        if option is deployments[0] and displaces is not None:
            before = [pair for pair in before if displaces(pair[1].usd_per_month)]
        waiting = [pair for pair in waiting if not any(pair is each for each in before)]
        order += [*(each for _, each in before), option]
    order += [*(each for _, each in waiting), *disputed]
    ranks = {id(each): rank for rank, each in enumerate(order, 1)}
    place = {option.rank: ranks[id(option)] for option in deployments}
    options = [
        moved(each, rank, place) if isinstance(each, Option) else api_option(spec, workload, each, rank)
        for rank, each in enumerate(order, 1)
    ]
    return answer.changed(
        recommendations=options,
        hosted=[offer.changed(rank=ranks.get(id(offer))) for offer in answer.hosted],
        views=moved_views(answer.views, place, options),
        pareto=[p.changed(rank=place.get(p.rank)) if p.rank else p for p in answer.pareto],
        scenarios=[moved_scenario(each, place, options, workload.horizon_months) for each in answer.scenarios],
        switch=moved_switch(answer.switch, place),
        owned=[moved_owned(each, place) for each in answer.owned],
    )


def moved_scenario(
    each: Scenario, place: Mapping[int | None, int], options: Sequence[Option | ApiOption], months: int
) -> Scenario:
    """The scenario at the new ranks, with the ranked APIs."""
    costs = [cost.changed(rank=place[cost.rank]) for cost in each.costs]
    for option in options:
        if isinstance(option, ApiOption):
            usd = option.usd_per_month * each.api_ratio
            costs.append(ScenarioCost(rank=option.rank or 0, usd_per_month=cents(usd), total_usd=cents(usd * months)))
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


def api_option(spec: Json, workload: Workload, offer: HostedOffer, rank: int) -> ApiOption:
    """A hosted API as an option; fields of a deployment are null in its JSON."""
    fields = {name: getattr(offer, name) for name in type(offer).model_fields}
    nulls = {name: None for name, field in ApiOption.model_fields.items() if field.annotation is type(None)}
    speed = offer.published_output_tokens_per_s
    ttfts = figures_of(offer.to_json(), "ttft_ms")
    rate = spec["traffic"]["requests_per_s"]["mean"]
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
        }
    )


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
        f"pays per token: ${offer.usd_per_month:,.2f} a month for this traffic, at prices published on {offer.as_of}",
        "nothing to size or operate; capacity, rate limits and availability are the provider's",
    ]
    lines += [
        f"{s.kind} speed on {s.as_of}: {s.output_tokens_per_s:g} tokens/s per user ({s.source})"
        for s in offer.speeds
        if s.output_tokens_per_s
    ]
    if offer.quantization:
        lines.append(f"serves {offer.quantization} weights")
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
    apis = [option for option in answer.recommendations if isinstance(option, ApiOption)]
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
    return (
        f"A hosted API costs {usd(option.usd_per_month)} a month at {option.provider_name or option.provider} "
        f"({option.name}; price published {option.as_of}, {fast}; {slo})."
    )


def usd(amount: float) -> str:
    return f"${amount:,.0f}" if amount >= 10 else f"${amount:.2f}"


def best_deployment(answer: Answer) -> str:
    if not answer.deployments:
        return "No deployment in the catalog meets this workload; the reasons are listed per accelerator."
    best = answer.deployments[0]
    waits = f"; {best.scale_to_zero.said}" if best.scale_to_zero else ""
    return (
        f"The first deployment of your own is #{best.rank}, {best.label}: {usd(best.usd_per_month)} a month, and it "
        f"meets every limit in simulation{waits}.{certainty(answer.deployments)}"
    )
