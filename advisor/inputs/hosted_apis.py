"""Hosted APIs (pay per token): published prices of the model, compared with the cost of own deployments."""

import datetime
import math
from collections.abc import Mapping, Sequence
from typing import Any

from advisor.engine.cost import HOURS_PER_MONTH
from advisor.inputs.offers import discounts_of
from advisor.inputs.rounding import number
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


def hosted(spec: Json, rows: Sequence[Json], options: Sequence[Json]) -> list[Json]:
    """Each endpoint that serves the model with its monthly cost for this traffic, cheapest first."""
    offers = [_offer(spec, row, best_rented(options)) for row in rows if provider_allowed(spec, row)]
    offers.sort(key=lambda o: (o["usd_per_month"], o["provider"], o["name"]))
    if spec["objective"] == "cost" and "api" in spec["constraints"]["acquisition"]:
        for offer in offers:
            cheaper = [r for r in [*options, *offers] if r["usd_per_month"] < offer["usd_per_month"]]
            offer["rank_by_cost"] = 1 + len(cheaper)
    return offers


def provider_allowed(spec: Json, row: Json) -> bool:
    """Whether the workload's allow and deny lists admit the provider."""
    c = spec["constraints"]
    allowed = not c["providers"]["allow"] or row["provider"] in c["providers"]["allow"]
    return allowed and row["provider"] not in c["providers"]["deny"]


def best_rented(options: Sequence[Json]) -> Json | None:
    rented = [r for r in options if r["acquisition"] == "rent"]
    return min(rented, key=lambda r: float(r["usd_per_month"]), default=None)


def tokens_of(spec: Json) -> dict[str, float]:
    """Tokens of a mean request: `input`, of these `cached` (prefix cache hits), and `output`."""
    traffic = spec["traffic"]
    prompt = float(traffic["input_tokens"]["mean"])
    cached = prompt * traffic["prefix_cache_hit_rate"]
    return {"input": prompt, "cached": cached, "output": float(traffic["output_tokens"]["mean"])}


def usd_per_request(tokens: Mapping[str, float], row: Json) -> float:
    """The price of a mean request. Without a price for cached tokens, they cost as much as other input."""
    uncached, cached = row["usd_per_mtok_input"], row["usd_per_mtok_cached_input"]
    cached = uncached if cached is None else cached
    usd_input = (tokens["input"] - tokens["cached"]) * uncached + tokens["cached"] * cached
    return float(usd_input + tokens["output"] * row["usd_per_mtok_output"]) / MTOK


def _offer(spec: Json, row: Json, rented: Json | None) -> Json:
    tokens = tokens_of(spec)
    usd = usd_per_request(tokens, row)
    per_month = spec["traffic"]["requests_per_s"]["mean"] * SECONDS_PER_MONTH
    monthly = usd * per_month
    budget = spec["constraints"]["max_usd_per_month"]
    return {
        **row,
        "acquisition": "api",
        "basis": BASIS,
        "usd_per_month": number(monthly),
        "usd_per_mtok_blended": number(usd / (tokens["input"] + tokens["output"]) * MTOK),
        "within_budget": budget is None or monthly <= budget,
        "rank_by_cost": None,
        **_break_even(usd, tokens, rented),
        "warnings": _warnings(spec, row),
    }


def _break_even(usd: float, tokens: Mapping[str, float], rented: Json | None) -> Json:
    """Tokens per month (input and output) above which the best rented option is cheaper, if it can serve them."""
    if rented is None or usd <= 0:
        return {"break_even_tokens_per_month": None, "break_even_with": None, "break_even_within_capacity": None}
    requests = rented["usd_per_month"] / usd
    capacity = (rented["capacity_requests_per_s"] or math.inf) * SECONDS_PER_MONTH
    return {
        "break_even_tokens_per_month": number(requests * (tokens["input"] + tokens["output"])),
        "break_even_with": rented["label"],
        "break_even_within_capacity": requests <= capacity,
    }


def _warnings(spec: Json, row: Json) -> list[str]:
    """Where the published figures miss the workload's limits."""
    warnings = []
    slo, speed = spec["slo"], row["published_output_tokens_per_s"]
    limits = [1e3 / slo["tpot_ms_p95"]] if slo["tpot_ms_p95"] else []
    limits += [slo["tokens_per_s_per_user"]] if slo["tokens_per_s_per_user"] else []
    if speed is not None and limits and speed < max(limits):
        warnings.append(
            f"the published speed of {speed:g} tokens/s is below your limit of {max(limits):.3g} tokens/s per user"
        )
    longest = spec["traffic"]["input_tokens"].get("p95") or spec["traffic"]["input_tokens"]["mean"]
    if row["max_input_tokens"] and longest > row["max_input_tokens"]:
        warnings.append(f"accepts prompts of at most {row['max_input_tokens']:,} tokens")
    return warnings


def verdict(spec: Json, offers: Sequence[Json], verdict_on_chips: str, has_options: bool) -> str:
    """The verdict, with a sentence on the cheapest hosted API if it is cheaper or the only acquisition asked for."""
    acquisition = spec["constraints"]["acquisition"]
    if acquisition == ["api"]:
        return (
            _hosted_sentence(offers[0]) if offers else "No provider in the catalog hosts this model at a current price."
        )
    if not offers or "api" not in acquisition or (has_options and offers[0]["rank_by_cost"] != 1):
        return verdict_on_chips
    return f"{verdict_on_chips} {_hosted_sentence(offers[0])}"


def _hosted_sentence(first: Json) -> str:
    speed = first["published_output_tokens_per_s"]
    speed_text = f"published speed {speed:g} tokens/s" if speed else "speed not published"
    return (
        f"By the token, a hosted API costs ${first['usd_per_month']:,.0f} a month at {first['provider']} "
        f"({first['name']}; price published {first['as_of']}, {speed_text}; service levels not verified)."
    )
