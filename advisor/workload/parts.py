"""The workloads of a portfolio: each is validated separately, and its errors name its place in the file."""

from collections.abc import Callable, Mapping
from typing import Any

from advisor.engine.terms import KINDS
from advisor.workload.rules import as_part
from advisor.workload.text import WorkloadError, error

SHAREABLE = tuple(KINDS)
Errors = list[dict[str, str]]


def parse_parts(full: dict[str, Any], parse: Callable[[dict[str, Any]], dict[str, Any]]) -> Errors:
    """Replaces each workload of a portfolio in `full` by its validated form. Returns the errors."""
    errors: Errors = []
    if full["workloads"] is not None and full["kind"] != "portfolio":
        return [error("workloads", f"cannot be used with kind {full['kind']}", "kind: portfolio")]
    dated = {"prices_as_of": full["prices_as_of"]} if full["prices_as_of"] else {}
    for i, part in enumerate(full["workloads"] or []):
        if not isinstance(part, Mapping):
            continue
        if part.get("kind") == "portfolio":
            errors.append(
                error(f"workloads[{i}].kind", "a portfolio cannot contain another portfolio", ", ".join(SHAREABLE))
            )
            continue
        try:
            full["workloads"][i] = parse({**as_part(part), **dated})
        except WorkloadError as e:
            errors += errors_in(i, e)
    return errors


def errors_in(index: int, e: WorkloadError) -> Errors:
    """The errors of one workload, with fields like workloads[0].model."""
    return [{**item, "field": f"workloads[{index}].{item['field']}".rstrip(".")} for item in e.errors]


def check_parts(spec: Mapping[str, Any], files: bool, check: Callable[[Mapping[str, Any], bool, int], None]) -> Errors:
    """The errors of a portfolio's workloads against the catalog. File paths must have been read before."""
    errors: Errors = []
    for i, part in enumerate(spec["workloads"]):
        if not isinstance(part, Mapping):
            errors.append(error(f"workloads[{i}]", "file paths are not accepted here", "the workload itself"))
            continue
        if part["kind"] not in SHAREABLE:
            message = f"{part['kind']} is not supported yet in a portfolio; remove this workload"
            errors.append(error(f"workloads[{i}].kind", message, ", ".join(SHAREABLE)))
            continue
        try:
            check(part, files, len(errors))
        except WorkloadError as e:
            errors += errors_in(i, e)
    return errors
