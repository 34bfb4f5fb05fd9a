"""Memory of draft models and draft heads: weights and KV cache on the chips of the target model.

Shapes are those of published checkpoints. EAGLE-3: one layer like the target's, whose query, key and value projections
also read the embedding, a projection of three hidden states, and an output head for EAGLE_VOCAB tokens (config.json of
nm-testing/EAGLE3-LLaMA3.1-Instruct-8B-converted, read 2026-11-21). For mixtures of experts its feed-forward is dense
and EAGLE_FFN_FACTOR times the hidden width (SpecForge, configs/gpt-oss-120B-eagle3.json: 17,280 for 2,880). Multi-token
prediction: one layer like the target's last, and a projection of two hidden states; it shares the target's embedding
and output head (deepseek-ai/DeepSeek-V3 README_WEIGHTS.md). Medusa: each head is a square matrix and an output head
(arXiv 2401.10774).
"""

from dataclasses import replace

from advisor.engine.network import Attention, Block, Ffn, Model, Recurrent, decoder_blocks
from advisor.engine.step.drafts.speculative import EAGLE_VOCAB, Draft
from advisor.engine.step.layout import Choice, layouts
from advisor.engine.step.memory import kv_bytes_per_sequence, mixer_elements, weights_bytes

HALF_BYTES = 2.0  # heads are published and kept in 16 bits
EAGLE_FFN_FACTOR = 6
STATES = 3  # hidden states of the target that EAGLE-3 concatenates
# attention of the EAGLE-3 layer for targets with latent attention (SpecForge, deepseek-v3-671b-eagle3)
HEAD_DIM, KV_HEADS = 128, 8


def drafting_choice(c: Choice) -> Choice:
    """Layout of the draft model on the chips of a lane: 16-bit, same tensor-parallel group."""
    half = replace(c.quantization, slug="bf16", name="BF16", weights_dtype="bf16", bits_per_weight=16.0,
                   activations_dtype="bf16", quality="lossless", weight_only=False, block_scaled=False,
                   experts_only="", checkpoint_format="")  # fmt: skip
    return replace(c, quantization=half, ep=1)


def draft_bytes(model: Model, draft: Draft, choice: Choice, context_tokens: float) -> tuple[float, float]:
    """(weights, cache of one sequence with this context) of the draft model or head on a chip, bytes; 0 for n-grams."""
    if draft.model is not None:
        return layer_bytes(draft.model, drafting_choice(choice), context_tokens)
    if draft.method == "medusa":
        return draft.head_bytes / choice.tp, 0.0
    if draft.method == "mtp":
        weights, cache = layer_bytes(one_layer(model, last_layer(model)), choice, context_tokens)
        return weights + HALF_BYTES * 2 * model.hidden**2, cache
    if draft.method != "eagle":
        return 0.0, 0.0
    layer = eagle_layer(model)
    weights, cache = layer_bytes(one_layer(model, layer), drafting_choice(choice), context_tokens)
    further = eagle_sharded_elements(model, layer) / choice.tp + STATES * model.hidden**2
    return weights + HALF_BYTES * further, cache


def layer_bytes(model: Model, choice: Choice, context_tokens: float) -> tuple[float, float]:
    """(weights, cache of one sequence) of a whole model on one chip of this layout, bytes."""
    x = layouts(model, [choice])
    return float(weights_bytes(model, x)[0]), float(kv_bytes_per_sequence(model, x, context_tokens)[0])


def one_layer(model: Model, layer: Block) -> Model:
    """A model of only this layer; embedding and output head are counted separately."""
    return replace(model, blocks=(replace(layer, count=1),), vocab=0, position_embeddings=0, tied_embeddings=False)


def last_layer(model: Model) -> Block:
    """The last block of the decoder."""
    return decoder_blocks(model)[-1]


def eagle_layer(model: Model) -> Block:
    """The layer of an EAGLE-3 head: softmax attention over the whole context and a dense feed-forward."""
    attention_blocks = [b for b in decoder_blocks(model) if not isinstance(b.mixer, Recurrent)]
    mixer = attention_blocks[-1].mixer if attention_blocks else None
    if not isinstance(mixer, Attention):
        mixer = Attention(heads=model.hidden // HEAD_DIM, kv_heads=KV_HEADS, head_dim=HEAD_DIM)
    ffn = last_layer(model).ffn
    inner = ffn.inner if ffn is not None and ffn.experts == 1 else EAGLE_FFN_FACTOR * model.hidden
    return Block(count=1, mixer=replace(mixer, window_tokens=None), ffn=Ffn(inner=inner))


def eagle_sharded_elements(model: Model, layer: Block) -> float:
    """Tensor-parallel weights of an EAGLE-3 head: query, key and value on the embedding, and the output head."""
    split, _ = mixer_elements(model, layer)
    mixer = layer.mixer
    assert isinstance(mixer, Attention)
    out = mixer.heads * mixer.v_dim * model.hidden
    return split - out + min(EAGLE_VOCAB, model.vocab) * model.hidden
