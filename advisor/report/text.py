"""The JSON of `advise` as text: a table for a terminal, Markdown for a file, canonical JSON for a comparison."""

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from advisor.report import markdown_escapes as md
from advisor.templatetags.units import si


def meeting(b: Mapping[str, Any]) -> str:
    """Where two ways to pay meet, in one line."""
    one, other = (name.replace("_", " ") for name in b["between"])
    said = [f"breaks even in month {b['month']}, without resale"] if b["month"] else []
    if (share := b["share_of_hours"]) is not None:
        said.append(f"cheaper when more than {share:.0%} of the hours are used" if share < 1 else "dearer at any use")
    if b["tokens_per_month"]:
        beyond = ", more than it can serve" if b["within_capacity"] is False else ""
        said.append(f"cheaper from {si(b['tokens_per_month'])} tokens a month{beyond}")
    return f"{one} against {other}: {', '.join(said) or 'not cheaper within the life of the hardware'}"


Row = dict[str, Any]
CLOCK_VALUES = frozenset({"elapsed_s"})
SIGNIFICANT_DIGITS = 6


def figure(value: float | None, digits: int = 3) -> str:
    """A number for people: this many significant digits, thousands separated, whole numbers never cut."""
    if value is None:
        return "-"
    if abs(value) >= 10 ** (digits - 1):
        return f"{value:,.0f}"
    return f"{value:.{digits}g}" if value else "0"


def between(low_high: Iterable[float] | None, digits: int = 3) -> str:
    return "" if low_high is None else " ({}..{})".format(*(figure(value, digits) for value in low_high))


def shortened(text: str, most: int = 80) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


COLUMNS: tuple[tuple[str, Callable[[Row], str]], ...] = (
    ("#", lambda r: str(r["rank"])),
    ("deployment", lambda r: r["label"]),
    ("from", lambda r: " ".join(filter(None, (r["provider"], r["region"])))),
    ("USD/month", lambda r: figure(r["usd_per_month"])),
    ("USD/M output", lambda r: figure(r["usd_per_mtok_output"])),
    ("TTFT p95 ms", lambda r: figure(r["ttft_ms"]["p95"])),
    ("TPOT p95 ms", lambda r: figure(r["tpot_ms"]["p95"])),
    ("output tok/s", lambda r: figure(r["output_tokens_per_s"])),
    ("load", lambda r: "-" if r["utilisation"] is None else f"{r['utilisation']:.0%}"),
    ("basis", lambda r: r["basis"]),
)
VECTOR_COLUMNS: tuple[tuple[str, Callable[[Row], str]], ...] = (
    *COLUMNS[:4],
    ("USD/M tokens", lambda r: figure(r["usd_per_mtok_input"])),
    ("latency p95 ms", lambda r: figure(r["latency_ms"]["p95"])),
    ("tokens/s", lambda r: figure(r["input_tokens_per_s"])),
    ("sequences/s", lambda r: figure(r["sequences_per_s"])),
    *COLUMNS[-2:],
)  # of embeddings, which have no output tokens
WORDS = 3  # so many leading columns are text, the rest are numbers and align right


def cells(recommendations: list[Row]) -> list[list[str]]:
    columns = VECTOR_COLUMNS if any("latency_ms" in r for r in recommendations) else COLUMNS
    return [[name for name, _ in columns]] + [[show(r) for _, show in columns] for r in recommendations]


