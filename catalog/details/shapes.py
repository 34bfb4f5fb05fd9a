"""What a model shape costs on each chip family: matrix padding, and heads and vocabulary under tensor parallelism."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil

from advisor.engine.network import (
    Attention,
    Block,
    CompressedAttention,
    LatentAttention,
    Model,
    Recurrent,
    SoftmaxAttention,
)

TP_SIZES = (2, 4, 8, 16)
VOCABULARY_STEP = 64  # serving frameworks pad the vocabulary to a multiple of this on every chip


@dataclass(frozen=True, kw_only=True, slots=True)
class Family:
    """Chips whose matrix unit works on tiles with this many elements per edge."""

    name: str
    tile: int
    source: str


FAMILIES = (
    Family(
        name="NVIDIA, 16 bits",
        tile=64,
        source="NVIDIA Matrix Multiplication Background guide: 128 bytes, 64 elements of FP16 on A100",
    ),
    Family(
        name="NVIDIA, 8 bits",
        tile=128,
        source="NVIDIA Matrix Multiplication Background guide: 128 bytes, 128 elements of INT8 or FP8",
    ),
    Family(name="AMD CDNA", tile=64, source="a wavefront of 64 lanes (AMD CDNA3 instruction set); planning assumption"),
    Family(name="Google TPU to v5", tile=128, source="matrix unit of 128 x 128 (cloud.google.com/tpu/docs)"),
    Family(name="Google TPU v6e, v7", tile=256, source="matrix unit of 256 x 256 (cloud.google.com/tpu/docs)"),
    Family(name="AWS Neuron", tile=128, source="tensor engine of 128 x 128 (Neuron hardware architecture guide)"),
    Family(name="Intel Gaudi", tile=256, source="matrix engine of 256 x 256 (Gaudi 2 and 3 white papers)"),
    Family(name="CPU with AMX", tile=32, source="tiles of 64 bytes, 32 elements of BF16 (Intel SDM, AMX)"),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Padding:
    """The extra compute of one chip family due to padding, and the widths that are padded."""

    family: str
    tile: int
    extra_fraction: float
    widths: tuple[str, ...]
    source: str

    @property
    def extra_percent(self) -> float:
        return self.extra_fraction * 100


@dataclass(frozen=True, kw_only=True, slots=True)
class Split:
    """How heads and vocabulary divide under one tensor-parallel size."""

    tp: int
    heads: str
    kv_heads: str
    vocab: str
    possible: bool


Matrix = tuple[str, int, str, int, int]  # name and size of each edge, number of matrices


def matrices(model: Model) -> Iterator[Matrix]:
    """The weight matrices of a model."""
    for block in model.blocks:
        yield from mixer_matrices(model, block)
        if ffn := block.ffn:
            count = block.count * ffn.experts * ffn.matrices
            yield "width", model.hidden, "feed-forward", ffn.inner, count
            if ffn.shared_inner:
                yield "width", model.hidden, "shared experts", ffn.shared_inner, block.count * ffn.matrices
    yield "width", model.hidden, "vocabulary", model.vocab, 1


def mixer_matrices(model: Model, block: Block) -> Iterator[Matrix]:
    hidden, count = model.hidden, block.count
    match block.mixer:
        case Attention() as mixer:
            yield "width", hidden, "queries", mixer.heads * mixer.head_dim, 2 * count
            yield "width", hidden, "keys", mixer.kv_heads * mixer.head_dim, 2 * count
        case LatentAttention() as mixer:
            yield "width", hidden, "key latent", mixer.kv_rank + mixer.rope_dim, count
            if mixer.q_rank:
                yield "width", hidden, "query latent", mixer.q_rank, count
            yield "width", hidden, "values", mixer.heads * mixer.v_dim, count
        case CompressedAttention() as mixer:
            yield "width", hidden, "query latent", mixer.q_rank, count
            yield "query latent", mixer.q_rank, "queries", mixer.heads * mixer.head_dim, count
            yield "width", hidden, "groups of the output", mixer.output_groups * mixer.output_rank, count
        case Recurrent() as mixer:
            yield "width", hidden, "recurrence", mixer.inner, 3 * count


def padding(model: Model) -> list[Padding]:
    """The padding on each chip family."""
    return [padding_on(model, family) for family in FAMILIES]


def padding_on(model: Model, family: Family) -> Padding:
    required = computed = 0
    uneven: dict[str, None] = {}
    for row_name, rows, column_name, columns, count in matrices(model):
        required += rows * columns * count
        computed += padded(rows, family.tile) * padded(columns, family.tile) * count
        for name, size in ((row_name, rows), (column_name, columns)):
            if size % family.tile:
                uneven[f"{name} {size:,}"] = None
    return Padding(
        family=family.name,
        tile=family.tile,
        extra_fraction=computed / required - 1,
        widths=tuple(uneven),
        source=family.source,
    )


def padded(size: int, step: int) -> int:
    return ceil(size / step) * step


def splits(model: Model) -> list[Split]:
    """How heads and vocabulary divide under each tensor-parallel size."""
    mixers = [block.mixer for block in model.blocks if isinstance(block.mixer, SoftmaxAttention)]
    heads = sorted({mixer.heads for mixer in mixers})
    kv_heads = sorted({mixer.kv_heads for mixer in mixers if isinstance(mixer, Attention)})
    return [split(model, heads, kv_heads, tp) for tp in TP_SIZES]


def split(model: Model, heads: list[int], kv_heads: list[int], tp: int) -> Split:
    possible = all(each % tp == 0 for each in heads)
    step = VOCABULARY_STEP * tp
    padding_rows = padded(model.vocab, step) - model.vocab
    return Split(
        tp=tp,
        heads="; ".join(
            f"{each}: {each // tp} per chip" if each % tp == 0 else f"{each}: not divisible" for each in heads
        ),
        kv_heads="; ".join(kv_heads_text(each, tp) for each in kv_heads),
        vocab=f"{padding_rows:,} rows of padding" if padding_rows else "no padding",
        possible=possible,
    )


def kv_heads_text(kv_heads: int, tp: int) -> str:
    """How KV heads divide. With fewer heads than chips each is replicated, and the cache stops shrinking."""
    if kv_heads % tp == 0:
        return f"{kv_heads}: {kv_heads // tp} per chip"
    return f"{kv_heads}: each replicated {tp // kv_heads} times" if tp % kv_heads == 0 else f"{kv_heads}: not divisible"


def head_notes(model: Model) -> list[str]:
    """Notes on head sizes that attention kernels pad."""
    sizes = sorted({block.mixer.head_dim for block in model.blocks if isinstance(block.mixer, Attention)})
    return [
        f"head dimension {size} is padded to {padded(size, 64)}: attention kernels need a multiple of 64"
        for size in sizes
        if size % 64
    ]


@dataclass(frozen=True, kw_only=True, slots=True)
class Costs:
    """The costs of a model shape, as pages show them."""

    padding: list[Padding]
    splits: list[Split]
    notes: list[str]


def costs(model: Model) -> Costs:
    """The costs of one model's shape."""
    return Costs(padding=padding(model), splits=splits(model), notes=head_notes(model))
