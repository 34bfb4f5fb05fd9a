"""Hosted APIs in the answer: the bill, what a published figure says about the limits, and why one is not ranked."""

import datetime
import math
import re
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from advisor.answer.money import traffic_ratio, within_capacity
from advisor.answer.question import Question
from advisor.engine.cost import HOURS_PER_MONTH, break_even_tokens
from advisor.engine.search import ALLOWED_QUALITY, QUALITY_RANK, missing_figure
from advisor.engine.terms import Workload, usd_text
from advisor.inputs import Snapshot, areas_of, hosted_apis, number, rounded
from advisor.result import HostedOffer, Option, Rejection, SloState, Speed, TokenCharge
from advisor.workload import SWITCHED_OFF, trace_of

BASIS = "published, not estimated"
OUTLIER_RATIO = 3.0  # a price this many times below or above the median of the other providers is marked
OTHERS_NEEDED = 3  # providers to compare a price with
Json = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Miss:
    """A limit that an endpoint misses or cannot be shown to keep."""

    reason: str
    detail: str
    smallest_change: str
    change: Json
    limit: float | None = None
    reached: float | None = None


def hosted(question: Question, rows: Sequence[Json], options: Sequence[Option],
           bound_usd_per_month: float | None = None) -> list[HostedOffer]:  # fmt: skip
    """Every hosted API of the model with its monthly bill for this traffic, the cheapest first.

    `bound_usd_per_month`: the price beyond which nothing is ranked.
    """
    spec = question.spec
    rows = [row for row in rows if hosted_apis.allowed(spec, row)]
    rented = cheapest_rented(options)
    offers = [_offer(question, row, rows, rented, bound_usd_per_month) for row in rows]
    offers.sort(key=lambda o: (o.usd_per_month, o.provider, o.name))
    if spec["objective"] != "cost" or not asked_for(spec):
        return offers
    costs = [*(option.usd_per_month for option in options), *(offer.usd_per_month for offer in offers)]
    return [o.changed(rank_by_cost=1 + sum(usd < o.usd_per_month for usd in costs)) for o in offers]


def asked_for(spec: Json) -> bool:
    """Whether tokens may be bought."""
    return "api" in spec["constraints"]["acquisition"]


def cheapest_rented(options: Sequence[Option]) -> Option | None:
    rented = [option for option in options if option.acquisition == "rent"]
    return min(rented, key=lambda option: option.usd_per_month, default=None)


def _offer(
    question: Question,
    row: Json,
    rows: Sequence[Json],
    rented: Option | None,
    bound_usd_per_month: float | None,
) -> HostedOffer:
    spec, workload = question.spec, question.workload
    tokens = hosted_apis.tokens_of(spec)
    gross = 1.0 + hosted_apis.vat_fraction(spec, question.snapshot)
    usd = hosted_apis.usd_per_request(tokens, row) * gross
    requests_per_month = spec["traffic"]["requests_per_s"]["mean"] * hosted_apis.SECONDS_PER_MONTH
    requests_per_forecast_month = requests_per_month * traffic_ratio(workload)
    charges = bill(tokens, row, requests_per_forecast_month, gross)
    monthly = sum(charge.usd_per_month for charge in charges)
    most = requests_per_month * max(workload.forecast, default=1.0) * usd
    budget = spec["constraints"]["max_usd_per_month"]
    blended = number(usd / (tokens["input"] + tokens["output"]) * hosted_apis.MTOK)
    outlier, (ratio, others) = price_outlier(tokens, row, rows), price_ratio(tokens, row, rows)
    state, open_points = slo_state(spec, row)
    misses = [*misses_of(question, row, most, bound_usd_per_month)] if asked_for(spec) else []
    return HostedOffer(
        **row | {"notes": None, "speeds": [Speed(**speed) for speed in row["speeds"]]},
        acquisition="api",
        basis=BASIS,
        usd_per_month=rounded(monthly),
        usd_per_mtok_blended=blended,
        within_budget=budget is None or most <= budget,
        rank_by_cost=None,
        rank=None,
        **_break_even(workload, blended, rented),
        bill=charges,
        price_outlier=outlier,
        price_age_days=age_days(question.snapshot, row),
        price_ratio=number(ratio) if ratio else None,
        price_others=others,
        slo_state=state,
        warnings=[
            *([outlier] if outlier else []),
            *open_points,
            *_unknowns(row),
            *([row["notes"]] if row.get("notes") else []),
        ],
        rejection=rejection(row, misses[0]) if misses else None,
    )


