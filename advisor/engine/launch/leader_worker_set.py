"""Multi-host replicas as a Kubernetes LeaderWorkerSet: one group of pods per replica, created and replaced together.

The controller (leaderworkerset.sigs.k8s.io, installed separately) passes each pod the leader's address and its index
in LWS_LEADER_ADDRESS and LWS_WORKER_INDEX, which replace the placeholders of the command.
"""

from typing import Any

from advisor.engine.launch.kubernetes import (
    FIRST_HOST,
    ReplicaSpec,
    container,
    pod_volumes,
    printable,
    service,
    yaml_text,
)

LEADER, INDEX = "$(LWS_LEADER_ADDRESS)", "$(LWS_WORKER_INDEX)"  # substituted when a pod starts
RANKED = "ranked"  # every host runs the same command with its own rank
RAY = "ray"  # the command runs on the head of a Ray cluster
RAY_PORT = 6379


def leader_workers(replica: ReplicaSpec, hosts: int) -> str:
    """YAML of a LeaderWorkerSet and its leaders' Service; empty if the framework's multi-host mode is unknown."""
    a = replica.accelerator
    resource = a.kubernetes_resource
    if not replica.health_path or replica.ranks.mode not in (RANKED, RAY) or not resource:
        return ""
    each = replica.chips // hosts
    head = (
        f"# {replica.replicas} x {hosts} hosts with {each} x {printable(a.name)}; needs the LeaderWorkerSet\n"
        "# controller and the vendor's device plugin; you attach the network between the hosts\n"
    )
    if a.kubernetes_note:
        head += f"# {printable(a.kubernetes_note)}\n"
    objects = [_set(replica, resource, hosts, each), _leaders(replica)]
    return head + "".join(f"---\n{yaml_text(o)}" for o in objects)


def _set(replica: ReplicaSpec, resource: str, hosts: int, each: int) -> dict[str, Any]:
    name = replica.label
    leader = _pod(replica, resource, each, _leader_argv(replica), is_leader=True)
    worker = _pod(replica, resource, each, _worker_argv(replica), is_leader=False)
    return {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {
            "replicas": replica.replicas,
            "leaderWorkerTemplate": {
                "size": hosts,
                "restartPolicy": "RecreateGroupOnPodRestart",  # ranks hang forever after losing a peer
                "leaderTemplate": leader,
                "workerTemplate": worker,
            },
        },
    }


def _pod(replica: ReplicaSpec, resource: str, each: int, argv: list[str], is_leader: bool) -> dict[str, Any]:
    body = container(replica, resource, argv, each)
    if not is_leader:  # workers serve no requests; the group restarts with its leader
        body = {k: v for k, v in body.items() if k not in ("ports", "startupProbe", "readinessProbe", "livenessProbe")}
    role = "leader" if is_leader else "worker"
    return {
        "metadata": {"labels": {"app": replica.label, "role": role}},
        "spec": {"containers": [body], "volumes": pod_volumes(replica)},
    }


def _leaders(replica: ReplicaSpec) -> dict[str, Any]:
    body = service(replica)
    body["spec"]["selector"] = {**body["spec"]["selector"], "role": "leader"}
    return body


def _leader_argv(replica: ReplicaSpec) -> list[str]:
    argv = _escaped(replica)
    if replica.ranks.mode == RAY:
        return _after(f"ray start --head --port {RAY_PORT}", argv)
    return argv


def _worker_argv(replica: ReplicaSpec) -> list[str]:
    if replica.ranks.mode == RAY:
        return ["ray", "start", "--address", f"{LEADER}:{RAY_PORT}", "--block"]
    argv = _escaped(replica)
    argv[_value_of(argv, replica.ranks.rank_option)] = INDEX
    return [*argv, *replica.ranks.worker_argv]


def _after(first: str, argv: list[str]) -> list[str]:
    """Run `first`, then `argv` passed as positional arguments, which the shell does not parse."""
    return ["/bin/sh", "-c", f'{first} && exec "$$@"', "sh", *argv]


def _escaped(replica: ReplicaSpec) -> list[str]:
    """The command with $ escaped, and the first host's address replaced by the leader variable."""
    argv = [word.replace("$", "$$") for word in replica.argv]
    if replica.ranks.address_option in argv:
        at = _value_of(argv, replica.ranks.address_option)
        argv[at] = argv[at].replace(FIRST_HOST, LEADER)
    return argv


def _value_of(argv: list[str], flag: str) -> int:
    """Index of a flag's value; searches from the end, because a model name could equal the flag."""
    return len(argv) - argv[::-1].index(flag)
