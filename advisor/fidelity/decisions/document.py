"""The stored track record, and docs/reference/track-record.md."""

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

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


def against_target(record: Json) -> list[Json]:
    """The rule beside its target, by what was measured of the model."""
    lines = []
    for name, methods in record["methods"].items():
        found = methods["rule"]["all"]
        met = found["met"] >= MET_TARGET and found["extra_mean"] <= EXTRA_TARGET
        lines.append({"knowledge": KNOWLEDGE[name], **found, "reached": met})
    return lines


# --- the page -----------------------------------------------------------------------------------------------------

QUESTION = "How often did the first choice meet its limits, and what did it cost beside the best choice?"
GENERATED = (
    "Generated with the [fidelity scorecard](fidelity.md); do not edit. [How options are ordered]"
    "(../explanation/ranking.md) explains the rule."
)
METHOD = """A decision is a question that published measurements can check: one model in one precision with one pair of token
lengths, a latency limit, and the choice among all deployments of at least two chips that were measured for it. A
deployment is a chip, a number of chips, a framework and a layout; its size is the number of concurrent requests.

1. **Prediction.** Every deployment is predicted by a calibration that was fitted without the decided rows. Either no row
   of the model is used (nor of models with the same architecture), or none at these token lengths and in this precision.
   In the second case, rows at other lengths correct the predictions as in answers.
2. **Uncertainty.** The errors are those of answers: the quantiles of held-out errors, here also without the decided
   model. Deployments share errors: of the framework with the model (on all chips), then of the chip with the framework
   version, then of the layout. How much they share is fitted to the other models' rows.
3. **Choice.** Costs are per output token at {draws} joint draws. The rule takes settings with at least 50 % probability
   of meeting the limits and ranks them by expected cost. Where a setting misses a limit in a draw, that draw costs as
   much as the next setting that holds. Among ties within 10 %, settings with at least 80 % go first, then the most
   likely to hold.
4. **Check.** The measured latencies say whether the first choice met its limits. If it did not, the next setting in the
   order of the rule is tested, until one holds. The *extra cost* is the cost of the setting that holds over that of the
   cheapest setting that really meets the limits. The tests themselves and the time they take are not counted.

The limits: six of TPOT, evenly spread (as logarithms) over the measured range of the question; each without and with a
limit of TTFT, the median of the question's deployments. Limits that the same deployments meet count once."""
SOURCES = """The measurements are the means of closed loops that SemiAnalysis published as InferenceX (the sources
`serving_dated` and `serving_nightly` of the scorecard), without disaggregation and speculative decoding, and without
disputed rows. The newest run of a deployment counts. Chips with fewer than three measured settings take no part. Prices
are medians of the current public on-demand offers on {as_of}, per chip-hour: {prices}."""
COLUMNS = ("decisions", "not answered", "met the limits (90 % interval)", "stated", "extra cost: mean", "median", "p90", "load tests")
COLUMN_TEXTS = """*Met* is the share of answered decisions whose first choice met all limits; the interval draws whole questions with
replacement. *Stated* is the mean probability that the method gave. *Load tests* counts until one holds, the first choice
included. *Not answered*: no setting reaches the probability, or none is predicted to meet the limits."""
CANNOT = """- {models} models and {groups} questions are few, and decisions on one question are correlated. All runs are from one
  publisher, on Hopper and Blackwell chips only.
- Limits apply to means of closed loops. Answers have p95 limits under random arrivals, whose errors are larger and are
  not checked here.
- Only published settings can be chosen. Publishers tune for good results, so unpublished settings may be worse.
- Prices are taken as certain and every chip as available. Owned machines, purchases and terms are not checked.
- The structure of the model was developed while these rows were known. Holding out rows removes them from the fitted
  values only. A refit is one Gauss-Newton step from the fit to all rows.
- Host times of vLLM and the kernels of the H200 come from measurements of this project, not from these rows."""


def line(label: Sequence[str], found: Mapping[str, Any]) -> tuple[str, ...]:
    stated = found.get("stated")
    return (
        *label,
        str(found["decisions"]),
        whole(found["unanswered"]),
        f"{whole(found['met'])} ({whole(found['met_low'])} to {whole(found['met_high'])})",
        "-" if stated is None else whole(stated),
        percent_text(found["extra_mean"]),
        percent_text(found["extra_median"]),
        percent_text(found["extra_p90"]),
        f"{found['tests']:.2f}",
    )


def whole(share: float) -> str:
    return f"{share * 100:.0f} %"


def markdown(record: Json, draws: int) -> str:
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
        METHOD.format(draws=f"{draws:,}"),
        "## Where the cases come from",
        SOURCES.format(as_of=record["as_of"], prices=prices),
        cases_table(record),
        "## Why the target is missed",
        reasons(record),
        "## Are the stated probabilities right?",
        "Over all settings of all decisions, not only those that were chosen:",
        reliability_table(record),
        "## The price of not knowing",
        not_knowing(record),
        "## Other tools on the same decisions",
        "Other tools state no probabilities, so they choose the cheapest setting that they predict to meet the limits. "
        "Each part has the settings that the tool answered ([how it was asked](fidelity.md#peers-on-the-same-rows)). "
        "Assay's predictions were made without any row of the model; most rows are known to the makers of AIConfigurator, "
        "who ship them with the tool. A tool that is far too optimistic ends near the best cost after many failed tests, "
        "so read its extra cost together with the load tests.",
        *(peer_table(entry) for entry in record["peers"]),
        "## What this cannot show",
        CANNOT.format(models=models, groups=len(record["groups"])),
    ]
    return "\n\n".join(parts) + "\n"


