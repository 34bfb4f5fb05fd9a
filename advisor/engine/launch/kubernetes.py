"""A replica as a Kubernetes Deployment and Service, and as a systemd unit; no name can break out of its place."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from advisor.engine.spec import Accelerator

PORT = 8000
FIRST_HOST = "<address of the first host>"  # in commands of replicas that span hosts
FOLDER = "/opt/assay"  # where a unit or a pod finds the files beside the command
LABEL_LENGTH = 40  # of 63: the pool, and what Kubernetes adds for the pods of a group, come after it


@dataclass(frozen=True, kw_only=True, slots=True)
class HostRanks:
    """How the hosts of one replica find each other."""

    way: str = ""  # ranked | ray | slurm; empty: not known
    rank_option: str = ""
    address_option: str = ""
    worker_words: tuple[str, ...] = ()  # of every host but the first


@dataclass(frozen=True, kw_only=True, slots=True)
class Served:
    """What a manifest says of one replica, and how many there are."""

    name: str
    words: tuple[str, ...]
    framework: str
    version: str
    image: str = ""  # that the project publishes for this release; empty: none is known
    image_has_entrypoint: bool = False  # the image starts the server itself, from a folder off the path
    health_path: str = ""  # empty: not known
    ranks: HostRanks = HostRanks()
    accelerator: Accelerator
    chips: int  # of one replica
    replicas: int
    files: Mapping[str, str] = field(default_factory=dict)  # beside the command
    pool: str = ""  # prefill | decode, where prompts and tokens are computed apart

    @property
    def label(self) -> str:
        """What its objects are called: one name for each pool."""
        return label(self.name) + (f"-{self.pool}" if self.pool else "")


def label(name: str) -> str:
    """A DNS label made of a model's name."""
    plain = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:LABEL_LENGTH].strip("-")
    return f"assay-{plain}" if plain else "assay-model"


# --- Kubernetes -------------------------------------------------------------------------------------------------


def kubernetes(served: Served) -> str:
    """YAML of a Deployment and a Service; empty where the health address or the resource is not known."""
    a = served.accelerator
    resource = a.kubernetes_resource
    if a.cut and a.cut.way == "MIG":  # as the device plugin names them under mig.strategy: mixed
        resource = f"nvidia.com/mig-{a.cut.profile}"
    if not served.health_path or not (resource or a.kind == "cpu"):
        return ""
    objects = [*_config(served), _deployment(served, resource), service(served)]
    count = f"{_of_pool(served)}{served.replicas} x {served.chips} x {printable(a.name)}"
    head = f"# {count}; nodes need the vendor's device plugin\n"
    if a.kubernetes_note:
        head += f"# {printable(a.kubernetes_note)}\n"
    return head + "".join(f"---\n{yaml_text(o)}" for o in objects)


def _config(served: Served) -> list[dict[str, Any]]:
    if not served.files:
        return []
    meta = {"name": served.label}
    return [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": dict(served.files)}]


def _deployment(served: Served, resource: str) -> dict[str, Any]:
    name = served.label
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {
            "replicas": served.replicas,
            # chips are rarely free beside the running replicas: the old one stops before the new one starts
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}},
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": [_alone(served, resource)], "volumes": pod_volumes(served)},
            },
        },
    }


def pod_volumes(served: Served) -> list[dict[str, Any]]:
    """Shared memory for the processes of a server, and the files beside its command."""
    shm: dict[str, Any] = {"name": "shm", "emptyDir": {"medium": "Memory"}}
    return [shm, *([{"name": "files", "configMap": {"name": served.label}}] if served.files else [])]


def _alone(served: Served, resource: str) -> dict[str, Any]:
    """The container of a replica on one host."""
    words = [f"{FOLDER}/{word}" if word in served.files else word for word in served.words]
    words = [word.replace("$", "$$") for word in words]  # or Kubernetes would put variables in
    return container(served, resource, words, served.chips)


def image_of(served: Served) -> str:
    """The project's own image of this release, or a placeholder."""
    return served.image or f"<image with {served.framework} {served.version}>"


