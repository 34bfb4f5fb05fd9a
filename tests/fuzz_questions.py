"""Valid questions drawn at random and asked through the command: each is answered, has no answer, or is refused.

`python -m tests.fuzz_questions --count 2000` asks the whole catalog and ends with 1 if any question failed; the YAML
of each failing question is printed. tests/commands/test_fuzz_questions.py asks fewer, of fewer accelerators, in CI.
"""

import argparse
import contextlib
import io
import json
import os
import random
import re
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

Json = dict[str, Any]
EXAMPLES = Path(__file__).resolve().parents[1] / "fixtures" / "workloads"
CPU_LIMIT_S = 20.0
STOP_AFTER_S = 60.0  # CPU time after which a question is given up, so that the others are asked
INTERNAL_LIMIT = 0.01  # share of candidates that internal errors may reject
TRACEBACK = re.compile(r"Traceback|internal error|\b[A-Z]\w+Error\b")


@dataclass(frozen=True, kw_only=True)
class Names:
    """What questions may name."""

    models: dict[str, Sequence[str]]  # by what they produce: tokens, vectors, scores, images, speech, sources
    chips: Sequence[str]
    priced: Sequence[str]  # chips that somebody sells
    frameworks: Sequence[str]
    formats: Sequence[str]
    providers: Sequence[str]
    regions: Sequence[str]
    vendors: Sequence[str]


@dataclass(kw_only=True)
class Outcome:
    """What became of one question; `faults` is empty if all is well."""

    question: Json | list[str]
    code: int | str
    said: str
    cpu_s: float
    faults: list[str]


def names_of_catalog() -> Names:
    from advisor.engine.network import from_shape
    from catalog.models import Accelerator, Framework, Price, QuantizationMethod, Region, ServedModel

    models: dict[str, list[str]] = {}
    for row in ServedModel.objects.order_by("slug"):
        model = from_shape(row.slug, row.shape)
        made = "speech" if model.source_s else "sources" if model.source_tokens else model.makes
        models.setdefault(made, []).append(row.hf_id)
    listed = lambda rows, name: sorted(set(rows.values_list(name, flat=True)))  # noqa: E731
    return Names(
        models=models,
        chips=listed(Accelerator.objects, "slug"),
        priced=listed(Price.objects.exclude(accelerator=None), "accelerator__slug"),
        frameworks=listed(Framework.objects, "slug"),
        formats=listed(QuantizationMethod.objects, "slug"),
        providers=listed(Price.objects, "provider"),
        regions=listed(Region.objects, "slug"),
        vendors=listed(Accelerator.objects, "vendor"),
    )


# --- questions --------------------------------------------------------------------------------------------------


def some(rng: random.Random, names: Sequence[str], most: int) -> list[str]:
    return rng.sample(list(names), min(rng.randint(1, most), len(names)))


def log_uniform(rng: random.Random, low: float, high: float) -> float:
    return float(f"{low * (high / low) ** rng.random():.3g}")


def lengths(rng: random.Random, low: float, high: float) -> Any:
    mean = log_uniform(rng, low, high)
    return mean if rng.random() < 0.4 else {"mean": mean, "p95": float(f"{mean * rng.uniform(1.0, 3.5):.3g}")}


def rate(rng: random.Random) -> Any:
    mean = log_uniform(rng, *rng.choice([(1e-5, 0.01), (0.01, 20.0), (0.01, 20.0), (20.0, 2e3), (2e3, 1e5)]))
    return mean if rng.random() < 0.5 else {"mean": mean, "peak": float(f"{mean * rng.uniform(1.01, 8):.3g}")}


def trace(rng: random.Random) -> Json:
    at, lines = 0.0, ["arrival_s,input_tokens,output_tokens"]
    for _ in range(rng.choice([2, 50, 500])):
        lines.append(f"{at:.2f},{int(log_uniform(rng, 10, 2e4))},{int(log_uniform(rng, 1, 2e3))}")
        at += rng.expovariate(log_uniform(rng, 0.05, 50)) + 0.01
    return {"csv": "\n".join(lines) + "\n"}


def curve(rng: random.Random) -> Any:
    return rng.choice(["flat", "office_hours", [round(rng.random() + 0.01, 2) for _ in range(168)]])


