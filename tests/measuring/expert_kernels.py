"""Fits the rates of expert kernels to NVIDIA's published kernel tables, and writes a summary of both.

    git clone --bare https://github.com/ai-dynamo/aiconfigurator tables
    python -m tests.measuring.expert_kernels tables --out fixtures/measurements/expert-kernels.csv

A row of a table is one layer of routed experts on one chip: the choice of experts from given router logits, sorting,
quantization, both grouped products, the activation and the sum (collector/*/collect_moe.py). It is replayed from a CUDA
graph with one set of weights and without flushing the cache, so the fit leaves out rows whose weights fit into the
cache. Weights are constant or random and inputs random; vLLM and SGLang take the tuned configurations that they ship
with, TensorRT-LLM tunes first. Only balanced routing is used: every expert has the same number of rows. Where several
kernels time the same layer, the fastest counts, as frameworks choose it. Needs pyarrow and git.
"""

from __future__ import annotations

import argparse
import csv
import io
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import yaml
from scipy.optimize import least_squares

from advisor.engine.kernels import padded_rows, roof
from advisor.engine.terms import Efficiency, efficiency

DATA = "aic-core/src/aiconfigurator_core/systems/data/"
CHIPS = {
    "a100_sxm": "a100-80gb-sxm",
    "h100_sxm": "h100-sxm",
    "h200_sxm": "h200-sxm",
    "b200_sxm": "b200",
    "gb200": "gb200",
    "b300_sxm": "b300",
    "gb300": "gb300",
    "l40s": "l40s",
    "rtx_pro_6000_server": "rtx-pro-6000-blackwell-server",
}
FRAMEWORKS = {"vllm": "vllm", "sglang": "sglang", "trtllm": "tensorrt-llm"}
# our name of a format: theirs, the dtype of its products, bytes per weight with scales
FORMATS = {
    "bf16": ("bfloat16", "bf16", 2.0),
    "fp8": ("fp8", "fp8", 1.0),
    "fp8_block": ("fp8_block", "fp8", 1.0),
    "int4": ("int4_wo", "bf16", 0.53),
    "mxfp4": ("w4a16_mxfp4", "bf16", 0.53125),
    "mxfp4_fp8": ("w4a8_mxfp4_mxfp8", "fp8", 0.53125),
    "nvfp4": ("nvfp4", "fp4", 0.5625),
}
KEY = ("num_tokens", "hidden_size", "inter_size", "topk", "num_experts", "moe_tp_size", "moe_ep_size")
MODEL = slice(1, 5)  # the columns of KEY that tell models apart
RANKS_MAX, ROWS_MIN, INNER_MIN = 8, 150, 96
CACHE_SHARE = 1.2  # rows whose weights take less than this much of the cache are left out of the fit
CORE_SHARPNESS = 4.0  # advisor/engine/step/layout.py
FULL_ROWS, FEW_ROWS = 256, 8
# A kernel several times slower than that of the release before (FlashInfer's instead of Triton's): not what servers use
NOT_SERVED = {("h100-sxm", "vllm", "0.24.0", "fp8"), ("h200-sxm", "vllm", "0.24.0", "fp8")}


@dataclass(frozen=True)
class Table:
    """The balanced rows of one chip, framework, version and format; arrays over the rows."""

    chip: str
    framework: str
    version: str
    format: str
    key: np.ndarray
    elements: np.ndarray  # weights of one expert on this rank
    time_s: np.ndarray

    @property
    def experts(self) -> np.ndarray:
        tokens, top_k, experts, ranks = (self.key[:, i] for i in (0, 3, 4, 6))
        return np.minimum(experts, tokens * top_k) / ranks

    @property
    def pairs(self) -> np.ndarray:
        return self.key[:, 0] * self.key[:, 3] / self.key[:, 6]

    @property
    def models(self) -> np.ndarray:
        return np.unique(self.key[:, MODEL], axis=0, return_inverse=True)[1].ravel()


@dataclass(frozen=True)
class Chip:
    """What the engine knows about a chip."""

    flops_per_s: Mapping[str, float]
    bytes_per_s: float
    cores: int
    cache_bytes: float
    reached: Efficiency


def scopes() -> dict[str, dict[str, float]]:
    found = [yaml.safe_load(p.read_text(encoding="utf-8")) for p in Path("fixtures/calibration").glob("*.yaml")]
    return {d["name"]: {k: float(v) for k, v in d["values"].items()} for d in found}


def chip(slug: str) -> Chip:
    document = yaml.safe_load(Path(f"fixtures/accelerators/{slug}.yaml").read_text(encoding="utf-8"))
    flops = {k: float(v) * 1e12 for k, v in document["dense_tflops"].items() if k in ("bf16", "fp8", "fp4")}
    return Chip(
        flops_per_s=flops,
        bytes_per_s=document["memory"]["gb_per_s"] * 1e9,
        cores=document["chip"]["cores"],
        cache_bytes=document["chip"]["sram_mib"] * 2.0**20,
        reached=efficiency(scopes(), slug, document["family"], document["kind"]),
    )


