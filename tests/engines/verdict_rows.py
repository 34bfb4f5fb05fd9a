"""Writes the rows that vllm_configuration.py and sglang_configuration.py judge: layouts, printed and bad commands.

    python -m tests.engines.verdict_rows vllm CONFIGS COMMANDS.jsonl ROWS.csv

CONFIGS: a folder of config.json files, each named OWNER--NAME_config.json. COMMANDS.jsonl: one object per printed
command with `accelerator`, `framework` and `command`, as `manage.py advise FILE --format json` has them for each option
and its launch. How to record the verdicts anew: tests/engines/README.md.
"""

import csv
import json
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

CHIPS = {  # chip -> compute capability and memory in GiB, as NVIDIA's table of CUDA GPUs lists them
    "t4": (7.5, 16), "a100-80gb-sxm": (8.0, 80), "a30": (8.0, 24), "rtx-a5000": (8.6, 24), "rtx-a6000": (8.6, 48),
    "a40": (8.6, 48), "l40s": (8.9, 48), "l4": (8.9, 24), "rtx-4090": (8.9, 24), "h100-sxm": (9.0, 80),
    "h200-sxm": (9.0, 141), "b200": (10.0, 180), "rtx-pro-6000-blackwell": (12.0, 96),
}  # fmt: skip
OTHER_CHIP = (9.0, 80)  # chips of other kinds: their commands are parsed and the layout is checked, the chip is not
COPIES = (  # their copies hold another model_type or architecture than the published config.json, which vLLM knows
    "MiniMaxAI/MiniMax-M3", "sgl-project/DeepSeek-V4-Flash-FP8", "stepfun-ai/Step-3.7-Flash",
)  # fmt: skip
ONLY_PRINTED = ("Qwen/Qwen3-Reranker-8B",)  # without its options it is no reranker
SAME_SHAPE = {  # checkpoints of printed commands -> the config that has their sizes
    "meta-llama/Llama-3.1-8B": "meta-llama/Meta-Llama-3.1-8B",
    "meta-llama/Llama-3.1-70B": "meta-llama/Meta-Llama-3.1-70B",
    "meta-llama/Llama-3.3-70B-Instruct": "meta-llama/Meta-Llama-3.1-70B",
}
TP_SIZES = (1, 2, 3, 4, 6, 8)
LLAMA, MOE, NEMOTRON = "meta-llama/Meta-Llama-3.1-8B", "Qwen/Qwen3-30B-A3B", "nvidia/Nemotron-H-56B-Base-8K"

OPTIONS = {  # of each engine, the names of the options that the rows use
    "vllm": {
        "tp": "--tensor-parallel-size", "pp": "--pipeline-parallel-size", "context": "--max-model-len",
        "batched": "--max-num-batched-tokens", "kv": "--kv-cache-dtype", "experts": "--enable-expert-parallel",
        "running": "--max-num-seqs", "dp": "--data-parallel-size", "memory": "--gpu-memory-utilization",
    },
    "sglang": {
        "tp": "--tp-size", "pp": "--pp-size", "context": "--context-length", "batched": "--chunked-prefill-size",
        "kv": "--kv-cache-dtype", "experts": "--ep-size 8", "running": "--max-running-requests", "dp": "--dp-size",
        "memory": "--mem-fraction-static",
    },
}  # fmt: skip


def layouts(engine: str) -> Iterator[tuple[str, str]]:
    """(chip, options) that every config is asked with."""
    name = OPTIONS[engine]
    for size in TP_SIZES:
        yield "b200", f"{name['tp']} {size}"
    yield "h100-sxm", f"{name['tp']} 8 {name['experts']}"
    yield "h100-sxm", f"{name['tp']} 4 {name['pp']} 2"
    yield "h100-sxm", f"{name['tp']} 8 {name['kv']} {'fp8' if engine == 'vllm' else 'fp8_e4m3'}"
    for chip in ("t4", "a100-80gb-sxm", "l40s", "rtx-pro-6000-blackwell"):
        yield chip, f"{name['tp']} 1"


