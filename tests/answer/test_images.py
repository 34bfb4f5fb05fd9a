"""Image input: tokens by each model's own rule, the vision tower's time and memory, and who can serve it."""

from typing import Any

import pytest

from advisor.answer.advice import recommend
from advisor.engine.network import pictures_of, vision_parameters
from advisor.engine.network.vision import Pictures
from advisor.inputs import take_snapshot
from advisor.inputs.check import check_catalog
from advisor.inputs.from_catalog import model_row
from advisor.inputs.to_engine import model_of
from advisor.result import Option
from advisor.web.forms import WorkloadForm, from_spec
from advisor.workload import WorkloadError
from advisor.workload.schema import parse
from tests.answer.test_conversations import asked, refused

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("frozen")]
PAGE = {"per_request": 2, "width_px": 1024, "height_px": 1024}
ON_ONE = {"turns": None, "requests_per_s": 0.5, "input_tokens": 300}


def tower_images(name: str, width_px: float, height_px: float) -> Pictures:
    model = model_of(model_row(name))
    assert model.vision
    return pictures_of(model.vision, 1, width_px, height_px)


def first(raw: dict[str, Any]) -> Option:
    spec = parse(raw)
    return recommend(spec, take_snapshot(spec)).recommendations[0]


@pytest.mark.parametrize(
    ("model", "size", "tokens", "patches"),
    [
        ("Qwen/Qwen2.5-VL-7B-Instruct", (1024, 1024), 37 * 37 + 2, 74 * 74),  # 1036 px: 37 tokens of 28 px
        ("Qwen/Qwen2.5-VL-7B-Instruct", (10, 10), 2 * 2 + 2, 4 * 4),  # enlarged to 56 px
        ("Qwen/Qwen2.5-VL-72B-Instruct", (8000, 8000), 128 * 128 + 2, 256 * 256),  # 12.8 million pixels at most
        ("Qwen/Qwen3.5-27B", (1024, 1024), 32 * 32 + 2, 64 * 64),  # tokens of 32 px
        ("google/gemma-3-27b-it", (3000, 500), 256 + 4, 64 * 64),  # always 896 x 896
        ("moonshotai/Kimi-K2.5", (1024, 1024), 37 * 37 + 3, 74 * 74),  # padded to 1036 px
        ("meta-llama/Llama-4-Scout-17B-16E-Instruct", (336, 336), 144 + 3, 576),  # one tile
        ("meta-llama/Llama-4-Scout-17B-16E-Instruct", (1024, 1024), 17 * 144 + 16 + 3, 576),  # 4 x 4 tiles and a global
    ],
)
def test_tokens_of_an_image_follow_the_models_own_rule(model: str, size: tuple[int, int], tokens: int, patches: int):
    found = tower_images(model, *size)
    assert (found.tokens, found.patches) == (tokens, patches)


def test_towers_have_the_published_weights():
    """Qwen2.5-VL-7B has 8,292,166,656 parameters, its language model 7,615,616,512."""
    tower = model_of(model_row("Qwen/Qwen2.5-VL-7B-Instruct")).vision
    assert tower and vision_parameters(tower) == pytest.approx(8_292_166_656 - 7_615_616_512, rel=1e-4)


def test_images_cost_tokens_encoder_time_and_memory():
    text = first(asked(None, ON_ONE, model="Qwen/Qwen2.5-VL-7B-Instruct"))
    seen = first(asked(None, {**ON_ONE, "images": PAGE}, model="Qwen/Qwen2.5-VL-7B-Instruct"))
    assert text.images is None and seen.images and seen.unit_cost
    assert (seen.images.tokens_per_image, seen.images.patches_per_image) == (1371, 5476)
    assert seen.images.encoder_gib == pytest.approx(676.54e6 * 2 / 2**30, rel=1e-3)
    lines = [line for line in seen.step if line.operator.startswith("vision/")]
    assert sum(line.time_s or 0 for line in lines) * 1e3 == pytest.approx(seen.images.encoder_ms, rel=1e-3)
    # two images: 2 x 5,476 patches pass 630 million weights, and 28 of 32 layers attend to windows of 64 patches
    pairs = 2 * 5476 * (28 * 64 + 4 * 5476)
    expected = 2 * 2 * 5476 * 630e6 + 4 * 1280 * pairs + 2 * 2 * 1369 * (5120 * 5120 + 5120 * 3584)
    assert sum(line.flops or 0 for line in lines) == pytest.approx(expected, rel=0.02)
    assert (seen.ttft_ms.mean or 0) > (text.ttft_ms.mean or 0) + (seen.images.encoder_ms or 0)
    assert seen.unit_cost.unit == "image" and seen.unit_cost.count == 1000
    assert """--limit-mm-per-prompt '{"image": 2}'""" in seen.launch.command


def test_a_screenshot_in_every_turn_grows_the_conversation():
    spec = asked({"count": 5, "wait_s": 1}, {"images": {"per_request": 1}}, model="Qwen/Qwen2.5-VL-7B-Instruct")
    c = first(spec).conversation
    assert c and c.last_prompt_tokens == pytest.approx(4000 + 1371 + 4 * (200 + 800 + 1371))


def test_models_without_a_tower_and_frameworks_without_image_input_are_refused():
    found = refused(asked(None, {**ON_ONE, "images": PAGE}))
    assert "no vision tower" in found["traffic.images"]
    assert (
        "image embeddings"
        in refused(
            asked(None, {**ON_ONE, "images": PAGE, "output_tokens": None}, kind="embedding", model="BAAI/bge-m3")
        )["traffic.images"]
    )
    on_mlx = {"accelerators": {"allow": ["apple-m5-max"]}, "frameworks": {"allow": ["mlx"]}, "acquisition": ["own"]}
    raw = asked(None, {**ON_ONE, "images": PAGE}, model="Qwen/Qwen2.5-VL-7B-Instruct", constraints=on_mlx)
    spec = parse(raw)
    answer = recommend(spec, take_snapshot(spec))
    assert not answer.recommendations
    assert {r.accelerator: r for r in answer.rejected}["apple-m5-max"].reason == "unsupported"


def test_the_form_holds_images():
    spec = parse(asked(None, {**ON_ONE, "images": PAGE}, model="Qwen/Qwen2.5-VL-7B-Instruct"))
    check_catalog(spec)
    form = WorkloadForm(from_spec(spec))
    assert form.is_valid() and form.spec == spec
    with pytest.raises(WorkloadError, match=r"width_px"):
        parse(asked(None, {**ON_ONE, "images": {"width_px": 0}}))
