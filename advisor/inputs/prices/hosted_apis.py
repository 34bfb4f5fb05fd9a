"""Hosted APIs (pay per token): published prices and speeds of the model."""

import datetime
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from django.db.models import QuerySet

from advisor.engine.cost import HOURS_PER_MONTH
from advisor.engine.terms import exact_text
from advisor.inputs.prices.offers import discounts_of
from advisor.inputs.snapshot import Snapshot
from advisor.workload import prompts_of
from catalog.models import Accelerator, ApiPrice, ApiProvider, Organisation
from catalog.pricing.derived import has_expired, known_on

SECONDS_PER_MONTH = HOURS_PER_MONTH * 3600.0
VAT = "vat-fraction"
MTOK = 1e6
Json = dict[str, Any]


# --- rows to a snapshot -----------------------------------------------------------------------------------------


def rows(hf_id: str, organisation: Organisation | None, day: datetime.date) -> list[Json]:
    """The newest price of each endpoint that serves the model, known on `day`, not expired and not withdrawn."""
    return paid(ApiPrice.objects.filter(model__hf_id=hf_id), organisation, day)


def paid(wanted: QuerySet[ApiPrice], organisation: Organisation | None, day: datetime.date) -> list[Json]:
    """The same of any endpoints, whose rows are all among those wanted."""
    prices = list(known_on(wanted, day).order_by("as_of", "pk"))
    newest = {(p.provider, p.name): p for p in prices}
    readings: dict[tuple[str, str], list[ApiPrice]] = defaultdict(list)  # a newer price list may have less
    for p in prices:
        readings[(p.provider, p.name)].append(p)
    providers = {p.slug: p for p in ApiProvider.objects.all()}
    makers = {a.vendor: a.slug for a in Accelerator.objects.order_by("-slug") if "api" in a.bought_as}
    discounts = {d.provider: d for d in discounts_of(organisation, day) if not d.accelerator_id and not d.term}
    return [
        _row(
            p,
            readings[(p.provider, p.name)],
            providers.get(p.provider),
            makers.get(p.provider),
            1.0 - discounts[p.provider].discount_fraction if p.provider in discounts else 1.0,
        )
        for p in sorted(newest.values(), key=lambda p: (p.provider, p.name))
        if not has_expired(p.as_of, day) and not (p.withdrawn and p.withdrawn <= day)
    ]


def _row(
    p: ApiPrice, readings: Sequence[ApiPrice], host: ApiProvider | None, accelerator: str | None, paid_fraction: float
) -> Json:
    """`readings` are all rows of the endpoint, oldest first; formats, limits and speeds may stand in an older one.

    `accelerator`: that of the provider if it makes its own, for endpoints whose hardware is not stated.
    """

    def usd(value: Any) -> float | None:
        return None if value is None else float(value) * paid_fraction

    def newest(name: str) -> Any:
        return next((value for row in reversed(readings) if (value := getattr(row, name))), None)

    speeds = sorted(map(_speed, (row for row in readings if row.speed_source)), key=_best_first)
    return {
        "provider": p.provider,
        "provider_name": host.name if host else p.provider,
        "base_url": host.base_url if host else "",
        "locations": host.locations if host else [],
        "name": p.name,
        "accelerator": newest("hardware") or accelerator,
        "quantization": newest("quantization") or "",
        "notes": newest("notes") or "",
        "usd_per_mtok_input": usd(p.usd_per_mtok_input),
        "usd_per_mtok_cached_input": usd(p.usd_per_mtok_cached_input),
        "usd_per_mtok_output": usd(p.usd_per_mtok_output),
        "discount_fraction": round(1.0 - paid_fraction, 9),
        "max_input_tokens": newest("max_input_tokens"),
        "published_output_tokens_per_s": speeds[0]["output_tokens_per_s"] if speeds else None,
        "speed_source": speeds[0]["source"] if speeds else "",
        "speeds": speeds,
        "as_of": p.as_of.isoformat(),
        "source": p.source,
    }


def _speed(row: ApiPrice) -> Json:
    return {
        "output_tokens_per_s": row.output_tokens_per_s,
        "ttft_ms": row.ttft_ms,
        "kind": row.speed_kind or "stated",
        "as_of": (row.speed_as_of or row.as_of).isoformat(),
        "source": row.speed_source,
    }


def _best_first(speed: Json) -> tuple[bool, int]:
    """Sort key: measured before stated, then the newest."""
    return speed["kind"] != "measured", -datetime.date.fromisoformat(speed["as_of"]).toordinal()


def chip_vendor_prices(rows: Sequence[Json], vendors: Mapping[str, str]) -> dict[str, str]:
    """A sentence for each chip that its vendor offers only as a hosted API: the price of this model there.

    `vendors`: by slug of the accelerator.
    """
    sentences: dict[str, str] = {}
    for row in rows:
        if row["accelerator"] and vendors.get(row["accelerator"]) == row["provider"]:
            prices = [exact_text(row[f"usd_per_mtok_{token}"]) for token in ("input", "output")]
            cost = f"{prices[0]} input, {prices[1]} output per million tokens"
            sentences.setdefault(row["accelerator"], f"{row['provider']} hosts this model ({cost})")
    return sentences


# --- one endpoint and one workload -----------------------------------------------------------------------------------


def allowed(spec: Json, row: Json) -> bool:
    """Whether the planner's providers leave it."""
    c = spec["constraints"]["providers"]
    return (not c["allow"] or row["provider"] in c["allow"]) and row["provider"] not in c["deny"]


def tokens_of(spec: Json) -> dict[str, float]:
    """Tokens of a mean request: prompt, the part of it that the prefix cache holds, answer."""
    traffic = spec["traffic"]
    prompts, hit_fraction, _ = prompts_of(traffic)
    prompt = prompts.mean_tokens
    return {"input": prompt, "cached": prompt * hit_fraction, "output": float(traffic["output_tokens"]["mean"])}


def vat_fraction(spec: Json, snapshot: Snapshot) -> float:
    """VAT that cannot be recovered, which comes on top of the list price."""
    row = snapshot.assumptions[VAT]
    return float(spec.get("tco", {}).get(VAT, row["value"]))


def usd_per_request(tokens: Mapping[str, float], row: Json) -> float:
    """The price of a mean request; cached tokens cost as much as others where no price for them is published."""
    input_usd, cached_usd = row["usd_per_mtok_input"], row["usd_per_mtok_cached_input"]
    usd_cached = tokens["cached"] * (input_usd if cached_usd is None else cached_usd)
    usd_input = (tokens["input"] - tokens["cached"]) * input_usd
    return float(usd_input + usd_cached + tokens["output"] * row["usd_per_mtok_output"]) / MTOK
