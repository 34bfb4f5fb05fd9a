"""Pictures of a training run, drawn on the server: cost over days, memory, step, goodput."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from advisor.result import GoodputParts, TrainingMemory, TrainingOption
from advisor.templatetags.training import run_time, share
from advisor.templatetags.units import dollars, given
from advisor.web.charts import plots as charts
from advisor.web.interactive.chart_data import Chart, axis
from catalog.charts import LATE, drawn
from catalog.pricing import reader

MEMORY_PARTS = (
    ("weights_gib", "weights"),
    ("gradients_gib", "gradients"),
    ("optimizer_gib", "optimizer states"),
    ("master_gib", "FP32 master weights"),
    ("gathered_gib", "gathered weights and low-precision copies"),
    ("activations_gib", "activations"),
    ("logits_gib", "logits and loss"),
    ("buffers_gib", "communication buffers and workspaces"),
    ("overhead_gib", "runtime and fragmentation"),
    ("free_gib", "free"),
)
MEMORY_TITLE = "Memory of an accelerator"
GOODPUT_PARTS = (
    ("fraction", "training", "goodput-training"),
    ("checkpoint_fraction", "standing still for checkpoints", "goodput-checkpoint"),
    ("rework_fraction", "repeating work lost since the last checkpoint", "goodput-rework"),
    ("restart_fraction", "restarting after interruptions", "goodput-restart"),
    ("waiting_fraction", "waiting for repairs", "goodput-waiting"),
)
UNITS = ((3.0, 1.0, "days"), (0.1, 24.0, "hours"), (0.0, 1440.0, "minutes"))  # from so many days on: factor, unit


@dataclass(frozen=True, kw_only=True, slots=True)
class RunPoint:
    """A run in the picture: a ranked one, or the first choice on another number of accelerators."""

    label: str
    accelerator_count: int
    days: float
    usd: float
    rank: int | None  # None: another size of the first choice
    in_time: bool

    @property
    def tip(self) -> str:
        start = f"{self.rank}. " if self.rank else ""
        late = "" if self.in_time else " (misses the deadline)"
        return f"{start}{self.label}: {dollars(self.usd)}, {run_time(self.days)}{late}"


def points_of(runs: Sequence[TrainingOption]) -> list[RunPoint]:
    """The ranked runs, then the other sizes of the first."""
    limit = runs[0].deadline_days if runs else None
    ranked = [
        RunPoint(
            label=run.label, accelerator_count=run.accelerator_count, days=run.days, usd=run.usd_per_run,
            rank=run.rank, in_time=True,
        )
        for run in runs
    ]  # fmt: skip
    taken = {(run.accelerator, run.accelerator_count) for run in runs}
    return ranked + [
        RunPoint(
            label=f"{size.accelerator_count:,} x {runs[0].accelerator_name}", accelerator_count=size.accelerator_count,
            days=size.days, usd=size.usd_per_run or size.usd_total, rank=None,
            in_time=limit is None or size.days <= limit,
        )
        for size in (runs[0].scaling if runs else [])
        if (runs[0].accelerator, size.accelerator_count) not in taken
    ]  # fmt: skip


@reader.in_usd
def cost_chart(runs: Sequence[TrainingOption], base: str = "") -> Chart:
    """Cost of the run over its days; ranked runs link to `base` + rank, a line joins the sizes of the first choice."""
    title = "Cost vs. time of the run"
    points = [point for point in points_of(runs) if point.days > 0 and point.usd > 0]
    if not points:
        return Chart(id="cost-days", title=title, svg="", data={})
    longest = max(point.days for point in points)
    factor, unit = next((factor, unit) for least, factor, unit in UNITS if longest >= least)
    sizes = [[size.days * factor, size.usd_per_run or size.usd_total, ""] for size in runs[0].scaling]
    series: list[dict[str, Any]] = []
    if len(sizes) > 1:
        text = "the first choice on other numbers of accelerators"
        series.append({"type": "line", "silent": True, "name": text, "color": "--c5", "points": sizes})
    for name, color, size, symbol, shown in (
        ("ranked run", "--accent", 18, "circle", [p for p in points if p.rank]),
        ("another size of the first choice", "--c5", 9, "circle", [p for p in points if not p.rank and p.in_time]),
        ("misses the deadline", "--muted", 10, LATE, [p for p in points if not p.rank and not p.in_time]),
    ):
        if shown:
            places = [[p.days * factor, p.usd, p.tip, f"{base}{p.rank}" if p.rank and base else None] for p in shown]
            labels = [str(p.rank or f"{p.accelerator_count:,}×") for p in shown]
            more = {"size": size, "symbol": symbol, "place": "inside" if shown[0].rank else "top", "labels": labels}
            series.append({"type": "points", "name": name, "color": color, "points": places, **more})
    limit = runs[0].deadline_days
    data = {
        "kind": "xy",
        "x": axis(f"{unit} of the run", "number", log=True),
        "y": axis("USD of the run", "usd", log=True),
        "series": series,
        "legend": False,  # the page has one
        "limits": [{"axis": "x", "value": limit * factor, "name": f"deadline {given(limit)} days"}] if limit else [],
    }
    text = f"{len(runs)} ranked runs and {len(points) - len(runs)} other sizes of the first. Lower left is better."
    return Chart(id="cost-days", title=title, svg=drawn(data, title, text, "pareto"), data=data)


# --- bars -------------------------------------------------------------------------------------------------------


def memory_rows(memory: TrainingMemory) -> list[dict[str, Any]]:
    """The parts that are there, and what is free; shares are of the accelerator's memory."""
    return charts.memory_parts(memory, MEMORY_PARTS, lambda key, gib: gib >= 0.005 or key == "free_gib")


def memory_bar(memory: TrainingMemory) -> str:
    return charts.parts_bar(memory_rows(memory), MEMORY_TITLE)


def goodput_rows(goodput: GoodputParts) -> list[dict[str, Any]]:
    return [{"name": name, "share": goodput.figure(key), "css": css} for key, name, css in GOODPUT_PARTS]


def goodput_bar(goodput: GoodputParts) -> str:
    rows = goodput_rows(goodput)
    text = ", ".join(f"{row['name']} {share(row['share'])}" for row in rows)
    return charts.stacked([(row["css"], row["share"]) for row in rows if row["share"]], "Where the time goes", text)
