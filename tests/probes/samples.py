"""Result documents of machines that do not exist: their times come from a chip model whose figures are known."""

import hashlib
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np

from probes.agent import spec as specs
from probes.agent.server import signing

H200 = {
    "name": "NVIDIA H200",
    "count": 1,
    "memory_bytes": 150_754_820_096,
    "multiprocessors": 132,
    "power_limit_w": 700.0,
    "driver": "580.1",
}
# What the model of the chip reaches: the fit has to find these again.
TRUE = {
    "memory_fraction": 0.92,
    "matmul_16_fraction": 0.70,
    "matmul_8_fraction": 0.62,
    "attention_fraction": 0.55,
    "expert_fraction": 0.60,
    "kernel_s": 3.0e-6,
    "wave_fraction": 0.5,
    "roof_exponent": 2.0,
    "sequence_head_bytes": 2.4e4,
    "link_fraction": 0.80,
    "collective_s": 1.1e-5,
    "hop_s": 1.5e-6,
    "collective_knee_bytes": 2.0e6,
    "quantize_bytes": 4.0,
    "quantize_kernels": 0.6,
}
PEAK = {"bf16": 989.4e12, "fp8": 1978.9e12}
MEMORY = 4800e9
LINK = 450e9
SHAPES = ((4096, 4096), (28672, 4096), (4096, 14336), (6144, 4096))
SPEC = specs.checked({"suite": "full"})
BEGUN = datetime.now(UTC).replace(microsecond=0) - timedelta(hours=1)


def roof(flops_s: float, bytes_s: float) -> float:
    p = TRUE["roof_exponent"]
    return (flops_s**p + bytes_s**p) ** (1 / p)


def entry(kind: str, key: dict[str, Any], seconds: float, flops: float = 0, moved: float = 0, n: int = 20) -> Any:
    return {
        "kind": kind,
        "key": key,
        "path": "native",
        "kernel": f"{kind}_kernel",
        "time_s": {"median": seconds, "p10": seconds * 0.99, "p90": seconds * 1.02, "n": n},
        "flops": int(flops) or None,
        "bytes": int(moved) or None,
        "check": {"error": 1e-4, "limit": 1e-2, "against": "float64", "ok": True},
        "power_w": 500.0,
        "clock_hz": 1.8e9,
        "temperature_c": 50.0,
        "throttled": False,
        "note": None,
    }


def gemm(dtype: str, m: int, n: int, k: int, width: int, sustained_s: float | None = None) -> Any:
    flops, moved = 2.0 * m * n * k, (n * k + m * k) * width + m * n * 2.0
    rate = PEAK[dtype] * TRUE["matmul_16_fraction" if width == 2 else "matmul_8_fraction"]
    from advisor.engine.kernels import waves

    part = float(waves(np.array(float(m)), np.array(float(n)), np.array(132.0))) - 1.0
    seconds = (
        roof(flops * (1 + TRUE["wave_fraction"] * part) / rate, moved / (MEMORY * TRUE["memory_fraction"]))
        + TRUE["kernel_s"]
    )
    key = {"dtype": dtype, "m": m, "n": n, "k": k} | ({"scaling": "tensor"} if dtype == "fp8" else {})
    key |= {"sustained_s": sustained_s} if sustained_s else {}
    return entry("gemm", key, seconds, flops, moved)


def gemms() -> list[Any]:
    rows = (1, 8, 16, 64, 128, 256, 512, 1024, 4096, 8192)
    found = [gemm(d, m, n, k, w) for d, w in (("bf16", 2), ("fp8", 1)) for m in rows for n, k in SHAPES]
    return found + [gemm(d, 8192, 8192, 8192, w, 1.0) for d, w in (("bf16", 2), ("fp8", 1))]


def memory() -> list[Any]:
    rate = MEMORY * TRUE["memory_fraction"]
    sizes = [2**20 * 4**k for k in range(7)]
    reads = [entry("memory_read", {"bytes": s}, s / rate + TRUE["kernel_s"], 0, s) for s in sizes]
    return reads + [entry("memory_copy", {"bytes": s}, 2 * s / (0.95 * rate) + 4e-6, 0, 2 * s) for s in sizes]


def attention() -> list[Any]:
    found, heads, kv, dim = [], 32, 8, 128
    for tokens in (1024, 4096, 16384, 32768):
        flops = 4.0 * heads * dim * tokens * (tokens + 1) / 2
        for backend, share in (("flash", 1.0), ("math", 0.1)):
            seconds = flops / (PEAK["bf16"] * TRUE["attention_fraction"] * share) + 5e-6
            key = {"dtype": "bf16", "tokens": tokens, "batch": 1, "heads": heads, "kv_heads": kv, "head_dim": dim}
            found.append(entry("attention_prefill", {**key, "backend": backend}, seconds, flops))
    for batch in (1, 8, 64, 256):
        for context in (256, 1024, 4096, 16384):
            moved = 2.0 * batch * context * kv * dim * 2
            fixed = batch * heads * TRUE["sequence_head_bytes"]
            seconds = (moved + fixed) / (MEMORY * TRUE["memory_fraction"]) + TRUE["kernel_s"]
            key = {"dtype": "bf16", "batch": batch, "context_tokens": context, "heads": heads, "kv_heads": kv}
            key |= {"head_dim": dim, "backend": "flash"}
            found.append(entry("attention_decode", key, seconds, 0, moved))
    return found


