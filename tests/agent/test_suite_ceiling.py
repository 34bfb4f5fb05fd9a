"""The benchmark against cuBLAS, torch.compile and Triton: what it says without a GPU, and how it judges."""

import pytest

from probes.agent.kinds import gemm
from probes.agent.measure import Device, Skip
from tests.measuring import bench_ceiling


def outcome(ratio: float) -> bench_ceiling.Outcome:
    return bench_ceiling.Outcome(
        "bf16", 8, 16, 32, "torch", 1e-6, {"cublas": ratio * 1e-6}, {"triton": "absent"}, ratio
    )


def test_without_a_gpu_it_says_so_and_fails_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bench_ceiling, "missing", lambda: "no GPU that torch sees")
    assert bench_ceiling.main([]) == 0
    assert "not measured: no GPU" in capsys.readouterr().out


@pytest.mark.parametrize(("ratio", "code"), [(1.0, 0), (0.97, 0), (0.969, 1)])
def test_a_ratio_under_the_target_is_an_exit_code(monkeypatch: pytest.MonkeyPatch, ratio: float, code: int) -> None:
    monkeypatch.setattr(bench_ceiling, "missing", lambda: None)
    monkeypatch.setattr(bench_ceiling, "compare", lambda device, dtype, shape: outcome(ratio))
    assert bench_ceiling.main(["--shapes", "8x16x32", "--dtypes", "bf16"]) == code


def test_a_shape_that_nobody_multiplies_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(device: Device, dtype: str, shape: gemm.Shape) -> bench_ceiling.Outcome:
        raise Skip("no fp8 here")

    monkeypatch.setattr(bench_ceiling, "missing", lambda: None)
    monkeypatch.setattr(bench_ceiling, "compare", refuse)
    assert bench_ceiling.main(["--shapes", "8x16x32", "--dtypes", "fp8"]) == 0
    assert "not measured: fp8 8x16x32: no fp8 here" in capsys.readouterr().err


def test_a_row_names_each_rival_and_who_refused() -> None:
    text = "\n".join(bench_ceiling.lines([outcome(0.9), outcome(1.0)]))
    assert "triton: absent" in text
    assert "worst ratio 0.900; 1 of 2 under the target of 0.97" in text
