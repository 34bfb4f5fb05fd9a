"""Jobs that start a training run on all hosts: torchrun, a Slurm batch script, a JobSet and a Kubeflow TrainJob."""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from advisor.engine.launch.kubernetes import label, printable, yaml_text
from advisor.engine.launch.training_runs.place import TrainingPlace

PORT = 29500
RESTARTS = 3  # of the processes on the hosts of one job
JOB_RESTARTS = 10  # of a whole job, after a host has failed
HEAD = "$head:29500"
FOLDER, PLAN, STORAGE = "/workspace", "/plan", "training"
IMAGES = {"nvidia": "<image with PyTorch for NVIDIA GPUs>", "amd": "<image with PyTorch for ROCm>"}
# A folder with copies of the plan's files and links to what is on the shared volume: tokens, weights, checkpoints.
ENTER = f'mkdir -p {FOLDER}/checkpoints && cd "$$(mktemp -d)" && cp -L {PLAN}/* . && (ln -s {FOLDER}/* . || true)'
RUNTIME = "torch-distributed"  # Kubeflow Trainer's own runtime for PyTorch


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """What every form of a job needs."""

    name: str
    argv: tuple[str, ...]
    files: Mapping[str, str]
    under_torchrun: bool
    in_pods: bool
    place: TrainingPlace


def torchrun(job: Job, endpoint: str) -> list[str]:
    """The command of one host; every host runs the same."""
    place = job.place
    if not job.under_torchrun:
        return ["python", *job.argv]
    if place.hosts == 1:
        meets = ["--standalone"]
    else:
        meets = ["--rdzv-backend", "c10d", "--rdzv-endpoint", endpoint, "--rdzv-id", label(job.name)]
    sizes = ["--nnodes", str(place.hosts), "--nproc-per-node", str(place.processes_per_host)]
    return ["torchrun", *sizes, *meets, "--max-restarts", str(RESTARTS), *job.argv]


def job_files(job: Job) -> dict[str, str]:
    """All forms that suit the vendor and the launcher."""
    files = {}
    if job.under_torchrun:
        files["train.sbatch"] = sbatch(job)
    if job.in_pods and job.place.kubernetes_resource:
        files["jobset.yaml"] = jobset(job)
        if job.under_torchrun:
            files["trainjob.yaml"] = trainjob(job)
    return files


# --- Slurm ------------------------------------------------------------------------------------------------------


def sbatch(job: Job) -> str:
    """A batch script: one torchrun per host, requeued after a failure until it has restarted ten times."""
    place = job.place
    options = [
        f"--job-name={label(job.name)}",
        f"--nodes={place.hosts}",
        "--ntasks-per-node=1",
        *_devices(place),
        "--exclusive",
        "--requeue",  # after a failed host or a preemption
        "--open-mode=append",
        "--output=%x-%j.log",
    ]
    command = torchrun(job, HEAD)
    words = " ".join(w if w == HEAD else shlex.quote(w) for w in command).replace(HEAD, '"$head:29500"')
    lines = [
        "#!/bin/bash",
        *(f"#SBATCH {option}" for option in options),
        "",
        "set -u",
        'head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)',
        "export OMP_NUM_THREADS=8",
        "",
        "# the run continues from its newest checkpoint, so that a requeued job loses the steps since then",
        f"if ! srun --kill-on-bad-exit=1 {words}; then",
        f'    [ "${{SLURM_RESTART_COUNT:-0}}" -lt {JOB_RESTARTS} ] && scontrol requeue "$SLURM_JOB_ID"',
        "    exit 1",
        "fi",
    ]
    return "\n".join(lines) + "\n"


def _devices(place: TrainingPlace) -> list[str]:
    """GPUs as Slurm counts them; the chips of AWS come with the exclusive host."""
    return [] if place.vendor == "aws" else [f"--gpus-per-node={place.processes_per_host}"]


# --- Kubernetes -------------------------------------------------------------------------------------------------


