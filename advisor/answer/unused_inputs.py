"""What a question sets that did not change its answer."""

from collections.abc import Mapping
from typing import Any

from advisor.engine.spec import KINDS

Json = dict[str, Any]
TCO_USED = ("horizon_months", "discount_rate", "staff_usd_per_accelerator_year")

NO_PROBES = ("probe", "nothing was measured for this answer: see each option's basis")
UNSET = (None, "n", "flat", "no")


def not_used(spec: Json, tco_used: set[str]) -> list[Json]:
    """What was asked for and did not change the answer: {field, value, instead}; `tco_used`: names the costs read."""
    found = [
        {"field": field, "value": dig(spec, field), "instead": f"accepted, not part of this engine version: {instead}"}
        for field, instead in (*KINDS[spec["kind"]].unused_inputs, NO_PROBES)
        if dig(spec, field) not in UNSET
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
