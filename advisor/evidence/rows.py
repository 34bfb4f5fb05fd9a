"""Turns what a file says, and what the person who imports it adds, into measured rows with the catalog's names."""

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Any

from advisor.evidence.formats import EvidenceError, Reading
from advisor.evidence.formats.llama_bench import model_of as gguf_model_of
from advisor.fidelity import COLUMNS, Row
from catalog.importers.prices import hosted, names
from catalog.models import Accelerator, ServedModel

KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,59}")
THROUGHPUT = ("output_tokens_per_s", "total_tokens_per_s", "output_tokens_per_s_per_gpu")
NAMES = ("model", "accelerator", "framework", "date")  # what a person may call otherwise than the file
OPTIONS = {  # column of measured rows -> option that states it
    "model": "--model", "accelerator": "--accelerator", "n_accelerators": "--chips", "tp": "--tp", "pp": "--pp",
    "ep": "--ep", "attention_dp": "--dp", "weights_dtype": "--weights", "kv_dtype": "--kv", "framework": "--engine",
    "isl": "--isl", "osl": "--osl", "concurrency_or_batch": "--concurrency", "date": "--as-of",
}  # fmt: skip
NEEDED = ("model", "accelerator", "n_accelerators", "framework", "isl", "osl", "concurrency_or_batch", "date")
DIGEST_CHARS = 12
MEMORY = re.compile(r"\bHBM\d\w*", re.IGNORECASE)  # as drivers name chips: NVIDIA H100 80GB HBM3
IDENTITY = tuple(name for name in COLUMNS if name not in ("id", "task", "metric", "value", "params_note", "notes"))


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """Whose figures a file has."""

    key: str
    name: str = ""
    place: str = ""
    client: str = ""
    licence: str = ""  # empty: not known
    caveats: str = ""


@dataclass(kw_only=True, slots=True)
class Given:
    """The figures of a file as measured rows, and what became of the others."""

    rows: list[Row] = field(default_factory=list)
    doubts: dict[str, str] = field(default_factory=dict)  # row ID -> why a person has to look at it
    skipped: Counter[str] = field(default_factory=Counter)  # reason -> figures
    read: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Names:
    """The catalog's models and accelerators, by each of their names."""

    models: hosted.Models
    ids: Mapping[str, str]  # slug -> Hugging Face ID
    native: Mapping[str, str]  # Hugging Face ID -> format of the published weights
    layers: Mapping[str, int]
    chips: Mapping[str, float]  # slug -> memory in GiB

    def model(self, *written: str) -> str:
        """The Hugging Face ID of the first name that is a model's own in some spelling; empty: there is none."""
        for name in written:
            slug = self.models.slug("", name) if name else None
            if slug:
                return self.ids[slug]
        return ""

    def chip(self, *written: str) -> str:
        """The slug of the first name that is an accelerator's; empty: there is none."""
        for name in written:
            if name in self.chips:
                return name
            found, _ = names.accelerator(MEMORY.sub("", name), self.chips) if name else (None, "")
            if found:
                return found
        return ""


def catalog_names() -> Names:
    models = list(ServedModel.objects.all())
    conversions = [(each["hf_id"], row.slug) for row in models for each in row.checkpoints.get("conversions", ())]
    own = {row.hf_id.lower() for row in models}
    pairs = [(row.hf_id, row.slug) for row in models]
    more = [("", name, slug) for name, slug in conversions if name.lower() not in own]
    return Names(
        models=hosted.models(pairs, more),
        ids={row.slug: row.hf_id for row in models},
        native={row.hf_id: row.native_dtype for row in models},
        layers={row.hf_id: sum(block.get("count", 1) for block in row.shape.get("blocks", ())) for row in models},
        chips=dict(Accelerator.objects.values_list("slug", "memory_gib")),
    )


def given_rows(
    readings: Sequence[Reading], options: Mapping[str, str], source: Source | None, known: Names, today: date
) -> Given:
    """The measured rows of a file. EvidenceError names the option for what no run of the file says.

    options: columns of measured rows that the person states. source: None if each row names its own.
    """
    refuse_contradictions(readings, options)
    refuse_missing([each for each in readings if not each.own_id and not each.skipped], options)
    found, seen = Given(), dict[str, float]()
    for reading in readings:
        found.read += max(len(reading.figures), 1)
        row, reason = _cells(reading, options, source, known)
        if reason:
            found.skipped[reason] += max(len(reading.figures), 1)
            continue
        for metric, value in reading.figures.items():
            cells = row | {"metric": metric, "task": row.get("task") or task_of(metric, row)}
            cells["id"] = reading.own_id or f"{cells['source_key']}-{_identity(row, reading)}:{metric}"
            if seen.get(cells["id"]) == value:
                found.skipped["is in the file twice"] += 1
                continue
            if cells["id"] in seen:
                cells["id"] = _another(cells["id"], seen)
                found.doubts[cells["id"]] = "is a second value for the same run in this file"
            seen[cells["id"]] = value
            found.rows.append(Row(value=value, **{name: cells.get(name, "") for name in COLUMNS if name != "value"}))
            if reading.doubt:
                found.doubts.setdefault(cells["id"], reading.doubt)
    return found


