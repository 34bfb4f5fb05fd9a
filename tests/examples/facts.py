"""What the page about limits states: how accelerators are known, errors on held-out rows, and the ages of prices."""

import csv
import json
from datetime import date
from typing import Any

import yaml

from tests.examples import ROOT, STORE

FIXTURES = ROOT / "fixtures"
BASES = {
    "measured": "its kernels were timed",
    "relative": "measured rows of its family exist, or it is scaled from it",
    "datasheet": "published rates, with efficiencies of other chips",
}
HELD_OUT = {
    "none (in-sample)": "nothing: the fit saw these rows",
    "one model": "the model",
    "one framework version": "the framework version",
    "one accelerator": "the accelerator",
    "one family": "the family of accelerators",
}
FIGURES = {
    "tpot": "TPOT",
    "ttft": "TTFT",
    "throughput": "throughput",
    "static": "static batches",
    "prefill": "llama.cpp prefill",
}
OLD_DAYS = 90
MOST_DAYS = 120  # of a rent that decides a shipped answer
WAYS = {"buy": "purchase", "rent": "rent", "reserve": "rent with a commitment", "api": "per token"}
Json = dict[str, Any]
Table = list[list[str]]


def known() -> Table:
    """Accelerators by the best calibration that applies to them, and those without a price."""
    scopes = {read["name"] for path in FIXTURES.glob("calibration/*.yaml") if (read := document(path)).get("name")}
    chips = [document(path) for path in FIXTURES.glob("accelerators/*.yaml")]
    counts = dict.fromkeys(BASES, 0)
    for chip in chips:
        measured, related = (
            f"accelerator:{chip['slug']}" in scopes,
            f"family:{chip['family'].replace(' ', '-')}" in scopes,
        )
        counts["measured" if measured else "relative" if related else "datasheet"] += 1
    rows = [[f"*{basis.capitalize()}*: {says}", str(counts[basis])] for basis, says in BASES.items()]
    return [*rows, ["In the catalog", str(len(chips))]]


def document(path: Any) -> Json:
    return dict(yaml.safe_load(path.read_text()))


def held_out() -> Table:
    """Median error by what the fit did not see."""
    found = document(FIXTURES / "fidelity" / "scorecard.yaml")["left_out"]["held out"]
    return [[says, *(f"{found[key][figure]:.0%}" for figure in FIGURES)] for key, says in HELD_OUT.items()]


def prices() -> Json:
    """Number, oldest and newest date of the prices of each origin, and how many are old on the newest day."""
    days: dict[str, list[date]] = {}
    for path in FIXTURES.glob("prices/*.csv"):
        with path.open(newline="") as file:
            for line in csv.DictReader(file):
                days.setdefault(line.get("origin") or "not recorded", []).append(date.fromisoformat(line["as_of"]))
    newest = max(max(of) for of in days.values())
    return {
        origin: {"prices": len(of), "oldest": min(of).isoformat(), "newest": max(of).isoformat(),
                 "old_fraction": sum((newest - day).days > OLD_DAYS for day in of) / len(of)}
        for origin, of in sorted(days.items(), key=lambda item: -len(item[1]))
    }  # fmt: skip


def deciding_ages() -> Table:
    """The price that decides each shipped workload, the oldest first, and its age on the day of the question."""
    kept = json.loads(STORE.read_text())
    rows = []
    for path in sorted((FIXTURES / "workloads").glob("*.yaml")):
        first = kept["answers"][path.stem]["first"]
        if first is None or not first["price_as_of"]:
            continue
        asked = date.fromisoformat(str(document(path).get("prices_as_of") or kept["asked_on"]))
        days = (asked - date.fromisoformat(first["price_as_of"])).days
        rows.append((days, path.stem, first, next(iter(kept["answers"][path.stem]["options"]), {})))
    return [
        [f"`{name}`", " and ".join(WAYS[way] for way in first["ways"]), first["provider"] or "-",
         first["price_as_of"], str(days), best.get("price_weakness") or "-"]
        for days, name, first, best in sorted(rows, key=lambda row: (-row[0], row[1]))
    ]  # fmt: skip


def old_rents() -> list[str]:
    """The shipped workloads that a rent over MOST_DAYS old decides."""
    return [row[0] for row in deciding_ages() if WAYS["buy"] not in row[1] and int(row[4]) > MOST_DAYS]


def price_ages() -> Table:
    """The same, as the last run of `make examples` found it."""
    found = json.loads(STORE.read_text())["prices"]
    return [
        [f"`{origin}`", f"{row['prices']:,}", row["oldest"], row["newest"], f"{row['old_fraction']:.0%}"]
        for origin, row in found.items()
    ]
