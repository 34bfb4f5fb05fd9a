"""Candidate deployments: apply the user's constraints, then enumerate every valid layout on the remaining chips."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product

import numpy as np

from advisor.engine.cost import Assumptions, Licence, closest_rejection, site_rejection
from advisor.engine.network import Attention, LatentAttention, Model, Recurrent, parameters
from advisor.engine.spec import (
    OWNED,
    SOURCES,
    TOKENS,
    VECTORS,
    Accelerator,
    ColdStart,
    Constraints,
    Efficiency,
    Framework,
    Offer,
    Quantization,
    Rejection,
    Scopes,
    Workload,
    cut_into,
    efficiency,
    overhead,
)
from advisor.engine.step import (
    HALF,
    Acceptance,
    Choice,
    HostCopy,
    Lane,
    adapters_unsupported,
    computed_source_tokens,
    has_encoder,
    model_mismatch,
    quantizes,
    rate_of,
    unsupported,
    whole_prompts,
)

CONCURRENCY = np.array([1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512], dtype=float)
QUALITY_RANK = {"lossless": 0, "near_lossless": 1, "lossy": 2}
FROM_SCRATCH = "from_scratch"  # Quantization.training of a format that needs training from scratch
EMBEDDINGS = "embedding"  # framework feature: serves embeddings
LORA = "lora"  # framework feature: serves LoRA adapters with one base model
MIN_WEIGHT_BITS = 4.0  # below 4 bits a smaller model is usually better (arXiv 2210.17323)
PIPELINE = "pipeline_parallel"  # framework feature
ONE_CHIP_FRACTION = 0.5  # of a chip's memory: an encoder whose 16-bit weights take less runs on one chip
EXPERT_PARALLEL = "expert_parallel"  # framework feature
ATTENTION_DP = "attention_dp"  # framework feature
ALLOWED_QUALITY = {"lossless": 0, "near_lossless": 1, "any": 2}


@dataclass(frozen=True, kw_only=True, slots=True)
class Catalog:
    """Everything a search reads, as engine values."""

    model: Model
    accelerators: tuple[Accelerator, ...]
    offers: tuple[Offer, ...]
    quantizations: tuple[Quantization, ...]
    frameworks: tuple[Framework, ...]
    scopes: Scopes
    assumptions: Assumptions
    site_assumptions: Assumptions | None = None  # for the user's own site; None: same as `assumptions`
    other_offers: tuple[Offer, ...] = ()  # on terms that are not ranked; shown as alternatives
    stale: Mapping[str, str]  # accelerator slug -> why its prices are out of date
    licences: tuple[Licence, ...] = ()  # paid on top of every offer
    acceptances: tuple[Acceptance, ...] = ()  # published acceptance rates of drafted tokens
    draft_model: Model | None = None  # a small model with the same vocabulary
    host_copy: HostCopy | None = None
    prepared_start: ColdStart | None = None  # cold start with a compile cache and local weights
    hosted: Mapping[str, str] = field(default_factory=dict)  # accelerator slug -> its vendor's API price for this model


def offers_for(workload: Workload, catalog: Catalog) -> list[Offer]:
    """The offers that the user's constraints allow."""
    return [o for o in catalog.offers if allowed(o, workload.constraints)]


def allowed(o: Offer, c: Constraints) -> bool:
    """Whether the user's constraints and site allow this offer."""
    return _within_purchase_limits(o, c) and site_rejection(o, c) is None


def _within_purchase_limits(o: Offer, c: Constraints) -> bool:
    """Whether the acquisition, provider and region constraints allow an offer. Owned hardware always passes."""
    return o.term == OWNED or (
        o.acquisition in c.acquisition
        and (not c.providers_allow or o.provider in c.providers_allow)
        and o.provider not in c.providers_deny
        and (not c.regions_allow or o.region in c.regions_allow or o.acquisition == "own")
        and o.region not in c.regions_deny
    )


def admissible(workload: Workload, catalog: Catalog) -> tuple[list[Rejection], list[Accelerator]]:
    """(rejections, accelerators): chips that are allowed, can serve language models and have a current price."""
    priced = {o.accelerator for o in offers_for(workload, catalog)}
    rejections, left = [], []
    for a in catalog.accelerators:
        if _excluded(a, workload.constraints):
            rejections.append(Rejection(accelerator=a.slug, reason="excluded", detail="excluded by your constraints"))
        elif not a.served:
            rejections.append(_not_served(a, catalog))
        elif a.slug not in priced:
            rejections.append(
                _site_refusal(a, workload.constraints, catalog) or _unpriced(a, workload.constraints, catalog)
            )
        else:
            left.append(a)
    return rejections, left


