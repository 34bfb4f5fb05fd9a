"""What stands on the chips beside a model that drafts for itself: weights, and the cache of a layer of its own.

Shapes are those of published checkpoints. An EAGLE-3 head is one layer as the model's own, whose query, key and value
also read the embedding, a projection of three of the model's states, and an output head of EAGLE_VOCAB tokens
(config.json of nm-testing/EAGLE3-LLaMA3.1-Instruct-8B-converted, read 2026-11-21). For mixtures of experts its
feed-forward is dense and WIDE times the width (SpecForge, configs/gpt-oss-120B-eagle3.json: 17,280 of 2,880). A
multi-token prediction layer is one layer as the model's last, and a projection of two states; embedding and output head
are the model's (deepseek-ai/DeepSeek-V3 README_WEIGHTS.md). A Medusa head is a square and an output head of its own
(arXiv 2401.10774).
"""

from dataclasses import replace

from advisor.engine.network import Attention, Block, Ffn, Model, Recurrent, decoder_blocks
from advisor.engine.step.layout import Choice, layouts
from advisor.engine.step.memory import kv_bytes_per_sequence, mixer_elements, weights_bytes
from advisor.engine.step.speculative import EAGLE_VOCAB, Draft

HALF_BYTES = 2.0  # heads are published and kept in 16 bits
WIDE = 6
STATES = 3  # of the model, that EAGLE-3 joins
# of the layer where the model's own attention is latent (SpecForge, deepseek-v3-671b-eagle3)
HEAD_DIM, KV_HEADS = 128, 8


def drafting_choice(c: Choice) -> Choice:
    """The chips of a lane with a drafting model on them: in 16 bits, over the same tensor-parallel group."""
    half = replace(c.quantization, slug="bf16", name="BF16", weights_dtype="bf16", bits_per_weight=16.0,
                   activations_dtype="bf16", quality="lossless", weight_only=False)  # fmt: skip
    return replace(c, quantization=half, ep=1)


def held(model: Model, draft: Draft, choice: Choice, context_tokens: float) -> tuple[float, float]:
    """(weights on a chip, cache of a sequence of this context on a chip) of what drafts, bytes; 0 for n-grams."""
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
    beside = eagle_elements_split(model, layer) / choice.tp + STATES * model.hidden**2
    return weights + HALF_BYTES * beside, cache


def layer_bytes(model: Model, choice: Choice, context_tokens: float) -> tuple[float, float]:
    """(weights, cache of a sequence) of a whole model on a chip of this layout, bytes."""
    x = layouts(model, [choice])
    return float(weights_bytes(model, x)[0]), float(kv_bytes_per_sequence(model, x, context_tokens)[0])


def one_layer(model: Model, layer: Block) -> Model:
    """A model of this layer alone: embedding and output head are counted apart."""
    return replace(model, blocks=(replace(layer, count=1),), vocab=0, position_embeddings=0, tied_embeddings=False)


def last_layer(model: Model) -> Block:
    """The kind of layer that the decoder ends with."""
    return decoder_blocks(model)[-1]


def eagle_layer(model: Model) -> Block:
    """Softmax attention over the whole context, and a dense feed-forward."""
    own = [b for b in decoder_blocks(model) if not isinstance(b.mixer, Recurrent)]
    mixer = own[-1].mixer if own else None
    if not isinstance(mixer, Attention):
        mixer = Attention(heads=model.hidden // HEAD_DIM, kv_heads=KV_HEADS, head_dim=HEAD_DIM)
    ffn = last_layer(model).ffn
    inner = ffn.inner if ffn is not None and ffn.experts == 1 else WIDE * model.hidden
    return Block(count=1, mixer=replace(mixer, window_tokens=None), ffn=Ffn(inner=inner))


def eagle_elements_split(model: Model, layer: Block) -> float:
    """What query, key and value read beside the model's state, and the output head."""
    split, _ = mixer_elements(model, layer)
    mixer = layer.mixer
    assert isinstance(mixer, Attention)
    out = mixer.heads * mixer.v_dim * model.hidden
    return split - out + min(EAGLE_VOCAB, model.vocab) * model.hidden
