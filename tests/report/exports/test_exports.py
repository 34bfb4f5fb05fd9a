"""Files for KServe, llm-d, Dynamo and SkyPilot: valid by the released schemas, and the option's own figures and flags.

schemas/ holds the structure of each released schema without its descriptions; `$comment` says where it is from.
"""

import json
import random
import re
import shlex
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from django.http import Http404
from django.test import Client

from advisor.answer.options import launch_flags
from advisor.engine.launch.command import launch
from advisor.engine.search import Question
from advisor.engine.search.run import search
from advisor.engine.search.simulated import Pools, Scored
from advisor.report.documents.exports import EXPORTS, can_export
from advisor.report.documents.exports.pods import facts
from advisor.result import Answer
from tests import sample_advice, sample_training
from tests.engine.catalog_sample import BF16, FP8, INT4, LLAMA_8B, catalog, question, reached, shipped, software
from tests.engine.launch.test_launch import under
from tests.engine.optimisation.test_ablation import NGRAMS

Json = dict[str, Any]
SCHEMAS = Path(__file__).parent / "schemas"
FILES = {
    "InferenceService": "kserve-inference-service",
    "LLMInferenceService": "kserve-llm-inference-service",
    "DynamoGraphDeployment": "dynamo-graph-deployment",
    "llm-d.yaml": "llm-d-modelservice",
    "skypilot.yaml": "skypilot-task",
}
CHIPS = ("h100-sxm", "h100-sxm", "h200-sxm", "b200", "a10g", "l40s", "mi300x", "gaudi3", "tpu-v5e", "tpu-v6e",
         "trainium1", "ascend-910b", "xeon-6980p", "npu-laptop-40tops")  # fmt: skip
SELLERS = (("aws", "p5.48xlarge", "us-east-1"), ("lambda", "gpu_8x_h100_sxm5", "any"), ("own", "a server", "own-site"),
           ("runpod", "H100 SXM secure (per GPU)", "any"), ("gcp", "v6e-8", "us-east5"), ("akash", "a host", "any"),
           ("coreweave", "hgx-h100", "us"), ("nebius", "HGX H200 (per GPU)", "eu-north1"))  # fmt: skip
NAMES = ("org/model", "org/model'; rm -rf x #\n$(reboot)", '$(LWS_LEADER_ADDRESS) @ "`id`" {{x}}', "é 🚀\n--port 1")
STARTED = sorted(slug for slug, row in shipped().items() if row["launch"])
SIZES = (1, 1, 2, 4, 8)
ASKED = 150


@cache
def validator(name: str) -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator(json.loads((SCHEMAS / f"{FILES[name]}.json").read_text()))


@pytest.fixture(scope="module")
def best() -> Scored:
    return search(Question(question(), catalog())).ranked[0]


@cache
def maker(slug: str) -> Json:
    row = yaml.safe_load((launch_flags.FOLDER.parent / "accelerators" / f"{slug}.yaml").read_text())
    return {"vendor": row["vendor"], "kind": row["kind"]}


def deployment(best: Scored, rng: random.Random, **given: Any) -> Scored:
    """A random layout, format, chip, framework and number of replicas; `given` of these is fixed."""
    pick = {
        "framework": rng.choice(("vllm", "vllm", "sglang", "tensorrt-llm", "vllm-tpu", rng.choice(STARTED))),
        "slug": rng.choice(CHIPS), "tp": rng.choice(SIZES), "pp": rng.choice((1, 1, 2)), "dp": rng.choice((1, 1, 2, 8)),
        "quantization": rng.choice((BF16, FP8, INT4)), "kv_dtype": rng.choice(("bf16", "fp8")),
        "replicas": rng.randint(1, 9), "pools": rng.random() < 0.3, "hosts_of": 8,
    } | given  # fmt: skip
    base = best.lane.choice.accelerator
    a = replace(reached(base, pick["slug"], chips_per_host=pick["hosts_of"]), slug=pick["slug"], **maker(pick["slug"]))
    layout = {"ep": pick["dp"]} | {name: pick[name] for name in ("tp", "pp", "dp", "kv_dtype")}
    s = under(best, pick["framework"], pick["quantization"], accelerator=a, **layout)
    if rng.random() < 0.2:
        s = replace(s, lane=replace(s.lane, draft=NGRAMS))
    if pick["pools"]:
        prefill = rng.randint(1, 3)
        pools = Pools(prefill_replicas=prefill, decode_replicas=pick["replicas"], transfer_s=0.1)
        return replace(s, replicas=pick["replicas"] + prefill, pools=pools)
    return replace(s, replicas=pick["replicas"])