def _excluded(a: Accelerator, c: Constraints) -> bool:
    return bool(
        (c.accelerators_allow and a.slug not in c.accelerators_allow)
        or a.slug in c.accelerators_deny
        or (c.vendors_allow and a.vendor not in c.vendors_allow)
        or a.vendor in c.vendors_deny
    )


def _not_served(a: Accelerator, catalog: Catalog) -> Rejection:
    """A chip that no framework can serve on; points to the vendor's API where it hosts this model."""
    hosted = catalog.hosted.get(a.slug)
    return Rejection(
        accelerator=a.slug,
        reason="unsupported",
        detail=f"{a.not_served_reason}; {hosted}" if hosted else a.not_served_reason,
        smallest_change="use the vendor's hosted API: see hosted" if hosted else "",
    )


def _site_refusal(a: Accelerator, c: Constraints, catalog: Catalog) -> Rejection | None:
    """The rejection if only the site rules out every offer of a chip: that of the offer closest to fitting the site."""
    refusals = [
        site_rejection(o, c) for o in catalog.offers if o.accelerator == a.slug and _within_purchase_limits(o, c)
    ]
    refusing = [r for r in refusals if r is not None]
    return closest_rejection(refusing) if refusing else None


def _unpriced(a: Accelerator, c: Constraints, catalog: Catalog) -> Rejection:
    """No current offer, or only offers that the constraints exclude; then the one that needs the fewest changes."""
    rejection = Rejection(accelerator=a.slug, reason="unpriced", detail="")
    elsewhere = [_changes_needed(o, c) for o in catalog.offers if o.accelerator == a.slug]
    if not elsewhere:
        return replace(rejection, detail=catalog.stale.get(a.slug, "no current price in the catalog"))
    changes = min(elsewhere, key=lambda missing: (len(missing), missing))
    return replace(
        rejection,
        detail="no current price in the regions, providers and acquisition types you allow; not computed",
        smallest_change=f"priced with {' and '.join(changes)}",
    )


def _changes_needed(o: Offer, c: Constraints) -> list[str]:
    """The constraint changes that would allow an offer."""
    changes = []
    for path, own, allowed in (
        ("acquisition", o.acquisition, c.acquisition),
        ("providers.allow", o.provider, c.providers_allow),
        ("regions.allow", o.region, c.regions_allow if o.acquisition != "own" else ()),
    ):
        if allowed and own not in allowed:
            changes.append(f"constraints.{path}: [{', '.join((*allowed, own))}]")
    changes += [f"provider {o.provider} not denied"] if o.provider in c.providers_deny else []
    return changes + ([f"region {o.region} not denied"] if o.region in c.regions_deny else [])


def mixers_of(model: Model) -> set[str]:
    """The layer kinds a framework must support to run this model, by their names in the catalog."""
    kinds = set()
    for block in model.blocks:
        if isinstance(block.mixer, LatentAttention):
            kinds.add("latent")
        elif isinstance(block.mixer, Recurrent):
            kinds.add("recurrent")
        elif isinstance(block.mixer, Attention):
            kinds.add("window" if block.mixer.window_tokens else "attention")
            if block.mixer.cross:
                kinds.add("speech" if model.source_s else "cross-attention")
            if block.stage == "decoder" and not (block.mixer.causal or block.mixer.cross):
                kinds.add("encoder")
    return kinds


def supports_model(framework: Framework, model: Model) -> bool:
    """Whether the framework supports the model's layers, its adapters and its output (tokens or embeddings)."""
    asked = EMBEDDINGS in framework.features or not model.encoder_only
    asked &= LORA in framework.features or model.adapters is None
    return asked and mixers_of(model) <= set(framework.mixers)


def launchable(framework: Framework, model: Model) -> bool:
    """Whether the catalog has a launch command for this kind of model."""
    if any(isinstance(b.mixer, Attention) and b.mixer.cross for b in model.blocks):
        return framework.starts(SOURCES)
    return framework.starts(VECTORS if model.encoder_only else TOKENS)


def runs_on(framework: Framework, accelerator: Accelerator) -> bool:
    """Whether the framework shares a software stack with the chip and supports its vendor and kind."""
    return bool(
        set(framework.stacks) & set(accelerator.stacks)
        and (not framework.vendors or accelerator.vendor in framework.vendors)
        and (not framework.kinds or accelerator.kind in framework.kinds)
    )