def git(repository: str, *arguments: str) -> bytes:
    return subprocess.run(["git", "-C", repository, *arguments], check=True, capture_output=True).stdout


def tables(repository: str) -> Iterator[Table]:
    """All tables with enough rows, by chip, framework, version and format."""
    import pyarrow.parquet as parquet

    names = git(repository, "ls-tree", "-r", "--name-only", "HEAD", DATA).decode().split()
    for name in (n for n in names if n.endswith("/moe_perf.parquet")):
        system, _, framework, version, _ = name.removeprefix(DATA).split("/")
        if system not in CHIPS or framework not in FRAMEWORKS:
            continue
        table = parquet.read_table(io.BytesIO(git(repository, "show", f"HEAD:{name}")))
        columns = {c: table[c].to_numpy(zero_copy_only=False) for c in (*KEY, "latency", "moe_dtype", "distribution")}
        half = np.array(["nongated" in str(source) for source in table["kernel_source"].to_pylist()])
        for ours, (theirs, _, _) in FORMATS.items():
            chosen = (columns["moe_dtype"] == theirs) & (columns["distribution"] == "balanced")
            found = _table(columns, chosen, half)
            if found and len(found[0]) >= ROWS_MIN:
                yield Table(CHIPS[system], FRAMEWORKS[framework], version, ours, *found)


def _table(columns: Mapping[str, Any], chosen: np.ndarray, half: np.ndarray) -> tuple[np.ndarray, ...] | None:
    key = np.column_stack([columns[c][chosen].astype(float) for c in KEY])
    inner = key[:, 2] / key[:, 5]
    elements = np.where(half[chosen], 2.0, 3.0) * key[:, 1] * inner
    keep = (key[:, 5:].max(axis=1, initial=0) <= RANKS_MAX) & (inner >= INNER_MIN) & (key[:, 4] > 1)
    keep &= key[:, 0] * key[:, 3] >= key[:, 6]
    if not keep.any():
        return None
    key, elements, time_s = key[keep], elements[keep], columns["latency"][chosen][keep] / 1e3
    order = np.argsort(time_s, kind="stable")
    first = np.sort(order[np.unique(key[order], axis=0, return_index=True)[1]])
    return key[first], elements[first], time_s[first]


def read_rate(known: Chip, core_bytes_per_s: float) -> float:
    """Bytes/s of weights: the memory's rate, or that of all cores, in which 4-bit weights are widened."""
    memory, cores = known.bytes_per_s * known.reached.memory_fraction, known.cores * core_bytes_per_s
    return float(memory / (1.0 + (memory / cores) ** CORE_SHARPNESS) ** (1.0 / CORE_SHARPNESS))


def predicted(table: Table, known: Chip, fraction: float, weight_bytes_per_s: float) -> np.ndarray:
    """Seconds as in advisor/engine/step/operators.py, for experts that are loaded evenly."""
    _, dtype, weight_bytes = FORMATS[table.format]
    e, hidden, inner = known.reached, table.key[:, 1], table.key[:, 2] / table.key[:, 5]
    rows = padded_rows(SimpleNamespace(cores=known.cores), table.pairs, table.experts)  # type: ignore[arg-type]
    memory = known.bytes_per_s * e.memory_fraction
    flops_s = 2.0 * rows * table.elements / (known.flops_per_s[dtype] * fraction)
    bytes_s = table.experts * table.elements * weight_bytes / weight_bytes_per_s
    bytes_s += table.pairs * (2 * hidden + 3 * inner) * 2.0 / memory
    kernels = 7.0 + 2.0 * e.quantize_kernels * (dtype != "bf16") + 2.0 * (table.key[:, 6] > 1)
    permuted_s = 8.0 * table.pairs * hidden / memory
    return np.asarray(roof(flops_s, bytes_s, e.roof_exponent) + permuted_s + kernels * e.kernel_s)


def fitted(group: Sequence[Table], chips: Mapping[str, Chip], only: Sequence[np.ndarray] | None = None) -> np.ndarray:
    """(share of the matrix rate, bytes/s of one core), every model of a table weighing the same."""
    kept = only or [np.ones(len(t.time_s), bool) for t in group]

    def residuals(x: np.ndarray) -> np.ndarray:
        parts = []
        for table, rows in zip(group, kept, strict=True):
            known = chips[table.chip]
            weights = table.experts * table.elements * FORMATS[table.format][2]
            use = rows & (weights > CACHE_SHARE * known.cache_bytes)
            models = table.models
            share = np.sqrt(1.0 / np.bincount(models)[models])
            seconds = predicted(table, known, np.exp(x[0]), read_rate(known, np.exp(x[1])))
            parts.append((share * np.log(seconds / table.time_s))[use])
        return np.concatenate(parts)

    low, high = np.log([0.02, 1e9]), np.log([1.0, 1e11])
    start = np.log([0.4, 3e10])
    return np.exp(least_squares(residuals, start, loss="soft_l1", f_scale=0.2, bounds=(low, high)).x)


