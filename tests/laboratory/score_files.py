"""Writes the scorecard files that `fidelity --write-docs` creates and the accuracy page shows."""

import re
import shutil
import textwrap
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from advisor.engine import ENGINE_VERSION
from advisor.engine.terms import Case
from advisor.engine.training import Run
from advisor.fidelity.protocols import run_of
from advisor.fidelity.rows import Catalog, Row, case_of
from advisor.fidelity.scores.score_rows import figures_of, layout_of, row_of
from advisor.fidelity.scores.scorecard import TARGETS, TRAINING, Card, line_of, target_result
from advisor.fidelity.scores.scoring import Scored
from advisor.fidelity.training.rows import TrainingCase, training_case
from catalog import clock
from catalog.loading import scored as files
from catalog.loading.fixtures import FixtureError
from catalog.models import Scorecard, ScoredRow
from catalog.shipped import FIXTURES
from tests.laboratory.report import circumstance, noisy_cases
from tests.laboratory.summaries import pair_case
from tests.laboratory.training import layouts as training_layouts

DIRECTORY = FIXTURES / "fidelity"
WITHHELD = (
    "measured",
    "predicted",
    "low",
    "high",
    "pair_index",
)  # left blank for sources whose figures may not be published


def write(
    scored: Sequence[Scored],
    disputed: Mapping[str, str],
    validation: Mapping[str, Any] | None,
    calibration: str,
    directory: Path = DIRECTORY,
    training: Sequence[Scored] = (),
) -> int:
    """Writes one file per source and the head of the scorecard. Returns the number of rows.

    `training`: scored training rows. The head counts skipped rows of serving only.

    Raises FixtureError, before writing, if sources.csv does not describe the source of a row.
    """
    known = {row["source_key"]: row for row in files.sources(source_list(directory))}
    served = [s for s in scored if s.ape is not None and s.case is not None]
    shown = [*served, *(s for s in training if s.ape is not None)]
    if unknown := sorted({s.row.source_key for s in shown} - set(known)):
        raise FixtureError(
            f"sources.csv does not describe {', '.join(unknown)}: add a line with its URL and license to "
            f"{directory / files.SOURCES}"
        )
    by_source: dict[str, list[Mapping[str, Any]]] = {}
    for s, row in zip(shown, rows_of(shown, disputed), strict=True):
        withhold = known[s.row.source_key]["figures"] == "kept out"
        by_source.setdefault(s.row.source_key, []).append(without_figures(row) if withhold else row)
    directory.mkdir(parents=True, exist_ok=True)
    if not (directory / files.SOURCES).exists():
        shutil.copyfile(source_list(directory), directory / files.SOURCES)
    for path in directory.glob("*.csv"):
        if path.name != files.SOURCES and path.stem not in by_source:
            path.unlink()
    for key, rows in by_source.items():
        files.write(directory / f"{key}.csv", rows)
    (directory / files.HEAD).write_text(head(scored, len(shown), validation, calibration), encoding="utf-8")
    return len(shown)


# how the sources of the published rows write a framework, so that its version is read from it again
WRITTEN = {
    "tensorrt-llm": "trtllm {}", "lmdeploy": "LMDeploy TurboMind {}", "neuron": "Transformers NeuronX, Neuron {}",
    "llama.cpp": "llama.cpp ({})", "vllm-tpu": "vLLM TPU",
}  # fmt: skip
ROUND = "mlperf-"  # versions that follow from the source


def published(rows: Iterable[ScoredRow], catalog: Catalog) -> tuple[list[Row], dict[str, int]]:
    """(the rows of serving that can be predicted again from their published columns, why others cannot: how many)."""
    found, left = [], Counter[str]()
    for row in rows:
        reason, restored = _restored(row, catalog)
        if restored is None:
            left[reason] += 1
        else:
            found.append(restored)
    return found, dict(left.most_common())


def _restored(row: ScoredRow, catalog: Catalog) -> tuple[str, Row | None]:
    if row.measured is None:
        return "the source's figures are not published here", None
    if row.phase == TRAINING or row.client == "poisson" or row.phase == "kernel":
        return f"{row.phase}, {row.client}: the published columns do not state the run", None
    restored = measured_row(row)
    case = case_of(restored, catalog)
    if not isinstance(case, Case):
        return case.reason, None
    same = (case.framework, case.framework_version, layout_of(case), case.phase, case.weights_dtype)
    stated = (row.framework, row.framework_version, row.layout, row.phase, row.weights_dtype)
    return ("", restored) if same == stated else ("the published columns do not state the whole deployment", None)


