"""What a framework supports on a chip for a model: layers, parallelism, weight formats and KV-cache formats."""

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from advisor.engine.kernels import HALF
from advisor.engine.network import Attention, CompressedAttention, LatentAttention, Model, Recurrent
from advisor.engine.step.layout import (
    has_experts,
    quantizes,
    unsupported,
)
from advisor.engine.terms import (
    IMAGES,
    SOURCES,
    SPEECH,
    TOKENS,
    VECTORS,
    Accelerator,
    Framework,
    Quantization,
    SupportRule,
)

EMBEDDINGS = "embedding"  # framework feature: serves embeddings
RERANKING = "rerank"  # framework feature: serves cross-encoders
VISION = "vision"  # among a framework's mixers: image input
LORA = "lora"  # framework feature: serves LoRA adapters with one base model
TENSOR_PARALLEL = "tensor_parallel"  # missing where a server uses one accelerator
PIPELINE = "pipeline_parallel"  # framework feature
EXPERT_PARALLEL = "expert_parallel"  # framework feature
ATTENTION_DP = "attention_dp"  # framework feature
GIB = 2.0**30


def mixers_of(model: Model) -> set[str]:
    """The layer kinds a framework must support to run this model, by their names in the catalog."""
    kinds = set()
    if model.diffusion is not None:
        return {"diffusion"}
    for block in model.blocks:
        if isinstance(block.mixer, LatentAttention):
            kinds.add("latent")
        elif isinstance(block.mixer, CompressedAttention):
            kinds.add("compressed")
        elif isinstance(block.mixer, Recurrent):
            kinds.add("recurrent")
        elif isinstance(block.mixer, Attention):
            kinds.add("window" if block.mixer.window_tokens else "attention")
            if block.mixer.cross:
                kinds.add("speech" if model.source_s else "cross-attention")
            if block.stage == "decoder" and not (block.mixer.causal or block.mixer.cross):
                kinds.add("encoder")
    return kinds


def has_speech(model: Model) -> bool:
    """Whether the model reads sound."""
    return "speech" in mixers_of(model)


def supports_model(framework: Framework, model: Model) -> bool:
    """Whether this version loads the model, and supports its layers, adapters and output (tokens or embeddings)."""
    asked = EMBEDDINGS in framework.features or not model.encoder_only or model.diffusion is not None
    asked &= LORA in framework.features or model.adapters is None
    asked &= RERANKING in framework.features or not model.scores_pairs
    asked &= VISION in framework.mixers or model.pictures is None
    return asked and mixers_of(model) <= set(framework.mixers) and not too_old(framework, model)


def too_old(framework: Framework, model: Model) -> str:
    """Why this version does not load the model, naming the version that does; empty: it loads it, or nothing is known.

    A plugin of vLLM (vllm-tpu, vllm-ascend ...) has the version of the vLLM that it extends.
    """
    oldest = dict(model.engines)
    engine = framework.slug if framework.slug in oldest else framework.slug.partition("-")[0]
    mine = release_numbers(framework.version)
    if engine not in oldest or not mine or mine >= release_numbers(oldest[engine]):
        return ""
    return f"{framework.name} {framework.version} does not load this model; it needs {oldest[engine]} or later"


def release_numbers(version: str) -> tuple[int, ...]:
    """The numbers of a version, in order: 0.24.0 is (0, 24, 0), b7000 is (7000,). Shorter ones end in zeros."""
    numbers = [int(each) for each in re.findall(r"\d+", version)]
    while numbers and not numbers[-1]:
        numbers.pop()
    return tuple(numbers)


def launchable(framework: Framework, model: Model) -> bool:
    """Whether the catalog has a launch command for this kind of model."""
    if has_speech(model) and any(SPEECH in rule.refuses for rule in framework.start_checks):
        return False
    if any(isinstance(b.mixer, Attention) and b.mixer.cross for b in model.blocks):
        return framework.starts(SOURCES)
    if model.diffusion is not None:
        return framework.starts(IMAGES)
    return framework.starts(VECTORS if model.encoder_only else TOKENS)


def runs_on(framework: Framework, accelerator: Accelerator) -> bool:
    """Whether the framework shares a software stack with the chip and supports its vendor and kind."""
    return (
        (not framework.vendors or accelerator.vendor in framework.vendors)
        and (not framework.kinds or accelerator.kind in framework.kinds)
        and not set(framework.stacks).isdisjoint(accelerator.stacks)
    )


