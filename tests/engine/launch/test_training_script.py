"""The scripts that launch files bring along are Python; the FSDP2 script trains and resumes on processors."""

import ast
import importlib.util
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from advisor.engine.launch import LAUNCHERS, training_launch
from advisor.engine.training import Parallel
from tests.engine.launch.training_plans import ADAPTERS, SHARDED, WIDE, place

HAS_TRANSFORMERS = importlib.util.find_spec("transformers") is not None
TINY = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "intermediate_size": 128,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 256,
    "max_position_embeddings": 256, "tie_word_embeddings": False,
}  # fmt: skip
RATE = {"learning_rate": 3e-3, "warmup_steps": 2, "checkpoint_steps": 4, "log_steps": 1}


@pytest.mark.parametrize("framework", LAUNCHERS)
@pytest.mark.parametrize("run", [WIDE, SHARDED, ADAPTERS], ids=["wide", "sharded", "adapters"])
def test_every_script_is_valid_python(framework: str, run: Any) -> None:
    vendor = {"maxtext": "google", "nxdt": "aws"}.get(framework, "nvidia")
    for name, text in training_launch(run, place(run, vendor), framework).files.items():
        if name.endswith(".py"):
            compile(text, name, "exec")


def test_the_fsdp_script_reads_every_value_of_its_plan_and_no_other() -> None:
    files = training_launch(ADAPTERS, place(ADAPTERS), "fsdp2").files
    read = {
        node.slice.value
        for node in ast.walk(ast.parse(files["train_fsdp.py"]))
        if isinstance(node, ast.Subscript)
        and isinstance(node.slice, ast.Constant)
        and getattr(node.value, "id", "") == "plan"
    }
    assert read == set(json.loads(files["plan.json"]))


def losses(folder: Path, **changes: Any) -> tuple[int, list[float]]:
    """The step that a run of two processes starts from, and its losses."""
    run = replace(SHARDED, sequence_tokens=64, micro_batches=2, parallel=Parallel(dp=2, zero=3))
    files = training_launch(run, place(run, "various", hosts=1, chips_per_host=2, continued=False), "fsdp2").files
    (folder / "model").mkdir(exist_ok=True)
    (folder / "model" / "config.json").write_text(json.dumps(TINY))
    np.tile(np.arange(200, dtype=np.uint32), 50).tofile(folder / "tokens.bin")
    (folder / "train_fsdp.py").write_text(files["train_fsdp.py"])
    plan = json.loads(files["plan.json"]) | RATE | {"model": "model"} | changes
    (folder / "plan.json").write_text(json.dumps(plan))
    started = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    env = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        [*started, "train_fsdp.py", "plan.json"], cwd=folder, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return lines[0]["step"], [line["loss"] for line in lines[1:]]


@pytest.mark.soak
@pytest.mark.skipif(not HAS_TRANSFORMERS, reason="transformers is not installed")
@pytest.mark.parametrize("zero", [0, 2, 3])
def test_the_fsdp_script_learns_and_continues_from_its_checkpoint(tmp_path: Path, zero: int) -> None:
    start, first = losses(tmp_path, zero=zero, autocast=zero == 0, steps=8)
    assert start == 0 and len(first) == 8 and first[-1] < first[0] - 0.5
    start, more = losses(tmp_path, zero=zero, autocast=zero == 0, steps=10)
    assert start == 8 and len(more) == 2 and more[-1] < first[-1]
    assert (tmp_path / "checkpoints" / "trained" / "model.safetensors").exists()
