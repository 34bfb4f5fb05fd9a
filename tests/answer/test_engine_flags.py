"""Every option of every launch stands in the list of its engine's release, and the lists say where they are from."""

import io
import re
import shlex
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from advisor.answer.options import launch_flags
from advisor.engine.launch.command import launch
from advisor.engine.network.hf_config import from_hf_config
from advisor.engine.network.model import Model
from advisor.engine.search import Question
from advisor.engine.search.run import search
from advisor.engine.search.simulated import Pools, Scored
from advisor.engine.step.drafts.speculative import Draft
from advisor.engine.step.media.encoder import normalize
from advisor.engine.terms.software import FlagLists
from tests.engine.catalog_sample import BF16, FP8, INT4, LLAMA_8B, catalog, question, reached, shipped, software
from tests.engine.launch.test_launch import under
from tests.engine.network.test_model_seq2seq import FLAN_XXL

STARTED = sorted(slug for slug, row in shipped().items() if row["launch"])
CHECKED = ("vllm", "sglang", "llama.cpp", "mlx", "vllm-tpu", "vllm-gaudi", "neuron")
LAYOUTS = [
    {"tp": 1, "pp": 1, "ep": 1, "dp": 1},
    {"tp": 8, "pp": 1, "ep": 8, "dp": 1},
    {"tp": 1, "pp": 1, "ep": 8, "dp": 8},
    {"tp": 8, "pp": 4, "ep": 1, "dp": 1},
]


def flags(slug: str) -> FlagLists:
    found: FlagLists = software(slug)["flags"]
    return found


@pytest.fixture(scope="module")
def best() -> Scored:
    return search(Question(question(), catalog())).ranked[0]


def launches(best: Scored, slug: str) -> list[tuple[str, dict[str, str]]]:
    """Many options under one framework: layouts, formats, hosts, chips, prefixes shared or not."""
    found = []
    features = tuple(shipped()[slug]["features"])
    for layout in LAYOUTS:
        for quantization in (BF16, FP8, INT4):
            for kv, kind in (("bf16", "gpu"), ("fp8", "gpu"), ("bf16", "cpu")):
                s = under(best, slug, quantization, kv_dtype=kv, **layout)
                a = replace(s.lane.choice.accelerator, kind=kind, chips_per_host=8)
                choice = replace(s.lane.choice, accelerator=a)
                s = replace(
                    s, lane=replace(s.lane, choice=choice, framework=replace(s.lane.framework, features=features))
                )
                asked = question(prefix_cache_hit_fraction=0.5 if kv == "fp8" else 0.0)
                given = launch("org/model", s, LLAMA_8B, asked)
                found.append((given["command"], given["files"]))
    return found


@pytest.mark.parametrize("slug", STARTED)
def test_every_flag_of_every_launch_is_in_the_list_of_the_release_or_says_unchecked(best: Scored, slug: str) -> None:
    facts, lists = software(slug)["launch"], flags(slug)
    for command, files in launches(best, slug):
        scripts = [text.partition("\nexec ")[2] for name, text in files.items() if name.endswith(".sh")]
        for line in [command, *scripts]:
            said = launch_flags.check(slug, lists, line, facts.template.launcher)
            assert said.unknown == []
            assert said.checked is bool(lists.lists) and said.source


def test_the_frameworks_that_most_advice_names_are_checked_at_the_catalog_s_version() -> None:
    assert all(software(slug)["flags"].lists for slug in CHECKED)


def test_an_invented_flag_is_named() -> None:
    said = launch_flags.check("vllm", flags("vllm"), "vllm serve m --port 8000 --make-it-fast --kv-cache-dtype=fp8")
    assert said.unknown == ["--make-it-fast"] and said.checked is False


def test_a_flag_must_stand_in_every_list() -> None:
    """A build between two releases is checked against both."""
    both = FlagLists(lists=("llama.cpp-0.3.16", "llama.cpp-0.3.17"), why="a build between them")
    sides = [launch_flags.options(stem).names for stem in both.lists]
    newer = sorted(flag for flag in sides[1] - sides[0] if flag.startswith("--"))[0]
    assert launch_flags.check("llama.cpp", both, f"llama-server {newer}").unknown == [newer]