def traffic(rng: random.Random, kind: str, made: str) -> Json:
    t: Json = {}
    if made == "speech" and rng.random() < 0.7:
        t["audio"] = {"hours_per_hour": log_uniform(rng, 0.01, 3000), "clip_s": log_uniform(rng, 2, 4000)}
    elif kind == "image_generation":
        t["image_output"] = {"width_px": rng.choice([512, 1024]), "height_px": rng.choice([512, 1024, 2048])}
    else:
        t["input_tokens"] = lengths(rng, 8, rng.choice([4e3, 4e3, 1e5]))
    if "input_tokens" in t and kind in ("serving", "batch"):
        t["output_tokens"] = lengths(rng, 1, rng.choice([500, 500, 1e4]))
    if kind == "rerank":
        t["documents_per_request"] = rng.randint(1, 200)
    if kind == "batch":
        return t
    if "audio" not in t:
        way = rng.choice(["rate", "rate", "rate", "users", "trace", "turns"])
        if way == "users":
            t["users"] = {"active": log_uniform(rng, 1, 1e5), "think_s": log_uniform(rng, 0.5, 600)}
        elif way == "trace" and kind == "serving":
            t = {"trace": trace(rng)}
        elif way == "turns" and kind == "serving" and made == "tokens":
            t["turns"] = {
                "count": rng.choice([2, 8, 60]),
                "added_tokens": log_uniform(rng, 1, 5e3),
                "wait_s": log_uniform(rng, 0.1, 600),
                "conversations_per_hour": log_uniform(rng, 0.1, 1e4),
            }
        else:
            t["requests_per_s"] = rate(rng)
    if rng.random() < 0.2 and "trace" not in t:
        t["load_curve"] = curve(rng)
        if isinstance(t.get("requests_per_s"), dict):
            del t["requests_per_s"]["peak"]
    if rng.random() < 0.15:
        t["prefix_cache_hit_rate"] = round(rng.random(), 2)
    if rng.random() < 0.15:
        t["growth_fraction_per_year"] = rng.choice([-0.3, 0.5, 3.0])
    if rng.random() < 0.1:
        t["ends_after_months"] = rng.randint(1, 30)
    return t


def limits(rng: random.Random, kind: str) -> Json:
    slo: Json = {}
    if kind in ("serving", "batch"):
        if rng.random() < 0.6:
            slo["ttft_ms_p95"] = log_uniform(rng, 50, 1e4)
        if rng.random() < 0.6:
            slo["tpot_ms_p95"] = log_uniform(rng, 5, 300)
    if rng.random() < 0.3:
        slo["e2e_ms_p95"] = log_uniform(rng, 50, 1e5)
    if rng.random() < 0.3:
        slo["availability"] = rng.choice(["n+1", "n+2", "2n"])
    if rng.random() < 0.15:
        slo["confidence"] = rng.choice([0.5, 0.9, 0.99])
    return slo


def constraints(rng: random.Random, names: Names, trains: bool, most_chips: int) -> Json:
    ways = [["rent"], ["own"], ["rent", "own"]] + ([] if trains else [["api"], ["rent", "own", "api"]])
    c: Json = {"acquisition": rng.choice(ways)}
    chips = {"allow": some(rng, names.priced if rng.random() < 0.8 else names.chips, most_chips)}
    c["accelerators"] = chips if most_chips < len(names.chips) or rng.random() < 0.3 else {}
    draws: list[tuple[float, str, Callable[[], Any]]] = [
        (0.1, "frameworks", lambda: {rng.choice(["allow", "deny"]): some(rng, names.frameworks, 3)}),
        (0.1, "formats", lambda: {rng.choice(["allow", "deny"]): some(rng, names.formats, 4)}),
        (0.1, "providers", lambda: {rng.choice(["allow", "deny"]): some(rng, names.providers, 4)}),
        (0.1, "regions", lambda: {rng.choice(["allow", "deny"]): some(rng, names.regions, 5)}),
        (0.1, "vendors", lambda: {rng.choice(["allow", "deny"]): some(rng, names.vendors, 2)}),
        (0.1, "kv_formats", lambda: {"allow": [rng.choice(["bf16", "fp8"])]}),
        (0.3, "terms", lambda: rng.sample(["on_demand", "spot", "reserved_1y", "reserved_3y"], rng.randint(1, 4))),
        (0.2, "exclude", lambda: rng.choice(["none", ["consumer"], ["quote", "estimate"]])),
        (0.2, "quality", lambda: rng.choice(["lossless", "any"])),
        (0.15, "partitions", lambda: rng.choice(["no", "yes", "required"])),
        (0.15, "max_accelerators", lambda: rng.choice([1, 4, 8, 64, 1000])),
        (0.15, "max_usd_per_month", lambda: log_uniform(rng, 50, 1e6)),
        (0.1, "max_capex_usd", lambda: rng.choice([0, 1e4, 1e6])),
        (0.15, "site", lambda: {"max_kw": log_uniform(rng, 1, 1000), "cooling": rng.choice(["air", "liquid", "any"])}),
    ]
    for chance, key, value in draws:
        if rng.random() < chance:
            c[key] = value()
    return {key: value for key, value in c.items() if value}


