"""A model's size is compared with its checkpoint, the catalog and its name, and its format is read where it stands."""

import json
import sys
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from advisor.engine.network import from_hf_config, size_doubts
from catalog.models import ServedModel
from tests.engine.hf_configs import CONFIGS
from tests.engine.network.test_config_keys import PUBLISHED

LLAMA = CONFIGS["meta-llama/Llama-3.1-8B"]  # 8,030,261,248 parameters, 16.06 GB in BF16
MODELOPT = {"producer": {"name": "modelopt", "version": "0.29.0"}}


def folder(path: Path, config: dict[str, Any], prefix: str = "", **others: dict[str, Any]) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    for name, content in {"config": config, **others}.items():
        (path / f"{prefix}{name.replace('__', '.')}.json").write_text(json.dumps(content))
    return path


def imported(path: Path, *options: str) -> tuple[ServedModel, str]:
    said = StringIO()
    call_command("import_model", str(path), "--slug", "mine", *options, stdout=StringIO(), stderr=said)
    return ServedModel.objects.get(slug="mine"), said.getvalue()


def quantized(algorithm: str | None, **more: Any) -> dict[str, Any]:
    return {**MODELOPT, "quantization": {"quant_algo": algorithm, "kv_cache_quant_algo": "FP8", **more}}


# --- the format -------------------------------------------------------------------------------------------------


@pytest.mark.django_db
@pytest.mark.parametrize("prefix", ["", "nvidia--X-NVFP4_"])
@pytest.mark.parametrize(
    ("algorithm", "dtype"), [("NVFP4", "nvfp4"), ("FP8", "fp8"), ("W4A16_AWQ", "int4"), ("FP8_BLOCK_SCALES", "fp8")]
)
def test_the_format_of_modelopt_is_read_from_its_own_file(tmp_path: Path, prefix: str, algorithm: str, dtype: str):
    path = folder(tmp_path / "model", LLAMA, prefix, hf_quant_config=quantized(algorithm, group_size=16))
    row, said = imported(path / f"{prefix}config.json")
    assert row.native_dtype == dtype
    assert said == ""


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (
            quantized("MIXED_PRECISION", quantized_layers={"a": {"quant_algo": "FP8"}, "b": {"quant_algo": "NVFP4"}}),
            "modules in fp8, nvfp4, and none of them is known",
        ),
        (quantized("NEW_4BIT"), "unknown quant_algo 'NEW_4BIT'"),
        (quantized(None), "unknown quant_algo ''"),
        ({"producer": {}}, "unknown quant_algo ''"),
    ],
)
def test_a_format_that_is_not_known_is_refused_by_name(tmp_path: Path, settings: dict[str, Any], said: str) -> None:
    with pytest.raises(CommandError, match=said):
        imported(folder(tmp_path / "model", LLAMA, hf_quant_config=settings))
    assert not ServedModel.objects.exists()


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"bits": 8}, "unknown quant_method ''"),
        ({"quant_method": "", "bits": 4}, "unknown quant_method ''"),
        ({"quant_method": "quark"}, "unknown quant_method 'quark'"),
        ({"quant_method": "gptq"}, "gptq lacks bits"),
        ({"quant_method": "bitsandbytes"}, "neither load_in_8bit"),
        ({"quant_method": "compressed-tensors", "config_groups": {}}, "lacks config_groups"),
        ({"quant_method": "fp8", "quant_algo": "MIXED_PRECISION"}, "'MIXED_PRECISION'"),
        ({"quant_method": "gptq", "bits": 4, "dynamic": {"+:down": {"bits": 8}}}, "int4, int8"),
        ({"quant_method": "auto-round", "bits": 4, "extra_config": {"x": {"bits": 8}}}, "int4, int8"),
        (
            {"quant_method": "compressed-tensors", "config_groups": {
                "a": {"weights": {"num_bits": 8, "type": "float"}}, "b": {"weights": {"num_bits": 4, "type": "int"}}}},
            "fp8, int4",
        ),
        (
            {"quant_method": "modelopt", "quant_algo": "NVFP4",
             "config_groups": {"a": {"weights": {"num_bits": 8, "type": "float"}}}},
            "means nvfp4, but config_groups says fp8",
        ),
    ],
)  # fmt: skip
def test_a_quantization_that_is_not_fully_stated_or_is_mixed_is_refused(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        from_hf_config(LLAMA | {"quantization_config": settings}, "x")


@pytest.mark.django_db
def test_a_name_that_states_a_format_that_no_file_states_is_a_warning(tmp_path: Path) -> None:
    row, said = imported(folder(tmp_path / "Llama-3.1-8B-Instruct-FP8", LLAMA))
    assert row.native_dtype == "bf16"
    assert "says FP8, but config.json states no quantization, so the weights are read as BF16" in said
    assert "hf_quant_config.json" in said


# --- the size ---------------------------------------------------------------------------------------------------


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("index", "config", "fits"),
    [
        ({"total_size": 16_060_522_496}, LLAMA, True),
        ({"total_size": 16_500_000_000}, LLAMA, True),
        ({"total_size": 17_000_000_000}, LLAMA, False),
        ({"total_size": 15_000_000_000}, LLAMA, False),
        ({"total_size": 32_121_044_992}, LLAMA, False),
        ({"total_size": 32_121_044_992}, LLAMA | {"torch_dtype": None}, True),
        ({"total_parameters": 8_030_261_248, "total_size": 1}, LLAMA, True),
        ({"total_parameters": 9_000_000_000}, LLAMA, False),
        ({"total_size": 8_500_000_000}, LLAMA | {"quantization_config": {"quant_method": "fp8"}}, True),
        ({"total_size": 4_500_000_000}, LLAMA | {"quantization_config": {"quant_method": "fp8"}}, False),
        ({"total_size": 18_000_000_000}, LLAMA | {"quantization_config": {"quant_method": "fp8"}}, False),
        ({}, LLAMA, True),
        ({"total_size": "many"}, LLAMA, True),
    ],
)
def test_the_size_is_that_of_the_checkpoint(tmp_path: Path, index: dict[str, Any], config: dict[str, Any], fits: bool):
    path = folder(tmp_path / "model", config, model__safetensors__index={"metadata": index, "weight_map": {}})
    if fits:
        assert imported(path)[0].shape["hidden"] == 4096
    else:
        with pytest.raises(CommandError, match="but the checkpoint has .* add --confirm-size"):
            imported(path)
        assert imported(path, "--confirm-size")[1].startswith("warning: ")


