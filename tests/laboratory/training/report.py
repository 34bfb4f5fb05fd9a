"""The training section of docs/reference/fidelity.md: errors, intervals, memory, and published layouts."""

import statistics
from collections.abc import Callable, Sequence

from advisor.engine.training import Run
from advisor.fidelity.scores.scoring import Scored
from advisor.fidelity.training.rows import MEMORY
from tests.laboratory import summaries
from tests.laboratory.report import HEADS, percent_text, skip_counts, summary_line, table_of
from tests.laboratory.summaries import grouped
from tests.laboratory.training import layouts as training_layouts
from tests.laboratory.training.intervals import intervals
from tests.laboratory.training.layouts import Compared, layout_text

PEERS = (
    ("Lumos", "3.3 %", "steps of the cluster that it profiled", "arXiv 2504.09307, quoted"),
    ("Charon", "3.7 %", "steps of the cluster that it profiled", "quoted, paper not read"),
    (
        "simulators with sampled operators",
        "5 to 9 %",
        "operators measured on the same chips",
        "quoted, papers not read",
    ),
    ("Megatron's memory tool", "1 %", "peak memory of its own framework", "quoted, not read"),
)
ABOUT = (
    "One value is fitted to these rows: the time of NVFP4's transforms, to 9 of Megatron-Bridge on GB200. All else is "
    "kernels measured on H200s, published kernel rates and serving's calibration, so every other chip, model and "
    "source is held out. Which published rates and features "
    "to use was decided with these rows in sight. Step times include the wait for the slowest rank, as answers do."
)
LAYOUTS = (
    "The predicted step of each published layout over that of the fastest layout that the search finds for the same "
    "chips, batch, format and code. Below 1: the search left the published layout out, because it is predicted not to "
    "fit or has more interleaved stages than 12."
)
WHY = (
    "Where the search prefers another layout by more than 5 %: it takes fewer pipeline stages and smaller expert "
    "groups than NVIDIA, because the memory of CUDA graphs, of recomputed modules and of fragmentation is not modeled, "
    "and so more fits; it takes larger micro-batches where products of experts are small; and it keeps experts inside "
    "a host where NVIDIA spreads them over InfiniBand with their exchange hidden. Those layouts were not measured, so "
    "the differences are not verified."
)
LARGE_RATIO = 1.05


def markdown(scored: Sequence[Scored], compared: Sequence[Compared]) -> str:
    """The section, or nothing without training rows."""
    known = [s for s in scored if s.ape is not None]
    if not known:
        return ""
    times = [s for s in known if s.row.metric not in MEMORY]
    memory = [s for s in known if s.row.metric in MEMORY and s.row.metric != "fits_in_memory"]
    parts = [
        "## Training",
        ABOUT,
        table_of(("rows", *HEADS), [summary_line(name, summaries.summary(rows)) for name, rows in sets(times, memory)]),
        *by_parts(times),
        "### Training: memory",
        memory_text(known),
        "### Training: intervals",
        spans_text(known),
        *layout_parts(compared),
        "### Training: not scored",
        table_of(("rows", "reason"), sorted(skip_counts(scored).items(), key=lambda i: -i[1]), swap=True),
        "### Training: errors of other tools",
        table_of(("tool", "error", "conditions", "source"), PEERS),
    ]
    return "\n\n".join(parts)


def sets(times: Sequence[Scored], memory: Sequence[Scored]) -> list[tuple[str, list[Scored]]]:
    """Named sets of rows with a prediction."""

    def of(rows: Sequence[Scored], wanted: Callable[[Scored], bool]) -> list[Scored]:
        return [s for s in rows if wanted(s)]

    return [
        ("step time and tokens/s", list(times)),
        ("... layout stated", of(times, lambda s: s.labels["layout"] == "stated")),
        ("... layout found by the search", of(times, lambda s: s.labels["layout"] == "found")),
        ("... dense models", of(times, lambda s: s.labels["experts"] == "false")),
        ("... mixtures of experts", of(times, lambda s: s.labels["experts"] == "true")),
        ("... one H200", of(times, lambda s: s.row.source_key == "h200_train")),
        ("... four H200s", of(times, lambda s: s.row.source_key == "h200x4_train")),
        ("peak allocated memory", of(memory, lambda s: s.row.metric == "peak_memory_bytes")),
        ("peak reserved memory", of(memory, lambda s: s.row.metric != "peak_memory_bytes")),
    ]


def by_parts(times: Sequence[Scored]) -> list[str]:
    parts = []
    for title, column in (
        ("chip (each held out)", "accelerator_slug"),
        ("source", "source_key"),
        ("model", "model_id"),
    ):
        lines = [summary_line(group[column], group) for group in grouped(times, [column])]
        parts += [f"### Training by {title}", table_of((title, *HEADS), lines)]
    return parts


def memory_text(known: Sequence[Scored]) -> str:
    """Out-of-memory rows, and runs that ran though predicted not to fit."""
    flags = [s for s in known if s.row.metric == "fits_in_memory"]
    out = [s for s in flags if s.row.value == 0.0]
    ran = [s for s in known if s.row.metric not in MEMORY and s.labels["layout"] == "stated"]
    misfits = [s for s in ran if s.prediction is not None and s.prediction.value is None]
    right = sum(s.ape == 0.0 for s in out)
    share = percent_text(len(misfits) / len(ran)) if ran else "-"
    return (
        f"{right} of {len(out)} runs that ran out of memory are predicted to. Of {len(ran)} time rows with a stated "
        f"layout, which all ran, {len(misfits)} ({share}; target: at most 3 %) are predicted not to fit."
    )


def spans_text(known: Sequence[Scored]) -> str:
    lines = [
        (basis, name, f"{s.low:.3f}", f"{s.high:.3f}", s.rows, s.groups, percent_text(s.coverage))
        for basis, figures in intervals(known).items()
        for name, s in figures.items()
    ]
    return table_of(("basis", "figure", "low", "high", "rows", "groups", "held out"), lines)


def layout_parts(compared: Sequence[Compared]) -> list[str]:
    if not compared:
        return []
    ordered = sorted(compared, key=lambda c: -c.ratio)
    middle = statistics.median(c.ratio for c in ordered)
    near = ", ".join(f"{training_layouts.within(ordered, 1 + most):.0%} within {most:.0%}" for most in (0.05, 0.1, 0.2))
    lines = [(f"{c.ratio:.2f}", *described(c)) for c in ordered if c.ratio > LARGE_RATIO]
    return [
        "### Training: published layouts",
        f"{LAYOUTS} {len(ordered)} layouts: median {middle:.3f}, {near}.",
        WHY,
        table_of(("published / found", "run", "published", "found"), lines),
    ]


def described(c: Compared) -> tuple[str, str, str]:
    run: Run = c.published
    what = f"{c.case.model_id}, {run.parallel.chips} {c.case.accelerator_slug}, {run.recipe.matmul_dtype}"
    return what, layout_text(run) + ("" if c.fits else " (predicted not to fit)"), layout_text(c.best)
