"""Compose files and manifests of wide replicas say the words of the command, whatever the model is called."""

import re
import shlex
from dataclasses import replace
from typing import Any

import pytest
import yaml

from advisor.engine.launch.command import launch
from advisor.engine.search import Question
from advisor.engine.search.run import search
from advisor.engine.search.simulated import Pools, Scored
from tests.engine.catalog_sample import INT4, LLAMA_8B, catalog, question, reached
from tests.engine.launch.test_launch import under
from tests.engine.launch.test_manifests import NAMES, SERVED, files

LEADER, INDEX = "$(LWS_LEADER_ADDRESS)", "$(LWS_WORKER_INDEX)"


@pytest.fixture(scope="module")
def best() -> Scored:
    return search(Question(question(), catalog())).ranked[0]


def composed(word: str) -> str:
    """As Compose reads a value: `$$` is a dollar, any other one a variable, which must not be."""
    assert "$" not in word.replace("$$", "")
    return word.replace("$$", "$")


@pytest.mark.parametrize("framework", [f for f in SERVED if f not in ("vllm-gaudi", "neuron")])
@pytest.mark.parametrize("name", NAMES)
def test_a_container_starts_exactly_the_command(best: Scored, framework: str, name: str) -> None:
    words, found = files(name, under(best, framework, INT4))
    given = yaml.safe_load(found["compose.yaml"])
    assert set(given) == {"services", "volumes"}
    for service in given["services"].values():
        said = service.get("entrypoint") or [words[0], *service["command"]]
        assert [composed(word).removeprefix("/opt/assay/") for word in said] == words
        assert service["healthcheck"]["test"][-1] == "http://127.0.0.1:8000/health"
        assert service["environment"] == {"HF_TOKEN": None}  # never a value in the file


def test_replicas_on_one_host_have_chips_and_a_port_of_their_own(best: Scored) -> None:
    a = replace(best.lane.choice.accelerator, vendor="nvidia", kind="gpu", chips_per_host=8)
    s = replace(under(best, "vllm", accelerator=a, tp=2, pp=1, dp=1), replicas=3)
    services = yaml.safe_load(files("m", s)[1]["compose.yaml"])["services"]
    given = [s["deploy"]["resources"]["reservations"]["devices"][0]["device_ids"] for s in services.values()]
    assert given == [["0", "1"], ["2", "3"], ["4", "5"]]
    assert [s["ports"] for s in services.values()] == [["8000:8000"], ["8001:8000"], ["8002:8000"]]
    full = replace(s, replicas=9)
    assert len(yaml.safe_load(files("m", full)[1]["compose.yaml"])["services"]) == 4


@pytest.mark.parametrize(
    ("slug", "framework", "key", "value"),
    [
        ("mi300x", "vllm", "devices", ["/dev/kfd", "/dev/dri"]),
        ("gaudi3", "vllm-gaudi", "runtime", "habana"),
        ("trainium1", "neuron", "devices", ["/dev/neuron0", "/dev/neuron1"]),
        ("tpu-v5e", "vllm-tpu", "privileged", True),
    ],
)
def test_a_container_reaches_its_chips(best: Scored, slug: str, framework: str, key: str, value: Any) -> None:
    a = reached(best.lane.choice.accelerator, slug, chips_per_host=8)
    s = replace(under(best, framework, accelerator=a, tp=2, pp=1, dp=1), replicas=3)
    services = yaml.safe_load(files("m", s)[1]["compose.yaml"])["services"]
    assert list(services) == ["replica-1"] and services["replica-1"][key] == value


def test_no_compose_file_where_nothing_is_known_of_reaching_the_chip(best: Scored) -> None:
    a = reached(best.lane.choice.accelerator, "npu-laptop-40tops")
    assert "compose.yaml" not in files("m", under(best, "vllm", accelerator=a))[1]


def test_the_options_of_tensorrt_llm_are_beside_the_compose_file(best: Scored) -> None:
    words, found = files("m", under(best, "tensorrt-llm"))
    service = next(iter(yaml.safe_load(found["compose.yaml"])["services"].values()))
    bound = [v for v in service["volumes"] if v["type"] == "bind"]
    assert [(v["source"], v["target"]) for v in bound] == [
        ("./trtllm-options.yaml", "/opt/assay/trtllm-options.yaml"),
    ]
    assert service["entrypoint"][-1] == bound[0]["target"] and words[-1] in found


# --- a replica over several hosts -------------------------------------------------------------------------------


def wide(name: str, best: Scored, framework: str, **changed: Any) -> tuple[list[str], list[Any], dict[str, str]]:
    """The command, the manifest's objects and all files of 3 replicas of 4 hosts with 8 chips."""
    a = replace(best.lane.choice.accelerator, chips_per_host=8, **changed)
    s = replace(under(best, framework, tp=8, pp=4, dp=1, accelerator=a), replicas=3)
    found = launch(name, s, LLAMA_8B, question())
    objects = list(yaml.safe_load_all(found["files"].get("kubernetes.yaml", "")))
    return shlex.split(found["command"]), objects, found["files"]


