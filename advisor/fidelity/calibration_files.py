"""The files of a calibration: what is free, what kernels showed, and the scopes as reviewable YAML."""

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
from advisor.engine.calibration import Parameter, efficiency_of
from advisor.engine.spec import Accelerator, Scopes

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
CALIBRATION = FIXTURES / "calibration"
KERNELS = FIXTURES / "measurements" / "h200-kernels.csv"
PROBES = FIXTURES / "measurements" / "probes"
LARGE_ROWS = 2048  # tokens of a prompt whose attention is more than its start
META = ("name", "basis", "as_of", "engine_version", "fitted_on")
DIGITS = 4


class CalibrationFileError(ValueError):
    """A file of the calibration says something that cannot be read."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Setup:
    """What a fit starts from: fixed values by scope, free parameters, weights, and what measured kernels gave."""

    scopes: Scopes
    parameters: tuple[Parameter, ...]
    groups: tuple[str, ...]  # of the parameters: what they describe together
    weights: Mapping[str, Any]
    measured_scopes: Mapping[str, tuple[str, ...]]  # chip -> scopes that its kernels gave
    about: Mapping[str, str]  # scope -> where its fixed values come from


def setup(accelerators: Mapping[str, Accelerator], directory: Path = CALIBRATION, probes: Path = PROBES) -> Setup:
    """Reads the scopes as they are, the free parameters, and the measured kernels."""
    document = yaml.safe_load((directory / "fit" / "parameters.yaml").read_text(encoding="utf-8"))
    groups = tuple(str(entry["group"]) for entry in document["parameters"])
    parameters = tuple(
        Parameter(**{key: value for key, value in entry.items() if key != "group"}) for entry in document["parameters"]
    )
    scopes = {name: values for name, values in read_scopes(directory).items() if not name.startswith("interval:")}
    for name, values in (document.get("fixed") or {}).items():
        scopes[name] = {**scopes.get(name, {}), **values}
    measured: dict[str, tuple[str, ...]] = {}
    for slug, results in probed(probes).items():
        chip = accelerators[slug]
        values = kernel_values(results, chip)
        family, own = f"family:{chip.family}", f"accelerator:{slug}"
        scopes[family] = {**scopes.get(family, {}), **values}
        scopes[own] = dict(scopes[family])
        measured[slug] = (family, own)
    return Setup(
        scopes=scopes,
        parameters=parameters,
        groups=groups,
        weights=document["weights"],
        measured_scopes=measured,
        about=document.get("about") or {},
    )


def read_scopes(directory: Path = CALIBRATION) -> dict[str, dict[str, float]]:
    """Scope -> its values, from the files of a calibration."""
    found: dict[str, dict[str, float]] = {}
    for path in sorted(directory.glob("*.yaml")):
        given = yaml.safe_load(path.read_text(encoding="utf-8"))
        found[given["name"]] = {key: float(value) for key, value in given["values"].items()}
    return found


# ------------------------------------------------------------------ kernels


def probed(directory: Path = PROBES) -> dict[str, list[Mapping[str, Any]]]:
    """Chip -> entries of the results that the probe suite gave on it, through torch; files `<slug>--<what>.json`."""
    found: dict[str, list[Mapping[str, Any]]] = {}
    for path in sorted(directory.glob("*--*.json")):
        document = json.loads(path.read_text(encoding="utf-8"))
        if document["library"] == "torch":
            found.setdefault(path.name.split("--")[0], []).extend(document["results"])
    return found


def probed_on(directory: Path = PROBES) -> str:
    """The day of the newest of them."""
    return max(json.loads(path.read_text(encoding="utf-8"))["started_at"][:10] for path in directory.glob("*--*.json"))


def kernel_values(results: Sequence[Mapping[str, Any]], chip: Accelerator, extra: Path = KERNELS) -> dict[str, float]:
    """What the kernels of a chip determine. Prefill attention is the better of the suite's and a framework's own.

    `extra`: rows of single kernels timed elsewhere (FlashAttention 3 is in no library that the suite may import);
    harmonic mean over prompts of at least 2,048 tokens, that is equal work at each length.
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
    """Four significant digits: more would claim what no fit knows."""
    return float(f"{value:.{DIGITS}g}")


def write_scope(
    directory: Path, name: str, basis: str, as_of: str, fitted_on: str, values: Mapping[str, float | str]
) -> Path:
    """One scope as a file of the catalog; equal input gives equal bytes."""
    path = directory / f"{name.replace(':', '-').replace(' ', '-')}.yaml"
    lines = [f"name: {yaml_text(name)}", f"basis: {basis}", f"as_of: {as_of}", f"engine_version: {ENGINE_VERSION}"]
    lines.append(f"fitted_on: {yaml_text(fitted_on)}")
    lines.append("values:" if values else "values: {}")
    lines += [f"  {key}: {number_text(rounded(float(value)))}" for key, value in values.items()]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def number_text(value: float) -> str:
    """A number that YAML 1.1 reads as one: an exponent needs a point and a sign."""
    text = f"{value:.{DIGITS}g}" if 1e-3 <= abs(value) < 1e5 or value == 0 else f"{value:.{DIGITS - 1}e}"
    return text


def yaml_text(text: str) -> str:
    return str(yaml.safe_dump(text, width=10**6, allow_unicode=True)).removesuffix("\n").removesuffix("\n...")


def digest(directory: Path = CALIBRATION) -> str:
    """Short hash of every scope's values and basis: which calibration a score belongs to."""
    hashed = hashlib.sha256()
    for path in sorted(directory.glob("*.yaml")):
        given = yaml.safe_load(path.read_text(encoding="utf-8"))
        hashed.update(repr((given["name"], given["basis"], sorted(given["values"].items()))).encode())
    return hashed.hexdigest()[:12]


def write_report(directory: Path, report: Mapping[str, Any]) -> Path:
    """The cross-validated errors beside the parameters they belong to."""
    path = directory / "fit" / "scores.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(dict(report), sort_keys=False, width=120, allow_unicode=True), encoding="utf-8")
    return path


def read_report(directory: Path = CALIBRATION) -> Mapping[str, Any] | None:
    path = directory / "fit" / "scores.yaml"
    return yaml.safe_load(path.read_text(encoding="utf-8")) if path.exists() else None
