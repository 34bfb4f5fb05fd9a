"""Which part of a checkpoint's weights has which format: what its lists of modules say, weighed by the matrices."""

import re
from collections.abc import Iterable, Iterator, Sequence

from advisor.engine.network.blocks import Block
from advisor.engine.network.checkpoint import Checkpoint, dtype_name, format_name
from advisor.engine.network.matrices import Matrix, ffn_matrices, matrices
from advisor.engine.network.release import Release

LAYER = re.compile(r"(?:layers|blocks|h)\.(\d+)(?:\.|\*|$)")
# Modules that no format is about: norms, biases, routers, embeddings, heads, towers, layers that draft tokens.
OTHER = re.compile(
    r"norm|bias|lm_head|embed|visual|vision|projector|^mtp|\.mtp|router|conv1d|indexer|eh_proj|(?:^|\.)gate$"
    r"|shared_expert_gate|^head$|shared_head"
)
PROJECTIONS = {  # names of modules in checkpoints, and of the matrices here
    "q_proj": "q", "k_proj": "k", "v_proj": "v", "o_proj": "o", "q_a_proj": "q_down", "q_b_proj": "q",
    "kv_a_proj_with_mqa": "kv_down", "kv_b_proj": "kv_up", "in_proj": "in", "in_proj_qkv": "in", "in_proj_qkvz": "in",
    "out_proj": "out", "gate_proj": "gate", "up_proj": "up", "down_proj": "down", "fc1_latent_proj": "latent_in",
    "fc2_latent_proj": "latent_out",
}  # fmt: skip
ALIKE = {"in_proj_z", "in_proj_a", "in_proj_b", "in_proj_ba"}  # parts of a matrix that another name stands for
LEAST_FRACTION = 0.005  # of the weights outside the experts: smaller parts change nothing


def release_of(stored: Checkpoint, blocks: Sequence[Block], hidden: int) -> Release | None:
    """The format of a quantized checkpoint; None if its main format has no name in the catalog.

    The main format is that of the routed experts, or of most weights of a model without them.
    """
    dense = dense_formats(stored, blocks, hidden)
    routed = any(m.routed for block in blocks for m in matrices(block, hidden))
    main = format_name(stored) if routed or not dense else dtype_name(stored, max(dense, key=lambda name: dense[name]))
    if stored.listed and stored.only_listed and not stored.experts_dtype and set(dense) <= {"bf16"}:
        formats = ", ".join(sorted({dtype for dtype, _ in stored.listed}))
        raise ValueError(f"quantization_config lists modules in {formats}, and none of them is known: is it complete?")
    if not main:
        return None
    own = {dtype for dtype in dense if dtype_name(stored, dtype) == main}
    apart = routed and bool(dense) and not own
    left = {dtype: share for dtype, share in dense.items() if dtype not in own and not (apart and dtype == "bf16")}
    others = tuple((dtype, round(share, 4)) for dtype, share in sorted(left.items()) if share >= LEAST_FRACTION)
    return Release(hf_id="", format=main, experts_only=True if apart else None, others=others)


def dense_formats(stored: Checkpoint, blocks: Sequence[Block], hidden: int) -> dict[str, float]:
    """The fraction of the weights outside routed experts that is stored in each format; bf16: not quantized."""
    layers = sum(block.count for block in blocks)
    lists = [("bf16", name) for name in stored.unquantized_layers] + list(stored.listed)
    rest = "bf16" if stored.only_listed else stored.weights_dtype
    named = {
        dtype: Named(name for each, name in lists if each == dtype) for dtype in dict.fromkeys(d for d, _ in lists)
    }
    found: dict[str, float] = {}
    for block, matrix in dense_matrices(blocks, hidden):
        elements, open_fraction = float(block.count * matrix.elements), 1.0
        for dtype, names in named.items():
            share = min(
                names.fraction(matrix.name, part_of(block, matrix), having(blocks, matrix, hidden, layers)),
                open_fraction,
            )
            found[dtype] = found.get(dtype, 0.0) + share * elements
            open_fraction -= share
        found[rest] = found.get(rest, 0.0) + open_fraction * elements
    total = sum(found.values())
    return {dtype: weight / total for dtype, weight in found.items() if weight} if total else {}


def dense_matrices(blocks: Sequence[Block], hidden: int) -> Iterator[tuple[Block, Matrix]]:
    """The matrices that a format may store in fewer bits, without routed experts."""
    for block in blocks:
        for matrix in matrices(block, hidden):
            if not (matrix.routed or matrix.half):
                yield block, matrix


def having(blocks: Sequence[Block], matrix: Matrix, hidden: int, layers: int) -> int:
    """Layers that have a matrix of this name."""
    return sum(b.count for b in blocks if any(m.name == matrix.name for m in matrices(b, hidden))) or layers


def part_of(block: Block, matrix: Matrix) -> str:
    """Which part of a layer a matrix belongs to: mixer, dense or shared."""
    if matrix.name.startswith("shared_"):
        return "shared"
    ffn = () if block.ffn is None else tuple(m.name for m in ffn_matrices(block.ffn, 1))
    return "dense" if matrix.name in ffn else "mixer"


class Named:
    """The modules that a list names: numbers of layers for each part or matrix; None: in all layers."""

    def __init__(self, names: Iterable[str]) -> None:
        self.layers: dict[str, set[int] | None] = {}
        for name in names:
            self.add(name.removeprefix("re:"))

    def add(self, name: str) -> None:
        number = LAYER.search(name)
        last = re.split(r"[.*]", name.rstrip("*.$").replace("\\", ""))[-1]
        if OTHER.search(name) and last not in PROJECTIONS or last in ALIKE:
            return
        for key in keys_of(name, last, whole=number is not None and name[number.end() - 1 :].strip(".*") == ""):
            known = self.layers.setdefault(key, set())
            if number is None:
                self.layers[key] = None
            elif known is not None:
                known.add(int(number[1]))

    def fraction(self, matrix: str, part: str, layers: int) -> float:
        """Fraction of the layers in which the list names this matrix or its part."""
        keys = [key for key in (f"{part}.{matrix.removeprefix('shared_')}", part) if key in self.layers]
        if any(self.layers[key] is None for key in keys):
            return 1.0
        return min(len(set().union(*(self.layers[key] or set() for key in keys))) / layers, 1.0)


def keys_of(name: str, last: str, *, whole: bool) -> list[str]:
    """Parts, or part.matrix, that a module's name stands for. `whole`: it ends with the number of a layer."""
    if whole:
        return ["mixer", "dense", "shared"]
    if "shared_expert" in name:
        part = "shared"
    elif "experts" in name:
        return []
    elif re.search(r"attn|attention|mixer|mamba", name):
        part = "mixer"
    elif last in ("mlp", "ffn"):
        return ["dense", "shared"]  # a whole feed-forward part, or the dense one beside experts (Gemma 4)
    elif re.search(r"mlp|ffn|feed_forward", name):
        part = "dense"
    else:
        return []
    return [f"{part}.{PROJECTIONS[last]}"] if last in PROJECTIONS else [part]
