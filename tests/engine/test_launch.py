"""The command of one replica says what the deployment assumes."""

import shlex

import pytest

from advisor.engine.launch import launch
from advisor.engine.search import Scored, search
from tests.engine.catalog_sample import catalog, question


@pytest.fixture(scope="module")
def best() -> Scored:
    return search(question(), catalog()).ranked[0]


def option(command: str, name: str) -> str:
    words = shlex.split(command)
    return words[words.index(name) + 1]


def test_the_command_carries_the_layout_and_the_planned_seats(best: Scored):
    command = launch("org/model", best)["command"]
    vllm = best.lane.framework.slug == "vllm"
    assert option(command, "--tensor-parallel-size" if vllm else "--tp-size") == str(best.lane.choice.tp)
    assert option(command, "--max-num-seqs" if vllm else "--max-running-requests") == str(best.concurrency)


def test_the_longest_request_fits_into_the_cache(best: Scored):
    command = launch("org/model", best)["command"]
    name = "--max-model-len" if best.lane.framework.slug == "vllm" else "--context-length"
    assert best.lane.context_tokens <= int(option(command, name)) <= best.memory.kv_capacity_tokens


def test_a_model_name_cannot_add_words(best: Scored):
    command = launch("org/model; rm -rf x", best)["command"]
    assert "org/model; rm -rf x" in shlex.split(command)


def test_the_script_runs_the_command(best: Scored):
    found = launch("org/model", best)
    script = found["files"]["serve.sh"]
    assert script.startswith("#!/bin/sh\n") and script.endswith(f"exec {found['command']}\n")
