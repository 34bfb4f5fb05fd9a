"""Token capacities that vLLM 0.24.0 reported on one H200 (gpu_memory_utilization 0.90, 8,192 batched tokens)."""

import pytest

from advisor.engine.estimate.simulated import estimate_all
from advisor.engine.terms.workloads.case import Case, Pool
from advisor.inputs.current import catalog_resources

MEASURED = [  # model, weights, cache, tokens
    ("meta-llama/Llama-3.2-1B", "bf16", "bf16", 4_013_248),
    ("meta-llama/Llama-3.1-8B", "bf16", "bf16", 896_912),
    ("meta-llama/Llama-3.1-8B", "fp8", "bf16", 949_840),
    ("meta-llama/Llama-3.3-70B-Instruct", "fp8", "bf16", 184_704),
    ("Qwen/Qwen3-30B-A3B", "bf16", "bf16", 714_128),
    ("Qwen/Qwen3-8B", "bf16", "fp8", 1_588_032),
]


@pytest.mark.django_db
@pytest.mark.usefixtures("frozen")
def test_cache_capacities_are_within_4_percent_of_those_reported():
    cases = [
        Case(
            model_id=model,
            accelerator_slug="h200-sxm",
            chips=1,
            weights_dtype=weights,
            framework="vllm",
            framework_version="0.24.0",
            isl=20000,
            osl=480,
            phase="fit",
            pool=Pool(),
            kv_dtype=kv,
            max_batch=1024,
        )  # fmt: skip
        for model, weights, kv, _ in MEASURED
    ]
    found = estimate_all(cases, catalog_resources([case.model_id for case in cases]))
    assert [f.problem for f in found] == [""] * len(cases)
    wrong = {
        f"{m[0]} {m[1]}": f.kv_capacity_tokens / m[3] - 1
        for f, m in zip(found, MEASURED, strict=True)
        if abs(f.kv_capacity_tokens / m[3] - 1) > 0.04
    }
    assert wrong == {}
