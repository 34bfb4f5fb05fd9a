"""Measured rows: the deployment, requests and client (a Case) of each."""

import math
import re
from collections.abc import Container
from dataclasses import dataclass, fields, replace
from typing import Protocol as Interface

from advisor.engine.terms import KV, WEIGHTS, Case, Pool, PrefixClass, Protocol
from advisor.fidelity.protocols import Run, run_of, settings_of, stated_client, stated_seats, users_of


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One measured figure as its source states it. Columns stay text; blank means not stated."""

    id: str
    task: str
    metric: str
    value: float
    model: str
    model_id: str
    accelerator: str
    accelerator_slug: str
    n_accelerators: str
    mode: str
    tp: str
    pp: str
    ep: str
    attention_dp: str
    moe_tp: str
    prefill_pool: str
    decode_pool: str
    weights_dtype: str
    kv_dtype: str
    framework: str
    isl: str
    osl: str
    concurrency_or_batch: str
    params_note: str
    date: str
    source_key: str
    confidence: str
    notes: str


COLUMNS = tuple(field.name for field in fields(Row))


@dataclass(frozen=True, kw_only=True, slots=True)
class Skip:
    """Why a row has no prediction."""

    reason: str


class Catalog(Interface):
    """The models and accelerators that exist in the catalog."""

    @property
    def models(self) -> Container[str]: ...

    @property
    def accelerators(self) -> Container[str]: ...


def number(text: str, blank: float) -> float:
    """The number in a cell, or `blank` if there is none."""
    try:
        return float(text)
    except ValueError:
        return blank


# ------------------------------------------------------------------ names

# (pattern, canonical slug, version): \1 is the pattern's group
FRAMEWORKS = (
    # Dynamo's releases, a development image, and no version at all: all from after TensorRT-LLM 1.0 (2025-09)
    (r"trtllm (0\.[58]\.1.*)", "tensorrt-llm", r"1.x+dynamo-\1"),
    (r"trtllm ([\d.]+.*)", "tensorrt-llm", r"\1"),
    (r"trtllm (\D.*)", "tensorrt-llm", r"1.x+\1"),
    (r"trtllm ?", "tensorrt-llm", "1.x"),
    (r"TensorRT-LLM ([\d.]+)\+?.*", "tensorrt-llm", r"\1"),
    (r"NVIDIA NIM ([\d.]+)", "tensorrt-llm", r"nim-\1"),
    # AMD's ATOM as its own server or as a plugin, and forks of an engine, are engines of their own
    (r"(?i:(vllm|sglang))\+ATOM(?: plugin)? ?(?:sglang-|vllm-)?v?(.*)", r"\1-atom", r"\2"),
    (r"(?i:atom) ?(\S*).*", "atom", r"\1"),
    (r"moreh-vllm ?(\S*).*", "moreh-vllm", r"\1"),
    (r"sglang-jax ?(?:main[-@])?(\S*).*", "sglang-jax", r"\1"),
    (r"vllm-gaudi ?(\S*).*", "vllm-gaudi", r"\1"),
    (r"mori-sglang ?(?:sglang-)?v?(\S*).*", "sglang", r"\1"),  # SGLang with MoRI between two pools
    (r"vLLM TPU.*", "vllm-tpu", ""),
    (r"(?i:vllm) (main-\S+) \(TPU\)", "vllm-tpu", r"\1"),  # a commit is no release
    (r"(?i:vllm)(?: ROCm)? \(.*\)", "vllm", ""),  # a date or a remark, no version
    (r"vLLM ROCm docker (\S+)", "vllm", r"rocm-\1"),
    (r"v?LLM-D v?(\S+).*", "vllm", r"llm-d-\1"),
    (r".*?LLMBoost.*?vllm-([\d.]+).*", "vllm", r"\1"),
    (r"PyTorch vLLM", "vllm", ""),
    (r"(?i:vllm) ?v?(\S+\.dev\d+\+g\S+).*", "vllm", r"build \1"),  # of a submitter, no release
    (r"(?i:vllm) ?v?([^,\s]*).*", "vllm", r"\1"),
    (r"(?i:sglang) ?v?([^,\s]*).*", "sglang", r"\1"),
    (r"(?:Jetpack [\d.]+, )?TensorRT [\d.]+.*", "tensorrt-llm", ""),  # MLPerf prints TensorRT's version
    (r"LMDeploy TurboMind ([\d.]+)", "lmdeploy", r"\1"),
    (r"Transformers NeuronX, Neuron ([\d.]+)", "neuron", r"\1"),
    (r"(?:Optimum-Habana / )?Intel Gaudi SW ([\d.]+).*", "optimum-habana", r"\1"),
    (r"optimum-habana (\S+).*", "optimum-habana", r"\1"),
    (r"llama\.cpp \((.*)\)", "llama.cpp", r"\1"),
    (r"llama\.cpp ?(\S*).*", "llama.cpp", r"\1"),
    (r"mlx[-_](?:lm|vlm) ([\d.]+)", "mlx", r"\1"),
    (r"(?i:mlx).*", "mlx", ""),
    (r"torch (\S+).*", "torch", r"\1"),
)
AMBIGUOUS = ("tokens_per_s_ambiguous",)


def framework_of(row: Row) -> tuple[str, str]:
    """(canonical slug, version) of a row's framework.

    MLPerf submissions without a framework count as vLLM: they are from AMD, Intel and Red Hat, who use it. NVIDIA and
    its partners name TensorRT.
    """
    is_mlperf = row.source_key.startswith("mlperf_inf_")
    round_version = row.source_key.replace("_inf_", "-") if is_mlperf else ""
    for pattern, slug, version in FRAMEWORKS:
        if match := re.fullmatch(pattern, row.framework):
            return match.expand(slug).lower(), match.expand(version).strip(" .") or round_version
    return ("vllm" if is_mlperf else row.framework.lower() or "unknown"), round_version


def weights_of(row: Row) -> str:
    """The canonical weight format, or a quantization slug if the compute dtype does not follow from the format.

    4-bit floats are MXFP4 on AMD chips and for gpt-oss (published in MXFP4 only, whatever the column says), with 8-bit
    activations on chips whose MoE kernels support FP4. Elsewhere they are NVFP4.
    """
    dtype = WEIGHTS.get(row.weights_dtype, row.weights_dtype)
    if row.model_id.startswith("openai/gpt-oss"):
        return "mxfp4-w4a8" if row.accelerator_slug.removeprefix("g") in ("b200", "b300") else "mxfp4"
    if re.search(r"UsedModel \S*fp8", row.params_note):
        return "fp8"  # the run's checkpoint overrides the precision column
    if dtype in ("fp4", "mxfp4"):
        return "mxfp4-w4a4" if row.accelerator_slug.startswith("mi35") else "nvfp4" if dtype == "fp4" else dtype
    if dtype == "int8" and row.source_key == "neuron_infer":
        return "int8-w8a16"  # stored in 8 bits, cast to BF16 for the matmul
    return dtype


def note_of(row: Row) -> dict[str, str]:
    """The key=value pairs of the parameters note."""
    pairs = (part.split("=", 1) for part in row.params_note.split(";") if "=" in part)
    return {key.strip(): value.strip() for key, value in pairs}


INFERENCEX = "serving_nightly"  # the source whose rules are those of InferenceX's scripts


def run_facts(row: Row) -> dict[str, str]:
    """The facts that protocol rules may use: everything except the row's ID and value."""
    slug, version = framework_of(row)
    of_inferencex = note_of(row).get("benchmark") == "inferencex"
    return {
        "source": INFERENCEX if of_inferencex else row.source_key,
        "framework": slug,
        "version": version,
        "model": row.model_id,
        "accelerator": row.accelerator_slug,
        "weights": weights_of(row),
        "tokens": f"{row.isl}/{row.osl}",
        "isl": row.isl,
        "osl": row.osl,
    }