def expanded(words: list[str], leader: str, index: int) -> list[str]:
    """As Kubernetes expands a command: `$$` is a dollar, $(NAME) a variable of the controller."""
    said = [re.sub(r"\$\$|\$\(LWS_LEADER_ADDRESS\)|\$\(LWS_WORKER_INDEX\)", _one(leader, index), w) for w in words]
    return said


def _one(leader: str, index: int) -> Any:
    given = {"$$": "$", LEADER: leader, INDEX: str(index)}
    return lambda match: given[match.group()]


@pytest.mark.parametrize("framework", ["vllm", "sglang"])
@pytest.mark.parametrize("name", NAMES)
def test_every_host_starts_its_script_s_command(best: Scored, framework: str, name: str) -> None:
    words, (group, service), found = wide(name, best, framework)
    assert (group["apiVersion"], group["kind"]) == ("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet")
    template = group["spec"]["leaderWorkerTemplate"]
    assert (group["spec"]["replicas"], template["size"]) == (3, 4)
    pods = [template["leaderTemplate"], *[template["workerTemplate"]] * 3]
    for rank, pod in enumerate(pods):
        script = found["serve.sh" if rank == 0 else f"serve-host-{rank + 1}.sh"].partition("\nexec ")[2]
        given = expanded(pod["spec"]["containers"][0]["command"], "<address of the first host>", rank)
        assert given == shlex.split(script)
        assert pod["spec"]["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": 8}
    labels = template["leaderTemplate"]["metadata"]["labels"]
    assert service["spec"]["selector"].items() <= labels.items()
    assert service["spec"]["selector"]["role"] != template["workerTemplate"]["metadata"]["labels"]["role"]


@pytest.mark.parametrize("name", NAMES)
def test_a_plugin_s_leader_is_the_head_of_a_ray_cluster(best: Scored, name: str) -> None:
    words, (group, _), _ = wide(name, best, "vllm-gaudi", vendor="intel", kind="npu")
    template = group["spec"]["leaderWorkerTemplate"]
    leader, worker = (template[f"{r}Template"]["spec"]["containers"][0] for r in ("leader", "worker"))
    said = expanded(leader["command"], "10.0.0.1", 0)
    assert said[:4] == ["/bin/sh", "-c", 'ray start --head --port 6379 && exec "$@"', "sh"] and said[4:] == words
    assert expanded(worker["command"], "10.0.0.1", 2) == ["ray", "start", "--address", "10.0.0.1:6379", "--block"]
    assert "readinessProbe" in leader and "readinessProbe" not in worker


@pytest.mark.parametrize("framework", ["tensorrt-llm", "llama.cpp"])
def test_no_manifest_where_nothing_is_known_of_how_it_spans_hosts(best: Scored, framework: str) -> None:
    assert "kubernetes.yaml" not in wide("m", best, framework)[2]


# --- two pools --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("framework", ["vllm", "sglang", "tensorrt-llm"])
@pytest.mark.parametrize("pp", [1, 4])
def test_each_pool_has_its_own_manifest_with_its_own_count_and_words(best: Scored, framework: str, pp: int) -> None:
    a = replace(best.lane.choice.accelerator, chips_per_host=8)
    s = under(best, framework, tp=8, pp=pp, dp=1, accelerator=a)
    s = replace(s, replicas=5, pools=Pools(prefill_replicas=2, decode_replicas=3, transfer_s=0.1))
    found = launch("org/model", s, LLAMA_8B, question())["files"]
    names = []
    for pool, count, ending in (("decode", 3, ""), ("prefill", 2, "-prefill")):
        words = shlex.split(found[f"serve{ending}.sh"].partition("\nexec ")[2])
        if framework == "tensorrt-llm" and pp > 1:
            assert f"kubernetes{ending}.yaml" not in found
            continue
        *_, workers, service = yaml.safe_load_all(found[f"kubernetes{ending}.yaml"])
        assert workers["spec"]["replicas"] == count and workers["metadata"]["name"].endswith(f"-{pool}")
        spec = workers["spec"]
        template = spec["template"] if pp == 1 else spec["leaderWorkerTemplate"]["leaderTemplate"]
        given = template["spec"]["containers"][0]["command"]
        same = [w.removeprefix("/opt/assay/") for w in expanded(given, "<address of the first host>", 0)]
        assert same == words
        names.append(service["metadata"]["name"])
        if pp == 1:
            assert f"compose{ending}.yaml" in found and f"{pool} replica" in found[f"assay-serve{ending}.service"]
    assert len(set(names)) == len(names)
