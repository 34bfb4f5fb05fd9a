"""One fixed deployment, as `estimate` takes it: validated, checked against the catalog, converted to a Case."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Annotated, Any, Literal, TypeVar, get_args

from pydantic import AliasChoices, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from advisor.engine.estimate import Resources, find_framework, methods_of_dtype, quantization_for
from advisor.engine.network import Adapters as Resident
from advisor.engine.network import Model, SoftmaxAttention, from_hf_config
from advisor.engine.scheduler import shares_prefixes
from advisor.engine.step import (
    KV_BYTES,
    LORA,
    adapters_unsupported,
    as_scheduled,
    broken_shard,
    cache_unsupported,
    has_decoder_beside,
    methods_of,
    mixers_of,
    runs_on,
    start_fault,
    suits,
    supports_weights,
    too_old,
    unsupported,
    unsupported_layout,
    weights_on,
    yarn_warning,
)
from advisor.engine.step import supports_model as serves
from advisor.engine.terms import KV, UNRANKED, WEIGHTS, Accelerator, Case, Framework, Pool, Quantization
from advisor.workload.errors import explain, explained
from advisor.workload.fields import Name, Section
from advisor.workload.fixed.traffic import (
    MAX_CONCURRENCY,
    DeploymentTraffic,
    check_client,
    check_lengths,
    prefix_classes,
    protocol_of,
    with_traffic,
)
from advisor.workload.notation.names import Names, names_of, several
from advisor.workload.notation.sections import clear_of, with_numbers
from advisor.workload.schema import Adapters, ModelRef
from advisor.workload.text import WorkloadError, check_plain, error, near

Ways = Annotated[int, Field(ge=1, le=4096)]
Seats = Annotated[int, Field(ge=1, le=100_000)]
Entry = TypeVar("Entry")


def add_replicas_alias(schema: dict[str, Any]) -> None:
    """Adds `replicas` to the JSON schema: another name for `workers`; only one of them may be set."""
    schema["properties"]["replicas"] = schema["properties"]["workers"] | {"description": "Same as workers"}
    schema["not"] = {"required": ["workers", "replicas"]}


class PoolSpec(Section):
    """A pool of `workers` identical replicas; `batch` limits the concurrent requests on each attention rank."""

    model_config = ConfigDict(
        strict=True, extra="forbid", frozen=True, populate_by_name=True, json_schema_extra=add_replicas_alias
    )
    workers: Annotated[Ways, Field(validation_alias=AliasChoices("workers", "replicas"))] = 1
    tp: Ways = 1
    pp: Ways = 1
    ep: Ways = 1
    attention_dp: Ways = 1
    moe_tp: Ways | None = None
    batch: Seats | None = None


EstimateMethod = Literal["simulated", "closed_form"]
ESTIMATE_METHODS: tuple[str, ...] = get_args(EstimateMethod)
DraftMethod = Literal["ngram", "eagle", "mtp", "draft"]
DRAFT_METHODS: tuple[str, ...] = get_args(DraftMethod)


def count_alone(value: object) -> object:
    """Adapters given as their number."""
    return {"count": value} if isinstance(value, int) and not isinstance(value, bool) else value


class Drafts(Section):
    """Speculative decoding: `k` tokens are drafted per request and step."""

    method: Annotated[
        DraftMethod,
        Field(description="n-grams of the prompt, an EAGLE head, the model's own layer, or a small model"),
    ]
    k: Annotated[int, Field(ge=1, le=16, description="Drafted tokens per step")]
    acceptance: Annotated[
        Annotated[float, Field(ge=0, le=1)] | None,
        Field(description="Probability that a drafted token is accepted if all before it are; default: as published"),
    ] = None
    draft: Annotated[Name | None, Field(description="Catalog name of the small model, for method draft")] = None


class Deployment(DeploymentTraffic):
    """The arguments of `manage.py estimate` and POST /api/v1/estimate. Degrees of parallelism are per replica."""

    kind: Literal["serving"] = "serving"
    method: Annotated[
        EstimateMethod,
        Field(description="closed_form: means by formulas, without simulation, intervals and measured rows"),
    ] = "simulated"
    model: ModelRef
    accelerator: Name
    count: Annotated[
        Ways | None, Field(description="Total number of accelerators; default tp x pp x attention_dp x dp")
    ] = None
    tp: Ways = 1
    pp: Ways = 1
    ep: Ways = 1
    dp: Annotated[Ways | None, Field(description="Independent replicas")] = None
    attention_dp: Annotated[Ways, Field(description="Attention data parallelism inside a replica")] = 1
    moe_tp: Ways | None = None
    prefill_pool: PoolSpec | None = None
    decode_pool: PoolSpec | None = None
    weights: Annotated[Name, Field(description="A dtype, or the slug of a quantization method")]
    kv: Annotated[Name | None, Field(description="Default: the framework's default")] = None
    framework: Annotated[
        Name | None, Field(description="Default: the first framework that supports the deployment")
    ] = None
    framework_version: Name | None = None
    max_batched_tokens: Annotated[
        Annotated[int, Field(ge=16, le=1_000_000)] | None,
        Field(description="Maximum tokens that the scheduler computes in one step; default: the framework's"),
    ] = None
    seats: Annotated[Seats | None, Field(description="Maximum running requests per scheduler (--max-num-seqs)")] = None
    memory_fraction: Annotated[
        Annotated[float, Field(ge=0.05, le=1)] | None,
        Field(description="Fraction of the memory that the server may use; default: the framework's"),
    ] = None
    enforce_eager: Annotated[bool, Field(description="Without CUDA graphs and compilation")] = False
    prefix_caching: Annotated[bool, Field(description="Whether the server caches prompts for later requests")] = True
    adapters: Annotated[
        Adapters | None,
        BeforeValidator(count_alone, json_schema_input_type=Annotated[int, Field(ge=0, le=100_000)] | Adapters | None),
        Field(description="LoRA adapters served with the model: their number, or a section"),
    ] = None
    speculative: Annotated[Drafts | None, Field(description="Speculative decoding; default: none")] = None
    host_speed_ratio: Annotated[
        float | None,
        Field(
            ge=0.1,
            le=10,
            description="Host time of a step over that on the host of the measured overheads; default: a launch "
            "probe's, else the assumption host-speed-ratio",
        ),
    ] = None
    use_measurements: Annotated[
        bool, Field(description="Correct the prediction by measured rows of similar deployments")
    ] = True


@dataclass(frozen=True, kw_only=True, slots=True)
class Fixed:
    """A valid deployment: the case, the catalog entries it uses, and `doubts` to report as warnings."""

    case: Case
    resources: Resources
    framework: Framework
    quantization: Quantization
    doubts: tuple[str, ...]

    @property
    def model(self) -> Model:
        return self.resources.models[self.case.model_id]

    @property
    def accelerator(self) -> Accelerator:
        return self.resources.accelerators[self.case.accelerator_slug]

    @property
    def pools(self) -> tuple[Pool, ...]:
        return tuple(p for p in (self.case.pool, self.case.prefill_pool, self.case.decode_pool) if p is not None)


def parse_deployment(raw: Mapping[str, Any]) -> Deployment:
    """The validated deployment. Raises WorkloadError with each field, the reason and what is allowed."""
    check_plain(dict(raw))
    given, unclear = with_numbers(with_traffic(raw), Deployment)
    try:
        return Deployment.model_validate(given)
    except ValidationError as e:
        errors = unclear + clear_of(unclear, explained(e, Deployment, deployment_error))
        raise WorkloadError(list({tuple(item.values()): item for item in errors}.values())) from None


def deployment_error(item: Any, root: type[BaseModel]) -> dict[str, str]:
    """One pydantic error as an entry of WorkloadError.errors."""
    name = str(item["loc"][0]) if item["loc"] else ""
    if item["type"] == "spread":
        return error("length_spread", "is not a valid range", "0.8:1.0")
    if item["type"] == "string_pattern_mismatch" and name in ("client", "length_spread"):
        allowed = "steady, burst:10, poisson:RATE or static" if name == "client" else "LOW:HIGH such as 0.8:1.0"
        return error(name, "is not a valid value", allowed)
    if name == "concurrency":
        return error(name, f"must be a whole number of requests (at most {MAX_CONCURRENCY}) or max", "64, max")
    return explain(item, root)


def parse_pool(field: str, text: str) -> dict[str, int]:
    """The mapping written as `tp=8;workers=2`. Raises WorkloadError."""
    values = {}
    for part in filter(None, text.split(";")):
        key, equals, value = part.partition("=")
        if not equals or not value.strip().isdecimal():
            raise WorkloadError([error(field, f"{part}: use KEY=NUMBER", ", ".join(PoolSpec.model_fields))])
        values[key.strip()] = int(value)
    return values


def parse_section(field: str, text: str) -> dict[str, str]:
    """The section written as `count=8;rank=16`; a number alone is a count. Raises WorkloadError."""
    values = {}
    for part in filter(None, text.split(";")):
        key, equals, value = part.partition("=")
        if not equals and not part.strip().isdecimal():
            raise WorkloadError([error(field, f"{part}: use KEY=VALUE", "keys with values, separated by ;")])
        values[key.strip() if equals else "count"] = value.strip() if equals else part.strip()
    return values


# --- against the catalog ----------------------------------------------------------------------------------------


def fixed(d: Deployment, resources: Resources) -> Fixed:
    """The deployment as a Case. Raises WorkloadError for names not in the catalog and for contradictions."""
    model_id = d.model if isinstance(d.model, str) else next(iter(resources.models))
    model = adapted(d, named("model", model_id, resources.models))
    resources = replace(resources, models={**resources.models, model_id: model})
    chip = named("accelerator", d.accelerator, resources.accelerators)
    if not chip.served and not any(runs_on(f, chip) for f in resources.frameworks):
        raise refused(
            "accelerator", f"{chip.name} cannot be estimated: {chip.not_served_reason}", "a supported accelerator"
        )
    weights = format_name(d.weights, resources.quantizations)
    methods = known_methods(weights, chip, resources.quantizations, model)
    kv = KV.get(d.kv.casefold(), d.kv.casefold()) if d.kv else None
    if kv is not None and kv not in KV_BYTES:
        raise refused("kv", f"{kv} is not a KV cache format{near(kv, KV_BYTES)}", ", ".join(KV_BYTES))
    framework = framework_of(d, chip, model, methods, resources.frameworks)
    quantization = format_of(methods, chip, model, framework)
    weights = weights if quantization.slug == methods[0].slug else quantization.slug
    check_lengths(d, model)
    check_pools(d, model)
    client = protocol_of(d)
    layout, notes = pools_of(d, model)
    case = Case(
        model_id=model_id,
        accelerator_slug=chip.slug,
        chips=sum(p.chips for p in layout.values()),
        weights_dtype=weights,
        framework=framework.slug,
        framework_version=framework.version,
        isl=float(d.isl),
        osl=float(max(d.osl, 1)),
        phase="static" if client.kind == "static" else "serving",
        client=client,
        mode="agg" if "pool" in layout else "disagg",
        kv_dtype=kv,
        concurrency=None if d.concurrency == "max" else float(d.concurrency),
        max_batched_tokens=d.max_batched_tokens,
        max_batch=d.seats,
        memory_fraction=d.memory_fraction,
        eager=d.enforce_eager,
        input_p95=d.isl_p95,
        output_p95=d.osl_p95,
        **cached(d, framework),
        **drafted(d, model, framework, resources),
        **layout,
    )
    check_client(case)
    check_support(case, model, framework, quantization, resources)
    if not chip.served:
        notes.append(f"{chip.name} is not recommended to anyone: {chip.not_served_reason}")
    notes += doubts(case, model, chip, framework, quantization)
    if (d.prefixes or d.prefix_cache_hit_rate) and not shares(d, framework):
        notes.append("the server has no prefix cache, so every prompt is computed in full")
    if framework.version not in {f.version for f in resources.frameworks if f.slug == framework.slug}:
        notes.append(
            f"the catalog has no {framework.name} {framework.version}; the settings of the newest version below it, "
            "or of the oldest, are used"
        )
    return Fixed(
        case=as_scheduled(case, model),
        resources=resources,
        framework=framework,
        quantization=quantization,
        doubts=tuple(notes),
    )


def adapted(d: Deployment, model: Model) -> Model:
    """The model with the adapters that are served with it. Raises WorkloadError."""
    a = d.adapters
    if a is None or not a.count:
        return model
    if a.active and a.active > a.count:
        raise refused("adapters.active", f"exceeds adapters.count ({a.count})", f"1 .. {a.count}")
    resident = Resident(count=a.count, rank=a.rank, active=a.active or a.count, attention_only=a.targets == "attention")
    with_them = replace(model, adapters=resident)
    if why := adapters_unsupported(with_them):
        raise refused("adapters", why, "0")
    return with_them


def shares(d: Deployment, framework: Framework) -> bool:
    """Whether the server keeps prompts that others can share."""
    return d.prefix_caching and shares_prefixes(framework)


def cached(d: Deployment, framework: Framework) -> dict[str, Any]:
    """What the prefix cache holds, as keywords of a Case. Raises WorkloadError."""
    classes = prefix_classes(d)
    if not shares(d, framework):
        return {}
    return {"prefix_classes": classes, "cached_fraction": d.prefix_cache_hit_rate}


def drafted(d: Deployment, model: Model, framework: Framework, resources: Resources) -> dict[str, Any]:
    """Speculative decoding as keywords of a Case. Raises WorkloadError where it is not supported."""
    s, field = d.speculative, "speculative"
    if s is None:
        return {}
    able = [m for m in framework.speculative if suits(m, model) and m != "medusa"]
    if s.method not in able:
        why = f"{framework.name} {framework.version} has no documented drafts of this kind for this model"
        raise refused(f"{field}.method", why, ", ".join(able) or "none: remove speculative")
    if d.pp > 1:
        raise refused(field, "drafts are not supported with pipeline parallelism", "pp 1")
    small = resources.models.get(s.draft or "")
    if (s.method == "draft") != (s.draft is not None) or s.draft and small is None:
        raise refused(f"{field}.draft", "names the small model of method draft", "a model of the catalog")
    if small is not None and small.vocab != model.vocab:
        message = f"has {small.vocab:,} tokens in its vocabulary, the model {model.vocab:,}"
        raise refused(f"{field}.draft", message, "a model with the same vocabulary")
    rows = methods_of(framework, model, resources.acceptances, d.task)
    published = next((a for a in rows if a.method == s.method and a.accepted_fraction), None)
    if s.acceptance is None and published is None:
        raise refused(f"{field}.acceptance", "is required: none is published for this method", "0 .. 1")
    rate = s.acceptance if published is None or s.acceptance is not None else published.accepted_fraction
    return {field: s.method, "speculative_tokens": s.k, "acceptance_fraction": rate, "draft_model": s.draft}


def check_pools(d: Deployment, model: Model) -> None:
    """Raises WorkloadError for what is not estimated of disaggregated pools."""
    if not (d.prefill_pool or d.decode_pool):
        return
    if model.encoder_only or has_decoder_beside(model):
        raise refused("prefill_pool", "disaggregated serving is supported for decoder-only models", "remove both pools")
    if d.seats is not None:
        raise refused("seats", "must be set inside prefill_pool and decode_pool", "batch")
    for name in ("isl_p95", "osl_p95", "prefixes", "prefix_cache_hit_rate", "speculative"):
        if getattr(d, name):
            raise refused(name, "is not estimated for disaggregated pools", "remove it, or both pools")


def refused(field: str, message: str, allowed: str = "") -> WorkloadError:
    return WorkloadError([error(field, message, allowed)])


@lru_cache(maxsize=16)
def spellings_of(rows: tuple[tuple[str, ...], ...], ordered: bool) -> Names:
    """Of rows of a key and its further names."""
    return names_of({key: others for key, *others in rows}, ordered=ordered)


def named(field: str, name: str, entries: Mapping[str, Entry]) -> Entry:
    """The catalog entry of this name, as people write it. Raises WorkloadError for none, or more than one."""
    if name in entries:
        return entries[name]
    rows = tuple((key, key.rpartition("/")[2], getattr(entry, "name", key)) for key, entry in entries.items())
    found = spellings_of(rows, field == "model").meant_by(name)
    if len(found) == 1:
        return entries[found[0]]
    if found:
        raise refused(field, several(name, found))
    suggestion = near(name, entries, limit=3, cutoff=0.45)
    raise refused(field, f"{name} is not in the catalog{suggestion}", ", ".join(sorted(entries)[:40]))


def format_name(written: str, known: Iterable[Quantization]) -> str:
    """The dtype or slug that the engine uses for a format as people write it (FP8, AWQ, nvfp4)."""
    typed = written.casefold()
    if dtype := WEIGHTS.get(written) or WEIGHTS.get(typed):
        return dtype
    return next((q.slug for q in known if typed in (q.slug.casefold(), q.name.casefold())), written)


def format_of(methods: Sequence[Quantization], chip: Accelerator, model: Model, framework: Framework) -> Quantization:
    """The first of the methods that the framework runs on the chip, as it runs it. Raises WorkloadError."""
    documented = (weights_on(framework, chip, q, model) for q in methods)
    run = next((q for q in documented if isinstance(q, Quantization)), "")
    chosen = run or quantization_for(methods[0].slug, chip, methods)
    if isinstance(chosen, Quantization):
        return chosen
    raise refused("weights", chosen)


def known_methods(dtype: str, chip: Accelerator, known: Sequence[Quantization], model: Model) -> list[Quantization]:
    """The catalog's methods of this dtype. Raises WorkloadError with the ones that the chip can compute."""
    if methods := methods_of_dtype(dtype, known, model):
        return methods
    able = sorted({q.slug for q in known if not unsupported(chip, q)})
    raise refused("weights", f"no quantization method for {dtype}{near(dtype, able)}", ", ".join(able))


