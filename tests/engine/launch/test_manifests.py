"""Manifests and units say the same words as the command, whatever the model is called."""

import re
import shlex
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from advisor.engine.launch.command import launch
from advisor.engine.launch.kubernetes import label, yaml_text
from advisor.engine.search import Question
from advisor.engine.search.run import search
from advisor.engine.search.simulated import Scored
from tests.engine.catalog_sample import FP8, INT4, LLAMA_8B, catalog, question, reached
from tests.engine.launch.test_launch import under

NAMES = (
    "org/model",
    "org/model'; rm -rf x #\n$(reboot)",
    "- a: [b]\n---\nkind: Pod",
    '"\\" %n %% $HOME $(HOME) $$ {{x}} \t\x85\u2028\x7f é 🚀',
    "[Service]\nExecStart=/bin/evil",
    "\n\n",
)
SERVED = ("vllm", "sglang", "tensorrt-llm", "llama.cpp", "vllm-gaudi", "neuron")


@pytest.fixture(scope="module")
def best() -> Scored:
    return search(Question(question(), catalog())).ranked[0]


def unit_words(line: str) -> list[str]:
    """The arguments of an ExecStart= line as systemd.service(5) describes their quoting."""
    words, rest = [], line
    while rest:
        if not rest.startswith('"'):
            word, _, rest = rest.partition(" ")
            words.append(word)
            continue
        match = re.match(r'"((?:[^"\\]|\\.)*)"(?: |$)', rest)
        assert match, rest
        rest = rest[match.end() :]
        words.append(unescaped(match.group(1)))
    return words


def unescaped(text: str) -> str:
    """Backslashes, then specifiers and variables: none may be left alone."""
    raw = re.sub(
        rb"\\(x[0-9a-f]{2}|.)",
        lambda m: bytes([int(m.group(1)[1:], 16)]) if m.group(1)[:1] == b"x" else m.group(1),
        text.encode(),
    ).decode()
    assert not re.search(r"%", raw.replace("%%", "")) and not re.search(r"\$", raw.replace("$$", ""))
    return raw.replace("%%", "%").replace("$$", "$")


def files(name: str, s: Scored, **asked: Any) -> tuple[list[str], dict[str, str]]:
    found = launch(name, s, LLAMA_8B, question(**asked))
    return shlex.split(found["command"]), found["files"]


@pytest.mark.parametrize("framework", SERVED)
@pytest.mark.parametrize("name", NAMES)
def test_a_unit_starts_exactly_the_command(best: Scored, framework: str, name: str) -> None:
    for quantization in (FP8, INT4):
        words, found = files(name, under(best, framework, quantization))
        unit = found["assay-serve.service"]
        starts = [line for line in unit.splitlines() if line.startswith("ExecStart")]
        assert len(starts) == 1 and unit.count("[Service]\n") == 1
        assert unit_words(starts[0].removeprefix("ExecStart=")) == ["/usr/bin/env", *words]


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="no systemd here")
@pytest.mark.parametrize("name", NAMES)
def test_systemd_itself_reads_the_unit_without_complaint(best: Scored, name: str, tmp_path: Path) -> None:
    unit = files(name, under(best, "vllm"))[1]["assay-serve.service"]
    broken = unit.replace('"vllm" "serve"', '"vllm" "serve', 1)
    for folder, text, is_sound in (("sound", unit, True), ("broken", broken, False)):
        path = tmp_path / folder / "assay-serve.service"
        path.parent.mkdir()
        path.write_text(text)
        said = subprocess.run(["systemd-analyze", "verify", str(path)], capture_output=True, text=True, timeout=60)
        about = [line for line in said.stderr.splitlines() if "assay-serve" in line]
        assert (said.returncode == 0 and not about) is is_sound, said.stderr


