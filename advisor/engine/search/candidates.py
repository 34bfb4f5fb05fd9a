"""Candidate deployments: apply the user's constraints, then enumerate every valid layout on the remaining chips."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product

import numpy as np

from advisor.engine.cost import Assumptions, Licence, closest_rejection, site_rejection
from advisor.engine.kernels import HALF
from advisor.engine.network import Attention, Model, SoftmaxAttention, parameters
from advisor.engine.step import (
    EMBEDDINGS,
    Acceptance,
    Choice,
    HostCopy,
    Lane,
    adapters_unsupported,
    broken_shard,
    cache_unsupported,
    computed_source_tokens,
    defaults_on,
    has_encoder,
    is_cast,
    is_published,
    launchable,
    mixers_of,
    model_mismatch,
    published_conversion,
    quality_of,
    quantizes,
    runs_on,
    start_fault,
    supports_model,
    too_old,
    unsupported_layout,
    weights_on,
    whole_prompts,
    worth_converting,
)
from advisor.engine.terms import (
    ASSUMED,
    DOUBTFUL,
    MARKS,
    NEVER_FIRST,
    OWNED,
    UNKNOWN_UNIT,
    WEAK_PRICE,
    Accelerator,
    Change,
    ColdStart,
    Constraints,
    Efficiency,
    Effort,
    Framework,
    Offer,
    Quantization,
    Rejection,
    Scopes,
    WeightStore,
    Workload,
    allowing,
    correction,
    cut_into,
    efficiency,
    limit_change,
    list_change,
    listed,
    overhead,
    rented_part,
)

EXCLUDE = "constraints.exclude"
PROVIDERS = "constraints.providers"
PRICE_FIELD = "usd_per_accelerator_hour"  # key of the workload file with assumed prices
NOT_MEANT = (
    "consumer",
    "marketplace",
    UNKNOWN_UNIT,
    WEAK_PRICE,
)  # marks that allowing a provider by name does not lift
LEAST_HELD_MONTHS = 12  # of a purchase: nobody publishes what hardware brings earlier, and a plan to resell is a bet
CONCURRENCY = np.array([1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512], dtype=float)
GRID_RANKS = 2  # attention-DP ranks that share CONCURRENCY; more ranks, each with its own batch, scale it up
TP_SIZES = (1, 2, 4, 8, 16)
WIDE_TP_SIZES = (1, 4)  # tensor parallelism of attention inside an expert-parallel group that spans hosts
NETWORK_CHIPS_MAX = 64  # largest expert-parallel group over the network that we search
DOMAIN_CHIPS_MAX = 128  # and inside one link domain
QUALITY_RANK = {"lossless": 0, "near_lossless": 1, "lossy": 2}
FROM_SCRATCH = "from_scratch"  # Quantization.training of a format that needs training from scratch
MIN_WEIGHT_BITS = 4.0  # below 4 bits a smaller model is usually better (arXiv 2210.17323)
ONE_CHIP_FRACTION = 0.5  # of a chip's memory: an encoder whose 16-bit weights take less runs on one chip
BUDGET_OPTIONS = ("$max_batched_tokens", "$step_tokens_of_attention_ranks")  # of a start command
STRUCTURED_OUTPUT = "structured_output"  # framework feature: answers that follow a grammar
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
    assumed_offers: tuple[Offer, ...] = ()  # of every chip at USD 1 per accelerator-hour, to find what it may cost
    stale: Mapping[str, str]  # accelerator slug -> why none of its prices is usable
    licences: tuple[Licence, ...] = ()  # paid on top of every offer
    acceptances: tuple[Acceptance, ...] = ()  # published acceptance rates of drafted tokens
    draft_model: Model | None = None  # a small model with the same vocabulary
    reward_model: Model | None = None  # scores the responses of GRPO
    host_copy: HostCopy | None = None
    grammar_mask_s: float = 0.0  # host time per generated token that must follow a grammar
    serverless_offers: tuple[Offer, ...] = ()  # billed by the second; used only with scale to zero
    weight_store: WeightStore | None = None  # None: unknown
    prepared_start: ColdStart | None = None  # cold start with a compile cache and local weights
    hosted: Mapping[str, str] = field(default_factory=dict)  # accelerator slug -> its vendor's API price for this model
    effort: Effort = field(default_factory=Effort, compare=False)  # of this answer; copies of the catalog share it
    _placed: dict[str, list[tuple[int, Offer]]] = field(default_factory=dict, init=False, compare=False, repr=False)

    def placed_offers(self, slug: str) -> Sequence[tuple[int, Offer]]:
        """The offers of one accelerator, each with its place in `offers`."""
        if not self._placed and self.offers:
            for place, o in enumerate(self.offers):
                self._placed.setdefault(o.accelerator, []).append((place, o))
        return self._placed.get(slug, ())

    def offers_of(self, slug: str) -> list[Offer]:
        return [o for _, o in self.placed_offers(slug)]


@dataclass(frozen=True, slots=True)
class Question:
    """A workload and the catalog that answers it."""

    workload: Workload
    catalog: Catalog


def offers_for(question: Question) -> list[Offer]:
    """The offers that the user's constraints allow."""
    return [o for o in question.catalog.offers if allowed(o, question.workload.constraints)]


