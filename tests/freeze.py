"""Copies a small part of the shipped catalog to tests/frozen_catalog/, which tests of behavior load instead of it.

`python -m tests.freeze` writes every file but the prices, from the fixtures of today; `--prices` draws the prices anew.
New prices, chips and calibrations then change no test of behavior. Freeze again when a fixture format changes, or to
give tests a chip or model that they need, and review the difference.
"""

import csv
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[1]
FIXTURES, FROZEN = ROOT / "fixtures", ROOT / "tests" / "frozen_catalog"
CHIPS = set(
    """a100-40gb-sxm a100-80gb-pcie a100-80gb-sxm a10g a30 apple-m3-ultra apple-m4-max apple-m5-max arc-pro-b60 b200
    b300 cerebras-wse-3 epyc-9755 epyc-9965 gaudi3 gb10-dgx-spark gb200 gb300 gh200-96gb groq-lpu h100-nvl h100-pcie
    h100-sxm h200-nvl h200-sxm inferentia1 jetson-agx-orin-64gb jetson-agx-thor-128gb l4 l40 l40s mi300a mi300x
    mi325x mi350x mi355x npu-laptop-40tops npu-phone-flagship rtx-3090 rtx-4090 rtx-5090 rtx-6000-ada rtx-a5000
    rtx-a6000 rtx-pro-6000-blackwell rtx-pro-6000-blackwell-server t4 tpu-v3 tpu-v5e tpu-v5p tpu-v6e tpu-v7
    trainium1 trainium2 xeon-6980p xeon-8480plus""".split()
)
MODELS = set(
    """baai-bge-m3 baai-bge-reranker-v2-m3 black-forest-labs-flux-1-dev deepseek-ai-deepseek-r1 deepseek-ai-deepseek-v3
    google-bert-bert-large-uncased google-flan-t5-xxl google-gemma-3-27b-it intfloat-e5-large-v2
    meta-llama-llama-3-1-70b meta-llama-llama-3-1-8b meta-llama-llama-3-2-1b meta-llama-llama-3-3-70b-instruct
    meta-llama-llama-4-scout-17b-16e-instruct meta-llama-meta-llama-3-70b meta-llama-meta-llama-3-8b
    minimaxai-minimax-m2-5 moonshotai-kimi-k2-5 nvidia-nvidia-nemotron-3-nano-30b-a3b-bf16 openai-gpt-oss-120b
    openai-gpt-oss-20b openai-whisper-large-v3 qwen-qwen2-5-14b qwen-qwen2-5-vl-72b-instruct
    qwen-qwen2-5-vl-7b-instruct qwen-qwen3-235b-a22b qwen-qwen3-30b-a3b qwen-qwen3-5-27b qwen-qwen3-8b
    stabilityai-stable-diffusion-3-5-large tiiuae-falcon-mamba-7b""".split()
)
PROVIDERS = (
    "aws",
    "coreweave",
    "crusoe",
    "digitalocean",
    "gcp",
    "lambda",
    "nebius",
    "oci",
    "purchase",
    "runpod",
    "vast-ai",
    "verda",
)
WHOLE = ("api_providers", "exchange_rates", "launch_templates", "overheads", "quantization")  # of any ending
Line = dict[str, str]


def main(arguments: list[str]) -> None:
    kept = {path: path.read_text() for path in FROZEN.glob("prices/*.csv")} if "--prices" not in arguments else {}
    shutil.rmtree(FROZEN, ignore_errors=True)
    for name in WHOLE:
        copied(*FIXTURES.glob(f"{name}.*"))
    copied(*(FIXTURES / "accelerators" / f"{slug}.yaml" for slug in CHIPS))
    copied(*(FIXTURES / "models" / f"{slug}.yaml" for slug in MODELS))
    copied(*FIXTURES.glob("frameworks/*.yaml"))
    copied(*FIXTURES.glob("calibration/**/*.yaml"))
    copied(*FIXTURES.glob("flags/*.txt"))
    for path, text in kept.items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    for provider in [] if kept else PROVIDERS:
        lines(f"prices/{provider}.csv", each_size_once())
    sold = {(line["provider"], line["instance"]) for path in FROZEN.glob("prices/*.csv") for line in read(path)[1]}
    sellers = {provider for provider, _ in sold}
    lines("instances.csv", lambda line: (line["provider"], line["instance"]) in sold)
    lines("smallest_units.csv", lambda line: line["provider"] in sellers and line["accelerator"] in CHIPS)
    lines("price_history.csv", lambda line: line["accelerator"] in CHIPS)
    lines("api_prices.csv", lambda line: line["model"] in MODELS)
    lines("measurements/chips.csv", lambda line: line["accelerator"] in CHIPS)
    listed("units.yaml", lambda item: item["accelerator"] in CHIPS)
    listed("regions.yaml", lambda item: item["slug"].split("-")[0] in {*sellers, "grid"})


def copied(*paths: Path) -> None:
    for path in paths:
        target = FROZEN / path.relative_to(FIXTURES)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)


def read(path: Path) -> tuple[list[str], list[Line]]:
    with path.open(newline="") as file:
        reader = csv.DictReader(file)
        return list(reader.fieldnames or ()), list(reader)


def lines(name: str, keep: Callable[[Line], bool]) -> None:
    columns, rows = read(FIXTURES / name)
    target = FROZEN / name
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("w", newline="") as file:
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(filter(keep, rows))


def each_size_once() -> Callable[[Line], bool]:
    """Each seller's first offer of a chip by term, kind and size: one chip, eight, or any size of a purchase."""
    seen = set()

    def keep(line: Line) -> bool:
        key = tuple(line[name] for name in ("provider", "accelerator", "term", "accelerators", "kind"))
        wanted = line["accelerator"] in CHIPS and (line["accelerators"] in ("1", "8") or line["term"] == "purchase")
        fresh = wanted and key not in seen
        seen.add(key)
        return fresh

    return keep


def listed(name: str, keep: Callable[[Line], bool]) -> None:
    rows = yaml.safe_load((FIXTURES / name).read_text())
    (FROZEN / name).write_text(yaml.safe_dump(list(filter(keep, rows)), sort_keys=False, allow_unicode=True, width=120))


if __name__ == "__main__":
    main(sys.argv[1:])