def unsupported_layout(
    framework: Framework, accelerator: Accelerator, *, tp: int = 1, pp: int = 1, ep: int = 1, dp: int = 1
) -> str:
    """The kind of parallelism that the layout needs and the framework does not document on this chip, or empty.

    tp: tensor-parallel size; pp: pipeline stages; ep: expert-parallel size; dp: attention data-parallel size.
    """
    if tp > 1 and framework.one_accelerator:
        return TENSOR_PARALLEL
    sizes = {PIPELINE: pp, EXPERT_PARALLEL: ep, ATTENTION_DP: dp}
    return next(
        (name for name, size in sizes.items() if size > 1 and not has_feature(framework, accelerator, name)), ""
    )


def has_feature(framework: Framework, accelerator: Accelerator, feature: str) -> bool:
    """Whether the framework documents the feature, on this chip if it documents it for some chips alone."""
    chips = framework.feature_chips.get(feature)
    return feature in framework.features and (chips is None or any(n in chips for n in names_of(accelerator)))


def defaults_on(framework: Framework, accelerator: Accelerator) -> Framework:
    """The framework with the scheduling defaults that it sets on this chip."""
    names, memory_gib = names_of(accelerator), accelerator.memory_bytes / GIB
    values: dict[str, Any] = {
        k: v for rule in framework.chip_defaults if rule.covers(names, memory_gib) for k, v in rule.values.items()
    }
    return replace(framework, **values) if values else framework


def names_of(accelerator: Accelerator) -> tuple[str, ...]:
    """What the catalog's rules call the chip: its slug, its family and its stacks."""
    return accelerator.slug, accelerator.family, *accelerator.stacks


def spans_hosts(framework: Framework) -> bool:
    """Whether the framework documents pipeline parallelism, so that one replica can span hosts."""
    return PIPELINE in framework.features


def rule_for(
    rules: Iterable[SupportRule], format_slug: str, accelerator: Accelerator, model: Model
) -> SupportRule | None:
    """The first rule that documents the format on this chip for this model; None if no rule does."""
    names = names_of(accelerator)
    for rule in rules:
        if format_slug not in rule.formats or not rule.covers(names):
            continue
        if rule.layers and (rule.layers == "experts") != has_experts(model):
            continue
        if not rule.mixers or mixers_of(model) <= set(rule.mixers):
            return rule
    return None


def weights_on(
    framework: Framework, accelerator: Accelerator, quantization: Quantization, model: Model
) -> Quantization | str:
    """How the framework runs weights of this format on this chip, or why no source says that it does.

    The format itself if the chip multiplies in its dtype; with 16-bit activations and `weight_only` if the
    framework converts the weights to 16 bits first. Search, estimates and the support matrix all ask here.
    """
    if not quantizes(quantization, model):
        return f"{quantization.name} has kernels for expert layers only; this model is dense"
    rule = rule_for(framework.weights, quantization.slug, accelerator, model)
    if rule is None:
        return undocumented(framework, quantization.name, accelerator)
    run = weight_only(quantization) if rule.weight_only else quantization
    return unsupported(accelerator, run) or run


def weight_only(quantization: Quantization) -> Quantization:
    """The format where its weights are converted to 16 bits before each multiply."""
    if quantization.weight_only:
        return quantization
    return replace(
        quantization, name=f"{quantization.name}, weight-only", activations_dtype="bf16", weight_only=True
    )  # fmt: skip


def undocumented(framework: Framework, what: str, accelerator: Accelerator) -> str:
    return f"{framework.name} {framework.version} has no documented support for {what} on {accelerator.name}"


def supports_weights(
    framework: Framework, accelerator: Accelerator, quantization: Quantization, model: Model
) -> bool:  # fmt: skip
    """Whether weights_on gives a format."""
    return isinstance(weights_on(framework, accelerator, quantization, model), Quantization)


def cache_unsupported(framework: Framework, accelerator: Accelerator, kv_dtype: str, model: Model) -> str:
    """Why no source says that the framework has this cache format on this chip; empty: one does.

    A cache in 16 bits is always supported: it is the format of the layers' results.
    """
    if kv_dtype in HALF or rule_for(framework.caches, kv_dtype, accelerator, model):
        return ""
    return undocumented(framework, f"a KV cache in {kv_dtype}", accelerator)
