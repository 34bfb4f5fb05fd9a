"""Custom resources and chart values for systems that run on Kubernetes: KServe, llm-d, Dynamo."""

import shlex
from typing import Any

from advisor.report.documents.exports.pods import (
    Json,
    Pool,
    document,
    escaped,
    facts,
    option_of,
    pools_of,
    refused,
    rule_of,
    started,
    translated,
    value_of,
    without,
)
from advisor.result import Answer, Option

PORT = 8000


def node_labels(option: Option, pool: Pool) -> Json:
    """The node selector of a pod, where its accelerators come in slices."""
    known = facts()["nodes"].get(option.accelerator)
    if known is None:
        return {}
    topology = known["topologies"].get(pool.devices) if pool.hosts == 1 else None
    return {**known["labels"], known["topology_label"]: topology or "<topology of the slice>"}


def pod(option: Option, pool: Pool, container: Json) -> Json:
    """The pod of one container."""
    selector = node_labels(option, pool)
    return {"containers": [container], "volumes": pool.volumes} | ({"nodeSelector": selector} if selector else {})


def notes_of(option: Option, pool: Pool) -> list[str]:
    """The manifest's comments, and what keeps a pod from other accelerators that share the resource's name."""
    if not pool.resource or node_labels(option, pool):
        return pool.notes
    return [f"if some nodes have other accelerators, add a nodeSelector for {option.accelerator_name}", *pool.notes]


def environment(option: Option, pool: Pool) -> list[Json]:
    """Variables of a container, with those that a pool needs in addition."""
    more = facts()["pools"]["variables"].get(option.framework, []) if pool.role else []
    return [*pool.containers[0]["env"], *more]


# --- KServe -----------------------------------------------------------------------------------------------------


def kserve(answer: Answer, rank: int) -> str:
    """An InferenceService; for several pools, or hosts of one replica, an LLMInferenceService."""
    option = option_of(answer, rank, "kserve")
    pools = pools_of(option, "kserve")
    first = pools[0]
    if len(pools) == 1 and first.hosts == 1:
        service = {
            "minReplicas": first.replicas,
            "maxReplicas": first.replicas,
            "deploymentStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}},
            **pod(option, first, {**first.containers[0], "name": "kserve-container"}),
        }
        plain = {"name": first.name, "annotations": {"serving.kserve.io/deploymentMode": "Standard"}}
        made = {"apiVersion": "serving.kserve.io/v1beta1", "kind": "InferenceService", "metadata": plain}
        return document(
            option, "kserve", notes_of(option, first), *first.config_maps, made | {"spec": {"predictor": service}}
        )
    rule = rule_of(option, "kserve")
    model, _ = translated(first.argv, rule, "kserve")
    spec = {
        "model": {"uri": f"hf://{model}", "name": value_of(first.argv, "--served-model-name") or model},
        **_workload(option, first, rule),
        "router": {"scheduler": {}, "route": {}, "gateway": {}},
        **{pool.role: _workload(option, pool, rule) for pool in pools[1:]},
    }
    name = {"name": first.name.removesuffix("-decode")}
    made = {"apiVersion": "serving.kserve.io/v1alpha2", "kind": "LLMInferenceService", "metadata": name}
    return document(option, "kserve", notes_of(option, first), made | {"spec": spec})


