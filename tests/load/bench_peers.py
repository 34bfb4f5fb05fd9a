"""Three sizing questions to Assay and to aiconfigurator side by side: seconds and candidates a second, as ratios.

    python -m tests.load.bench_peers [RUNS]

Each question asks how many H200s serve a rate within a TTFT and a TPOT. aiconfigurator (Apache-2.0, the closest peer)
is installed into build/aiconfigurator, where its packages cannot meet ours; without it only Assay's figures are
printed. Both are whole processes on one core, started in turn, and medians are compared.

The answers are not of one kind. The peer evaluates one chip's means in a steady state without queues. Assay answers
for the 95th percentile of simulated Poisson arrivals, with spread lengths, prices and the reasons against whatever
was left out: once for the same chip and framework, once for its whole catalog.
"""

import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PEER = "aiconfigurator==0.12.0"
PEER_HOME = ROOT / "build" / "aiconfigurator"
PEER_SCRIPT = Path(__file__).with_name("peer_aiconfigurator.py")


@dataclass(frozen=True)
class Question:
    name: str
    model: str
    peer_model: str
    weights: str
    input_tokens: int
    output_tokens: int
    requests_per_s: float
    ttft_ms: float
    tpot_ms: float


QUESTIONS = (
    Question("8B chat", "meta-llama/Llama-3.1-8B", "meta-llama/Meta-Llama-3.1-8B", "bf16", 1024, 1024, 8, 1000, 30),
    Question(
        "70B long prompts",
        "meta-llama/Llama-3.3-70B-Instruct",
        "nvidia/Llama-3.1-70B-Instruct-FP8",
        "fp8",
        4000,
        500,
        5,
        1000,
        40,
    ),
    Question("235B mixture", "Qwen/Qwen3-235B-A22B", "Qwen/Qwen3-235B-A22B-FP8", "fp8-block", 1024, 1024, 5, 2000, 50),
)

Answer = Mapping[str, Any]  # candidates, wall_s, cpu_s, accelerators, layout


def main() -> None:
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    peer = installed_peer()
    asked: dict[str, Callable[[Question], Answer]] = {"Assay, same chip": same_chip, "Assay, whole catalog": anything}
    if peer:
        asked["aiconfigurator"] = lambda question: ask_peer(peer, question)
    print(
        "| question | asked | accelerators | candidates | wall s | CPU s | candidates/s |\n" + "|---|---" * 3 + "|---|"
    )
    same_chip(QUESTIONS[0])  # compiles the simulator, once on a machine
    for question in QUESTIONS:
        taken: dict[str, list[Answer]] = {who: [] for who in asked}
        for _ in range(runs):
            for who, ask in asked.items():
                taken[who].append(ask(question))
        print("\n".join(row(question, who, answers) for who, answers in taken.items()))
        print_ratios(question, taken)


def row(question: Question, who: str, answers: list[Answer]) -> str:
    wall_s, cpu_s = median(answers, "wall_s"), median(answers, "cpu_s")
    count = answers[0]["candidates"]
    return (
        f"| {question.name} | {who} | {answers[0]['accelerators']} | {count:,} | {wall_s:.1f} | {cpu_s:.1f} "
        f"| {count / wall_s:,.0f} |"
    )


def print_ratios(question: Question, taken: Mapping[str, list[Answer]]) -> None:
    if "aiconfigurator" not in taken:
        return
    peer = taken["aiconfigurator"]
    for who in (name for name in taken if name != "aiconfigurator"):
        faster = median(peer, "wall_s") / median(taken[who], "wall_s")
        per_s = rate(taken[who]) / rate(peer)
        print(f"{question.name}, {who}: {faster:.1f} times as fast, {per_s:,.1f} times the candidates a second")


def median(answers: list[Answer], key: str) -> float:
    return statistics.median(answer[key] for answer in answers)


def rate(answers: list[Answer]) -> float:
    return float(answers[0]["candidates"] / median(answers, "wall_s"))