def of_everyone(rng: random.Random, names: Names, c: Json) -> Json:
    """Owned machines, inventory, objective, costs and the rest that every kind has."""
    q: Json = {"constraints": c}
    chips = c.get("accelerators", {}).get("allow") or names.chips
    if rng.random() < 0.35:
        q["owned"] = {chip: rng.choice([1, 2, 8, 16, 64]) for chip in some(rng, chips, 2)}
    if rng.random() < 0.15:
        q["inventory"] = {chip: rng.choice([0, 1, 8, 100]) for chip in some(rng, chips, 2)}
    if rng.random() < 0.4:
        q["objective"] = rng.choice(["latency", "throughput", "energy", "carbon", "balanced"])
    if rng.random() < 0.1:
        q["usd_per_accelerator_hour"] = {rng.choice(list(chips)): log_uniform(rng, 0.1, 20)}
    if rng.random() < 0.1:
        q["variants"] = rng.choice(["show", "no"])
    tco: Json = {}
    for chance, key, value in (
        (0.3, "horizon_months", rng.choice([1, 3, 12, 60, 120])),
        (0.1, "discount_rate", rng.choice([0.0, 0.2])),
        (0.1, "power_cap_fraction", 0.6),
        (0.1, "scenarios", [{"name": "bad year", "load": 2.0, "rent": 1.5}]),
        (0.1, "currency", "EUR"),
        (0.1, "spot-lost-fraction", 0.3),
        (0.1, "purchase-lead-months", 6.0),
    ):
        if rng.random() < chance:
            tco[key] = value
    return q | ({"tco": tco} if tco else {})


def serving_question(rng: random.Random, names: Names, most_chips: int) -> Json:
    made = rng.choice(["tokens"] * 6 + [m for m in names.models if m != "tokens"])
    served = {"vectors": "embedding", "scores": "rerank", "images": "image_generation"}
    kind = served.get(made) or rng.choice(["serving", "serving", "serving", "batch"])
    q: Json = {"name": "drawn", "kind": kind, "model": rng.choice(list(names.models[made]))}
    q["traffic"] = traffic(rng, kind, made)
    if kind == "batch":
        hours = log_uniform(rng, 0.5, 200)
        q["batch"] = {"requests": log_uniform(rng, 10, 3e6), "deadline_hours": hours}
        if rng.random() < 0.5:
            q["batch"]["every_hours"] = hours * rng.choice([2, 30])
    q["slo"] = limits(rng, kind)
    if kind == "serving" and made == "tokens" and rng.random() < 0.1:
        q["adapters"] = {"count": rng.choice([1, 20, 500]), "rank": 16, "targets": rng.choice(["all", "attention"])}
    return q | of_everyone(rng, names, constraints(rng, names, False, most_chips))


def training_question(rng: random.Random, names: Names, most_chips: int) -> Json:
    kind = rng.choice(["training", "finetuning", "finetuning"])
    q: Json = {"name": "drawn", "kind": kind, "model": rng.choice(list(names.models["tokens"]))}
    run: Json = {}
    if rng.random() < 0.6:
        run["deadline_days"] = log_uniform(rng, 0.5, 200)
    if kind == "training":
        run |= {rng.choice(["tokens", "budget_usd"]): log_uniform(rng, 1e6, 2e13)}
        if "budget_usd" in run:
            run["budget_usd"] = min(run["budget_usd"], 1e9)
        run["continued"] = rng.choice(["yes", "no"])
    else:
        run["objective"] = rng.choice(["sft", "sft", "dpo", "grpo"])
        run["method"] = rng.choice(["full", "lora", "qlora"])
        run |= {
            "sft": lambda: {"tokens": log_uniform(rng, 1e5, 1e11)},
            "dpo": lambda: {"pairs": int(log_uniform(rng, 100, 1e6))},
            "grpo": lambda: {"iterations": rng.randint(1, 2000), "response_tokens": int(log_uniform(rng, 10, 8000))},
        }[run["objective"]]()
    if run.get("objective") != "grpo":
        run["sequence_length"] = rng.choice([512, 1000, 2048, 4096, 8192, 32768, 131072])
        run["global_batch_tokens"] = run["sequence_length"] * log_uniform(rng, 1, 4000)
    q[kind] = run
    return q | of_everyone(rng, names, constraints(rng, names, True, most_chips))


