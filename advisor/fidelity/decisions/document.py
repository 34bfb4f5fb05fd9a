"""The stored track record, and docs/reference/track-record.md."""

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from advisor.fidelity.decisions.track_record import DRAWS
from advisor.fidelity.scores.report import percent_text, table_of

Json = dict[str, Any]
PATH = Path(__file__).resolve().parents[3] / "fixtures" / "calibration" / "fit" / "track_record.yaml"
NAME = "track-record.md"
MET_TARGET, EXTRA_TARGET = 0.90, 0.12
METHODS: Mapping[str, str] = {
    "rule": "Assay's rule",
    "cheapest predicted": "cheapest that is predicted to meet the limits",
    "always B200": "the same, always on a B200",
    "always newest": "the same, always on the newest chip",
    "at least 80 %": "Assay's rule, but nothing below 80 % first",
    "at least 90 %": "Assay's rule, but nothing below 90 % first",
}
NEW, KNOWN = "new model", "other lengths measured"
KNOWLEDGE: Mapping[str, str] = {
    NEW: "nothing of the model was measured",
    KNOWN: "the model was measured at other token lengths",
}


@functools.lru_cache(maxsize=1)
def stored() -> Json:
    """The track record; empty if none was written."""
    return dict(yaml.safe_load(PATH.read_text(encoding="utf-8"))) if PATH.exists() else {}


def yaml_text(record: Json) -> str:
    return "# Written by `fidelity --write-docs`; do not edit. docs/reference/track-record.md\n" + yaml.safe_dump(
        record, sort_keys=False, width=120, allow_unicode=True
    )


def write(record: Json, document: Path) -> None:
    """Writes the stored record and its page."""
    PATH.write_text(yaml_text(record), encoding="utf-8")
    document.write_text(markdown(record), encoding="utf-8")


def against_target(record: Json) -> list[Json]:
    """The rule beside its target, by what was measured of the model."""
    lines = []
    for name, methods in record["methods"].items():
        found = methods["rule"]["all"]
        met = found["met"] >= MET_TARGET and found["extra_mean"] <= EXTRA_TARGET
        lines.append({"knowledge": KNOWLEDGE[name], **found, "reached": met})
    return lines


def shown() -> Json:
    """What the accuracy page shows of it; empty if none was written."""
    record = stored()
    if not record:
        return {}
    kept = ("rule", "cheapest predicted", "always B200", "at least 80 %")
    lines = [
        {"knowledge": KNOWLEDGE[name], "method": METHODS[method], **methods[method]["all"]}
        for name, methods in record["methods"].items()
        for method in kept
    ]
    tests = [
        {
            "knowledge": KNOWLEDGE[name],
            "decisions": found["decisions"],
            "before": found["before"],
            "after": found["after"],
        }
        for name, found in record["one_load_test"].items()
    ]
    return {
        "as_of": record["as_of"],
        "groups": len(record["groups"]),
        "models": len({g["model"] for g in record["groups"]}),
        "target": {"met": MET_TARGET, "extra": EXTRA_TARGET},
        "lines": lines,
        "tests": tests,
        "peers": [line for entry in record["peers"] for line in entry["lines"] if "decisions" in line],
    }


# --- the page -----------------------------------------------------------------------------------------------------

