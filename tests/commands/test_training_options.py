"""Every option in the launch files of a training plan stands in the list of the release that it is for."""

import ast
import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.core.management import CommandError, call_command

from advisor.engine.launch import LAUNCHERS, training_launch
from advisor.engine.training import Parallel, Run
from tests.engine.launch.training_plans import ADAPTERS, SHARDED, WIDE, place
from tests.laboratory.package_options import FOLDER, sources

LISTS = sorted(path.stem for path in FOLDER.glob("*.txt"))
BY_HAND = ("nxdt-2025",)  # no release is on PyPI
QLORA = replace(ADAPTERS, recipe=replace(ADAPTERS.recipe, method="qlora", adapter_matrices="query_value"))
FAST = replace(
    WIDE,
    recipe=replace(WIDE.recipe, matmul_dtype="fp8", state_bytes=4.0),
    parallel=Parallel(dp=8, tp=2, cp=2, ep=4, zero=1, shard=4, sequence_parallel=True),
    code=replace(WIDE.code, graphs="partial", exchange_overlap=True, loss="fused_linear"),
    recompute="full",
    offload="optimizer",
)
PLANS = {
    "wide": WIDE,
    "fast": FAST,
    "sharded": SHARDED,
    "muon": replace(SHARDED, recipe=replace(SHARDED.recipe, optimizer="muon")),
    "8-bit": replace(SHARDED, recipe=replace(SHARDED.recipe, optimizer="adamw_8bit"), offload="all"),
    "SGD": replace(SHARDED, recipe=replace(SHARDED.recipe, optimizer="sgd")),
    "graphs": replace(WIDE, code=replace(WIDE.code, graphs="full", context="gather"), recompute="none"),
    "offloaded": replace(SHARDED, offloaded_layers=8),
    "FSDP": replace(SHARDED, parallel=Parallel(dp=8, zero=3, shard=4), code=replace(SHARDED.code, loss="chunked")),
    "LoRA": ADAPTERS,
    "QLoRA": QLORA,
}
# Classes whose fields a class of Megatron-Bridge has from its bases.
BASES = {
    "GPTModelProvider": ("ModelProviderMixin", "TransformerConfig", "ModelParallelConfig"),
    "OptimizerConfig": ("OptimizerConfig",),
    "GPTDatasetConfig": ("GPTDatasetConfig", "BlendedMegatronDatasetConfig", "DataloaderConfig"),
}


@cache
def listed(stem: str) -> frozenset[str]:
    return frozenset(line for line in (FOLDER / f"{stem}.txt").read_text().splitlines() if not line.startswith("#"))


def files(framework: str, run: Run, **where: Any) -> dict[str, str]:
    vendor = {"maxtext": "google", "nxdt": "aws"}.get(framework, "nvidia")
    return training_launch(run, place(run, vendor, **where), framework).files


# --- lists ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stem", LISTS)
def test_a_list_says_its_release_its_day_and_the_command_that_wrote_it(stem: str) -> None:
    head = dict(
        line[2:].split(": ", 1) for line in (FOLDER / f"{stem}.txt").read_text().splitlines() if line.startswith("# ")
    )
    assert stem.endswith(head["version"]) and re.fullmatch(r"20\d\d-\d\d-\d\d", head["extracted on"])
    if stem in BY_HAND:
        assert head["command"].startswith("read by hand in the project's source")
        return
    name = stem.rsplit("-", 1)[0]
    assert name in sources() and head["command"].startswith(f"manage.py extract_training_options {name} ")
    assert head["version"] in head["command"]


def test_each_launcher_names_lists_of_the_versions_that_it_installs() -> None:
    for name, launcher in LAUNCHERS.items():
        assert launcher.options and set(launcher.options) <= set(LISTS)
        install = files(name, SHARDED)["prepare.sh"]
        for package, version in (stem.rsplit("-", 1) for stem in launcher.options if stem not in BY_HAND):
            assert f"=={version}" in install or package == "torchrun"


def test_the_command_writes_a_list_from_an_installed_package(tmp_path: Path) -> None:
    (tmp_path / "torch" / "distributed").mkdir(parents=True)
    (tmp_path / "torch" / "distributed" / "run.py").write_text('p.add_argument("--nnodes", help="not --this")\n')
    call_command("extract_training_options", "torchrun", str(tmp_path), "--release", "9.9", "--out", str(tmp_path))
    assert (tmp_path / "torchrun-9.9.txt").read_text().splitlines()[-1] == "--nnodes"


def test_a_package_without_the_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="run.py"):
        call_command("extract_training_options", "torchrun", str(tmp_path), "--release", "9.9", "--out", str(tmp_path))
    assert not list(tmp_path.glob("*.txt"))


# --- options ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("framework", LAUNCHERS)
@pytest.mark.parametrize("run", PLANS.values(), ids=PLANS)
def test_options_of_torchrun(framework: str, run: Run) -> None:
    vendor = {"maxtext": "google", "nxdt": "aws"}.get(framework, "nvidia")
    words = shlex.split(training_launch(run, place(run, vendor), framework).command)
    if words[0] == "torchrun":
        own = words[1 : words.index("--max-restarts") + 2]
        assert [word for word in own if word.startswith("--")] and not unknown(own)


def unknown(words: list[str]) -> list[str]:
    return [word for word in words if word.startswith("--") and word not in listed("torchrun-2.13.0")]


def nested(section: dict[str, Any], outer: str = "") -> Iterator[str]:
    for key, value in section.items():
        yield f"{outer}{key}"
        if isinstance(value, dict):
            yield from nested(value, f"{outer}{key}.")


