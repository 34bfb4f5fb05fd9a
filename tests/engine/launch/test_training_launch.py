"""A training plan is started by the launcher that can run it, with its sizes, steps and checkpoints."""

import json
import shlex
from dataclasses import replace

import pytest
import yaml

from advisor.engine.launch.training_runs.plan import training_launch
from advisor.engine.training import HF, Parallel, Recipe, Run
from tests.engine.launch.training_plans import ADAPTERS, SHARDED, WIDE, place

MI250X_DIES = {"devices_per_chip": 2, "kubernetes_devices_per_chip": 2}


@pytest.mark.parametrize(
    ("run", "vendor", "framework"),
    [
        (WIDE, "nvidia", "megatron-bridge"),
        (SHARDED, "nvidia", "fsdp2"),
        (SHARDED, "amd", "fsdp2"),
        (SHARDED, "intel", "fsdp2"),
        (ADAPTERS, "nvidia", "axolotl"),
        (SHARDED, "google", "maxtext"),
        (WIDE, "aws", "nxdt"),
        (replace(SHARDED, offload="optimizer"), "nvidia", "deepspeed"),
    ],
)
def test_each_plan_has_its_launcher(run: Run, vendor: str, framework: str) -> None:
    assert training_launch(run, place(run, vendor)).framework == framework


def test_a_plan_that_no_launcher_runs_says_what_is_different_first() -> None:
    launch = training_launch(WIDE, place(WIDE, "amd"))
    assert not launch.runs_plan
    told = [note for note in launch.notes if note.startswith("not as planned, may not fit")]
    assert any("pipeline stages: 2 in the plan, 1 here" in note for note in told)
    assert any("Primus" in note for note in launch.notes)


def test_steps_and_checkpoints_follow_from_tokens_and_times() -> None:
    values = json.loads(training_launch(SHARDED, place(SHARDED), "fsdp2").files["plan.json"])
    assert values["steps"] == 3815  # 1e9 / (4096 x 2 x 4 x 8 = 262,144) = 3814.7
    assert values["checkpoint_steps"] == 450  # 1800 s / 4 s


def test_without_tokens_or_an_interval_the_notes_ask_for_them() -> None:
    launch = training_launch(SHARDED, place(SHARDED, tokens=0.0, checkpoint_interval_s=None))
    assert any("set the steps" in note for note in launch.notes)
    assert any("checkpoint interval" in note for note in launch.notes)


def test_other_parallel_sizes_keep_the_global_batch() -> None:
    launch = training_launch(WIDE, place(WIDE), "fsdp2")
    assert launch.run.parallel.dp == 64
    assert launch.run.global_tokens == WIDE.global_tokens


def test_devices_of_a_chip_are_ranks_and_keep_the_global_batch() -> None:
    launch = training_launch(SHARDED, place(SHARDED, "amd", **MI250X_DIES))
    words = shlex.split(launch.command)
    assert words[words.index("--nproc-per-node") + 1] == "16"
    assert launch.run.parallel.dp == 16
    assert launch.run.global_tokens == SHARDED.global_tokens


def test_neuron_cores_are_tensor_parallel_ranks() -> None:
    launch = training_launch(WIDE, place(WIDE, "aws", devices_per_chip=4))
    values = yaml.safe_load(launch.files["conf/plan.yaml"])
    assert values["distributed_strategy"]["tensor_model_parallel_size"] == 16
    assert values["trainer"]["devices"] == 32


def test_megatron_bridge_splits_states_over_part_of_the_ranks() -> None:
    run = replace(WIDE, parallel=replace(WIDE.parallel, shard=4))
    script = training_launch(run, place(run)).files["train_megatron.py"]
    assert "num_distributed_optimizer_instances=2" in script and "global_batch_size=128" in script


def test_axes_of_maxtext_multiply_to_the_chips() -> None:
    run = replace(SHARDED, parallel=Parallel(dp=16, tp=2, cp=2, ep=4, zero=3), code=HF)
    values = yaml.safe_load(training_launch(run, place(run, "google")).files["maxtext.yml"])
    sizes = [values[f"ici_{axis}_parallelism"] for axis in ("data", "fsdp", "tensor", "context", "expert")]
    assert sizes == [1, 4, 2, 2, 4]
    assert values["per_device_batch_size"] == 0.5  # 2 sequences on the four chips of tp x cp


def test_deepspeed_offloads_weights_with_zero_3_only() -> None:
    run = replace(SHARDED, parallel=Parallel(dp=8, zero=1), offload="all")
    files = training_launch(run, place(run), "deepspeed").files
    zero = json.loads(files["ds_config.json"])["zero_optimization"]
    assert zero["stage"] == 3 and zero["offload_param"]["device"] == zero["offload_optimizer"]["device"] == "cpu"


def test_4_bit_weights_of_the_base_model_are_sharded_by_axolotl() -> None:
    run = replace(ADAPTERS, recipe=replace(ADAPTERS.recipe, method="qlora"), parallel=Parallel(dp=8, zero=3))
    launch = training_launch(run, place(run))
    values = yaml.safe_load(launch.files["axolotl.yaml"])
    assert (
        launch.framework == "axolotl"
        and values["adapter"] == "qlora"
        and values["load_in_4bit"] is True
        and values["lora_r"] == 16
    )


def test_an_unknown_launcher_is_refused() -> None:
    with pytest.raises(ValueError, match="known are fsdp2"):
        training_launch(SHARDED, place(SHARDED), "make-it-fast")


def test_a_model_s_name_cannot_write_commands() -> None:
    name = 'org/x\'; rm -rf y #\n$(reboot) """'
    for framework in ("fsdp2", "axolotl", "megatron-bridge", "deepspeed", "maxtext", "nxdt"):
        run = SHARDED
        launch = training_launch(run, place(run, model_id=name), framework)
        for file, text in launch.files.items():
            if file.endswith(".py"):
                compile(text, file, "exec")
            if file.endswith((".yaml", ".yml")):
                list(yaml.safe_load_all(text))
        assert "$(reboot)" not in shlex.split(launch.files.get("train.sbatch", ""), comments=True)
        words = shlex.split(launch.files["prepare.sh"], comments=True)
        assert [word for word in words if "reboot" in word] in ([], [name])  # quoted: one word


def test_rank_of_adapters_and_their_matrices_are_in_every_launcher_that_has_adapters() -> None:
    recipe = replace(ADAPTERS.recipe, adapter_rank=24)
    run = replace(ADAPTERS, recipe=recipe)
    assert isinstance(recipe, Recipe)
    for framework, file in (
        ("fsdp2", "plan.json"),
        ("axolotl", "axolotl.yaml"),
        ("megatron-bridge", "train_megatron.py"),
        ("deepspeed", "axolotl.yaml"),
        ("maxtext", "maxtext.yml"),
        ("nxdt", "conf/plan.yaml"),
    ):
        assert "24" in training_launch(run, place(run), framework).files[file]