def aligned(rows: list[list[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    last = len(widths) - 1
    return [
        "  ".join(
            cell.ljust(width) if i < WORDS or i == last else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def head(result: Row) -> str:
    counts, catalog = result["candidates"], result["catalog"]
    workload = result["workload"]
    known = workload.get("prices_as_of") if isinstance(workload, dict) else None
    return (
        f"{counts['evaluated']:,} plans evaluated, {counts['feasible']:,} feasible; "
        f"catalog {catalog['version'][:12]}, prices as of {catalog['prices_as_of']}"
        f"{f' as known on {known}' if known else ''}, engine {result['engine_version']}"
    )


def table(result: Row, top: int | None = None) -> str:
    """What a person reads first: the verdict, the ranked plans, why not the others."""
    lines = [result["verdict"], ""]
    if shown := result["recommendations"][:top]:
        lines += [
            *aligned([[shortened(cell) for cell in row] for row in cells(shown)]),
            "",
            *views(result),
            *sureness(result),
            *near(result),
            "",
            "start the first with:",
            launch(shown[0]),
            "",
        ]
        lines += [f"of the first: {said}" for said in shown[0].get("demand", [])]
        lines += [f"warning: {warning}" for warning in shown[0]["warnings"]]
    else:
        lines += nearest(result)
    return "\n".join(
        [
            *lines,
            *already(result),
            *parts(result),
            *mixed(result),
            *by_token(result),
            *not_chosen(result),
            *unused(result),
            head(result),
        ]
    )


def launch(r: Row) -> str:
    return "\n".join(f"  {line}" for line in str(r["launch"]["command"]).splitlines())


def views(result: Row) -> list[str]:
    found = {name: rank for name, rank in result["views"].items() if rank is not None}
    bound = result.get("price_bound")
    lines = ["best by view: " + ", ".join(f"{name} #{rank}" for name, rank in found.items())] if found else []
    return lines + ([bound["said"]] if bound else [])


def sureness(result: Row, most: int = 3) -> list[str]:
    """How sure the first is, and what would make another win."""
    shown = result["recommendations"]
    rivals = (shown[0].get("beats") or [])[:most] if shown else []
    lines = [f"#1 beats #{r['rank']} with probability {r['probability']:.0%}" for r in rivals]
    told = [f"{item['assumption']}: {item['detail']}" for item in result.get("sensitivity") or []]
    return [*([", ".join(lines)] if lines else []), *(f"would change it: {text}" for text in told)]


def near(result: Row, what: str = "near miss", most: int = 3) -> list[str]:
    """What missed by little, by how much and what would let it pass."""
    return [f"{what}: {miss['label']}: {'; '.join(miss['reasons'])}" for miss in result["near_misses"][:most]]


def nearest(result: Row) -> list[str]:
    """What almost passed, when nothing did."""
    misses = near(result, "nearest miss")
    changes = [
        f"{item['accelerator']} {item['smallest_change']}" for item in told(result)[0] if item["smallest_change"]
    ]
    return misses + changes[:3]


def told(result: Row) -> tuple[list[Row], int]:
    """The rejections worth a line each, and how many the asker's own constraints left out."""
    rest = [item for item in result["rejected"] if item["reason"] != "excluded"]
    return rest, len(result["rejected"]) - len(rest)


def not_chosen(result: Row, most: int = 8) -> list[str]:
    rejected, excluded = told(result)
    lines = [f"not {item['accelerator']}: {item['detail']}" for item in rejected[:most]]
    if len(rejected) > most:
        lines.append(f"... and {len(rejected) - most} more (--format json lists all)")
    near = [
        f"not {what.removesuffix('s')} {item['name']}: {item['smallest_change']}"
        for what, items in (result.get("left_out") or {}).items()
        for item in items
        if item["smallest_change"]
    ]
    return lines + ([f"{excluded} left out by your constraints"] if excluded else []) + near[:most]


def already(result: Row) -> list[str]:
    """What to do with the accelerators that are there."""
    return [f"owned {o['count']} x {o['accelerator']}: {o['said']}" for o in result.get("owned", [])]


def unused(result: Row) -> list[str]:
    """What the asker wrote that did not change the answer."""
    return [f"not used: {item['field']}: {item['instead']}" for item in result.get("not_used", [])]


HOSTED: tuple[tuple[str, Callable[[Row], str]], ...] = (
    ("buying it by the token", lambda h: f"{h['provider']} {h['name']}"),
    ("on", lambda h: h["accelerator"] or ""),
    ("price of", lambda h: h["as_of"]),
    ("USD/month", lambda h: figure(h["usd_per_month"])),
    ("by cost", lambda h: str(h["rank_by_cost"] or "-")),
    ("USD/M input", lambda h: figure(h["usd_per_mtok_input"])),
    ("cached", lambda h: figure(h["usd_per_mtok_cached_input"])),
    ("USD/M output", lambda h: figure(h["usd_per_mtok_output"])),
    ("published tok/s", lambda h: figure(h["published_output_tokens_per_s"])),
    ("break-even Mtok/month", lambda h: figure(in_millions(h["break_even_tokens_per_month"]))),
)


def in_millions(tokens: float | None) -> float | None:
    return None if tokens is None else tokens / 1e6


def hosted_cells(offers: list[Row]) -> list[list[str]]:
    return [[name for name, _ in HOSTED]] + [[show(offer) for _, show in HOSTED] for offer in offers]


def parts(result: Row) -> list[str]:
    """The card's parts against the whole card, and adapters against merged copies, where that was a question."""
    return [line for key in ("sharing", "adapters") if key in result for line in (result[key]["said"], "")]


def mixed(result: Row) -> list[str]:
    """Whether several kinds of machine together are cheaper."""
    said = (result.get("mix") or {}).get("said")
    return [said, ""] if said else shared(result)


def shared(result: Row) -> list[str]:
    """Of a portfolio: each alone, and who runs where and when on the shared fleet."""
    told = result.get("portfolio")
    if not told:
        return []
    lines = [f"- alone {a['name']}: {a['option']['label'] if a['option'] else a['verdict']}" for a in told["alone"]]
    for r in told["shared"]["runs"] if told["shared"] else []:
        lines += [
            f"- {r['workload']} on {r['machine']} ({r['setup']}): {h['when']}, {figure(h['replicas'])} replicas, "
            f"{figure(h['requests_per_s'])} requests/s"
            for h in r["hours"]
        ]
    return [*lines, *side_by_side(told.get("packed") or {}), ""]


def side_by_side(told: Row) -> list[str]:
    """Of small models on the same cards: which are on which, as processes and in hardware instances."""
    return [
        f"- {way}, card {k}: "
        + ", ".join(
            f"{t['workload']} {t['partition'] or ''}".strip() + f" {figure(t['memory_gib'])} GiB"
            for t in card["tenants"]
        )
        for way in ("processes", "instances")
        for k, card in enumerate((told.get(way) or {}).get("cards", []), 1)
    ]


def by_token(result: Row, most: int = 5) -> list[str]:
    """Hosted endpoints of the model, the cheapest first: published prices, no estimate."""
    offers = result.get("hosted") or []
    if not offers:
        return []
    rows = aligned([[shortened(cell, 50) for cell in row] for row in hosted_cells(offers[:most])])
    more = [f"... and {len(offers) - most} more (--format json lists all)"] if len(offers) > most else []
    return [*rows, *more, "published prices and speeds, not estimated; your service levels are not verified", ""]


def hosted(result: Row) -> list[str]:
    offers = result.get("hosted") or []
    if not offers:
        return []
    first, *rest = hosted_cells(offers)
    said = "Prices and speeds as published, not estimated; the service levels are not verified."
    table = [md.row(first), md.row("---" for _ in first), *map(md.row, rest)]
    return ["## Buying it by the token", "", said, "", *table, ""]


def markdown(result: Row, top: int | None = None) -> str:
    """A page to paste: verdict, table, the first plan in full, rejections, sources."""
    shown = result["recommendations"][:top]
    lines = [md.heading(1, name_of(result)), "", md.paragraph(result["verdict"]), ""]
    if shown:
        first, *rest = cells(shown)
        lines += [md.row(first), md.row("---" for _ in first), *map(md.row, rest), ""]
        lines += first_in_full(shown[0])
        lines += [*map(md.item, (*views(result), *sureness(result), *near(result))), ""]
    else:
        lines += [*map(md.item, nearest(result)), ""]
    notes = [md.item(text) for text in unused(result)]
    lines += [*map(listed, (*parts(result), *mixed(result))), *hosted(result)]
    ending = [*rejections(result), *([*notes, ""] if notes else []), *sources(result), md.paragraph(head(result))]
    return "\n".join([*lines, *ending])


def listed(line: str) -> str:
    """A line of the terminal's text, of which a list's begin with a dash."""
    return md.item(line[2:]) if line.startswith("- ") else md.paragraph(line)


def rejections(result: Row) -> list[str]:
    rejected, excluded = told(result)
    rows = [[r["accelerator"], r["reason"], r["detail"], r["smallest_change"]] for r in rejected]
    rows += [[f"{excluded} others", "excluded", "left out by your constraints", ""]] if excluded else []
    for what, items in (result.get("left_out") or {}).items():
        rows += [
            [f"{what.removesuffix('s')} {r['name']}", r["reason"], r["detail"], r["smallest_change"]] for r in items
        ]
    if not rows:
        return []
    head = ["what", "reason", "why", "what would change it"]
    return ["## Not chosen", "", *(md.row(row) for row in [head, ["---"] * 4, *rows]), ""]


def name_of(result: Row) -> str:
    workload = result["workload"]
    return str(workload["name"] if isinstance(workload, dict) else workload)


def percentiles(values: Row) -> str:
    return " / ".join(figure(values[name]) for name in ("p50", "p95", "p99"))


def first_in_full(r: Row) -> list[str]:
    token = "input" if "latency_ms" in r else "output"
    usd = figure(r[f"usd_per_mtok_{token}"]) + between(r["interval"].get(f"usd_per_mtok_{token}"))
    latencies = [("latency", "ttft")] if token == "input" else [("TTFT", "ttft"), ("TPOT", "tpot")]
    memory = ", ".join(f"{name.removesuffix('_gib')} {figure(gib)}" for name, gib in r["memory"].items())
    rows = [
        ("figure", "value (90 % interval)"),
        ("---", "---"),
        (f"USD per million {token} tokens", usd),
        *((f"{name} p50 / p95 / p99 (ms)", percentiles(r[f"{key}_ms"])) for name, key in latencies),
        ("memory per chip (GiB)", memory),
        ("power (W)", figure(r["watts"])),
        ("bound by", str(r["bound"])),
    ]
    notes = [md.item(text) for text in (*r["reasons"], *(f"Warning: {warning}" for warning in r["warnings"]))]
    launch = [*md.fenced(str(r["launch"]["command"]), "sh"), *ready_lines(r["launch"])]
    notes += bill_lines(r)
    return [md.heading(2, r["label"]), "", *map(md.row, rows), "", *notes, "", *launch, "", *how_to_run(r)]


def how_to_run(r: Row) -> list[str]:
    """Optimisation plan, formats, frameworks and pitfalls of the first plan; nothing for answers without them."""
    found = r.get("tuning")
    if not found:
        return []
    steps = [
        [
            s["name"],
            s["state"].replace("_", " "),
            ratio(s["gain_ratio"]),
            "; ".join(filter(None, (s["change"], s["because"]))),
        ]
        for s in (found["plan"] or {"steps": []})["steps"]
    ]
    formats = [
        [f["name"], f["state"], ratio(f["gain_ratio"]), f["framework"] or "-", f["why"], f["warning"]]
        for f in found["formats"]
        if f["state"] in ("advised", "plan", "possible", "outside")
    ]
    frameworks = [
        [f"{f['name']} {f['version']}", *(figure(f[k]) for k in RIVAL_FIGURES), f["effort"], f["maturity"]]
        for f in found["frameworks"]
        if f["output_tokens_per_s_per_accelerator"]
    ]
    others = [
        [v["label"], figure(v["usd_per_month"]), figure(v["ttft_ms"]["p95"]), figure(v["tpot_ms"]["p95"])]
        for v in r.get("variants", [])
    ]
    return [
        *section("Another way, simulated", ["deployment", "USD/month", "TTFT p95 ms", "TPOT p95 ms"], others),
        *section("How to get there", ["technique", "state", "gain", "what"], steps),
        *section("Formats of the weights", ["format", "state", "gain", "under", "why", "warning"], formats),
        *section(
            "Frameworks", ["framework", "tokens/s a chip", "TTFT ms", "TPOT ms", "effort", "maturity"], frameworks
        ),
        *(["### Under the roofs", "", *map(md.item, found["roofline"]["sentences"]), ""]),
        *(["### Pitfalls", "", *(md.item(f"{p['what']}: {p['remedy']}") for p in found["pitfalls"]), ""]),
    ]


RIVAL_FIGURES = ("output_tokens_per_s_per_accelerator", "ttft_ms", "tpot_ms")


def ratio(value: float | None) -> str:
    return "-" if value is None else f"x{value:.2f}"


def section(title: str, columns: list[str], rows: list[list[str]]) -> list[str]:
    if not rows:
        return []
    return [f"### {title}", "", *(md.row(row) for row in [columns, ["---"] * len(columns), *rows]), ""]


def ready_lines(launch: Row) -> list[str]:
    """What is known of the command's options, and the test of the predicted load."""
    lines, flags, test = [], launch.get("flags"), launch.get("load_test")
    if flags:
        unknown = f"not found: {', '.join(flags['unknown'])}; " if flags["unknown"] else ""
        state = "Options in the list of" if flags["checked"] else "Options unchecked:"
        lines += ["", md.paragraph(f"{state} {unknown}{flags['source']}.")]
    if test:
        lines += ["", "The predicted load, after load_trace.py:", "", *md.fenced(test["commands"]["vllm"], "sh")]
    return lines


def bill_lines(r: Row) -> list[str]:
    """The month's bill by part, and other ways to pay for the same machines."""
    if not r.get("money"):
        return []
    m = r["money"]
    rows = [(part["name"], f"{part['usd_per_month']:,.2f}") for part in m["parts"] if part["usd_per_month"]]
    table = [("part of the bill", "USD a month"), ("---", "---"), *rows, ("together", f"{m['usd_per_month']:,.2f}")]
    ways = [
        (
            f"{w['acquisition']}, {w['term']}",
            w["provider"],
            f"{w['usd_per_month']:,.0f}",
            f"{w['npv_usd']:,.0f}",
            w["basis"],
        )
        for w in m["ways_to_pay"]
    ]
    head = [
        ("way to pay", "at", "USD a month", f"net present value, {m['horizon_months']} months", "basis"),
        ["---"] * 5,
    ]
    return ["", *map(md.row, table), "", *map(md.row, [*head, *ways])]


def sources(result: Row) -> list[str]:
    lines = [md.item(source_text(source)) for source in result["sources"]]
    return ["## Sources", "", *lines, ""] if lines else []


def source_text(source: Row) -> str:
    return f"{source['what']}: {source['source']} ({source['as_of']})"


def canonical(result: Row) -> str:
    """The same text for the same answer: sorted keys, six significant digits, no clock values."""
    return json.dumps(rounded(result), sort_keys=True, indent=2, ensure_ascii=False)


def rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: rounded(item) for key, item in value.items() if key not in CLOCK_VALUES}
    if isinstance(value, list | tuple):
        return [rounded(item) for item in value]
    return float(f"{value:.{SIGNIFICANT_DIGITS}g}") if isinstance(value, float) else value