def framework_of(
    d: Deployment, chip: Accelerator, model: Model, methods: Sequence[Quantization], known: tuple[Framework, ...]
) -> Framework:
    """The named framework, or the preferred one in the catalog for this chip, model and format."""
    if d.framework is None:
        able = {f.slug: f for f in known if runs_on(f, chip)}
        ready = [
            f for f in able.values() if serves(f, model) and any(supports_weights(f, chip, q, model) for q in methods)
        ]
        ready.sort(key=lambda f: f.launch.preference if f.launch else UNRANKED)
        if ready or able:
            slug = (ready or list(able.values()))[0].slug
            return framework_version_of(known, slug, d.framework_version)
        raise refused("framework", f"no serving framework in the catalog runs on {chip.name}")
    wanted = d.framework.casefold()
    slug = next((f.slug for f in known if wanted in f.aliases), wanted)
    named("framework", slug, {f.slug: f for f in known})
    if not any(f.slug == slug and runs_on(f, chip) for f in known):
        able_slugs = sorted({f.slug for f in known if runs_on(f, chip)})
        raise refused("framework", f"{slug} does not run on {chip.name}", ", ".join(able_slugs) or "none")
    return framework_version_of(known, slug, d.framework_version)


def framework_version_of(known: tuple[Framework, ...], slug: str, version: str | None) -> Framework:
    framework = find_framework(known, slug, version or "")
    assert framework is not None
    return framework