@pytest.mark.django_db
@pytest.mark.parametrize(("published", "fits"), [(8_030_261_248, True), (8_200_000_000, True), (8_300_000_000, False)])
def test_the_size_is_that_of_the_catalogs_entry(tmp_path: Path, published: int, fits: bool) -> None:
    ServedModel.objects.create(
        hf_id="acme/model", slug="acme", family="llama", native_dtype="bf16", published_parameters=published, shape={},
        sources={}, as_of="2026-11-01",
    )  # fmt: skip
    path = folder(tmp_path, LLAMA, "acme--model_") / "acme--model_config.json"
    if fits:
        imported(path)
    else:
        with pytest.raises(CommandError, match=r"8\.03 B parameters were read, but 8\.30 B are published"):
            imported(path)


@pytest.mark.parametrize(
    ("name", "outcome"),
    [
        ("Llama-3.1-8B-Instruct", "fine"), ("acme_8b", "fine"), ("our-7B", "fine"), ("our-9.5B", "warning"),
        ("our-6B", "warning"), ("our-12B", "warning"), ("our-13B", "question"), ("our-70b", "question"),
        ("our-4B", "question"), ("our-800M", "question"), ("Qwen-8B-1M", "fine"), ("our-4bits", "fine"),
        ("E4B", "fine"), ("our-8B-A8B", "fine"), ("our-8B-A3B", "question"), ("model-2.5", "fine"),
        ("our-1x8B", "fine"), ("", "fine"),
        ("our-1T", "question"), ("v70b2", "fine"),
    ],
)  # fmt: skip
def test_a_name_only_warns_from_15_percent_and_asks_from_a_factor_of_one_and_a_half(name: str, outcome: str) -> None:
    doubts = size_doubts(from_hf_config(LLAMA, "x"), LLAMA, (name,))
    assert {True: "question", False: "warning"}.get(doubts[0].asks if doubts else None, "fine") == outcome  # type: ignore[arg-type]