def allowed(o: Offer, c: Constraints) -> bool:
    """Whether the user's constraints and site allow this offer."""
    return _within_purchase_limits(o, c) and site_rejection(o, c) is None


def _within_purchase_limits(o: Offer, c: Constraints) -> bool:
    """Whether acquisition, provider and region are allowed. What is owned or assumed by the planner always passes."""
    if o.term == OWNED or o.provider == ASSUMED:
        return True
    return (
        o.acquisition in c.acquisition
        and (not c.providers_allow or o.provider in c.providers_allow or o.acquisition == "own")
        and o.provider not in c.providers_deny
        and (not c.regions_allow or o.is_in(c.regions_allow) or o.acquisition == "own")
        and not o.is_in(c.regions_deny)
        and not excluded_marks(o, c)
    )


def excluded_marks(o: Offer, c: Constraints) -> list[str]:
    """The marks of an offer that rule it out as a choice; an accelerator or provider allowed by name is meant."""
    named = {
        *(["consumer"] if o.accelerator in c.accelerators_allow else []),
        *([m for m in o.marks if m not in NOT_MEANT] if o.provider in c.providers_allow else []),
    }
    never = () if c.with_doubts else NEVER_FIRST
    return [mark for mark in o.marks if (mark in c.exclude or mark in never) and mark not in named]


def held_long_enough(question: Question) -> Catalog:
    """The catalog without purchases that arrive too late in the horizon to be held for LEAST_HELD_MONTHS.

    Where nothing may be rented, the horizon begins with the delivery. What is left out stays among the other offers.
    """
    catalog = question.catalog
    bridges = "rent" in question.workload.constraints.acquisition

    def late(o: Offer) -> bool:
        months = LEAST_HELD_MONTHS + (round(o.order_months) if bridges else 0)
        bought = o.acquisition == "own" and o.term != OWNED and not o.held_instances
        return bought and months > question.workload.horizon_months

    left = tuple(o for o in catalog.offers if late(o))
    if not left:
        return catalog
    kept = tuple(o for o in catalog.offers if not late(o))
    return replace(catalog, offers=kept, other_offers=(*catalog.other_offers, *left))


