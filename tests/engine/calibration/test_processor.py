"""What the suite on a processor determines, against made-up times of known rates and one measured result."""

import json
from pathlib import Path
from typing import Any

import pytest

from advisor.engine.calibration import determined
from tests.engine.catalog_sample import chip
from tests.probes.samples import entry

FIXTURES = Path(__file__).resolve().parents[3] / "fixtures"
EPYC = json.loads((FIXTURES / "measurements/probes/amd-epyc-two-shared-cores.json").read_text())
SOCKET = chip(
    "socket", kind="cpu", cores=128, sram_bytes=512 * 2.0**20, memory_bytes_per_s=614e9, links=(),
    flops_per_s={"fp32": 22.1e12, "bf16": 44.2e12, "int8": 88.5e12},
)  # fmt: skip


def results(share: float, read: float = 0.8, matmul: float = 0.5, attention: float = 0.1) -> list[Any]:
    """As a machine with this share of the socket would measure them."""
    size, m, n, k = 2**28, 2048, 4096, 4096
    reads = entry("memory_read", {"bytes": size}, size / (614e9 * share * read), 0, size)
    flops, moved = 2.0 * m * n * k, 2.0 * (m * k + n * k + m * n)
    gemms = [
        entry("gemm", {"dtype": d, "m": m, "n": n, "k": k}, flops / (peak * share * matmul), flops, moved)
        for d, peak in (("fp32", 22.1e12), ("bf16", 44.2e12), ("int8", 88.5e12))
    ]
    key = {"dtype": "bf16", "tokens": 512, "batch": 1, "heads": 8, "kv_heads": 2, "head_dim": 64}
    pairs = 4.0 * 8 * 64 * 512 * 513 / 2
    slow, fast = (
        entry("attention_prefill", {**key, "backend": b}, pairs / (44.2e12 * share * attention) * slower, pairs)
        for b, slower in (("math", 3.0), ("flash", 1.0))
    )
    return [reads, *gemms, slow, fast]


def document(cores: int, entries: list[Any]) -> dict[str, Any]:
    return {"library": "torch", "backend": "cpu", "host": {"cores": cores}, "results": entries}


@pytest.mark.parametrize("cores", [128, 64])
def test_the_rates_of_all_or_half_of_a_socket_are_found_again(cores: int) -> None:
    found = determined(document(cores, results(cores / 128)), SOCKET, {"matrix_factor": 0.2})
    values = {f.name: f.value for f in found.figures}
    # predictions multiply the last one by matrix_factor
    assert values == pytest.approx(
        {"memory_fraction": 0.8, "matmul_16_fraction": 0.5, "matmul_8_fraction": 0.5, "attention_fraction": 0.5}
    )
    assert all(f.low <= f.value <= f.high and f.source for f in found.figures)
    assert ("on 64 of 128 cores" in found.figures[0].source) == (cores == 64)


def test_two_cores_that_read_more_than_their_share_do_not_tell_the_bandwidth() -> None:
    found = determined(document(2, results(2 / 128, read=3.0)), SOCKET)
    assert "memory_fraction" not in {f.name for f in found.figures}
    assert "more than the datasheet's 9.59 GB/s" in found.missing["memory_fraction"]


def test_a_rate_that_the_processor_cannot_reach_is_not_used() -> None:
    found = determined(document(64, results(0.5, matmul=2.0)), SOCKET)
    assert "matmul_16_fraction" in found.missing and "another processor" in found.missing["matmul_16_fraction"]


def test_a_dtype_without_a_fast_kernel_is_not_fitted() -> None:
    found = determined(document(64, results(0.5, matmul=0.004)), SOCKET)
    assert "no fast kernel" in found.missing["matmul_8_fraction"]


def test_the_measured_result_determines_three_figures_and_gives_reasons_for_the_others() -> None:
    found = determined(EPYC, SOCKET, {"matrix_factor": 0.1184})
    rate = 1610612736 / 0.00414884 / (44.2e12 * 2 / 128)  # its bf16 multiply of 128 rows
    values = {f.name: f.value for f in found.figures}
    assert values["matmul_16_fraction"] == pytest.approx(rate)
    assert set(values) == {"matmul_16_fraction", "matmul_8_fraction", "attention_fraction"}
    assert all(found.missing.values()) and not set(found.missing) & set(values)
    assert "torch on cpu" in found.missing["host_factor"] and found.unused_kinds["memory_write"]


def test_an_empty_result_says_what_each_figure_needs() -> None:
    found = determined(document(2, []), SOCKET)
    assert not found.figures and "64 MiB" in found.missing["memory_fraction"]
    assert "512 tokens" in found.missing["attention_fraction"] and "bf16" in found.missing["matmul_16_fraction"]