@pytest.mark.parametrize("framework", ["axolotl", "deepspeed"])
@pytest.mark.parametrize("run", PLANS.values(), ids=PLANS)
def test_keys_of_axolotl(framework: str, run: Run) -> None:
    known = listed("axolotl-0.19.0")
    top = {name.partition(".")[2] for name in known}
    inside = {"fsdp_config": "FSDPConfig", "datasets": "SFTDataset"}
    values = yaml.safe_load(files(framework, run)["axolotl.yaml"])
    assert set(values) <= top
    for key, name in inside.items():
        for section in values.get(key, ()) if key == "datasets" else [values.get(key, {})]:
            assert {f"{name}.{k}" for k in section} <= known


@pytest.mark.parametrize("run", PLANS.values(), ids=PLANS)
def test_keys_of_deepspeed(run: Run) -> None:
    known = listed("deepspeed-0.18.9")
    values = json.loads(files("deepspeed", run)["ds_config.json"])
    assert set(values) <= known
    zero = values["zero_optimization"]
    assert {f"DeepSpeedZeroConfig.{key}" for key in zero} <= known
    for key, name in (("offload_optimizer", "Optimizer"), ("offload_param", "Param")):
        assert {f"DeepSpeedZeroOffload{name}Config.{k}" for k in zero.get(key, {})} <= known
    assert set(values["data_types"]) <= known and {f"DeepSpeedBF16Config.{k}" for k in values["bf16"]} <= known


@pytest.mark.parametrize("run", PLANS.values(), ids=PLANS)
def test_keys_of_maxtext(run: Run) -> None:
    assert set(nested(yaml.safe_load(files("maxtext", run)["maxtext.yml"]))) - {"base_config"} <= listed(
        "maxtext-0.2.5"
    )


@pytest.mark.parametrize("run", PLANS.values(), ids=PLANS)
def test_keys_of_nxd_training(run: Run) -> None:
    assert set(nested(yaml.safe_load(files("nxdt", run)["conf/plan.yaml"]))) <= listed("nxdt-2025")


@pytest.mark.parametrize("run", PLANS.values(), ids=PLANS)
@pytest.mark.parametrize("continued", [True, False])
def test_names_of_megatron_bridge(run: Run, continued: bool) -> None:
    given = files("megatron-bridge", run, continued=continued)
    known = listed("megatron-bridge-0.3.1") | listed("megatron-core-0.16.1")
    for file in ("train_megatron.py", "import_checkpoint.py"):
        assert [name for name in set_names(given.get(file, "")) if not any(n in known for n in of_bases(name))] == []


def of_bases(name: str) -> list[str]:
    owner, _, field = name.partition(".")
    return [name, *(f"{base}.{field}" for base in BASES.get(owner, ()))]


def set_names(script: str) -> Iterator[str]:
    """Class.keyword of each call, function.keyword, and Class.field of each assignment to the model or precision."""
    owners = {"model": "GPTModelProvider", "precision": "MixedPrecisionConfig"}
    for node in ast.walk(ast.parse(script)):
        if isinstance(node, ast.Call):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            yield from (f"{called}.{keyword.arg}" for keyword in node.keywords)
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Attribute):
            target = node.targets[0]
            yield f"{owners[getattr(target.value, 'id', '')]}.{target.attr}"
        if isinstance(node, ast.Attribute) and getattr(node.value, "id", "") == "AttnBackend":
            yield f"AttnBackend.{node.attr}"


def test_names_of_liger_and_torchao_in_our_script() -> None:
    known = listed("liger-kernel-0.8.5")
    given = files("fsdp2", SHARDED)
    plan = json.loads(given["plan.json"])
    assert {f"apply_liger_kernel_to_llama.{name}" for name in (*plan["liger"], "cross_entropy", "model")} <= known
    known = listed("torchao-0.18.0")
    assert {"convert_to_float8_training.module_filter_fn", "convert_to_float8_training.config"} <= known
    assert "from_recipe_name.recipe_name" in known and 'from_recipe_name("tensorwise")' in given["train_fsdp.py"]
    assert "Float8LinearRecipeName.TENSORWISE" in known


@pytest.mark.parametrize("framework", [name for name in LAUNCHERS if name != "nxdt"])
@pytest.mark.parametrize("file", ["jobset.yaml", "trainjob.yaml"])
def test_keys_of_manifests(framework: str, file: str) -> None:
    text = files(framework, SHARDED).get(file)
    if text is None:
        assert framework == "maxtext" and file == "trainjob.yaml"
        return
    _, job = yaml.safe_load_all(text)
    known = listed("kubeflow-trainer-api-2.3.0")
    assert [path for path in paths(job, job["kind"], known) if path not in known] == []


def paths(value: Any, outer: str, known: frozenset[str]) -> Iterator[str]:
    if isinstance(value, list):
        for item in value:
            yield from paths(item, outer, known)
    elif isinstance(value, dict) and f"{outer}.*" not in known:
        for key, inner in value.items():
            yield f"{outer}.{key}"
            yield from paths(inner, f"{outer}.{key}", known)


def test_an_invented_key_of_a_manifest_is_found() -> None:
    known = listed("kubeflow-trainer-api-2.3.0")
    job = {"kind": "JobSet", "spec": {"maxRestarts": 3}}
    assert [path for path in paths(job, "JobSet", known) if path not in known] == ["JobSet.spec.maxRestarts"]
