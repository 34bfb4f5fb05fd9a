"""Jobs that start a training run on all hosts: torchrun, a Slurm batch script, a JobSet and a Kubeflow TrainJob."""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass

from advisor.engine.launch.kubernetes import label, printable, yaml_text
from advisor.engine.launch.training_runs.place import TrainingPlace
from advisor.engine.launch.training_runs.templates import Raw, files_of

PORT = 29500
RESTARTS = ("--max-restarts", "3")  # of the processes on the hosts of one job
JOB_RESTARTS = 10  # of a whole job, after a host has failed
HEAD = "$head:29500"
# A folder with copies of the plan's files and links to what is on the shared volume: tokens, weights, checkpoints.
ENTER = 'mkdir -p /workspace/checkpoints && cd "$$(mktemp -d)" && cp -L /plan/* . && (ln -s /workspace/* . || true)'


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """What every form of a job needs."""

    argv: tuple[str, ...]
    files: Mapping[str, str]
    under_torchrun: bool  # False: one process per host starts by itself
    in_pods: bool  # False: it starts in a folder of its own sources, which no published image holds
    place: TrainingPlace

    @property
    def name(self) -> str:
        return label(self.place.model_id.rsplit("/", 1)[-1])


def torchrun(job: Job, endpoint: str) -> list[str]:
    """The command of one host; every host runs the same."""
    place = job.place
    if not job.under_torchrun:
        return ["python", *job.argv]
    meets = ["--rdzv-backend", "c10d", "--rdzv-endpoint", endpoint, "--rdzv-id", job.name]
    sizes = ["--nnodes", str(place.hosts), "--nproc-per-node", str(place.processes_per_host)]
    return ["torchrun", *sizes, *(["--standalone"] if place.hosts == 1 else meets), *RESTARTS, *job.argv]


def job_files(job: Job) -> dict[str, str]:
    """All forms that suit the vendor and the launcher."""
    place = job.place
    slurm = " ".join(f'"{HEAD}"' if word == HEAD else shlex.quote(word) for word in torchrun(job, HEAD))
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": job.name}, "data": dict(job.files)}
    devices = place.chips_per_host * place.kubernetes_devices_per_chip
    facts = {
        "name": job.name,
        "title": Raw(printable(place.model_id)),
        "vendor": place.vendor,
        "hosts": place.hosts,
        "chips_per_host": place.chips_per_host,
        "processes_per_host": place.processes_per_host,
        "job_restarts": JOB_RESTARTS,
        "config_map": Raw(yaml_text(config).rstrip("\n")),
        "chip_limit": Raw(yaml_text({place.kubernetes_resource: devices}).rstrip("\n")),
        "slurm_command": Raw(slurm),
        "jobset_command": _in_pod(torchrun(job, f"{job.name}-train-0-0.{job.name}:{PORT}")),
        "trainjob_command": _in_pod(["torchrun", *RESTARTS, *job.argv]),
    }
    in_pods = job.in_pods and bool(place.kubernetes_resource)
    wanted = {
        "train.sbatch": job.under_torchrun,
        "jobset.yaml": in_pods,
        "trainjob.yaml": in_pods and job.under_torchrun,
    }
    return {name: text for name, text in files_of("jobs.txt", facts).items() if wanted[name]}


def _in_pod(argv: list[str]) -> str:
    """A shell line; Kubernetes substitutes variables after a single dollar sign."""
    return f"{ENTER} && exec {shlex.join(argv).replace('$', '$$')}"
