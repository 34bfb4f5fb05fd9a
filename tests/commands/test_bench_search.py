"""`manage.py bench_search`: what it counts, and that a candidate is what `estimate` says of the same deployment."""

import io
import json
import random
from typing import Any

import numpy as np
import pytest
from django.core.management import call_command

from advisor import workload
from advisor.engine.search import Question
from advisor.engine.search.candidates import CONCURRENCY
from advisor.engine.search.table import evaluate
from advisor.inputs.from_catalog import take_snapshot
from advisor.inputs.to_engine import catalog_of, workload_of
from advisor.workload import deployment
from tests.as_json import estimate
from tests.laboratory.commands import bench_search

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("frozen")]
CHIPS = ["h100-sxm", "h200-sxm", "mi300x", "l40s"]


def bench(*args: str) -> str:
    out = io.StringIO()
    call_command("bench_search", "--accelerators", *CHIPS, *args, stdout=out)
    return out.getvalue()


def test_counts_and_growth_belong_together() -> None:
    result = json.loads(bench("--format", "json"))
    assert {"candidates", "seconds", "candidates_per_s", "pruned", "peak_mb", "growth"} <= set(result)
    quarter, half, whole = result["growth"]
    assert whole["candidates"] == result["candidates"]
    assert quarter["candidates"] < half["candidates"] < whole["candidates"]
    assert quarter["peak_mb"] < whole["peak_mb"] <= 8 * quarter["peak_mb"]
    assert result["pruned"] > 0


def test_the_table_says_the_rate() -> None:
    assert "per second on one core" in bench()


def constant() -> tuple[Any, Any]:
    """The benchmark's question with constant lengths and no prefix cache: what `estimate` can be asked."""
    raw = {**workload.load(bench_search.FILE.read_bytes()), **bench_search.UNBOUND}
    raw["constraints"] = {**bench_search.UNBOUND["constraints"], "accelerators": {"allow": CHIPS}}
    raw["traffic"] = {"input_tokens": 2000, "output_tokens": 300, "requests_per_s": 12}
    spec = workload.parse(raw)
    return workload_of(spec), catalog_of(spec, take_snapshot(spec))


def asked(lane: Any, **more: Any) -> dict[str, Any]:
    c = lane.choice
    body = {
        "model": "meta-llama/Llama-3.3-70B-Instruct", "accelerator": c.accelerator.slug, "tp": c.tp, "pp": c.pp,
        "weights": c.quantization.slug, "kv": c.kv_dtype, "framework": lane.framework.slug,
        "framework_version": lane.framework.version, "isl": 2000, "osl": 300, **more,
    }  # fmt: skip
    return estimate(deployment.parse_deployment(body))


@pytest.mark.parametrize("many", [6, pytest.param(20, marks=pytest.mark.soak)])
def test_candidates_equal_the_closed_form_of_the_same_deployment(many: int) -> None:
    asks, catalog = constant()
    table = evaluate(Question(asks, catalog), bench_search.lanes_of(Question(asks, catalog)))
    cells = np.argwhere(np.isfinite(table.usd_per_hour) & np.isfinite(table.tpot_p95_s)).tolist()
    for i, j in random.Random(20).sample(cells, many):
        lane, c = table.lanes[i], table.lanes[i].choice
        together, room = max(int(CONCURRENCY[j]), c.pp), float(table.built.memory.kv_capacity_tokens[i]) * c.pp
        # the workspace, and with it the cache, of a server that runs so many is not that of one that may run 512
        near = 1e-4 if together * 2300 < 0.8 * room else 0.2
        closed = asked(lane, concurrency=together)
        assert closed["closed_form"]["output_tokens_per_s"] / 300 == pytest.approx(
            table.capacity_requests_per_s[i, j], rel=near
        )
        most = lane.max_running_requests * c.pp
        loaded = asked(lane, client=f"poisson:{12 / table.replicas[i, j]:.9f}", concurrency=most)
        assert loaded["closed_form"]["tpot_ms_p95"] == pytest.approx(table.tpot_p95_s[i, j] * 1e3, rel=1e-4)
        assert loaded["closed_form"]["ttft_ms_p95"] == pytest.approx(table.ttft_p95_s[i, j] * 1e3, rel=1e-4)
        assert loaded["kv_capacity_tokens"] == pytest.approx(room, rel=1e-4)
        weights = float(table.built.memory.weights_bytes[i])
        assert loaded["memory"]["weights_gib"] == pytest.approx(weights / 2**30, rel=1e-5)
