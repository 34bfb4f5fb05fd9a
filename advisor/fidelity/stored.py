"""What the laboratory wrote and the accuracy page shows: the track record, reliability, and errors of other tools."""

import functools
from collections.abc import Mapping
from typing import Any

import yaml

from catalog.shipped import FIXTURES

Json = dict[str, Any]
TRACK_RECORD = FIXTURES / "calibration" / "fit" / "track_record.yaml"
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
COMPARED = FIXTURES / "peers" / "compared.yaml"
FIT_SCORES = FIXTURES / "calibration" / "fit" / "scores.yaml"
MOST_CALIBRATION_ERROR = 0.04  # the target

# errors published for other tools: (tool, error, conditions, source)
PEERS = (
    (
        "BLIS inference-sim",
        "end-to-end 6.7 % median, ITL 7.1 %, TTFT mean 17.6 %, p99 29 %; unseen A100 15.7 %, L40S 13.3 %",
        "36 unseen configurations, vLLM, after calibration",
        "docs/blog/how-blis-learns-latency.md",
    ),
    ("LLMServingSim 2.0", "TTFT 2.1 %, TPOT 1.7 %", "an example in its contributors' guide", "pr-workflow.md"),
    ("Vidur", "below 9 %", "latency; profiled chips, 7 dense models; quoted from memory", "its paper"),
    ("GenZ", "5.82 % geometric mean", "whole-model runs on the chips of its paper", "abstract of its paper"),
    ("LLMCompass", "10.9 % operators, 4.1 % inference", "A100, MI210, TPUv3", "ISCA 2024 abstract"),
    ("chimeraforge 0.76", "decode median 35.9 %; 13 % of cells within 25 %", "n = 15", "its README"),
)

# Circumstances that often explain a large error, in order; the first that applies is reported. This is no proof.
REASONS: Mapping[str, str] = {
    "disputed": "disputed",
    "misfit": "predicted not to fit, but it ran",
    "noisy": "measured values of this case differ by more than 25 %",
    "client": "the client's behavior is unknown",
    "saturated": "saturated: the queue grows during the run, so small errors in the rate become large",
    "speculative": "speculative decoding with an unstated acceptance rate",
    "layout": "the source does not state the layout",
    "tail": "99th percentile of few requests",
    "tuned": "queueing at a rate tuned to the latency limits",
    "old": "software of 2024 or earlier",
    "": "unknown",
}


@functools.lru_cache(maxsize=1)
def track_record() -> Json:
    """The track record; empty if none was written."""
    return dict(yaml.safe_load(TRACK_RECORD.read_text(encoding="utf-8"))) if TRACK_RECORD.exists() else {}


def track_record_shown() -> Json:
    """What the accuracy page shows of it; empty if none was written."""
    record = track_record()
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


def fit_scores() -> Json:
    """The errors of the fit on rows that it did not see; empty if none were written."""
    return dict(yaml.safe_load(FIT_SCORES.read_text(encoding="utf-8"))) if FIT_SCORES.exists() else {}


@functools.lru_cache(maxsize=1)
def peers_on_the_same_rows(digest: str) -> tuple[Json, ...]:
    """Errors of other tools and of Assay on the same rows; empty if they belong to another scorecard than this one."""
    document = yaml.safe_load(COMPARED.read_text(encoding="utf-8"))
    return tuple(document["entries"]) if document["scorecard"] == digest else ()
