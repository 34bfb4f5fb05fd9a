"""Measured open loops, stated as anyone would state them: with the keys of `estimate`.

python -m tests.fidelity.open_loop_stated FILE.csv

FILE.csv has one row for each measured point of a vLLM server without HTTP, like h200_open_loop.csv. Prints predicted /
measured percentiles, from the physics of the engine alone.
"""

import csv
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

METRICS = tuple(f"{name}_p{p}" for name in ("ttft", "tpot") for p in (50, 95, 99))
# (share of the requests, shared tokens) of each kind of traffic with 8 prefixes
SHARED = {"pc50": (1.0, 1248), "pcmix": (0.5, 2000)}
UNTRAINED_ROUTER = 1e6  # evenness of dummy weights, which no server has that anyone uses


def keys_of(row: Mapping[str, str]) -> dict[str, Any]:
    """The keys of POST /api/v1/estimate for one row."""
    keys: dict[str, Any] = {
        "model": row["model_id"],
        "accelerator": row["accelerator_slug"],
        "tp": int(row["tp"]),
        "weights": row["weights_dtype"],
        "kv": row["kv_dtype"],
        "framework": row["framework"].split()[0],
        "framework_version": row["framework"].split()[1],
        "seats": int(row["max_num_seqs"]),
        "max_batched_tokens": int(row["max_num_batched_tokens"]),
        "memory_fraction": 0.9,
        "prefix_caching": row["prefix_caching"] == "1",
        "rate": float(row["rate_req_s"]),
        "burstiness": float(row["arrival_cv"]),
        "http": False,
        "use_measurements": False,
    }
    for name, side in (("isl", "input"), ("osl", "output")):
        mean, p95 = (round(float(row[f"{side}_{k}_nominal"])) for k in ("mean", "p95"))
        keys |= {name: mean} | ({f"{name}_p95": p95} if p95 > mean else {})
    if float(row["shared_prefix_fraction"]):
        share, tokens = SHARED[row["traffic"]]
        keys["prefixes"] = [{"share": share, "tokens": tokens, "count": 8}]
    return keys


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines))


def ratios(rows: Sequence[Mapping[str, str]]) -> dict[str, dict[str, float]]:
    """Predicted / measured by id and metric."""
    from advisor.engine.estimate import estimate_all
    from advisor.inputs import catalog_resources
    from advisor.workload import deployment

    resources = catalog_resources(sorted({row["model_id"] for row in rows}))
    stated = [deployment.fixed(deployment.parse_deployment(keys_of(row)), resources).case for row in rows]
    seen = estimate_all([replace(case, routing_evenness=UNTRAINED_ROUTER) for case in stated], resources)
    return {
        row["id"]: {m: getattr(e, f"{m}_s") * 1e3 / float(row[f"{m}_ms"]) for m in METRICS}
        for row, e in zip(rows, seen, strict=True)
    }


def main() -> None:
    import django

    django.setup()
    rows = rows_of(Path(sys.argv[1]))
    found = ratios(rows)
    print(f"{'predicted / measured':28}" + "".join(f"{m:>10}" for m in METRICS))
    for name, each in found.items():
        print(f"{name:28}" + "".join(f"{each[m]:10.2f}" for m in METRICS))
    errors = {m: sorted(abs(each[m] - 1) for each in found.values())[len(found) // 2] for m in METRICS}
    print(f"{f'median error of {len(found)}':28}" + "".join(f"{errors[m]:10.1%}" for m in METRICS))


if __name__ == "__main__":
    import os

    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "advisor.settings")
    main()
