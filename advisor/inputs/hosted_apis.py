"""Hosted APIs (pay per token): published prices of the model, compared with the cost of own deployments."""

import datetime
import math
from collections.abc import Mapping, Sequence
from typing import Any

from advisor.engine.cost import HOURS_PER_MONTH
from advisor.inputs.offers import discounts_of
from advisor.inputs.rounding import number, rounded
from advisor.result import HostedOffer, Option
from catalog.derived import has_expired, known_on
from catalog.models import Accelerator, ApiPrice, Organisation

SECONDS_PER_MONTH = HOURS_PER_MONTH * 3600.0
MTOK = 1e6
BASIS = "published, not estimated"
Json = dict[str, Any]


# --- rows to a snapshot -----------------------------------------------------------------------------------------


def rows(hf_id: str, organisation: Organisation | None, day: datetime.date) -> list[Json]:
    """The newest price of each endpoint that serves the model, known on `day` and not expired."""
    prices = list(known_on(ApiPrice.objects.filter(model__hf_id=hf_id), day).order_by("as_of", "pk"))
    newest = {(p.provider, p.name): p for p in prices}
    speeds = {(p.provider, p.name): p for p in prices if p.output_tokens_per_s}  # a newer price list may have none
    makers = {a.vendor: a.slug for a in Accelerator.objects.order_by("-slug") if "api" in a.bought_as}
    discounts = {d.provider: d for d in discounts_of(organisation, day) if not d.accelerator_id and not d.term}
    return [
        _row(
            p,
            speeds.get((p.provider, p.name), p),
            makers.get(p.provider),
            1.0 - discounts[p.provider].discount_fraction if p.provider in discounts else 1.0,
        )
        for p in sorted(newest.values(), key=lambda p: (p.provider, p.name))
        if not has_expired(p.as_of, day)
    ]


def _row(p: ApiPrice, speed: ApiPrice, accelerator: str | None, paid_fraction: float) -> Json:
    def usd(value: Any) -> float | None:
        return None if value is None else float(value) * paid_fraction

    return {
        "provider": p.provider,
        "name": p.name,
        "accelerator": accelerator,
        "usd_per_mtok_input": usd(p.usd_per_mtok_input),
        "usd_per_mtok_cached_input": usd(p.usd_per_mtok_cached_input),
        "usd_per_mtok_output": usd(p.usd_per_mtok_output),
        "discount_fraction": round(1.0 - paid_fraction, 9),
        "max_input_tokens": p.max_input_tokens,
        "published_output_tokens_per_s": speed.output_tokens_per_s,
        "speed_source": speed.speed_source,
        "as_of": p.as_of.isoformat(),
        "source": p.source,
    }


def chip_vendor_prices(rows: Sequence[Json]) -> dict[str, str]:
    """A sentence for each chip that its vendor offers only as a hosted API: the price of this model there."""
    sentences: dict[str, str] = {}
    for row in rows:
        if row["accelerator"]:
            cost = f"${row['usd_per_mtok_input']:g} input, ${row['usd_per_mtok_output']:g} output per million tokens"
            sentences.setdefault(row["accelerator"], f"{row['provider']} hosts this model ({cost})")
    return sentences


# --- a snapshot to the answer -----------------------------------------------------------------------------------


def hosted(spec: Json, rows: Sequence[Json], options: Sequence[Option]) -> list[HostedOffer]:
    """Every hosted API of the model with its monthly bill for this traffic, the cheapest first."""
    rented = cheapest_rented(options)
    offers = [_offer(spec, row, rented) for row in rows if allowed(spec, row)]
    offers.sort(key=lambda o: (o.usd_per_month, o.provider, o.name))
    if spec["objective"] != "cost" or "api" not in spec["constraints"]["acquisition"]:
        return offers
    costs = [*(option.usd_per_month for option in options), *(offer.usd_per_month for offer in offers)]
    return [o.changed(rank_by_cost=1 + sum(usd < o.usd_per_month for usd in costs)) for o in offers]


def allowed(spec: Json, row: Json) -> bool:
    """Whether the planner's providers leave it."""
    c = spec["constraints"]["providers"]
    return (not c["allow"] or row["provider"] in c["allow"]) and row["provider"] not in c["deny"]


