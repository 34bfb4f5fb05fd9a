"""Results as pages show them: headline rates, charts, tables, and comparisons of two results."""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from advisor.templatetags.units import duration, sig
from catalog.charts import Roofline, rooflines
from catalog.models import Accelerator
from probes.models import Agent, Measurement, Result
from probes.pages import result_charts
from probes.received import plausibility, results

ROOF_KINDS = (
    "gemm",
    "grouped_gemm",
    "attention_prefill",
    "attention_decode",
    "mlp",
    "block",
    "decode_step",
    "train_step",
    "train_overlap",
)
MAX_RESULTS = 60
MAX_DIFFERENCES = 30
BOUNDS = ("value", "low", "high")
Entry = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Headline:
    """The best rate of one kind and dtype."""

    name: str
    rate: str
    share: float | None  # of the datasheet peak
    where: str


def key_text(key: Mapping[str, Any]) -> str:
    """The key of a measurement as text: m=1 bytes=8GiB."""
    return " ".join(f"{name}={size(value) if name.endswith('bytes') else value}" for name, value in key.items())


def size(value: Any) -> Any:
    """A number of bytes in binary units if it is exact: 8589934592 is 8GiB."""
    for unit, factor in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if isinstance(value, int) and value >= factor and value % factor == 0:
            return f"{value // factor}{unit}"
    return value


def rate_text(kind: str, flops_per_s: float | None, bytes_per_s: float | None) -> str:
    """TFLOP/s for compute kinds, else GB/s; empty for kinds with neither."""
    arithmetic = flops_per_s and (kind in ROOF_KINDS or not bytes_per_s)
    if arithmetic and flops_per_s:
        return f"{sig(flops_per_s / 1e12)} TFLOP/s"
    return f"{sig(bytes_per_s / 1e9)} GB/s" if bytes_per_s else ""


def datasheet(name: str, chip: Accelerator | None) -> float | None:
    """The datasheet peak of a headline rate, in FLOP/s or B/s; None if unknown."""
    if chip is None:
        return None
    kind, _, dtype = name.partition(" ")
    if kind in plausibility.MEMORY_KINDS:
        return chip.memory_gb_per_s * 1e9
    rate = chip.dense_tflops.get(dtype)
    return rate * 1e12 if rate else None


def shares(entries: Iterable[Entry], chip: Accelerator | None) -> dict[str, float]:
    """{headline name: fraction of the datasheet peak}, where the peak is known."""
    best = plausibility.best(e for e in entries if e["path"] == "native")
    known = {name: (rate, datasheet(name, chip)) for name, (rate, _) in best.items()}
    return {name: rate / peak for name, (rate, peak) in known.items() if peak}


def headlines(result: Result) -> list[Headline]:
    entries = (result.document or {}).get("results", [])
    best = plausibility.best(e for e in entries if e["path"] == "native")
    fractions = shares(entries, result.accelerator)
    return [
        Headline(
            name=name,
            rate=rate_text(e["kind"], e["flops"] and rate, None if e["flops"] else rate),
            share=fractions.get(name),
            where=key_text(e["key"]),
        )
        for name, (rate, e) in sorted(best.items())
    ]


def pictures(result: Result, rows: Sequence[Measurement]) -> list[tuple[str, str, str]]:
    """(title, SVG, caption) of each chart that has data."""
    native = [m for m in rows if m.path == "native"]
    sizes = by_size(native, plausibility.MEMORY_KINDS, "bytes")
    links = by_size(native, plausibility.COLLECTIVES, "bytes")
    roofline = roofline_chart(result.accelerator, native)
    charts_drawn = [
        ("Roofline", roofline, "Lines: datasheet. Points: kernels, in the color of their dtype."),
        ("Matrix multiplies by rows", by_rows(native), "The best shape for each dtype and number of rows."),
        ("Memory by size", sizes, "Bytes read and written per second."),
        ("Collectives by size", links, "Bytes per second over one chip's link."),
    ]
    return [(title, svg, caption) for title, svg, caption in charts_drawn if svg]


