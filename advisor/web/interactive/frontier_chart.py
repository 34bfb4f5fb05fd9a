"""The data of the interactive price-speed chart: every deployment, hosted API and measured run with all its figures."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from advisor.fidelity import nearest_rows, scorecard
from advisor.result import Answer, ApiOption, HostedOffer, Option, ParetoPoint
from advisor.templatetags.units import number
from advisor.web.charts import plots as charts
from advisor.web.interactive.chart_data import Chart
from catalog.models import Accelerator, ServedModel
from catalog.pricing import reader

Json = dict[str, Any]
AT_CAPACITY = "output_tokens_per_s_per_accelerator_at_capacity"
PER_USER = "output_tokens_per_s_per_user"
METRICS: tuple[tuple[str, str, str, str], ...] = (  # figure of a point, name of the axis, unit, better
    ("tpot_ms", "TPOT p95, ms", "ms", "low"),
    ("latency_ms", "latency p95, ms", "ms", "low"),
    (PER_USER, "tokens/s per user", "number", "high"),
    (AT_CAPACITY, "output tokens/s per chip, at capacity", "number", "high"),
    ("usd_per_mtok_output", "USD per M output tokens", "usd", "low"),
    ("usd_per_mtok_input", "USD per M tokens", "usd", "low"),
    ("usd_per_mtok_blended", "USD per M tokens, blended", "usd", "low"),
    ("usd_per_month", "USD per month", "usd", "low"),
    ("ttft_ms", "TTFT p95, ms", "ms", "low"),
    ("watts", "average power, W", "number", "low"),
    ("kgco2e_per_mtok", "kg CO₂e per M output tokens", "number", "low"),
)
KEYS = tuple(key for key, *_ in METRICS)
OF_VECTORS = {"kgco2e_per_mtok": "kg CO₂e per M tokens"}
NAMES_OF_STATES = {
    "ranked": "ranked, simulated",
    "owned": "ranked, on machines you own",
    "api": "hosted API, published figures",
    "estimate": "analytical estimate, not simulated",
    "missed": "misses the SLO",
    "measured": "measured run",
}
MAX_MEASURED = 40


@reader.in_usd
def chart(answer: Answer, spec: Mapping[str, Any], base: str, points: Sequence[ParetoPoint]) -> Chart:
    """The figure; `points` with each rank on one of them, `base` + rank is an option's address."""
    embedding = any(point.latency_ms is not None for point in points)
    slo = spec.get("slo") or {}
    slo_ms = number(slo.get("e2e_ms_p95" if embedding else "tpot_ms_p95"))
    names = charts.VECTOR_AXES if embedding else charts.TOKEN_AXES
    svg = charts.pareto(points, slo_ms, base, names)
    title = "Price vs. speed"
    if not svg:
        return Chart(id="frontier", title=title, svg="", data={})
    rows = [*deployments(answer, points, slo_ms), *hosted(answer, slo_ms)]
    measured_rows = measured(answer, spec)
    shown = [key for key, *_ in METRICS if sum(row["figures"].get(key) is not None for row in rows) > 1]
    metrics = [
        {
            "key": key,
            "name": (OF_VECTORS.get(key, name) if embedding else name),
            "unit": unit,
            "better": better,
            "limit": limit_of(key, spec),
        }
        for key, name, unit, better in METRICS
        if key in shown
    ]
    data = {
        "kind": "frontier",
        "x": "latency_ms" if embedding else "tpot_ms",
        "y": "usd_per_mtok_input" if embedding else "usd_per_mtok_output",
        "metrics": metrics,
        "chips": chips(row["chip"] for row in [*rows, *measured_rows] if row["chip"]),
        "states": {state: name for state, name in NAMES_OF_STATES.items()},
        "base": base,
        "rows": [packed(row, shown) for row in [*rows, *measured_rows]],
    }
    return Chart(id="frontier", title=title, svg=svg, data=data)


def packed(row: Json, metrics: Sequence[str]) -> Json:
    """A row with its figures in the order of the metrics, without what it does not have."""
    figures = [row["figures"].get(key) for key in metrics]
    kept = {key: value for key, value in row.items() if value not in (None, "", {}) and key != "figures"}
    return kept | {"figures": figures}


def limit_of(key: str, spec: Mapping[str, Any]) -> Json | None:
    """The workload's limit on a figure, to be drawn as a line."""
    slo, constraints = spec.get("slo") or {}, spec.get("constraints") or {}
    given = {"tpot_ms": "tpot_ms_p95", "ttft_ms": "ttft_ms_p95", "latency_ms": "e2e_ms_p95"}
    tpot_ms = number(slo.get("tpot_ms_p95"))
    if key == PER_USER:
        return {"value": 1000 / tpot_ms, "name": "SLO"} if tpot_ms else None
    if key == "usd_per_month":
        budget = number(constraints.get("max_usd_per_month"))
        return {"value": budget, "name": "budget"} if budget else None
    limit = number(slo.get(given[key])) if key in given else None
    return {"value": limit, "name": "SLO"} if limit else None


# --- rows -------------------------------------------------------------------------------------------------------


def deployments(answer: Answer, points: Sequence[ParetoPoint], slo_ms: float | None) -> Iterator[Json]:
    """The points that the server-drawn chart shows, ranked ones first and with their 90% ranges."""
    options = {option.rank: option for option in answer.deployments}
    for point in reversed(charts.layered(charts.in_view(points, slo_ms)[0])):
        option = options.get(point.rank) if point.rank else None
        owned = option is not None and option.term == "owned"
        state = ("owned" if owned else "ranked") if point.rank else "estimate" if point.meets_slo else "missed"
        yield {
            "label": point.label.removesuffix(", estimated"),
            "chip": point.accelerator,
            "state": state,
            "rank": point.rank,
            "figures": {key: getattr(point, key) for key in KEYS},
            "ranges": ranges(option) if option else {},
        }


