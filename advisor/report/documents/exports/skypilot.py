"""SkyPilot tasks: a service whose replicas have machines of their own, a cluster whose machines share them, a run."""

import re
import shlex
from collections.abc import Mapping
from string import Template

import yaml

from advisor.engine.launch import FIRST_HOST, label
from advisor.report.documents.exports.pods import Json, Pool, document, facts, pools_of, refused, started, value_of
from advisor.report.documents.subject import chosen
from advisor.result import Answer, Option, TrainingOption

PORT = 8000
HEAD = '$(echo "$SKYPILOT_NODE_IPS" | head -n 1)'
SPOT = "spot"
RUN_FILES = ("train.sbatch", "jobset.yaml", "trainjob.yaml", "prepare.sh")  # all others are read by the run itself
STORAGE = "/checkpoints"
STARTS_WITHIN_S = 3600  # as the pod's startup probe: download, load and compile


def skypilot(answer: Answer, rank: int) -> str:
    """A task file; with a section `service` where SkyServe balances the replicas."""
    option = chosen(answer, rank)
    return _training(option) if isinstance(option, TrainingOption) else _serving(option)


def _serving(option: Option) -> str:
    if option.disaggregated:
        raise refused("skypilot", "SkyServe balances replicas of one kind, and this has prefill and decode pools")
    if option.partition:
        raise refused("skypilot", "it has no names for partitions of an accelerator")
    pool = pools_of(option, "skypilot")[0]
    slices = facts()["skypilot"]["slices"].get(option.accelerator)
    if slices and (pool.hosts > 1 or pool.devices not in facts()["nodes"][option.accelerator]["topologies"]):
        raise refused("skypilot", f"no slice of one host has {pool.devices * pool.hosts} x {option.accelerator}")
    if "command" not in pool.containers[0]:
        raise refused("skypilot", "the image starts its server by its entrypoint, which SkyPilot does not run")
    devices_each = max(pool.devices * pool.hosts * pool.replicas // option.accelerator_count, 1)
    chips = pool.devices // devices_each
    shared, instance = chips * pool.hosts, instance_type(option)
    on_instance = option.accelerator_count // option.instances
    task: Json = {"name": pool.name}
    if instance and pool.hosts == 1 and option.replicas > option.instances and on_instance > shared:
        each = -(-option.replicas // option.instances)
        resources = _resources(option, chips, instance, alone=False) | _image(pool)
        task |= {"resources": resources, "num_nodes": option.instances, "secrets": {"HF_TOKEN": None}}
        task |= _setup(pool.files) | {"run": _several(option, pool, each)}
        notes = [
            "start it with: sky launch --secret HF_TOKEN",
            f"{option.replicas} servers on {option.instances} machines: put a load balancer in front of them",
        ]
    else:
        whole = instance if on_instance == chips else ""
        resources = _resources(option, chips, whole) | {"ports": PORT} | _image(pool)
        probe = {"path": _health(pool), "initial_delay_seconds": STARTS_WITHIN_S}
        task |= {"service": {"readiness_probe": probe, "replicas": pool.replicas}, "resources": resources}
        task |= {"num_nodes": pool.hosts} if pool.hosts > 1 else {}
        task |= {"secrets": {"HF_TOKEN": None}} | _setup(pool.files) | {"run": _server(pool)}
        notes = ["start it with: sky serve up --secret HF_TOKEN"]
    return document(option, "skypilot", [*notes, *_terms(option), *pool.notes], task)


def _terms(option: Option | TrainingOption) -> list[str]:
    term = getattr(option, "term", "")
    return [f"the plan's price is of the term {term}; SkyPilot starts on-demand machines"] * term.startswith("reserved")


def cloud_of(option: Option | TrainingOption) -> Json:
    """What SkyPilot calls the provider. Http404: it does not reach it."""
    clouds = facts()["skypilot"]["clouds"]
    if option.provider not in clouds:
        raise refused("skypilot", f"it has no cloud {option.provider}")
    return dict(clouds[option.provider])


def instance_type(option: Option | TrainingOption) -> str:
    """The instance type, if the plan names it as the cloud does; else empty."""
    pattern = cloud_of(option).get("instance", "")
    return option.instance if pattern and re.fullmatch(pattern, option.instance) else ""


def _resources(option: Option | TrainingOption, chips: int, instance: str, alone: bool = True) -> Json:
    """Accelerators of a machine, where they are, and how they are paid; `alone`: a replica has the machine alone."""
    known, cloud = facts()["skypilot"], cloud_of(option)
    region = option.region if re.fullmatch(cloud.get("region", ""), option.region) else ""
    accelerators = known["accelerators"].get(option.accelerator, {}).get(cloud["name"], "")
    sliced = known["slices"].get(option.accelerator, {}).get(cloud["name"], "")
    if alone and not accelerators and not sliced:
        raise refused("skypilot", f"it has no name for {option.accelerator} on {cloud['name']}")
    named = Template(sliced).substitute(chips=chips, cores=2 * chips) if sliced else f"{accelerators}:{chips}"
    return {
        "infra": f"{cloud['name']}/{region}" if region else cloud["name"],
        **({"accelerators": named} if alone else {}),
        **({"instance_type": instance} if instance else {}),
        **({"use_spot": True} if getattr(option, "term", "") == SPOT else {}),
    }


def _image(pool: Pool) -> Json:
    return {"image_id": f"docker:{pool.containers[0]['image']}"}


def _health(pool: Pool) -> str:
    return str(pool.containers[0]["readinessProbe"]["httpGet"]["path"])


def _setup(files: dict[str, str]) -> Json:
    """Writes the files that the command reads, into the folder it starts in."""
    lines = [f"printf %s {shlex.quote(text)} > {shlex.quote(name)}" for name, text in files.items()]
    return {"setup": "\n".join(lines) + "\n"} if lines else {}


def _server(pool: Pool) -> str:
    """One replica: every host runs this script."""
    if pool.hosts == 1:
        return f"exec {shlex.join(pool.argv)}\n"
    first, other = [_shell(started(container)) for container in pool.containers]
    return f'head={HEAD}\nif [ "$SKYPILOT_NODE_RANK" = 0 ]; then\n  exec {first}\nfi\nexec {other}\n'


def _shell(words: list[str]) -> str:
    """A container's words for a shell on the machines of a SkyPilot task."""
    variables = {"$(LWS_LEADER_ADDRESS)": '"$head"', "$(LWS_WORKER_INDEX)": '"$SKYPILOT_NODE_RANK"'}
    return " ".join(_with_variable(word, variables) or shlex.quote(word.replace("$$", "$")) for word in words)


def _with_variable(word: str, variables: Mapping[str, str]) -> str:
    """A word that begins with the name of a variable, with the variable itself; else empty."""
    return next((to + word.removeprefix(name) for name, to in variables.items() if word.startswith(name)), "")


def _several(option: Option, pool: Pool, each: int) -> str:
    """The servers of one machine, each with its own accelerators and port."""
    variable = facts()["skypilot"]["one_server"].get(pool.resource)
    if variable is None:
        raise refused("skypilot", f"it cannot divide the {pool.resource} of a machine among its servers")
    argv = pool.argv[:]
    at = len(argv) - argv[::-1].index("--port")
    command = f'{shlex.join(argv[:at])} "$(({PORT} + i))" {shlex.join(argv[at + 1 :])}'
    ids = " ".join(",".join(str(i * pool.devices + k) for k in range(pool.devices)) for i in range(each))
    return (
        f"i=0\nfor ids in {ids}; do\n  [ $((SKYPILOT_NODE_RANK * {each} + i)) -lt {option.replicas} ] || break\n"
        f"  {variable}=$ids {command} &\n  i=$((i + 1))\ndone\nwait\n"
    )


# --- training ---------------------------------------------------------------------------------------------------


def _training(option: TrainingOption) -> str:
    files = option.launch.files
    if "prepare.sh" not in files:
        raise refused("skypilot", "no launch files are written for this run")
    in_slice = option.accelerator in facts()["skypilot"]["slices"]  # SkyPilot starts the run on all its hosts
    hosts = 1 if in_slice else _hosts(option)
    chips = option.accelerator_count // hosts
    plan = {name: text for name, text in files.items() if name not in RUN_FILES}
    written = _setup({**plan, "prepare.sh": files["prepare.sh"]})["setup"]
    instance = instance_type(option) if option.accelerator_count == option.instances * chips else ""
    name = label(f"{option.framework}-{option.accelerator}")
    task: Json = {
        "name": name,
        "resources": _resources(option, chips, instance),
        "num_nodes": hosts,
        "secrets": {"HF_TOKEN": None},
        "file_mounts": {STORAGE: {"name": "<bucket for the checkpoints>", "mode": "MOUNT_CACHED"}},
        "setup": f"{written}sh prepare.sh\n",
        "run": f"ln -sfn {STORAGE} checkpoints\nhead={HEAD}\nexec {_joined(option.launch.command)}\n",
    }
    return document(option, "skypilot", ["start it with: sky jobs launch --secret HF_TOKEN", *_terms(option)], task)


def _hosts(option: TrainingOption) -> int:
    """Hosts of the run. Http404: its launch files do not say how many."""
    if said := value_of(shlex.split(option.launch.command), "--nnodes"):
        return int(said)
    if jobs := [each for each in yaml.safe_load_all(option.launch.files.get("jobset.yaml", "")) if each]:
        return int(jobs[-1]["spec"]["replicatedJobs"][0]["template"]["spec"]["parallelism"])
    raise refused("skypilot", "its launch files do not say how many hosts it has")


def _joined(command: str) -> str:
    """The command of each host, with the address of the first."""
    return " ".join(_with_variable(w, {FIRST_HOST: '"$head"'}) or shlex.quote(w) for w in shlex.split(command))