def roofline_chart(chip: Accelerator | None, rows: Sequence[Measurement]) -> str:
    if chip is None:
        return ""
    used = {str(m.key.get("dtype")) for m in rows if m.kind == "gemm"}
    rates = {dtype: rate for dtype, rate in chip.dense_tflops.items() if dtype in used}
    lines: list[Roofline] = rooflines(rates, chip.memory_gb_per_s)
    points: dict[int | None, list[result_charts.Point]] = {}
    for m in rows:
        if m.kind in ROOF_KINDS and m.flops and m.bytes and m.flops_per_s:
            rate, peak = m.flops_per_s / 1e12, rates.get(str(m.key.get("dtype")))
            index = next((n for n, roof in enumerate(lines) if roof.tflops == peak), None)
            text = f"{m.kind} {key_text(m.key)}: {sig(rate)} TFLOP/s"
            points.setdefault(index, []).append((m.flops / m.bytes, rate, text))
    return result_charts.roofline(lines, points)


def by_rows(rows: Sequence[Measurement]) -> str:
    best: dict[str, dict[float, result_charts.Point]] = {}
    for m in rows:
        if m.kind == "gemm" and m.flops_per_s and "sustained_s" not in m.key:
            at, rate = float(m.key["m"]), m.flops_per_s / 1e12
            series = best.setdefault(str(m.key.get("dtype")), {})
            if at not in series or rate > series[at][1]:
                series[at] = (at, rate, f"{key_text(m.key)}: {sig(rate)} TFLOP/s")
    several = {name: list(points.values()) for name, points in best.items() if len(points) > 1}
    return result_charts.curves(several, "Matrix multiplies by rows", "rows, M", "TFLOP/s")


def by_size(rows: Sequence[Measurement], kinds: Sequence[str], axis: str) -> str:
    best: dict[str, dict[float, result_charts.Point]] = {}
    for m in rows:
        if m.kind in kinds and m.bytes_per_s and isinstance(m.key.get(axis), int | float):
            devices = f" x {m.key['devices']}" if "devices" in m.key else ""
            at, rate = m.key[axis] / 2**20, m.bytes_per_s / 1e9
            series = best.setdefault(f"{m.kind}{devices}", {})
            if at not in series or rate > series[at][1]:
                series[at] = (at, rate, f"{m.kind} {key_text(m.key)}: {sig(rate)} GB/s")
    several = {name: list(points.values()) for name, points in best.items() if len(points) > 1}
    return result_charts.curves(several, "Rate by size", "MiB", "GB/s")


def figures(fit: Mapping[str, Any]) -> list[dict[str, str]]:
    """The fitted efficiencies as display text."""
    return [{"name": name, "from": f["from"]} | {k: figure(name, f[k]) for k in BOUNDS} for name, f in fit.items()]