def error(table: Table, known: Chip, x: Sequence[float], rows: np.ndarray | None = None) -> np.ndarray:
    found = predicted(table, known, x[0], read_rate(known, x[1])) / table.time_s - 1.0
    return found if rows is None else found[rows]


@dataclass(frozen=True)
class Line:
    """One line of the summary. Errors are medians of |predicted / measured - 1| over the rows."""

    accelerator: str
    framework: str
    version: str
    format: str
    rows: int
    models: int
    read_share: float  # of the datasheet bandwidth, few rows per expert, median
    matmul_share: float  # of the dense peak, at least 256 rows per expert, median
    scope: str  # of the fit, also of those that the calibration does not use; empty: an older table
    fraction: float
    core_gb_per_s: float
    error_fitted: float
    error_other_models: float  # of models that the fit did not see
    error_other_chips: float  # of chips that the fit did not see; empty: one chip
    error_other_versions: float  # of the fit of the newest table; empty: this is that table


def scope_of(slug: str) -> str:
    """The scope of a chip's figures: its family, or chips alike of a family that also has others."""
    families = {"hopper": ("h100", "h200"), "ada": ("l40s",), "ampere": ("a100",), "blackwell-ultra": ("b300", "gb300")}
    named = (family for family, starts in families.items() if slug.split("-")[0] in starts)
    return next(named, f"accelerator:{'b200' if slug == 'gb200' else slug}")


def version_key(version: str) -> tuple[int, ...]:
    digits = "".join(c if c.isdigit() else " " for c in version).split()
    return tuple(int(d) for d in digits)


def summary(found: Sequence[Table]) -> Iterator[Line]:
    chips = {slug: chip(slug) for slug in {t.chip for t in found}}
    groups: dict[tuple[str, str, str], dict[str, Table]] = {}
    for t in sorted(found, key=lambda t: version_key(t.version)):
        if (t.chip, t.framework, t.version, t.format) not in NOT_SERVED:
            groups.setdefault((t.framework, scope_of(t.chip), t.format), {})[t.chip] = t
    for (framework, scope, _), newest in sorted(groups.items()):
        group = list(newest.values())
        x = fitted(group, chips)
        parity = [t.models % 2 == 0 for t in group]
        halves = [fitted(group, chips, p) for p in (parity, [~p for p in parity])] if group[0].models.max() else None
        for i, t in enumerate(group):
            others = [o for o in group if o is not t]
            unseen = np.nan
            if halves:
                unseen = np.median(np.abs(np.where(parity[i], *(error(t, chips[t.chip], h) for h in halves[::-1]))))
            yield line(
                t,
                chips[t.chip],
                f"framework:{framework}:{scope}",
                x,
                unseen,
                np.median(np.abs(error(t, chips[t.chip], fitted(others, chips)))) if others else np.nan,
            )
    used = {id(t) for newest in groups.values() for t in newest.values()}
    for t in found:
        same = groups.get((t.framework, scope_of(t.chip), t.format))
        if id(t) not in used and same:
            yield line(t, chips[t.chip], "", fitted(list(same.values()), chips), np.nan, np.nan)


def line(t: Table, known: Chip, scope: str, x: np.ndarray, models: float, chips: float) -> Line:
    _, dtype, weight_bytes = FORMATS[t.format]
    rows, weights = t.pairs / t.experts, t.experts * t.elements * weight_bytes
    few = (rows <= FEW_ROWS) & (weights > 4 * known.cache_bytes)
    read = weights[few] / t.time_s[few] / known.bytes_per_s
    flops = (2.0 * t.pairs * t.elements / t.time_s / known.flops_per_s[dtype])[rows >= FULL_ROWS]
    own = float(np.median(np.abs(error(t, known, x))))
    return Line(
        accelerator=t.chip,
        framework=t.framework,
        version=t.version,
        format=t.format,
        rows=len(t.time_s),
        models=int(t.models.max()) + 1,
        read_share=float(np.median(read)) if len(read) else np.nan,
        matmul_share=float(np.median(flops)) if len(flops) else np.nan,
        scope=scope,
        fraction=float(x[0]) if scope else np.nan,
        core_gb_per_s=float(x[1]) / 1e9 if scope else np.nan,
        error_fitted=own if scope else np.nan,
        error_other_models=models,
        error_other_chips=chips,
        error_other_versions=np.nan if scope else own,
    )


def text(value: object) -> str:
    return ("" if np.isnan(value) else f"{value:.3g}") if isinstance(value, float) else str(value)


def write(lines: Iterable[Line], out: Any) -> None:
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([f.name for f in fields(Line)])
    for each in lines:
        writer.writerow([text(getattr(each, f.name)) for f in fields(Line)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("repository", help="clone of ai-dynamo/aiconfigurator")
    parser.add_argument("--out", type=argparse.FileType("w", encoding="utf-8"), default=sys.stdout)
    arguments = parser.parse_args()
    write(summary(list(tables(arguments.repository))), arguments.out)


if __name__ == "__main__":
    main()
