"""The whole catalog ranked by closed formulas.

It uses the candidates, offers, prices and formulas of a full answer, without simulation, plans and documents.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from advisor.answer.choice import apart
from advisor.answer.hosted import hosted, usd_per_hour
from advisor.answer.money import traffic_ratio
from advisor.answer.one_ranking import best_of_provider, tpot_s
from advisor.answer.options.option import GIB, token_costs
from advisor.answer.quick.kept import (
    ANSWERS,
    Prepared,
    key_of,
    one_at_a_time,
    prepared,
    prepared_from,
    prepared_on,
    revision_for,
)
from advisor.engine.cost import HOURS_PER_MONTH
from advisor.engine.search import (
    NEAR_FRACTION,
    Estimated,
    EstimatedRanking,
    KnownLanes,
    describe,
    estimated_ranking,
    hosted_score,
)
from advisor.engine.terms import OWNED, Workload, kind_named
from advisor.inputs import (
    Snapshot,
    asked_on,
    catalog_of,
    number,
    rounded,
)
from advisor.result import (
    ESTIMATED,
    PUBLISHED,
    HostedOffer,
    QuickMemory,
    QuickOption,
    QuickOwned,
    QuickRanking,
    QuickRejection,
)
from advisor.workload import PORTFOLIO, WorkloadError, error
from catalog.models import Organisation

MISSED_SHOWN = 5
Json = dict[str, Any]


def check_kind(spec: Json) -> None:
    """Raises WorkloadError for kinds that have no closed-form ranking."""
    if spec["kind"] == PORTFOLIO or kind_named(spec["kind"]).trains:
        message = "has no quick ranking: it ranks one served model; ask for a full answer"
        raise WorkloadError([error("kind", message, "serving, batch, embedding, rerank or image_generation")])


def missing_from(raw: Mapping[str, Any]) -> list[str]:
    """What a raw question lacks for an estimate: the model, the lengths and the traffic."""
    traffic, kind = raw.get("traffic") or {}, kind_named(raw.get("kind"))
    lengths = [("input_tokens", "mean input tokens"), ("output_tokens", "mean output tokens")]
    found = [] if raw.get("model") else ["model"]
    found += [
        said
        for key, said in lengths[: 2 if kind.generates_tokens else 1]
        if not traffic.get(key) and not traffic.get("trace")
    ]
    if kind.has_deadline:
        return found + ([] if raw.get("batch") else ["requests and deadline of the batch"])
    rated = any(traffic.get(key) for key in ("requests_per_s", "users", "trace", "turns", "audio"))
    return found + ([] if rated else ["requests per second or users"])


# --- the ranking ------------------------------------------------------------------------------------------------


def quick_ranking(spec: Json, snapshot: Snapshot) -> QuickRanking:
    """The closed-form ranking of a validated workload on a snapshot; nothing is kept."""
    check_kind(spec)
    return _ranking(prepared_from(spec, snapshot, catalog_of(spec, snapshot), KnownLanes()))


def quick_row(spec: Json, snapshot: Snapshot, state: object) -> QuickRanking:
    """The same, from what is kept of other questions with the same rows of the market, which `state` names."""
    check_kind(spec)
    return _ranking(prepared_on(spec, snapshot, state))


def quick_answer(spec: Json, organisation: Organisation | None = None) -> QuickRanking:
    """The same against today's catalog, from what is kept of it and of earlier questions."""
    check_kind(spec)
    revision = revision_for(organisation)
    key = (revision, organisation.pk if organisation else None, key_of([spec, asked_on(spec)]))
    with one_at_a_time():
        return ANSWERS.get(key, lambda: _ranking(prepared(spec, organisation, revision)))


