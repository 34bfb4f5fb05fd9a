"""A deployment with the catalog's names, as the arguments of an estimate."""

from dataclasses import dataclass, replace

from advisor.deployments.records import Found, Json, Range, Seen, Settings, Spread
from advisor.evidence import catalog_names
from catalog.importers.prices import hosted
from catalog.models import Price, ServedModel

WEIGHTS = {  # --quantization -> format of the catalog
    "fp8": "fp8", "w8a8_fp8": "fp8", "modelopt": "fp8", "modelopt_fp8": "fp8", "fbgemm_fp8": "fp8", "ptpc_fp8": "fp8",
    "nvfp4": "nvfp4", "modelopt_fp4": "nvfp4", "mxfp4": "mxfp4", "gpt_oss_mxfp4": "mxfp4", "awq": "awq",
    "awq_marlin": "awq", "gptq": "gptq", "gptq_marlin": "gptq", "w8a8_int8": "int8", "bitsandbytes": "nf4",
    "bitsandbytes-nf4": "nf4", "eetq": "int8-w8a16",
}  # fmt: skip
NAMED = {"fp4": "nvfp4", "int4": "awq"}  # the end of a checkpoint's name -> format
CACHE = {"fp8_e4m3": "fp8", "fp8_e5m2": "fp8", "bfloat16": "bf16", "float16": "fp16"}
DRAFTS = {
    "ngram": "ngram",
    "eagle": "eagle",
    "mtp": "mtp",
    "nextn": "mtp",
    "draft_model": "draft",
    "standalone": "draft",
}
MOST_P95 = 20.0  # times the mean


@dataclass(frozen=True, kw_only=True, slots=True)
class Resolved:
    """A deployment by the catalog's names. `missing`: what nobody says; without it nothing can be predicted."""

    arguments: Json  # of an estimate, without traffic
    missing: tuple[str, ...]
    notes: tuple[str, ...]