# ------------------------------------------------------------------ layout


def count(text: str) -> int | None:
    """The positive integer in a cell; None for blank or 0, which mean not stated."""
    value = number(text, 0)
    if math.isinf(value):
        raise ValueError(f"{text} is not a count")
    return int(value) if value >= 1 else None


def pool_of(row: Row, run: Run) -> Pool | None:
    """The layout of an aggregated deployment; None if the source does not state it and several are possible."""
    chips = count(row.n_accelerators) or 1
    if run.layers_over_chips:
        return Pool(pp=chips)
    tp = count(row.tp)
    if tp is None:
        return Pool() if chips == 1 else None
    cores = run.cores_per_chip
    pp, ep, moe_tp = count(row.pp) or 1, count(row.ep), count(row.moe_tp)
    tp, ep = max(1, tp // cores), max(1, ep // cores) if ep else None
    if run.attention_dp_is_tp:
        return Pool(dp=tp, pp=pp, ep=tp, replicas=max(1, chips // (tp * pp)))
    dp = count(row.attention_dp) or _attention_ranks(row, tp, ep, moe_tp)
    if tp == dp == (ep or 1) * (moe_tp or 1) and count(row.attention_dp) is None:
        tp = 1  # the tp column counts the ranks that attention data parallelism uses
    experts = tp if run.experts_over_all_ranks and dp == 1 else ep or 1
    return Pool(
        tp=tp,
        pp=pp,
        dp=dp,
        ep=experts,
        moe_tp=moe_tp if moe_tp and moe_tp * experts == tp * dp else max(1, tp * dp // experts),
        replicas=max(1, chips // (tp * pp * dp)),
    )


def _attention_ranks(row: Row, tp: int, ep: int | None, moe_tp: int | None) -> int:
    """The attention data parallelism implied by experts on more ranks than tp, or by a batch per rank."""
    ways = (ep or 1) * (moe_tp or 1)
    per_rank, users = count(note_of(row).get("batch_per_rank", "")), count(row.concurrency_or_batch)
    if per_rank and users and ways == tp > 1 and users == per_rank * tp:
        return tp
    return max(1, ways // tp)


def disaggregated_pool(text: str) -> Pool:
    """One pool of a disaggregated deployment from `workers=..;batch=..;tp=..`."""
    if wrong := [part for part in text.split(";") if "=" not in part]:
        raise ValueError(f"{wrong[0]!r} is not KEY=VALUE")
    cells = dict(part.split("=", 1) for part in text.split(";"))
    stated = {name: count(cells.get(name, "")) for name in ("workers", "batch", "tp", "pp", "attention_dp", "ep")}
    tp, dp, ep = stated["tp"] or 1, stated["attention_dp"] or 1, stated["ep"] or 1
    if tp * dp < ep:
        dp = ep // tp  # experts on more ranks than attention has chips: the others are attention data parallelism
    return Pool(
        tp=tp,
        pp=stated["pp"] or 1,
        dp=dp,
        ep=ep,
        moe_tp=count(cells.get("moe_tp", "")) or max(1, tp * dp // ep),
        replicas=stated["workers"] or 1,
        max_batch=stated["batch"],
    )


def pools_of(row: Row, run: Run) -> tuple[Pool, Pool]:
    """Both pools of a disaggregated deployment, with the layouts and limits of its published configuration.

    A row's own batch is its users over the ranks: no limit of the server.
    """
    stated = [disaggregated_pool(text) for text in (row.prefill_pool, row.decode_pool)]
    sizes = [f"{pool.replicas}x{pool.chips_per_replica}" for pool in stated]
    slug, version = framework_of(row)
    named = slug, version.removeprefix("1.x+dynamo-"), row.accelerator_slug, weights_of(row), row.isl, row.osl, *sizes
    known = settings_of(named, row.concurrency_or_batch)
    if known is None:
        first, later = (replace(_spread(p) if run.experts_over_all_ranks else p, max_batch=None) for p in stated)
        return first, later
    return (
        replace(
            _laid_out(stated[0], known.prefill_layout),
            max_batch=known.prefill_prompts,
            max_batched_tokens=known.prefill_tokens,
        ),
        replace(_laid_out(stated[1], known.decode_layout), max_batch=known.decode_seats),
    )


def _spread(pool: Pool) -> Pool:
    return replace(pool, ep=pool.chips_per_replica // pool.pp, moe_tp=1)


def _laid_out(pool: Pool, layout: str) -> Pool:
    """The pool in a layout such as `dp8 ep8`."""
    ways = {name: int(size) for name, size in re.findall(r"([a-z]+)(\d+)", layout)}
    tp, dp, ep = ways.get("tp", 1), ways.get("dp", 1), ways.get("ep", 1)
    return replace(pool, tp=tp, dp=dp, ep=ep, moe_tp=max(1, tp * dp // ep))


# ------------------------------------------------------------------ requests and client

PREFILL_METRICS = ("ttft_ms", "prefill_tokens_per_s")
FIT_METRICS = ("fits_in_memory", "kv_capacity_tokens", "weights_gib_per_accelerator", "peak_memory_gb")


def phase_of(row: Row, client: Protocol) -> str:
    """The phase that the figure describes, one of case.PHASES."""
    if row.task == "kernel":
        return "kernel"
    if row.task == "memory" or row.metric in FIT_METRICS:
        return "fit"
    if row.metric in PREFILL_METRICS or row.source_key == "h200_vllm_prefill":
        return "prefill"
    if client.kind == "single":
        return "decode"
    return client.kind if client.kind in ("static", "offline") else "serving"


# Of a row that does not say how many were sent. More of them would lengthen the queue of a row whose rate is above the
# predicted capacity, without end.
REQUESTS_AT_A_RATE = 2000


def client_of(row: Row, run: Run) -> Protocol:
    """The client of a row: that of its source, with the rate, count or kind that the row states."""
    text, note = row.concurrency_or_batch, note_of(row)
    users = users_of(row.params_note, text)
    client = _with(run.client, **stated_client(row.params_note, text, users))
    stated = note.get("client", "")
    if stated == "static" and number(row.osl, 0) == 1 or row.metric in PREFILL_METRICS:
        return _with(client, kind="single")
    if stated in ("steady", "burst", "static"):
        each = number(note.get("requests_per_user", ""), client.requests_per_user)
        return _with(client, kind=stated, requests_per_user=each, known=True, **_spread_of(note))
    if text.startswith(("offline", "max", "qps=INF")):
        queued = re.search(r"(\d+) (?:prompts|requests)", text)
        return _with(client, kind="offline", requests=int(queued[1]) if queued else client.requests)
    if users and "qps=" in text:
        return _with(client, kind="steady", requests=None)
    if match := re.search(r"qps=([\d.]+)", text):
        known = {"known": True} if stated == "poisson" else {}
        cv = number(note.get("arrival_cv", ""), client.arrival_cv)
        given = {"rate_per_s": float(match[1]), "arrival_cv": cv, "requests": client.requests or REQUESTS_AT_A_RATE}
        return _with(client, kind="poisson", **given, **known, **_spread_of(note))
    if client.kind == "burst" and client.requests and count(text):
        return _with(client, requests_per_user=client.requests / float(text))
    return client


def _spread_of(note: dict[str, str]) -> dict[str, float]:
    """The range of lengths around the row's that its note states, such as lengths=0.8:1.0."""
    low, _, high = note.get("lengths", "").partition(":")
    ends = number(low, 0.0), number(high, 0.0)
    if not 0 <= ends[0] <= ends[1] or not ends[1]:
        return {}
    return {"length_low_fraction": ends[0], "length_high_fraction": ends[1]}


def _with(client: Protocol, **changes: object) -> Protocol:
    return Protocol(**({name: getattr(client, name) for name in Protocol.__slots__} | changes))


def concurrency_of(row: Row, client: Protocol, decode_pool: Pool | None) -> float | None:
    """Concurrent users (or batch size) of the whole deployment; None if as many as fit, or for an open loop."""
    if client.kind in ("offline", "poisson"):
        return None
    if client.kind == "single":
        return 1.0
    if (users := users_of(row.params_note, row.concurrency_or_batch)) is not None:
        return users
    if decode_pool is not None and decode_pool.max_batch:
        return float(decode_pool.max_batch * decode_pool.dp * decode_pool.replicas)
    return None


def limits_of(row: Row) -> tuple[float | None, float | None]:
    """The benchmark's p99 limits (TTFT, TPOT) in seconds, from the row's notes; None if there is none."""
    match = re.search(r"SLO p99 TTFT<=([\d.]+)ms TPOT<=([\d.]+)ms", row.notes)
    return (float(match[1]) / 1e3, float(match[2]) / 1e3) if match else (None, None)


def max_batch_of(row: Row, run: Run) -> int | None:
    """The server's limit on running requests per replica, from the row or its source; None if not stated."""
    if users_of(row.params_note, row.concurrency_or_batch) is None and (
        match := re.search(r"max batch(?:/GPU)? (\d+)|qps=\S+ max (\d+)", row.concurrency_or_batch)
    ):
        return int(match[1] or match[2])
    seats = stated_seats(row.params_note) or stated_seats(row.concurrency_or_batch) or run.max_batch
    ranks = (count(row.attention_dp) or 1) if run.seats_of_all_ranks else 1
    return max(seats // ranks, 1) if seats else None


def skip_of(row: Row, catalog: Catalog) -> Skip | None:
    """Why a row cannot be predicted, from its basic columns; None if it can."""
    if row.task == "training":
        return Skip(reason="training is not modeled")
    if row.confidence == "C" or row.metric in AMBIGUOUS:
        return Skip(reason="ambiguous metric")
    if not math.isfinite(row.value) or row.value < 0:
        return Skip(reason="the value is not a number")
    if row.accelerator_slug not in catalog.accelerators:
        return Skip(reason=f"accelerator not in the catalog: {row.accelerator_slug or row.accelerator}")
    if row.task != "kernel" and row.model_id not in catalog.models:
        return Skip(reason=f"model not in the catalog: {row.model_id or row.model}")
    return None


def case_of(row: Row, catalog: Catalog) -> Case | Skip:
    """The case that a row measured, or why it has none."""
    if skip := skip_of(row, catalog):
        return skip
    run = run_of(run_facts(row))
    weights = weights_of(row) or run.weights_dtype
    if not weights:
        return Skip(reason="weight format not stated")
    client = client_of(row, run)
    phase = phase_of(row, client)
    isl, osl = number(row.isl, run.isl_tokens or 0), number(row.osl, run.osl_tokens or 0)
    if phase == "prefill" and number(note_of(row).get("depth", ""), 0) > 0:
        return Skip(reason="a prompt after a filled cache is not modeled")
    if isl + osl == 0 and phase not in ("fit", "kernel"):
        return Skip(reason="token lengths not stated")
    return _case(row, run, client, weights, phase, isl, osl)


def _case(row: Row, run: Run, client: Protocol, weights: str, phase: str, isl: float, osl: float) -> Case:
    disagg = row.mode == "disagg"
    prefill, decode = pools_of(row, run) if disagg else (None, None)
    pool = None if disagg else pool_of(row, run)
    slug, version = framework_of(row)
    ttft_limit_s, tpot_limit_s = limits_of(row)
    draft = 1 if run.speculative and pool is not None and pool.dp > 1 else run.speculative_tokens
    return Case(
        model_id=row.model_id,
        accelerator_slug=row.accelerator_slug,
        chips=_chips(row, pool),
        mode=row.mode or "agg",
        pool=pool,
        prefill_pool=prefill,
        decode_pool=decode,
        layout_free=not disagg and pool is None,
        weights_dtype=weights,
        kv_dtype=KV.get(row.kv_dtype, row.kv_dtype) or run.kv_dtype,
        block_scaled=run.block_scaled or "fp8_block" in row.params_note,
        framework=slug,
        framework_version=version,
        isl=isl,
        osl=osl,
        concurrency=concurrency_of(row, client, disaggregated_pool(row.decode_pool) if disagg else None),
        client=client,
        phase=phase,
        max_batch=max_batch_of(row, run),
        max_batched_tokens=None if prefill and prefill.max_batched_tokens else run.max_batched_tokens,
        memory_fraction=run.memory_fraction,
        speculative=run.speculative,
        speculative_tokens=draft if run.speculative else None,
        ttft_limit_s=ttft_limit_s,
        tpot_limit_s=tpot_limit_s,
        routing_evenness=run.routing_evenness,
        beams=run.beams,
        prefix_classes=(PrefixClass(fraction=1.0, shared_tokens=isl),) if run.shared_prompt and isl else (),
        year=count(row.date[:4]),
    )


def _chips(row: Row, pool: Pool | None) -> int:
    """The stated number of chips, or the layout's if that is more (the statement omits attention ranks)."""
    stated = count(row.n_accelerators) or 1
    return stated if pool is None else max(stated, pool.chips)
