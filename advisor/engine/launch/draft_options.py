"""Template values and conditions for speculative decoding, LoRA adapters, and prefill and decode pools."""

import json

from advisor.engine.network import Model
from advisor.engine.search import Scored
from advisor.engine.step import MEDUSA_POSITIONS, Draft, published_draft, served_rank
from advisor.engine.terms import DRAFT


def checkpoint_of(draft: Draft, model: Model) -> str:
    """The published draft checkpoint, or a placeholder for one to train."""
    return published_draft(model, draft.method) or f"<{draft.name}>"


def variant_values(s: Scored, model: Model) -> dict[str, object]:
    """Template values for drafts and adapters."""
    values: dict[str, object] = {}
    if (draft := s.lane.draft) is not None:
        name = checkpoint_of(draft, model)
        values |= {
            "draft_tokens": draft.tokens,
            "verified_tokens": draft.tokens + 1,
            "tree_tokens": MEDUSA_POSITIONS - 1,
            "draft_checkpoint": name,
            "draft_checkpoint_json": json.dumps(name),
        }
    if (a := model.adapters) is not None:
        values |= {
            "adapter_count": a.count,
            "adapter_slots": a.active,
            "adapter_rank": served_rank(a.rank),
            "adapters_held": max(a.count, a.active),
        }
    return values


def variant_conditions(s: Scored, model: Model, pool: str) -> dict[str, bool]:
    """Template conditions for drafts, adapters and pools; `pool` is prefill, decode or empty."""
    draft, a = s.lane.draft, model.adapters
    conditions = {
        "drafts": draft is not None,
        "adapters": a is not None,
        "attention_adapters": a is not None and a.attention_only,
        "pools": bool(pool) and s.pools is not None,
        "prefill_pool": s.pools is not None and pool == "prefill",
        "decode_pool": s.pools is not None and pool == "decode",
    }
    return conditions | ({f"{DRAFT}{draft.method}": True} if draft else {})


def pool_note(s: Scored, pool: str) -> list[str]:
    """Comments on a pool, for its start script."""
    if s.pools is None:
        return []
    count = s.pools.prefill_replicas if pool == "prefill" else s.pools.decode_replicas
    return [f"{pool} pool: {count} replicas; a router sends each prompt to prefill, then to decode with its KV cache"]
