"""What is kept of an answer: its best options in a few figures, and the values that pages show."""

from collections.abc import Iterable
from typing import Any

from tests.questions import evaluate

KEPT_OPTIONS = 12
Json = dict[str, Any]


def summary(answer: Json, paths: Iterable[str] = ()) -> Json:
    return {
        "prices_as_of": answer["catalog"]["prices_as_of"],
        "kind": answer["workload"]["kind"],
        "first": first(answer),
        "options": [option(each) for each in answer["recommendations"][:KEPT_OPTIONS]],
        "figures": {path: rounded(evaluate(path, answer)) for path in paths},
    }


def first(answer: Json) -> Json | None:
    """What the verdict says to do; of a portfolio, its fleet."""
    decision = answer.get("decision")
    if decision is None:
        return None
    kept = ("label", "ways", "provider", "usd_per_month", "usd_per_run", "slo_probability", "price_as_of")
    found = {name: rounded(decision.get(name)) for name in kept}
    best = answer["recommendations"][0] if answer["recommendations"] else {}
    return found | {"key": key(best) if best else found["label"], "days": rounded(best.get("days"))} | latencies(best)


def option(each: Json) -> Json:
    kept = ("rank", "label", "provider", "acquisition", "term", "usd_per_month", "usd_per_run", "days", "price_as_of",
            "price_weakness")  # fmt: skip
    probability = each.get("slo_probability", each.get("deadline_probability"))
    return {name: rounded(each.get(name)) for name in kept} | {
        "key": key(each),
        "probability": rounded(probability),
        **latencies(each),
    }


def key(option: Json) -> str:
    """What is run where, without counts: the same choice at another size keeps its key."""
    named = ("accelerator", "provider", "acquisition", "framework", "weights_dtype")
    return " ".join(str(option.get(name) or "-") for name in named)


def latencies(option: Json) -> Json:
    found = {}
    for name in ("ttft_ms", "tpot_ms"):
        given = option.get(name) or {}
        found[name] = rounded(given.get("p95")) if isinstance(given, dict) else None
    return found


def rounded(value: Any) -> Any:
    return float(f"{value:.4g}") if isinstance(value, float) else value
