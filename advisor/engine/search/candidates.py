"""Which deployments are worth computing: the planner's gates, then every legal layout of the chips that pass."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product

import numpy as np

from advisor.engine.cost import Assumptions, Licence, closest_rejection, site_rejection
from advisor.engine.network import Attention, LatentAttention, Model, Recurrent
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
    EMBEDDING,
    HALF,
    Acceptance,
    Choice,
    HostCopy,
    Lane,
    adapters_unsupported,
    computed_source_tokens,
    has_encoder,
    model_mismatch,
    rate_of,
    unsupported,
    whole_prompts,
)

CONCURRENCY = np.array([1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512], dtype=float)
QUALITY = {"lossless": 0, "near_lossless": 1, "lossy": 2}
FROM_SCRATCH = "from_scratch"  # training of a format that cannot be made from a checkpoint
LORA = "lora"  # feature of a framework: adapters served beside the base model
LEAST_BITS = 4.0  # below it a smaller model is usually better (arXiv 2210.17323): offered in no search
PIPELINE = "pipeline_parallel"  # feature of a framework
ALLOWED = {"lossless": 0, "near_lossless": 1, "any": 2}


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
    site_assumptions: Assumptions | None = None  # at the planner's own site; None: the same
    other_offers: tuple[Offer, ...] = ()  # on terms that are not ranked, to stand beside an option
    stale: Mapping[str, str]  # accelerator -> why its offers do not count
    licences: tuple[Licence, ...] = ()  # paid besides every offer
    acceptances: tuple[Acceptance, ...] = ()  # of drafted tokens, as published
    draft_model: Model | None = None  # a small one with the same vocabulary
    host_copy: HostCopy | None = None
    prepared_start: ColdStart | None = None  # of an instance with compiled programs and weights near
    hosted: Mapping[str, str] = field(default_factory=dict)  # accelerator -> what its maker asks for this model


def offers_for(workload: Workload, catalog: Catalog) -> list[Offer]:
    """The offers that the planner's providers, regions and ways of paying leave."""
    return [o for o in catalog.offers if allowed(o, workload.constraints)]


def allowed(o: Offer, c: Constraints) -> bool:
    """Whether the planner's constraints and site leave this offer."""
    return _left(o, c) and site_rejection(o, c) is None


def _left(o: Offer, c: Constraints) -> bool:
    """Whether the planner's ways of paying, providers and regions leave an offer; what is owned is there anyway."""
    return o.term == OWNED or (
        o.acquisition in c.acquisition
        and (not c.providers_allow or o.provider in c.providers_allow)
        and o.provider not in c.providers_deny
        and (not c.regions_allow or o.region in c.regions_allow or o.acquisition == "own")
        and o.region not in c.regions_deny
    )


def admissible(workload: Workload, catalog: Catalog) -> tuple[list[Rejection], list[Accelerator]]:
    """Chips that the constraints leave, that serve language models and that somebody sells; the others with why."""
    priced = {o.accelerator for o in offers_for(workload, catalog)}
    rejections, left = [], []
    for a in catalog.accelerators:
        if _outside(a, workload.constraints):
            rejections.append(Rejection(accelerator=a.slug, reason="excluded", detail="left out by your constraints"))
        elif not a.served:
            rejections.append(_not_served(a, catalog))
        elif a.slug not in priced:
            rejections.append(_refused(a, workload.constraints, catalog) or _unpriced(a, workload.constraints, catalog))
        else:
            left.append(a)
    return rejections, left


def _outside(a: Accelerator, c: Constraints) -> bool:
    return bool(
        (c.accelerators_allow and a.slug not in c.accelerators_allow)
        or a.slug in c.accelerators_deny
        or (c.vendors_allow and a.vendor not in c.vendors_allow)
        or a.vendor in c.vendors_deny
    )


def _not_served(a: Accelerator, catalog: Catalog) -> Rejection:
    """What runs no framework; bought by the token where its maker hosts this model."""
    hosted = catalog.hosted.get(a.slug)
    return Rejection(
        accelerator=a.slug,
        reason="unsupported",
        detail=f"{a.not_served_reason}; {hosted}" if hosted else a.not_served_reason,
        smallest_change="bought by the token: see hosted" if hosted else "",
    )


def _refused(a: Accelerator, c: Constraints, catalog: Catalog) -> Rejection | None:
    """Where only the site stands against every offer of a chip: the one that is nearest to standing there."""
    found = [site_rejection(o, c) for o in catalog.offers if o.accelerator == a.slug and _left(o, c)]
    refused = [r for r in found if r is not None]
    return closest_rejection(refused) if refused else None


def _unpriced(a: Accelerator, c: Constraints, catalog: Catalog) -> Rejection:
    """No current offer at all, or only such as the constraints leave out: then the one that takes the least change."""
    refuse = Rejection(accelerator=a.slug, reason="unpriced", detail="")
    elsewhere = [_allowing(o, c) for o in catalog.offers if o.accelerator == a.slug]
    if not elsewhere:
        return replace(refuse, detail=catalog.stale.get(a.slug, "no current price in the catalog"))
    changes = min(elsewhere, key=lambda found: (len(found), found))
    return replace(
        refuse,
        detail="no current price in the regions, providers and ways of paying you allow; not computed",
        smallest_change=f"priced with {' and '.join(changes)}",
    )


