"""Image generation: passes of a diffusion transformer, text encoders, VAE decoder, memory and cost per image."""

from typing import Any

import pytest

from advisor.answer.advice import recommend
from advisor.engine.network import parameters
from advisor.engine.network.diffusion import decoder_parameters
from advisor.inputs import take_snapshot
from advisor.inputs.from_catalog import model_row
from advisor.inputs.to_engine import model_of
from advisor.result import Option
from advisor.web.forms import WorkloadForm, as_file, from_spec
from advisor.workload import load
from advisor.workload.schema import parse
from tests.answer.test_conversations import refused

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("frozen")]
FLUX, SD = "black-forest-labs/FLUX.1-dev", "stabilityai/stable-diffusion-3.5-large"
ASKED: dict[str, Any] = {
    "name": "pictures",
    "kind": "image_generation",
    "model": FLUX,
    "traffic": {"image_output": {"width_px": 1024, "height_px": 1024, "steps": 28}, "requests_per_s": 0.05},
    "constraints": {"accelerators": {"allow": ["h200-sxm"]}, "acquisition": ["rent"]},
}


def first(model: str = FLUX, **image: Any) -> Option:
    output = {**ASKED["traffic"]["image_output"], **image}
    spec = parse({**ASKED, "model": model, "traffic": {**ASKED["traffic"], "image_output": output}})
    return recommend(spec, take_snapshot(spec)).recommendations[0]


def test_flux_has_the_published_weights():
    """31.4 GiB on a card (vLLM-Omni's documentation); 49,545,475 weights in the decoder that was built and measured."""
    model = model_of(model_row(FLUX))
    assert model.diffusion and decoder_parameters(model.diffusion) == pytest.approx(49_545_475, rel=1e-3)
    assert parameters(model) * 2 / 2**30 == pytest.approx(31.4, abs=0.1)


def test_an_image_takes_its_steps_and_is_costed_by_the_thousand():
    option = first()
    by_name = {line.operator: line for line in option.step}
    # 28 passes of 4,096 image and 512 text tokens through 57 layers of 12 x 3072^2 weights
    linear = sum(by_name[name].flops or 0 for name in ("ffn/up", "ffn/down", "attention/qkv", "attention/output"))
    assert linear == pytest.approx(28 * 2 * 57 * 12 * 3072**2 * 4608, rel=0.01)
    assert by_name["attention/scores"].flops == pytest.approx(28 * 57 * 4 * 3072 * 4608**2, rel=0.01)
    vae = sum(line.flops or 0 for line in option.step if line.operator == "vae/convolutions")
    assert vae == pytest.approx(9.9e12, rel=0.05)
    assert any(line.operator.startswith("text_encoder/") for line in option.step)
    seconds = sum(line.time_s or 0 for line in option.step)
    assert option.ttft_ms.p50 and option.ttft_ms.p50 / 1e3 == pytest.approx(seconds, rel=0.1)
    assert option.memory.weights_gib == pytest.approx(31.4, abs=0.1)
    assert option.unit_cost and (option.unit_cost.unit, option.unit_cost.count) == ("image", 1000)
    assert option.unit_cost.usd == pytest.approx(option.usd_per_hour / 3600 / 0.05 * 1000, rel=1e-3)
    assert option.framework == "vllm-omni" and f"vllm serve {FLUX} --omni" in option.launch.command


def test_guidance_doubles_the_passes_and_larger_images_cost_more_than_their_pixels():
    small, large = first(steps=10, width_px=512, height_px=512), first(steps=10, width_px=1024, height_px=1024)
    assert (large.ttft_ms.mean or 0) > 3 * (small.ttft_ms.mean or 1e9)
    guided = next(line for line in first(SD, steps=10).step if line.operator == "ffn/up")
    assert guided.flops == pytest.approx(10 * 2 * 38 * 2 * 2432 * 9728 * (4096 + 333), rel=0.01)


def test_the_form_and_the_file_hold_it():
    spec = parse(ASKED)
    assert parse(spec) == spec == parse(load(as_file(spec)))
    form = WorkloadForm(from_spec(spec))
    assert form.is_valid(), form.errors
    assert form.spec == spec


@pytest.mark.parametrize(
    ("raw", "field", "says"),
    [
        ({**ASKED, "model": "Qwen/Qwen3-8B"}, "model", "generates no images"),
        ({**ASKED, "traffic": {"input_tokens": 9, "requests_per_s": 1}}, "traffic.image_output", "is required"),
        ({**ASKED, "kind": "embedding"}, "traffic.image_output", "cannot be used with kind embedding"),
        ({"model": FLUX, "traffic": {"input_tokens": 9, "output_tokens": 9, "requests_per_s": 1}},
         "kind", "ask with kind: image_generation"),
    ],
)  # fmt: skip
def test_contradictions_name_their_field(raw: dict[str, Any], field: str, says: str):
    assert says in refused(raw)[field]
