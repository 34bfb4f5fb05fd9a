"""The ledger of a step: its lines add up to the step's time, its FLOPs and bytes to the model's."""

import pytest

from advisor.engine.estimate.simulated import prepare
from advisor.engine.network.model import Model
from advisor.engine.step.lane import Lanes, lanes
from advisor.engine.step.lane_times import prefill_s, step_s
from advisor.engine.step.ledger import decode_ledger, prefill_ledger
from advisor.inputs.current import catalog_resources
from advisor.workload import deployment

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("frozen")]
MODELS = [
    ("meta-llama/Llama-3.1-8B", 1),
    ("google/gemma-3-27b-it", 2),
    ("deepseek-ai/DeepSeek-V3", 16),
    ("tiiuae/falcon-mamba-7b", 1),
]


def built(model_id: str, tp: int) -> tuple[Model, Lanes]:
    d = deployment.parse_deployment(
        {"model": model_id, "accelerator": "h200-sxm", "tp": tp, "weights": "fp8", "isl": 8000, "osl": 64}
    )
    fixed = deployment.fixed(d, catalog_resources([model_id]))
    own = prepare(fixed.case, fixed.resources)
    assert not isinstance(own, str)
    return fixed.model, lanes(fixed.model, own)


@pytest.mark.parametrize(("model_id", "tp"), MODELS)
def test_lines_add_up_to_the_step(model_id: str, tp: int) -> None:
    model, arrays = built(model_id, tp)
    for tokens in (1, 1000, 8192, 50_000):
        total_s = sum(line.time_s for line in prefill_ledger(model, arrays, 0, tokens))
        assert total_s == pytest.approx(prefill_s(arrays, 0, tokens), rel=1e-9)
    for sequences in (1, 45, 64):
        total_s = sum(line.time_s for line in decode_ledger(model, arrays, 0, sequences, 6000))
        assert total_s == pytest.approx(step_s(arrays, 0, sequences, 6000), rel=1e-9)


def test_flops_and_bytes_of_a_dense_model_are_those_of_its_weights() -> None:
    model, arrays = built("meta-llama/Llama-3.1-8B", 1)
    matrices = 32 * (4096 * 4096 * 2 + 2 * 4096 * 1024 + 3 * 4096 * 14336)
    lines = {line.operator: line for line in prefill_ledger(model, arrays, 0, 4096)}
    products = ("attention/qkv", "attention/output", "ffn/up", "ffn/down")
    assert sum(lines[name].flops for name in products) == pytest.approx(2 * matrices * 4096)
    assert lines["attention/scores"].flops == pytest.approx(32 * 4 * 32 * 128 * 4096 * 4097 / 2)
    read = {line.operator: line for line in decode_ledger(model, arrays, 0, 1, 4096)}["attention/kv_read"]
    assert read.bytes == 4096 * 2 * 32 * 8 * 128 * 2 and read.bound == "memory"
