"""A config.json of one's own that no network has is refused by its field, before anything is computed from it."""

import json
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from django.core.management import call_command
from django.test import Client

from advisor.engine.network.hf_config import from_hf_config
from advisor.engine.scheduler.state import Costs, Requests, Rules, server_of

LLAMA: dict[str, Any] = {
    "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32,
    "num_key_value_heads": 8, "num_hidden_layers": 32, "vocab_size": 128256, "max_position_embeddings": 131072,
}  # fmt: skip
IMPOSSIBLE = [
    ("hidden_size", -4096, "hidden"),
    ("intermediate_size", 0, "inner"),
    ("num_attention_heads", 0, "wrong type"),
    ("num_key_value_heads", 64, "key-value heads"),
    ("vocab_size", float("inf"), "wrong type"),
    ("hidden_size", [4096], "wrong type"),
    ("head_dim", 2.5, "head_dim must be a whole number"),
    ("max_position_embeddings", -1, "max_context_tokens"),
    ("intermediate_size", 2**70, "inner .* cannot be right"),
    ("num_local_experts", 8, "lacks num_experts_per_tok"),
]


@pytest.mark.parametrize(("key", "value", "said"), IMPOSSIBLE)
def test_a_size_that_no_network_has_is_a_value_error(key: str, value: Any, said: str) -> None:
    from_hf_config(LLAMA, "own")
    with pytest.raises(ValueError, match=said):
        from_hf_config(LLAMA | {key: value}, "own")


def test_the_compiled_server_takes_no_step_without_a_time() -> None:
    none, times = np.zeros(1, np.int64), dict.fromkeys(Costs._fields, 0.0)
    costs = Costs(**times | {"grid_tokens": none, "linear_s": np.array([np.nan]), "block_tokens": 16})
    table = Requests(*(none for _ in Requests._fields))
    with pytest.raises(ValueError, match="not finite"):
        server_of(costs, Rules(0, 1, 1, False, False, False, True, 0, 1), table, totals=7, state=14)


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(LLAMA | {"hidden_size": -4096}))
    return path


def run(*words: str) -> tuple[Any, str]:
    said = StringIO()
    with pytest.raises(SystemExit) as end:
        call_command(*words, stdout=StringIO(), stderr=said)
    return end.value.code, said.getvalue()


@pytest.mark.django_db
@pytest.mark.usefixtures("frozen")
def test_commands_name_the_size(broken: Path, tmp_path: Path) -> None:
    asked = tmp_path / "own.yaml"
    asked.write_text(
        "{name: own, kind: serving, model: {config: config.json}, traffic: {input_tokens: 100, output_tokens: 10,"
        " requests_per_s: 1}}"
    )
    chip = ("--accelerator", "h100-sxm", "--weights", "bf16", "--isl", "100", "--osl", "10")
    for words in (("advise", str(asked)), ("estimate", "--model", str(broken), *chip)):
        code, said = run(*words)
        assert code == 2
        assert "model.config: cannot be read: hidden -4,096 cannot be right" in said


@pytest.mark.django_db
@pytest.mark.usefixtures("frozen")
@pytest.mark.parametrize("path", ["advice", "estimate"])
def test_calls_name_the_size(client: Client, path: str) -> None:
    own = {"model": {"config": LLAMA | {"hidden_size": -4096}}}
    traffic = {"traffic": {"input_tokens": 100, "output_tokens": 10, "requests_per_s": 1}}
    fixed = {"accelerator": "h100-sxm", "weights": "bf16", "isl": 100, "osl": 10}
    asked = own | (fixed if path == "estimate" else {"name": "own", "kind": "serving"} | traffic)
    answer = client.post(f"/api/v1/{path}", asked, content_type="application/json")
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["field"] == "model.config"
