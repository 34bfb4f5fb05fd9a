"""The Kubernetes manifests are valid down to every key, agree with the code, and restrict what they run."""

import copy
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from django.conf import settings
from django.core.management import load_command_class
from jsonschema import Draft202012Validator

from probes.status import metrics
from tests import settings_page
from tests.deployment import manifests
from tests.deployment.manifests import KUBERNETES, Json

VERSION = "1.32"  # the oldest version that the documentation names
CONTAINERS = manifests.pod_containers()
PARTS = [c for c in CONTAINERS if c.command[:2] == ["assay", "run"]]
AMOUNTS = ("requests", "limits")  # their keys are free
OBJECTS = dict(manifests.documents())
ONE_OF_EACH_KIND = {each["kind"]: where for where, each in reversed(OBJECTS.items())}


@cache
def keda() -> Draft202012Validator:
    """The schema of ScaledObjects, which refuses unknown keys as the API server does."""
    file = Path(__file__).with_name("keda.sh_scaledobjects.yaml")
    schema = yaml.safe_load(file.read_text())["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    for each in manifests.objects_in(schema):
        if isinstance(each.get("properties"), dict) and each.get("type") == "object":
            each.setdefault("additionalProperties", False)
    names = dict.fromkeys(("name", "namespace"), {"type": "string"})
    schema["properties"]["metadata"] = {"properties": names, "additionalProperties": False}
    return Draft202012Validator(schema)


def check(document: Json) -> None:
    """Raises if the API server would refuse it, or ignore a key."""
    if document["kind"] == "ScaledObject":
        keda().validate(document)
    else:
        kubernetes_validate.validate(document, VERSION, strict=True)


@pytest.mark.parametrize("where", OBJECTS)
def test_an_object_is_valid(where: str) -> None:
    check(OBJECTS[where])


@pytest.mark.parametrize("where", ONE_OF_EACH_KIND.values())
def test_a_wrong_key_anywhere_is_noticed(where: str) -> None:
    document = OBJECTS[where]
    free = {id(each[name]) for each in manifests.objects_in(document) for name in AMOUNTS if name in each}
    for index, each in enumerate(manifests.objects_in(document)):
        if id(each) not in free:
            with pytest.raises(Exception, match="replicaz|not of type 'string'"):
                check(manifests.with_wrong_key(document, index))


@pytest.mark.skipif(not shutil.which("kubectl"), reason="kubectl not found")
def test_the_example_builds_with_all_parts(tmp_path: Path) -> None:
    copied = shutil.copytree(KUBERNETES, tmp_path / "kubernetes")
    shutil.copy(copied / "example" / "secrets.env.example", copied / "example" / "secrets.env")
    command = ["kubectl", "kustomize", copied / "example"]
    built = list(yaml.safe_load_all(subprocess.run(command, check=True, capture_output=True, text=True).stdout))
    for each in built:
        check(each)
    found = {(each["kind"], each["metadata"]["name"]) for each in built}
    secret = next(name for kind, name in found if kind == "Secret")
    assert found - {("Secret", secret)} == {(each["kind"], each["metadata"]["name"]) for each in OBJECTS.values()}
    assert {each["metadata"].get("namespace") for each in built if each["kind"] != "Namespace"} == {"assay"}
    text = yaml.safe_dump_all(built)
    assert secret.startswith("assay-") and f"name: {secret}" in text  # its new name is in the pods too
    assert "image: assay\n" not in text
    scaled = {each["metadata"]["name"] for each in built if each["kind"] in ("ScaledObject", "HorizontalPodAutoscaler")}
    fixed = {each["metadata"]["name"] for each in built if each["kind"] == "Deployment" and "replicas" in each["spec"]}
    assert scaled & fixed == set()


def test_every_file_is_in_a_kustomization() -> None:
    for path in KUBERNETES.rglob("kustomization.yaml"):
        listed = yaml.safe_load(path.read_text())["resources"]
        files = {each.name for each in path.parent.glob("*.yaml")} - {path.name}
        assert {name for name in listed if name.endswith(".yaml")} == files


def deployment(name: str) -> Any:
    return next(each for each in OBJECTS.values() if (each["kind"], each["metadata"]["name"]) == ("Deployment", name))


def test_there_is_a_worker_deployment_for_each_queue() -> None:
    commands = [c.command for c in CONTAINERS if c.command[:3] == ["assay", "run", "worker"]]
    assert [command[3] for command in commands] == list(settings.QUEUES)
    for queue in settings.QUEUES:
        spec = deployment(queue)["spec"]["template"]["spec"]["containers"][0]
        assert f'"{queue}@$(hostname)"' in spec["readinessProbe"]["exec"]["command"][-1]


@pytest.mark.parametrize("container", CONTAINERS, ids=lambda c: c.where)
def test_a_container_is_restricted(container: manifests.Container) -> None:
    security, pod = container.spec["securityContext"], container.pod["securityContext"]
    assert security["readOnlyRootFilesystem"] and not security["allowPrivilegeEscalation"]
    assert security["capabilities"] == {"drop": ["ALL"]}
    assert pod["runAsNonRoot"] and pod["runAsUser"] == 10001 and pod["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container.pod["automountServiceAccountToken"] is False
    assert {"requests", "limits"} <= container.spec["resources"].keys()
    assert container.env["ASSAY_VAR"].startswith(container.spec["volumeMounts"][0]["mountPath"] + "/")


def test_everything_but_the_job_waits_for_the_migrations() -> None:
    waiting = {c.where.split("/")[2] for c in CONTAINERS if c.where.endswith("/migrated")}
    assert waiting == {c.where.split("/")[2] for c in CONTAINERS} - {"prepare"}


@pytest.mark.parametrize("container", PARTS, ids=lambda c: c.where)
def test_a_part_has_probes_and_time_to_finish(container: manifests.Container) -> None:
    probes = {name for name in container.spec if name.endswith("Probe")}
    part = container.command[2]
    assert (
        probes
        == {
            "web": {"startupProbe", "livenessProbe", "readinessProbe"},
            "worker": {"startupProbe", "readinessProbe"},
            "beat": {"livenessProbe"},
        }[part]
    )
    grace_s = {"web": 35, "worker": 30}.get(part, 30)
    assert container.pod.get("terminationGracePeriodSeconds", 30) == grace_s >= settings.GRACE_S + 5


def test_deployments_with_several_replicas_survive_a_drain() -> None:
    guarded = {each["metadata"]["name"] for _, each in manifests.of_kind("PodDisruptionBudget")}
    several = {each["metadata"]["name"] for _, each in manifests.of_kind("Deployment") if each["spec"]["replicas"] > 1}
    assert guarded == several == {"web", "answers"}


WAITING = {"answers": {"answers", "study_pieces"}, "probes": {"calibrations"}}  # metrics.waiting, by Celery queue


@pytest.mark.django_db
def test_workers_are_scaled_by_the_age_of_their_own_jobs() -> None:
    published = {f"{family.name}{sample.labels}" for family in metrics.queues() for sample in family.samples}
    for _, each in manifests.of_kind("ScaledObject"):
        queue = each["metadata"]["name"]
        query = each["spec"]["triggers"][0]["metadata"]["query"]
        metric, labels = re.findall(r'max\((\w+)\{queue=~?"([\w|]+)"\}\)', query)[0]
        assert each["spec"]["scaleTargetRef"]["name"] == queue and queue in settings.QUEUES
        assert set(labels.split("|")) == WAITING[queue]
        for label in WAITING[queue]:
            assert f"{metric}{ {'queue': label} }" in published


def test_nothing_may_be_reached_that_no_policy_names() -> None:
    policies = [each["spec"] for _, each in manifests.of_kind("NetworkPolicy")]
    guarded = copy.deepcopy(policies[0]["podSelector"]["matchLabels"])
    assert guarded == {"app.kubernetes.io/name": "assay"} and "ingress" not in policies[0]
    assert set(policies[0]["policyTypes"]) == {"Ingress", "Egress"}
    for name in ("postgres", "redis"):
        chosen = {"matchLabels": {"app.kubernetes.io/component": name}}
        policy = next(policy for policy in policies if policy["podSelector"] == chosen)
        assert policy["ingress"][0]["from"] == [{"podSelector": {"matchLabels": guarded}}] and "egress" not in policy


@pytest.mark.parametrize("container", CONTAINERS + manifests.compose_containers(), ids=lambda c: c.where)
def test_settings_exist_and_commands_parse(container: manifests.Container) -> None:
    ours = {name for name in container.env if name.startswith("ASSAY_")}
    assert ours - settings_page.variables().keys() == set()
    words = container.command
    if words[0] == "sh":
        words = re.findall(r"until (.+?);", words[2])[0].split()
    app = "django.core" if words[1] == "migrate" else "advisor"
    load_command_class(app, words[1]).create_parser(*words[:2]).parse_args(words[2:])