@pytest.mark.parametrize("framework", SERVED)
@pytest.mark.parametrize("name", NAMES)
def test_a_pod_starts_exactly_the_command(best: Scored, framework: str, name: str) -> None:
    words, found = files(name, under(best, framework, INT4))
    objects = list(yaml.safe_load_all(found["kubernetes.yaml"]))
    kinds = [o["kind"] for o in objects]
    assert kinds == (["ConfigMap"] if framework == "tensorrt-llm" else []) + ["Deployment", "Service"]
    container = objects[-2]["spec"]["template"]["spec"]["containers"][0]
    given = container.get("command") or [words[0], *container["args"]]
    said = [word.replace("$$", "$").removeprefix("/opt/assay/") for word in given]
    assert said == words and all("$" not in word.replace("$$", "") for word in given)


@pytest.mark.parametrize("name", NAMES)
def test_the_service_finds_its_pods_by_a_valid_label(best: Scored, name: str) -> None:
    _, found = files(name, under(best, "vllm"))
    deployment, service = yaml.safe_load_all(found["kubernetes.yaml"])
    spec = deployment["spec"]
    assert service["spec"]["selector"] == spec["selector"]["matchLabels"] == spec["template"]["metadata"]["labels"]
    assert re.fullmatch(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?", service["metadata"]["name"])
    assert service["spec"]["ports"][0]["targetPort"] == 8000


def test_a_name_longer_than_a_label_is_cut() -> None:
    assert len(label("x" * 300)) < 63 and label("é") == "assay-model"


@pytest.mark.parametrize(
    ("slug", "framework", "resource"),
    [
        ("h100-sxm", "vllm", "nvidia.com/gpu"),
        ("mi300x", "sglang", "amd.com/gpu"),
        ("gaudi3", "vllm-gaudi", "habana.ai/gaudi"),
        ("tpu-v5e", "vllm-tpu", "google.com/tpu"),
        ("trainium1", "neuron", "aws.amazon.com/neuron"),
    ],
)
def test_a_pod_asks_for_the_chips_of_one_replica(best: Scored, slug: str, framework: str, resource: str) -> None:
    a = reached(best.lane.choice.accelerator, slug, chips_per_host=8)
    s = replace(under(best, framework, accelerator=a, tp=4, pp=1, dp=1), replicas=3)
    deployment = list(yaml.safe_load_all(files("m", s)[1]["kubernetes.yaml"]))[-2]
    container = deployment["spec"]["template"]["spec"]["containers"][0]
    assert container["resources"]["limits"] == {resource: 4} and deployment["spec"]["replicas"] == 3
    assert container["readinessProbe"]["httpGet"] == {"path": "/health", "port": 8000}
    assert {"name": "shm", "mountPath": "/dev/shm"} in container["volumeMounts"]


def test_no_manifest_where_the_vendor_s_resource_is_not_known(best: Scored) -> None:
    a = reached(best.lane.choice.accelerator, "npu-laptop-40tops")
    assert "kubernetes.yaml" not in files("m", under(best, "vllm", accelerator=a))[1]


def test_a_package_of_two_devices_is_asked_for_as_two(best: Scored) -> None:
    a = reached(best.lane.choice.accelerator, "mi250x", chips_per_host=8)
    deployment = list(yaml.safe_load_all(files("m", under(best, "vllm", accelerator=a, tp=2))[1]["kubernetes.yaml"]))[
        -2
    ]
    limits = deployment["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]
    assert limits == {"amd.com/gpu": 4}


def test_the_options_of_tensorrt_llm_reach_its_pod(best: Scored) -> None:
    words, found = files("m", under(best, "tensorrt-llm"))
    config, deployment, _ = yaml.safe_load_all(found["kubernetes.yaml"])
    assert config["data"]["trtllm-options.yaml"] == found["trtllm-options.yaml"]
    container = deployment["spec"]["template"]["spec"]["containers"][0]
    assert container["command"][-1] == "/opt/assay/trtllm-options.yaml" and words[-1] == "trtllm-options.yaml"


@pytest.mark.parametrize("value", [{"a": [1, True, "x: y", {"b": ["c"]}]}, {"k/e.y": {"d": "no"}}, [["a"], {"b": "~"}]])
def test_the_yaml_reads_back(value: Any) -> None:
    assert yaml.safe_load(yaml_text(value)) == value
