"""Inputs of a workload that did not change its answer."""

from collections.abc import Mapping
from typing import Any

from advisor.engine.spec import KINDS
from advisor.result import Answer, NotUsed, Probes

Json = dict[str, Any]
TCO_USED = ("horizon_months", "discount_rate", "staff_usd_per_accelerator_year")

NO_PROBES = ("probe", "nothing was measured for this answer: see each option's basis")
UNSET = (None, "n", "flat", "no")


def not_used(spec: Json, tco_used: set[str]) -> list[NotUsed]:
    """Inputs that did not change the answer; `tco_used`: names under `tco` that the costs read."""
    unused = [
        NotUsed(
            field=field, value=dig(spec, field), instead=f"accepted, but not used by this engine version: {instead}"
        )
        for field, instead in (*KINDS[spec["kind"]].unused_inputs, NO_PROBES)
        if dig(spec, field) not in UNSET
    ]
    known = {*TCO_USED, *tco_used}
    return unused + [
        NotUsed(field=f"tco.{key}", value=value, instead="no figure of this answer depends on it")
        for key, value in spec["tco"].items()
        if key not in known
    ]


def with_probes(answer: Answer, probed: Json) -> Answer:
    """The answer with what machines measured for it, when it waited for them."""
    kept = [item for item in answer.not_used if item.field != "probe"]
    unmet = [item.changed(instead=probed["said"]) for item in answer.not_used if item.field == "probe"]
    return answer.changed(probes=Probes.read(probed), not_used=kept if probed["measured"] else [*kept, *unmet])


def dig(spec: Mapping[str, Any], path: str) -> Any:
    value: Any = spec
    for key in path.split("."):
        value = None if value is None else value[key]
    return value