def portfolio_question(rng: random.Random, names: Names, most_chips: int) -> Json:
    parts = [
        rng.choice([serving_question, serving_question, training_question])(rng, names, most_chips)
        for _ in range(rng.randint(1, 3))
    ]
    return {
        "name": "drawn",
        "kind": "portfolio",
        "workloads": [{**part, "name": f"part {i}"} for i, part in enumerate(parts)],
    }


def drawn(seed: int, names: Names, most_chips: int) -> Json:
    """The question of a seed; `most_chips`: accelerators that it allows."""
    rng = random.Random(seed)
    kinds = [serving_question] * 6 + [training_question] * 3 + [portfolio_question]
    question: Json = rng.choice(kinds)(rng, names, most_chips)
    return question


def estimate_arguments(seed: int, names: Names) -> list[str]:
    """Arguments of `estimate`, for serving or a step of training."""
    rng = random.Random(seed)
    chip = rng.choice(list(names.priced if rng.random() < 0.7 else names.chips))
    size = lambda: str(rng.choice([1, 1, 2, 4, 8]))  # noqa: E731
    if rng.random() < 0.5:
        made = rng.choice(["tokens"] * 5 + list(names.models))
        found = {
            "model": rng.choice(list(names.models[made])), "accelerator": chip,
            "weights": rng.choice(["bf16", "fp8", "int4", "mxfp4", *names.formats]),
            "isl": str(int(log_uniform(rng, 1, 1e5))), "osl": str(int(log_uniform(rng, 1, 5e3))),
            "tp": size(), "pp": size(), "concurrency": rng.choice(["max", "1", "16", "700"]),
            "client": rng.choice(["steady", "burst:4", "static", "poisson:0.5"]),
            "framework": rng.choice(["vllm", "vllm", "sglang", *names.frameworks]),
        }  # fmt: skip
    else:
        kind = rng.choice(["training", "finetuning"])
        found = {
            "kind": kind, "model": rng.choice(list(names.models["tokens"])), "accelerator": chip,
            "sequence-length": rng.choice(["512", "1000", "4096", "32768"]), "micro-batch": size(),
            "micro-batches": size(), "tp": size(), "pp": size(), "dp": size(), "cp": rng.choice(["1", "1", "2"]),
            "recompute": rng.choice(["none", "selective", "full"]),
            "precision": rng.choice(["bf16", "bf16", "fp8", "fp32", "amp"]),
        }  # fmt: skip
        if kind == "finetuning":
            found |= {"method": rng.choice(["full", "lora", "qlora"]), "objective": rng.choice(["sft", "dpo", "grpo"])}
    return ["estimate", *(text for key, value in found.items() for text in (f"--{key}", value)), "--format", "json"]


# --- asking -----------------------------------------------------------------------------------------------------


class TooLong(BaseException):
    """The question was given up."""