def _workload(option: Option, pool: Pool, rule: Json) -> Json:
    parallelism: Json = {"tensor": option.tp}
    if pool.hosts > 1:
        if option.pp > 1 or option.dp % pool.hosts:
            raise refused("kserve", "across hosts, its presets spread data-parallel ranks alone")
        parallelism |= {"data": option.dp, "dataLocal": option.dp // pool.hosts, "expert": option.ep > 1}
        rule = rule | {"drops": rule["drops"] | facts()["kserve"]["drops_across_hosts"]}
    _, words = translated(pool.argv, rule, "kserve")
    container = {
        "name": "main",
        "image": pool.containers[0]["image"],
        "args": escaped(map(shlex.quote, words)),  # the preset's shell evaluates them
        "env": environment(option, pool),
        **{key: value for key, value in pool.containers[0].items() if key == "resources"},
    }
    template = without(pod(option, pool, container), "volumes")
    workers = {"worker": template} if pool.hosts > 1 else {}
    return {"replicas": pool.replicas, "parallelism": parallelism, "template": template, **workers}


# --- llm-d ------------------------------------------------------------------------------------------------------


def llm_d(answer: Answer, rank: int) -> str:
    """Values of the chart llm-d-modelservice."""
    option = option_of(answer, rank, "llm-d")
    rule = rule_of(option, "llm-d")
    pools = pools_of(option, "llm-d")
    known, first = facts()["llm-d"], pools[0]
    # a slice of a chip is a resource of its own under the same prefix
    prefix = first.resource.partition("/")[0]
    kind = next((kind for name, kind in known["accelerators"].items() if name.partition("/")[0] == prefix), "")
    if first.resource and not kind:
        raise refused("llm-d", f"its chart has no accelerators of {first.resource}")
    if any(pool.config_maps for pool in pools):
        raise refused("llm-d", "its chart brings no files for the command")
    model = translated(first.argv, rule, "llm-d")[0] or value_of(first.argv, "--model-path")
    values: Json = {
        "fullnameOverride": first.name.removesuffix("-decode"),
        "modelArtifacts": {
            "name": value_of(first.argv, "--served-model-name") or model,
            "uri": f"hf://{model}",
            "labels": {"llm-d.ai/inference-serving": "true", "llm-d.ai/model": first.name.removesuffix("-decode")},
        },
        "multinode": first.hosts > 1,
        "accelerator": {"type": kind or "cpu"} | ({"resources": {kind: first.resource}} if kind else {}),
        "routing": {"servicePort": PORT, "proxy": _proxy(option, known)},
        "decode": _values(option, first, known["decode_port"] if first.role else PORT),
        "prefill": _values(option, pools[1], PORT) if len(pools) > 1 else {"create": False, "replicas": 0},
    }
    notes = [
        "install it with the chart inferencepool, whose pool selects the labels of modelArtifacts",
        *notes_of(option, first),
    ]
    return document(option, "llm-d", notes, values)


def _proxy(option: Option, known: Json) -> Json:
    if option.disaggregated is None:
        return {"enabled": False}
    connector = known["connectors"].get(option.framework)
    if connector is None:
        raise refused("llm-d", f"its routing sidecar has no connector for {option.framework}")
    return {"enabled": True, "targetPort": known["decode_port"], "connector": connector}


def _values(option: Option, pool: Pool, port: int) -> Json:
    """One pool. All pods of a replica run the same command, so it starts a host by its rank."""
    first, *others = [started(container) for container in pool.containers]
    command = first
    if others:
        command = ["/bin/sh", "-c", f"[ $(LWS_WORKER_INDEX) = 0 ] || exec {_line(others[0])}; exec {_line(first)}"]
    container = without(pool.containers[0], "command", "args", "name", "ports", "startupProbe", "livenessProbe")
    probes = {name: pool.containers[0][name] for name in ("startupProbe", "readinessProbe", "livenessProbe")}
    on_port = {name: probe | {"httpGet": probe["httpGet"] | {"port": port}} for name, probe in probes.items()}
    if others:  # only the first host answers
        container, on_port = without(container, "readinessProbe"), {}
    values: Json = {
        "create": True,
        "replicas": pool.replicas,
        "parallelism": {
            "tensor": option.tp,
            "data": option.dp,
            "dataLocal": max(option.dp // pool.hosts, 1),
            "workers": pool.hosts,
        },
        "containers": [
            {
                **container,
                **on_port,
                "name": "server",
                "modelCommand": "custom",
                "command": _listening(command, port),
                "env": environment(option, pool),
                "ports": [{"containerPort": port}],
                "mountModelVolume": False,
            }
        ],
        "volumes": pool.volumes,
    }
    selector = node_labels(option, pool)
    return values | ({"nodeSelector": selector} if selector else {})


def _line(words: list[str]) -> str:
    """Words for a shell inside a container; the variables of the group stand outside of quotes."""
    return " ".join(word if word.startswith("$(") else shlex.quote(word) for word in words)


def _listening(command: list[str], port: int) -> list[str]:
    """The command on another port."""
    if port == PORT:
        return command
    if len(command) == 3 and command[1] == "-c":
        return [*command[:2], command[2].replace(f"--port {PORT} ", f"--port {port} ")]
    at = len(command) - command[::-1].index("--port")
    return [*command[:at], str(port), *command[at + 1 :]]


# --- Dynamo -----------------------------------------------------------------------------------------------------


def dynamo(answer: Answer, rank: int) -> str:
    """A DynamoGraphDeployment: a frontend and one component per pool."""
    option = option_of(answer, rank, "dynamo")
    rule = rule_of(option, "dynamo")
    pools = pools_of(option, "dynamo")
    first = pools[0]
    if first.resource.partition("/")[0] not in {name.partition("/")[0] for name in facts()["dynamo"]["resources"]}:
        raise refused("dynamo", f"its engines run on {' and '.join(facts()['dynamo']['resources'])}")
    engine, newest = list(rule["has"].items())[-1]
    release = rule["has"].get(option.framework_version)
    image = f"{rule['image']}:{release}" if release else f"<{rule['image']} with {first.containers[0]['image']}>"
    frontend: Json = {"name": "main", "image": f"{rule['image']}:{release or newest}"}
    components: list[Json] = [
        {"name": "Frontend", "type": "frontend", "replicas": 1, "podTemplate": {"spec": {"containers": [frontend]}}}
    ]
    # the operator takes the tag of an image for Dynamo's version
    version = {} if release else {"runtimeVersionOverride": newest}
    components += [_component(option, pool, rule, image) | version for pool in pools]
    made = {
        "apiVersion": "nvidia.com/v1beta1",
        "kind": "DynamoGraphDeployment",
        "metadata": {"name": first.name.removesuffix("-decode")},
        "spec": {"backendFramework": rule["backend"], "components": components},
    }
    notes = [] if release else [f"no release of Dynamo has this version: {newest} has {option.framework} {engine}"]
    return document(
        option,
        "dynamo",
        [*notes, *notes_of(option, first)],
        *(each for pool in pools for each in pool.config_maps),
        made,
    )


def _component(option: Option, pool: Pool, rule: Json, image: str) -> Json:
    model, words = translated(pool.argv, rule, "dynamo")
    named = [rule["model"], model] if model else []
    role = ["--disaggregation-mode", pool.role] if pool.role and "--disaggregation-mode" not in words else []
    given = pool.containers[0]
    container: dict[str, Any] = {
        "name": "main",
        "image": image,
        "command": ["python3", "-m", rule["module"]],
        "args": escaped([*named, *(f"/opt/assay/{w}" if w in pool.files else w for w in words), *role]),
        "env": environment(option, pool),
        "resources": given["resources"],
    }
    # the operator mounts shared memory itself
    files = [each for each in given["volumeMounts"] if each["name"] != "shm"]
    spec = pod(option, pool, container | ({"volumeMounts": files} if files else {}))
    volumes = [each for each in pool.volumes if each["name"] != "shm"]
    spec = without(spec, "volumes") | ({"volumes": volumes} if volumes else {})
    several = {"multinode": {"nodeCount": pool.hosts}} if pool.hosts > 1 else {}
    kind = pool.role or "worker"
    return {"name": kind, "type": kind, "replicas": pool.replicas, **several, "podTemplate": {"spec": spec}}