def test_a_version_without_a_list_is_unchecked() -> None:
    said = launch_flags.check("vllm 9.9.9", FlagLists(), "vllm serve m --port 8000")
    assert said.checked is False and "no released package" in said.source


@pytest.mark.parametrize("path", sorted(launch_flags.FOLDER.glob("*.txt")), ids=lambda p: p.stem)
def test_a_list_says_its_release_its_day_and_the_command_that_wrote_it(path: Path) -> None:
    found = launch_flags.options(path.stem)
    assert path.stem.endswith(found.version) and re.fullmatch(r"20\d\d-\d\d-\d\d", found.extracted_on)
    assert len(found.names) > 10
    if path.stem in BY_HAND:
        assert found.command.startswith("read by hand in the project's source") and "/" in found.package
    else:
        assert found.command.startswith(f"manage.py extract_flags {path.stem.rsplit('-', 1)[0]} ")
        assert found.version in found.command


BY_HAND = {stem for slug in STARTED for stem in (flags(slug).nearest, flags(slug).options_file)}


@pytest.mark.parametrize("slug", ["tensorrt-llm", "tgi"])
def test_options_known_from_the_source_alone_are_compared_and_never_called_checked(slug: str) -> None:
    command = {"tensorrt-llm": "trtllm-serve m --tp_size 2", "tgi": "text-generation-launcher --model-id m"}[slug]
    said = launch_flags.check(slug, flags(slug), command)
    assert said.checked is False and said.unknown == [] and "all options are in the source of" in said.source
    said = launch_flags.check(slug, flags(slug), f"{command} --make-it-fast")
    assert said.checked is False and said.unknown == ["--make-it-fast"]


def test_slurm_s_own_options_are_not_the_server_s() -> None:
    command = "srun --nodes 2 --mpi pmix trtllm-llmapi-launch trtllm-serve m --tp_size 16"
    assert launch_flags.check("tensorrt-llm", flags("tensorrt-llm"), command, "trtllm-llmapi-launch").unknown == []


T5 = from_hf_config(FLAN_XXL, "t5")
ANY = Draft(
    method="eagle", name="any", tokens=3, accepted_fraction=0.6, shown_tokens=2.0, pass_fraction=0.1, head_bytes=0.0,
    task="any", source="sample",
)  # fmt: skip
DRAFTS = [replace(ANY, method=method) for method in ("eagle", "mtp", "ngram", "draft")]


@pytest.mark.parametrize("draft", [None, *DRAFTS], ids=lambda d: d.method if d else "none")
@pytest.mark.parametrize("model", [LLAMA_8B, T5], ids=["decoder", "encoder-decoder"])
def test_every_key_of_tensorrt_llm_s_options_stands_in_its_source(
    best: Scored, draft: Draft | None, model: Model
) -> None:
    s = under(best, "tensorrt-llm", kv_dtype="fp8", dp=4)
    s = replace(
        s, lane=replace(s.lane, draft=draft), pools=Pools(prefill_replicas=1, decode_replicas=1, transfer_s=0.1)
    )
    workload, posed_model = normalize(question(prefix_cache_hit_fraction=0.5), model)
    text = launch("m", s, posed_model, workload)["files"]["trtllm-options.yaml"]
    assert launch_flags.unknown_keys(flags("tensorrt-llm"), text) == []
    assert ("speculative_config" in text) is (draft is not None) and "cache_transceiver_config" in text


def test_a_key_that_the_source_does_not_have_is_named() -> None:
    text = "kv_cache_config: {dtype: fp8, d_type: fp8}\nenable_attention_tp: true\n"
    found = launch_flags.unknown_keys(flags("tensorrt-llm"), text)
    assert found == ["kv_cache_config.d_type", "enable_attention_tp"]


def wheel(folder: Path, files: dict[str, str]) -> Path:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    path = folder / "sglang-9.9-py3-none-any.whl"
    path.write_bytes(packed.getvalue())
    return path


def test_the_command_writes_a_list_from_a_wheel(tmp_path: Path) -> None:
    source = 'p.add_argument("--one", "-o", help="not --this")\nprint("--nor-that")\n'
    source += 'p.add_argument("--two", action=argparse.BooleanOptionalAction)\n'
    path = wheel(tmp_path, {"sglang/srt/server_args.py": source})
    call_command("extract_flags", "sglang", str(path), "--out", str(tmp_path))
    lines = (tmp_path / "sglang-9.9.txt").read_text().splitlines()
    assert [line for line in lines if line.startswith("-")] == ["--no-two", "--one", "--two", "-o"]


