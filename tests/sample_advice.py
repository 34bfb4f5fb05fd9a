"""A sample answer for the pages and the API: the shape of a real one, its figures made up for the tests."""

from datetime import timedelta
from typing import Any

from django.utils import timezone

from advisor import advise
from advisor.models import Advice, Option, Workload
from advisor.result import Option as Recommended
from advisor.stored import RESULT_VERSION
from advisor.workload.schema import parse
from tests.clocks import TODAY

SPEC = """
name: support-chat
model: meta-llama/Llama-3.3-70B-Instruct
traffic:
  input_tokens: {mean: 2000, p95: 6000}
  output_tokens: {mean: 300, p95: 800}
  requests_per_s: {mean: 4, peak: 12}
slo: {ttft_ms_p95: 1000, tpot_ms_p95: 40}
"""


def spread(mean: float) -> dict[str, float]:
    return {"mean": mean, "p50": 0.9 * mean, "p95": 1.6 * mean, "p99": 2.4 * mean}


def step(scale: float) -> list[dict[str, Any]]:
    rows = [
        ("prefill", "ffn", 0.061, "compute"),
        ("prefill", "attention_projections", 0.022, "compute"),
        ("prefill", "attention", 0.009, "compute"),
        ("prefill", "all_reduce", 0.011, "communication"),
        ("decode", "ffn", 0.0081, "memory"),
        ("decode", "attention", 0.0042, "memory"),
        ("decode", "attention_projections", 0.0029, "memory"),
        ("decode", "all_reduce", 0.0011, "communication"),
        ("decode", "lm_head", 0.0004, "memory"),
        ("decode", "host", 0.0006, "host"),
    ]
    return [
        {"phase": phase, "operator": name, "time_s": s * scale, "flops": 1e12, "bytes": 1e10, "bound": bound}
        for phase, name, s, bound in rows
    ]


def option(
    rank: int, accelerator: str, name: str, basis: str, month: float, mtok: float, tpot: float
) -> dict[str, Any]:
    days = {"measured": 5, "relative": 45, "datasheet": 120}[basis]
    return {
        "rank": rank, "label": f"4 x {name}, FP8, TP2 x 2 replicas, vLLM 0.24", "accelerator": accelerator,
        "accelerator_name": name,
        "accelerator_count": 4, "provider": "nebius", "instance": f"gpu-{accelerator}_8", "instances": 1,
        "region": "eu-north1", "meets_slo": True,
        "acquisition": "rent", "framework": "vllm", "framework_version": "0.24.0", "weights_dtype": "fp8",
        "quantization": "fp8", "kv_dtype": "bf16", "tp": 2, "pp": 1, "ep": 1, "dp": 1, "replicas": 2,
        "concurrency": 64, "max_batched_tokens": 8192, "speculative": None, "disaggregated": None,
        "memory": {
            "weights_gib": 33.1, "kv_gib": 80.2, "activations_gib": 3.1, "overhead_gib": 2.0, "free_gib": 22.0,
        },
        "ttft_ms": spread(150.0 * rank), "tpot_ms": spread(tpot), "output_tokens_per_s": 1200.0,
        "output_tokens_per_s_per_accelerator": 300.0, "output_tokens_per_s_at_capacity": 3870.0,
        "requests_per_s": 4.0, "capacity_requests_per_s": 12.9,
        "utilisation": 0.31, "usd_per_hour": month / 730, "usd_per_month": month, "usd_per_mtok_input": mtok / 9,
        "usd_per_mtok_output": mtok, "usd_per_mtok_blended": mtok / 4, "usd_per_mtok_output_at_capacity": mtok / 3,
        "tco_usd": month * 33, "watts": 2100.0, "joules_per_output_token": 1.7, "kgco2e_per_mtok": 0.12,
        "bound": "memory", "basis": basis,
        "interval": {
            "tpot_ms": [0.85 * tpot, 1.2 * tpot], "ttft_ms": [110, 230],
            "output_tokens_per_s_at_capacity": [3000, 4400],
            "tpot_ms_p95": [tpot, 1.5 * tpot], "ttft_ms_p95": [300, 700],
            "usd_per_mtok_output": [0.85 * mtok, 1.2 * mtok],
        },
        "launch": {
            "command": "vllm serve meta-llama/Llama-3.3-70B-Instruct --quantization fp8 --tensor-parallel-size 2 "
            "--max-num-seqs 64 --max-num-batched-tokens 8192",
            "files": {"serve.sh": "#!/bin/sh\nexec vllm serve ...\n"},
            "flags": {"checked": True, "unknown": [], "source": "vllm 0.24.0, options read on 2026-11-21"},
            "load_test": {
                "requests": 2000, "requests_per_s": 6.0, "concurrency": None, "input_tokens_mean": 2000.0,
                "output_tokens_mean": 300.0, "duration_s": 333.0, "flags": {},
                "commands": {"vllm": "vllm bench serve --num-prompts 2000", "aiperf": "aiperf profile --streaming"},
            },
        },
        "reasons": ["the cheapest deployment that meets both service levels at peak"],
        "warnings": ["one replica less misses TTFT p95 at peak"],
        "price_as_of": (TODAY - timedelta(days=days)).isoformat(),
        "price_source": "https://example.org/prices", "step": step(1 + 0.2 * rank),
    }  # fmt: skip


