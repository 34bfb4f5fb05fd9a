"""Stores answers compressed to about 1/40, and upgrades those of earlier versions when they are read."""

import json
import lzma
from collections.abc import Mapping
from typing import Any

from django.db import models

from catalog.shipped import FIXTURES

Json = dict[str, Any]
RESULT_VERSION = 2  # of Advice.result; raise it when the format changes, and add a step to UPGRADES
SNAPSHOT_VERSION = 3  # of Advice.snapshot, likewise with SNAPSHOT_UPGRADES
# zlib's window of 32 KiB is smaller than one option; a window over all options compresses their similarities.
FILTERS = [{"id": lzma.FILTER_LZMA2, "preset": 3, "dict_size": 8 << 20}]


# --- packing ----------------------------------------------------------------------------------------------------


def packed(value: Any) -> bytes:
    """`value` as compressed JSON. Raises ValueError for NaN and infinity."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    return lzma.compress(text.encode(), format=lzma.FORMAT_XZ, filters=FILTERS)


def unpacked(content: bytes) -> Any:
    return json.loads(lzma.decompress(content))


class PackedJSONField(models.BinaryField):
    """Compressed JSON, which queries cannot search."""

    _pyi_private_set_type: Any
    _pyi_private_get_type: Any

    def get_prep_value(self, value: Any) -> Any:
        return None if value is None else packed(value)

    def from_db_value(self, value: Any, expression: Any, connection: Any) -> Any:
        return None if value is None else unpacked(bytes(value))

    def to_python(self, value: Any) -> Any:
        return json.loads(value) if isinstance(value, str) else value

    def value_to_string(self, obj: models.Model) -> str:
        return json.dumps(self.value_from_object(obj))


# --- upgrades ---------------------------------------------------------------------------------------------------


def upgraded(result: Mapping[str, Any], version: int) -> Json:
    """The result in the current format. Stored figures do not change; figures that were not computed are None."""
    from advisor.workload import named  # here, because every process loads the tables, and few need the engine

    workload = result.get("workload")
    upgraded_result = dict(result) | ({"workload": named(workload)} if isinstance(workload, dict) else {})
    for step in range(version, RESULT_VERSION):
        upgraded_result = UPGRADES[step](upgraded_result)
    return upgraded_result


def from_1(result: Json) -> Json:
    """Version 1 (before November 2026) has no itemized costs."""
    return {**result, "recommendations": [{"money": None} | r for r in result["recommendations"]]}


UPGRADES = {1: from_1}


def upgraded_snapshot(stored: Mapping[str, Any]) -> Json:
    """The rows of a snapshot in the current format, those of a portfolio for each of its workloads."""
    rows = dict(stored)
    if "parts" in rows:
        return {**rows, "parts": [upgraded_snapshot(part) for part in rows["parts"]]}
    for step in range(snapshot_version(rows), SNAPSHOT_VERSION):
        rows = SNAPSHOT_UPGRADES[step](rows)
    return rows


def snapshot_version(rows: Json) -> int:
    """The version of a snapshot; the first two did not record it."""
    launched = all("launch" in row for row in rows.get("frameworks", ()))
    return int(rows["version"]) if "version" in rows else 2 if launched and "hosted" in rows else 1


def snapshot_from_1(rows: Json) -> Json:
    """0.1.0 kept the frameworks' launch facts in code, so no deployment can be computed from its snapshots."""
    frameworks = [{"launch": None, "weights": [], "caches": []} | row for row in rows.get("frameworks", ())]
    return rows | {"complete": False, "frameworks": frameworks}


def snapshot_from_2(rows: Json) -> Json:
    """Version 2 has no number. Facts and assumptions that its early snapshots lack do not change their costs."""

    def lists(names: str, added: Json) -> Json:
        return {name: [added | row for row in rows[name]] for name in names.split() if name in rows}

    models = {
        name: {"checkpoints": {}} | row
        for name in ("model", "draft_model", "reward_model")
        if (row := rows.get(name)) and "shape" in row
    }
    return (
        rows
        | models
        | lists("prices other_terms serverless", {"origin": "", "confidence": ""})
        | lists("accelerators", {"chassis": "", "software": {}, "release_year": None})
        | {"hosted": [_with_speeds(row) for row in rows.get("hosted", ())]}
        | {"assumptions": _with_assumptions(rows.get("assumptions", {}))}
        | {"calibrations": _with_training_figures(rows.get("calibrations", {}))}
    )