def _another(row_id: str, seen: Mapping[str, Any]) -> str:
    return next(f"{row_id}#{n}" for n in range(2, len(seen) + 3) if f"{row_id}#{n}" not in seen)


def refuse_contradictions(readings: Iterable[Reading], options: Mapping[str, str]) -> None:
    """EvidenceError: an option says something else than the file about a number or a format."""
    for reading in readings:
        for name, wanted in options.items():
            said = reading.said.get(name, "")
            if name not in NAMES and said and not _same(said, wanted):
                raise EvidenceError(
                    f"{reading.where} says {name} {said}, and {OPTIONS[name]} says {wanted}; leave out {OPTIONS[name]}"
                )


def lacks_layout(row: Mapping[str, str]) -> bool:
    """Whether a run on several accelerators does not say how they share the model."""
    several = row.get("n_accelerators", "1") not in ("", "1")
    return several and row.get("mode") != "disagg" and not row.get("tp")


def _same(one: str, other: str) -> bool:
    try:
        return float(one) == float(other)
    except ValueError:
        return one.strip().lower() == other.strip().lower()


def refuse_missing(readings: Sequence[Reading], options: Mapping[str, str]) -> None:
    """EvidenceError: no run of the file says something that every row needs, and no option does."""
    stated = {name for reading in readings for name in reading.said}
    missing = [name for name in NEEDED if readings and name not in stated and name not in options]
    missing += ["tp"] if readings and all(lacks_layout({**each.said, **options}) for each in readings) else []
    if missing:
        wanted = ", ".join(f"{WORDS.get(name, name)} ({OPTIONS[name]})" for name in missing)
        raise EvidenceError(f"does not say the {wanted}; give them as options")


WORDS = {
    "n_accelerators": "number of accelerators", "tp": "layout of several accelerators",
    "framework": "serving engine with its version",
    "isl": "input tokens per request", "osl": "output tokens per request",
    "concurrency_or_batch": "concurrent requests, qps=RATE or batch size", "date": "day of the run",
}  # fmt: skip


def _cells(
    reading: Reading, options: Mapping[str, str], source: Source | None, known: Names
) -> tuple[dict[str, str], str]:
    """The columns of a run's rows, and why it has none."""
    row = {"date": options.get("date", ""), **reading.said}  # a day that the file states is exact
    row |= {name: text for name, text in options.items() if name != "date"}
    if source is not None:
        row["source_key"] = source.key
    if reading.skipped:
        return row, reading.skipped
    if not KEY.fullmatch(row.get("source_key", "")):
        return row, "names no source (source_key)"
    named = [options["model"]] if options.get("model") else [row.get("model_id", ""), row.get("model", "")]
    row["model_id"] = known.model(*named, gguf_model_of(named[-1]))
    chips = (
        [options["accelerator"]]
        if options.get("accelerator")
        else [row.get("accelerator_slug", ""), row.get("accelerator", "")]
    )
    row["accelerator_slug"] = known.chip(*chips)
    if not row["model_id"]:
        return row, f"model not in the catalog: {named[0] or named[-1] or 'not stated'}"
    if not row["accelerator_slug"]:
        return row, f"accelerator not in the catalog: {chips[0] or chips[-1] or 'not stated'}"
    if not reading.own_id:
        if missing := [name for name in NEEDED if not row.get(name)]:
            return row, f"does not say the {', '.join(WORDS.get(name, name) for name in missing)}"
        if lacks_layout(row):
            return row, f"does not say the {WORDS['tp']}"
        row |= _layout(row) | _weights(row, named[-1], known)
        row.setdefault("mode", "agg")
        row.setdefault("confidence", "B")
    layers = known.layers.get(row["model_id"], 0)
    if reading.gpu_layers is not None and reading.gpu_layers < layers:
        return row, "ran at least partly on the host CPU"
    return row, ""


def _layout(row: Mapping[str, str]) -> dict[str, str]:
    """One accelerator has only one layout."""
    if row.get("n_accelerators") == "1" and not row.get("tp"):
        return {"tp": "1", "pp": "1", "attention_dp": "1"}
    return {name: "1" for name in ("pp", "attention_dp") if row.get("tp") and not row.get(name)}


def _weights(row: Mapping[str, str], name: str, known: Names) -> dict[str, str]:
    """The format of the weights: as stated, as the checkpoint's name ends, or as the model is published."""
    if row.get("weights_dtype"):
        return {}
    named = hosted.number_format(name)
    if named:
        return {"weights_dtype": {"awq": "int4", "fp4": "nvfp4"}.get(named, named)}
    note = f"{row.get('params_note', '')};weights as published".strip(";")
    return {"weights_dtype": known.native.get(row["model_id"], ""), "params_note": note}


def task_of(metric: str, row: Mapping[str, str]) -> str:
    if row.get("concurrency_or_batch", "").startswith("offline"):
        return "offline_throughput"
    return "server_throughput" if metric in THROUGHPUT else "latency"


def _identity(row: Mapping[str, str], reading: Reading) -> str:
    """A short digest of everything that tells two runs apart."""
    parts = [row.get(name, "") for name in IDENTITY] + [reading.stamp]
    return hashlib.sha256("|".join(parts).encode()).hexdigest()[:DIGEST_CHARS]