def _allowing(o: Offer, c: Constraints) -> list[str]:
    """What of the constraints would have to change for an offer to count."""
    found = []
    for path, own, allowed in (
        ("acquisition", o.acquisition, c.acquisition),
        ("providers.allow", o.provider, c.providers_allow),
        ("regions.allow", o.region, c.regions_allow if o.acquisition != "own" else ()),
    ):
        if allowed and own not in allowed:
            found.append(f"constraints.{path}: [{', '.join((*allowed, own))}]")
    found += [f"provider {o.provider} not denied"] if o.provider in c.providers_deny else []
    return found + ([f"region {o.region} not denied"] if o.region in c.regions_deny else [])


def mixers_of(model: Model) -> set[str]:
    """What a framework must know to run this model."""
    found = set()
    for block in model.blocks:
        if isinstance(block.mixer, LatentAttention):
            found.add("latent")
        elif isinstance(block.mixer, Recurrent):
            found.add("recurrent")
        elif isinstance(block.mixer, Attention):
            found.add("window" if block.mixer.window_tokens else "attention")
            if block.mixer.cross:
                found.add("speech" if model.source_s else "cross-attention")
            if block.stage == "decoder" and not (block.mixer.causal or block.mixer.cross):
                found.add("encoder")
    return found


def able(framework: Framework, model: Model) -> bool:
    """Whether the framework knows the layers of this model and can give what is asked of it: tokens or vectors."""
    asked = EMBEDDING in framework.features or not model.encoder_only
    asked &= LORA in framework.features or model.adapters is None
    return asked and mixers_of(model) <= set(framework.mixers)


def launchable(framework: Framework, model: Model) -> bool:
    """Whether the catalog says how to start it with this kind of model."""
    if any(isinstance(b.mixer, Attention) and b.mixer.cross for b in model.blocks):
        return framework.starts(SOURCES)
    return framework.starts(VECTORS if model.encoder_only else TOKENS)


def runs_on(framework: Framework, accelerator: Accelerator) -> bool:
    """Whether it has a stack of this chip, and is not kept to other vendors or kinds."""
    return bool(
        set(framework.stacks) & set(accelerator.stacks)
        and (not framework.vendors or accelerator.vendor in framework.vendors)
        and (not framework.kinds or accelerator.kind in framework.kinds)
    )


def joins_hosts(framework: Framework) -> bool:
    """Whether its documentation says how one replica spans hosts, layer by layer."""
    return PIPELINE in framework.features


def formats_for(workload: Workload, catalog: Catalog) -> list[Quantization]:
    """Weight formats within the asked quality; wider than the published checkpoint is never offered.

    Encoders stay in 16 bits: the kernels that frameworks document for narrower ones, and what is known of their
    quality, are of decoders.
    """
    native = [q for q in catalog.quantizations if catalog.model.native_dtype in (q.slug, q.weights_dtype)]
    most = min((q.bits_per_weight for q in native), default=16.0)
    seen, kept = set(), []
    for q in catalog.quantizations:
        made = not q.training and LEAST_BITS <= q.bits_per_weight < most
        if q not in native and not (made and QUALITY[q.quality] <= ALLOWED[workload.constraints.quality]):
            continue
        if q.bits_per_weight < 16 and has_encoder(catalog.model):
            continue
        if not _wanted(q.slug, workload.constraints.formats_allow, workload.constraints.formats_deny):
            continue
        key = (q.weights_dtype, q.bits_per_weight, q.activations_dtype)
        if key not in seen:
            seen.add(key)
            kept.append(q)
    return kept


def _wanted(slug: str, allow: Sequence[str], deny: Sequence[str]) -> bool:
    return (not allow or slug in allow) and slug not in deny