@contextlib.contextmanager
def given_up_after(seconds: float) -> Iterator[None]:
    def stop(*_: object) -> None:
        raise TooLong

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def asked(question: Json | list[str], limit_s: float = CPU_LIMIT_S) -> Outcome:
    """The outcome of one question (of `advise`) or of the arguments of another command."""
    from django.core.management import CommandError, call_command

    out, err = io.StringIO(), io.StringIO()
    start_s, code, faults = time.process_time(), 0, list[str]()
    with tempfile.TemporaryDirectory() as folder:
        arguments = question if isinstance(question, list) else ["advise", f"{folder}/q.yaml", "--format", "json"]
        if not isinstance(question, list):
            Path(folder, "q.yaml").write_text(yaml.safe_dump(question, sort_keys=False))
        try:
            with contextlib.redirect_stderr(err), given_up_after(max(STOP_AFTER_S, limit_s)):
                call_command(*arguments, stdout=out, stderr=err)
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else 1
        except TooLong:
            faults.append(f"given up after {max(STOP_AFTER_S, limit_s):g} s\n{traceback.format_exc()[-3000:]}")
        except CommandError as error:
            code = 2
            err.write(str(error))
        except Exception:
            faults.append(traceback.format_exc())
    cpu_s = time.process_time() - start_s
    if code not in (0, 2, 3):
        faults.append(f"exit code {code}")
    if cpu_s > limit_s and not faults:
        faults.append(f"{cpu_s:.1f} s of CPU, more than {limit_s:g}")
    if code == 2:
        faults += refusal_faults(question, err.getvalue())
    elif not faults:
        faults += answer_faults(out.getvalue())
    return Outcome(question=question, code=code, said=err.getvalue()[:2000], cpu_s=cpu_s, faults=faults)


def refusal_faults(question: Json | list[str], said: str) -> list[str]:
    """What is wrong with a refusal: it has no text, shows a traceback, or names a field that nobody wrote."""
    if not said.strip():
        return ["refused without a reason"]
    if TRACEBACK.search(said):
        return [f"refused with an internal error: {said}"]
    written = text_of(question)
    foreign = [
        line
        for line in said.splitlines()
        if (named := re.match(r"(?:\w+\[\d+\]\.)?([\w.\-]+)(?:\[\d+\])?: ", line))
        and named[1].split(".")[-1].replace("_", "-") not in written
        and "required" not in line
    ]
    return [f"refused for a field that the question does not have: {line}" for line in foreign]


def text_of(question: Json | list[str]) -> str:
    text = " ".join(question) if isinstance(question, list) else yaml.safe_dump(question)
    return text.replace("_", "-")


def answer_faults(text: str) -> list[str]:
    """What is wrong with an answer: it is no JSON, or internal errors rejected too many candidates."""
    try:
        answer = json.loads(text)
    except ValueError:
        return [f"not JSON: {text[:200]}"]
    return [fault for each in (answer, *answer.get("answers", [])) for fault in internal_faults(each)]


def internal_faults(answer: Json) -> list[str]:
    """Candidates that internal errors rejected, if they are more than one in a hundred."""
    candidates = answer.get("candidates") or {}
    lost = candidates.get("internal_rejections") or []
    return [f"internal rejections: {lost}"] if len(lost) > INTERNAL_LIMIT * candidates.get("evaluated", 0) else []


def report(outcome: Outcome, seed: int) -> str:
    asked_text = " ".join(outcome.question) if isinstance(outcome.question, list) else yaml.safe_dump(outcome.question)
    return "\n".join([f"--- seed {seed}: exit {outcome.code}, {outcome.cpu_s:.1f} s", asked_text, *outcome.faults])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1, help="of the first question; the next one has the next")
    parser.add_argument("--chips", type=int, default=10_000, help="accelerators that a question allows")
    parser.add_argument("--examples", action="store_true", help="ask every question of fixtures/workloads instead")
    parser.add_argument("--estimate", action="store_true", help="ask `estimate` instead of `advise`")
    options = parser.parse_args()
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "advisor.settings")
    import django

    django.setup()
    names, codes, failed, slowest_s = names_of_catalog(), Counter[int | str](), 0, 0.0
    files = sorted(EXAMPLES.glob("*.yaml")) if options.examples else []
    seeds = range(len(files)) if files else range(options.seed, options.seed + options.count)
    for seed in seeds:
        question: Json | list[str]
        if files:
            question = ["advise", str(files[seed]), "--format", "json"]
        elif options.estimate:
            question = estimate_arguments(seed, names)
        else:
            question = drawn(seed, names, options.chips)
        outcome = asked(question)
        codes[outcome.code] += 1
        slowest_s = max(slowest_s, outcome.cpu_s)
        if outcome.faults:
            failed += 1
            print(report(outcome, seed), flush=True)
        elif outcome.code == 2:
            print(f"seed {seed}: refused: {outcome.said.strip()[:300]}", flush=True)
    print(f"{len(seeds)} questions, exit codes {dict(codes)}, slowest {slowest_s:.1f} s of CPU, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
