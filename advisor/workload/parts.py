"""The workloads of a portfolio inside its file: validated each by itself, their errors told at their place."""

from collections.abc import Callable, Mapping
from typing import Any

from advisor.engine.spec import KINDS
from advisor.workload.text import WorkloadError, error

SHAREABLE = tuple(KINDS)
Errors = list[dict[str, str]]


def parts_into(full: dict[str, Any], parse: Callable[[dict[str, Any]], dict[str, Any]]) -> Errors:
    """Replaces each workload of a portfolio by its validated form; what is wrong with them."""
    found: Errors = []
    if full["workloads"] is not None and full["kind"] != "portfolio":
        return [error("workloads", f"cannot be used with kind {full['kind']}", "kind: portfolio")]
    dated = {"prices_as_of": full["prices_as_of"]} if full["prices_as_of"] else {}
    for i, part in enumerate(full["workloads"] or []):
        if not isinstance(part, Mapping):
            continue
        if part.get("kind") == "portfolio":
            found.append(
                error(f"workloads[{i}].kind", "a portfolio cannot contain another portfolio", ", ".join(SHAREABLE))
            )
            continue
        try:
            full["workloads"][i] = parse({**part, **dated})
        except WorkloadError as trouble:
            found += inside(i, trouble)
    return found


def inside(place: int, trouble: WorkloadError) -> Errors:
    """The errors of one workload of a portfolio, at their place in it."""
    return [{**item, "field": f"workloads[{place}].{item['field']}".rstrip(".")} for item in trouble.errors]


def check_parts(spec: Mapping[str, Any], files: bool, check: Callable[[Mapping[str, Any], bool, int], None]) -> Errors:
    """What is wrong with the workloads of a portfolio; files are read before this, by the command line alone."""
    found: Errors = []
    for i, part in enumerate(spec["workloads"]):
        if not isinstance(part, Mapping):
            found.append(error(f"workloads[{i}]", "file paths are not accepted here", "the workload itself"))
            continue
        if part["kind"] not in SHAREABLE:
            said = f"{part['kind']} is not supported yet; remove it, and the others can still share"
            found.append(error(f"workloads[{i}].kind", said, ", ".join(SHAREABLE)))
            continue
        try:
            check(part, files, len(found))
        except WorkloadError as trouble:
            found += inside(i, trouble)
    return found
