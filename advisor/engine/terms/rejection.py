"""Why an accelerator or a plan is not recommended, and the changes of the workload that would help."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """A field of the workload file with the value that would help."""

    field: str  # path in the workload file
    value: Any  # as in the file; None removes a limit
    said: str  # the same in words


@dataclass(frozen=True, kw_only=True, slots=True)
class Rejection:
    """Why an accelerator (or a plan) is not recommended: its value, the limit, and the smallest change that helps.

    Either `changes` or `dead_end` is set, except for a plan that was never evaluated further.
    """

    accelerator: str
    reason: str  # does_not_fit | misses_slo | unsupported | unpriced | excluded | too_expensive | too_many
    detail: str
    limit: float | None = None
    reached: float | None = None
    smallest_change: str = ""  # `changes` as a sentence
    changes: tuple[Change, ...] = ()
    dead_end: str = ""  # why no change of the workload file helps


def listed(changes: Sequence[Change]) -> str:
    """The changes in words, joined by "and"."""
    return " and ".join(c.said for c in changes)


def limit_change(path: str, bound: str, value: float) -> Change:
    """A limit that is raised (">=") or lowered ("<=") to a value; whole numbers are written without a point."""
    shown = int(value) if float(value).is_integer() else value
    return Change(field=path, value=shown, said=f"{short(path)} {bound} {shown}")


def list_change(path: str, names: Sequence[str]) -> Change:
    """A list of names that is set to these."""
    return Change(field=path, value=list(names), said=f"{path}: [{', '.join(names)}]")


def allowing(path: str, name: str, allow: Sequence[str], deny: Sequence[str]) -> list[Change]:
    """The changes of an allow list and a deny list that let this name pass; `path` is that of the two lists."""
    changes = [list_change(f"{path}.allow", [*allow, name])] if allow and name not in allow else []
    return changes + ([list_change(f"{path}.deny", [n for n in deny if n != name])] if name in deny else [])


def short(path: str) -> str:
    """The path without the sections that the sentence needs not name."""
    return path.removeprefix("slo.").removeprefix("constraints.")


QUALITY_ANY = Change(field="constraints.quality", value="any", said="quality: any")