# --- layout -----------------------------------------------------------------------------------------------------


def pools_of(d: Deployment, model: Model) -> tuple[dict[str, Any], list[str]]:
    """The pools as keywords of a Case, with a note if the number of replicas follows from `count`."""
    if d.prefill_pool or d.decode_pool:
        return disaggregated(d, model), []
    chips = d.tp * d.pp * d.attention_dp
    replicas, notes = d.dp or 1, []
    if d.count is not None and d.dp is None and d.count % chips == 0:
        replicas = d.count // chips
        notes = [f"count {d.count} gives {replicas} independent replicas of {chips} (dp {replicas})"]
    if d.count is not None and d.count != chips * replicas:
        raise refused(
            "count",
            f"{d.count} is not tp {d.tp} x pp {d.pp} x attention_dp {d.attention_dp} x dp {replicas}",
            f"remove count, or use {chips * replicas}",
        )
    pool = checked_pool("", PoolSpec(
        workers=replicas, tp=d.tp, pp=d.pp, ep=d.ep, attention_dp=d.attention_dp, moe_tp=d.moe_tp
    ), model)  # fmt: skip
    return {"pool": pool}, notes if replicas > 1 else []


def disaggregated(d: Deployment, model: Model) -> dict[str, Any]:
    if d.prefill_pool is None or d.decode_pool is None:
        missing = "prefill_pool" if d.prefill_pool is None else "decode_pool"
        raise refused(missing, "is required when the other pool is set", "tp=8;workers=1")
    if extra := [
        name for name in ("tp", "pp", "ep", "dp", "attention_dp", "moe_tp") if getattr(d, name) not in (1, None)
    ]:
        raise refused(extra[0], "must be set inside prefill_pool and decode_pool")
    pools = {name: checked_pool(f"{name}.", getattr(d, name), model) for name in ("prefill_pool", "decode_pool")}
    total = sum(p.chips for p in pools.values())
    if d.count is not None and d.count != total:
        raise refused("count", f"{d.count}, but the pools have {total} accelerators", f"remove count, or use {total}")
    return pools


