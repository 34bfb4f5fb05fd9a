"""A training plan is ranked with the speed and memory of the framework whose launch files it has."""

import json
from dataclasses import replace
from typing import Any

import pytest
import yaml

from advisor.engine.launch import LAUNCHERS, TrainingPlace, training_launch
from advisor.engine.search import Question
from advisor.engine.training import FRAMEWORKS, launch_differences
from advisor.engine.training_search.search import search
from tests.engine.catalog_sample import GIB, catalog, chip
from tests.engine.training_search.sample import RELIABILITY, asked, rented
from tests.sample_training import result

Json = dict[str, Any]
KINDS = {"nvidia": "gpu", "amd": "gpu", "intel": "npu", "huawei": "npu", "google": "tpu", "aws": "npu"}
TASKS: tuple[Json, ...] = (
    {},
    {"precisions": ("bf16", "fp8", "mxfp8", "nvfp4")},
    {"optimizer": "muon"},
    {"recompute": ("full",)},
    {"method": "lora", "adapter_rank": 16},
    {"method": "qlora", "adapter_rank": 16},
)


@pytest.mark.parametrize("vendor", KINDS)
@pytest.mark.parametrize("task", TASKS, ids=str)
def test_every_ranked_plan_is_what_its_framework_starts(vendor: str, task: Json) -> None:
    a = chip("big", memory_bytes=64 * GIB, memory_bytes_per_s=4e12, vendor=vendor, kind=KINDS[vendor])
    offers = (rented(), replace(rented(fabric=1), accelerators=1))
    found = search(
        Question(asked(deadline_days=120.0, **{"tokens": 1e9} | task), catalog(accelerators=(a,), offers=offers)),
        RELIABILITY,
    )
    for c in (c for some in found.curves.values() for c in some):
        framework, run = c.trained.setup.framework, c.trained.layout.run
        assert vendor in FRAMEWORKS[framework].vendors and framework in LAUNCHERS
        assert launch_differences(run, vendor, framework) == ()
        place = TrainingPlace(model_id="org/model", vendor=vendor, hosts=1, chips_per_host=run.parallel.chips)
        launch = training_launch(run, place, framework)
        assert launch.runs_plan and launch.run == run and launch.framework == framework
    if not found.ranked:
        assert vendor in ("google", "aws") or task.get("optimizer") == "muon"


def test_a_chip_without_a_launcher_is_not_ranked_and_says_why() -> None:
    a = chip("big", memory_bytes=141 * GIB, memory_bytes_per_s=4e12, vendor="elsewhere")
    found = search(Question(asked(deadline_days=100.0), catalog(accelerators=(a,), offers=(rented(),))), RELIABILITY)
    assert not found.ranked
    assert "no launch files are written" in found.rejections[0].detail


# --- flags of the shipped questions -----------------------------------------------------------------------------


def megatron_flags(files: dict[str, str]) -> Json:
    """Names and values of train_megatron.py that a plan sets."""
    lines = (line.strip().rstrip(",") for line in files["train_megatron.py"].splitlines() if "=" in line)
    pairs = (line.removeprefix("model.").partition("=")[::2] for line in lines)
    return {name.strip(): value.strip() for name, value in pairs}


@pytest.mark.django_db
@pytest.mark.usefixtures("frozen")
@pytest.mark.parametrize("name", ["pretrain", "weekly", "bought", "budget"])
def test_the_flags_express_the_layout(name: str) -> None:
    for o in result(name)["recommendations"]:
        files = o["launch"]["files"]
        assert o["framework"] in {f.title for f in FRAMEWORKS.values()}
        assert not any("unchanged" in w or "no launch file" in w for w in o["warnings"])
        if "train_megatron.py" in files:
            said = megatron_flags(files)
            sizes = {
                "tensor_model_parallel_size": o["tp"], "pipeline_model_parallel_size": o["pp"],
                "context_parallel_size": o["cp"], "expert_model_parallel_size": o["ep"],
                "micro_batch_size": o["micro_batch"], "global_batch_size": o["global_batch"],
            }  # fmt: skip
            assert {key: int(said[key]) for key in sizes} == sizes
            assert (said["use_megatron_fsdp"] == "True") == (o["zero"] >= 2)
            assert (o["recompute"] == "none") == (said["recompute_granularity"] == "None")
            assert o["precision"] in said["precision"]
        elif "plan.json" in files:
            plan = json.loads(files["plan.json"])
            assert (plan["zero"], plan["recompute"]) == (o["zero"], o["recompute"])
            assert (plan["micro_batch"], plan["micro_batches"]) == (o["micro_batch"], o["micro_batches"])
            assert plan["matmul"] == o["precision"] and o["tp"] == o["pp"] == o["cp"] == o["ep"] == 1
        else:
            config = yaml.safe_load(files["axolotl.yaml"])
            assert config["micro_batch_size"] == o["micro_batch"]
            assert config["gradient_accumulation_steps"] == o["micro_batches"]
            assert ("fsdp_config" in config) == (o["zero"] >= 2)
            assert config["gradient_checkpointing"] == (o["recompute"] == "full")