# --- Assay --------------------------------------------------------------------------------------------------------


def same_chip(question: Question) -> Answer:
    return ask_assay(question, {"accelerators": {"allow": ["h200-sxm"]}, "frameworks": {"allow": ["vllm"]}})


def anything(question: Question) -> Answer:
    return ask_assay(question, {})


def ask_assay(question: Question, constraints: Mapping[str, Any]) -> Answer:
    workload = {
        "name": "bench",
        "kind": "serving",
        "model": question.model,
        "traffic": {
            "input_tokens": question.input_tokens,
            "output_tokens": question.output_tokens,
            "requests_per_s": question.requests_per_s,
        },
        "slo": {"ttft_ms_p95": question.ttft_ms, "tpot_ms_p95": question.tpot_ms},
        "constraints": {"formats": {"allow": [question.weights]}, **constraints},
    }
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "bench.yaml"
        file.write_text(json.dumps(workload))  # JSON is YAML
        done, used = timed([sys.executable, "manage.py", "advise", str(file), "--format", "json"])
    if done.returncode not in (0, 3):
        sys.exit(f"Assay failed: {done.stderr[-2000:]}")
    answer = json.loads(done.stdout)
    best = answer["recommendations"][:1]
    return used | {
        "candidates": answer["candidates"]["evaluated"] + answer["candidates"]["pruned"],
        "accelerators": f"{best[0]['accelerator_count']} x {best[0]['accelerator']}" if best else "none fits",
    }


# --- the peer -----------------------------------------------------------------------------------------------------


def installed_peer() -> Path | None:
    """The peer's Python, installed when it is not there yet; None where that cannot be done."""
    python = PEER_HOME / "bin" / "python"
    if (PEER_HOME / "lib").exists() and list(PEER_HOME.glob("lib/*/site-packages/aiconfigurator/main.py")):
        return python
    subprocess.run([sys.executable, "-m", "venv", str(PEER_HOME)], check=True)
    tried = subprocess.run(
        [str(python), "-m", "pip", "install", "-q", PEER], capture_output=True, text=True, check=False
    )
    if tried.returncode:
        print(f"{PEER} cannot be installed here: {tried.stderr.strip().splitlines()[-1:]}", file=sys.stderr)
        return None
    return python


def ask_peer(python: Path, question: Question) -> Answer:
    with tempfile.TemporaryDirectory() as folder:
        done, used = timed(
            [str(python), str(PEER_SCRIPT), "cli", "recommend", "--no-color", "--save-dir", folder]
            + ["--model-path", question.peer_model, "--system", "h200_sxm", "--backend", "vllm"]
            + ["--isl", str(question.input_tokens), "--osl", str(question.output_tokens)]
            + ["--ttft", str(question.ttft_ms), "--tpot", str(question.tpot_ms)]
            + ["--target-request-rate", str(question.requests_per_s)]
        )
    if done.returncode:
        sys.exit(f"aiconfigurator failed: {done.stderr[-2000:]}")
    counted = json.loads(done.stdout.strip().splitlines()[-1])
    said = re.findall(r"(agg|disagg) GPUs needed: (\d+)", done.stdout + done.stderr)
    return used | {"candidates": counted["candidates"], "accelerators": ", ".join(f"{n} ({mode})" for mode, n in said)}


def timed(command: list[str]) -> tuple[subprocess.CompletedProcess[str], dict[str, float]]:
    """The finished process, its wall seconds and its CPU seconds, on one core where the system can pin it."""
    pin = {"preexec_fn": one_core} if hasattr(os, "sched_setaffinity") else {}
    before, began = os.times(), os.times().elapsed
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False, **pin)  # type: ignore[call-overload]
    after = os.times()
    cpu_s = after.children_user + after.children_system - before.children_user - before.children_system
    return done, {"wall_s": after.elapsed - began, "cpu_s": cpu_s}


def one_core() -> None:
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})


if __name__ == "__main__":
    main()