def _ranking(p: Prepared) -> QuickRanking:
    found = estimated_ranking(p, p.lanes)
    adapted = p.catalog.model.adapters is not None or not p.workload.kind.generates_tokens
    rows = [] if adapted else p.snapshot.hosted
    apis = hosted(p, rows, [], found.bound_usd_per_month)
    return QuickRanking(
        workload=p.spec,
        mark=ESTIMATED,
        engine_version=p.snapshot.engine_version,
        catalog_version=p.snapshot.catalog_version,
        prices_as_of=p.snapshot.prices_as_of,
        objective=p.workload.objective,
        options=_ranked(p, found, apis),
        missed=[_option(p.workload, e, None) for e in found.missed[:MISSED_SHOWN]],
        owned=_owned(p, found),
        rejected=[*_rejected(p, found), *_rejected_apis(apis)],
        candidates=found.evaluated,
        bound_usd_per_month=None if found.bound_usd_per_month is None else rounded(found.bound_usd_per_month),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class _Place:
    """An option with what its place follows from."""

    option: Estimated | HostedOffer
    behind: bool  # nobody would order it, or nobody shows that it meets the limits
    score: float
    usd_per_hour: float


def _ranked(p: Prepared, found: EstimatedRanking, apis: Sequence[HostedOffer]) -> list[QuickOption]:
    """Deployments, owned machines and hosted APIs in one ranking.

    As in a full answer, what nobody would order and APIs that nobody shows to meet the limits stand behind the rest.
    Owned machines are kept where nothing else saves clearly more.
    """
    held = {_slug(e) for e in found.ranked if _keeps(e)}
    alone = [e for slug, e in found.owned.items() if e is not None and slug not in held]
    places = [
        _Place(option=e, behind=bool(apart(e, p.workload.constraints)), score=e.score, usd_per_hour=e.usd_per_hour)
        for e in (*found.ranked, *alone)
    ]
    places += [
        _Place(
            option=o,
            behind=o.slo_state not in ("no limit", "reached"),
            score=hosted_score(p.workload, found.scale, usd_per_hour(o), tpot_s(o)),
            usd_per_hour=usd_per_hour(o),
        )
        for o in best_of_provider(p.spec, apis)
    ]
    places.sort(key=lambda each: (each.behind, each.score, each.usd_per_hour))
    if p.workload.objective == "cost" and places:
        most = places[0].score * (1.0 + NEAR_FRACTION)
        places.sort(key=lambda each: not (_keeps(each.option) and each.score <= most and not each.behind))
    return [
        _option(p.workload, each.option, rank) if isinstance(each.option, Estimated) else _api(p, each.option, rank)
        for rank, each in enumerate(places, 1)
    ]


def _keeps(option: Estimated | HostedOffer) -> bool:
    """Whether it keeps owned machines in service."""
    return isinstance(option, Estimated) and (option.offer.term == OWNED or option.offer.held_instances > 0)


def _option(workload: Workload, e: Estimated, rank: int | None) -> QuickOption:
    a, generates = e.lane.choice.accelerator, workload.kind.generates_tokens
    over_horizon = traffic_ratio(workload)
    tokens_per_s = {
        "input": e.requests_per_s_mean * workload.given_tokens * over_horizon,
        "output": e.requests_per_s_mean * workload.output_tokens.mean_tokens * over_horizon if generates else 0.0,
    }
    costs = token_costs(e.usd_per_hour, tokens_per_s, e.prefill_fraction)
    counted = (tokens_per_s["output"] or tokens_per_s["input"]) / over_horizon
    kwh = e.watts / 1000.0 * HOURS_PER_MONTH
    return QuickOption(
        rank=rank,
        mark=ESTIMATED,
        label=f"{e.chips:,} x {a.name}, {describe(e.lane)}",
        accelerator=a.slug,
        accelerator_name=a.name,
        vendor=a.vendor,
        accelerator_count=e.chips,
        provider=e.offer.provider,
        instance=e.offer.instance,
        region=e.offer.region,
        acquisition=e.offer.acquisition,
        term=e.offer.term,
        price_as_of=e.offer.as_of,
        price_weakness=e.offer.weakness,
        sold_out_on=e.offer.sold_out_on,
        layout=describe(e.lane),
        replicas=e.replicas,
        concurrency=e.concurrency,
        tokens_per_s_per_accelerator=number(counted / e.chips),
        tokens_per_s_per_user=number(1.0 / e.tpot_p95_s) if generates and e.tpot_p95_s else None,
        ttft_ms_p95=number(e.ttft_p95_s * 1e3),
        tpot_ms_p95=number(e.tpot_p95_s * 1e3) if generates else None,
        usd_per_month=rounded(e.usd_per_hour * HOURS_PER_MONTH),
        usd_per_mtok_blended=number(costs["blended"]),
        watts=number(e.watts),
        kgco2e_per_month=number(kwh * e.offer.kgco2e_per_kwh) if e.offer.kgco2e_per_kwh else None,
        memory=_memory(e),
        meets_slo=e.meets_slo,
        over_limit_fraction=None if e.meets_slo else number(e.excess_fraction - 1.0),
        basis=e.lane.choice.efficiency.basis,
    )


def _memory(e: Estimated) -> QuickMemory:
    m, lane = e.memory, e.lane
    each = int(m.kv_capacity_tokens // lane.context_tokens) if lane.context_tokens else 0
    return QuickMemory(
        weights_gib=rounded(m.weights_bytes / GIB),
        kv_gib=rounded(m.kv_bytes / GIB),
        other_gib=rounded((m.activations_bytes + m.overhead_bytes) / GIB),
        free_gib=rounded(m.free_bytes / GIB),
        requests_that_fit=each * (e.replicas - e.spare_replicas) * lane.choice.lanes,
        context_tokens=rounded(lane.context_tokens),
    )


def _api(p: Prepared, o: HostedOffer, rank: int) -> QuickOption:
    speed = o.published_output_tokens_per_s
    ttfts = [s.ttft_ms for s in o.speeds if s.ttft_ms is not None]
    return QuickOption(
        rank=rank,
        mark=PUBLISHED,
        label=f"{o.provider_name or o.provider} API, {o.name}",
        accelerator=o.accelerator,
        accelerator_name="",
        vendor="",
        accelerator_count=None,
        provider=o.provider,
        instance=o.name,
        region=", ".join(o.locations) or "unknown",
        acquisition="api",
        term="per_token",
        price_as_of=o.as_of,
        layout=o.quantization or "format not published",
        replicas=None,
        concurrency=None,
        tokens_per_s_per_accelerator=None,
        tokens_per_s_per_user=number(speed) if speed else None,
        ttft_ms_p95=number(ttfts[0]) if ttfts else None,
        tpot_ms_p95=number(1e3 / speed) if speed else None,
        usd_per_month=o.usd_per_month,
        usd_per_mtok_blended=o.usd_per_mtok_blended,
        watts=None,
        kgco2e_per_month=None,
        memory=None,
        meets_slo=True if o.slo_state == "no limit" else None,
        basis="published",
    )


def _owned(p: Prepared, found: EstimatedRanking) -> list[QuickOwned]:
    names = {a.slug: a.name for a in p.catalog.accelerators}
    rows = []
    for slug, count in p.spec["owned"].items():
        e = found.owned.get(slug)
        if e is not None:
            detail = f"{e.chips} of {count} serve this question: {describe(e.lane)}"
        else:
            needed = next((each for each in (*found.ranked, *found.missed) if _slug(each) == slug), None)
            detail = (
                f"not enough: the best deployment needs {needed.chips:,} and you own {count:,}"
                if needed is not None and needed.chips > count
                else "alone they miss a latency limit, or the model does not fit; a full answer says by how much"
            )
        usd = rounded(e.usd_per_hour * HOURS_PER_MONTH) if e is not None else None
        rows.append(
            QuickOwned(
                accelerator=slug,
                accelerator_name=names.get(slug, slug),
                accelerator_count=count,
                suffices=e is not None,
                detail=detail,
                usd_per_month=usd,
            )
        )
    return rows


def _slug(e: Estimated) -> str:
    return e.lane.choice.accelerator.slug


def _rejected(p: Prepared, found: EstimatedRanking) -> list[QuickRejection]:
    limits = "no layout is within the limits on cost, accelerators and power"
    over = [QuickRejection(accelerator=slug, reason="over_budget", detail=limits) for slug in found.over_budget]
    late = [
        QuickRejection(
            accelerator=_slug(e),
            reason="misses_slo",
            detail=f"the estimate is {e.excess_fraction - 1:.0%} over a latency limit",
        )
        for e in found.missed
    ]
    known = {r.accelerator for r in (*over, *late)}
    rest = [
        QuickRejection(accelerator=r.accelerator, reason=r.reason, detail=r.detail)
        for r in found.rejections
        if r.accelerator not in known
    ]
    return [*late, *over, *rest]


def _rejected_apis(apis: Sequence[HostedOffer]) -> list[QuickRejection]:
    return [
        QuickRejection(accelerator=o.rejection.accelerator, reason=o.rejection.reason, detail=o.rejection.detail)
        for o in apis
        if o.rejection is not None
    ]