def unsupported_layout(framework: Framework, *, pp: int = 1, ep: int = 1, dp: int = 1) -> str:
    """The kind of parallelism that the layout needs and the framework does not document (PIPELINE and so on), or empty.

    pp: pipeline stages; ep: expert-parallel size; dp: attention data-parallel size.
    """
    sizes = {PIPELINE: pp, EXPERT_PARALLEL: ep, ATTENTION_DP: dp}
    return next((feature for feature, size in sizes.items() if size > 1 and feature not in framework.features), "")


def spans_hosts(framework: Framework) -> bool:
    """Whether the framework documents pipeline parallelism, so that one replica can span hosts."""
    return PIPELINE in framework.features


def formats_for(workload: Workload, catalog: Catalog) -> list[Quantization]:
    """Weight formats within the requested quality, never wider than the published checkpoint.

    Encoders stay in 16 bits: documented low-bit kernels and quality results are for decoders.
    """
    native = [q for q in catalog.quantizations if catalog.model.native_dtype in (q.slug, q.weights_dtype)]
    most = min((q.bits_per_weight for q in native), default=16.0)
    seen, kept = set(), []
    for q in catalog.quantizations:
        made = not q.training and MIN_WEIGHT_BITS <= q.bits_per_weight < most
        if q not in native and not (made and QUALITY_RANK[q.quality] <= ALLOWED_QUALITY[workload.constraints.quality]):
            continue
        if q.bits_per_weight < 16 and has_encoder(catalog.model):
            continue
        if not quantizes(q, catalog.model):
            continue
        if not _allowed_slug(q.slug, workload.constraints.formats_allow, workload.constraints.formats_deny):
            continue
        key = (q.weights_dtype, q.bits_per_weight, q.activations_dtype)
        if key not in seen:
            seen.add(key)
            kept.append(q)
    return kept


def _allowed_slug(slug: str, allow: Sequence[str], deny: Sequence[str]) -> bool:
    return (not allow or slug in allow) and slug not in deny


