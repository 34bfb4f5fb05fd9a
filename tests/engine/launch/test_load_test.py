"""The load test sends the load that was simulated: rate, lengths and shared prefixes, to one replica."""

import json
import random
import shlex
import statistics
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from advisor.answer.options import launch_flags
from advisor.engine.launch.command import launch
from advisor.engine.launch.load_generators import BLOCK_TOKENS
from advisor.engine.search import Question
from advisor.engine.search.run import search
from advisor.engine.search.simulated import Scored
from advisor.engine.terms.software import FlagLists
from advisor.engine.terms.workloads.kinds import BATCH, EMBEDDING, KINDS, Kind
from advisor.engine.terms.workloads.workload import Lengths
from tests.engine.catalog_sample import BF16, INT4, LLAMA_8B, catalog, question
from tests.engine.launch.test_launch import HOSTILE, option, under


@pytest.fixture(scope="module")
def best() -> Scored:
    return search(Question(question(), catalog())).ranked[0]


def of(s: Scored, name: str = "org/model", **asked: Any) -> tuple[dict[str, Any], dict[str, str]]:
    found = launch(name, s, LLAMA_8B, question(**asked))
    return dict(found["load_test"]), found["files"]


def trace(folder: Path, files: dict[str, str]) -> list[dict[str, Any]]:
    (folder / "load_trace.py").write_text(files["load_trace.py"])
    subprocess.run([sys.executable, "load_trace.py"], cwd=folder, check=True, timeout=60)
    return [json.loads(line) for line in (folder / "load_trace.jsonl").read_text().splitlines()]


def test_a_replica_gets_its_share_of_the_peak_without_the_spares(best: Scored) -> None:
    s = replace(under(best, "vllm"), replicas=5, spare_replicas=1)
    test, _ = of(s, requests_per_s_peak=12.0)
    assert test["requests_per_s"] == 3.0 and test["requests"] == 2000
    assert test["duration_s"] == pytest.approx(667, rel=0.01) and test["concurrency"] is None


def test_at_a_low_rate_fewer_requests_are_sent_yet_enough_for_a_p95(best: Scored) -> None:
    s = replace(under(best, "vllm"), replicas=1, spare_replicas=0)
    assert of(s, requests_per_s_peak=0.1)[0]["requests"] == 720
    assert of(s, requests_per_s_peak=0.001)[0]["requests"] == 200


def test_the_trace_has_the_predicted_rate_and_lengths(best: Scored, tmp_path: Path) -> None:
    """Bounds are four standard errors of 2,000 log-normal draws and more."""
    lengths = Lengths(mean_tokens=1000, p95_tokens=3000), Lengths(mean_tokens=200, p95_tokens=500)
    s = replace(under(best, "vllm"), replicas=1, spare_replicas=0)
    test, files = of(s, input_tokens=lengths[0], output_tokens=lengths[1], requests_per_s_peak=4.0)
    rows = trace(tmp_path, files)
    assert len(rows) == test["requests"] == 2000
    for key, wanted in zip(("input_length", "output_length"), lengths, strict=True):
        drawn = sorted(row[key] for row in rows)
        assert statistics.mean(drawn) == pytest.approx(wanted.mean_tokens, rel=0.13)
        assert drawn[1900] == pytest.approx(wanted.p95_tokens, rel=0.15)
    gaps = [b["timestamp"] - a["timestamp"] for a, b in zip(rows, rows[1:], strict=False)]
    assert statistics.mean(gaps) == pytest.approx(250, rel=0.1)
    assert statistics.stdev(gaps) == pytest.approx(250, rel=0.15)  # of arrivals at random


def test_the_trace_shares_the_part_of_prompts_that_was_taken_as_cached(best: Scored, tmp_path: Path) -> None:
    rows = trace(tmp_path, of(under(best, "vllm"), prefix_cache_hit_fraction=0.4)[1])
    seen: set[int] = set()
    cached = total = 0
    for row in rows:
        assert len(row["hash_ids"]) == -(-row["input_length"] // BLOCK_TOKENS)
        cached += BLOCK_TOKENS * len(seen & set(row["hash_ids"]))
        total += row["input_length"]
        seen |= set(row["hash_ids"])
    assert 0.35 < cached / total < 0.4


def test_no_request_of_the_trace_is_longer_than_the_server_takes(best: Scored, tmp_path: Path) -> None:
    s = under(best, "vllm")
    s = replace(s, memory=replace(s.memory, kv_capacity_tokens=1500.0))
    command, files = launch("m", s, LLAMA_8B, question())["command"], of(s)[1]
    most = int(option(shlex.split(command), "--max-model-len"))
    assert max(row["input_length"] + row["output_length"] for row in trace(tmp_path, files)) <= most


def test_the_same_seed_writes_the_same_trace(best: Scored, tmp_path: Path) -> None:
    files = of(under(best, "vllm"))[1]
    random.seed()
    assert trace(tmp_path, files) == trace(tmp_path, files)


def test_a_batch_is_tested_with_all_its_seats_taken(best: Scored, tmp_path: Path) -> None:
    test, files = of(under(best, "vllm"), kind=BATCH)
    assert test["concurrency"] == 12 and test["requests_per_s"] is None
    assert option(shlex.split(test["commands"]["vllm"]), "--max-concurrency") == "12"
    assert option(shlex.split(test["commands"]["aiperf"]), "--concurrency") == "12"
    assert '"streams": 12' in test["commands"]["guidellm"]
    assert {row["timestamp"] for row in trace(tmp_path, files)} == {0}


def test_embeddings_are_asked_of_their_own_address(best: Scored) -> None:
    test, _ = of(under(best, "vllm"), kind=EMBEDDING)
    words = shlex.split(test["commands"]["vllm"])
    assert option(words, "--endpoint") == "/v1/embeddings" and set(test["commands"]) == {"vllm"}


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("name", ["org/model", HOSTILE, 'a"b,kind=x\\', "--help"])
def test_every_flag_is_in_the_list_of_the_generator_s_release(best: Scored, kind: Kind, name: str) -> None:
    test, _ = of(under(best, "vllm"), name, kind=kind)
    for tool, command in test["commands"].items():
        words = [word for word in shlex.split(command) if word != name]
        lists = {source.tool: FlagLists(lists=(source.list,)) for source in launch_flags.sources().values()}
        said = launch_flags.check(tool, lists[tool], shlex.join(words))
        assert said.checked and said.unknown == []


def test_a_model_name_stays_one_word_of_each_command(best: Scored) -> None:
    plain, hostile = (of(under(best, "vllm"), name)[0]["commands"] for name in ("m", HOSTILE))
    for tool in plain:
        words = shlex.split(hostile[tool])
        assert len(words) == len(shlex.split(plain[tool]))
        named = json.loads(option(words, "--backend"))["model"] if tool == "guidellm" else option(words, "--model")
        assert named == HOSTILE


def test_mlx_is_not_asked_for_a_model_that_it_would_load_instead(best: Scored) -> None:
    own, converted = (of(under(best, "mlx", q))[0]["commands"]["vllm"] for q in (BF16, INT4))
    assert option(shlex.split(own), "--model") == "org/model" and "--tokenizer" not in own
    assert option(shlex.split(converted), "--model") == "default_model"
    assert option(shlex.split(converted), "--tokenizer") == "org/model"


@pytest.mark.parametrize("framework", ["executorch", "openvino-npu"])
def test_a_server_that_no_generator_can_ask_has_no_load_test(best: Scored, framework: str) -> None:
    assert "load_test" not in launch("m", under(best, framework), LLAMA_8B, question())
