"""`llama-bench -o json`, `jsonl`, `csv` and `md`: prompt and generation rates of one request at a time."""

import re
from collections import Counter
from typing import Any

from advisor.evidence.formats.reading import (
    EvidenceError,
    Json,
    Reading,
    day_of,
    figures_of,
    number,
    objects_of,
    runs,
    said_of,
    table_of,
    truth,
)  # fmt: skip

NAME = "llama-bench"
QUANT = re.compile(r"[-._]((?:UD-)?(?:I?Q\d\w*|MXFP4(?:_MOE)?|BF16|F16|F32|TQ\d\w*))$", re.IGNORECASE)
PART = re.compile(r"-\d{5}-of-\d{5}$")
TYPE = re.compile(r"\b((?:I?Q\d\w*|BF16|F16|MXFP4)(?: MoE)?)(?: - (Small|Medium|Large))?\s*$", re.IGNORECASE)
SIZES = {"small": "_s", "medium": "_m", "large": "_l"}
TEST = re.compile(r"(?:pp ?(?P<pp>\d+))?\+?(?:tg ?(?P<tg>\d+))?(?: @ d(?P<depth>\d+))?$")


def is_one(record: Json) -> bool:
    return {"n_prompt", "n_gen"} <= set(record) and bool({"avg_ts", "avg_ns"} & set(record))


def is_table(text: str) -> bool:
    """Whether a text has the Markdown table of llama-bench."""
    return bool(re.search(r"^\|[^\n]*\btest\b[^\n]*\bt/s\b", text, re.MULTILINE))


def read(text: str) -> list[Reading]:
    """The tests of a file. EvidenceError: it has none."""
    if is_table(text):
        return list(_of_markdown(text))
    start = re.search(r"^\s*[\[{]", text, re.MULTILINE)
    if text.lstrip()[:1] in "[{" or (start and "n_prompt" in text and "," not in text.splitlines()[0][:40]):
        records: list[Any] = list(objects_of(text[start.start() :] if start else text))
    else:
        records = list(table_of(text))
    if wrong := next((where for where, record in runs(records) if not is_one(record)), ""):
        raise EvidenceError(f"{wrong} is not a llama-bench test: n_prompt, n_gen, or avg_ts is missing")
    return [_reading(where, record) for where, record in runs(records)]


def _reading(where: str, test: Json) -> Reading:
    prompt, generated, depth = (int(number(test.get(name)) or 0) for name in ("n_prompt", "n_gen", "n_depth"))
    rate, took_ns = number(test.get("avg_ts")), number(test.get("avg_ns"))
    if rate is None and took_ns:
        rate = (prompt + generated) * 1e9 / took_ns
    build = number(test.get("build_number"))
    version = f"b{build:.0f}" if build else str(test.get("build_commit") or "")
    backend = str(test.get("backends") or next((n for n in ("cuda", "metal", "vulkan") if truth(test.get(n))), ""))
    file, model_type = str(test.get("model_filename") or ""), str(test.get("model_type") or "")
    chips = [name.strip() for name in str(test.get("gpu_info") or "").split(",") if name.strip()]
    layers = number(test.get("n_gpu_layers"))
    return _test(
        where, prompt, generated, depth, rate,
        model=model_of(file), chips=chips, weights=quant_of(file) or type_of(model_type), version=version,
        backend=backend, layers=layers, kv=str(test.get("type_k") or ""), stamp=str(test.get("test_time") or ""),
        on_host=bool(number(test.get("n_cpu_moe"))) or truth(test.get("no_kv_offload")),
        encodes=truth(test.get("embeddings")),
    )  # fmt: skip


def _of_markdown(text: str) -> list[Reading]:
    found: list[Reading] = []
    head: list[str] = []
    build = re.search(r"^build: (\w+) \((\d+)\)", text, re.MULTILINE)
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if not line.lstrip().startswith("|") or set(line) <= set("|-: "):
            continue
        if "test" in cells and "t/s" in cells:
            head = cells
            continue
        row = dict(zip(head, cells, strict=False))
        match = TEST.fullmatch(row.get("test", ""))
        if not head or match is None:
            raise EvidenceError(f"has a row with an unknown test: {line.strip()[:80]!r}")
        prompt, generated, depth = (int(match[name] or 0) for name in ("pp", "tg", "depth"))
        found.append(
            _test(
                f"row {len(found) + 1}", prompt, generated, depth, number(row["t/s"].split("±")[0]),
                model="", chips=[], weights=type_of(row.get("model", "")), version=f"b{build[2]}" if build else "",
                backend=row.get("backend", ""), layers=number(row.get("ngl")), kv=row.get("type_k", ""), stamp="",
                on_host=bool(number(row.get("n_cpu_moe"))), encodes=False,
            )
        )  # fmt: skip
    return found


def _test(
    where: str, prompt: int, generated: int, depth: int, rate: float | None, *, model: str, chips: list[str],
    weights: str, version: str, backend: str, layers: float | None, kv: str, stamp: str, on_host: bool, encodes: bool,
) -> Reading:  # fmt: skip
    both, none = bool(prompt and generated), not prompt and not generated
    skipped = "has one rate for prompt and output tokens together" if both else "has no tokens" if none else ""
    if encodes:
        skipped = "computes embeddings"
    if on_host or layers == 0 or backend.upper() in ("CPU", "BLAS"):
        skipped = "ran at least partly on the host CPU"
    if len({*chips}) > 1:
        skipped = f"ran on different accelerators: {', '.join(Counter(chips))}"
    said = said_of(
        model=model, accelerator=chips[0] if chips else "", n_accelerators=len(chips) or None,
        tp=1 if chips else None, pp=len(chips) or None, weights_dtype=weights, kv_dtype=kv,
        framework=f"llama.cpp {version} ({backend})" if version else "llama.cpp" if backend else "",
        isl=prompt if prompt else depth, osl=generated, concurrency_or_batch=1,
        params_note=f"llama-bench {'pp' if prompt else 'tg'}{prompt or generated};depth={depth}", date=day_of(stamp),
    )  # fmt: skip
    said |= {"isl": f"{prompt or depth}", "osl": f"{generated}"}
    metric = "prefill_tokens_per_s" if prompt else "output_tokens_per_s"
    figures = figures_of(**{metric: rate})
    ours = None if layers is None or layers < 0 else int(layers)
    return Reading(where=where, said=said, figures=figures, stamp=stamp, skipped=skipped, gpu_layers=ours)


def bare(file: str) -> str:
    """A model file's name without its folder, ending and part number."""
    name = re.split(r"[/\\]", file)[-1]
    return PART.sub("", re.sub(r"\.gguf$", "", name, flags=re.IGNORECASE))


def model_of(file: str) -> str:
    """The model that a GGUF file is of, by its name."""
    return QUANT.sub("", bare(file))


def quant_of(file: str) -> str:
    """The format in a file's name, as measured rows write it; empty: the name has none."""
    match = QUANT.search(bare(file))
    return format_of(match[1]) if match else ""


def type_of(described: str) -> str:
    """The format in a description such as `qwen2 7B Q4_K - Medium`."""
    match = TYPE.search(described)
    return format_of(match[1].replace(" ", "_") + SIZES.get((match[2] or "").lower(), "")) if match else ""


def format_of(name: str) -> str:
    plain = name.lower().removesuffix("_moe")
    return {"f16": "fp16"}.get(plain, plain)
