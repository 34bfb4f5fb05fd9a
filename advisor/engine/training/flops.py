"""FLOPs of a step by the usual conventions: what the model needs (MFU), and what recomputation repeats (HFU)."""

from collections.abc import Sequence

from advisor.engine.kernels import rate_of
from advisor.engine.network import Model, active_parameters, decoder_blocks, embedding_parameters
from advisor.engine.terms import Accelerator
from advisor.engine.training.operators import Line, Shape, attention_flops, trained_parameters
from advisor.engine.training.run import Recipe, Run


def model_flops(model: Model, run: Run) -> float:
    """FLOPs of one step on all chips that no implementation avoids.

    6 for each token and parameter in use: a forward pass and two gradients. The input embedding is a lookup and has
    none, the output head counts even if it is tied. Causal attention counts each pair once, three times as much in all.
    A frozen base needs no gradient of its weights: 4 instead of 6, and 6 for the adapters.
    """
    head = float(model.vocab) * model.hidden
    used = float(active_parameters(model) - embedding_parameters(model)) + head
    weights = 6.0 * used if run.recipe.method == "full" else 4.0 * used + 6.0 * trained_parameters(model, run.recipe)
    return run.global_tokens * (weights + 3.0 * attention_flops_per_token(model, run.sequence_tokens))


def attention_flops_per_token(model: Model, sequence_tokens: int) -> float:
    """FLOPs of scores and weighted sums in the forward pass of all layers, for one token of such a sequence."""
    one = Shape.of(Run(sequence_tokens=sequence_tokens))
    layers = (block.count * attention_flops(model, block, one) for block in decoder_blocks(model))
    return float(sum(layers)) / sequence_tokens


def recomputed_flops(lines: Sequence[Line], run: Run) -> float:
    """FLOPs of one step on all chips that repeat the forward pass; `lines`: the ledger of the run."""
    each = sum(float(line.flops) for line in lines if line.phase == "recompute")
    return each * run.micro_batches * run.parallel.chips


def peak_flops_per_s(chip: Accelerator, recipe: Recipe) -> float:
    """The dense peak that MFU and HFU refer to: of the format of the matrix multiplies. ValueError: there is none."""
    dtype = {"mxfp8": "fp8", "nvfp4": "fp4"}.get(recipe.matmul_dtype, recipe.matmul_dtype)
    peak = rate_of(chip, dtype)
    if peak is None:
        raise ValueError(f"{chip.name} has no {recipe.matmul_dtype} matrix rate: choose bf16")
    return peak