def jobset(job: Job) -> str:
    """A JobSet with one pod per host, which starts again as a whole after a failure; its files as a ConfigMap."""
    name, place = label(job.name), job.place
    endpoint = f"{name}-train-0-0.{name}:{PORT}"
    pod = {
        "restartPolicy": "Never",
        **_selectors(place),
        "containers": [_container(job, torchrun(job, endpoint))],
        "volumes": _volumes(name),
    }
    template = {
        "spec": {
            "parallelism": place.hosts,
            "completions": place.hosts,
            "completionMode": "Indexed",
            "backoffLimit": 0,
            "template": {"metadata": {"labels": {"app": name}}, "spec": pod},
        }
    }
    body = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {
            "failurePolicy": {"maxRestarts": JOB_RESTARTS},
            "network": {"enableDNSHostnames": True, "publishNotReadyAddresses": True},
            "replicatedJobs": [{"name": "train", "replicas": 1, "template": template}],
        },
    }
    return _document(job, "the JobSet controller", [_config(job, name), body])


def trainjob(job: Job) -> str:
    """A TrainJob of Kubeflow Trainer, whose runtime tells torchrun the hosts and the rendezvous."""
    name, place = label(job.name), job.place
    container = _container(job, ["torchrun", "--max-restarts", str(RESTARTS), *job.argv])
    mounts = {"name": "node", "volumeMounts": container["volumeMounts"]}
    pod = {"template": {"spec": {"containers": [mounts], "volumes": _volumes(name), **_selectors(place)}}}
    node = {"name": "node", "template": {"spec": pod}}
    body = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {
            "runtimeRef": {"name": RUNTIME},
            "trainer": {
                "image": container["image"],
                "command": container["command"],
                "numNodes": place.hosts,
                "numProcPerNode": place.processes_per_host,
                "resourcesPerNode": container["resources"],
                "env": container["env"],
            },
            "runtimePatches": [
                {
                    "manager": "assay.dev/launch",
                    "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": [node]}}},
                }
            ],
        },
    }
    return _document(job, f"Kubeflow Trainer and its runtime {RUNTIME}", [_config(job, name), body])


def _document(job: Job, needs: str, objects: list[dict[str, Any]]) -> str:
    place = job.place
    head = (
        f"# {printable(place.model_id)} on {place.hosts} x {place.chips_per_host} chips; replace the text in < >\n"
        f"# needs {needs}, the vendor's device plugin, and a volume\n"
        f"# claim {STORAGE!r} that all hosts can write: it holds the tokens and the checkpoints\n"
    )
    return head + "".join(f"---\n{yaml_text(o)}" for o in objects)


def _config(job: Job, name: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": dict(job.files)}


def _container(job: Job, argv: list[str]) -> dict[str, Any]:
    place = job.place
    token = {"name": "hugging-face", "key": "token", "optional": True}
    command = shlex.join(argv).replace("$", "$$")
    return {
        "name": "train",
        "image": IMAGES.get(place.vendor, "<image with the launcher for these chips>"),
        "command": ["/bin/sh", "-c", f"{ENTER} && exec {command}"],
        "env": [{"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": token}}],
        "resources": {"limits": {place.kubernetes_resource: place.chips_per_host * place.kubernetes_devices_per_chip}},
        "volumeMounts": [
            {"name": "files", "mountPath": PLAN},
            {"name": "shm", "mountPath": "/dev/shm"},
            {"name": "storage", "mountPath": FOLDER},
        ],
    }


def _volumes(name: str) -> list[dict[str, Any]]:
    return [
        {"name": "files", "configMap": {"name": name}},
        {"name": "shm", "emptyDir": {"medium": "Memory"}},
        {"name": "storage", "persistentVolumeClaim": {"claimName": STORAGE}},
    ]


def _selectors(place: TrainingPlace) -> dict[str, Any]:
    """A TPU slice is chosen by its type and topology."""
    if place.vendor != "google":
        return {}
    return {
        "nodeSelector": {
            "cloud.google.com/gke-tpu-accelerator": "<type of the slice>",
            "cloud.google.com/gke-tpu-topology": "<topology of the slice>",
        }
    }