def measured_row(row: ScoredRow) -> Row:
    """The measured row behind a published one, as far as its columns say."""
    first, _, last = (part.strip() for part in row.layout.partition("|"))
    ways = dict(re.findall(r"([a-z]+)(\d+)", first))
    run = run_of({"source": row.source_key, "framework": row.framework, "accelerator": row.accelerator})
    tp = int(ways.get("tp") or (ways.get("dp") if run.attention_dp_is_tp else None) or 1)
    pools = [_pool_text(part) if last else "" for part in (first, last)]
    version = "" if row.framework_version.startswith(ROUND) else row.framework_version
    engine = "TensorRT 1" if row.framework_version.startswith(ROUND) and row.framework == "tensorrt-llm" else ""
    return Row(
        id=row.key,
        task={"fit": "memory", "kernel": "kernel"}.get(row.phase, row.phase),
        metric=row.metric,
        value=float(row.measured or 0.0),
        model=row.model,
        model_id=row.model,
        accelerator=row.accelerator,
        accelerator_slug=row.accelerator,
        n_accelerators=str(row.chips),
        mode=row.mode,
        tp=str(tp * run.cores_per_chip) if row.layout and not last else "",
        pp=ways.get("pp", ""),
        ep=str(int(ways["ep"]) * run.cores_per_chip) if "ep" in ways and not last else "",
        attention_dp="" if run.attention_dp_is_tp else ways.get("dp", ""),
        moe_tp="",
        prefill_pool=pools[0],
        decode_pool=pools[1],
        weights_dtype=row.weights_dtype,
        kv_dtype="",
        framework=engine or WRITTEN.get(row.framework, f"{row.framework} {{}}").format(version).strip(" ()"),
        isl=f"{row.isl:g}",
        osl=f"{row.osl:g}",
        concurrency_or_batch="offline"
        if row.client == "offline"
        else f"{row.concurrency:g}"
        if row.concurrency
        else "",
        params_note=f"client={row.client}" if row.client in ("steady", "static") else "",
        date=row.measured_on,
        source_key=row.source_key,
        confidence="A",
        notes="",
    )


def _pool_text(layout: str) -> str:
    names = {"tp": "tp", "pp": "pp", "dp": "attention_dp", "ep": "ep", "x": "workers"}
    return ";".join(f"{names[name]}={size}" for name, size in re.findall(r"([a-z]+)(\d+)", layout) if name in names)


def source_list(directory: Path) -> Path:
    """The path of the directory's sources.csv, or of the shipped one if it has none."""
    path = directory / files.SOURCES
    return path if path.exists() else DIRECTORY / files.SOURCES


def head(scored: Iterable[Scored], rows: int, validation: Mapping[str, Any] | None, calibration: str) -> str:
    skipped = Counter(s.skipped for s in scored if s.skipped)
    document = {
        "engine_version": ENGINE_VERSION,
        "calibration": calibration or "none",
        "as_of": clock.today(),
        "rows": rows,
        "skipped": dict(skipped.most_common()),
        "left_out": dict((validation or {}).get("errors") or {}),
        "intervals": [
            {"basis": basis, "figure": figure, **spans}
            for basis, figures in ((validation or {}).get("intervals") or {}).items()
            for figure, spans in figures.items()
        ],
    }
    return yaml.safe_dump(document, sort_keys=False, width=120, allow_unicode=True)


def rows_of(shown: Sequence[Scored], disputed: Mapping[str, str]) -> list[dict[str, Any]]:
    """The columns of each scored row."""
    pairs = pair_numbers(shown)
    repeats = noisy_cases(shown)
    return [
        (training_row(s) if s.case is None else row_of(s, s.case, pairs.get(pair_case(s))))
        | circumstance_of(s, disputed, repeats)
        for s in shown
    ]


def against_targets(
    scored: Sequence[Scored], disputed: Mapping[str, str], validation: Mapping[str, Any] | None
) -> list[Mapping[str, Any]]:
    """The scorecard's targets evaluated on rows that are not in the catalog yet."""
    rows = catalog_rows(scored, disputed)
    card = Card(head=Scorecard(left_out=(validation or {}).get("errors") or {}), lines=tuple(map(line_of, rows)))
    return [target_result(target, card) for target in TARGETS]


def catalog_rows(scored: Sequence[Scored], disputed: Mapping[str, str]) -> list[ScoredRow]:
    """Scored serving rows as the catalog holds them, not saved."""
    shown = [s for s in scored if s.ape is not None and s.case is not None]
    each = zip(shown, rows_of(shown, disputed), strict=True)
    return [ScoredRow(source_key=s.row.source_key, **row) for s, row in each]


def pair_numbers(shown: Sequence[Scored]) -> dict[Any, int]:
    """An index for each case that was measured on more than one chip."""
    chips: dict[Any, set[str]] = {}
    for s in shown:
        if (case := pair_case(s)) is not None:
            chips.setdefault(case, set()).add(s.row.accelerator_slug)
    return {case: number for number, case in enumerate(case for case, on in chips.items() if len(on) > 1)}


def training_row(s: Scored) -> dict[str, Any]:
    """A training row: `mode` is the method, `isl` the sequence length, `concurrency` the sequences of a step."""
    case = training_case(s.row)
    assert isinstance(case, TrainingCase)
    run = case.run
    return figures_of(s) | {
        "accelerator": case.accelerator_slug,
        "chips": case.chips,
        "model": case.model_id,
        "framework": textwrap.shorten(s.row.framework, 60, placeholder=" ...") or "unknown",
        "framework_version": "",
        "weights_dtype": run.recipe.matmul_dtype,
        "mode": run.recipe.method,
        "layout": training_layouts.layout_text(run) if isinstance(run, Run) else "",
        "isl": float(run.sequence_tokens),
        "osl": 0.0,
        "concurrency": case.step_tokens / run.sequence_tokens,
        "client": TRAINING,
        "client_known": True,
        "phase": TRAINING,
        "basis": s.labels["basis"],
        "pair_index": None,
    }


def without_figures(row: Mapping[str, Any]) -> dict[str, Any]:
    """The row without its figures; only the error remains."""
    return {**row, **dict.fromkeys(WITHHELD)}


def circumstance_of(
    s: Scored, disputed: Mapping[str, str], repeats: set[tuple[str, tuple[Any, ...]]]
) -> dict[str, str]:
    return {"circumstance": circumstance(s, disputed, repeats), "note": disputed.get(s.row.id, "")}