def points(options: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The ranked, a crowd behind them, one that misses the SLO and one without a price."""
    crowd = [
        {"label": f"sample {n}", "accelerator": "sample", "accelerator_count": 4, "rank": None, "frontier": False,
         "tpot_ms": 12.0 + 7 * (n % 9), "usd_per_mtok_output": 2.2 + 0.7 * (n % 13),
         "output_tokens_per_s_per_user": 40.0, "meets_slo": 12.0 + 7 * (n % 9) < 40, "simulated": False}
        for n in range(60)
    ]  # fmt: skip
    ranked = [
        {"label": item["label"], "accelerator": item["accelerator"], "accelerator_count": 4, "rank": item["rank"],
         "frontier": item["rank"] < 4, "tpot_ms": item["tpot_ms"]["mean"], "meets_slo": True, "simulated": True,
         "usd_per_mtok_output": item["usd_per_mtok_output"],
         "output_tokens_per_s_per_user": 1000 / item["tpot_ms"]["mean"]}
        for item in options
    ]  # fmt: skip
    return [*crowd, *ranked, {**crowd[0], "label": "owned, no price", "usd_per_mtok_output": 0}]


def result() -> dict[str, Any]:
    options = [
        option(1, "h200-sxm", "H200 SXM", "measured", 10220.0, 1.9, 18.0),
        option(2, "mi300x", "MI300X", "relative", 11480.0, 2.13, 16.4),
        option(3, "h100-sxm", "H100 SXM", "measured", 14890.0, 2.76, 12.1),
        option(4, "gaudi3", "Gaudi 3", "datasheet", 12310.0, 2.3, 22.7),
    ]
    return {
        "workload": parse(SPEC), "engine_version": "sample", "elapsed_s": 0.42,
        "catalog": {"version": "sample", "prices_as_of": options[0]["price_as_of"]},
        "candidates": {"evaluated": 184320, "pruned": 91200, "feasible": 5210},
        "verdict": "4 x H200 SXM in FP8 (TP2 x 2 replicas, vLLM) serve this for $10,200 per month, $1.90 "
        "(1.62–2.28) per million output tokens, with TTFT p95 at 240 ms.",
        "recommendations": options,
        "views": {"cheapest": 1, "fastest": 3, "simplest": 1, "greenest": 1, "balanced": 2},
        "pareto": points(options),
        "rejected": [
            {"accelerator": "l40s", "reason": "misses_slo", "detail": "best TPOT p95 61 ms > 40 ms at TP8",
             "limit": 40, "reached": 61, "smallest_change": "passes with tpot_ms_p95 >= 62"},
            {"accelerator": "t4", "reason": "does_not_fit", "detail": "needs 36.2 GiB per chip at TP8, has 15.0",
             "limit": 15.0, "reached": 36.2, "smallest_change": "no layout of one host fits"},
            {"accelerator": "groq-lpu", "reason": "api_only", "detail": "sold as a hosted API alone",
             "limit": None, "reached": None, "smallest_change": "ask with acquisition: [api]"},
        ],
        "near_misses": [{**options[3], "rank": None, "label": "2 x H200 SXM, FP8, TP2", "detail": "TTFT p95 1,090 ms",
                         "smallest_change": "passes with ttft_ms_p95 >= 1090"}],
        "assumptions": [
            {"name": "pue", "value": 1.3, "unit": "ratio", "source": "https://example.org/pue"},
            {"name": "discount_rate", "value": 0.08, "unit": "fraction_per_year", "source": "workload"},
        ],
        "sensitivity": [
            {"assumption": "price of H200 SXM at nebius", "winner_after": "mi300x", "at_change_fraction": 0.123,
             "detail": "MI300X wins once it is 12% dearer"},
        ],
        "sources": [{"what": "h200-sxm: memory", "source": "https://example.org/datasheet", "as_of": "2026-10-01"}],
    }  # fmt: skip


def infeasible() -> dict[str, Any]:
    full = result()
    empty = {"recommendations": [], "views": {}, "pareto": [], "near_misses": [], "verdict": ""}
    return {**full, **empty}


def advice(answer: dict[str, Any] | None = None, state: str = "done", **fields: Any) -> Advice:
    """A stored advice in `state`; a done one holds `answer` or the sample."""
    spec = parse(SPEC)
    organisation = advise.default_organisation()
    workload = Workload.objects.create(organisation=organisation, name=spec["name"], spec=spec)
    if state == "done":
        fields = {
            "result": answer or result(),
            "result_version": RESULT_VERSION,
            "progress_fraction": 1,
            "finished_at": timezone.now(),
            **fields,
        }
    if state == "running":
        fields = {"attempt": 1, "lease_until": timezone.now() + timedelta(minutes=5), **fields}
    made = Advice.objects.create(organisation=organisation, workload=workload, state=state, **fields)
    rows = (made.result or {}).get("recommendations", [])
    # not validated: some tests store an answer that cannot be read
    options = [Recommended.model_construct(**row) for row in rows]
    Option.objects.bulk_create(advise.option_row(made.pk, rank, option) for rank, option in enumerate(options, 1))
    return made
