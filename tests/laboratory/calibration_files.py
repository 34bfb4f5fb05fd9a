"""Reads and writes the files of a calibration: free parameters, kernel measurements, and the scopes as YAML."""

import csv
import hashlib
import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from advisor.engine import ENGINE_VERSION
from advisor.engine.calibration.efficiency import efficiency_of
from advisor.engine.terms import TRAINING, Accelerator, Scopes, efficiency
from advisor.fidelity.training import probes as training_probes
from catalog.shipped import FIXTURES
from tests.laboratory.least_squares import Parameter

CALIBRATION = FIXTURES / "calibration"
KERNELS = FIXTURES / "measurements" / "h200-kernels.csv"
PROBES = FIXTURES / "measurements" / "probes"
LARGE_ROWS = 2048  # prompt tokens above which the launch of the attention kernel is negligible
META = ("name", "basis", "as_of", "engine_version", "fitted_on")
DIGITS = 4


class CalibrationFileError(ValueError):
    """A file of the calibration is not valid."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Setup:
    """The input of a fit: fixed values by scope, free parameters, weights, and results of kernel measurements."""

    scopes: Scopes
    parameters: tuple[Parameter, ...]
    groups: tuple[str, ...]  # of each parameter: its group in the cross-validation
    weights: Mapping[str, Any]
    measured_scopes: Mapping[str, tuple[str, ...]]  # chip -> scopes set from its kernel measurements
    about: Mapping[str, str]  # scope -> source of its fixed values


def setup(accelerators: Mapping[str, Accelerator], directory: Path = CALIBRATION, probes: Path = PROBES) -> Setup:
    """Reads the current scopes, the free parameters and the kernel measurements."""
    document = yaml.safe_load((directory / "fit" / "parameters.yaml").read_text(encoding="utf-8"))
    groups = tuple(str(entry["group"]) for entry in document["parameters"])
    parameters = tuple(
        Parameter(**{key: value for key, value in entry.items() if key != "group"}) for entry in document["parameters"]
    )
    scopes = {name: values for name, values in read_scopes(directory).items() if not name.startswith("interval:")}
    for name, values in (document.get("fixed") or {}).items():
        scopes[name] = {**scopes.get(name, {}), **values}
    for name, values in launch_times(directory.parent / "frameworks").items():
        scopes[name] = values | scopes.get(name, {})
    measured: dict[str, tuple[str, ...]] = {}
    for slug, results in probed(probes).items():
        chip = accelerators[slug]
        values = kernel_values(results, chip)
        family, chip_scope = f"family:{chip.family}", f"accelerator:{slug}"
        scopes[family] = {**scopes.get(family, {}), **values}
        scopes[chip_scope] = dict(scopes[family])
        trained = training_probes.figures_of(results, chip, efficiency(scopes, slug, chip.family, chip.kind)).figures
        for name in (family, chip_scope):
            scopes[name] = {**scopes[name], **{figure.name: figure.value for figure in trained}}
        measured[slug] = (family, chip_scope)
    return Setup(
        scopes=scopes,
        parameters=parameters,
        groups=groups,
        weights=document["weights"],
        measured_scopes=measured,
        about=document.get("about") or {},
    )


def apart(directory: Path = CALIBRATION) -> Mapping[str, Any]:
    """What `calibrate --scope` may change of an engine or a chip, and the groups that it may not see."""
    document: Mapping[str, Any] = yaml.safe_load((directory / "fit" / "parameters.yaml").read_text(encoding="utf-8"))
    return document["scopes"]


def read_scopes(directory: Path = CALIBRATION) -> dict[str, dict[str, float]]:
    """Scope -> its values, from the files of a calibration."""
    scopes: dict[str, dict[str, float]] = {}
    for path in sorted(directory.glob("*.yaml")):
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
        scopes[document["name"]] = {key: float(value) for key, value in document["values"].items()}
    return scopes


def launch_times(directory: Path = FIXTURES / "frameworks") -> dict[str, dict[str, float]]:
    """Scope of each serving framework -> host seconds to launch a layer, from its file; no calibration writes them."""
    found: dict[str, dict[str, float]] = {}
    for path in sorted(directory.glob("*.yaml")):
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
        if times := document.get("host_times"):
            layers = {f"eager_s_per_{kind}": times[f"eager_ms_per_{kind}"] / 1e3 for kind in ("layer", "expert_layer")}
            found[f"framework:{document['slug']}"] = layers
    return found


# ------------------------------------------------------------------ kernels


def probed(directory: Path = PROBES) -> dict[str, list[Mapping[str, Any]]]:
    """Chip -> results of the probe suite with torch, from files named `SLUG--NAME.json`."""
    results: dict[str, list[Mapping[str, Any]]] = {}
    for path in sorted(directory.glob("*--*.json")):
        document = json.loads(path.read_text(encoding="utf-8"))
        if document["library"] == "torch":
            results.setdefault(path.name.split("--")[0], []).extend(document["results"])
    return results


def probed_on(directory: Path = PROBES) -> str:
    """The date of the newest probe results."""
    return max(json.loads(path.read_text(encoding="utf-8"))["started_at"][:10] for path in directory.glob("*--*.json"))


def kernel_values(results: Sequence[Mapping[str, Any]], chip: Accelerator, extra: Path = KERNELS) -> dict[str, float]:
    """The values that a chip's kernel measurements determine.

    Prefill attention is the better of the probe suite's result and that in `extra`: kernels timed separately, such as
    FlashAttention 3, which no library of the suite has. Their rate is the harmonic mean over prompts of at least 2,048
    tokens.
    """
    values = efficiency_of(results, chip).as_values()
    with extra.open(newline="", encoding="utf-8") as lines:
        rates = [
            float(row["value"]) * 1e12
            for row in csv.DictReader(lines)
            if row["accelerator"] == chip.slug and row["kernel"] == "prefill attention" and int(row["m"]) >= LARGE_ROWS
        ]
    if rates:
        other = statistics.harmonic_mean(rates) / chip.flops_per_s["bf16"]
        values["attention_fraction"] = max(values.get("attention_fraction", 0.0), other)
    return values


# ------------------------------------------------------------------ writing


def rounded(value: float) -> float:
    """Rounded to four significant digits; the fit is not more precise."""
    return float(f"{value:.{DIGITS}g}")


def write_scope(
    directory: Path, name: str, basis: str, as_of: str, fitted_on: str, values: Mapping[str, float | str]
) -> Path:
    """Writes one scope as a catalog file. The same input gives the same bytes. Returns the path."""
    path = directory / f"{name.replace(':', '-').replace(' ', '-')}.yaml"
    lines = [f"name: {yaml_text(name)}", f"basis: {basis}", f"as_of: {as_of}", f"engine_version: {ENGINE_VERSION}"]
    lines.append(f"fitted_on: {yaml_text(fitted_on)}")
    lines.append("values:" if values else "values: {}")
    lines += [f"  {key}: {number_text(rounded(float(value)))}" for key, value in values.items()]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def number_text(value: float) -> str:
    """A number as YAML 1.1 reads it: with an exponent, it needs a decimal point and a sign."""
    return f"{value:.{DIGITS}g}" if 1e-3 <= abs(value) < 1e5 or value == 0 else f"{value:.{DIGITS - 1}e}"


def yaml_text(text: str) -> str:
    return str(yaml.safe_dump(text, width=10**6, allow_unicode=True)).removesuffix("\n").removesuffix("\n...")


def digest(directory: Path = CALIBRATION) -> str:
    """A short hash of all scopes' values and bases, which identifies the calibration in scorecards of serving.

    No prediction of serving reads the figures and intervals of training.
    """
    hashed = hashlib.sha256()
    for path in sorted(directory.glob("*.yaml")):
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
        if document["name"].startswith((TRAINING, f"interval:{TRAINING}:")):
            continue
        hashed.update(repr((document["name"], document["basis"], sorted(document["values"].items()))).encode())
    return hashed.hexdigest()[:12]


def write_report(directory: Path, report: Mapping[str, Any]) -> Path:
    """Writes the cross-validation report to fit/scores.yaml."""
    path = directory / "fit" / "scores.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(dict(report), sort_keys=False, width=120, allow_unicode=True), encoding="utf-8")
    return path
