"""The pools of a deployment as its Kubernetes manifests describe them, and what another system makes of a command."""

import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import yaml
from django.http import Http404

from advisor.engine.launch import printable, yaml_text
from advisor.report.documents.subject import chosen
from advisor.result import Answer, Option, TrainingOption
from catalog.shipped import FIXTURES

Json = dict[str, Any]
NO_MANIFEST = (
    "this option has no Kubernetes manifest: the catalog does not know how to start its framework in a pod on this "
    "accelerator. Choose another option"
)


@cache
def facts() -> Json:
    """What other systems call things (fixtures/exports.yaml)."""
    return dict(yaml.safe_load((FIXTURES / "exports.yaml").read_text(encoding="utf-8")))


@dataclass(frozen=True, kw_only=True, slots=True)
class Pool:
    """Equal replicas. Containers, in which $ is $$, are of the first host and, if there are more, of each other one."""

    role: str  # prefill or decode; empty: there is one pool
    name: str
    replicas: int
    hosts: int  # of each replica
    argv: list[str]  # of a replica, as a shell starts it
    containers: list[Json]
    volumes: list[Json]
    config_maps: list[Json]
    notes: list[str]  # the manifest's own comments

    @property
    def resource(self) -> str:
        """What Kubernetes calls the accelerator; empty: a processor."""
        return next(iter(self.containers[0].get("resources", {}).get("limits", {})), "")

    @property
    def devices(self) -> int:
        """On each host, as Kubernetes counts them."""
        return int(self.containers[0].get("resources", {}).get("limits", {}).get(self.resource, 0))

    @property
    def files(self) -> dict[str, str]:
        """What the command reads, by name."""
        return {name: text for each in self.config_maps for name, text in each["data"].items()}


def refused(system: str, why: str) -> Http404:
    return Http404(f"{facts()[system]['release']} cannot run this option: {why}.")


def option_of(answer: Answer, rank: int, system: str) -> Option:
    """The serving deployment of this rank. Http404: there is none, or it is a training run."""
    option = chosen(answer, rank)
    if not isinstance(option, Option):
        raise refused(system, "it is a training run, which has its own launch files")
    return option


def pools_of(option: Option, system: str) -> list[Pool]:
    """The pools of an option, decode first. Http404: it has no manifest."""
    roles = {"decode": "", "prefill": "-prefill"} if option.disaggregated else {"": ""}
    return [_pool(role, option.launch.files, ending, system) for role, ending in roles.items()]


def _pool(role: str, files: Mapping[str, str], ending: str, system: str) -> Pool:
    text, script = files.get(f"kubernetes{ending}.yaml"), files.get(f"serve{ending}.sh")
    if not text or not script:
        raise refused(system, NO_MANIFEST)
    *maps, workload, _ = [each for each in yaml.load_all(text, yaml.CSafeLoader) if each]
    spec = workload["spec"]
    group = spec.get("leaderWorkerTemplate")
    pods = [group["leaderTemplate"], group["workerTemplate"]] if group else [spec["template"]]
    return Pool(
        role=role,
        name=workload["metadata"]["name"],
        replicas=spec["replicas"],
        hosts=group["size"] if group else 1,
        argv=shlex.split(script.partition("\nexec ")[2]),
        containers=[pod["spec"]["containers"][0] for pod in pods],
        volumes=pods[0]["spec"]["volumes"],
        config_maps=maps,
        notes=[line[2:] for line in text.partition("---")[0].splitlines() if line.startswith("# ")][1:],
    )


def without(container: Json, *keys: str) -> Json:
    return {key: value for key, value in container.items() if key not in keys}


def started(container: Json) -> list[str]:
    """The words that start a container; those of an image's own entrypoint come before."""
    return list(container.get("command") or container["args"])


def rule_of(option: Option, system: str) -> Json:
    """What a system knows of the option's framework. Http404: it does not start it."""
    rules: Json = facts()[system]["frameworks"]
    if option.framework not in rules:
        raise refused(system, f"it starts {' and '.join(rules)}, not {option.framework}")
    return dict(rules[option.framework])


def translated(argv: list[str], rule: Json, system: str) -> tuple[str, list[str]]:
    """The model and the other options of a command, as a system takes them. Http404: it has no such option."""
    start = rule["starts"].split()
    words, model = argv[:], ""
    while words and (words[0] == "env" or "=" in words[0]):
        del words[0]
    if words[: len(start)] != start:
        raise refused(system, f"its command does not begin with {rule['starts']}")
    words = words[len(start) :]
    if not words[0].startswith("-"):
        model = words.pop(0)
    if missing := [word for word in words if word in rule.get("refuses", ())]:
        raise refused(system, f"it has no equivalent of {missing[0]}")
    kept: list[str] = []
    while words:
        word = words.pop(0)
        if word in (drops := rule.get("drops", {})):
            del words[: drops[word]]
        else:
            kept.append(rule.get("renames", {}).get(word, word))
    return model, kept


def value_of(argv: list[str], flag: str) -> str:
    """The value of an option; empty: the command does not have it."""
    return argv[len(argv) - argv[::-1].index(flag)] if flag in argv else ""


def escaped(words: Iterable[str]) -> list[str]:
    """Words of a container: Kubernetes substitutes variables after a single dollar sign."""
    return [word.replace("$", "$$") for word in words]


def document(option: Option | TrainingOption, system: str, notes: Iterable[str], *objects: Json) -> str:
    """YAML of several objects, with comments at the top."""
    lines = [f"{option.label}, {option.framework} {option.framework_version}", f"for {facts()[system]['release']}"]
    lines += ["replace the text in < >"] if any("<" in str(each) for each in objects) else []
    head = "".join(f"# {printable(line)}\n" for line in (*lines, *notes))
    return head + "---\n".join(("", *map(yaml_text, objects)))
