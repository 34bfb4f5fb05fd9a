"""Values and conditions of servers that draft, serve adapters, or belong to a prefill or decode pool."""

import json

from advisor.engine.network import Model
from advisor.engine.search import Scored
from advisor.engine.spec import DRAFT
from advisor.engine.step import MEDUSA_POSITIONS, Draft, published_draft, served_rank


def checkpoint_of(draft: Draft, model: Model) -> str:
    """The published draft, or a placeholder for one that has to be trained."""
    return published_draft(model, draft.method) or f"<{draft.name}>"


def variant_values(s: Scored, model: Model) -> dict[str, object]:
    """What the template's parts on drafts and adapters put in."""
    found: dict[str, object] = {}
    if (draft := s.lane.draft) is not None:
        name = checkpoint_of(draft, model)
        found |= {
            "draft_tokens": draft.tokens,
            "verified_tokens": draft.tokens + 1,
            "tree_tokens": MEDUSA_POSITIONS - 1,
            "draft_checkpoint": name,
            "draft_checkpoint_json": json.dumps(name),
        }
    if (a := model.adapters) is not None:
        found |= {
            "adapter_count": a.count,
            "adapter_slots": a.active,
            "adapter_rank": served_rank(a.rank),
            "adapters_held": max(a.count, a.active),
        }
    return found


def variant_conditions(s: Scored, model: Model, pool: str) -> dict[str, bool]:
    """Which of the template's conditions on drafts, adapters and pools hold; `pool`: prefill, decode or neither."""
    draft, a = s.lane.draft, model.adapters
    found = {
        "drafts": draft is not None,
        "adapters": a is not None,
        "attention_adapters": a is not None and a.attention_only,
        "pools": bool(pool) and s.pools is not None,
        "prefill_pool": s.pools is not None and pool == "prefill",
        "decode_pool": s.pools is not None and pool == "decode",
    }
    return found | ({f"{DRAFT}{draft.method}": True} if draft else {})


def pool_note(s: Scored, pool: str) -> list[str]:
    """What a pool is, for the comments of its script."""
    if s.pools is None:
        return []
    count = s.pools.prefill_replicas if pool == "prefill" else s.pools.decode_replicas
    return [
        f"{pool} pool: {count} replicas; a router sends each prompt to prefill first, then to decode with its cache"
    ]
