"""Jobs start one process per device on every host, restart after failures and keep their checkpoints."""

import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from advisor.engine.launch import training_launch
from tests.engine.launch.training_plans import ADAPTERS, SHARDED, WIDE, place


def files(**where: Any) -> dict[str, str]:
    return training_launch(WIDE, place(WIDE, **where)).files


def directives(script: str) -> list[str]:
    return [line.removeprefix("#SBATCH ") for line in script.splitlines() if line.startswith("#SBATCH ")]


def test_slurm_has_one_torchrun_per_host_and_requeues() -> None:
    script = files()["train.sbatch"]
    assert {"--nodes=8", "--ntasks-per-node=1", "--gpus-per-node=8", "--requeue"} <= set(directives(script))
    assert 'scontrol requeue "$SLURM_JOB_ID"' in script
    line = next(line for line in script.splitlines() if "srun " in line)
    words = shlex.split(line.removeprefix("if ! ").removesuffix("; then"))
    assert words[:3] == ["srun", "--kill-on-bad-exit=1", "torchrun"]
    options = dict(zip(words[3::2], words[4::2], strict=False))
    assert options["--nnodes"] == "8" and options["--nproc-per-node"] == "8"
    assert options["--rdzv-backend"] == "c10d" and options["--rdzv-endpoint"] == "$head:29500"


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")
def test_the_batch_script_requeues_a_failed_run_ten_times_at_most(tmp_path: Path) -> None:
    log = tmp_path / "log"
    stub = f'#!/bin/sh\necho "$(basename "$0")" "$@" >> {log}\n'
    for name, rest in (("srun", "exit 1\n"), ("scontrol", "echo host-1\n")):
        path = tmp_path / name
        path.write_text(stub + rest)
        path.chmod(0o755)
    script = tmp_path / "train.sbatch"
    script.write_text(files()["train.sbatch"])
    env = {"PATH": f"{tmp_path}:/usr/bin:/bin", "SLURM_JOB_NODELIST": "host-[1-8]", "SLURM_JOB_ID": "7"}
    for restarts, requeued in (("0", True), ("10", False)):
        log.unlink(missing_ok=True)
        done = subprocess.run(["bash", str(script)], env=env | {"SLURM_RESTART_COUNT": restarts}, check=False)
        lines = log.read_text().splitlines()
        assert done.returncode == 1 and ("scontrol requeue 7" in lines) is requeued
        assert any("--rdzv-endpoint host-1:29500" in line for line in lines)


def test_one_host_needs_no_rendezvous() -> None:
    words = shlex.split(training_launch(SHARDED, place(SHARDED)).command)
    assert "--standalone" in words and "--rdzv-endpoint" not in words


def test_a_jobset_has_a_pod_per_host_that_meet_at_the_first() -> None:
    config, job = yaml.safe_load_all(files()["jobset.yaml"])
    template = job["spec"]["replicatedJobs"][0]["template"]["spec"]
    assert template["parallelism"] == template["completions"] == 8 and template["completionMode"] == "Indexed"
    container = template["template"]["spec"]["containers"][0]
    assert container["resources"]["limits"] == {"nvidia.com/gpu": 8}
    name = job["metadata"]["name"]
    assert f"--rdzv-endpoint {name}-train-0-0.{name}:29500" in container["command"][2]
    volumes = {volume["name"]: volume for volume in template["template"]["spec"]["volumes"]}
    assert volumes["shm"]["emptyDir"] == {"medium": "Memory"}
    assert volumes["files"]["configMap"]["name"] == config["metadata"]["name"]
    assert job["spec"]["failurePolicy"]["maxRestarts"] == 10


def test_a_configmap_holds_the_files_as_they_are() -> None:
    given = files()
    config, _ = yaml.safe_load_all(given["jobset.yaml"])
    assert config["data"]["train_megatron.py"] == given["train_megatron.py"]


def test_a_train_job_leaves_hosts_and_rendezvous_to_its_runtime() -> None:
    _, job = yaml.safe_load_all(files()["trainjob.yaml"])
    trainer = job["spec"]["trainer"]
    assert trainer["numNodes"] == trainer["numProcPerNode"] == 8
    assert "--nnodes" not in trainer["command"][2] and "torchrun --max-restarts" in trainer["command"][2]


def test_tpus_start_python_on_every_host_of_a_slice() -> None:
    launch = training_launch(SHARDED, place(SHARDED, "google"))
    assert launch.command.startswith("python -m maxtext") and "train.sbatch" not in launch.files
    _, job = yaml.safe_load_all(launch.files["jobset.yaml"])
    pod = job["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    assert set(pod["nodeSelector"]) == {"cloud.google.com/gke-tpu-accelerator", "cloud.google.com/gke-tpu-topology"}


def test_without_a_resource_name_there_is_no_manifest() -> None:
    launch = training_launch(ADAPTERS, place(ADAPTERS, kubernetes_resource=""))
    assert {"jobset.yaml", "trainjob.yaml"}.isdisjoint(launch.files) and "train.sbatch" in launch.files


@pytest.mark.skipif(shutil.which("sh") is None, reason="no shell")
def test_a_pod_links_the_shared_volume_beside_copies_of_its_files(tmp_path: Path) -> None:
    plan, shared = tmp_path / "plan", tmp_path / "shared"
    plan.mkdir()
    shared.mkdir()
    (plan / "plan.json").write_text("{}")
    (shared / "tokens.bin").write_text("tokens")
    _, job = yaml.safe_load_all(training_launch(SHARDED, place(SHARDED)).files["jobset.yaml"])
    container = job["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["containers"][0]
    line = container["command"][2].replace("$$", "$")  # as Kubernetes passes it on
    line = line.replace("/workspace", str(shared)).replace("/plan", str(plan)).partition(" && exec ")[0]
    done = subprocess.run(
        ["sh", "-c", f"{line} && cat plan.json tokens.bin && touch checkpoints/step"], capture_output=True
    )
    assert done.stdout == b"{}tokens" and (shared / "checkpoints" / "step").exists()
