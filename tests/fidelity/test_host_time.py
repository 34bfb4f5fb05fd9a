"""The host's time per step: found again from steps made with it, and what is shipped is what the logged steps say."""

import pytest
import yaml

from advisor.engine.network.blocks import Attention, Block, Ffn
from advisor.engine.network.model import Model
from tests.laboratory import calibration_files, host_time
from tests.laboratory.host_time import Step

TRUE = {"request_s": 1.5e-3, "prepare_s": 2e-3, "pieces_s_per_layer": 1e-4, "eager_s_per_layer": 3e-4}
RATIO = 2.5


def model(layers: int, experts: int = 1) -> Model:
    mixer = Attention(heads=8, kv_heads=8, head_dim=64)
    ffn = Ffn(inner=1024, experts=experts, top_k=min(experts, 2))
    return Model(slug="m", hidden=512, vocab=1000, blocks=(Block(count=layers, mixer=mixer, ffn=ffn),))


MODELS = {"small": model(16), "middle": model(32), "wide": model(40, experts=8), "large": model(80)}
DEVICE_S = {"small": 1e-4, "middle": 1e-4, "wide": 2e-4, "large": 5e-2}  # of a prompt of 512 tokens


def steps() -> list[Step]:
    found = []
    for name, m in MODELS.items():
        layers, experts = m.blocks[0].count, m.blocks[0].ffn is not None and m.blocks[0].ffn.experts > 1
        for tokens in (128, 512, 1024, 8192):
            each = TRUE["eager_s_per_layer"] * (RATIO if experts else 1) if tokens > 512 else TRUE["pieces_s_per_layer"]
            time_s = max(TRUE["prepare_s"] + layers * each, DEVICE_S[name] * tokens / 512)
            found.append(
                Step(model_id=name, prompt_tokens=tokens, time_s=time_s, first_token_s=time_s + TRUE["request_s"])
            )
    return found


@pytest.mark.parametrize("without", ["", "large", "middle", "wide"])
def test_the_host_is_found_below_models_that_wait_for_the_device(without: str) -> None:
    left = [step for step in steps() if step.model_id != without]
    found = host_time.host_time(left, MODELS, RATIO, hosts_ratio=1.0)
    assert found == pytest.approx({**TRUE, "eager_s_per_expert_layer": RATIO * TRUE["eager_s_per_layer"]})


def test_the_lowest_line_passes_under_every_point() -> None:
    points = [(16.0, 4.0), (32.0, 5.6), (36.0, 7.1), (48.0, 8.1)]
    offset, slope = host_time.lowest_line(points)
    assert all(offset + slope * x <= y + 1e-9 for x, y in points)
    assert offset + slope * 32 == pytest.approx(5.6)


@pytest.mark.usefixtures("shipped")
@pytest.mark.django_db
def test_what_is_shipped_is_what_the_logged_steps_say() -> None:
    from advisor.inputs.current import catalog_resources

    document = yaml.safe_load((calibration_files.CALIBRATION / "fit" / "parameters.yaml").read_text())
    ratio = host_time.issue_ratio(calibration_files.probed()[host_time.CHIP])
    found = host_time.host_time(host_time.read(), catalog_resources().models, ratio)
    shipped = document["fixed"][host_time.SCOPE]
    assert {name: shipped[name] for name in found} == pytest.approx(found, rel=0.03)
