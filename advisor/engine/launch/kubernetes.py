"""Kubernetes Deployment and Service, and systemd unit, of a replica. Names are escaped so that they cannot inject."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from advisor.engine.terms import Accelerator

PORT = 8000
FIRST_HOST = "<address of the first host>"  # placeholder in commands of multi-host replicas
FOLDER = "/opt/assay"  # folder of the command's files in a unit or pod
LABEL_LENGTH = 40  # of at most 63; the pool and suffixes of Kubernetes follow


@dataclass(frozen=True, kw_only=True, slots=True)
class HostRanks:
    """How the hosts of one replica find each other."""

    mode: str = ""  # ranked | ray | slurm; empty: not known
    rank_option: str = ""
    address_option: str = ""
    worker_argv: tuple[str, ...] = ()  # appended on every host except the first


@dataclass(frozen=True, kw_only=True, slots=True)
class ReplicaSpec:
    """What a manifest needs: one replica, and the number of replicas."""

    name: str
    argv: tuple[str, ...]
    framework: str
    version: str
    image: str = ""  # published for this release; empty: not known
    image_has_entrypoint: bool = False  # the image's entrypoint starts the server
    health_path: str = ""  # empty: not known
    ranks: HostRanks = HostRanks()
    accelerator: Accelerator
    chips: int  # of one replica
    replicas: int
    files: Mapping[str, str] = field(default_factory=dict)  # files the command reads, by name
    pool: str = ""  # prefill | decode in disaggregated serving; else empty

    @property
    def label(self) -> str:
        """The name of its Kubernetes objects, one per pool."""
        return label(self.name) + (f"-{self.pool}" if self.pool else "")


def label(name: str) -> str:
    """A DNS label from a model name."""
    plain = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:LABEL_LENGTH].strip("-")
    return f"assay-{plain}" if plain else "assay-model"


# --- Kubernetes -------------------------------------------------------------------------------------------------


def kubernetes(replica: ReplicaSpec) -> str:
    """YAML of a Deployment and a Service; empty if the health path or the device resource is unknown."""
    a = replica.accelerator
    resource = a.kubernetes_resource
    if a.cut and a.cut.way == "MIG":  # as the device plugin names them under mig.strategy: mixed
        resource = f"nvidia.com/mig-{a.cut.profile}"
    if not replica.health_path or not (resource or a.kind == "cpu"):
        return ""
    objects = [*_config(replica), _deployment(replica, resource), service(replica)]
    count = f"{_of_pool(replica)}{replica.replicas} x {replica.chips} x {printable(a.name)}"
    head = f"# {count}; the nodes need the vendor's device plugin\n"
    if a.kubernetes_note:
        head += f"# {printable(a.kubernetes_note)}\n"
    return head + "".join(f"---\n{yaml_text(o)}" for o in objects)


def _config(replica: ReplicaSpec) -> list[dict[str, Any]]:
    if not replica.files:
        return []
    meta = {"name": replica.label}
    return [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": dict(replica.files)}]


def _deployment(replica: ReplicaSpec, resource: str) -> dict[str, Any]:
    name = replica.label
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {
            "replicas": replica.replicas,
            # no surge: spare chips are rarely free, so the old replica stops before the new one starts
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}},
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": [_alone(replica, resource)], "volumes": pod_volumes(replica)},
            },
        },
    }


def pod_volumes(replica: ReplicaSpec) -> list[dict[str, Any]]:
    """Volumes: shared memory for the server's processes, and the command's files."""
    shm: dict[str, Any] = {"name": "shm", "emptyDir": {"medium": "Memory"}}
    return [shm, *([{"name": "files", "configMap": {"name": replica.label}}] if replica.files else [])]


def _alone(replica: ReplicaSpec, resource: str) -> dict[str, Any]:
    """The container of a replica on one host."""
    argv = [f"{FOLDER}/{word}" if word in replica.files else word for word in replica.argv]
    argv = [word.replace("$", "$$") for word in argv]  # otherwise Kubernetes substitutes variables
    return container(replica, resource, argv, replica.chips)


def image_of(replica: ReplicaSpec) -> str:
    """The published image of this release, or a placeholder."""
    return replica.image or f"<image with {replica.framework} {replica.version}>"


def container(replica: ReplicaSpec, resource: str, argv: list[str], chips: int) -> dict[str, Any]:
    """A container that runs `argv` (with $ already escaped) on this many chips."""
    run = {"args": argv[1:]} if replica.image_has_entrypoint else {"command": argv}
    probe = {"httpGet": {"path": replica.health_path, "port": PORT}, "periodSeconds": 10}
    mounts = [{"name": "shm", "mountPath": "/dev/shm"}]
    mounts += [{"name": "files", "mountPath": FOLDER}] if replica.files else []
    count = chips * replica.accelerator.kubernetes_devices
    token = {"name": "hugging-face", "key": "token", "optional": True}
    return {
        "name": "server",
        "image": image_of(replica),
        **run,
        "env": [{"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": token}}],
        "ports": [{"containerPort": PORT}],
        **({"resources": {"limits": {resource: count}}} if resource else {}),
        "startupProbe": {**probe, "failureThreshold": 360},  # one hour to download, load and compile
        "readinessProbe": {**probe, "failureThreshold": 3},
        "livenessProbe": {**probe, "failureThreshold": 6},
        "volumeMounts": mounts,
    }


def service(replica: ReplicaSpec) -> dict[str, Any]:
    """The Service in front of all replicas."""
    name = replica.label
    ports = [{"port": 80, "targetPort": PORT}]
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {"selector": {"app": name}, "ports": ports},
    }


# --- YAML -------------------------------------------------------------------------------------------------------


def quoted(text: str) -> str:
    """A double-quoted YAML string in printable ASCII."""
    return '"' + "".join(_escaped(c) for c in text) + '"'


def _escaped(c: str) -> str:
    if c in '"\\':
        return "\\" + c
    if c == "\n":
        return "\\n"
    return c if " " <= c <= "~" else f"\\U{ord(c):08x}"


BLOCK = re.compile(r"[!-~][ -~]*\n(?:[ -~]*\n)*[ -~]*[!-~]\n")  # text of several lines that reads back from a | block


def yaml_text(value: Any, indent: int = 0) -> str:
    """Block YAML of dicts, lists, strings, numbers, booleans and None."""
    pad = " " * indent
    if isinstance(value, dict):
        return "".join(f"{pad}{_key(k)}:{_below(v, indent + 2)}" for k, v in value.items())
    if isinstance(value, list):
        return "".join(f"{pad}-{_item(v, indent + 2)}" for v in value)
    return f"{pad}{_scalar(value)}\n"


def _key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z]\w*", key, re.ASCII) else quoted(key)


def _below(value: Any, indent: int) -> str:
    if value in ({}, []):  # an empty block would read back as null
        return " {}\n" if value == {} else " []\n"
    if isinstance(value, str) and BLOCK.fullmatch(value):
        return " |\n" + "".join(f"{' ' * indent if line.strip() else ''}{line}" for line in value.splitlines(True))
    return f"\n{yaml_text(value, indent)}" if isinstance(value, dict | list) else f" {_scalar(value)}\n"


def _item(value: Any, indent: int) -> str:
    return " " + yaml_text(value, indent).lstrip(" ")


def _scalar(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):  # 1e-05 would read back as a string
        return f"{value:.12f}".rstrip("0") + ("0" if value == int(value) else "")
    return quoted(value) if isinstance(value, str) else str(value)


def printable(text: str) -> str:
    """Text for a comment, with characters other than printable ASCII replaced by a question mark."""
    return "".join(c if " " <= c <= "~" else "?" for c in text)


# --- systemd ----------------------------------------------------------------------------------------------------


def unit_argument(word: str) -> str:
    """One argument of ExecStart=, quoted, with specifiers (%) and variables ($) escaped."""
    escaped = "".join(_unit_escaped(c) for c in word)
    return f'"{escaped}"'


def _unit_escaped(c: str) -> str:
    if c in "%$":
        return c + c
    if c in '"\\':
        return "\\" + c
    return c if c.isprintable() else "".join(f"\\x{byte:02x}" for byte in c.encode())


def _of_pool(replica: ReplicaSpec) -> str:
    return f"{replica.pool} " if replica.pool else ""


def systemd(replica: ReplicaSpec) -> str:
    """A systemd unit that starts one replica at boot and restarts it on failure."""
    lines = [
        "[Unit]",
        f"Description=One {_of_pool(replica)}replica served by {replica.framework} "
        f"{printable(replica.version).replace('%', '%%')}",
        "Wants=network-online.target",
        "After=network-online.target",
        "",
        "[Service]",
        f"WorkingDirectory={FOLDER}",
        "EnvironmentFile=-/etc/assay-serve.env",  # HF_TOKEN and other secrets stay out of this file
        "ExecStart=/usr/bin/env " + " ".join(map(unit_argument, replica.argv)),
        "Restart=on-failure",
        "RestartSec=10",
        "TimeoutStopSec=120",
        "LimitMEMLOCK=infinity",
        "",
        "[Install]",
        "WantedBy=multi-user.target",
    ]
    return "\n".join(lines) + "\n"
