"""The columns of a scored row, as the catalog holds them."""

from typing import Any

from advisor.engine.terms import Case, Pool
from advisor.fidelity.scores.scoring import Scored


def figures_of(s: Scored) -> dict[str, Any]:
    """The columns that rows of serving and of training share."""
    p = s.prediction
    assert p is not None
    return {
        "key": s.row.id,
        "metric": s.row.metric,
        "measured": s.row.value,
        "predicted": p.value,
        "low": p.low,
        "high": p.high,
        "bias_fraction": None if s.ratio is None else s.ratio - 1.0,
        "inside": s.in_interval,
        "measured_on": s.row.date[:10],
    }


def row_of(s: Scored, case: Case, pair: int | None) -> dict[str, Any]:
    p = s.prediction
    assert p is not None
    return figures_of(s) | {
        "accelerator": case.accelerator_slug,
        "chips": case.chips,
        "model": case.model_id,
        "framework": case.framework,
        "framework_version": case.framework_version,
        "weights_dtype": case.weights_dtype,
        "mode": case.mode,
        "layout": layout_of(case),
        "isl": case.isl,
        "osl": case.osl,
        "concurrency": case.concurrency,
        "client": case.client.kind,
        "client_known": case.client.known,
        "phase": case.phase,
        "basis": p.basis,
        "pair_index": pair,
    }


def layout_of(case: Case) -> str:
    """The layout as text: tp8 x2, tp4 pp2, or tp4 | dp8 ep8 for two pools; empty if not stated."""
    if case.prefill_pool and case.decode_pool:
        return f"{lanes(case.prefill_pool)} | {lanes(case.decode_pool)}"
    return lanes(case.pool) if case.pool else ""


def lanes(pool: Pool) -> str:
    ways = [f"{name}{getattr(pool, name)}" for name in ("tp", "pp", "dp", "ep") if getattr(pool, name) > 1]
    return " ".join([*(ways or ["tp1"]), *([f"x{pool.replicas}"] if pool.replicas > 1 else [])])