def _parallel_sizes(model: Model, accelerator: Accelerator, sizes: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """(tp, pp, ep, dp): TP within one link domain, experts with or without EP, attention DP for latent attention."""
    heads = [b.mixer.heads for b in model.blocks if isinstance(b.mixer, Attention | LatentAttention)]
    experts = [b.ffn.experts for b in model.blocks if b.ffn is not None and b.ffn.experts > 1]
    latent = any(isinstance(b.mixer, LatentAttention) for b in model.blocks)
    if model.encoder_only and parameters(model) * 2.0 < ONE_CHIP_FRACTION * accelerator.memory_bytes:
        sizes = [1]  # embedding servers are scaled by replicas; nobody splits a model that one chip holds easily
    for n in sizes:
        if any(h % n for h in heads):
            continue
        yield n, 1, 1, 1
        if experts and n > 1 and all(e % n == 0 for e in experts):
            yield n, 1, n, 1
            if latent:
                yield 1, 1, n, n
    most, layers = max(sizes), sum(b.count for b in model.blocks)
    # no framework documents pipeline parallelism for encoders, alone or beside a decoder
    plain = not (model.encoder_only or has_encoder(model))
    if plain and not accelerator.cut and most >= accelerator.chips_per_host and not any(h % most for h in heads):
        yield from ((most, stages, 1, 1) for stages in (2, 4) if layers >= stages)


def enumerate_lanes(
    workload: Workload, catalog: Catalog, chips: Sequence[Accelerator]
) -> tuple[list[Lane], list[Rejection]]:
    """Every valid lane per accelerator (framework x format x KV-cache format x parallel sizes), and the rejections."""
    rejections, lanes = [], []
    if why := model_mismatch(workload, catalog.model) or adapters_unsupported(catalog.model):
        return [], [Rejection(accelerator=a.slug, reason="unsupported", detail=why) for a in chips]
    formats, c = formats_for(workload, catalog), workload.constraints
    sold = largest_connected_offer(workload, catalog)
    for a in chips:
        own = [
            lane
            for f in catalog.frameworks
            if _allowed_slug(f.slug, c.frameworks_allow, c.frameworks_deny)
            if launchable(f, catalog.model) and runs_on(f, a) and supports_model(f, catalog.model)
            for way in partition_choices(a, c.partitions)
            for lane in _lanes_of(workload, catalog, way, f, formats, [1] if way.cut else _sizes(a, sold[a.slug]))
        ]
        if not own:
            detail = _partition_refusal(a, c.partitions) or _why_unsupported(workload, catalog, a, formats)
            rejections.append(Rejection(accelerator=a.slug, reason="unsupported", detail=detail))
        lanes += own
    return lanes, rejections


def partition_choices(a: Accelerator, partitions: str) -> list[Accelerator]:
    """The whole chip, its hardware partitions, or both, as `constraints.partitions` asks."""
    whole = [] if partitions == "required" else [a]
    return whole + ([cut_into(a, p) for p in a.partitions] if partitions in ("yes", "required") else [])


def _partition_refusal(a: Accelerator, partitions: str) -> str:
    """Why a chip fails `partitions: required`; empty if it passes or partitions are not required."""
    if partitions != "required" or a.partitions:
        return ""
    return f"{a.name} has no hardware partitions in the catalog, and your constraints require them"


def largest_connected_offer(workload: Workload, catalog: Catalog) -> dict[str, int]:
    """Per accelerator the most chips that one offer connects; 1 if it has no offer."""
    sold: dict[str, int] = defaultdict(lambda: 1)
    for offer in offers_for(workload, catalog):
        sold[offer.accelerator] = max(sold[offer.accelerator], offer.tensor_parallel_chips)
    return sold


def _sizes(a: Accelerator, sold: int) -> list[int]:
    """Tensor-parallel sizes: within the fast-link domain or one host, and no more than an offer connects."""
    reach = a.links[0].chips if a.links else 1
    return [n for n in (1, 2, 4, 8, 16) if n <= min(sold, max(reach, a.chips_per_host))]


def efficiency_on(scopes: Scopes, a: Accelerator) -> Efficiency:
    """Kernel efficiency on the chip; a partition counts as extrapolated because no partition was measured."""
    known = efficiency(scopes, a.slug, a.family, a.kind)
    return replace(known, basis="relative") if a.cut and known.basis == "measured" else known


def _lanes_of(
    workload: Workload,
    catalog: Catalog,
    a: Accelerator,
    f: Framework,
    formats: Sequence[Quantization],
    sizes: Sequence[int],
) -> Iterator[Lane]:
    """The lanes of one chip with one framework."""
    reached = efficiency_on(catalog.scopes, a)
    extra = overhead(catalog.scopes, f.slug, f.version, a.family)
    loaded = [q for q in formats if q.slug in f.quantizations and not unsupported(a, q)]
    layouts = [
        (tp, pp, ep, dp)
        for tp, pp, ep, dp in _parallel_sizes(catalog.model, a, sizes)
        if not unsupported_layout(f, pp=pp, ep=ep, dp=dp)
    ]
    source = workload.source_tokens.mean_tokens if workload.source_tokens else 0.0
    for q, kv, (tp, pp, ep, dp) in product(loaded, _cache_formats(workload, catalog.model, f, a), layouts):
        yield Lane(
            choice=Choice(
                accelerator=a,
                efficiency=reached,
                overhead=extra,
                quantization=q,
                kv_dtype=kv,
                tp=tp,
                pp=pp,
                ep=ep,
                dp=dp,
            ),
            framework=f,
            context_tokens=workload.input_tokens.mean_tokens + workload.output_tokens.mean_tokens,
            max_batched_tokens=f.default_max_batched_tokens,
            max_running_requests=min(f.max_running_requests, int(CONCURRENCY[-1])),
            source_tokens=computed_source_tokens(catalog.model, source),
            whole_prompts=whole_prompts(catalog.model),
        )


def _cache_formats(workload: Workload, model: Model, f: Framework, a: Accelerator) -> list[str]:
    c = workload.constraints
    if whole_prompts(model):
        return [d for d in HALF if d in f.kv_dtypes][:1]  # no KV cache
    allowed = [d for d in f.kv_dtypes if _allowed_slug(d, c.kv_formats_allow, c.kv_formats_deny)]
    kept = [d for d in HALF if d in allowed][:1]
    if c.quality != "lossless" and "fp8" in allowed and rate_of(a, "fp8"):
        kept.append("fp8")
    return kept


def _why_unsupported(workload: Workload, catalog: Catalog, a: Accelerator, formats: Sequence[Quantization]) -> str:
    running = [f for f in catalog.frameworks if f.startable and runs_on(f, a)]
    if not running:
        return f"no serving framework in the catalog runs on {a.name}"
    if not any(supports_model(f, catalog.model) and launchable(f, catalog.model) for f in running):
        beside = {EMBEDDINGS} if catalog.model.encoder_only else {"LoRA adapters"} if catalog.model.adapters else set()
        kind = ", ".join(sorted(mixers_of(catalog.model) | beside))
        names = ", ".join(sorted({f.name for f in running}))
        return f"no known support for this kind of model ({kind}) in {names}"
    if not any(_cache_formats(workload, catalog.model, f, a) for f in running):
        return f"none of the KV-cache formats you allow is supported on {a.name}"
    reasons = [unsupported(a, q) for q in formats]
    return next((r for r in reasons if r), "its frameworks support none of the allowed weight formats")