def resolve(settings: Settings, model: str = "", accelerator: str = "") -> Resolved:
    """model, accelerator: what the user says instead of the files."""
    known, notes, missing = catalog_names(), [], []
    written = [model] if model else [settings.model or "", settings.served_name or ""]
    model_id = known.model(*written, *(_plain(name) for name in written))
    chips = [accelerator] if accelerator else [settings.accelerator or ""]
    chip = known.chip(*chips, *(_plain(name).replace("_", "-") for name in chips)) or _of_instance(chips[0])
    if not model_id:
        missing.append(f"the model ({written[0] or 'not stated'} is not in the catalog; give --model)")
    if not chip:
        missing.append(f"the accelerator ({chips[0] or 'not stated'}; give --accelerator)")
    row = ServedModel.objects.filter(hf_id=model_id).first() if model_id else None
    has_experts = row is not None and any("experts" in (b.get("ffn") or {}) for b in row.shape.get("blocks", ()))
    weights, why = _weights(settings, written, known.native.get(model_id, ""))
    notes += [why] if why else []
    given: Json = {
        "model": model_id,
        "accelerator": chip,
        "weights": weights,
        "kv": _cache(settings.kv_dtype),
        "framework": settings.framework,
        "framework_version": settings.version,
        "seats": settings.max_num_seqs,
        "max_batched_tokens": settings.max_batched_tokens if (settings.max_batched_tokens or 0) >= 16 else None,
        "memory_fraction": settings.memory_fraction,
        "enforce_eager": settings.enforce_eager,
        "prefix_caching": settings.prefix_caching,
        "adapters": {"count": settings.max_loras} if settings.max_loras else None,
        **_layout(settings, has_experts),
    }
    if settings.framework == "sglang" and settings.dp_attention and given["max_batched_tokens"]:
        given["max_batched_tokens"] = max(given["max_batched_tokens"] // (settings.dp or 1), 16)
    if settings.framework == "vllm" and settings.tp is None and (settings.accelerators or 1) > 1:
        notes.append(f"no tensor-parallel size is stated: one of {settings.accelerators} accelerators is used")
    if settings.prefill_or_decode not in (None, "null"):
        notes.append(f"this is a {settings.prefill_or_decode} worker; its pool is estimated as a whole server")
    arguments = {key: value for key, value in given.items() if value is not None and value is not False}
    for key in ("prefix_caching", "enforce_eager"):
        if given[key] is not None:
            arguments[key] = given[key]
    return Resolved(arguments=arguments, missing=tuple(missing), notes=tuple(notes))


def _plain(name: str) -> str:
    """The model or chip of a path, a cache folder or a label."""
    last = name.strip().rstrip("/")
    parts = [part for part in last.split("/") if part.startswith("models--")]
    return parts[0].removeprefix("models--").replace("--", "/") if parts else last.rsplit("/", 1)[-1]


def _of_instance(name: str) -> str:
    """The accelerator of a cloud's instance type."""
    prices = Price.objects.filter(organisation=None, instance=name) if name else Price.objects.none()
    return prices.values_list("accelerator__slug", flat=True).first() or ""


def _weights(settings: Settings, written: list[str], native: str) -> tuple[str, str]:
    """(format of the weights, why it is assumed): as started, as the checkpoint's name ends, or as published."""
    stated = (settings.quantization or "").lower()
    named = next((found for name in written if (found := hosted.number_format(_plain(name)))), "")
    named = NAMED.get(named, named)
    if stated in WEIGHTS and not (named and stated == "modelopt"):
        return WEIGHTS[stated], ""
    if named:
        return named, f"weights in {named}, as the name of the checkpoint ends"
    if stated and native in ("", "bf16", "fp16"):
        return native, f"quantization {stated} does not say the format of the weights; {native or 'none'} is assumed"
    return native, f"weights in {native}, as the model is published" if not stated else ""


def _cache(written: str | None) -> str | None:
    name = (written or "").lower()
    return CACHE.get(name, name) or None


def _layout(s: Settings, has_experts: bool) -> Json:
    """Sizes as an estimate counts them: attention ranks inside a replica, and independent replicas."""
    tp, dp = s.tp or 1, s.dp or 1
    if s.dp_attention:  # SGLang: dp ranks share the tp accelerators
        inner = max(tp // dp, 1)
        return {"tp": inner, "pp": s.pp or 1, "attention_dp": dp, "ep": s.ep or 1, "moe_tp": max(tp // (s.ep or 1), 1)}
    inside = has_experts and s.framework == "vllm" and dp > 1
    ep = tp * (dp if inside else 1) if s.expert_parallel and has_experts else s.ep or 1
    found: Json = {"tp": tp, "pp": s.pp or 1, "ep": ep if has_experts else 1}
    if inside:
        return found | {"attention_dp": dp, "moe_tp": max(tp * dp // ep, 1)}
    return found | ({"dp": dp} if dp > 1 else {}) | ({"moe_tp": max(tp // ep, 1)} if ep > 1 else {})


def drafts(settings: Settings, seen: Seen) -> tuple[Json | None, str]:
    """(speculative decoding as an estimate takes it, why not)."""
    s = settings.speculative
    if not s:
        return None, ""
    written = str(s.get("method", "")).lower()  # such as eagle3 or qwen3_next_mtp
    method = next((ours for name, ours in DRAFTS.items() if name in written), None)
    if method is None or method == "draft" and not s.get("draft"):
        return None, f"drafts by {s.get('method') or 'an unknown method'} are left out: they cannot be estimated"
    k = int(s.get("k") or 3)
    found: Json = {"method": method, "k": min(max(k, 1), 16)}
    if method == "draft":
        found["draft"] = str(s["draft"])
    if seen.tokens_per_draft is not None:
        found["acceptance"] = round(acceptance(min(seen.tokens_per_draft, k * 0.999), found["k"]), 4)
    return found, ""


def acceptance(accepted: float, k: int) -> float:
    """Probability p that a draft is accepted after its predecessors: p + p^2 + ... + p^k drafts are."""
    low, high = 0.0, 1.0
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if sum(middle**i for i in range(1, k + 1)) < accepted else (low, middle)
    return low


def load(seen: Seen, servers: int) -> tuple[Json, str]:
    """(traffic of an estimate, in words); empty: the files do not say which load it was."""
    given, made = (_mean(each) for each in (seen.input_tokens, seen.output_tokens))
    if not given or not made:
        return {}, ""
    traffic: Json = {"isl": max(round(given), 1), "osl": max(round(made), 1)}
    for key, spread, mean in (("isl_p95", seen.input_tokens, given), ("osl_p95", seen.output_tokens, made)):
        p95 = _middle(spread.get("p95"))
        if p95 and mean < p95 <= MOST_P95 * mean:
            traffic[key] = round(p95)
    words = f"{traffic['isl']:,} input and {traffic['osl']:,} output tokens"
    if seen.prefix_hit_fraction and 0 < seen.prefix_hit_fraction <= 1:
        traffic["prefix_cache_hit_rate"] = round(min(seen.prefix_hit_fraction, 0.99), 4)
        words += f", {seen.prefix_hit_fraction:.0%} of prompts cached"
    rate = seen.rate_per_s or seen.requests_per_s
    if seen.concurrency:
        rounds = min(max(round((seen.completed or 1) / seen.concurrency), 1), 999)
        return traffic | {"concurrency": max(round(seen.concurrency), 1), "client": f"burst:{rounds}"}, (
            f"{seen.concurrency:,.0f} requests at once, {rounds} each; {words}"
        )
    if rate:
        cv = {"burstiness": seen.arrival_cv} if seen.arrival_cv is not None else {}
        return traffic | {
            "rate": rate
        } | cv, f"{rate:.4g} requests/s on {servers} replica{'s' * (servers > 1)}; {words}"
    if seen.running:
        return traffic | {"concurrency": max(round(seen.running), 1)}, f"{seen.running:,.0f} running requests; {words}"
    return {}, ""


def _mean(spread: Spread) -> float | None:
    return spread["mean"][0] if "mean" in spread else None


def _middle(ends: Range | None) -> float | None:
    return sum(ends) / 2 if ends and ends[1] < float("inf") else None


def measured(found: Found, servers: int | None) -> Found:
    """With the number of replicas that the figures are of: as stated, as many as were scraped, else one."""
    return replace(found, seen=replace(found.seen, servers=servers or found.seen.servers or 1))