QUESTION = "How often did the first choice meet its limits, and what did it cost beside the best choice?"
GENERATED = (
    "Generated with the [fidelity scorecard](fidelity.md); do not edit. "
    "[How options are ordered](../explanation/ranking.md) explains how answers rank options."
)
METHOD = """A decision is a question that published measurements can check: one model in one precision with one pair of
token lengths, a latency limit, and the choice among all deployments of at least two chips that were measured for it. A
setting is a chip, a number of chips, a framework, a layout and a number of concurrent requests.

1. **Prediction.** Every setting is predicted by a calibration that was fitted without the decided rows. Either no row
   of the model is used (nor of models with the same architecture), or none at these token lengths and in this
   precision. In the second case, rows at other lengths correct the predictions as in answers.
2. **Uncertainty.** The errors are those of answers: the quantiles of held-out errors, here also without the decided
   model. Settings share errors: of the framework with the model (on all chips), of the chip with the framework version,
   and of the layout. How much they share is fitted to the rows of the other models.
3. **Choice.** Costs are per output token, in {draws} joint draws of all settings. The rule takes settings that meet the
   limits in at least 50 % of the draws, and ranks them by expected cost. In a draw where a setting misses a limit, its
   cost is that of the next setting that holds. Of settings within 10 % of the lowest expected cost that the cheapest
   does not beat in 90 % of the draws, those with at least 80 % probability go first, then the most likely to hold.
4. **Check.** The measured latencies say whether the first choice met its limits. If not, the next setting in the order
   of the method is tested, until one holds. The *extra cost* is the cost of the setting that holds over that of the
   cheapest setting that really meets the limits. The cost of the tests themselves is not counted.

There are six limits of TPOT, evenly spread (as logarithms) over the measured range of the question, each without and
with a limit of TTFT: the median of the question's settings. Limits that the same settings meet count once."""
SOURCES = """The measurements are the sources `serving_dated` and `serving_nightly` of the scorecard: means of closed
loops, without disaggregation, speculative decoding and disputed rows. If a setting was measured again, the newest
run counts. Chips with fewer than three measured settings take no part. Prices are medians of the current public
on-demand offers of virtual machines and bare metal on {as_of}, per chip-hour: {prices}."""
COLUMNS = (
    *("decisions", "not answered", "met the limits (90 % interval)", "stated"),
    *("extra cost: mean", "median", "p90", "load tests"),
)
COLUMN_TEXTS = """- *not answered*: no setting reaches the probability, or none is predicted to meet the limits.
- *met the limits*: the share of answered decisions whose first choice met all limits. The interval comes from drawing
  whole questions with replacement.
- *stated*: the mean probability that the method stated for its first choice.
- *load tests*: until a setting holds, the first choice included."""
PEERS = """Other tools state no probabilities, so for them the first choice is the cheapest setting that they predict
to meet the limits. Each table has the settings that one tool answered ([how it was
asked](fidelity.md#peers-on-the-same-rows)). Assay's predictions here use no row of the model; most of these rows are
shipped with AIConfigurator for comparison. A tool that is far too optimistic finds a cheap setting after many failed
load tests, so read the extra cost together with their number."""
CANNOT = """- {models} models and {groups} questions are few, decisions on one question are correlated, and all runs are
  from one publisher, on Hopper and Blackwell GPUs.
- The limits apply to means of closed loops. Answers have p95 limits under random arrivals, with larger errors.
- Only published settings can be chosen. Publishers tune for good results and leave out poor ones.
- Prices count as certain and every chip as available. Purchases, terms and owned machines are not checked.
- These rows were known while the model was developed. Holding them out removes them from the fitted values only, by one
  Gauss-Newton step from the fit to all rows. Host times of vLLM and the kernels of the H200 come from other
  measurements.
- Corrections of answers treat the user's machines as different from the publisher's. Here they are the same, so the
  stated probabilities are lower than they could be."""


def whole(share: float) -> str:
    return f"{share * 100:.0f} %"


def line(label: Sequence[str], found: Mapping[str, Any]) -> tuple[str, ...]:
    stated = found.get("stated")
    return (
        *label,
        str(found["decisions"]),
        whole(found["unanswered"]),
        f"{whole(found['met'])} ({whole(found['met_low'])} to {whole(found['met_high'])})",
        "-" if stated is None else whole(stated),
        *(percent_text(found[name]) for name in ("extra_mean", "extra_median", "extra_p90")),
        f"{found['tests']:.2f}",
    )


def markdown(record: Json) -> str:
    prices = ", ".join(f"{chip} ${usd:.2f}" for chip, usd in record["usd_per_chip_hour"].items())
    models = len({g["model"] for g in record["groups"]})
    parts = [
        "# Track record",
        QUESTION,
        GENERATED,
        verdict(record),
        *(part for name in record["methods"] for part in methods_section(record, name)),
        COLUMN_TEXTS,
        "## How decisions are made and checked",
        METHOD.format(draws=f"{DRAWS:,}"),
        "## Where the cases come from",
        SOURCES.format(as_of=record["as_of"], prices=prices),
        cases_table(record),
        *([] if all(found["reached"] for found in against_target(record)) else reasons(record)),
        "## Are the stated probabilities right?",
        "All settings of all decisions, not only those that were chosen:",
        reliability_table(record),
        "## The price of not knowing",
        *not_knowing(record),
        "## Other tools on the same decisions",
        PEERS,
        *(peer_table(entry) for entry in record["peers"]),
        "## What this cannot show",
        CANNOT.format(models=models, groups=len(record["groups"])),
    ]
    return "\n\n".join(parts) + "\n"


def verdict(record: Json) -> str:
    lines = []
    for found in against_target(record):
        reached = "reached" if found["reached"] else "missed"
        answered = round(found["decisions"] * (1 - found["unanswered"]))
        lines.append(
            f"- If {found['knowledge']}, the first choice met its limits in **{whole(found['met'])}** of {answered} "
            f"answered "
            f"decisions, at a mean extra cost of **{percent_text(found['extra_mean'])}**. The target ("
            f"{whole(MET_TARGET)} at {whole(EXTRA_TARGET)}) is {reached}."
        )
    return "\n".join(lines)


