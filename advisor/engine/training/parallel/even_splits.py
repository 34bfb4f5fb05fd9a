"""What a parallel layout must divide evenly. `estimate` refuses what breaks a rule; the search never offers it."""

from typing import NamedTuple

from advisor.engine.network import Attention, Model, SoftmaxAttention
from advisor.engine.training.run import Parallel


class LayoutFault(NamedTuple):
    """The first rule that a layout breaks: the size to change, why, and what is allowed."""

    field: str
    message: str
    allowed: str


def parallel_fault(p: Parallel, model: Model, sequence_tokens: int) -> LayoutFault | None:
    """The first of heads, layers, experts and sequences that these sizes do not split evenly; None: all do."""
    for heads, kv_heads in {heads_of(b.mixer) for b in model.blocks if isinstance(b.mixer, SoftmaxAttention)}:
        if heads % p.tp:
            return LayoutFault("tp", f"{heads} attention heads cannot be split {p.tp} ways", _divisors(heads))
        if kv_heads % p.tp and p.tp % kv_heads:
            return LayoutFault("tp", f"{kv_heads} key-value heads cannot be split {p.tp} ways", _divisors(kv_heads))
    inner = [b.ffn.inner for b in model.blocks if b.ffn is not None and b.ffn.experts == 1]
    if uneven := [n for n in inner if n % p.tp]:
        return LayoutFault("tp", f"a feed-forward width of {uneven[0]} cannot be split {p.tp} ways", "a smaller tp")
    if p.sequence_parallel and p.tp == 1:
        return LayoutFault(
            "sequence_parallel", "splits over the tensor-parallel ranks, and tp is 1", "remove it, or raise tp"
        )
    return _stage_fault(p, model) or _expert_fault(p, model) or _sequence_fault(p, sequence_tokens)


def pipeline_fault(pp: int, virtual_stages: int, micro_batches: int) -> LayoutFault | None:
    """Why this number of micro-batches cannot run through the pipeline; None: it can.

    Megatron-Core's interleaved schedule takes micro-batches in groups of pp.
    """
    if virtual_stages > 1 and micro_batches % pp:
        return LayoutFault("micro_batches", f"interleaved stages need a multiple of pp, not {micro_batches}",
                           f"a multiple of {pp}, or virtual_stages 1")  # fmt: skip
    return None


def heads_of(mixer: SoftmaxAttention) -> tuple[int, int]:
    """(query heads, key-value heads); a latent is expanded to a key and a value for every query head."""
    return mixer.heads, mixer.kv_heads if isinstance(mixer, Attention) else mixer.heads


def _stage_fault(p: Parallel, model: Model) -> LayoutFault | None:
    layers = sum(b.count for b in model.blocks)
    if p.pp > layers:
        return LayoutFault(
            "pp", f"the model has {layers} layers, fewer than {p.pp} pipeline stages", f"at most {layers}"
        )
    if p.virtual_stages > 1 and p.pp == 1:
        return LayoutFault("virtual_stages", "interleaves the stages of a pipeline, and pp is 1", "1, or raise pp")
    if p.pp * p.virtual_stages > layers:
        stages = p.pp * p.virtual_stages
        return LayoutFault("virtual_stages", f"{layers} layers cannot fill pp x virtual_stages = {stages}",
                           f"at most {layers // p.pp}")  # fmt: skip
    return None


def _expert_fault(p: Parallel, model: Model) -> LayoutFault | None:
    experts = [b.ffn.experts for b in model.blocks if b.ffn is not None and b.ffn.experts > 1]
    if p.ep > 1 and not experts:
        return LayoutFault("ep", "the model has no experts", "1")
    if uneven := [e for e in experts if e % p.ep]:
        return LayoutFault("ep", f"{uneven[0]} experts cannot be split {p.ep} ways", _divisors(uneven[0]))
    if (ranks := p.dp * p.cp * p.tp) % p.ep:
        return LayoutFault("ep", f"must divide dp x cp x tp = {ranks}", _divisors(ranks))
    return None


def _sequence_fault(p: Parallel, sequence_tokens: int) -> LayoutFault | None:
    pieces, of = (2 * p.cp, "2 x cp") if p.cp > 1 else (1, "")
    if p.sequence_parallel:
        pieces, of = pieces * p.tp, f"{of} x tp" if of else "tp"
    if sequence_tokens % pieces:
        return LayoutFault("sequence_length", f"{sequence_tokens} tokens cannot be split into {of} = {pieces} pieces",
                           f"a multiple of {pieces}")  # fmt: skip
    return None


def _divisors(number: int) -> str:
    return ", ".join(str(n) for n in range(1, number + 1) if number % n == 0)