def answer_of(s: Scored, name: str = "org/model", seller: tuple[str, str, str] = SELLERS[0], **more: Any) -> Answer:
    """An answer whose only option is this deployment, with the engine's own launch."""
    c, made = s.lane.choice, launch(name, s, LLAMA_8B, question())
    chips, pool = c.tp * c.pp * c.dp, {"tp": c.tp, "pp": c.pp, "ep": c.ep, "dp": c.dp}
    two = s.pools and {
        "prefill": {"replicas": s.pools.prefill_replicas, **pool},
        "decode": {"replicas": s.pools.decode_replicas, **pool},
        "kv_transfer_s": 0.1,
    }
    each = 1 if "per GPU" in seller[1] else 8
    option = sample_advice.option(1, c.accelerator.slug, c.accelerator.name, "measured", 1.0, 1.0, 1.0) | pool | {
        "framework": s.lane.framework.slug, "framework_version": s.lane.framework.version, "replicas": s.replicas,
        "accelerator_count": chips * s.replicas, "provider": seller[0], "instance": seller[1], "region": seller[2],
        "instances": -(-chips * s.replicas // each), "disaggregated": two,
        "launch": {"command": made["command"], "files": made["files"]}, **more,
    }  # fmt: skip
    return Answer.read({**sample_advice.result(), "recommendations": [option]})


def read(text: str, name: str) -> Iterator[tuple[str, Json]]:
    """(kind of schema, object) of a file, without its ConfigMaps."""
    for each in yaml.load_all(text, yaml.CSafeLoader):
        if each and each.get("kind") != "ConfigMap":
            yield each.get("kind") or name, each


def faults(text: str, name: str) -> list[str]:
    return [e.json_path + e.message for kind, each in read(text, name) for e in validator(kind).iter_errors(each)]


def exports(answer: Answer, rank: int = 1) -> Iterator[tuple[str, str]]:
    for name, (_, make) in EXPORTS.items():
        with suppress(Http404):
            yield name, str(make(answer, rank))


def limits(container: Json) -> int:
    return sum(container.get("resources", {}).get("limits", {}).values())


def devices(name: str, document: Json) -> int:
    """The accelerators of a file: replicas times hosts times those of a container."""
    spec = document.get("spec", {})
    if document.get("kind") == "InferenceService":
        return spec["predictor"]["minReplicas"] * limits(spec["predictor"]["containers"][0])
    if document.get("kind") == "LLMInferenceService":
        return sum(
            work["replicas"]
            * (work["parallelism"].get("data", 1) // work["parallelism"].get("dataLocal", 1))
            * limits(work["template"]["containers"][0])
            for work in (spec, spec.get("prefill"))
            if work
        )
    if document.get("kind") == "DynamoGraphDeployment":
        return sum(
            each["replicas"] * each.get("multinode", {}).get("nodeCount", 1)
            * limits(each["podTemplate"]["spec"]["containers"][0])
            for each in spec["components"]
        )  # fmt: skip
    if name == "llm-d.yaml":
        return sum(
            work["replicas"] * work["parallelism"]["workers"] * limits(work["containers"][0])
            for work in (document["decode"], document["prefill"])
            if work["create"]
        )
    raise AssertionError(document)


def words_of(name: str, text: str) -> Iterator[list[str]]:
    """The words after which a framework's options stand, of every container of a file."""
    if name == "skypilot.yaml":
        yield re.sub(r"[;&]", " ", yaml.safe_load(text)["run"]).split("\n")
        return
    for _, each in read(text, name):
        for container in containers(each):
            yield [*container.get("command", []), *container.get("args", [])]


def containers(node: Any) -> Iterator[Json]:
    if isinstance(node, dict):
        yield from node.get("containers", [])
        for value in node.values():
            yield from containers(value)
    elif isinstance(node, list):
        for value in node:
            yield from containers(value)


def test_many_options_are_valid_have_their_own_figures_and_flags_of_the_release(best: Scored) -> None:
    rng, made = random.Random(20261128), {name: 0 for name in EXPORTS}
    kinds: set[str] = set()
    for _ in range(ASKED):
        s = deployment(best, rng)
        answer = answer_of(s, rng.choice(NAMES), rng.choice(SELLERS))
        option, a = answer.machines[0], s.lane.choice.accelerator
        for name, text in exports(answer):
            assert faults(text, name) == [], (name, option.label, text)
            for kind, each in read(text, name):
                kinds.add(kind)
                if name != "skypilot.yaml":
                    planned = option.accelerator_count * a.kubernetes_devices * (a.kind != "cpu")
                    assert devices(name, each) == planned, (name, text)
            made[name] += 1
    assert min(made.values()) > ASKED / 12 and kinds == set(FILES), (made, kinds)


@pytest.mark.parametrize("framework", ["vllm", "sglang", "tensorrt-llm"])
@pytest.mark.parametrize("pools", [False, True])
def test_every_flag_is_known_to_the_release_that_takes_it(best: Scored, framework: str, pools: bool) -> None:
    flags = software(framework)["flags"]
    known = {n for stem in (*flags.lists, *filter(None, [flags.nearest])) for n in launch_flags.options(stem).names}
    backend = {"tensorrt-llm": "trtllm"}.get(framework, framework)
    of_dynamo = set(launch_flags.options(f"dynamo-{backend}-1.6.1").names)
    rng = random.Random(7)
    for _ in range(20):
        s = deployment(best, rng, framework=framework, slug="h100-sxm", pools=pools)
        for name, text in exports(answer_of(s)):
            # of TensorRT-LLM, Dynamo has its own options alone
            allowed = of_dynamo | (set() if backend == "trtllm" else known) if name == "dynamo.yaml" else known
            for words in words_of(name, text):
                given = [w for each in words for w in (shlex.split(each) if " " in each else [each])]
                found = {w for w in given if re.fullmatch(r"--[a-z][a-z_-]+", w)} - {"--head", "--block", "--address"}
                assert found <= allowed, (name, found - allowed)


def test_a_plan_reads_back_from_each_file(best: Scored) -> None:
    s = deployment(best, random.Random(1), framework="vllm", slug="h100-sxm", tp=2, pp=1, dp=1, replicas=4, pools=False,
                   quantization=BF16, kv_dtype="fp8", hosts_of=8)  # fmt: skip
    made = dict(exports(answer_of(s)))
    version = s.lane.framework.version
    assert set(made) == set(EXPORTS)
    for name, text in made.items():
        words = [w for each in words_of(name, text) for line in each for w in shlex.split(line, comments=True)]
        if name != "kserve.yaml":
            assert version in text
        for flag, value in {
            "--tensor-parallel-size": "2", "--max-num-seqs": "12", "--kv-cache-dtype": "fp8",
            "--max-num-batched-tokens": str(s.lane.max_batched_tokens), 
            "--gpu-memory-utilization": f"{s.lane.framework.memory_fraction:g}",
        }.items():  # fmt: skip
            assert words[words.index(flag) + 1] == value, (name, flag)
    cluster = yaml.safe_load(made["skypilot.yaml"])
    assert cluster["resources"]["infra"] == "aws/us-east-1" and cluster["num_nodes"] == 1
    assert cluster["resources"]["instance_type"] == "p5.48xlarge" and "0,1 2,3 4,5 6,7" in cluster["run"]
    assert cluster["resources"]["image_id"] == f"docker:vllm/vllm-openai:v{version}"


def test_pools_are_components_with_their_own_roles(best: Scored) -> None:
    s = deployment(best, random.Random(1), framework="vllm", slug="h100-sxm", tp=8, pp=1, dp=1, replicas=3, pools=True)
    made = dict(exports(answer_of(s)))
    assert set(made) == {"kserve.yaml", "llm-d.yaml", "dynamo.yaml"}
    ((_, graph),) = read(made["dynamo.yaml"], "dynamo.yaml")
    roles = {each["type"]: each["replicas"] for each in graph["spec"]["components"]}
    assert s.pools is not None
    assert roles == {"frontend": 1, "decode": 3, "prefill": s.pools.prefill_replicas}
    ((_, values),) = read(made["llm-d.yaml"], "llm-d.yaml")
    decode, prefill = (values[pool]["containers"][0] for pool in ("decode", "prefill"))
    assert "8200" in decode["command"] and "8000" in prefill["command"] and values["routing"]["proxy"]["enabled"]
    assert decode["readinessProbe"]["httpGet"]["port"] == decode["ports"][0]["containerPort"] == 8200
    ((kind, service),) = read(made["kserve.yaml"], "kserve.yaml")
    assert kind == "LLMInferenceService" and service["spec"]["prefill"]["replicas"] == s.pools.prefill_replicas
    for pool in (decode, prefill, *containers(service)):
        assert "VLLM_NIXL_SIDE_CHANNEL_HOST" in {each["name"] for each in pool["env"]}


@pytest.mark.parametrize(
    ("system", "given", "seller", "why"),
    [
        ("dynamo", {"slug": "mi300x", "framework": "vllm"}, SELLERS[2], "nvidia.com/gpu"),
        ("dynamo", {"slug": "tpu-v6e", "framework": "vllm-tpu"}, SELLERS[4], "not vllm-tpu"),
        ("llm-d", {"slug": "h100-sxm", "framework": "tensorrt-llm"}, SELLERS[2], "not tensorrt-llm"),
        ("kserve", {"slug": "npu-laptop-40tops", "framework": "vllm"}, SELLERS[2], "no Kubernetes manifest"),
        ("kserve", {"slug": "h100-sxm", "framework": "vllm", "tp": 8, "pp": 2}, SELLERS[2], "data-parallel"),
        ("skypilot", {"slug": "h100-sxm", "framework": "vllm"}, SELLERS[5], "no cloud akash"),
        ("skypilot", {"slug": "gaudi3", "framework": "vllm-gaudi"}, SELLERS[2], "no name for gaudi3"),
        ("skypilot", {"slug": "h100-sxm", "framework": "vllm", "pools": True}, SELLERS[2], "prefill and decode"),
    ],
)
def test_what_a_system_cannot_run_is_refused_with_the_reason(
    best: Scored, system: str, given: Json, seller: tuple[str, str, str], why: str
) -> None:
    plan = {"tp": 1, "pp": 1, "dp": 1, "pools": False} | given
    answer = answer_of(deployment(best, random.Random(1), **plan), seller=seller)
    assert not can_export(answer, f"{system}.yaml", 1)
    with pytest.raises(Http404, match=why):
        EXPORTS[f"{system}.yaml"][1](answer, 1)


@pytest.mark.parametrize(("chips", "topology"), [(1, "1x1"), (8, "2x4"), (2, "<topology of the slice>")])
def test_a_pod_on_a_slice_asks_for_its_nodes(best: Scored, chips: int, topology: str) -> None:
    s = deployment(best, random.Random(1), framework="vllm-tpu", slug="tpu-v6e", tp=chips, pp=1, dp=1, pools=False)
    made = dict(exports(answer_of(s, seller=SELLERS[4])))
    nodes = {"cloud.google.com/gke-tpu-accelerator": "tpu-v6e-slice", "cloud.google.com/gke-tpu-topology": topology}
    ((_, service),) = read(made["kserve.yaml"], "kserve.yaml")
    ((_, values),) = read(made["llm-d.yaml"], "llm-d.yaml")
    assert service["spec"]["predictor"]["nodeSelector"] == values["decode"]["nodeSelector"] == nodes
    assert values["accelerator"] == {"type": "google", "resources": {"google": "google.com/tpu"}}
    assert ("skypilot.yaml" in made) is (chips != 2)  # there is no slice of two
    if chips != 2:
        resources = yaml.safe_load(made["skypilot.yaml"])["resources"]
        assert resources["accelerators"] == f"tpu-v6e-{chips}" and resources["infra"] == "gcp/us-east5"


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("pp", [1, 2])
def test_a_shell_gets_the_words_of_the_command_whatever_the_model_is_called(
    best: Scored, name: str, pp: int, tmp_path: Path
) -> None:
    """The script of a task, run with a server that writes down its words: on the first host and on another."""
    s = deployment(best, random.Random(3), framework="vllm", slug="h100-sxm", tp=8, pp=pp, dp=1, replicas=2,
                   pools=False, quantization=BF16, kv_dtype="bf16")  # fmt: skip
    answer = answer_of(s, name, SELLERS[2])
    task = yaml.safe_load(str(EXPORTS["skypilot.yaml"][1](answer, 1)))
    assert task.get("num_nodes", 1) == pp and task["service"]["replicas"] == 2
    server = tmp_path / "vllm"
    server.write_text('#!/bin/sh\nprintf "%s\\0" vllm "$@"\n')
    server.chmod(0o755)
    for rank in range(pp):
        host = {
            "PATH": f"{tmp_path}:/usr/bin:/bin",
            "SKYPILOT_NODE_RANK": str(rank),
            "SKYPILOT_NODE_IPS": "10.0.0.1\n2",
        }
        said = subprocess.run(["bash", "-c", task["run"]], capture_output=True, text=True, timeout=30, env=host).stdout
        planned = shlex.split(answer.machines[0].launch.command)
        if pp > 1:
            planned = [w.replace("<address of the first host>", "10.0.0.1") for w in planned]
            planned[len(planned) - planned[::-1].index("--node-rank")] = str(rank)
            planned += ["--headless"] * rank
        assert said.split("\0")[:-1] == planned


def test_the_servers_of_a_shared_machine_get_their_own_accelerators_and_ports(best: Scored, tmp_path: Path) -> None:
    s = deployment(best, random.Random(1), framework="vllm", slug="h100-sxm", tp=2, pp=1, dp=1, replicas=7, pools=False)
    task = yaml.safe_load(str(EXPORTS["skypilot.yaml"][1](answer_of(s), 1)))
    assert task["num_nodes"] == 2 and "service" not in task
    server = tmp_path / "vllm"
    server.write_text('#!/bin/sh\necho "$CUDA_VISIBLE_DEVICES $*" | sed "s/--host.*--port/at/;s/ --tensor.*//"\n')
    server.chmod(0o755)
    found = []
    for rank in range(2):
        host = {"PATH": f"{tmp_path}:/usr/bin:/bin", "SKYPILOT_NODE_RANK": str(rank)}
        said = subprocess.run(["bash", "-c", task["run"]], capture_output=True, text=True, timeout=30, env=host).stdout
        found.append(sorted(said.splitlines()))
    all_four = [f"{2 * i},{2 * i + 1} serve org/model at {8000 + i}" for i in range(4)]
    assert found == [all_four, all_four[:3]]


@pytest.mark.django_db
def test_a_file_is_a_document_over_rest_on_a_page_and_by_link(client: Client, best: Scored) -> None:
    s = deployment(best, random.Random(1), framework="vllm", slug="h100-sxm", tp=8, pp=1, dp=1, replicas=2, pools=False)
    answer = answer_of(s)
    advice = sample_advice.advice(answer.to_json())
    for name in EXPORTS:
        for base in ("/api/v1/advice", "/advice"):
            found = client.get(f"{base}/{advice.pk}/documents/{name}?rank=1")
            assert found.status_code == 200 and found["Content-Type"].startswith("application/yaml")
            assert found["Content-Disposition"].startswith("attachment") and faults(found.content.decode(), name) == []


@pytest.mark.django_db
def test_a_file_that_cannot_be_is_a_problem_with_the_reason(client: Client, best: Scored) -> None:
    s = deployment(best, random.Random(1), framework="sglang", slug="mi300x", tp=8, pp=1, dp=1, replicas=2, pools=False)
    advice = sample_advice.advice(answer_of(s, seller=SELLERS[5]).to_json())
    for name, why in (("dynamo.yaml", "nvidia.com/gpu"), ("skypilot.yaml", "no cloud akash")):
        found = client.get(f"/api/v1/advice/{advice.pk}/documents/{name}")
        assert found.status_code == 404 and found["Content-Type"] == "application/problem+json"
        assert why in found.json()["detail"]


@pytest.mark.django_db
@pytest.mark.usefixtures("frozen")
def test_a_training_run_is_a_task_on_as_many_accelerators_as_planned() -> None:
    made = 0
    for answer in (Answer.read(sample_training.result(name)) for name in ("pretrain", "weekly", "bought")):
        for run in answer.machines:
            found = dict(exports(answer, run.rank or 1))
            assert set(found) <= {"skypilot.yaml"}
            for text in found.values():
                task = yaml.safe_load(text)
                each = int(task["resources"]["accelerators"].partition(":")[2])
                assert faults(text, "skypilot.yaml") == [] and each * task["num_nodes"] == run.accelerator_count
                read_by_run = {name for name in run.launch.files if name.endswith((".py", ".yml", ".json"))}
                assert all(name in task["setup"] for name in {"prepare.sh", *read_by_run})
                assert subprocess.run(["bash", "-n", "-c", task["setup"] + task["run"]], timeout=30).returncode == 0
                made += 1
    assert made


def test_a_schema_refuses_what_it_does_not_know() -> None:
    """The stored structure is strict: an unknown field, a wrong type and a missing name are found."""
    for kind, each in (("InferenceService", {"spec": {"predictor": {"replicas": 1}}}),
                       ("LLMInferenceService", {"spec": {"model": {"uri": "hf://a"}, "template": {"container": []}}}),
                       ("DynamoGraphDeployment", {"spec": {"components": [{"type": "worker"}]}}),
                       ("llm-d.yaml", {"decode": {"replica": 1}}),
                       ("skypilot.yaml", {"resources": {"accelerator": "H100"}})):  # fmt: skip
        assert list(validator(kind).iter_errors(each)), kind


@pytest.mark.parametrize("engine", ["0.31.0", "0.99.0"])
def test_dynamo_is_told_its_version_where_the_tag_of_the_image_does_not_say_it(best: Scored, engine: str) -> None:
    s = deployment(best, random.Random(1), framework="vllm", slug="h100-sxm", tp=8, pp=1, dp=1, pools=False)
    answer = answer_of(s)
    option = answer.recommendations[0].changed(framework_version=engine)
    ((_, graph),) = read(str(EXPORTS["dynamo.yaml"][1](answer.changed(recommendations=[option]), 1)), "dynamo.yaml")
    frontend, worker = graph["spec"]["components"]
    images = [each["podTemplate"]["spec"]["containers"][0]["image"] for each in (frontend, worker)]
    assert images[0].endswith("vllm-runtime:1.6.1") and "runtimeVersionOverride" not in frontend
    assert (worker.get("runtimeVersionOverride") == "1.6.1") is (engine == "0.99.0") is images[1].startswith("<")


def test_a_file_says_how_to_start_it_and_to_keep_to_the_planned_accelerators(best: Scored) -> None:
    s = deployment(best, random.Random(1), framework="vllm", slug="h100-sxm", tp=8, pp=1, dp=1, replicas=2, pools=False)
    made = dict(exports(answer_of(s)))
    assert set(made) == set(EXPORTS)
    for name, text in made.items():
        head = [line for line in text.splitlines() if line.startswith("# ")]
        said = "sky serve up --secret HF_TOKEN" if name == "skypilot.yaml" else "add a nodeSelector for"
        assert any(said in line for line in head), head


def test_skypilot_knows_the_clouds_and_each_names_its_accelerators() -> None:
    known = facts()["skypilot"]
    clouds = {each["name"] for each in known["clouds"].values()}
    for cloud in clouds:
        assert list(validator("skypilot.yaml").iter_errors({"resources": {"infra": cloud}, "run": "true"})) == []
    named = {cloud for names in (*known["accelerators"].values(), *known["slices"].values()) for cloud in names}
    assert named == clouds


@pytest.mark.parametrize(
    ("slug", "seller", "instance"),
    [
        ("h200-sxm", ("mithril", "ccs-h200.sxm.8x", "us-central2-b"), "ccs-h200.sxm.8x"),
        ("b200", ("verda", "8B200.240V", "FIN-03"), "8B200.240V"),
        ("h200-sxm", ("verda", "2H200.141S.88V", "FIN-02"), ""),  # of two, where the plan has eight
        ("h100-sxm", ("verda", "NVIDIA H100 SXM5", "any"), ""),
    ],
)
def test_an_instance_type_is_passed_on_as_the_cloud_calls_it(
    best: Scored, slug: str, seller: tuple[str, str, str], instance: str
) -> None:
    s = deployment(best, random.Random(1), framework="vllm", slug=slug, tp=8, pp=1, dp=1, replicas=1, pools=False)
    answer = answer_of(s, seller=seller)
    if seller[1].startswith("2H200"):
        answer = answer.changed(recommendations=[answer.recommendations[0].changed(instances=4)])
    resources = yaml.safe_load(str(EXPORTS["skypilot.yaml"][1](answer, 1)))["resources"]
    region = f"/{seller[2]}" if seller[2] != "any" else ""
    assert resources["infra"] == f"{seller[0]}{region}" and resources.get("instance_type", "") == instance
    assert resources["accelerators"].endswith(":8")


def test_every_fact_of_another_system_names_its_source() -> None:
    for system, known in facts().items():
        assert known["source"] and known["as_of"] and known["basis"] in ("read", "mixed", "memory"), system
    assert set(facts()["skypilot"]["accelerators"]) <= {
        p.stem for p in launch_flags.FOLDER.parent.glob("accelerators/*")
    }