def container(served: Served, resource: str, words: list[str], chips: int) -> dict[str, Any]:
    """A container that runs these words, variables already taken care of, on so many chips."""
    run = {"args": words[1:]} if served.image_has_entrypoint else {"command": words}
    probe = {"httpGet": {"path": served.health_path, "port": PORT}, "periodSeconds": 10}
    mounts = [{"name": "shm", "mountPath": "/dev/shm"}]
    mounts += [{"name": "files", "mountPath": FOLDER}] if served.files else []
    count = chips * served.accelerator.kubernetes_devices
    token = {"name": "hugging-face", "key": "token", "optional": True}
    return {
        "name": "server",
        "image": image_of(served),
        **run,
        "env": [{"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": token}}],
        "ports": [{"containerPort": PORT}],
        **({"resources": {"limits": {resource: count}}} if resource else {}),
        "startupProbe": {**probe, "failureThreshold": 360},  # an hour to fetch, load and compile
        "readinessProbe": {**probe, "failureThreshold": 3},
        "livenessProbe": {**probe, "failureThreshold": 6},
        "volumeMounts": mounts,
    }


def service(served: Served) -> dict[str, Any]:
    """The address of all replicas together."""
    name = served.label
    ports = [{"port": 80, "targetPort": PORT}]
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {"selector": {"app": name}, "ports": ports},
    }


# --- YAML -------------------------------------------------------------------------------------------------------


def quoted(text: str) -> str:
    """A YAML string in double quotes, all of it printable ASCII."""
    return '"' + "".join(_escaped(c) for c in text) + '"'


def _escaped(c: str) -> str:
    if c in '"\\':
        return "\\" + c
    if c == "\n":
        return "\\n"
    return c if " " <= c <= "~" else f"\\U{ord(c):08x}"


def yaml_text(value: Any, indent: int = 0) -> str:
    """Block YAML of dicts, lists, strings, whole numbers, truth values and nulls."""
    pad = " " * indent
    if isinstance(value, dict):
        return "".join(f"{pad}{_key(k)}:{_below(v, indent + 2)}" for k, v in value.items())
    if isinstance(value, list):
        return "".join(f"{pad}-{_item(v, indent + 2)}" for v in value)
    return f"{pad}{_scalar(value)}\n"


def _key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z][A-Za-z0-9]*", key) else quoted(key)


def _below(value: Any, indent: int) -> str:
    if value in ({}, []):  # in a block they would read back as null
        return " {}\n" if value == {} else " []\n"
    return f"\n{yaml_text(value, indent)}" if isinstance(value, dict | list) else f" {_scalar(value)}\n"


def _item(value: Any, indent: int) -> str:
    return " " + yaml_text(value, indent).lstrip(" ")


def _scalar(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    return quoted(value) if isinstance(value, str) else str(value)


def printable(text: str) -> str:
    """For a comment: what is not printable ASCII becomes a question mark."""
    return "".join(c if " " <= c <= "~" else "?" for c in text)


# --- systemd ----------------------------------------------------------------------------------------------------


def unit_word(word: str) -> str:
    """One argument of ExecStart=: quoted, its specifiers (%) and variables ($) taken literally."""
    escaped = "".join(_unit_escaped(c) for c in word)
    return f'"{escaped}"'


def _unit_escaped(c: str) -> str:
    if c in "%$":
        return c + c
    if c in '"\\':
        return "\\" + c
    return c if c.isprintable() else "".join(f"\\x{byte:02x}" for byte in c.encode())


def _of_pool(served: Served) -> str:
    return f"{served.pool} " if served.pool else ""


def systemd(served: Served) -> str:
    """A unit that starts one replica at boot and again after it fails."""
    lines = [
        "[Unit]",
        f"Description=One {_of_pool(served)}replica served by {served.framework} "
        f"{printable(served.version).replace('%', '%%')}",
        "Wants=network-online.target",
        "After=network-online.target",
        "",
        "[Service]",
        f"WorkingDirectory={FOLDER}",
        "EnvironmentFile=-/etc/assay-serve.env",  # HF_TOKEN and the like, kept out of this file
        "ExecStart=/usr/bin/env " + " ".join(map(unit_word, served.words)),
        "Restart=on-failure",
        "RestartSec=10",
        "TimeoutStopSec=120",
        "LimitMEMLOCK=infinity",
        "",
        "[Install]",
        "WantedBy=multi-user.target",
    ]
    return "\n".join(lines) + "\n"