def test_fields_of_sglang_are_options_unless_they_say_otherwise(tmp_path: Path) -> None:
    fields = """
class Schedule:
    chunked_size: A[int, "help"] = 1
    tp_size: A[int, Arg(help="--no-such", cli_name="--tensor-size", aliases=["--tp"])] = 1
    hidden: A[bool, Arg(no_cli=True)] = False
    plain: int = 3
"""
    files = {"sglang/srt/server_args.py": 'p.add_argument("--one")', "sglang/srt/arg_groups/fields/s.py": fields}
    call_command("extract_flags", "sglang", str(wheel(tmp_path, files)), "--out", str(tmp_path))
    lines = (tmp_path / "sglang-9.9.txt").read_text().splitlines()
    assert [line for line in lines if line.startswith("-")] == ["--chunked-size", "--one", "--tensor-size", "--tp"]


def test_a_wheel_without_the_file_is_refused_and_nothing_written(tmp_path: Path) -> None:
    path = wheel(tmp_path, {"other.py": ""})
    with pytest.raises(CommandError, match="holds no sglang/srt/server_args.py"):
        call_command("extract_flags", "sglang", str(path), "--out", str(tmp_path))
    assert not list(tmp_path.glob("*.txt"))


# --- several hosts ----------------------------------------------------------------------------------------------


def spread(best: Scored, slug: str, **choice: Any) -> dict[str, str]:
    s = under(best, slug, tp=8, pp=4, **choice)
    a = replace(s.lane.choice.accelerator, chips_per_host=8)
    s = replace(s, lane=replace(s.lane, choice=replace(s.lane.choice, accelerator=a)))
    return launch("org/model", s, LLAMA_8B, question())["files"]


@pytest.mark.parametrize("slug", ["vllm", "sglang"])
def test_each_host_of_a_wide_replica_has_a_script_with_its_rank(best: Scored, slug: str) -> None:
    files = spread(best, slug)
    scripts = {name for name in files if name.endswith(".sh")}
    assert scripts == {"serve.sh", "serve-host-2.sh", "serve-host-3.sh", "serve-host-4.sh"}
    ranks = []
    for name in sorted(scripts, key=lambda n: (n != "serve.sh", n)):
        words = shlex.split(files[name].partition("\nexec ")[2])
        assert words[words.index("--nnodes") + 1] == "4"
        ranks.append(words[words.index("--node-rank") + 1])
        assert ("--headless" in words) is (slug == "vllm" and name != "serve.sh")
    assert ranks == ["0", "1", "2", "3"]


def test_tensorrt_llm_starts_one_rank_a_chip_under_slurm(best: Scored) -> None:
    words = shlex.split(spread(best, "tensorrt-llm")["serve.sh"].partition("\nexec ")[2])
    assert words[: words.index("trtllm-llmapi-launch")][1::2] == ["--nodes", "--ntasks", "--ntasks-per-node", "--mpi"]
    assert words[4] == "32" and words[6] == "8"


def test_a_plugin_of_an_older_vllm_spans_hosts_through_ray(best: Scored) -> None:
    script = spread(best, "vllm-gaudi")["serve.sh"]
    assert "--distributed-executor-backend ray" in script and "Ray cluster" in script


@pytest.mark.parametrize(("slug", "devices"), [("h100-sxm", 4), ("trainium2", 16), ("tpu-v7", 8), ("mi250x", 8)])
def test_ranks_are_counted_as_the_stack_counts_them(best: Scored, slug: str, devices: int) -> None:
    a = reached(best.lane.choice.accelerator, slug)
    words = shlex.split(launch("m", under(best, "vllm", accelerator=a, tp=4), LLAMA_8B, question())["command"])
    assert words[words.index("--tensor-parallel-size") + 1] == str(devices)


def test_furiosa_counts_processing_elements(best: Scored) -> None:
    a = reached(best.lane.choice.accelerator, "furiosa-rngd")
    words = shlex.split(launch("m", under(best, "furiosa-llm", accelerator=a, tp=2), LLAMA_8B, question())["command"])
    assert words[words.index("--tensor-parallel-size") + 1] == "16"
