"""Model architectures: shapes, parameter counts and cache sizes, and the parser of config.json."""

from advisor.engine.network.blocks import (
    Attention,
    Block,
    Ffn,
    LatentAttention,
    Recurrent,
    convolution_elements,
)
from advisor.engine.network.checkpoint import checkpoint
from advisor.engine.network.diffusion import (
    LATENT_PX,
    decoder_convolutions,
    diffusion_parameters,
)
from advisor.engine.network.hf_config import from_hf_config, from_stored_config
from advisor.engine.network.matrices import Matrix, ffn_matrices, matrices, mixer_matrices, mixer_vectors, vectors
from advisor.engine.network.model import (
    Adapters,
    Drawing,
    Model,
    active_parameters,
    block_parameters,
    cross_kv_elements,
    decoder_blocks,
    embedding_parameters,
    from_shape,
    kv_elements,
    kv_elements_per_token,
    parameters,
    passes_of,
    state_elements,
    to_shape,
)
from advisor.engine.network.release import DraftRelease, Release
from advisor.engine.network.size_checks import Doubt, size_doubts
from advisor.engine.network.validate import MAX_PARAMETERS, check_plausible
from advisor.engine.network.vision import pictures_of, vision_parameters

__all__ = [
    "LATENT_PX",
    "Drawing",
    "decoder_convolutions",
    "diffusion_parameters",
    "Adapters",
    "Attention",
    "Block",
    "Doubt",
    "DraftRelease",
    "Ffn",
    "LatentAttention",
    "MAX_PARAMETERS",
    "Matrix",
    "Model",
    "Recurrent",
    "Release",
    "active_parameters",
    "block_parameters",
    "check_plausible",
    "checkpoint",
    "convolution_elements",
    "cross_kv_elements",
    "decoder_blocks",
    "embedding_parameters",
    "ffn_matrices",
    "from_hf_config",
    "from_stored_config",
    "from_shape",
    "kv_elements",
    "kv_elements_per_token",
    "matrices",
    "mixer_matrices",
    "mixer_vectors",
    "parameters",
    "passes_of",
    "pictures_of",
    "vectors",
    "vision_parameters",
    "state_elements",
    "size_doubts",
    "to_shape",
]
