"""A finished advice made ready to read: what the pages show, and its CSV."""

import csv
import io
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from advisor.answer import joined
from advisor.engine.search import MAX_RANKED
from advisor.engine.spec import kind_named
from advisor.report import meeting
from advisor.templatetags.units import number
from advisor.web import charts, tuning_charts
from catalog.export import cell

VIEWS = ("cheapest", "fastest", "simplest", "greenest", "balanced")
CSV_COLUMNS = (
    "rank", "label", "accelerator", "accelerator_count", "provider", "instance", "region", "acquisition",
    "framework", "framework_version", "weights_dtype", "quantization", "kv_dtype", "tp", "pp", "ep", "dp", "replicas",
    "concurrency", "max_batched_tokens", "ttft_ms.p95", "tpot_ms.p95", "output_tokens_per_s", "requests_per_s",
    "utilisation", "usd_per_hour", "usd_per_month", "usd_per_mtok_input", "usd_per_mtok_output",
    "usd_per_mtok_blended", "tco_usd", "watts", "joules_per_output_token", "kgco2e_per_mtok", "bound", "basis",
    "price_as_of", "price_source", "latency_ms.p95", "input_tokens_per_s", "sequences_per_s",
)  # fmt: skip
SORTS: dict[str, tuple[str, str]] = {
    "rank": ("Rank", "rank"),
    "month": ("USD per month", "usd_per_month"),
    "mtok": ("USD per M output tokens", "usd_per_mtok_output"),
    "ttft": ("TTFT p95", "ttft_ms.p95"),
    "tpot": ("TPOT p95", "tpot_ms.p95"),
    "tokens": ("Output tokens/s", "output_tokens_per_s"),
    "power": ("Power", "watts"),
}


VECTOR_SORTS: dict[str, tuple[str, str]] = {
    "rank": ("Rank", "rank"),
    "month": ("USD per month", "usd_per_month"),
    "mtok": ("USD per M tokens", "usd_per_mtok_input"),
    "latency": ("Latency p95", "latency_ms.p95"),
    "tokens": ("Tokens/s", "input_tokens_per_s"),
    "sequences": ("Sequences/s", "sequences_per_s"),
    "power": ("Power", "watts"),
}  # of embeddings, which have no output tokens


def dig(value: Any, path: str) -> Any:
    for key in path.split("."):
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def page(result: Mapping[str, Any], spec: Mapping[str, Any], base: str, sort: str = "") -> dict[str, Any]:
    """Everything that the advice page shows of a result; `base` + rank is an option's address."""
    options = result.get("recommendations") or []
    embedding = not kind_named(spec.get("kind")).generates_tokens
    sorts, axes = (VECTOR_SORTS, charts.VECTOR_AXES) if embedding else (SORTS, charts.TOKEN_AXES)
    points = result.get("pareto") or []
    points = ranked_once([of_vectors(point) for point in points] if embedding else points, options)
    best = options[0] if options else None
    slo_tpot_ms = number(dig(spec, "slo.e2e_ms_p95" if embedding else "slo.tpot_ms_p95"))
    return {
        "result": result,
        "embedding": embedding,
        "papers": base.removesuffix("options/") + "documents/",
        "options": ordered(viewed(options, result.get("views") or {}), sort, sorts),
        "ranked_by": OBJECTIVES.get(str(spec.get("objective")), spec.get("objective")),
        "has_view_winners": has_view_winners(options),
        "cheaper_by_token": cheaper_by_token(result),
        "mix_parts": [
            {**part, "input_tokens": joined(part["input_tokens"])} for part in dig(result, "mix.parts") or []
        ],
        "by_token_alone": bool(result.get("hosted")) and dig(result, "workload.constraints.acquisition") == ["api"],
        "headers": headers(sort, sorts),
        "cards": cards(result),
        "best": option_context(best) if best else None,
        "pareto_svg": charts.pareto(points, slo_tpot_ms, base, axes),
        "tornado_svg": charts.tornado([bar for bar in result.get("sensitivity") or [] if "usd_per_month_low" in bar]),
        "pareto_rows": notable(points),
        "left_out": charts.in_view(points, slo_tpot_ms)[1],
        "price_dates": price_dates(options),
        "nearest": nearest(result),
        "rejected_counts": rejected_counts(result.get("rejected") or []),
    }


OBJECTIVES = {
    "cost": "cost",
    "latency": "latency",
    "throughput": "throughput per chip",
    "energy": "energy",
    "carbon": "carbon",
    "balanced": "a balance of cost, latency, energy and the declared scores",
    "simplicity": "simplicity (fewest chips first)",
}
REASONS = {
    "unpriced": "without a usable price",
    "misses_slo": "too slow",
    "outranked": "outranked",
    "unsupported": "not supported",
    "does_not_fit": "too small",
    "too_much_power": "drawing too much power",
    "too_expensive": "over budget",
    "too_many": "needing more chips than allowed",
    "excluded": "excluded by your constraints",
    "cooling": "needing different cooling",
}