def rejection(row: Json, miss: Miss) -> Rejection:
    return Rejection(
        accelerator=f"{row['provider']} API",
        reason=miss.reason,
        detail=miss.detail,
        limit=None if miss.limit is None else number(miss.limit),
        reached=None if miss.reached is None else number(miss.reached),
        smallest_change=miss.smallest_change,
        change=miss.change,
    )


def bill(tokens: Mapping[str, float], row: Json, requests_per_month: float, gross: float = 1.0) -> list[TokenCharge]:
    """The month by kind of token at `gross` times the list price.

    Cached input costs as much as other input where no price for it is published.
    """
    cached_usd = row["usd_per_mtok_cached_input"]
    kinds = [
        ("input", tokens["input"] - tokens["cached"], row["usd_per_mtok_input"]),
        ("cached input", tokens["cached"], row["usd_per_mtok_input"] if cached_usd is None else cached_usd),
        ("output", tokens["output"], row["usd_per_mtok_output"]),
    ]
    return [
        TokenCharge(
            name=name,
            tokens_per_month=rounded(each * requests_per_month),
            usd_per_mtok=usd,
            usd_per_month=rounded(each * requests_per_month * usd / hosted_apis.MTOK * gross),
        )
        for name, each, usd in kinds
        if each > 0
    ]


def _break_even(workload: Workload, usd_per_mtok: float | None, rented: Option | None) -> Json:
    """Tokens a month (prompt and answer) above which the cheapest rented option costs less."""
    tokens = within = None
    if rented is not None and usd_per_mtok:
        tokens = break_even_tokens(rented.usd_per_month, usd_per_mtok)
        within = within_capacity(rented, workload, tokens)
    return {
        "break_even_tokens_per_month": number(tokens) if tokens else None,
        "break_even_with": rented.label if rented and tokens else None,
        "break_even_within_capacity": within,
    }


def price_ratio(tokens: Mapping[str, float], row: Json, rows: Sequence[Json]) -> tuple[float | None, int]:
    """(price of a mean request over the median of the offers of other providers, their number); None: no other."""
    others = [hosted_apis.usd_per_request(tokens, r) for r in rows if r["provider"] != row["provider"]]
    usual = statistics.median(others) if others else 0.0
    return (hosted_apis.usd_per_request(tokens, row) / usual if usual > 0 else None), len(others)


def price_outlier(tokens: Mapping[str, float], row: Json, rows: Sequence[Json]) -> str:
    """How far the price of a mean request is from the median of the other providers; empty: in line, or too few."""
    ratio, others = price_ratio(tokens, row, rows)
    if len({r["provider"] for r in rows} - {row["provider"]}) < OTHERS_NEEDED or not ratio:
        return ""
    if 1 / OUTLIER_RATIO <= ratio <= OUTLIER_RATIO:
        return ""
    return f"unusual price: {of_median(ratio, others)}; confirm it before you rely on it"


def of_median(ratio: float, others: int) -> str:
    side = f"{ratio:.1f} times" if ratio > 1 else f"{ratio:.0%} of"
    offers = f"the median of the {others} offers of other providers" if others > 1 else "the only other offer"
    return f"{side} {offers}"


def age_days(snapshot: Snapshot, row: Json) -> int:
    """Days from the date of the price to the question."""
    asked, read = (datetime.date.fromisoformat(day) for day in (snapshot.asked_on, row["as_of"]))
    return max((asked - read).days, 0)


# --- what is published about the limits -------------------------------------------------------------------------


def needed_tokens_per_s(slo: Json) -> float | None:
    """The tighter of the requested speed per user and the TPOT limit, in tokens/s."""
    limits = [slo["tokens_per_s_per_user"], 1e3 / slo["tpot_ms_p95"] if slo["tpot_ms_p95"] else None]
    return max((limit for limit in limits if limit), default=None)


def figures_of(row: Json, name: str) -> list[float]:
    return [speed[name] for speed in row["speeds"] if speed[name] is not None]


def slo_state(spec: Json, row: Json) -> tuple[SloState, list[str]]:
    """(what the published figures say about the latency limits, the points that they leave open)."""
    slo, needed = spec["slo"], needed_tokens_per_s(spec["slo"])
    rates, ttfts = figures_of(row, "output_tokens_per_s"), figures_of(row, "ttft_ms")
    open_points = []
    if slo["ttft_ms_p95"]:
        known = f"a median of {min(ttfts):,.0f} ms is" if ttfts else "no figure is"
        open_points.append(
            f"TTFT: {known} published, so the limit of {slo['ttft_ms_p95']:,g} ms at p95 is not verified"
        )
    if slo["e2e_ms_p95"]:
        open_points.append(f"end-to-end latency: the limit of {slo['e2e_ms_p95']:,g} ms at p95 is not verified")
    if needed is None:
        return ("not verified" if open_points else "no limit"), open_points
    if not rates or max(rates) < needed:
        return ("missed" if rates else "not verified"), open_points
    if min(rates) < needed:
        readings = ", ".join(f"{s['output_tokens_per_s']:g} ({s['kind']}, {s['as_of']})" for s in row["speeds"])
        return "disputed", [f"published speeds differ: {readings} tokens/s; you need {needed:.3g}", *open_points]
    said = f"published speeds are medians, so {needed:.3g} tokens/s are not verified for 95 of 100 requests"
    return ("not verified" if open_points else "reached"), [said, *open_points]


