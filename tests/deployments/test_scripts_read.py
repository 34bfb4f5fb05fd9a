"""Scripts, units and manifests as people write them: commands in variables, arrays, units, one text; versions."""

import pytest

from advisor.deployments import DeploymentError, Given, read_files
from advisor.deployments.flags import framework_of_image

SERVE = "vllm serve Qwen/Qwen3-8B --tensor-parallel-size 2"
FOUND = {"model": "Qwen/Qwen3-8B", "tp": 2, "framework": "vllm"}
UNIT = "[Unit]\nDescription=x\n[Service]\nEnvironment=M=Qwen/Qwen3-8B\nExecStart=/opt/bin/vllm serve ${M} -tp 2\n"
POD = "apiVersion: v1\nkind: Pod\nspec:\n  containers:\n  - image: vllm/vllm-openai\n"
PIP = "      pip list  # before the server\n"
FORMS = {
    "array": "M=(\n  --model Qwen/Qwen3-8B  # yes\n  -tp 2\n)\npython3 -m vllm.entrypoints.openai.api_server "
    '"${M[@]}"\n',
    "variable": 'CMD="vllm serve Qwen/Qwen3-8B"\nCMD+=" -tp 2"\neval $CMD\n',
    "variable-again": 'CMD="vllm serve Qwen/Qwen3-8B"\nCMD="$CMD -tp 2"\nsrun $CMD\n',
    "variable-elsewhere": 'CMD="vllm serve Qwen/Qwen3-8B -tp 2"\ntmux send-keys -t x "run-it" C-m\n',
    "argument": f"#!/bin/sh\nM=${{1:-Qwen/Qwen3-8B}}\n{SERVE.replace('Qwen/Qwen3-8B', '$M')}\n",
    "unit": UNIT,
    "service-first": UNIT.split("x\n", 1)[1],
    "container-unit": "[Container]\nImage=docker.io/vllm/vllm-openai:latest\nExec=--model Qwen/Qwen3-8B -tp 2\n",
    "one-text": f"{POD}    command: [python3]\n    "
    'args: ["-m vllm.entrypoints.openai.api_server --model Qwen/Qwen3-8B -tp 2"]\n',
    "one-argument": f'{POD}    args: ["--model Qwen/Qwen3-8B -tp 2"]\n',
    "pod-script": f"{POD}    command: [bash, -exc]\n    args:\n    - |\n"
    + "      pip list  # before\n" * 40
    + f"      {SERVE}\n",
    "image-in-a-variable": "#!/bin/bash\nIMAGE=lmcache/vllm-openai:2025-05-27-v1\ndocker run --gpus all "
    '--shm-size="8g" \\\n  $IMAGE \\\n  Qwen/Qwen3-8B -tp 2\n',
    "one-container": "apiVersion: ome.io/v1beta1\nkind: ClusterServingRuntime\nspec:\n  engineConfig:\n    runner:\n"
    "      image: docker.io/vllm/vllm-openai:v0.11.0\n"
    "      args: [--model, $(MODEL_PATH), --served-model-name, Qwen/Qwen3-8B, -tp, 2]\n",
    "operator": "apiVersion: production-stack.vllm.ai/v1alpha1\nkind: VLLMRuntime\nspec:\n  model:\n"
    "    modelURL: Qwen/Qwen3-8B\n  vllmConfig: {tensorParallelSize: 2}\n"
    "  deploymentConfig: {replicas: 2, resources: {gpu: '2'}}\n",
    "heredoc": f"cat > run.sh <<'EOF'\n{SERVE}\nEOF\nsrun bash run.sh\n",
}


@pytest.mark.parametrize("text", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize("end", ["\n", "\r\n"], ids=["lf", "crlf"])
def test_the_same_server_in_every_form(text: str, end: str) -> None:
    (record,) = read_files([Given("given", text.replace("\n", end).encode())])
    said = record.settings.as_json()
    assert {key: said.get(key) for key in FOUND} == FOUND


@pytest.mark.parametrize(("header", "start", "accelerators"), [
    ("#SBATCH --nodes=1 --gres=gpu:a100:2", SERVE, 2), ("#SBATCH -N1 -G 2", SERVE, 2),
    ("#SBATCH --gpus-per-node h100:2", SERVE, 2), ("#SBATCH --time=1:00", f"srun --gres=gpu:2 {SERVE}", 2),
    ("export CUDA_VISIBLE_DEVICES=0,1", SERVE, 2), ("", "docker run --gpus 2 vllm/vllm-openai --model a/b", 2),
    ("", "docker run --gpus '\"device=0,3\"' vllm/vllm-openai --model a/b", 2),
])  # fmt: skip
def test_accelerators_of_a_job_or_container(header: str, start: str, accelerators: int) -> None:
    (record,) = read_files([Given("run.sh", f"#!/bin/bash\n{header}\n{start}\n".encode())])
    assert record.settings.accelerators == accelerators


@pytest.mark.parametrize(("image", "version"), [
    ("vllm/vllm-openai:v0.11.0", "0.11.0"), ("lmsysorg/sglang:v0.4.9.post2-cu126", "0.4.9.post2"),
    ("rocm/vllm:rocm6.4.1_vllm_0.10.1_20250909", "0.10.1"),
    ("ghcr.io/huggingface/text-generation-inference:3.3.4", "3.3.4"),
    ("vllm/vllm-openai@sha256:0.1", None), ("nvcr.io/nvidia/ai-dynamo/vllm-runtime:0.6.0", None),
    ("quay.io/modh/vllm:rhoai-2.20-cuda", None), ("ghcr.io/llm-d/llm-d-cuda:v0.3.0", None),
    ("kserve/huggingfaceserver:v0.15.2-gpu", None), ("nvcr.io/nvidia/vllm:25.09-py3", None),
])  # fmt: skip
def test_only_a_tag_that_counts_releases_of_the_server_is_its_version(image: str, version: str | None) -> None:
    assert framework_of_image(image)[1] == version


def test_pools_of_a_graph_stay_apart() -> None:
    worker = "{replicas: %d, extraPodSpec: {mainContainer: {image: x/vllm-runtime, "
    worker += "command: [python3, -m, dynamo.vllm], args: [--model, a/b]}}}"
    text = "apiVersion: v1\nkind: DynamoGraphDeployment\nspec:\n  services:\n"
    text += f"    VllmDecodeWorker: {worker % 1}\n    VllmPrefillWorker: {worker % 2}\n"
    found = [(r.settings.prefill_or_decode, r.settings.replicas) for r in read_files([Given("g.yaml", text.encode())])]
    assert found == [("decode", 1), ("prefill", 2)]


def test_a_template_is_told_from_a_broken_file() -> None:
    for text in ("{{- if .Values.enabled }}\napiVersion: v1\n", "\n{% for pool in pools %}\nkind: Pod\n"):
        with pytest.raises(DeploymentError, match="is a template: give what it renders to"):
            read_files([Given("deployment.yaml", text.encode())])
