"""A replica that spans hosts as a Kubernetes LeaderWorkerSet: one group of pods a replica, made and replaced together.

The controller (leaderworkerset.sigs.k8s.io, not part of Kubernetes) tells every pod the leader's address and its own
index in LWS_LEADER_ADDRESS and LWS_WORKER_INDEX; the command's placeholders become these.
"""

from typing import Any

from advisor.engine.launch.kubernetes import FIRST_HOST, Served, container, pod_volumes, printable, service, yaml_text

LEADER, INDEX = "$(LWS_LEADER_ADDRESS)", "$(LWS_WORKER_INDEX)"  # Kubernetes puts them in when a pod starts
RANKED = "ranked"  # every host runs the same command with its own rank
RAY = "ray"  # the command runs on the head of a Ray cluster
RAY_PORT = 6379


def leader_workers(served: Served, hosts: int) -> str:
    """YAML of a LeaderWorkerSet and the Service of its leaders; empty where nothing is known of how it spans hosts."""
    a = served.accelerator
    resource = a.kubernetes_resource
    if not served.health_path or served.ranks.way not in (RANKED, RAY) or not resource:
        return ""
    each = served.chips // hosts
    head = (
        f"# {served.replicas} x {hosts} hosts of {each} x {printable(a.name)}; needs the LeaderWorkerSet controller\n"
        "# and the vendor's device plugin; the network between the hosts is yours to attach\n"
    )
    objects = [_set(served, resource, hosts, each), _leaders(served)]
    return head + "".join(f"---\n{yaml_text(o)}" for o in objects)


def _set(served: Served, resource: str, hosts: int, each: int) -> dict[str, Any]:
    name = served.label
    leader = _pod(served, resource, each, _leader_words(served), is_leader=True)
    worker = _pod(served, resource, each, _worker_words(served), is_leader=False)
    return {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {
            "replicas": served.replicas,
            "leaderWorkerTemplate": {
                "size": hosts,
                "restartPolicy": "RecreateGroupOnPodRestart",  # ranks that lost one of them wait for ever
                "leaderTemplate": leader,
                "workerTemplate": worker,
            },
        },
    }


def _pod(served: Served, resource: str, each: int, words: list[str], is_leader: bool) -> dict[str, Any]:
    body = container(served, resource, words, each)
    if not is_leader:  # serves nothing: the group falls and rises with its leader
        body = {k: v for k, v in body.items() if k not in ("ports", "startupProbe", "readinessProbe", "livenessProbe")}
    role = "leader" if is_leader else "worker"
    return {
        "metadata": {"labels": {"app": served.label, "role": role}},
        "spec": {"containers": [body], "volumes": pod_volumes(served)},
    }


def _leaders(served: Served) -> dict[str, Any]:
    body = service(served)
    body["spec"]["selector"] = {**body["spec"]["selector"], "role": "leader"}
    return body


def _leader_words(served: Served) -> list[str]:
    words = _escaped(served)
    if served.ranks.way == RAY:
        return _after(f"ray start --head --port {RAY_PORT}", words)
    return words


def _worker_words(served: Served) -> list[str]:
    if served.ranks.way == RAY:
        return ["ray", "start", "--address", f"{LEADER}:{RAY_PORT}", "--block"]
    words = _escaped(served)
    words[_value_of(words, served.ranks.rank_option)] = INDEX
    return [*words, *served.ranks.worker_words]


def _after(first: str, words: list[str]) -> list[str]:
    """The words after another command, each still one word: the shell never reads them."""
    return ["/bin/sh", "-c", f'{first} && exec "$$@"', "sh", *words]


def _escaped(served: Served) -> list[str]:
    """Nothing in the command is a variable but the leader's address."""
    words = [word.replace("$", "$$") for word in served.words]
    if served.ranks.address_option in words:
        at = _value_of(words, served.ranks.address_option)
        words[at] = words[at].replace(FIRST_HOST, LEADER)
    return words


def _value_of(words: list[str], flag: str) -> int:
    """Where the value of a flag stands; the last such flag, as names come before it."""
    return len(words) - words[::-1].index(flag)