def _unknowns(row: Json) -> Iterator[str]:
    """What the provider does not publish."""
    missing = [
        name
        for name, known in (
            ("speed", figures_of(row, "output_tokens_per_s")),
            ("weight format", row.get("quantization")),
            ("serving location", row.get("locations")),
            ("context limit", row["max_input_tokens"]),
        )
        if not known
    ]
    if missing:
        yield f"not published, as far as the catalog knows: {', '.join(missing)}"


def misses_of(question: Question, row: Json, usd_per_month: float, bound_usd_per_month: float | None) -> Iterator[Miss]:
    """Why this endpoint is not ranked, the limit that is easiest to change first."""
    spec, workload = question.spec, question.workload
    yield from _speed_misses(spec, row)
    yield from _price_misses(spec, usd_per_month, bound_usd_per_month)
    yield from _length_misses(spec, row)
    yield from _place_misses(spec, row)
    yield from _quality_misses(question, row)
    yield from _unknown_hardware(spec, row)
    rates = figures_of(row, "output_tokens_per_s")
    if figure := missing_figure(workload, 1 / rates[0] if rates else None):
        yield Miss(
            reason="unknown",
            detail=f"the provider does not publish its {figure}, which the objective {workload.objective} needs",
            smallest_change="objective: cost",
            change={"objective": "cost"},
        )


def _speed_misses(spec: Json, row: Json) -> Iterator[Miss]:
    slo, needed, rates = spec["slo"], needed_tokens_per_s(spec["slo"]), figures_of(row, "output_tokens_per_s")
    if slo.get("confidence") not in (None, SWITCHED_OFF):
        yield Miss(
            reason="misses_slo",
            detail=f"nobody publishes its p95 latencies, so a confidence of {slo['confidence']:g} cannot be shown",
            smallest_change="slo.confidence: null",
            change={"slo.confidence": None},
        )
    if needed and rates and max(rates) < needed:
        yield _too_slow(slo, needed, max(rates))
    ttfts = figures_of(row, "ttft_ms")
    if slo["ttft_ms_p95"] and ttfts and min(ttfts) > slo["ttft_ms_p95"]:
        yield Miss(
            reason="misses_slo",
            detail=f"published median TTFT {min(ttfts):,.0f} ms > {slo['ttft_ms_p95']:,g} ms",
            smallest_change=f"ttft_ms_p95 >= {math.ceil(min(ttfts))}",
            change={"slo.ttft_ms_p95": math.ceil(min(ttfts))},
            limit=slo["ttft_ms_p95"],
            reached=min(ttfts),
        )


def _too_slow(slo: Json, needed: float, fastest: float) -> Miss:
    """A speed limit that the fastest published figure misses."""
    changes: Json = {}
    if slo["tokens_per_s_per_user"] and slo["tokens_per_s_per_user"] > fastest:
        changes["tokens_per_s_per_user"] = math.floor(fastest)
    if slo["tpot_ms_p95"] and 1e3 / slo["tpot_ms_p95"] > fastest:
        changes["tpot_ms_p95"] = math.ceil(1e3 / fastest)
    signs = {"tokens_per_s_per_user": "<=", "tpot_ms_p95": ">="}
    return Miss(
        reason="misses_slo",
        detail=f"published speed {fastest:g} tokens/s < {needed:.3g} tokens/s per user",
        smallest_change=" and ".join(f"{key} {signs[key]} {value}" for key, value in changes.items()),
        change={f"slo.{key}": value for key, value in changes.items()},
        limit=needed,
        reached=fastest,
    )


def _price_misses(spec: Json, usd_per_month: float, bound_usd_per_month: float | None) -> Iterator[Miss]:
    most = spec["constraints"]["max_usd_per_month"] or bound_usd_per_month
    if most is not None and usd_per_month > most:
        needed = math.ceil(usd_per_month)
        yield Miss(
            reason="too_expensive",
            detail=f"{usd_text(usd_per_month)} a month > {usd_text(most)}",
            smallest_change=f"max_usd_per_month >= {needed}",
            change={"constraints.max_usd_per_month": needed},
            limit=most,
            reached=usd_per_month,
        )


