"""The comparison as text: a table for terminals, or Markdown."""

from collections.abc import Mapping, Sequence
from typing import Any

Json = Mapping[str, Any]
VERDICTS = {True: "inside", False: "OUTSIDE", None: ""}


def table(deployments: Sequence[Json], *, markdown: bool = False) -> str:
    """All deployments of a comparison."""
    return "\n\n".join(_one(each, markdown) for each in deployments)


def _one(d: Json, markdown: bool) -> str:
    title = f"## {d['name']}" if markdown else d["name"]
    parts = [title, *(f"- {s}" if markdown else s for s in d["answer"])]
    settings = ", ".join(f"{k} {_text(v)}" for k, v in d["settings"].items() if k not in ("model", "served_name"))
    parts += _section("Deployed", [settings or "nothing is stated", f"read from {', '.join(d['sources'])}"], markdown)
    if d["plan"]:
        rows = [[e["setting"], _text(e["planned"]), _text(e["deployed"]), e["effect"]] for e in d["differences"]]
        head = ["setting", "planned", "deployed", "effect of the difference"]
        parts += _section(f"Planned: {d['plan']}", _grid(head, rows, markdown) if rows else ["no difference"], markdown)
    if d["load"]:
        parts += _section("Load", [d["load"]], markdown)
    rows = [
        [r["metric"], _ends(r["measured"]), f"{r['predicted']:,.4g}", _ends([r["low"], r["high"]]) if r["low"] else "",
         r["unit"], VERDICTS[r["inside"]] or (f"{r['error_fraction']:+.0%}" if r["error_fraction"] is not None else "")]
        for r in d["rows"]
    ]  # fmt: skip
    if rows:
        head = ["metric", "measured", "predicted", "90% interval", "unit", ""]
        parts += _section("Measured against predicted", _grid(head, rows, markdown), markdown)
    state = [f"{k.replace('_', ' ')} {_text(v)}" for k, v in d["seen"].items() if k in STATE]
    if state:
        parts += _section("Also seen", [", ".join(state)], markdown)
    correction = d["correction"]
    if correction["usable"]:
        parts += _section("Correction", [f"it may correct predictions: {correction['how']}"], markdown)
    elif correction["how"]:
        parts += _section("Correction", [f"not yet: {'; '.join(correction['why_not'])}", correction["how"]], markdown)
    doubts = [*d["conflicts"], *d["notes"]]
    if d["unknown_options"]:
        doubts.append(f"options that no list of the framework has: {', '.join(d['unknown_options'])}")
    return "\n".join(parts + (_section("Notes", doubts, markdown) if doubts else []))


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
