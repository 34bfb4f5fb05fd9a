"""Study files for the tests."""

from typing import Any

WORKLOAD: dict[str, Any] = {
    "name": "chat",
    "model": "meta-llama/Llama-3.1-8B",
    "variants": "no",
    "traffic": {"input_tokens": 1000, "output_tokens": 200, "requests_per_s": {"mean": 2}},
    "slo": {"tpot_ms_p95": 60},
    "constraints": {
        "accelerators": {"allow": ["l40s"]},
        "frameworks": {"allow": ["vllm"]},
        "formats": {"allow": ["fp8"]},
    },
}
GRID = {"kind": "grid", "workload": WORKLOAD, "grid": {"traffic.requests_per_s.mean": [1, 2, 4]}}


def workloads(count: int) -> dict[str, Any]:
    return {"kind": "workloads", "workloads": [{**WORKLOAD, "name": f"w{n}"} for n in range(count)]}