def longest_tokens(spec: Json) -> float:
    """Tokens of a long request: prompt and answer, each at p95 where given; of a trace, the p95 of its requests."""
    if isinstance(trace := spec["traffic"].get("trace"), Mapping):
        return recorded_p95_tokens(trace["csv"])
    lengths = (spec["traffic"]["input_tokens"], spec["traffic"]["output_tokens"])
    return float(sum(each.get("p95") or each["mean"] for each in lengths))


@lru_cache(maxsize=4)
def recorded_p95_tokens(text: str) -> float:
    """p95 of prompt plus answer of a trace's requests."""
    trace = trace_of({"trace": {"csv": text}})
    assert trace is not None
    return trace.total_tokens(0.95)


def _length_misses(spec: Json, row: Json) -> Iterator[Miss]:
    limit, longest = row["max_input_tokens"], longest_tokens(spec)
    if limit and longest > limit:
        yield Miss(
            reason="does_not_fit",
            detail=f"long requests have {longest:,.0f} tokens (prompt and answer, p95); the endpoint takes {limit:,}",
            smallest_change=f"traffic.input_tokens: shorten prompts by {math.ceil(longest - limit):,} tokens at p95",
            change={},
            limit=limit,
            reached=longest,
        )


def _place_misses(spec: Json, row: Json) -> Iterator[Miss]:
    allow, deny = (spec["constraints"]["regions"][side] for side in ("allow", "deny"))
    if not allow and not deny:
        return
    places = {name for place in row.get("locations", []) for name in (place.casefold(), *areas_of(place))}
    if not places:
        yield _elsewhere("serving location unknown, and constraints.regions limits it", allow, deny)
    elif allow and not places & {name.casefold() for name in allow}:
        yield _elsewhere(f"serves from {', '.join(row['locations'])}, not from {', '.join(allow)}", allow, deny)
    elif places & {name.casefold() for name in deny}:
        yield _elsewhere(f"serves from {', '.join(row['locations'])}, which constraints.regions denies", allow, deny)


def _elsewhere(detail: str, allow: Sequence[str], deny: Sequence[str]) -> Miss:
    change: Json = {f"constraints.regions.{side}": [] for side, names in (("allow", allow), ("deny", deny)) if names}
    return Miss(
        reason="excluded",
        detail=detail,
        smallest_change=" and ".join(f"{path}: []" for path in change),
        change=change,
    )


def quality_of(word: str, native_dtype: str) -> str:
    """Quality of a format that a provider names only by its width; four bits below the native format are lossy."""
    bits, native = (int(match[0]) if (match := re.search(r"\d+", name)) else 16 for name in (word, native_dtype))
    return "lossless" if bits >= native else "near_lossless" if bits >= 8 else "lossy"


def _quality_misses(question: Question, row: Json) -> Iterator[Miss]:
    word, asked = row.get("quantization"), question.spec["constraints"]["quality"]
    if not word:
        return
    quality = quality_of(word, question.snapshot.model.get("native_dtype", "bf16"))
    if QUALITY_RANK[quality] > ALLOWED_QUALITY[asked]:
        needed = next(name for name, rank in ALLOWED_QUALITY.items() if rank >= QUALITY_RANK[quality])
        yield Miss(
            reason="unsupported",
            detail=f"serves {word} weights, which are {quality.replace('_', ' ')}; constraints.quality is {asked}",
            smallest_change=f"quality: {needed}",
            change={"constraints.quality": needed},
        )


def _unknown_hardware(spec: Json, row: Json) -> Iterator[Miss]:
    """Allow lists of hardware and software that the provider does not publish."""
    c = spec["constraints"]
    if c["accelerators"]["allow"] and row["accelerator"] in c["accelerators"]["allow"]:
        return
    for key in ("accelerators", "vendors", "frameworks", "formats", "kv_formats"):
        if c.get(key, {}).get("allow"):
            known = f"runs on {row['accelerator']}" if row["accelerator"] else "hardware and software not published"
            yield Miss(
                reason="excluded",
                detail=f"{known}, and constraints.{key} allows only {', '.join(c[key]['allow'][:5])}",
                smallest_change=f"constraints.{key}.allow: []",
                change={f"constraints.{key}.allow": []},
            )


def usd_per_hour(offer: HostedOffer) -> float:
    return offer.usd_per_month / HOURS_PER_MONTH