def checked_pool(prefix: str, p: PoolSpec, model: Model) -> Pool:
    """The pool as an engine value. Raises WorkloadError unless heads and experts split evenly."""
    heads = [b.mixer.heads for b in model.blocks if isinstance(b.mixer, SoftmaxAttention)]
    experts = [b.ffn.experts for b in model.blocks if b.ffn is not None and b.ffn.experts > 1]
    if uneven := [h for h in heads if h % p.tp]:
        raise refused(f"{prefix}tp", f"{uneven[0]} attention heads cannot be split {p.tp} ways", divisors(uneven[0]))
    layers = sum(b.count for b in model.blocks)
    if p.pp > layers:
        raise refused(f"{prefix}pp", f"the model has {layers} layers", f"at most {layers}")
    if p.ep > 1 and not experts:
        raise refused(f"{prefix}ep", "the model has no experts", "1")
    if uneven := [e for e in experts if e % p.ep]:
        raise refused(f"{prefix}ep", f"{uneven[0]} experts cannot be split {p.ep} ways", divisors(uneven[0]))
    ranks = p.tp * p.attention_dp
    moe_tp = p.moe_tp or (ranks // p.ep if ranks % p.ep == 0 else 0)
    if moe_tp * p.ep != ranks:
        raise refused(
            f"{prefix}{'moe_tp' if p.moe_tp else 'ep'}",
            f"moe_tp x ep must be tp x attention_dp = {ranks}",
            f"remove moe_tp and set ep to one of {divisors(ranks)}",
        )
    return Pool(
        tp=p.tp, pp=p.pp, ep=p.ep, dp=p.attention_dp, moe_tp=moe_tp, replicas=p.workers, max_batch=p.batch
    )  # fmt: skip


def divisors(number: int) -> str:
    return ", ".join(str(n) for n in range(1, number + 1) if number % n == 0)


def check_support(
    case: Case, model: Model, framework: Framework, quantization: Quantization, resources: Resources
) -> None:
    """Raises WorkloadError where the catalog has no source that this combination works, with the nearest that does."""
    release = f"{framework.name} {framework.version}"
    chip = resources.accelerators[case.accelerator_slug]
    others = [f for f in resources.frameworks if runs_on(f, chip)]

    def instead(works: Callable[[Framework], bool]) -> str:
        names = sorted({f.slug for f in others if works(f)})
        return f"use {' or '.join(names)}" if names else ""

    if why := too_old(framework, model):
        raise refused("framework", why, instead(lambda f: serves(f, model)))
    if missing := mixers_of(model) - set(framework.mixers):
        kind = ", ".join(sorted(missing))
        raise refused("framework", f"{release} has no documented support for this kind of model ({kind})",
                      instead(lambda f: mixers_of(model) <= set(f.mixers)))  # fmt: skip
    wanted = next(q for q in resources.quantizations if q.slug == quantization.slug)
    if isinstance(run := weights_on(framework, chip, wanted, model), str):
        able = instead(lambda f: supports_weights(f, chip, wanted, model))
        serving = [framework] if able else [f for f in others if serves(f, model)]
        reasons = {str(weights_on(f, chip, wanted, model)) for f in serving}
        if len(reasons) > 1:  # no framework has it: the one that would be used has no part in that
            names = ", ".join(sorted({f.name for f in serving}))
            run = f"no framework has documented support for {wanted.name} on {chip.name} ({names})"
        formats = ", ".join(nearest_formats(framework, chip, model, wanted, resources))
        for f in serving if not formats and not able else ():  # this framework has none: another one's
            if near_ones := nearest_formats(f, chip, model, wanted, resources):
                able = f"use {f.slug} with {' or '.join(near_ones)}"
                break
        raise refused("weights", run, "; or ".join(filter(None, (formats, able))))
    if model.adapters is not None and LORA not in framework.features:
        able = instead(lambda f: LORA in f.features)
        raise refused("adapters", f"{release} has no documented LoRA adapters", able or "remove adapters")
    if case.kv_dtype and (reason := cache_unsupported(framework, chip, case.kv_dtype, model)):
        caches = [kv for kv in framework.kv_dtypes if not cache_unsupported(framework, chip, kv, model)]
        able = instead(lambda f: not cache_unsupported(f, chip, case.kv_dtype or "", model))
        raise refused("kv", reason, "; or ".join(filter(None, (", ".join(caches), able))))
    for prefix, pool in (("", case.pool), ("prefill_pool.", case.prefill_pool), ("decode_pool.", case.decode_pool)):
        if pool is None:
            continue
        if pool.pp > 1 and (model.encoder_only or has_decoder_beside(model)):
            raise refused(f"{prefix}pp", "no framework documents pipeline parallelism for encoders", "1")
        if quantization.shard_elements > 1 and (why := broken_shard(model, quantization, pool.tp, pool.moe_tp)):
            raise refused(f"{prefix}tp", why, "a smaller tp, or more ep")
        if fault := start_fault(framework, chip, model, tp=pool.tp, moe_tp=pool.moe_tp, pp=pool.pp):
            raise refused(f"{prefix}{fault.field}", f"{fault.reason}, so {release} does not start",
                          ", ".join(map(str, fault.allowed)))  # fmt: skip
        if feature := missing_parallelism(framework, chip, pool):
            field, name = LAYOUT_FIELDS[feature]
            works = instead(partial(has_parallelism, chip=chip, pool=pool))
            raise refused(f"{prefix}{field}", f"{release} has no documented {name}",
                          f"1, or {works}" if works else "1")  # fmt: skip
    if case.mode == "disagg" and "disaggregation" not in framework.features:
        raise refused("prefill_pool", f"{release} has no documented disaggregated serving",
                      instead(lambda f: "disaggregation" in f.features))  # fmt: skip


LAYOUT_FIELDS = {  # framework feature -> field, name for people
    "tensor_parallel": ("tp", "tensor parallelism"),
    "pipeline_parallel": ("pp", "pipeline parallelism"),
    "expert_parallel": ("ep", "expert parallelism"),
    "attention_dp": ("attention_dp", "attention data parallelism"),
}


def missing_parallelism(framework: Framework, chip: Accelerator, pool: Pool) -> str:
    """The framework feature that the pool's layout lacks. llama.cpp splits layers over the chips of one host."""
    pp = 1 if "layer_split" in framework.features else pool.pp
    return unsupported_layout(framework, chip, tp=pool.tp, pp=pp, ep=pool.ep, dp=pool.dp)


def has_parallelism(framework: Framework, chip: Accelerator, pool: Pool) -> bool:
    return not missing_parallelism(framework, chip, pool)


def nearest_formats(
    framework: Framework, chip: Accelerator, model: Model, wanted: Quantization, resources: Resources
) -> list[str]:  # fmt: skip
    """The formats that the framework runs on the chip for this model, the closest in size first."""
    able = [q for q in resources.quantizations if supports_weights(framework, chip, q, model)]
    return [q.slug for q in sorted(able, key=lambda q: abs(q.bits_per_weight - wanted.bits_per_weight))]


def doubts(case: Case, model: Model, chip: Accelerator, framework: Framework, quantization: Quantization) -> list[str]:
    """Warnings about a deployment that can be estimated but that the catalog does not know to work.

    Raises WorkloadError if its requests exceed the model's context.
    """
    warnings = []
    if quantization.weight_only and quantization.activations_dtype == "bf16" and case.weights_dtype != "bf16":
        warnings.append(f"{chip.name} computes with {case.weights_dtype} weights in 16 bits (weight-only quantization)")
    encoder_decoder = has_decoder_beside(model)
    if encoder_decoder and case.isl > model.source_tokens:
        warnings.append(f"{case.isl:,.0f} tokens exceed the model's maximum source length of {model.source_tokens:,}")
    context_tokens = (model.start_tokens if encoder_decoder else case.isl) + (0 if model.encoder_only else case.osl)
    if context_tokens > model.longest_context_tokens:
        message = f"{context_tokens:,.0f} tokens exceed the model's context length of {model.longest_context_tokens:,}"
        field = "osl" if encoder_decoder or case.osl > case.isl else "isl"
        raise refused(field, message, "fewer tokens, or a model with a longer context")
    if context_tokens > model.max_context_tokens:
        warnings.append(yarn_warning(model))
    return warnings


def with_config(known: Resources, name: str, config: Mapping[str, Any]) -> Resources:
    """The resources with one model, from the contents of its config.json. Raises WorkloadError."""
    try:
        model = from_hf_config(config, name)
    except (ValueError, KeyError, TypeError) as e:
        raise refused("model.config", f"cannot be read: {e}", "the contents of a Hugging Face config.json") from None
    return replace(known, models={name: model})
