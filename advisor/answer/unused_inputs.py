"""What a question sets that did not change its answer."""

from collections.abc import Callable, Mapping
from typing import Any

Json = dict[str, Any]
TCO_USED = ("horizon_months", "discount_rate", "staff_usd_per_accelerator_year")

# (field, is it set, what was done instead)
LEFT_OUT: tuple[tuple[str, Callable[[Mapping[str, Any]], object], str], ...] = (
    (
        "traffic.load_curve",
        lambda spec: spec["kind"] == "batch" and spec["traffic"]["load_curve"] != "flat",
        "a batch is worked off as fast as it can be, whatever the hour",
    ),
    (
        "traffic.trace",
        lambda spec: spec["kind"] == "batch" and spec["traffic"]["trace"],
        "of a batch the lengths count, not when its requests were recorded",
    ),
    ("probe", lambda spec: spec["probe"] != "no", "nothing was measured for this answer: see each option's basis"),
    (
        "slo.tpot_ms_p95",
        lambda spec: spec["kind"] == "embedding" and spec["slo"]["tpot_ms_p95"],
        "an embedding generates no tokens: e2e_ms_p95 limits its latency",
    ),
    (
        "slo.tokens_per_s_per_user",
        lambda spec: spec["kind"] == "embedding" and spec["slo"]["tokens_per_s_per_user"],
        "an embedding generates no tokens: e2e_ms_p95 limits its latency",
    ),
    *(
        (
            f"slo.{name}",
            lambda spec, name=name: spec["kind"] == "batch" and spec["slo"][name] not in (None, "n"),
            "nobody waits for the answers of a batch: its deadline alone counts",
        )
        for name in ("ttft_ms_p95", "tpot_ms_p95", "e2e_ms_p95", "tokens_per_s_per_user", "availability")
    ),
)


def not_used(spec: Json, tco_used: set[str]) -> list[Json]:
    """What was asked for and did not change the answer: {field, value, instead}; `tco_used`: names the costs read."""
    found = [
        {"field": field, "value": dig(spec, field), "instead": f"accepted, not part of this engine version: {instead}"}
        for field, is_set, instead in LEFT_OUT
        if is_set(spec)
    ]
    known = {*TCO_USED, *tco_used}
    found += [
        {"field": f"tco.{key}", "value": value, "instead": "no figure of this answer depends on it"}
        for key, value in spec["tco"].items()
        if key not in known
    ]
    return found


def with_probes(result: Json, probed: Json) -> Json:
    """What an answer says of the probes that its question asked for, when machines were waited for."""
    kept = [item for item in result.get("not_used", []) if item["field"] != "probe"]
    unmet = [{**item, "instead": probed["said"]} for item in result.get("not_used", []) if item["field"] == "probe"]
    return {"probes": probed, "not_used": kept if probed["measured"] else [*kept, *unmet]}


def dig(spec: Mapping[str, Any], path: str) -> Any:
    value: Any = spec
    for key in path.split("."):
        value = value[key]
    return value