def rejected_counts(rejected: Sequence[Mapping[str, Any]]) -> list[tuple[str, int]]:
    """How many for which reason, in words that fit behind a number, the most frequent first."""
    counts = Counter(str(item.get("reason", "")) for item in rejected)
    return [(REASONS.get(reason, reason.replace("_", " ")), count) for reason, count in counts.most_common()]


def viewed(options: Sequence[Mapping[str, Any]], views: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The options, each with the views that it wins."""
    return [{**option, "wins": [view for view in VIEWS if views.get(view) == option["rank"]]} for option in options]


def has_view_winners(options: Sequence[Mapping[str, Any]]) -> bool:
    """Whether options are there for a view alone: beyond the ten, or of an accelerator that is there already."""
    names = [option.get("accelerator_name") or option.get("accelerator") for option in options]
    return len(names) > MAX_RANKED or len(set(names)) < len(names)


def cheaper_by_token(result: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The cheapest hosted endpoint where it asks less than the first choice and the verdict does not say so."""
    options = result.get("recommendations") or []
    priced = [offer for offer in result.get("hosted") or [] if number(offer.get("usd_per_month"))]
    if not options or not priced or "By the token" in str(result.get("verdict")):
        return None
    least = min(priced, key=lambda offer: float(offer["usd_per_month"]))
    first = number(options[0].get("usd_per_month"))
    return least if first and least["usd_per_month"] < first else None


def of_vectors(point: Mapping[str, Any]) -> dict[str, Any]:
    """A point of embeddings with its two figures where the picture looks for them."""
    return {**point, "tpot_ms": point.get("latency_ms"), "usd_per_mtok_output": point.get("usd_per_mtok_input")}


def option_context(option: Mapping[str, Any]) -> dict[str, Any]:
    """One option with its pictures."""
    return {
        "option": option,
        "embedding": "latency_ms" in option,
        "memory_svg": charts.memory_bar(option.get("memory") or {}),
        "memory_rows": charts.memory_parts(option.get("memory") or {}),
        "steps": [steps for phase in ("prefill", "decode") if (steps := step_context(option, phase))],
        "plan": plan_rows(option),
        "waterfall_svg": charts.waterfall((option.get("money") or {}).get("waterfall") or []),
        "break_even": [meeting(b) for b in (option.get("money") or {}).get("break_even") or []],
        **tuning_charts.page(option),
    }


def step_context(option: Mapping[str, Any], phase: str) -> dict[str, Any] | None:
    """One phase's operators with their share of the step."""
    operators = [item for item in option.get("step") or [] if item.get("phase") == phase]
    total_s = sum(number(item.get("time_s")) or 0 for item in operators)
    if not total_s:
        return None
    longest_s = max(number(item.get("time_s")) or 0 for item in operators)
    rows = [
        {**item, "share": (item.get("time_s") or 0) / total_s, "bar": bar(item, longest_s)}
        for item in sorted(operators, key=lambda item: -(item.get("time_s") or 0))
    ]
    return {"phase": phase, "svg": charts.step_bar(rows, phase), "rows": rows, "total_s": total_s}


def bar(item: Mapping[str, Any], longest_s: float) -> str:
    return charts.share_bar((item.get("time_s") or 0) / longest_s, charts.bound_css(item.get("bound")))


PLAN = (
    ("accelerator", "Accelerator"), ("accelerator_count", "Accelerators"), ("provider", "Provider"),
    ("instance", "Instance"), ("region", "Region"), ("acquisition", "Acquisition"), ("framework", "Framework"),
    ("framework_version", "Framework version"), ("weights_dtype", "Weights"), ("quantization", "Quantization"),
    ("kv_dtype", "KV cache"), ("tp", "Tensor parallel"), ("pp", "Pipeline parallel"), ("ep", "Expert parallel"),
    ("dp", "Attention data parallel"), ("replicas", "Replicas"), ("concurrency", "Concurrent requests per replica"),
    ("max_batched_tokens", "Maximum batched tokens"), ("speculative", "Speculative decoding"),
    ("disaggregated", "Disaggregated prefill and decode"),
)  # fmt: skip


def plan_rows(option: Mapping[str, Any]) -> list[tuple[str, Any]]:
    return [(label, option[key]) for key, label in PLAN if option.get(key) not in (None, "")]


def cards(result: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The first choice and the views' winners, one card an option: 'Cheapest and simplest' when both are the same."""
    by_rank = {option["rank"]: option for option in result.get("recommendations") or []}
    views = result.get("views") or {}
    titles: dict[int, list[str]] = {}
    if 1 in by_rank and 1 not in [views.get(view) for view in VIEWS[:3]]:
        titles[1] = ["first choice"]
    for view in VIEWS:
        if views.get(view) in by_rank and (view in VIEWS[:3] or views[view] in titles):
            titles.setdefault(views[view], []).append(view)
    return [{"title": listed(names).capitalize(), "option": by_rank[rank]} for rank, names in titles.items()]


def listed(names: Sequence[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def ordered(
    options: Sequence[Mapping[str, Any]], sort: str, sorts: Mapping[str, tuple[str, str]] = SORTS
) -> list[Mapping[str, Any]]:
    """By a column of `sorts`, '-' before it for downwards; what is unknown comes last."""
    name = sort.removeprefix("-")
    if name not in sorts:
        return list(options)
    known: Callable[[Mapping[str, Any]], float | None] = lambda option: number(dig(option, sorts[name][1]))  # noqa: E731
    there = [option for option in options if known(option) is not None]
    there.sort(key=lambda option: known(option) or 0.0, reverse=sort.startswith("-"))
    return there + [option for option in options if known(option) is None]


def headers(sort: str, sorts: Mapping[str, tuple[str, str]] = SORTS) -> dict[str, dict[str, str]]:
    """For each sortable column: its title, the link's next value and aria-sort."""
    current = sort if sort.removeprefix("-") in sorts else "rank"
    found = {}
    for name, (title, _) in sorts.items():
        here = current.removeprefix("-") == name
        state = ("descending" if current.startswith("-") else "ascending") if here else "none"
        found[name] = {"title": title, "next": f"-{name}" if state == "ascending" else name, "aria": state}
    return found


def ranked_once(points: Sequence[Mapping[str, Any]], options: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Each rank on one point, the nearest in price and speed to its option; other points lose theirs."""
    found = [dict(point) for point in points]
    for option in options:
        same = [point for point in found if point.get("rank") == option["rank"]]
        same.sort(key=lambda point: distance(point, option))  # noqa: B023 (used at once)
        for point in same[1:]:
            point["rank"] = None
    return list(found)


def distance(point: Mapping[str, Any], option: Mapping[str, Any]) -> float:
    """How far a point is from an option, as a sum of ratios."""
    pairs = [("usd_per_mtok_output", "usd_per_mtok_output"), ("tpot_ms", "tpot_ms.mean")]
    if "latency_ms" in option:
        pairs = [("usd_per_mtok_input", "usd_per_mtok_input"), ("latency_ms", "latency_ms.mean")]
    values = [(number(point.get(mine)), number(dig(option, theirs))) for mine, theirs in pairs]
    ratios = [max(a / b, b / a) for a, b in values if a and b and a > 0 and b > 0]
    return sum(ratios) if len(ratios) == len(pairs) else float("inf")


def notable(points: Sequence[Mapping[str, Any]], most: int = 60) -> list[Mapping[str, Any]]:
    """The frontier and the ranked, fastest first: the picture as a table."""
    found = [point for point in points if point.get("frontier") or point.get("rank")]
    return sorted(found, key=lambda point: number(point.get("tpot_ms")) or float("inf"))[:most]


def price_dates(options: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Each price that the options rest on, once: provider, date, source."""
    found = {
        (option.get("provider"), option.get("price_as_of"), option.get("price_source")): option
        for option in options
        if option.get("price_as_of")
    }
    return [{"provider": key[0], "as_of": key[1], "source": key[2]} for key in sorted(found, key=str)]


def nearest(result: Mapping[str, Any]) -> dict[str, Any] | None:
    """When nothing is feasible: the rejection or near miss that is least far off."""
    if result.get("recommendations"):
        return None
    if result.get("near_misses"):
        return {"near_miss": result["near_misses"][0]}
    misses = [(miss_ratio(item), item) for item in result.get("rejected") or []]
    measured = [(ratio, item) for ratio, item in misses if ratio is not None]
    return {"rejected": min(measured, key=lambda pair: pair[0])[1]} if measured else None


def miss_ratio(item: Mapping[str, Any]) -> float | None:
    """How far a rejected accelerator is from its limit, as a ratio of at least 1."""
    limit, reached = number(item.get("limit")), number(item.get("reached"))
    if not limit or not reached or limit < 0 or reached < 0:
        return None
    return max(limit / reached, reached / limit)


# --- exports ----------------------------------------------------------------------------------------------------


def csv_text(result: Mapping[str, Any]) -> str:
    """One line an option; units are in the column names."""
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(column.replace(".", "_") for column in CSV_COLUMNS)
    for option in result.get("recommendations") or []:
        writer.writerow(cell(dig(option, column)) for column in CSV_COLUMNS)
    return out.getvalue()