def experts() -> list[Any]:
    found = []
    for rows in (128, 512, 2048):
        count, n, k = 8, 4096, 4096
        flops, moved = 2.0 * count * rows * n * k, count * n * k * 2.0 + count * rows * (n + k) * 2.0
        rate = PEAK["bf16"] * TRUE["matmul_16_fraction"] * TRUE["expert_fraction"]
        padded = flops * (rows + min(max(rows, 8), 150)) / rows  # part-filled tiles of each expert
        seconds = roof(padded / rate, moved / (MEMORY * TRUE["memory_fraction"])) + 3e-6
        key = {"dtype": "bf16", "layer": "sample.up", "experts": count, "n": n, "k": k, "tokens_per_expert": rows}
        found.append(entry("grouped_gemm", key, seconds, flops, moved))
    return found


def into_fp8() -> list[Any]:
    """Compiled parts of a layer with and without a quantized output, and the quantization alone."""
    found, rate = [], MEMORY * TRUE["memory_fraction"]
    for tokens in (64, 512, 4096):
        for kind, width, of in (("norm", "hidden", 4096), ("activation", "inner", 14336)):
            seconds = 2e-6 + 6.0 * tokens * of / rate
            extra = TRUE["quantize_kernels"] * TRUE["kernel_s"] + tokens * of * TRUE["quantize_bytes"] / rate
            key = {"dtype": "bf16", "tokens": tokens, width: of, "fused": True}
            found.append(entry(kind, key, seconds, 0, 6 * tokens * of))
            found.append(entry(kind, {**key, "into": "fp8"}, seconds + extra, 0, 5 * tokens * of))
            if kind == "norm":
                found.append(entry(kind, {**key, "into": "fp8", "after": "nothing"}, extra, 0, 3 * tokens * of))
    return found


def launches() -> list[Any]:
    times = {"eager": 6e-6, "graph": TRUE["kernel_s"], "round_trip": 1.2e-5}
    return [entry("launch", {"mode": mode}, seconds) for mode, seconds in times.items()]


def all_reduces(chips: int) -> list[Any]:
    found = []
    for size in [2**10 * 4**k for k in range(11)]:
        volume = 2.0 * size * (chips - 1) / chips
        knee = np.sqrt(min(volume, 4e6) * TRUE["collective_knee_bytes"])
        fixed = TRUE["collective_s"] + TRUE["hop_s"] * np.log2(chips)
        seconds = float((volume + knee) / (LINK * TRUE["link_fraction"]) + fixed)
        key = {"dtype": "bf16", "bytes": size, "devices": chips, "backend": "nccl"}
        found.append(entry("all_reduce", key, seconds, 0, volume))
    return found


def known() -> Any:
    found = entry("known_answer", {"side": 512, "dtype": "fp32"}, 2e-5, 2 * 512**3, 3 * 4 * 512**2)
    return {**found, "check": {"error": 0.0, "limit": 0.0, "against": "exact", "ok": True}}


def results(device: dict[str, Any]) -> list[Any]:
    many = device["count"]
    links = [e for chips in (2, 4) if chips <= many for e in all_reduces(chips)]
    return [known(), *memory(), *gemms(), *experts(), *attention(), *into_fp8(), *launches(), *links]


def document(spec: dict[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    """An honest result of one H200 that ran `spec`."""
    spec = spec or SPEC
    device = {**H200, **changes.pop("device", {})}
    entries = changes.pop("results", None) or results(device)
    total = sum(e["time_s"]["median"] * e["time_s"]["n"] for e in entries)
    return {
        "schema": "assay-probe/1",
        "agent_version": "1.0.0",
        "suite": spec["suite"],
        "suite_version": specs.SUITE_VERSION,
        "spec_hash": specs.spec_hash(spec),
        "spec": spec,
        "backend": "cuda",
        "library": "torch",
        "started_at": begun(),
        "duration_s": total * 1.05,
        "device": device,
        "host": {"cpu": "a processor", "cores": 16},
        "versions": {"torch": "2.13.0", "cuda": "13.0"},
        "results": entries,
        "skipped": [{"kind": "all_reduce", "key": {}, "reason": "one chip"}],
        **changes,
    }


def begun(minutes: float = 0) -> str:
    """A start an hour ago, and so many minutes later."""
    return (BEGUN + timedelta(minutes=minutes)).isoformat()


def signature(key: str, given: dict[str, Any], sent: bytes, measured_on: dict[str, Any] = H200, **changes: Any) -> str:
    """As the agent signs what answers the lease `given`."""
    bound = {"job_id": given["job_id"], "attempt": given["attempt"], "nonce": given["nonce"]}
    bound |= {"spec_hash": specs.spec_hash(given["spec"]), "device": signing.device_identity(measured_on)}
    return signing.of_result(key, **{**bound, "body_hash": digest(sent), **changes})


def body(found: dict[str, Any]) -> bytes:
    return json.dumps(found).encode()


def digest(sent: bytes) -> str:
    return hashlib.sha256(sent).hexdigest()
