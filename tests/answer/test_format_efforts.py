"""Every format of the catalog says how long making it takes, and from that on what it is made."""

from typing import Any

import pytest
import yaml

from advisor.answer.options.launch_flags import FOLDER
from advisor.engine.optimisation.formats import MADE_ON, PUBLISHED_SO, made_on

ROWS: list[dict[str, Any]] = yaml.safe_load((FOLDER.parent / "quantization.yaml").read_text())
NAMED = {  # as the question of formats names them: at least one row each
    "BF16": "bf16", "FP8 per tensor": "fp8", "FP8 blocks": "fp8-block", "INT8 SmoothQuant": "int8", "AWQ": "awq",
    "GPTQ": "gptq", "NVFP4": "nvfp4", "MXFP4": "mxfp4", "GGUF k-quants": "gguf-q4-k-m", "2:4 and INT4": "int4-sparse",
    "cache FP8": "kv-fp8", "cache INT8": "kv-int8", "QAT": "int4-qat", "BitNet": "bitnet",
}  # fmt: skip


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["slug"])
def test_how_long_leads_to_on_what(row: dict[str, Any]) -> None:
    assert row["effort"] and made_on(row["effort"]) in {*MADE_ON.values(), PUBLISHED_SO}


def test_every_format_that_is_asked_for_has_a_row() -> None:
    assert set(NAMED.values()) <= {row["slug"] for row in ROWS}


def test_a_training_is_not_a_matter_of_one_gpu() -> None:
    by_slug = {row["slug"]: made_on(row["effort"]) for row in ROWS}
    assert by_slug["bitnet"] == by_slug["int4-qat"] == by_slug["int4-sparse"] == "the training cluster"
    assert "one GPU" in by_slug["awq"] and by_slug["bf16"] == "no conversion needed"