def _parallel_sizes(model: Model, accelerator: Accelerator, sizes: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """(tp, pp, ep, dp): tensor parallel inside the domain, experts plain or spread, attention-DP for latent caches."""
    heads = [b.mixer.heads for b in model.blocks if isinstance(b.mixer, Attention | LatentAttention)]
    experts = [b.ffn.experts for b in model.blocks if b.ffn is not None and b.ffn.experts > 1]
    latent = any(isinstance(b.mixer, LatentAttention) for b in model.blocks)
    for n in sizes:
        if any(h % n for h in heads):
            continue
        yield n, 1, 1, 1
        if experts and n > 1 and all(e % n == 0 for e in experts):
            yield n, 1, n, 1
            if latent:
                yield 1, 1, n, n
    most, layers = max(sizes), sum(b.count for b in model.blocks)
    plain = not any(b.stage == "encoder" for b in model.blocks)  # no framework pipelines an encoder-decoder
    if plain and not accelerator.cut and most >= accelerator.chips_per_host and not any(h % most for h in heads):
        yield from ((most, stages, 1, 1) for stages in (2, 4) if layers >= stages)


def enumerate_lanes(
    workload: Workload, catalog: Catalog, chips: Sequence[Accelerator]
) -> tuple[list[Lane], list[Rejection]]:
    """Every layout that is legal: framework x format x cache format x parallel sizes, per accelerator."""
    rejections, wanted = [], []
    if why := model_mismatch(workload, catalog.model) or adapters_unsupported(catalog.model):
        return [], [Rejection(accelerator=a.slug, reason="unsupported", detail=why) for a in chips]
    formats, c = formats_for(workload, catalog), workload.constraints
    sold = most_together(workload, catalog)
    for a in chips:
        own = [
            lane
            for f in catalog.frameworks
            if _wanted(f.slug, c.frameworks_allow, c.frameworks_deny)
            if launchable(f, catalog.model) and runs_on(f, a) and able(f, catalog.model)
            for way in ways_to_cut(a, c.partitions)
            for lane in _lanes_of(workload, catalog, way, f, formats, [1] if way.cut else _sizes(a, sold[a.slug]))
        ]
        if not own:
            detail = _uncut(a, c.partitions) or _why_unsupported(workload, catalog, a, formats)
            rejections.append(Rejection(accelerator=a.slug, reason="unsupported", detail=detail))
        wanted += own
    return wanted, rejections


def ways_to_cut(a: Accelerator, partitions: str) -> list[Accelerator]:
    """The chip whole, and in hardware instances, as the planner wants it."""
    whole = [] if partitions == "required" else [a]
    return whole + ([cut_into(a, p) for p in a.partitions] if partitions in ("yes", "required") else [])


def _uncut(a: Accelerator, partitions: str) -> str:
    """Why a chip cannot be had in isolated instances; empty: it can, or nobody asks for it."""
    if partitions != "required" or a.partitions:
        return ""
    return f"no hardware partitions of {a.name} are known, and constraints.partitions: required asks for them"


def most_together(workload: Workload, catalog: Catalog) -> dict[str, int]:
    """Per accelerator the most chips that one of its offers joins; 1 where there is none."""
    sold: dict[str, int] = defaultdict(lambda: 1)
    for offer in offers_for(workload, catalog):
        sold[offer.accelerator] = max(sold[offer.accelerator], offer.tensor_parallel_chips)
    return sold


def _sizes(a: Accelerator, sold: int) -> list[int]:
    """Chips of a tensor-parallel group: joined by the fast link or one host, and sold together."""
    reach = a.links[0].chips if a.links else 1
    return [n for n in (1, 2, 4, 8, 16) if n <= min(sold, max(reach, a.chips_per_host))]


def reached_on(scopes: Scopes, a: Accelerator) -> Efficiency:
    """What kernels reach on the chip; an instance of it is only its relative: nobody measured the slice."""
    found = efficiency(scopes, a.slug, a.family, a.kind)
    return replace(found, basis="relative") if a.cut and found.basis == "measured" else found


def _lanes_of(
    workload: Workload,
    catalog: Catalog,
    a: Accelerator,
    f: Framework,
    formats: Sequence[Quantization],
    sizes: Sequence[int],
) -> Iterator[Lane]:
    """The lanes of one chip under one framework."""
    reached = reached_on(catalog.scopes, a)
    extra = overhead(catalog.scopes, f.slug, f.version, a.family)
    loaded = [q for q in formats if q.slug in f.quantizations and not unsupported(a, q)]
    layouts = [sized for sized in _parallel_sizes(catalog.model, a, sizes) if sized[1] == 1 or joins_hosts(f)]
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
        return [d for d in HALF if d in f.kv_dtypes][:1]  # nothing is cached
    wanted = [d for d in f.kv_dtypes if _wanted(d, c.kv_formats_allow, c.kv_formats_deny)]
    kept = [d for d in HALF if d in wanted][:1]
    if c.quality != "lossless" and "fp8" in wanted and rate_of(a, "fp8"):
        kept.append("fp8")
    return kept


def _why_unsupported(workload: Workload, catalog: Catalog, a: Accelerator, formats: Sequence[Quantization]) -> str:
    running = [f for f in catalog.frameworks if f.startable and runs_on(f, a)]
    if not running:
        return f"no serving framework of the catalog runs on {a.name}"
    if not any(able(f, catalog.model) and launchable(f, catalog.model) for f in running):
        beside = {EMBEDDING} if catalog.model.encoder_only else {"LoRA adapters"} if catalog.model.adapters else set()
        kind = ", ".join(sorted(mixers_of(catalog.model) | beside))
        names = ", ".join(sorted({f.name for f in running}))
        return f"{names}: not known to serve this kind of model ({kind})"
    if not any(_cache_formats(workload, catalog.model, f, a) for f in running):
        return f"none of the cache formats you allow runs on {a.name}"
    reasons = [unsupported(a, q) for q in formats]
    return next((r for r in reasons if r), "no allowed weight format is supported by its frameworks")