@pytest.mark.parametrize("name", sorted(PUBLISHED))
def test_no_published_config_is_questioned_under_its_own_name(name: str) -> None:
    stored = PUBLISHED[name]
    doubts = size_doubts(from_hf_config(stored["config"], "x"), stored["config"], (name,), stored["published"])
    assert not [doubt.text for doubt in doubts if doubt.asks]


@pytest.mark.django_db
def test_a_size_that_is_far_from_its_name_needs_confirmation(tmp_path: Path) -> None:
    path = folder(tmp_path / "Our-70B", LLAMA)
    with pytest.raises(
        CommandError, match=r"8\.03 B parameters were read, but the name 'Our-70B' says 70 B.*--confirm-size"
    ):
        imported(path)
    assert not ServedModel.objects.exists()
    assert "says 70 B" in imported(path, "--confirm-size")[1]


# --- reading ----------------------------------------------------------------------------------------------------


@pytest.mark.django_db
def test_python_numbers_without_json_are_read_in_every_command(tmp_path: Path) -> None:
    path = folder(tmp_path / "model", CONFIGS["nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16"]) / "config.json"
    path.write_text(path.read_text()[:-1] + ', "time_step_limit": [0.0, Infinity], "x": -Infinity, "y": NaN}')
    assert imported(path)[0].shape["hidden"] == 2688


@pytest.mark.django_db
@pytest.mark.usefixtures("frozen")
def test_estimate_reads_a_folder_its_infinity_and_its_format(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = folder(tmp_path / "model", LLAMA, hf_quant_config=quantized("FP8"))
    config = path / "config.json"
    config.write_text(config.read_text()[:-1] + ', "time_step_limit": [0.0, Infinity]}')
    chip = ("--accelerator", "h100-sxm", "--weights", "fp8", "--isl", "100", "--osl", "10", "--concurrency", "1")
    for where in (path, config):
        with pytest.raises(SystemExit) as end:
            call_command("estimate", "--model", str(where), *chip, stdout=StringIO(), stderr=sys.stderr)
        assert (end.value.code, capsys.readouterr().err) == (0, "")


@pytest.mark.django_db
@pytest.mark.usefixtures("frozen")
def test_estimate_and_the_api_ask_for_a_confirmation_too(tmp_path: Path, client: Any) -> None:
    path = folder(tmp_path / "Our-70B", LLAMA)
    chip = ("--accelerator", "h100-sxm", "--weights", "bf16", "--isl", "100", "--osl", "10", "--concurrency", "1")
    codes = []
    for options in ((), ("--confirm-size",)):
        said = StringIO()
        with pytest.raises(SystemExit) as end:
            call_command("estimate", "--model", str(path), *chip, *options, stdout=StringIO(), stderr=said)
        codes.append(end.value.code)
        assert "says 70 B" in said.getvalue()
    assert codes == [2, 0]
    asked = {"accelerator": "h100-sxm", "weights": "bf16", "isl": 100, "osl": 10, "concurrency": 1}
    own = {"config": LLAMA | {"_name_or_path": "acme/Our-70B"}}
    answer = client.post("/api/v1/estimate", asked | {"model": own}, content_type="application/json")
    assert answer.status_code == 422 and answer.json()["errors"][0]["field"] == "model.config"
    confirmed = own | {"confirm_size": True}
    answer = client.post("/api/v1/estimate", asked | {"model": confirmed}, content_type="application/json")
    assert answer.status_code == 200, answer.content