def cheapest_rented(options: Sequence[Option]) -> Option | None:
    rented = [option for option in options if option.acquisition == "rent"]
    return min(rented, key=lambda option: option.usd_per_month, default=None)


def tokens_of(spec: Json) -> dict[str, float]:
    """Tokens of a mean request: prompt, the part of it that the prefix cache holds, answer."""
    traffic = spec["traffic"]
    prompt = float(traffic["input_tokens"]["mean"])
    cached = prompt * traffic["prefix_cache_hit_rate"]
    return {"input": prompt, "cached": cached, "output": float(traffic["output_tokens"]["mean"])}


def usd_per_request(tokens: Mapping[str, float], row: Json) -> float:
    """The price of a mean request; cached tokens cost as much as others where no price for them is published."""
    input_usd, cached_usd = row["usd_per_mtok_input"], row["usd_per_mtok_cached_input"]
    usd_cached = tokens["cached"] * (input_usd if cached_usd is None else cached_usd)
    usd_input = (tokens["input"] - tokens["cached"]) * input_usd
    return float(usd_input + usd_cached + tokens["output"] * row["usd_per_mtok_output"]) / MTOK


def _offer(spec: Json, row: Json, rented: Option | None) -> HostedOffer:
    tokens = tokens_of(spec)
    usd = usd_per_request(tokens, row)
    monthly = usd * spec["traffic"]["requests_per_s"]["mean"] * SECONDS_PER_MONTH
    budget = spec["constraints"]["max_usd_per_month"]
    return HostedOffer(
        **row,
        acquisition="api",
        basis=BASIS,
        usd_per_month=rounded(monthly),
        usd_per_mtok_blended=number(usd / (tokens["input"] + tokens["output"]) * MTOK),
        within_budget=budget is None or monthly <= budget,
        rank_by_cost=None,
        **_break_even(usd, tokens, rented),
        warnings=_warnings(spec, row),
    )


def _break_even(usd: float, tokens: Mapping[str, float], rented: Option | None) -> Json:
    """Tokens a month (prompt and answer) above which the cheapest rented option costs less."""
    if rented is None or usd <= 0:
        return {"break_even_tokens_per_month": None, "break_even_with": None, "break_even_within_capacity": None}
    requests = rented.usd_per_month / usd
    capacity = (rented.capacity_requests_per_s or math.inf) * SECONDS_PER_MONTH
    return {
        "break_even_tokens_per_month": number(requests * (tokens["input"] + tokens["output"])),
        "break_even_with": rented.label,
        "break_even_within_capacity": requests <= capacity,
    }


def _warnings(spec: Json, row: Json) -> list[str]:
    """Where the published figures miss this workload's limits."""
    lines = []
    slo, speed = spec["slo"], row["published_output_tokens_per_s"]
    limits = [1e3 / slo["tpot_ms_p95"]] if slo["tpot_ms_p95"] else []
    limits += [slo["tokens_per_s_per_user"]] if slo["tokens_per_s_per_user"] else []
    if speed is not None and limits and speed < max(limits):
        lines.append(f"the published {speed:g} tokens/s are below the {max(limits):.3g} that you need per user")
    longest = spec["traffic"]["input_tokens"].get("p95") or spec["traffic"]["input_tokens"]["mean"]
    if row["max_input_tokens"] and longest > row["max_input_tokens"]:
        lines.append(f"takes prompts up to {row['max_input_tokens']:,} tokens")
    return lines


def verdict(spec: Json, offers: Sequence[HostedOffer], hardware: str, has_options: bool) -> str:
    """The verdict on hardware, and a sentence on the API where it costs less or nothing else was asked for."""
    ways = spec["constraints"]["acquisition"]
    if ways == ["api"]:
        return _sentence(offers[0]) if offers else "No provider in the catalog hosts this model at a current price."
    if not offers or "api" not in ways or (has_options and offers[0].rank_by_cost != 1):
        return hardware
    return f"{hardware} {_sentence(offers[0])}"


def _sentence(offer: HostedOffer) -> str:
    speed = offer.published_output_tokens_per_s
    fast = f"published speed {speed:g} tokens/s" if speed else "no published speed"
    return (
        f"A hosted API costs ${offer.usd_per_month:,.0f} a month at {offer.provider} ({offer.name}; price published "
        f"{offer.as_of}, {fast}; your service levels are not verified)."
    )