BAD = {  # of each engine: model, chip, options that have to be refused
    "vllm": [
        (LLAMA, "h100-sxm", "--tensor-parallel-size 1 --make-it-fast"),
        (LLAMA, "h100-sxm", "--tensor-parallel-sise 2"),
        (LLAMA, "h100-sxm", "--tensor-parallel-size two"),
        (LLAMA, "h100-sxm", "--tensor-parallel-size 0"),
        (LLAMA, "h100-sxm", "--tensor-parallel-size 3"),
        (LLAMA, "h100-sxm", "--tensor-parallel-size 6"),
        (LLAMA, "h100-sxm", "--tensor-parallel-size 1 --max-model-len 200000"),
        (LLAMA, "h100-sxm", "--tensor-parallel-size 1 --max-model-len -5"),
        (LLAMA, "t4", "--tensor-parallel-size 1 --dtype bfloat16"),
        (LLAMA, "h100-sxm", "--tensor-parallel-size 1 --dtype bf16"),
        (LLAMA, "h100-sxm", "--tensor-parallel-size 1 --quantization awq_fast"),
        (LLAMA, "h100-sxm", "--tensor-parallel-size 1 --kv-cache-dtype int8"),
        (LLAMA, "h100-sxm", "--tensor-parallel-size 1 --gpu-memory-utilization 1.5"),
        (LLAMA, "h100-sxm", "--tensor-parallel-size 1 --gpu-memory-utilization most"),
        (LLAMA, "h100-sxm", "--max-num-batched-tokens 2048 --max-model-len 8192 --no-enable-chunked-prefill"),
        (LLAMA, "h100-sxm", "--max-num-batched-tokens 128 --max-num-seqs 256 --max-model-len 8192"),
        (LLAMA, "h100-sxm", "--speculative-config '{\"method\": \"draft_model\", \"num_speculative_tokens\": 3}'"),
        (LLAMA, "h100-sxm", "--speculative-config '{\"method\": \"ngram\", \"prompt_lookup_max\": 4}'"),
        (LLAMA, "h100-sxm", "--speculative-config eagle3"),
        (LLAMA, "h100-sxm", "--speculative-config '{\"method\": \"mtp\", \"num_speculative_tokens\": 1}'"),
        (LLAMA, "h100-sxm", "--tensor-parallel-size 2 --enable-expert-parallel"),
        (LLAMA, "h100-sxm", "--tensor-parallel-size 16"),
        (LLAMA, "h100-sxm", "--runner rerank"),
        (LLAMA, "h100-sxm", "--convert score"),
        (LLAMA, "h100-sxm", "--hf-overrides classifier"),
        (LLAMA, "h100-sxm", "--max-num-seqs 0"),
        (LLAMA, "h100-sxm", "--enable-lora --max-lora-rank 50"),
        (LLAMA, "h100-sxm", "--kv-transfer-config '{\"kv_connector\": \"NixlConnector\"}'"),
        (LLAMA, "h100-sxm", "--block-size ten"),
        (LLAMA, "h100-sxm", "--nnodes 2 --node-rank 2 --master-addr host --tensor-parallel-size 16"),
        (MOE, "h100-sxm", "--tensor-parallel-size 6"),
        (MOE, "h100-sxm", "--nnodes 8 --node-rank 0 --master-addr host --tensor-parallel-size 64"),
        ("nvidia/Qwen3-235B-A22B-NVFP4", "h100-sxm", "--tensor-parallel-size 8 --quantization awq"),
        ("deepseek-ai/DeepSeek-V3", "h100-sxm", "--tensor-parallel-size 12"),
        ("Qwen/Qwen3-32B-FP8", "h100-sxm", "--tensor-parallel-size 8 --quantization gptq"),
    ],
    "sglang": [  # its parser alone judges them
        (LLAMA, "h100-sxm", options)
        for options in (
            "--make-it-fast", "--tp-sise 2", "--tp-size two", "--tp-size 1.5", "--tp-size", "--pp-size all",
            "--dp-size many", "--ep-size 8x", "--dtype bf16", "--dtype int8", "--quantization awq_fast",
            "--kv-cache-dtype int8x", "--kv-cache-dtype fp8", "--mem-fraction-static most",
            "--context-length long", "--chunked-prefill-size large", "--max-running-requests all",
            "--speculative-num-steps few", "--speculative-eagle-topk one", "--nnodes two", "--node-rank first",
            "--disaggregation-mode both", "--load-format zip", "--enable-lora --max-lora-rank big",
            "--attention-backend fastest",
        )
    ],
}  # fmt: skip


RERANKERS = {
    "vllm": [(
        "Qwen/Qwen3-Reranker-8B", "h100-sxm", "--tensor-parallel-size 1 --max-model-len 8192 --runner pooling"
        """ --hf-overrides '{"architectures": ["Qwen3ForSequenceClassification"], "classifier_from_token": """
        """["no", "yes"], "is_original_qwen3_reranker": true}'""",
    )],
    "sglang": [],
}  # fmt: skip


def checkpoint_and_options(command: str) -> tuple[str, str]:
    """Of `vllm serve MODEL ...` or `python -m sglang.launch_server --model-path MODEL ...`."""
    words = shlex.split(command)
    at = words.index("serve" if "serve" in words else "--model-path") + 1
    name = words[at].removeprefix("<checkpoint of ").partition(" in ")[0]
    return SAME_SHAPE.get(name, name), shlex.join(words[at + 1 :])


def rows(engine: str, configs: Path, commands: Path) -> Iterator[dict[str, str]]:
    """Every row once. A printed command whose model has no config there is left out."""
    named = {path.name.removesuffix("_config.json").replace("--", "/", 1): path.name for path in configs.iterdir()}
    asked = [
        ("layout", model, *each) for model in sorted(set(named) - {*COPIES, *ONLY_PRINTED}) for each in layouts(engine)
    ]
    asked += [("bad", *each) for each in BAD[engine]]
    asked += [("printed", *each) for each in RERANKERS[engine]]
    for given in map(json.loads, commands.read_text().splitlines()):
        if given.get("framework") == engine and given.get("command"):
            model, options = checkpoint_and_options(given["command"])
            asked.append(("printed", model, given["accelerator"], options))
    for kind, model, chip, options in dict.fromkeys(asked):
        if model in named:
            capability, gib = CHIPS.get(chip, OTHER_CHIP)
            yield {
                "kind": kind, "model": model, "chip": chip, "options": options, "config": named[model],
                "capability": str(capability), "gib": str(gib),
            }  # fmt: skip


def main(engine: str, configs: str, commands: str, out: str) -> None:
    with open(out, "w", newline="") as file:
        found = list(rows(engine, Path(configs), Path(commands)))
        writer = csv.DictWriter(file, list(found[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(found)


if __name__ == "__main__":
    main(*sys.argv[1:])
