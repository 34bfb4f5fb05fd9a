"""An answer and its frontier as notebooks show them, and as pandas frames. Texts of an answer are never markup."""

import importlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from typing import Any

COLUMNS = {  # where a row has a figure: its heading
    **{"rank": "Rank", "workload": "Workload", "label": "Option", "usd_per_month": "USD a month"},
    **{"usd_per_run": "USD a run", "days": "Days", "usd_per_mtok_output": "USD per million output tokens"},
    **{"ttft_ms.p95": "p95 TTFT, ms", "ttft_ms": "p95 TTFT, ms", "tpot_ms.p95": "p95 TPOT, ms"},
    **{"tpot_ms": "p95 TPOT, ms", "basis": "Basis"},
}
COLORS = ("#bbb", "#06c")  # of other deployments and of the frontier


def written(row: Any, path: str) -> str:
    for key in path.split("."):
        row = row.get(key) if isinstance(row, dict) else None
    if row is None or isinstance(row, dict | list):
        return ""
    return f"{row:,.{0 if abs(row) >= 100 else 3}f}" if isinstance(row, float) else str(row)


def problem_in(kind: str, text: str) -> dict[str, Any]:
    """The problem document in a response; empty: it has none, such as a page of a proxy."""
    try:
        said = json.loads(text) if kind.startswith("application/problem+json") else {}
    except ValueError:
        return {}
    return said if isinstance(said, dict) else {}


def error_line(error: Mapping[str, str]) -> str:
    allowed = f" (allowed: {error['allowed']})" if error.get("allowed") else ""
    return f"{error['field'] or 'workload'}: {error['message']}{allowed}"


def plain(text: str) -> str:
    """Markdown that shows the text itself: no markup, no HTML, one line."""
    return re.sub(r"([^\w\s,;%])", r"\\\1", " ".join(text.split()), flags=re.ASCII).replace("\\<", "&lt;")


@dataclass(frozen=True, repr=False)
class Rows:
    """Figures in rows under a title. url: of the page that says more."""

    rows: list[dict[str, Any]]
    title: str
    url: str

    def frame(self) -> Any:
        """A pandas DataFrame with the figures; parts are joined with a dot: ttft_ms.p95."""
        import pandas

        frame = pandas.json_normalize([{k: v for k, v in row.items() if k != "launch"} for row in self.rows])
        return frame[[name for name in frame if not any(isinstance(each, list | dict) for each in frame[name])]]

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.title!r}, rows: {len(self.rows)}, {self.url}>"

    def _table(self) -> list[list[str]]:
        used = [path for path in COLUMNS if any(written(row, path) for row in self.rows)]
        return [[COLUMNS[p] for p in used], *([written(row, path) for path in used] for row in self.rows[:20])]

    def _picture(self) -> str:
        return ""

    def _repr_html_(self) -> str:
        link = f'<a href="{escape(self.url)}" rel="noreferrer">Open</a>' if re.match("https?://", self.url) else ""
        head, *rows = (
            "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in row)
            for row, tag in zip(self._table(), ["th", *["td"] * len(self.rows)], strict=False)
        )
        body = "".join(f"<tr>{row}</tr>" for row in rows)
        table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        return f"<p>{escape(self.title)} {link}</p>{self._picture()}{table}"

    def _repr_markdown_(self) -> str:
        head, *rows = ([plain(cell) for cell in row] for row in self._table())
        lines = [f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows)]
        return "\n".join([plain(self.title), "", *(lines if head else ())])


class Frontier(Rows):
    """Cost and speed of every deployment, and which of them no other beats in both."""

    def _picture(self) -> str:
        points = [(r["output_tokens_per_s_per_user"], r["usd_per_mtok_output"], r["frontier"]) for r in self.rows]
        points = [point for point in points if point[0] and point[1]]
        right, top = (max((point[axis] for point in points), default=1.0) for axis in (0, 1))
        dots = "".join(
            f'<circle cx="{9 + 380 * x / right:.0f}" cy="{190 - 180 * y / top:.0f}" r="3" fill="{COLORS[bool(on)]}"/>'
            for x, y, on in sorted(points, key=lambda point: point[2])
        )
        said = "Up: USD per million output tokens; right: output tokens/s of one user. Blue: the frontier."
        return f'<svg viewBox="0 0 400 200" width="400" role="img" aria-label="{said}">{dots}</svg><p>{said}</p>'


@dataclass(frozen=True, repr=False)
class Answer(Rows):
    """An answer, its ranked options as rows (of a portfolio, the option of each workload)."""

    id: str
    name: str
    result: dict[str, Any]
    """Its JSON."""
    workload: dict[str, Any]

    def frontier(self) -> Frontier:
        """What was asked for with include=pareto."""
        return Frontier(self.result.get("pareto") or [], f"{self.name}: cost and speed", self.url)

    def typed(self) -> Any:
        """The JSON as the generated class; only in the package that `make clients` builds."""
        return importlib.import_module(f"{__package__}.generated.models").Answer.from_dict(self.result)


def answer_of(advice: dict[str, Any], result: dict[str, Any]) -> Answer:
    alone = (result.get("portfolio") or {}).get("alone", ())
    parts = [{"workload": each["name"], **each["option"]} for each in alone if each["option"]]
    url = advice["links"]["html"]
    title = f"{advice['name']}: {result['verdict']}"
    return Answer(
        result["recommendations"] or parts, title, url, advice["id"], advice["name"], result, advice["workload"]
    )
