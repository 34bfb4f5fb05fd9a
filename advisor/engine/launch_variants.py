"""Options of a server that drafts or that works in one of two pools: words of its command and lines of its file."""

import json

from .adapters import served_rank
from .drafting import MEDUSA_POSITIONS, Draft, published
from .model import Model
from .trials import Scored

DRAFTING = ("vllm", "sglang", "tensorrt-llm")  # frameworks whose options of drafting are written here
POOLING = ("vllm", "sglang", "tensorrt-llm")
NGRAM_LONGEST = 4  # tokens that must match before what followed them is proposed
NIXL = {"kv_connector": "NixlConnector", "kv_role": "kv_both"}  # vLLM's connector over RDMA, the same in both pools


def checkpoint_of(draft: Draft, model: Model) -> str:
    """The published draft, or a placeholder for one that somebody must train."""
    return published(model, draft.method) or f"<{draft.name}>"


def draft_words(s: Scored, model: Model) -> list[str]:
    """vLLM takes one JSON, SGLang several options."""
    draft = s.lane.draft
    if draft is None:
        return []
    name = checkpoint_of(draft, model)
    if s.lane.framework.slug == "vllm":
        return ["--speculative-config", json.dumps(_vllm(draft, name))]
    if s.lane.framework.slug == "sglang":
        return _sglang(draft, name)
    return []


def _vllm(draft: Draft, name: str) -> dict[str, object]:
    k = {"num_speculative_tokens": draft.tokens}
    if draft.method == "ngram":
        return {"method": "ngram", **k, "prompt_lookup_max": NGRAM_LONGEST}
    if draft.method == "mtp":
        return {"method": "mtp", **k}
    return {"method": {"eagle": "eagle3", "draft": "draft_model"}.get(draft.method, draft.method), "model": name, **k}


def _sglang(draft: Draft, name: str) -> list[str]:
    algorithm = {"eagle": "EAGLE3", "mtp": "EAGLE", "ngram": "NGRAM", "draft": "STANDALONE"}[draft.method]
    words = ["--speculative-algorithm", algorithm, "--speculative-num-draft-tokens", str(draft.tokens + 1)]
    if draft.method == "ngram":
        return words
    words += ["--speculative-num-steps", str(draft.tokens), "--speculative-eagle-topk", "1"]
    return words if draft.method == "mtp" else [*words, "--speculative-draft-model-path", name]


# matrices by TensorRT-LLM's names (tensorrt_llm/lora_helper.py)
ATTENTION = ("attn_q", "attn_k", "attn_v", "attn_dense")
DENSE = ("mlp_h_to_4h", "mlp_4h_to_h", "mlp_gate")


def adapter_words(s: Scored, model: Model) -> list[str]:
    """Flags of vLLM and SGLang for LoRA adapters; TensorRT-LLM reads them from its options file."""
    a = model.adapters
    if a is None:
        return []
    slots, rank, held = str(a.active), str(served_rank(a.rank)), str(max(a.count, a.active))
    if s.lane.framework.slug == "vllm":
        words = ["--enable-lora", "--max-loras", slots, "--max-lora-rank", rank, "--max-cpu-loras", held]
        return [*words, "--lora-modules", "<name>=<path of an adapter>"]
    if s.lane.framework.slug == "sglang":
        words = ["--enable-lora", "--max-loras-per-batch", slots, "--max-lora-rank", rank, "--max-loaded-loras", held]
        return [*words, "--lora-paths", "<name>=<path of an adapter>"]
    return []


def adapter_notes(s: Scored, model: Model) -> list[str]:
    """Where the adapters' own names go."""
    if model.adapters is None:
        return []
    if s.lane.framework.slug == "tensorrt-llm":
        return [f"each request names its adapter ({model.adapters.count} of them) and its path"]
    return [f"name each of the {model.adapters.count} adapters after the flag that has < >, or load them while it runs"]


def trtllm_lines(s: Scored, model: Model) -> str:
    """Sections of TensorRT-LLM's options file: adapters, the draft, and what moves caches from pool to pool."""
    draft, a = s.lane.draft, model.adapters
    moved = "cache_transceiver_config:\n  backend: UCX\n" if s.pools else ""
    if a is not None:
        held = (("max_lora_rank", served_rank(a.rank)), ("max_loras", a.active), ("max_cpu_loras", a.count))
        lines = [f"{name}: {value}" for name, value in held]
        lines.append(f"lora_target_modules: [{', '.join(ATTENTION if a.attention_only else ATTENTION + DENSE)}]")
        moved += "lora_config:\n" + "".join(f"  {line}\n" for line in lines)
    if draft is None:
        return moved
    kinds = {
        "eagle": ["decoding_type: Eagle", f"max_draft_len: {draft.tokens}"],
        "mtp": ["decoding_type: MTP", f"num_nextn_predict_layers: {draft.tokens}"],
        "ngram": [
            "decoding_type: NGram",
            f"max_draft_len: {draft.tokens}",
            f"max_matching_ngram_size: {NGRAM_LONGEST}",
        ],
        "draft": ["decoding_type: DraftTarget", f"max_draft_len: {draft.tokens}"],
        "medusa": [
            "decoding_type: Medusa",
            f"max_draft_len: {MEDUSA_POSITIONS - 1}",
            f"num_medusa_heads: {draft.tokens}",
        ],
    }
    lines = kinds[draft.method]
    if draft.method in ("eagle", "draft", "medusa"):
        lines = [*lines, f"speculative_model_dir: {json.dumps(checkpoint_of(draft, model))}"]
    return moved + "".join(f"{line}\n" for line in ["speculative_config:", *(f"  {line}" for line in lines)])


def pool_words(s: Scored, pool: str) -> list[str]:
    """What makes a server one of the prefill or of the decode pool."""
    if s.pools is None:
        return []
    if s.lane.framework.slug == "vllm":
        return ["--kv-transfer-config", json.dumps(NIXL)]
    return ["--disaggregation-mode", pool] if s.lane.framework.slug == "sglang" else []


def pool_notes(s: Scored, pool: str) -> list[str]:
    """Comments of a pool's script."""
    if s.pools is None:
        return []
    spelled = "write backend: ucx where the server refuses UCX (its source had it in lower case until about 1.0)"
    extra = [spelled] if s.lane.framework.slug == "tensorrt-llm" else []
    count = s.pools.prefill_replicas if pool == "prefill" else s.pools.decode_replicas
    return [
        f"{pool} pool: {count} replicas; a router sends each prompt to prefill first, then to decode with its cache",
        *extra,
    ]