def methods_section(record: Json, name: str) -> list[str]:
    methods = record["methods"][name]
    rows = [
        line((METHODS[method], limits), found) for method, sets in methods.items() for limits, found in sets.items()
    ]
    return [f"## If {KNOWLEDGE[name]}", table_of(("method", "limits", *COLUMNS), rows)]


def cases_table(record: Json) -> str:
    rows = []
    for g in record["groups"]:
        settings = ", ".join(f"{chip} {count}" for chip, count in g["settings"].items())
        rows.append((g["model"], f"{g['bits']} bits", f"{g['isl']:g} / {g['osl']:g}", settings, g["decisions"]))
    return table_of(("model", "precision", "tokens in / out", "measured settings", "decisions"), rows)


def reasons(record: Json) -> list[str]:
    """Why the target is missed, with the figures that show it."""
    new, known = (record["methods"][name]["rule"] for name in (NEW, KNOWN))
    strict = record["methods"][KNOWN]["at least 80 %"]["TPOT"]
    rows = [
        line((KNOWLEDGE[name], METHODS[method]), sets["all"])
        for name, methods in record["finer_steps"].items()
        for method, sets in methods.items()
    ]
    return [
        "## Why the target is missed",
        "- **The rule accepts 50 %.** A setting with less than 80 % goes first if surer ones cost over 10 % more. If "
        f"{KNOWLEDGE[KNOWN]}, its first choices state {whole(known['all']['stated'])} on average and "
        f"{whole(known['all']['met'])} met their limits, so the probabilities are not too high. With nothing below "
        f"80 % "
        f"first, {whole(strict['met'])} meet a limit of TPOT, at {percent_text(strict['extra_mean'])} extra.\n"
        f"- **TTFT is hard to predict.** With a limit of TPOT alone, {whole(new['TPOT']['met'])} (new model) and "
        f"{whole(known['TPOT']['met'])} (measured model) met it; with one of TTFT too, "
        f"{whole(new['TPOT and TTFT']['met'])} and {whole(known['TPOT and TTFT']['met'])} "
        "([reasons](../explanation/accuracy.md#missed-targets)).\n"
        "- **A model's errors on one framework are alike.** DeepSeek and gpt-oss of TensorRT-LLM on the H200 are "
        "predicted "
        "15 to 26 % too fast in all rows. Rows of other models do not show it; one load test does.\n"
        "- **Published steps are coarse.** Concurrency mostly doubles from one setting to the next, so one step "
        "back costs "
        "much. Coarse steps are also a hidden margin: the cheapest setting that is predicted to meet a limit often "
        "meets it by far.",
        "Without that margin, the rule meets its limits clearly more often than the cheapest prediction does. This "
        "table "
        "has four concurrencies to each doubling; latencies between measured settings are interpolated:",
        table_of(("measured", "method", *COLUMNS), rows),
    ]


def reliability_table(record: Json) -> str:
    rows = []
    for name, lines in record["reliability"].items():
        for entry, end in zip(lines, [*(each["from"] for each in lines[1:]), 1.0], strict=True):
            within = f"{entry['from'] * 100:.0f} to {end * 100:.0f} %"
            shares = percent_text(entry["stated"]), percent_text(entry["met"])
            rows.append((KNOWLEDGE[name], within, entry["settings"], *shares))
    return table_of(("measured", "stated probability", "settings", "mean stated", "met the limits"), rows)


def not_knowing(record: Json) -> list[str]:
    tests = record["one_load_test"]
    rows = [
        line((KNOWLEDGE[name], when), found[key])
        for name, found in tests.items()
        for when, key in (("before", "before"), ("after one load test", "after"))
    ]
    promised = " and ".join(
        f"{percent_text(found['promised_mean'])} (if {KNOWLEDGE[name]})" for name, found in tests.items()
    )
    return [
        "One load test of the first choice's deployment, at the nearest other concurrency that was published, "
        "corrects the "
        "predictions of all settings that share an error with it. Then the decision is made again. The table has the "
        "decisions whose first choice has such a point.",
        table_of(("measured", "when", *COLUMNS), rows),
        f"Before the test, the draws promise a mean saving of {promised} of the expected cost. They promise less than "
        "happens, because a miss without a test counts only the cost of the next setting that holds.",
    ]


def peer_table(entry: Mapping[str, Any]) -> str:
    rows = [line((found["who"], METHODS[found["method"]]), found) for found in entry["lines"] if "decisions" in found]
    return table_of((f"settings that {entry['tool']} answered", "method", *COLUMNS), rows)
