"""`manage.py estimate --kind training`: exit codes, tables, JSON keys with units, refusals; serving as before."""

import json
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from advisor.result import Section, TrainingEstimate, TrainingMemory
from tests.as_json import training_estimate
from tests.estimate_command import Run, runner, said

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("frozen")]
CHIP = ["--model", "meta-llama/Llama-3.1-8B", "--accelerator", "h100-sxm"]
TRAIN = ["--kind", "training", *CHIP, "--count", "8", "--sequence-length", "4096", "--global-batch", "16"]
FIELDS = """accelerator accelerator_count tp pp ep dp memory basis warnings fits cp zero micro_batch micro_batches
global_batch_tokens sequence_length recompute precision optimizer step_s tokens_per_s tokens_per_s_per_accelerator
tflops_per_accelerator mfu hfu exposed_communication_s exposed_communication_fraction bubble_s bubble_fraction step
bound method code offload kind model formats flop_convention engine_version""".split()
PARTS = """weights_gib gradients_gib optimizer_gib master_gib gathered_gib activations_gib logits_gib buffers_gib
overhead_gib free_gib""".split()
UNITS = {  # by the end of a name, the first that fits
    "tokens_per_s": "tokens/s", "tokens_per_s_per_accelerator": "tokens/s", "_tokens": "tokens", "_s": "s",
    "_gib": "GiB", "_fraction": "fraction", "mfu": "fraction", "hfu": "fraction", "_per_step": "FLOP",
    "tflops": "TFLOP/s", "accelerator_count": "accelerators",
}  # fmt: skip


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    return runner(capsys)


def test_the_json_has_the_fields_of_an_option_of_training_and_the_step(run: Run) -> None:
    answer = said(run, *TRAIN)
    assert set(FIELDS) <= set(answer) and list(answer["memory"]) == PARTS
    assert answer["fits"] is True and answer["accelerator_count"] == 8
    assert {line["phase"] for line in answer["step"]} >= {"forward", "backward", "communication", "optimizer"}
    assert set(answer["step"][0]) == {"phase", "operator", "time_s", "flops", "bytes", "bound"}


@pytest.mark.parametrize("section", [TrainingEstimate, TrainingMemory])
def test_names_of_numbers_end_in_the_unit_that_the_schema_gives(section: type[Section]) -> None:
    seen = set()
    for name, schema in section.model_json_schema()["properties"].items():
        ending = next((ending for ending in UNITS if name.endswith(ending)), "")
        if ending and "x-unit" in json.dumps(schema):
            assert f'"x-unit": "{UNITS[ending]}"' in json.dumps(schema), name
            seen.add(ending)
    assert seen


def test_every_flag_reaches_the_run(run: Run) -> None:
    answer = said(
        run, "--kind", "training", *CHIP, "--dp", "2", "--tp", "2", "--pp", "2", "--cp", "2", "--zero", "1",
        "--sequence-length", "8192", "--micro-batch", "2", "--micro-batches", "4", "--virtual-stages", "2",
        "--recompute", "full", "--precision", "fp8", "--optimizer", "adamw_8bit", "--sequence-parallel",
        "--offload", "optimizer", "--code", "plain", "--compile",
    )  # fmt: skip
    stated = {
        "accelerator_count": 16, "dp": 2, "tp": 2, "pp": 2, "cp": 2, "ep": 1, "zero": 1, "sequence_length": 8192,
        "micro_batch": 2, "micro_batches": 4, "virtual_stages": 2, "global_batch": 16, "recompute": "full",
        "precision": "fp8", "optimizer": "adamw_8bit", "sequence_parallel": True, "offload": "optimizer",
        "code": "plain", "compile": "block", "method": "full", "adapter_rank": None,
    }  # fmt: skip
    assert {name: answer[name] for name in stated} == stated


def test_adapters(run: Run) -> None:
    fine = ["--kind", "finetuning", *CHIP, "--sequence-length", "4096", "--global-batch", "1"]
    answer = said(run, *fine, "--method", "lora", "--rank", "32")
    assert (answer["method"], answer["adapter_rank"], answer["code"]) == ("lora", 32, "hf")
    smaller = said(run, *fine, "--method", "qlora")
    assert smaller["memory"]["weights_gib"] < answer["memory"]["weights_gib"] / 2


def test_the_table_has_memory_throughput_utilization_and_the_step(run: Run) -> None:
    code, output, _ = run(*TRAIN)
    assert code == 0
    for part in (
        "8 x H100", "global batch 16 x 4,096 = 65,536 tokens", "memory per accelerator at the peak", "tokens/s, ",
        "MFU ", "HFU ", "exposed communication", "pipeline bubble", "one step on one rank:", "attention/scores",
        "evidence: ", "FLOPs: model FLOPs of a token",
    ):  # fmt: skip
        assert part in output