def report_rows(report: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The figures of a report as display text, those that count first."""
    rows = [
        {
            "figure": row["figure"],
            "used": row["used"],
            "measured": figure(row["figure"], row["measured"]) if row["measured"] is not None else "",
            "range": " to ".join(figure(row["figure"], row[end]) for end in BOUNDS[1:] if row[end] is not None),
            "before": figure(row["figure"], row["before"]),
            "after": figure(row["figure"], row["after"]),
            "from": row["from"],
            "reason": row["reason"],
        }
        for row in report.get("figures", [])
    ]
    return sorted(rows, key=lambda row: (not row["used"], not row["measured"], row["figure"]))


def report_lines(report: Mapping[str, Any]) -> list[str]:
    """A report as lines of text."""
    rows = report_rows(report)
    lines = [] if rows or not report.get("reason") else [f"Changes nothing: {report['reason']}"]
    if rows:
        lines.append(f"{sum(row['used'] for row in rows)} of {len(rows)} figures used:")
    for row in (row for row in rows if row["measured"]):
        use = f"used, {row['before']} -> {row['after']}" if row["used"] else f"not used, stays {row['before']}"
        measured = f"measured {row['measured']} ({row['range']})"
        lines.append(f"  {row['figure']:26} {measured}; {use}{row['reason'] and '; ' + row['reason']}")
    unmeasured: dict[str, list[str]] = {}
    for row in (row for row in rows if not row["measured"]):
        unmeasured.setdefault(row["reason"], []).append(f"{row['figure']} (stays {row['before']})")
    lines += ["Not determined:"] if unmeasured else []
    lines += [f"  {', '.join(names)}: {reason}" for reason, names in unmeasured.items()]
    kinds = report.get("kinds", [])
    lines += ["Kinds that predictions do not use:"] if kinds else []
    return lines + [f"  {each['kind']:26} {each['reason']}" for each in kinds]


def changes(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Each figure of a calibration before and after, largest relative changes first."""
    by_change = [{**row, "moved": relative_change(row["before"], row["after"])} for row in rows]
    by_change.sort(key=lambda row: -abs(row["moved"]) if row["moved"] is not None else -math.inf)
    return [
        {"figure": row["figure"], "moved": row["moved"]}
        | {side: figure(row["figure"], row[side]) for side in ("before", "after")}
        for row in by_change
    ]


def relative_change(before: Any, after: Any) -> float | None:
    """after / before - 1; None if either is missing or `before` is zero."""
    if not isinstance(before, int | float) or not isinstance(after, int | float) or not before:
        return None
    return after / before - 1


def figure(name: str, value: Any) -> str:
    if not isinstance(value, int | float):
        return "none" if value is None else str(value)
    return duration(value) if name.endswith("_s") else sig(value)


def table(rows: Iterable[Measurement]) -> list[dict[str, Any]]:
    return [
        {
            "kind": m.kind,
            "key": key_text(m.key),
            "time": duration(m.median_s),
            "spread": (m.p90_s - m.p10_s) / m.median_s,
            "rate": rate_text(m.kind, m.flops_per_s, m.bytes_per_s),
            "watts": m.watts,
            "kernel": m.kernel,
            "note": "; ".join(filter(None, remarks(m))),
        }
        for m in rows
    ]


def remarks(m: Measurement) -> list[str]:
    wrong = "" if m.check_ok is not False else "wrong result"
    reference = "reference path, not used to calibrate" if m.path == "reference" else ""
    peak = f"peak memory {sig(m.peak_bytes / 1e9)} GB" if m.peak_bytes else ""
    parts = [f"{name.replace('_', ' ')} {duration(value)}" for name, value in (m.parts_s or {}).items()]
    return [reference, wrong, "throttled" if m.throttled else "", peak, *parts, m.note]


# --- drift and comparison ---------------------------------------------------------------------------------------


def drift(agent: Agent) -> str:
    """An SVG of this machine's headline rates over time, from used results of the newest method."""
    rows = (
        Result.objects.filter(agent=agent, state__in=results.USED).exclude(document=None).select_related("accelerator")
    )
    newest = list(rows.order_by("-received_at")[:MAX_RESULTS])
    series: dict[str, list[tuple[Any, float]]] = {}
    for result in reversed([r for r in newest if r.method == newest[0].method]):
        for name, share in shares((result.document or {})["results"], result.accelerator).items():
            series.setdefault(name, []).append((result.received_at, share))
    return result_charts.drift({name: points for name, points in sorted(series.items()) if len(points) > 1})


def comparison(one: Result, other: Result) -> dict[str, Any]:
    """The entries that both results measured. A ratio above 1 means that the second result is faster."""
    first, second = (
        {(m.kind, m.path, key_text(m.key)): m for m in result.measurements.all()} for result in (one, other)
    )
    both = [key for key in first if key in second]
    rows: list[dict[str, Any]] = [
        {
            "kind": key[0],
            "key": key[2],
            "path": key[1],
            "first": duration(first[key].median_s),
            "second": duration(second[key].median_s),
            "ratio": first[key].median_s / second[key].median_s,
        }
        for key in both
    ]
    kinds: dict[str, list[float]] = {}
    for row in rows:
        kinds.setdefault(row["kind"], []).append(row["ratio"])
    summary = [
        {
            "kind": kind,
            "count": len(ratios),
            "median": statistics.median(ratios),
            "low": min(ratios),
            "high": max(ratios),
        }
        for kind, ratios in kinds.items()
    ]
    rows.sort(key=lambda row: -abs(math.log(row["ratio"])))
    split = {"moved": rows[:MAX_DIFFERENCES], "rest": rows[MAX_DIFFERENCES:]}
    return {"rows": rows, **split, "summary": summary, "differences": list(differences(one, other))}


def differences(one: Result, other: Result) -> Iterable[tuple[str, Any, Any]]:
    """(name, first, second) of each device, version and host fact that differs."""
    a, b = one.document or {}, other.document or {}
    for section in ("device", "versions", "host"):
        for name in sorted({*a.get(section, {}), *b.get(section, {})} - {"links", "uuid_hash"}):
            left, right = a.get(section, {}).get(name), b.get(section, {}).get(name)
            if left != right:
                yield f"{section} {name}", left, right
