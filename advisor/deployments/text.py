"""The comparison as text: a table for terminals, or Markdown."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Json = Mapping[str, Any]
VERDICTS = {True: "inside", False: "OUTSIDE", None: ""}


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """A heading with lines or a table."""

    title: str
    lines: Sequence[str] = ()
    head: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()


def table(deployments: Sequence[Json], *, markdown: bool = False) -> str:
    """All deployments of a comparison."""
    return "\n\n".join(_one(each, markdown) for each in deployments)


def _one(d: Json, markdown: bool) -> str:
    title = f"## {d['name']}" if markdown else d["name"]
    found = [title, *(f"- {s}" if markdown else s for s in d["answer"])]
    for part in parts(d):
        found += _section(part.title, [*part.lines, *(_grid(part.head, part.rows, markdown) if part.rows else ())],
                          markdown)  # fmt: skip
    return "\n".join(found)


def parts(d: Json) -> list[Part]:
    """What a comparison says beside its answer: what to do next, settings, load, figures, correction, notes."""
    found = [Part(title="Next", lines=d["next"])] if d["next"] else []
    settings = ", ".join(f"{k} {_text(v)}" for k, v in d["settings"].items() if k not in ("model", "served_name"))
    found.append(
        Part(title="Deployed", lines=[settings or "nothing is stated", f"read from {', '.join(d['sources'])}"])
    )
    if d["plan"]:
        rows = [[e["setting"], _text(e["planned"]), _text(e["deployed"]), e["effect"]] for e in d["differences"]]
        head = ["setting", "planned", "deployed", "effect of the difference"]
        lines = [] if rows else ["no difference"]
        found.append(Part(title=f"Planned: {d['plan']}", lines=lines, head=head, rows=rows))
    if d["load"]:
        found.append(Part(title="Load", lines=[d["load"]]))
    rows = [
        [r["metric"], _ends(r["measured"]), f"{r['predicted']:,.4g}", _ends([r["low"], r["high"]]) if r["low"] else "",
         r["unit"], VERDICTS[r["inside"]] or (f"{r['error_fraction']:+.0%}" if r["error_fraction"] is not None else "")]
        for r in d["rows"]
    ]  # fmt: skip
    if rows:
        head = ["metric", "measured", "predicted", "90% interval", "unit", "verdict"]
        found.append(Part(title="Measured against predicted", head=head, rows=rows))
    state = [f"{k.replace('_', ' ')} {_text(v)}" for k, v in d["seen"].items() if k in STATE]
    if state:
        found.append(Part(title="Also seen", lines=[", ".join(state)]))
    correction = d["correction"]
    if correction["usable"]:
        found.append(Part(title="Correction", lines=[f"it may correct predictions: {correction['how']}"]))
    elif correction["how"]:
        lines = [f"not yet: {'; '.join(correction['why_not'])}", correction["how"]]
        found.append(Part(title="Correction", lines=lines))
    doubts = [*d["conflicts"], *d["notes"]]
    if d["unknown_options"]:
        doubts.append(f"options that no list of the framework has: {', '.join(d['unknown_options'])}")
    return [*found, Part(title="Notes", lines=doubts)] if doubts else found


STATE = ("requests_per_s", "input_tokens_per_s", "running", "waiting", "kv_used_fraction", "prefix_hit_fraction",
         "preemptions", "acceptance", "kv_gib", "graphs_gib", "load_s", "start_s", "window_s", "failed")  # fmt: skip


def _section(title: str, lines: Sequence[str], markdown: bool) -> list[str]:
    return ["", f"### {title}", "", *lines] if markdown else ["", f"{title}:", *(f"  {line}" for line in lines)]


def _text(value: Any) -> str:
    if isinstance(value, Mapping):
        return " ".join(f"{k}={v}" for k, v in value.items())
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "default"}[value]
    return f"{value:,.4g}" if isinstance(value, float) else str(value)


def _ends(ends: Sequence[float | None]) -> str:
    low, high = ends
    if low is None:
        return ""
    return f"{low:,.4g}" if low == high else f"{low:,.4g} - {high:,.4g}" if high is not None else f"> {low:,.4g}"


def _grid(head: Sequence[str], rows: Sequence[Sequence[str]], markdown: bool) -> list[str]:
    if markdown:
        escaped = [[cell.replace("|", "\\|") for cell in row] for row in rows]
        return [f"| {' | '.join(line)} |" for line in [head, ["---"] * len(head), *escaped]]
    wide = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]
    return ["  ".join(cell.ljust(w) for cell, w in zip(row, wide, strict=True)).rstrip() for row in [head, *rows]]
