"""The figures that one probe result determines, and why it does not determine the others."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from advisor.engine.calibration.alignment import NEEDED, SIZES
from advisor.engine.calibration.efficiency import (
    DEFAULTS,
    FEW_ROWS,
    FULL_EXPERT_ROWS,
    LARGE_ROWS,
    LONG_TOKENS,
    MIN_KERNELS,
    WAVE_ROWS,
    efficiency_of,
)
from advisor.engine.calibration.host_speed import host_factor_of
from advisor.engine.calibration.kernel_samples import STEADY_FRACTION, Figure, is_usable
from advisor.engine.calibration.processor import MAX_SPREAD, measured_cores, processor_figures
from advisor.engine.terms import Accelerator, Efficiency

GPU_NEEDS: Mapping[str, str] = {
    "memory_fraction": f"{MIN_KERNELS} steady multiplies of at most {FEW_ROWS} rows that read at least 16 MiB of "
    "weights, or reads of at least 256 MiB and four caches",
    "matmul_16_fraction": f"bf16 or fp16 multiplies of at least {LARGE_ROWS} rows, or sustained for a second",
    "matmul_8_fraction": f"fp8 or int8 multiplies of at least {LARGE_ROWS} rows, or sustained for a second",
    "matmul_4_fraction": f"fp4 multiplies of at least {LARGE_ROWS} rows",
    "block_8_fraction": "fp8 multiplies of at least 1,024 rows with 128 x 128 scales, and the same with one scale",
    "expert_fraction": f"native grouped multiplies of at least {FULL_EXPERT_ROWS} rows for each expert",
    "attention_fraction": f"causal prefills of at least {LONG_TOKENS} tokens in 16 bits",
    "wave_fraction": f"{MIN_KERNELS} 16-bit multiplies of at least {WAVE_ROWS} rows, and the rates of both bounds",
    "roof_exponent": "8 16-bit multiplies for which compute and memory take similar time",
    "kernel_s": f"{MIN_KERNELS} steady multiplies of at most {FEW_ROWS} rows, or a chain of empty kernels in a graph",
    "sequence_head_bytes": "4 shapes of decode attention in 16 bits, of at least 1,024 sequences times heads",
    "quantize_kernels": "compiled norms and activations with and without an fp8 output, at 2 sizes",
    "quantize_bytes": "compiled norms and activations with and without an fp8 output, at 2 sizes",
    "link_fraction": "all-reduces of at least 256 MiB over several chips",
    "collective_s": "6 all-reduces over several chips, one of at least 256 MiB",
    "hop_s": "all-reduces over two or more different numbers of chips",
    "collective_knee_bytes": "6 all-reduces over several chips, one of at least 256 MiB",
}
ROWS: Mapping[str, tuple[str, ...]] = {  # kinds whose rows determine a figure
    "memory_fraction": ("memory_read", "gemm", "attention_decode"),
    "attention_fraction": ("attention_prefill",),
    "expert_fraction": ("grouped_gemm",),
    "sequence_head_bytes": ("attention_decode",),
} | dict.fromkeys(
    ("matmul_16_fraction", "matmul_8_fraction", "matmul_4_fraction", "block_8_fraction", "wave_fraction",
     "roof_exponent", "kernel_s", *(f"{name}_{part}_fraction" for name in SIZES for part in NEEDED)),
    ("gemm",),
)  # fmt: skip
NOT_ON_PROCESSORS = "not fitted for processors: the suite has no such shapes on one"
NOT_PROBED: Mapping[str, str] = {
    "matrix_factor": "no probe measures it: it is fitted to whole models (manage.py calibrate)",
    "weight_only_fraction": "no probe measures it: int4 rows are of torch's kernel, which frameworks do not use",
    "routing_evenness": "no probe measures it: it depends on the router of a trained model",
    "sample_bytes_per_logit": "no probe measures it: it is fitted to whole models (manage.py calibrate)",
    "far_link_fraction": "no probe measures it: collectives run on one machine",
    "far_collective_s": "no probe measures it: collectives run on one machine",
    "far_reduce_s": "no probe measures it: collectives run on one machine",
    "overlap_slowdown_fraction": "train_overlap measures it, and predictions keep their own (docs/reference/probes.md)",
}
BESIDE = frozenset({"training_factor"})  # whole steps: see advisor.fidelity.training.probes
UNUSED_KINDS: Mapping[str, str] = {
    "known_answer": "checks the machine only",
    "memory_write": "predictions use the rate of reads, which are most of the traffic",
    "memory_copy": "predictions use the rate of reads, which are most of the traffic",
    "memory_strided": "no predicted kernel has this access",
    "memory_gather": "no predicted kernel has this access: paged attention is timed whole",
    "l2_read": "predictions have no rate of caches",
    "rotary": "predicted from its bytes and memory_fraction",
    "softmax": "predicted from its bytes and memory_fraction",
    "mlp": "a check: it is the sum of kernels that are timed alone",
    "block": "a check: it is the sum of kernels that are timed alone",
    "decode_step": "a check: it is the sum of kernels that are timed alone",
    "compile_gain": "frameworks compile their models",
    "host_copy": "host-copy-fraction is one assumption for all machines",
    "all_gather": "predicted with the rates of all-reduces",
    "all_to_all": "predicted with the rates of all-reduces",
    "point_to_point": "predicted with the rates of all-reduces",
    "train_overlap": "predictions keep their own share (docs/reference/probes.md)",
}


UNUSED_ON_PROCESSORS: Mapping[str, str] = {
    "launch": "host time is compared on machines with accelerators only",
    "grouped_gemm": "timed expert by expert on a processor (path reference)",
    "attention_decode": "predicted from its bytes and memory_fraction",
    "norm": "predicted from its bytes and memory_fraction",
    "activation": "predicted from its bytes and memory_fraction",
    "all_reduce": "ran between processes of one machine, not over a link",
}


@dataclass(frozen=True, slots=True)
class Determined:
    """What one result says about a chip and its host."""

    figures: tuple[Figure, ...]
    missing: Mapping[str, str]  # figure of Efficiency -> why it is not determined
    unused_kinds: Mapping[str, str]  # measured kind -> why predictions do not use it


def determined(document: Mapping[str, Any], a: Accelerator, known: Mapping[str, float] = DEFAULTS) -> Determined:
    """What a result document (`assay-probe/1`) of chip `a` determines.

    `known`: values of figures that it does not determine.
    """
    results = document["results"]
    if a.kind == "cpu":
        whole = float(known.get("matrix_factor", 1.0))
        figures, missing = processor_figures(results, a, measured_cores(document), whole)
        missing = dict.fromkeys(GPU_NEEDS, NOT_ON_PROCESSORS) | missing
    else:
        figures = list(efficiency_of(results, a, known).figures)
        missing = {name: f"needs {needs}" for name, needs in GPU_NEEDS.items()}
    host = host_factor_of(results, document.get("library") or "", document.get("backend") or "")
    if isinstance(host, Figure):
        figures.append(host)
    else:
        missing["host_factor"] = host
    for name, sizes in SIZES.items():
        missing |= {
            f"{name}_{part}_fraction": NOT_ON_PROCESSORS if a.kind == "cpu" else needs.format(sizes)
            for part, needs in NEEDED.items()
        }
    found = {figure.name for figure in figures}
    elsewhere = {"training", "basis", "source", *BESIDE}
    every = [f.name for f in fields(Efficiency) if f.name not in elsewhere]
    dropped = _dropped(results, MAX_SPREAD if a.kind == "cpu" else STEADY_FRACTION)
    for name in missing:
        rows = sum(dropped.get(kind, 0) for kind in ROWS.get(name, ()))
        if rows and missing[name].startswith("needs"):
            missing[name] += f"; {rows} rows of {' or '.join(ROWS[name])} are too unsteady, wrong or throttled"
    kinds = {e["kind"] for e in results}
    unused = {**UNUSED_KINDS, **(UNUSED_ON_PROCESSORS if a.kind == "cpu" else {})}
    return Determined(
        figures=tuple(figures),
        missing={name: NOT_PROBED.get(name) or missing[name] for name in every if name not in found},
        unused_kinds={kind: why for kind, why in unused.items() if kind in kinds},
    )


def _dropped(results: Sequence[Mapping[str, Any]], spread_fraction: float) -> Counter[str]:
    """Kind -> native rows that no fit uses."""
    native = [e for e in results if e["path"] == "native"]
    return Counter(e["kind"] for e in native if not is_usable(e, spread_fraction))