def _with_speeds(row: Json) -> Json:
    """Before November 23, 2026, a hosted API had one speed at most."""
    figure = row.get("published_output_tokens_per_s")
    stated = {"output_tokens_per_s": figure, "ttft_ms": None, "kind": "stated", "as_of": row.get("as_of")}
    return {"speeds": [stated | {"source": row.get("speed_source", "")}] if figure is not None else []} | row


def _with_assumptions(known: Json) -> Json:
    from advisor.engine.training import DEFAULTS

    def row(value: float, low: float | None = None, high: float | None = None) -> Json:
        return {"value": value, "unit": "", "source": NOT_KEPT, "low": low, "high": high, "as_of": None}

    value = {key: each["value"] for key, each in known.items()}
    watts = value.get("host-watts-per-accelerator", 0.0)
    residual, years = value.get("residual-value-fraction", 0.0), value.get("depreciation-years", 5.0)
    added = {key: row(x) for key, x in ADDED_ASSUMPTIONS.items()}
    added |= {key: row(watts) for key in ("card-host-watts", "socket-host-watts")}
    added |= {f"residual-value-year-{year}": row(residual ** min(year / years, 1.0)) for year in range(1, 6)}
    added |= {key: row(d.value, d.low, d.high) for key, d in DEFAULTS.items()}
    return known | {key: each for key, each in added.items() if key not in known}


def _with_training_figures(calibrations: Json) -> Json:
    """What chips reach in training, from the shipped files where it was not yet among the calibrations."""
    from advisor.engine.terms import TRAINING
    from catalog.loading import fixtures

    if TRAINING in calibrations:
        return calibrations
    files = sorted((FIXTURES / "calibration").glob(f"{TRAINING}*.yaml"))
    shipped = map(fixtures.calibration, files)
    added = {row["name"]: {**row["values"], "basis": row["basis"], "source": row["fitted_on"]} for row in shipped}
    return added | calibrations


NOT_KEPT = "not in the stored snapshot"
# Assumptions that came after 0.1.0. They add no cost where they can, else they are those of November 26, 2026.
ADDED_ASSUMPTIONS = {
    **dict.fromkeys(("card-server-usd", "card-server-usd-per-card", "card-server-watts-per-card"), 0.0),
    **dict.fromkeys(("waiting-power-fraction", "memory-power-fraction", "compute-power-fraction"), 0.0),
    **dict.fromkeys(("kernel-power-fraction", "power-low-ratio", "power-high-ratio"), 1.0),
    **dict.fromkeys(("resale-cost-fraction", "insurance-fraction-per-year", "rented-staff-ratio"), 0.0),
    **dict.fromkeys(("commitment-exit-fraction", "vat-fraction", "income-tax-fraction"), 0.0),
    **dict.fromkeys(("minimum-engineers-own", "minimum-engineers-rented", "migration-overlap-months"), 0.0),
    **dict.fromkeys(("rent-change-per-year", "electricity-change-per-year", "hardware-price-change-per-year"), 0.0),
    **dict.fromkeys((f"purchase-lead-months{kind}" for kind in ("", "-workstation", "-computer")), 0.0),
    **dict.fromkeys(("cold-start-s", "grammar-mask-us", "draft-step-ms", "draft-pass-ms"), 0.0),
    **dict.fromkeys(("residual-superseded-ratio", "price-age-swing-ratio", "host-speed-ratio", "arrival-cv"), 1.0),
    "supply-accelerators-per-region": 512.0,
    "host-memory-ratio": 2.05,
    "host-cores-per-accelerator": 8.0,
    "host-network-gbit-per-s": 10.0,
    "cpu-reserved-cores": 1.0,
    "bought-host-disk-gb": 3840.0,
    "hub-download-gb-per-s": 0.52,
    "network-volume-gb-per-s": 1.0,
    "network-volume-usd-per-gb-month": 0.08,
    "kv-offload-host-memory-fraction": 0.5,
    "serverless-container-start-s": 36.0,
    "serverless-engine-start-s": 40.0,
    "serverless-idle-timeout-s": 60.0,
    "serverless-read-gb-per-s": 2.0,
}
SNAPSHOT_UPGRADES = {1: snapshot_from_1, 2: snapshot_from_2}