def admissible(question: Question) -> tuple[list[Rejection], list[Accelerator]]:
    """(rejections, accelerators): chips that are allowed, can serve language models and have a current price."""
    workload, catalog = question.workload, question.catalog
    priced = {o.accelerator for o in offers_for(question)}
    rejections, left = [], []
    for a in catalog.accelerators:
        if _excluded(a, workload.constraints):
            rejections.append(_excluded_rejection(a, workload.constraints))
        elif not a.served:
            rejections.append(_not_served(a, question))
        elif a.slug not in priced:
            rejections.append(
                _site_refusal(a, workload.constraints, catalog)
                or _held_too_short(a, question)
                or _unpriced(a, workload.constraints, catalog)
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


def _excluded_rejection(a: Accelerator, c: Constraints) -> Rejection:
    changes = (
        *allowing("constraints.accelerators", a.slug, c.accelerators_allow, c.accelerators_deny),
        *allowing("constraints.vendors", a.vendor, c.vendors_allow, c.vendors_deny),
    )
    return Rejection(
        accelerator=a.slug,
        reason="excluded",
        detail="excluded by your constraints",
        smallest_change=f"considered with {listed(changes)}",
        changes=changes,
    )


def _not_served(a: Accelerator, question: Question) -> Rejection:
    """A chip that no framework can serve on; points to the vendor's API where it hosts this model for serving."""
    hosted = None if question.workload.kind.trains else question.catalog.hosted.get(a.slug)
    acquisition = question.workload.constraints.acquisition
    asked = (list_change("constraints.acquisition", [*acquisition, "api"]),) if "api" not in acquisition else ()
    return Rejection(
        accelerator=a.slug,
        reason="unsupported",
        detail=f"{a.not_served_reason}; {hosted}" if hosted else a.not_served_reason,
        smallest_change="use the vendor's hosted API: listed under hosted APIs" if hosted else "",
        changes=asked if hosted else (),
        dead_end="" if hosted and asked else a.not_served_reason,
    )


def _site_refusal(a: Accelerator, c: Constraints, catalog: Catalog) -> Rejection | None:
    """The rejection if only the site rules out every offer of a chip: that of the offer closest to fitting the site."""
    refusals = [site_rejection(o, c) for o in catalog.offers_of(a.slug) if _within_purchase_limits(o, c)]
    refusing = [r for r in refusals if r is not None]
    return closest_rejection(refusing) if refusing else None


def _held_too_short(a: Accelerator, question: Question) -> Rejection | None:
    """The rejection if the chip could be bought, but not for long enough."""
    workload = question.workload
    if "own" not in workload.constraints.acquisition:
        return None
    bought = [o for o in question.catalog.other_offers if o.accelerator == a.slug and o.acquisition == "own"]
    if not bought:
        return None
    wait = min(round(o.order_months) for o in bought) if "rent" in workload.constraints.acquisition else 0
    needed = LEAST_HELD_MONTHS + wait
    arrives = f" after a delivery of {wait} months" if wait else ""
    return Rejection(
        accelerator=a.slug,
        reason="unpriced",
        detail=(
            f"it can only be bought, and bought hardware is held for at least {LEAST_HELD_MONTHS} months{arrives}; the "
            f"horizon is {workload.horizon_months} months"
        ),
        limit=float(workload.horizon_months),
        reached=float(needed),
        smallest_change=f"priced with tco.horizon_months >= {needed}",
        changes=(limit_change("tco.horizon_months", ">=", float(needed)),),
    )


def _unpriced(a: Accelerator, c: Constraints, catalog: Catalog) -> Rejection:
    """No current offer, or only offers that the constraints exclude; then the one that needs the fewest changes."""
    rejection = Rejection(accelerator=a.slug, reason="unpriced", detail="")
    elsewhere = [changes_needed(o, c) for o in catalog.offers_of(a.slug)]
    if not elsewhere:
        return replace(rejection, detail=catalog.stale.get(a.slug, "no current price in the catalog"))
    if doubted := [o for o in catalog.offers_of(a.slug) if o.doubt and _is_only_doubted(o, c)]:
        best = min(doubted, key=lambda o: o.usd_per_hour / o.accelerators)
        changes = changes_needed(best, c)
        return replace(
            rejection,
            detail=f"not recommended at the price of {best.instance} at {best.provider}: {best.doubt}",
            smallest_change=f"priced with {listed(changes)}",
            changes=tuple(changes),
        )
    fewest = min(elsewhere, key=lambda missing: (len(missing), listed(missing)))
    marks = [mark for o in catalog.offers_of(a.slug) for mark in excluded_marks(o, c)]
    if marks and all(change.field == EXCLUDE for change in fewest):
        found = [MARKS[mark] for mark in dict.fromkeys(marks) if mark in MARKS]
        terms = f" ({a.market_terms})" if a.market_terms and "consumer" in marks else ""
        return replace(
            rejection,
            reason="excluded",
            detail=f"{' and '.join(found)}{terms}, which constraints.exclude rules out",
            smallest_change=f"considered with {listed(fewest)}",
            changes=tuple(fewest),
        )
    return replace(
        rejection,
        detail="no current price in the regions, providers and acquisition types you allow; not computed",
        smallest_change=f"priced with {listed(fewest)}",
        changes=tuple(fewest),
    )


def changes_needed(o: Offer, c: Constraints) -> list[Change]:
    """The constraint changes that would allow an offer."""
    acquisition = list_change("constraints.acquisition", [*c.acquisition, o.acquisition])
    return [
        *([] if o.acquisition in c.acquisition else [acquisition]),
        *allowing(PROVIDERS, o.provider, c.providers_allow, c.providers_deny),
        *_placing(o, c),
        *_lifting(o, c),
    ]


def _lifting(o: Offer, c: Constraints) -> list[Change]:
    """The changes that lift the marks of an offer. A price of an unknown unit becomes the planner's own assumption."""
    marks = excluded_marks(o, c)
    excluded = [list_change(EXCLUDE, [m for m in c.exclude if m not in marks])] if set(marks) & set(c.exclude) else []
    named = [list_change(f"{PROVIDERS}.allow", [o.provider])] if DOUBTFUL in marks and not c.providers_allow else []
    each = o.usd_per_hour / o.accelerators
    assumed = [limit_change(f"{PRICE_FIELD}.{o.accelerator}", "<=", each)] if UNKNOWN_UNIT in marks else []
    return excluded + named + assumed


def _is_only_doubted(o: Offer, c: Constraints) -> bool:
    """Whether an offer is within all constraints, and only its doubtful price or unknown unit rules it out."""
    return not allowed(o, c) and allowed(o, replace(c, with_doubts=True))


def _placing(o: Offer, c: Constraints) -> list[Change]:
    """The changes of the region lists that would allow an offer; a denied area is named, not the region in it."""
    allow = [] if o.acquisition == "own" or o.is_in(c.regions_allow) else c.regions_allow
    changes = allowing("constraints.regions", o.region, allow, ())
    kept = [place for place in c.regions_deny if not o.is_in((place,))]
    return changes + ([list_change("constraints.regions.deny", kept)] if len(kept) < len(c.regions_deny) else [])


def experts_span_hosts(framework: Framework, a: Accelerator) -> bool:
    """Whether the framework documents expert parallelism with data-parallel attention over several hosts."""
    return framework.launch is not None and bool(set(framework.launch.expert_hosts) & set(a.stacks))


def formats_for(question: Question) -> list[Quantization]:
    """Weight formats within the requested quality, never wider than the published checkpoint.

    Encoders stay in 16 bits: documented low-bit kernels and quality results are for decoders.
    """
    workload, catalog = question.workload, question.catalog
    seen, kept, most = set(), [], published_bits(catalog)
    for q in catalog.quantizations:
        if not (is_published(catalog.model, q) or can_convert(catalog.model, q, most)):
            continue
        if not within_quality(workload, catalog.model, q):
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


def published_bits(catalog: Catalog) -> float:
    """Bits per weight of the published checkpoint; 16 if no method of the catalog loads it."""
    own = (q.bits_per_weight for q in catalog.quantizations if is_published(catalog.model, q))
    return min(own, default=16.0)


def can_convert(model: Model, q: Quantization, published_bits_per_weight: float) -> bool:
    """Whether the published checkpoint can be converted to this format without training, and it is worth it."""
    return (
        not q.training
        and q.bits_per_weight >= MIN_WEIGHT_BITS
        and worth_converting(model, q, published_bits_per_weight)
    )


def within_quality(workload: Workload, model: Model, q: Quantization) -> bool:
    """Whether the format's quality against the published model is within the requested limit."""
    return QUALITY_RANK[quality_of(model, q)] <= ALLOWED_QUALITY[workload.constraints.quality]


def _allowed_slug(slug: str, allow: Sequence[str], deny: Sequence[str]) -> bool:
    return (not allow or slug in allow) and slug not in deny


def _parallel_sizes(model: Model, accelerator: Accelerator, sold: int) -> Iterator[tuple[int, ...]]:
    """(tp, pp, ep, dp): TP within one link domain, experts with or without EP, attention DP where it saves KV cache.

    `sold`: the most chips that one offer connects.
    """
    sizes = _sizes(accelerator, sold)
    mixers = [b.mixer for b in model.blocks if isinstance(b.mixer, SoftmaxAttention)]
    experts = [b.ffn.experts for b in model.blocks if b.ffn is not None and b.ffn.experts > 1]
    if model.diffusion is not None:
        sizes = [1]  # step/generation.py: one image runs on one chip
    elif model.encoder_only and parameters(model) * 2.0 < ONE_CHIP_FRACTION * accelerator.memory_bytes:
        sizes = [1]  # embedding servers are scaled by replicas; nobody splits a model that one chip holds easily
    for n in sizes:
        if any(m.heads % n for m in mixers):
            continue
        yield n, 1, 1, 1
        if experts and n > 1 and all(e % n == 0 for e in experts):
            yield n, 1, n, 1
            if any(not isinstance(m, Attention) or n > m.kv_heads for m in mixers):
                yield 1, 1, n, n  # TP would store the whole KV cache of a head on several chips
    if experts and not model.encoder_only:
        yield from _wide_sizes(accelerator, sold, experts, mixers)
    most, layers = max(sizes), sum(b.count for b in model.blocks)
    # no framework documents pipeline parallelism for encoders, alone or beside a decoder
    plain = not (model.encoder_only or has_encoder(model) or (accelerator.share and accelerator.share.fraction < 1.0))
    if plain and not accelerator.cut and most >= accelerator.chips_per_host and not any(m.heads % most for m in mixers):
        yield from ((most, stages, 1, 1) for stages in (2, 4) if layers >= stages)


def _wide_sizes(
    a: Accelerator, sold: int, experts: Sequence[int], mixers: Sequence[SoftmaxAttention]
) -> Iterator[tuple[int, ...]]:
    """(tp, pp, ep, dp) of expert-parallel groups of several hosts with data-parallel attention.

    Sizes are doublings of a host and the largest number of whole hosts in the link domain that divides the experts.
    """
    most = min(sold, DOMAIN_CHIPS_MAX)
    even = [n for n in range(2 * a.chips_per_host, most + 1, a.chips_per_host) if not any(e % n for e in experts)]
    doubled = {a.chips_per_host * 2**k for k in range(1, 11)}
    within = _sizes(a, sold)  # already there with data-parallel attention
    for n in even:
        if n not in doubled and n != max((e for e in even if e <= near_chips(a)), default=0):
            continue
        for tp in WIDE_TP_SIZES:
            if tp <= a.chips_per_host and not any(m.heads % tp for m in mixers) and not (tp == 1 and n in within):
                yield tp, 1, n, n // tp


def asked_sizes(c: Constraints, model: Model, a: Accelerator, sold: int) -> list[tuple[int, ...]]:
    """The (tp, pp, ep, dp) to try: those of the asked layout, also where the search would not try them by itself."""
    found = list(_parallel_sizes(model, a, sold))
    if not any(c.layout):
        return found
    kept = [sizes for sizes in found if all(n in (0, got) for n, got in zip(c.layout, sizes, strict=True))]
    stated = tuple(n or 1 for n in c.layout)
    return kept if stated in kept or layout_fault(model, a, sold, stated) else [*kept, stated]


def layout_fault(model: Model, a: Accelerator, sold: int, sizes: tuple[int, ...]) -> str:
    """Why the model cannot be split so; empty: it can. `sold`: the most accelerators that an offer connects."""
    tp, pp, ep, dp = sizes
    heads = [b.mixer.heads for b in model.blocks if isinstance(b.mixer, SoftmaxAttention)]
    experts = [b.ffn.experts for b in model.blocks if b.ffn is not None and b.ffn.experts > 1]
    if uneven := [h for h in heads if h % tp]:
        return f"{uneven[0]} attention heads cannot be split {tp} ways"
    if pp > (layers := sum(b.count for b in model.blocks)):
        return f"the model has {layers} layers for {pp} pipeline stages"
    if pp > 1 and (model.encoder_only or has_encoder(model)):
        return "no framework documents pipeline parallelism for encoders"
    if ep > 1 and not experts:
        return "the model has no experts to spread"
    if uneven := [e for e in experts if e % ep]:
        return f"{uneven[0]} experts cannot be split {ep} ways"
    if tp * dp % ep:
        return f"ep {ep} does not divide tp x dp = {tp * dp}"
    if tp > near_chips(a):
        return f"tp {tp} spans more than the {near_chips(a)} accelerators that fast links connect"
    if tp * dp > sold:
        return f"tp x dp = {tp * dp}, and no offer that you allow connects more than {sold} of them"
    return ""


def enumerate_lanes(question: Question, chips: Sequence[Accelerator]) -> tuple[list[Lane], list[Rejection]]:
    """Every valid lane per accelerator (framework x format x KV-cache format x parallel sizes), and the rejections."""
    workload, catalog = question.workload, question.catalog
    rejections, lanes = [], []
    if why := model_mismatch(workload, catalog.model) or adapters_unsupported(catalog.model):
        return [], [Rejection(accelerator=a.slug, reason="unsupported", detail=why, dead_end=why) for a in chips]
    formats, c = formats_for(question), workload.constraints
    sold = largest_connected_offer(question)
    parts = {a.slug: rented_parts(question, a) for a in chips}
    for a in chips:
        own = [
            lane
            for f in catalog.frameworks
            if _allowed_slug(f.slug, c.frameworks_allow, c.frameworks_deny)
            if launchable(f, catalog.model) and runs_on(f, a) and supports_model(f, catalog.model)
            if not workload.structured_output or STRUCTURED_OUTPUT in f.features
            for way in (w for part in parts[a.slug] for w in partition_choices(part, c.partitions))
            for lane in _lanes_of(question, way, f, formats, _connected(way, sold[a.slug]))
        ]
        if not own:
            detail = _layout_refusal(question, a, sold[a.slug]) or _partition_refusal(a, c.partitions)
            detail = detail or _why_unsupported(question, a, formats)
            rejections.append(Rejection(accelerator=a.slug, reason="unsupported", detail=detail))
        lanes += own
    return lanes, rejections


def rented_parts(question: Question, a: Accelerator) -> list[Accelerator]:
    """The chip in each part of a socket that an allowed offer has; for other chips than processors, the chip."""
    if a.share:
        return [a]
    own = question.catalog.offers_of(a.slug)
    shares = {o.share for o in own if allowed(o, question.workload.constraints)}
    whole = [a] if None in shares or not shares else []
    serving = [share for share in shares if share is not None and share.serves]
    order = sorted(serving, key=lambda s: (s.sockets, s.cores, s.memory_bytes))
    return whole + [rented_part(a, share) for share in order]


def partition_choices(a: Accelerator, partitions: str) -> list[Accelerator]:
    """The whole chip, its hardware partitions, or both, as `constraints.partitions` asks."""
    whole = [] if partitions == "required" else [a]
    return whole + ([cut_into(a, p) for p in a.partitions] if partitions in ("yes", "required") else [])


def _partition_refusal(a: Accelerator, partitions: str) -> str:
    """Why a chip fails `partitions: required`; empty if it passes or partitions are not required."""
    if partitions != "required" or a.partitions:
        return ""
    return f"{a.name} has no hardware partitions in the catalog, and your constraints require them"


def _layout_refusal(question: Question, a: Accelerator, sold: int) -> str:
    """Why a chip cannot have the asked layout or step budget; empty: it can, or neither is asked for."""
    c, model = question.workload.constraints, question.catalog.model
    known = question.catalog.frameworks
    able = [f for f in known if launchable(f, model) and runs_on(f, a) and supports_model(f, model)]
    if any(c.layout):
        sizes = tuple(n or 1 for n in c.layout)
        why = layout_fault(model, a, sold, sizes)
        if why := why or next((w for f in able if (w := _not_started(f, a, model, sizes))), ""):
            return f"your layout is not possible: {why}"
    if c.max_batched_tokens and able and not any(states_budget(f) for f in able):
        return "your max_batched_tokens is not possible: no start command of its frameworks states a step budget"
    return ""


def _not_started(f: Framework, a: Accelerator, model: Model, sizes: tuple[int, ...]) -> str:
    """Why the framework does not run the layout on the chip; empty: it does."""
    tp, pp, ep, dp = sizes
    if feature := unsupported_layout(f, a, tp=tp, pp=pp, ep=ep, dp=dp):
        return f"{f.name} {f.version} has no documented {feature.replace('_', ' ')}"
    fault = start_fault(f, a, model, tp=tp, moe_tp=max(tp * dp // ep, 1), pp=pp)
    return fault.reason if fault else ""


def states_budget(f: Framework) -> bool:
    """Whether the framework splits prompts and its start command always states how many tokens a step has."""
    parts = f.launch.template.command if f.launch else ()
    return "chunked_prefill" in f.features and any(o in p.text and not p.when for p in parts for o in BUDGET_OPTIONS)


def largest_connected_offer(question: Question) -> dict[str, int]:
    """Per accelerator the most chips of one group on an allowed offer; 1 if it has no offer."""
    chips = {a.slug: a for a in question.catalog.accelerators}
    sold: dict[str, int] = defaultdict(lambda: 1)
    for offer in offers_for(question):
        sold[offer.accelerator] = max(sold[offer.accelerator], connected_chips(chips[offer.accelerator], offer))
    return sold


def _connected(a: Accelerator, sold: int) -> int:
    """The most chips that one offer connects of this chip or part of it."""
    if a.cut:
        return 1
    return a.share.sockets if a.share else sold


def near_chips(a: Accelerator) -> int:
    """Chips of the nearest link domain, and at least those of a host."""
    return max(a.links[0].chips if a.links else 1, a.chips_per_host)


def connected_chips(a: Accelerator, o: Offer) -> int:
    """The most chips that one group can have on this offer: one instance, or whole hosts joined by its fabric."""
    return max(o.tensor_parallel_chips, min(o.fabric_accelerators, max(near_chips(a), NETWORK_CHIPS_MAX)))


def holds_replica(a: Accelerator, o: Offer, group: int, stages: int) -> bool:
    """Whether a replica of `stages` groups of this many chips can run on instances of this offer.

    Stages on separate rented instances need a network that the provider is known to have. A buyer can install one.
    """
    joined = stages == 1 or o.acquisition != "rent" or group * stages <= max(o.accelerators, o.fabric_accelerators)
    return joined and group <= connected_chips(a, o)


def concurrency_of(lanes: Sequence[Lane]) -> np.ndarray:
    """Requests in flight on one replica in each column of the table, shape (lanes, concurrency)."""
    ranks = np.array([w.choice.dp for w in lanes], dtype=float)[:, None]
    return CONCURRENCY[None, :] * np.maximum(ranks / GRID_RANKS, 1.0)


def _sizes(a: Accelerator, sold: int) -> list[int]:
    """Tensor-parallel sizes: within the fast-link domain or one host, and no more than an offer connects."""
    return [n for n in TP_SIZES if n <= min(sold, near_chips(a))]


def efficiency_on(scopes: Scopes, a: Accelerator) -> Efficiency:
    """Kernel efficiency on the chip; a partition counts as extrapolated because no partition was measured."""
    known = efficiency(scopes, a.slug, a.family, a.kind)
    return replace(known, basis="relative") if a.cut and known.basis == "measured" else known


def _lanes_of(
    question: Question,
    a: Accelerator,
    f: Framework,
    formats: Sequence[Quantization],
    sold: int,
) -> Iterator[Lane]:
    """The lanes of one chip with one framework."""
    workload, catalog, c = question.workload, question.catalog, question.workload.constraints
    if c.max_batched_tokens and not states_budget(f):
        return
    reached = efficiency_on(catalog.scopes, a)
    extra = overhead(catalog.scopes, f.slug, f.version, a.family, a.kind, a.slug)
    if workload.structured_output:  # the mask is computed on the host while the accelerator runs the step
        extra = replace(extra, host_s_per_sequence=extra.host_s_per_sequence + catalog.grammar_mask_s)
    loaded, on_chip = _weights_on(catalog.model, f, a, formats), defaults_on(f, a)
    layouts = [
        (tp, pp, ep, dp)
        for tp, pp, ep, dp in asked_sizes(c, catalog.model, a, sold)
        if not unsupported_layout(f, a, tp=tp, pp=pp, ep=ep, dp=dp)
        if tp * dp <= a.chips_per_host or dp == 1 or experts_span_hosts(f, a)
        if start_fault(f, a, catalog.model, tp=tp, moe_tp=max(tp * dp // ep, 1), pp=pp) is None
    ]
    seats = c.max_running_requests
    asked_source_tokens = workload.source_tokens.mean_tokens if workload.source_tokens else 0.0
    source, whole = computed_source_tokens(catalog.model, asked_source_tokens), whole_prompts(catalog.model)
    started = replace(on_chip, max_running_requests=seats or f.max_running_requests)  # the command states how many
    held = workload.p95_request_tokens
    for q, kv, (tp, pp, ep, dp) in product(loaded, _cache_formats(workload, catalog.model, f, a), layouts):
        if q.shard_elements > 1 and broken_shard(catalog.model, q, tp, max(tp * dp // ep, 1)):
            continue
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
                correction=correction(
                    catalog.scopes, a.slug, f.slug, f.version, (q.slug, q.weights_dtype), (tp, pp, ep, dp)
                ),
            ),
            framework=started,
            context_tokens=workload.input_tokens.mean_tokens + workload.output_tokens.mean_tokens,
            max_batched_tokens=c.max_batched_tokens or on_chip.default_max_batched_tokens,
            max_running_requests=seats or min(f.max_running_requests, int(CONCURRENCY[-1])),
            held_tokens=held,
            source_tokens=source,
            whole_prompts=whole,
        )


def _weights_on(model: Model, f: Framework, a: Accelerator, formats: Sequence[Quantization]) -> list[Quantization]:
    """The formats as the framework runs them on the chip; of those that run alike, the one made for it.

    BF16 and FP16 run alike: the published one where the chip has it. Weights are not converted to scales by block where
    one scale per tensor or channel runs too: it is near lossless as well, and blocks can be twice as slow
    (docs/explanation/accuracy.md).
    """
    run = [(q, as_run) for q in formats if isinstance(as_run := weights_on(f, a, q, model), Quantization)]
    run.sort(key=lambda pair: (pair[0] is not pair[1], is_cast(model, pair[0]) and not is_published(model, pair[0])))
    alike = {_as_multiplied(r): r for _, r in reversed(run)}
    simple = {r.weights_dtype for r in alike.values() if not r.block_scaled and r.activations_dtype == r.weights_dtype}
    return [r for r in alike.values() if not (r.weights_dtype in simple and _blocks_to_make(model, r))][::-1]


def _blocks_to_make(model: Model, q: Quantization) -> bool:
    """Whether it has scales by block, and no such checkpoint is known."""
    return q.block_scaled and not is_published(model, q) and published_conversion(model, q) is None


def _as_multiplied(q: Quantization) -> tuple[object, ...]:
    """The same for formats with the same multiply."""
    dtypes = HALF if q.weights_dtype in HALF else (q.weights_dtype, q.activations_dtype)
    return q.bits_per_weight, q.weight_only, *dtypes


def _cache_formats(workload: Workload, model: Model, f: Framework, a: Accelerator) -> list[str]:
    c = workload.constraints
    if whole_prompts(model):
        return [d for d in HALF if d in f.kv_dtypes][:1]  # no KV cache
    allowed = [d for d in f.kv_dtypes if _allowed_slug(d, c.kv_formats_allow, c.kv_formats_deny)]
    own = [d for d in HALF if d in a.flops_per_s] or HALF
    kept = [d for d in own if d in allowed][:1]
    if c.quality != "lossless" and "fp8" in allowed and not cache_unsupported(f, a, "fp8", model):
        kept.append("fp8")
    return kept


def _why_unsupported(question: Question, a: Accelerator, formats: Sequence[Quantization]) -> str:
    catalog = question.catalog
    running = [f for f in catalog.frameworks if f.startable and runs_on(f, a)]
    if not running:
        return f"no serving framework in the catalog runs on {a.name}"
    if not any(supports_model(f, catalog.model) and launchable(f, catalog.model) for f in running):
        if old := sorted({why for f in running if (why := too_old(f, catalog.model))}):
            return "; ".join(old)
        beside = {EMBEDDINGS} if catalog.model.encoder_only else {"LoRA adapters"} if catalog.model.adapters else set()
        beside |= {"reranking"} if catalog.model.scores_pairs else set()
        beside |= {"image input"} if catalog.model.pictures else set()
        kind = ", ".join(sorted(mixers_of(catalog.model) | beside))
        names = ", ".join(sorted({f.name for f in running}))
        return f"no known support for this kind of model ({kind}) in {names}"
    if question.workload.structured_output and not any(STRUCTURED_OUTPUT in f.features for f in running):
        names = ", ".join(sorted({f.name for f in running}))
        return f"structured output is not documented for {names}"
    if not any(_cache_formats(question.workload, catalog.model, f, a) for f in running):
        return f"none of the KV-cache formats you allow is supported on {a.name}"
    if not formats:
        return _why_no_format(question)
    own = [q for q in formats if is_published(catalog.model, q)]
    usable = [f for f in running if supports_model(f, catalog.model) and launchable(f, catalog.model)]
    refusals = {f.name: str(weights_on(f, a, q, catalog.model)) for q in own or formats for f in usable}
    if len(refusals) == 1:
        return next(iter(refusals.values()))
    names = ", ".join(q.name for q in own or formats)
    return f"no documented support for {names} on {a.name} in {', '.join(sorted(refusals))}"


def _why_no_format(question: Question) -> str:
    """Why the allowed weight formats include none for this model: the reason of each that is named, or of all."""
    workload, catalog = question.workload, question.catalog
    most, c = published_bits(catalog), workload.constraints

    def why(q: Quantization) -> str:
        if not quantizes(q, catalog.model):
            return f"{q.name} has kernels for expert layers only; this model is dense"
        if not (is_published(catalog.model, q) or can_convert(catalog.model, q, most)):
            return f"no checkpoint in {q.name} is known, and the published one ({most:g} bits) is not converted to it"
        if not within_quality(workload, catalog.model, q):
            quality = quality_of(catalog.model, q).replace("_", "-")
            return f"{q.name} is {quality}, outside constraints.quality: {c.quality}"
        return f"{q.name} is for decoders; encoders stay in 16 bits"

    allowed = [q for q in catalog.quantizations if _allowed_slug(q.slug, c.formats_allow, c.formats_deny)]
    return "; ".join(dict.fromkeys(why(q) for q in allowed[:3])) or "your constraints allow none of the weight formats"