def verdict(record: Json) -> str:
    lines = []
    for found in against_target(record):
        reached = "is reached" if found["reached"] else "is missed"
        lines.append(
            f"- If {found['knowledge']}, the first choice met its limits in **{whole(found['met'])}** of "
            f"{round(found['decisions'] * (1 - found['unanswered']))} answered decisions, at a mean extra cost of "
            f"**{percent_text(found['extra_mean'])}**. The target ({whole(MET_TARGET)} at {whole(EXTRA_TARGET)}) {reached}."
        )
    return "\n".join(lines)


def methods_section(record: Json, name: str) -> list[str]:
    methods = record["methods"][name]
    rows = [
        line((METHODS[method], limits), found) for method, sets in methods.items() for limits, found in sets.items()
    ]
    return [f"## If {KNOWLEDGE[name]}", table_of(("method", "limits", *COLUMNS), rows)]


def cases_table(record: Json) -> str:
    rows = [
        (g["model"], f"{g['bits']} bits", f"{g['isl']:g} / {g['osl']:g}",
         ", ".join(f"{chip} {count}" for chip, count in g["settings"].items()), g["decisions"])
        for g in record["groups"]
    ]  # fmt: skip
    return table_of(("model", "precision", "tokens in / out", "measured settings", "decisions"), rows)


def reasons(record: Json) -> str:
    """Why, with the figures that show it."""
    new, known = (record["methods"][name]["rule"] for name in (NEW, KNOWN))
    strict = record["methods"][KNOWN]["at least 80 %"]["TPOT"]
    fine = record["finer_steps"]
    return "\n\n".join(
        [
            f"- **The rule accepts 50 %.** It puts a setting with a lower probability first where a surer one costs more "
            f"than 10 % more. Its first choices state {whole(known['all']['stated'])} on average and met their limits in "
            f"{whole(known['all']['met'])}, so the probabilities are not too high; more certainty costs more. With nothing "
            f"below 80 % first, {whole(strict['met'])} meet a TPOT limit at {percent_text(strict['extra_mean'])}.",
            f"- **Limits of TTFT are hard to predict.** With TPOT alone the shares are {whole(new['TPOT']['met'])} and "
            f"{whole(known['TPOT']['met'])}; with TTFT too, {whole(new['TPOT and TTFT']['met'])} and "
            f"{whole(known['TPOT and TTFT']['met'])} ([why](../explanation/accuracy.md#missed-targets)).",
            "- **Published steps are coarse.** Concurrency mostly doubles from one measured setting to the next, so one step "
            "back costs 30 to 60 %. The coarse steps are also a hidden margin: the cheapest setting that is predicted to "
            "meet a limit often meets it by far. The next table repeats both methods with four concurrencies to each "
            "doubling, latencies interpolated between measured ones, where that margin is gone. There the rule meets far "
            "more limits than the cheapest prediction.",
            table_of(
                ("measured", "method", *COLUMNS),
                [
                    line((KNOWLEDGE[name], METHODS[method]), sets["all"])
                    for name, methods in fine.items()
                    for method, sets in methods.items()
                ],
            ),
            "- **Errors of one model on one framework last.** DeepSeek and gpt-oss of TensorRT-LLM on the H200 are predicted "
            "15 to 26 % too fast in all rows. Rows of other models do not show it; one load test does.",
        ]
    )


def reliability_table(record: Json) -> str:
    rows = []
    for name, lines in record["reliability"].items():
        ends = [*(f"{entry['from'] * 100:.0f} %" for entry in lines[1:]), "100 %"]
        rows += [
            (KNOWLEDGE[name], f"{entry['from'] * 100:.0f} to {end}", entry["settings"], percent_text(entry["stated"]),
             percent_text(entry["met"]))
            for entry, end in zip(lines, ends, strict=True)
        ]  # fmt: skip
    return table_of(("measured", "stated probability", "settings", "mean stated", "met the limits"), rows)


def not_knowing(record: Json) -> str:
    tests = record["one_load_test"]
    rows = [
        line((KNOWLEDGE[name], when), found[key])
        for name, found in tests.items()
        for when, key in (("before", "before"), ("after one load test", "after"))
    ]
    promised = " and ".join(
        f"{percent_text(found['promised_mean'])} (if {KNOWLEDGE[name]})" for name, found in tests.items()
    )
    return "\n\n".join(
        [
            "One load test of the deployment that is first, at the nearest other concurrency that was published, corrects "
            "the predictions of all deployments that share an error with it. The decision is then made again. Only "
            "decisions whose first choice has such a point are listed.",
            table_of(("measured", "when", *COLUMNS), rows),
            f"Before the test, its draws promise a mean saving of {promised} of the expected cost. That is less than what "
            "happened: the expected cost assumes that a miss is found at once and costs only the next setting.",
        ]
    )


def peer_table(entry: Mapping[str, Any]) -> str:
    rows = [line((found["who"], METHODS[found["method"]]), found) for found in entry["lines"] if "decisions" in found]
    return table_of((entry["tool"], "method", *COLUMNS), rows)
