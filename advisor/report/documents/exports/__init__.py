"""Files for llm-d, KServe, Dynamo and SkyPilot that start an option as it was planned.

Each takes an answer and a rank. Http404: the system cannot express the option; the message says why.
"""

from collections.abc import Callable

from django.http import Http404

from advisor.report.documents.exports.clusters import dynamo, kserve, llm_d
from advisor.report.documents.exports.pods import facts
from advisor.report.documents.exports.skypilot import skypilot
from advisor.result import Answer

__all__ = ["EXPORTS", "can_export", "exports_of"]
YAML = "application/yaml"
EXPORTS: dict[str, tuple[str, Callable[[Answer, int], str | bytes]]] = {
    "kserve.yaml": (YAML, kserve),
    "llm-d.yaml": (YAML, llm_d),
    "dynamo.yaml": (YAML, dynamo),
    "skypilot.yaml": (YAML, skypilot),
}


def can_export(answer: Answer, name: str, rank: int) -> bool:
    """Whether the system of this file can run the option."""
    try:
        return bool(EXPORTS[name][1](answer, rank))
    except Http404:
        return False


def exports_of(answer: Answer, rank: int) -> dict[str, str]:
    """The files that there are for an option: name to the release of the system that reads it."""
    names = [name for name in EXPORTS if can_export(answer, name, rank)]
    return {name: facts()[name.removesuffix(".yaml")]["release"] for name in names}