def test_what_does_not_fit_is_exit_3_with_how_much_and_a_change(run: Run) -> None:
    args = [*TRAIN, "--zero", "0"]
    code, output, _ = run(*args, "--format", "json")
    answer = json.loads(output)
    assert (code, answer["fits"]) == (3, False)
    assert answer["memory"]["free_gib"] < 0 and "zero 1" in answer["smallest_change"] and "step_s" not in answer
    table = run(*args)[1]
    assert "DOES NOT FIT: " in table and "GiB too much per accelerator" in table and "fits with zero 1" in table


def test_a_model_from_its_config_equals_the_one_of_the_catalog(run: Run, tmp_path: Path) -> None:
    config = {"model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
              "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 128256,
              "max_position_embeddings": 131072, "tie_word_embeddings": False, "torch_dtype": "bfloat16"}  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config))
    own = said(run, *TRAIN, "--model", str(tmp_path / "config.json"))
    known = said(run, *TRAIN)
    assert own["model"] == "own-model" and own["step_s"] == known["step_s"] and own["memory"] == known["memory"]


@pytest.mark.parametrize(("change", "flag", "words"), [
    (["--tp", "3"], "--count", "8 accelerators cannot be divided by tp x pp x cp = 3 x 1 x 1 = 3"),
    (["--dp", "3"], "--count", "must equal count, which is 8 (allowed: 3, or dp 8)"),
    (["--global-batch", "12"], "--global-batch", "12 sequences are not a multiple of dp x micro_batch = 8 x 1 = 8"),
    (["--micro-batches", "4"], "--micro-batches", "is 2, not 4"),
    (["--tp", "8", "--model", "Qwen/Qwen2.5-VL-7B-Instruct"], "--tp", "28 attention heads cannot be split 8 ways"),
    (["--pp", "64", "--count", "64"], "--pp", "the model has 32 layers"),
    (["--precision", "nvfp4"], "--precision", "no NVFP4 matrix rate (allowed: bf16"),
    (["--precision", "bf8"], "--precision", "is not a valid choice; did you mean"),
    (["--isl", "1000"], "--isl", "is not used with kind training"),
    (["--concurrency", "max"], "--concurrency", "is not used with kind training"),
    (["--method", "lora"], "--method", "kind finetuning"),
    (["--rank", "8"], "--rank", "method full has none"),
    (["--zero", "5"], "--zero", "must be at most 3"),
    (["--kind", "train"], "--kind", "serving, training, finetuning"),
    (["--accelerator", "h100-sxn"], "--accelerator", "did you mean h100-sxm"),
    (["--accelerator", "epyc-9755"], "--accelerator", "training is not modeled on"),
    (["--model", "meta-llama/Llama-3.1-8b-x"], "--model", "did you mean meta-llama/Llama-3.1-8B"),
    (["--model", "BAAI/bge-m3"], "--model", "decoder-only"),
    (["--model", "absent/config.json"], "--model", "absent"),
])  # fmt: skip
def test_what_cannot_be_meant_is_exit_2_and_names_the_flag(run: Run, change: list[str], flag: str, words: str) -> None:
    code, output, errors = run(*TRAIN, *change)
    assert (code, output) == (2, "")
    assert errors.startswith(f"{flag}:") and words in errors


def test_a_sequence_length_and_a_batch_are_asked_for(run: Run) -> None:
    assert run("--kind", "training", *CHIP)[::2] == (2, "--sequence-length: is required\n")
    code, _, errors = run("--kind", "training", *CHIP, "--sequence-length", "4096")
    assert code == 2 and errors.startswith("--global-batch: is required")


def test_serving_is_the_default_and_still_asks_for_its_own(run: Run) -> None:
    with pytest.raises(CommandError, match="the following arguments are required: --weights, --isl"):
        call_command("estimate", *CHIP)
    serving = [*CHIP, "--weights", "bf16", "--isl", "1000", "--osl", "200", "--concurrency", "8"]
    assert said(run, *serving) == said(run, *serving, "--kind", "serving")
    code, _, errors = run(*serving, "--zero", "3")
    assert code == 2 and errors.startswith("--zero: is not used with kind serving")


def test_the_command_answers_as_the_library_does(run: Run) -> None:
    asked = {"kind": "training", "model": "meta-llama/Llama-3.1-8B", "accelerator": "h100-sxm", "count": 8}
    assert said(run, *TRAIN) == training_estimate({**asked, "sequence_length": 4096, "global_batch": 16})
