"""What holds where a workload leaves availability, confidence or terms unset. What it states replaces each rule.

Sizing: rented by the hour, the smallest size that meets every limit in at least half of the draws; for what cannot be
undone, in at least four of five. Availability: one spare host, for data-center machines that serve at least one request
a second. Terms: on demand, one and three years.
"""

from collections.abc import Mapping
from typing import Any

from advisor.engine.terms import EXPECTED_CONFIDENCE, SERVING, SURE_CONFIDENCE, kind_named

SPARE_REQUESTS_PER_S = 1.0
TERMS = ("on_demand", "reserved_1y", "reserved_3y")
SWITCHED_OFF = "none"  # slo.confidence: the limits hold as estimated
# What nobody would order, and what a load test takes: rules of this project (docs/explanation/ranking.md), not
# measured. A small chip has no more memory than a workstation card or an L40S; 32 of them are four hosts of eight.
MOST_SMALL_CHIPS = 32  # for one model
MOST_COMPUTERS = 2  # boards, mini PCs or Macs for one model: more of them want a server with remote management
SMALL_CHIP_BYTES = 48e9  # most memory of a small chip
LOAD_TEST_HOURS = 2.0  # of the machines of one replica: start, warm-up and the test


def terms_of(spec: Mapping[str, Any]) -> tuple[str, ...]:
    """The rental terms to evaluate. What runs for days is never committed for a year unless the workload says so."""
    stated = spec["constraints"].get("terms")
    kind = kind_named(spec["kind"])
    return tuple(stated) if stated else TERMS[:1] if kind.trains or kind.released_after_run else TERMS


def confidences_of(slo: Mapping[str, Any]) -> tuple[float | None, float | None]:
    """(least probability of meeting every limit, the same for what cannot be undone); None: as estimated."""
    stated = slo.get("confidence")
    if stated == SWITCHED_OFF:
        return None, None
    return (EXPECTED_CONFIDENCE, SURE_CONFIDENCE) if stated is None else (stated, stated)


def spares_by_default(spec: Mapping[str, Any]) -> bool:
    """Whether data-center machines get one spare host: nothing is stated, and losing a host would be felt."""
    users, rate = spec["traffic"].get("users"), spec["traffic"]["requests_per_s"]
    several = not users or users["active"] > 1
    return spec["slo"].get("availability") is None and several and (rate["mean"] or 0.0) >= SPARE_REQUESTS_PER_S


def as_part(part: Mapping[str, Any]) -> dict[str, Any]:
    """A workload of a portfolio with the rules switched off that hold for a fleet of its own, where it states nothing.

    One spare host serves a whole fleet, so no workload brings its own.
    """
    if kind_named(str(part.get("kind") or SERVING.name)).trains:
        return dict(part)
    slo, constraints = dict(part.get("slo") or {}), dict(part.get("constraints") or {})
    slo = {"availability": "n", "confidence": SWITCHED_OFF} | {k: v for k, v in slo.items() if v is not None}
    return dict(part) | {"slo": slo, "constraints": {"terms": list(TERMS[:1])} | constraints}
