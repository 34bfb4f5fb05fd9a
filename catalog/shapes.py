"""What the shape of a network costs on each family of chips: padding, heads over chips, vocabulary."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil

from advisor.engine.network import Attention, Block, LatentAttention, Model, Recurrent

TP_SIZES = (2, 4, 8, 16)
VOCABULARY_STEP = 64  # serving frameworks pad the vocabulary to a multiple of this on every chip


@dataclass(frozen=True, kw_only=True, slots=True)
class Family:
    """Chips whose matrix unit works on edges of this many elements."""

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
    """How much more a family computes than the shape asks for, and because of which widths."""

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
    """What happens to heads and vocabulary when a model is spread over chips."""

    tp: int
    heads: str
    kv_heads: str
    vocab: str
    possible: bool


Matrix = tuple[str, int, str, int, int]  # name and width of each edge, how many such matrices


def matrices(model: Model) -> Iterator[Matrix]:
    """The weight matrices, each with the names of its edges."""
    for block in model.blocks:
        yield from mixing(model, block)
        if ffn := block.ffn:
            count = block.count * ffn.experts * ffn.matrices
            yield "width", model.hidden, "feed-forward", ffn.inner, count
            if ffn.shared_inner:
                yield "width", model.hidden, "shared experts", ffn.shared_inner, block.count * ffn.matrices
    yield "width", model.hidden, "vocabulary", model.vocab, 1


def mixing(model: Model, block: Block) -> Iterator[Matrix]:
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
        case Recurrent() as mixer:
            yield "width", hidden, "recurrence", mixer.inner, 3 * count


def padding(model: Model) -> list[Padding]:
    """What every family pays for widths that its matrix unit does not divide."""
    return [padding_on(model, family) for family in FAMILIES]


def padding_on(model: Model, family: Family) -> Padding:
    asked = done = 0
    uneven: dict[str, None] = {}
    for one, rows, other, columns, count in matrices(model):
        asked += rows * columns * count
        done += padded(rows, family.tile) * padded(columns, family.tile) * count
        for name, size in ((one, rows), (other, columns)):
            if size % family.tile:
                uneven[f"{name} {size:,}"] = None
    return Padding(
        family=family.name,
        tile=family.tile,
        extra_fraction=done / asked - 1,
        widths=tuple(uneven),
        source=family.source,
    )


def padded(size: int, step: int) -> int:
    return ceil(size / step) * step


def splits(model: Model) -> list[Split]:
    """Which tensor-parallel sizes divide the heads, and what the others cost."""
    mixers = [block.mixer for block in model.blocks if isinstance(block.mixer, Attention | LatentAttention)]
    heads = sorted({mixer.heads for mixer in mixers})
    kv_heads = sorted({mixer.kv_heads for mixer in mixers if isinstance(mixer, Attention)})
    return [split(model, heads, kv_heads, tp) for tp in TP_SIZES]


def split(model: Model, heads: list[int], kv_heads: list[int], tp: int) -> Split:
    possible = all(each % tp == 0 for each in heads)
    step = VOCABULARY_STEP * tp
    more = padded(model.vocab, step) - model.vocab
    return Split(
        tp=tp,
        heads="; ".join(
            f"{each}: {each // tp} a chip" if each % tp == 0 else f"{each}: not divisible" for each in heads
        ),
        kv_heads="; ".join(kv_words(each, tp) for each in kv_heads),
        vocab=f"{more:,} rows of padding" if more else "none",
        possible=possible,
    )


def kv_words(kv_heads: int, tp: int) -> str:
    """Fewer key-value heads than chips are kept more than once: the cache does not shrink further."""
    if kv_heads % tp == 0:
        return f"{kv_heads}: {kv_heads // tp} a chip"
    return f"{kv_heads}: each kept {tp // kv_heads} times" if tp % kv_heads == 0 else f"{kv_heads}: not divisible"


def head_notes(model: Model) -> list[str]:
    """Head sizes for which fast attention kernels are not made."""
    sizes = sorted({block.mixer.head_dim for block in model.blocks if isinstance(block.mixer, Attention)})
    return [f"head dimension {size} is padded to {padded(size, 64)} by kernels of 64" for size in sizes if size % 64]


@dataclass(frozen=True, kw_only=True, slots=True)
class Costs:
    """What a shape costs, for a page."""

    padding: list[Padding]
    splits: list[Split]
    notes: list[str]


def costs(model: Model) -> Costs:
    """Everything that this module says of one model."""
    return Costs(padding=padding(model), splits=splits(model), notes=head_notes(model))
