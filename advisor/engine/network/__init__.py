"""Model architectures: shapes, parameter counts and cache sizes, and the parser of config.json."""

from advisor.engine.network.blocks import (
    Attention,
    Block,
    CompressedAttention,
    Ffn,
    LatentAttention,
    Recurrent,
    SoftmaxAttention,
    cached,
    convolution_elements,
    index_every,
    reads,
    recurrent_state,
)
from advisor.engine.network.checkpoint import checkpoint, gguf_format
from advisor.engine.network.diffusion import (
    LATENT_PX,
    decoder_convolutions,
    diffusion_parameters,
)
from advisor.engine.network.hf_config import from_hf_config, from_stored_config
from advisor.engine.network.matrices import (
    Matrix,
    ffn_matrices,
    matrices,
    mixer_matrices,
    mixer_vectors,
    stream_matrices,
    vectors,
)
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
