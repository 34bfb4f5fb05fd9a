"""The manifests under deploy/, read as data."""

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
KUBERNETES = ROOT / "deploy" / "kubernetes"
COMPOSE = ROOT / "deploy" / "compose.yaml"
Json = dict[str, Any]


@dataclass(frozen=True)
class Container:
    """One container of the product's image."""

    where: str  # file and name
    command: list[str]
    env: dict[str, str]
    spec: Json
    pod: Json  # empty in Compose


def documents() -> Iterator[tuple[str, Json]]:
    """(file and name, object) of every Kubernetes object."""
    for path in sorted(KUBERNETES.rglob("*.yaml")):
        if path.name != "kustomization.yaml":
            for each in yaml.safe_load_all(path.read_text()):
                yield f"{path.relative_to(KUBERNETES)}:{each['kind']}/{each['metadata']['name']}", each


def of_kind(*kinds: str) -> list[tuple[str, Json]]:
    return [(where, each) for where, each in documents() if each["kind"] in kinds]


def compose() -> Json:
    found: Json = yaml.safe_load(COMPOSE.read_text())
    return found


def pod_containers() -> list[Container]:
    """Those of the base, with the settings of its ConfigMap and the secrets of the example."""
    settings = next(each["data"] for _, each in of_kind("ConfigMap"))
    lines = (KUBERNETES / "example" / "secrets.env.example").read_text().splitlines()
    secrets = dict(line.split("=", 1) for line in lines if not line.startswith("#"))
    found = []
    for where, each in of_kind("Deployment", "Job", "StatefulSet"):
        pod = each["spec"]["template"]["spec"]
        for spec in (*pod.get("initContainers", ()), *pod["containers"]):
            if spec["image"] == "assay":
                assert spec["envFrom"] == [{"configMapRef": {"name": "assay"}}, {"secretRef": {"name": "assay"}}]
                found.append(Container(f"{where}/{spec['name']}", spec["command"], {**settings, **secrets}, spec, pod))
    return found


def compose_containers() -> list[Container]:
    services = compose()["services"]
    return [
        Container(f"compose/{name}", spec["command"], spec["environment"], spec, {})
        for name, spec in services.items()
        if spec["image"].startswith("assay:")
    ]


def objects_in(value: Any) -> Iterator[Json]:
    """The value and everything in it that has keys."""
    if isinstance(value, dict):
        yield value
    for each in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from objects_in(each)


def with_wrong_key(document: Json, index: int) -> Json:
    """A copy with one unknown key in its object number `index`."""
    changed = copy.deepcopy(document)
    list(objects_in(changed))[index]["replicaz"] = 1
    return changed
