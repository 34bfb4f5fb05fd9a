"""Model architectures: shapes, parameter counts and cache sizes, and the parser of config.json."""

from advisor.engine.network.checkpoint import checkpoint
from advisor.engine.network.hf_config import from_hf_config
from advisor.engine.network.model import (
    Adapters,
    Attention,
    Block,
    Ffn,
    LatentAttention,
    Model,
    Recurrent,
    active_parameters,
    attention_kv_elements,
    block_parameters,
    cross_kv_elements,
    decoder_blocks,
    embedding_parameters,
    from_shape,
    kv_elements,
    kv_elements_per_token,
    parameters,
    state_elements,
    to_shape,
)
from advisor.engine.network.validate import MAX_PARAMETERS, check_plausible

__all__ = [
    "Adapters",
    "Attention",
    "Block",
    "Ffn",
    "LatentAttention",
    "MAX_PARAMETERS",
    "Model",
    "Recurrent",
    "active_parameters",
    "attention_kv_elements",
    "block_parameters",
    "check_plausible",
    "checkpoint",
    "cross_kv_elements",
    "decoder_blocks",
    "embedding_parameters",
    "from_hf_config",
    "from_shape",
    "kv_elements",
    "kv_elements_per_token",
    "parameters",
    "state_elements",
    "to_shape",
]