def ranges(option: Option) -> dict[str, list[float]]:
    """The option's 90% ranges by metric."""
    found = option.interval
    given = {
        "tpot_ms": found.tpot_ms_p95,
        "ttft_ms": found.ttft_ms_p95,
        "latency_ms": found.latency_ms_p95,
        "usd_per_mtok_output": found.usd_per_mtok_output,
        "usd_per_mtok_input": found.usd_per_mtok_input,
        "usd_per_mtok_blended": found.usd_per_mtok_blended,
        "usd_per_month": found.usd_per_month,
        "watts": found.watts,
        "kgco2e_per_mtok": found.kgco2e_per_mtok,
    }
    known = {key: known_ends for key, ends in given.items() if (known_ends := both(ends))}
    if option.money and option.money.ranges:
        known["usd_per_month"] = [option.money.ranges.usd_per_month[0], option.money.ranges.usd_per_month[2]]
    if "tpot_ms" in known and min(known["tpot_ms"]) > 0:
        known[PER_USER] = [1000 / end for end in reversed(known["tpot_ms"])]
    if rates := both(found.output_tokens_per_s_at_capacity):
        known[AT_CAPACITY] = [rate / option.accelerator_count for rate in rates]
    return known


def both(ends: Sequence[float | None] | None) -> list[float] | None:
    """A range with both ends known."""
    found = [end for end in ends or [] if end is not None]
    return found if len(found) == 2 else None


def hosted(answer: Answer, slo_ms: float | None) -> Iterator[Json]:
    """Every hosted API but those far slower than the SLO; speeds are means or medians of one request, not p95."""
    slowest = charts.MAX_TIMES_SLO * slo_ms if slo_ms else math.inf
    ranks = {(each.provider, each.name): each.rank for each in answer.recommendations if isinstance(each, ApiOption)}
    for offer in answer.hosted:
        speed = offer.published_output_tokens_per_s
        if speed and 1000 / speed > slowest and not offer.rank:
            continue
        yield {
            "label": f"{offer.provider_name or offer.provider} API, {offer.name}",
            "chip": offer.accelerator,
            "state": "api",
            "rank": ranks.get((offer.provider, offer.name)),
            "note": f"published on {offer.as_of}; the speed is not a p95",
            "figures": {
                "tpot_ms": 1000 / speed if speed else None,
                PER_USER: speed,
                "ttft_ms": published_ttft_ms(offer),
                "usd_per_mtok_output": offer.usd_per_mtok_output,
                "usd_per_mtok_blended": offer.usd_per_mtok_blended,
                "usd_per_month": offer.usd_per_month,
            },
        }


def published_ttft_ms(offer: HostedOffer) -> float | None:
    return next((speed.ttft_ms for speed in offer.speeds if speed.ttft_ms), None)


def measured(answer: Answer, spec: Mapping[str, Any]) -> list[Json]:
    """Measured runs of the same model with a speed for users and a throughput, those most like the first choice."""
    first = next(iter(answer.deployments), None)
    if first is None or first.is_embedding or not isinstance(spec.get("model"), str):
        return []
    row = ServedModel.objects.filter(slug=spec["model"]).only("hf_id").first()
    model = row.hf_id if row else spec["model"]
    lengths = [
        nearest_rows.mean_tokens((spec.get("traffic") or {}).get(f"{way}_tokens")) for way in ("input", "output")
    ]
    asked = nearest_rows.asked_for(first, model, (None, None), lengths[0] or 0.0, lengths[1] or 0.0)
    same = nearest_rows.runs_of_model(model)
    near = nearest_rows.nearest(asked, same, most=len(same))
    return list(islice((found for _, run in near if (found := measured_run(run)) is not None), MAX_MEASURED))


def measured_run(run: nearest_rows.Run) -> Json | None:
    """A measured run as a point; None without TPOT or throughput."""
    lines = nearest_rows.headlines(run.lines)
    by_kind = {scorecard.kind_of(line.row): line.row for line in lines if line.row.measured}
    tpot, rate = by_kind.get("tpot"), by_kind.get("throughput")
    if tpot is None or rate is None or not rate.metric.startswith("output_tokens_per_s"):
        return None
    per_chip = (rate.measured or 0.0) / (1 if rate.metric.endswith("_per_gpu") else rate.chips)
    ttft = by_kind.get("ttft")
    of = run.situation
    several = "s" * (rate.concurrency != 1)
    users = f", {rate.concurrency:g} concurrent request{several}" if rate.concurrency else ""
    return {
        "label": f"{rate.chips} x {of.accelerator}, {of.weights}, {of.framework} {of.framework_version}".rstrip(),
        "chip": of.accelerator,
        "state": "measured",
        "href": nearest_rows.address((line.row.key for line in lines), nearest_rows.imported(lines[0])),
        "note": f"means at {of.isl:g} input and {of.osl:g} output tokens{users}; no price",
        "figures": {
            "tpot_ms": tpot.measured,
            PER_USER: 1000 / (tpot.measured or 1.0),
            AT_CAPACITY: per_chip,
            "ttft_ms": ttft.measured if ttft else None,
        },
    }


def chips(slugs: Iterable[str]) -> Json:
    """Name and vendor of each chip, in the order of the rows."""
    wanted = list(dict.fromkeys(slugs))
    found = {row.slug: row for row in Accelerator.objects.filter(slug__in=wanted).only("slug", "name", "vendor")}
    return {
        slug: {"name": found[slug].name, "vendor": found[slug].vendor}
        if slug in found
        else {"name": slug, "vendor": ""}
        for slug in wanted
    }
