"""Converts a snapshot to engine values. Units are converted here and nowhere else."""

import math
from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

from advisor.engine.cost import capped_speed_fraction
from advisor.engine.network import Adapters, DraftRelease, Model, Release, from_shape, from_stored_config
from advisor.engine.search import PRICE_FIELD, Catalog, at_price
from advisor.engine.step import acceptances_of, host_copy_of
from advisor.engine.terms import (
    KINDS,
    Constraints,
    FlagLists,
    LaunchFacts,
    Link,
    Partition,
    Quantization,
    Scopes,
    Slo,
    Workload,
    chip_defaults_of,
    cold_start_of,
    rules_of,
    start_rules_of,
    template_of,
    week_of,
    weight_store_of,
    with_host_factor,
)
from advisor.engine.terms import Accelerator as Chip
from advisor.engine.terms import Framework as Serving
from advisor.inputs.from_catalog import first_source
from advisor.inputs.prices import hosted_apis, offers
from advisor.inputs.prices.assumptions import CAP, HOST_SPEED, IDLE, SOFTWARE, assumptions_of
from advisor.inputs.snapshot import Snapshot
from advisor.inputs.training import lengths_of_task, task_of
from advisor.workload import (
    CHOICES,
    arrival_cv_of,
    confidences_of,
    drawing_of,
    images_of,
    lengths_of,
    prefix_classes_of,
    prompts_of,
    spares_by_default,
    terms_of,
    trace_of,
    unit_of,
    users_of,
)

Json = dict[str, Any]
GRAMMAR_MASK = "grammar-mask-us"
GIB, GB, TERA, KILO, MILLI, MICRO = 2.0**30, 1e9, 1e12, 1e3, 1e-3, 1e-6


def model_of(row: Json) -> Model:
    """The model of a snapshot row, from its config.json or its shape. Raises ValueError if it is not usable."""
    if "config" in row:
        return from_stored_config(row["config"], row["slug"])
    shape = row["shape"] | {"native_dtype": row["native_dtype"]}
    if row["max_context_tokens"]:
        shape["max_context_tokens"] = row["max_context_tokens"]
    return with_checkpoints(from_shape(row["slug"], shape), row["checkpoints"])


def with_checkpoints(model: Model, checkpoints: Json) -> Model:
    """The model with its published checkpoint, conversions, drafts and the oldest engines that load it."""
    published, drafts = checkpoints.get("published"), dict(checkpoints.get("drafts", {}))
    layers = drafts.pop("mtp_layers", 0)
    return replace(
        model,
        published=release_of(published) if published else None,
        conversions=tuple(release_of(each) for each in checkpoints.get("conversions", [])),
        draft_releases=tuple(DraftRelease(method=method, hf_id=hf_id) for method, hf_id in drafts.items()),
        mtp_layers=layers,
        engines=tuple(sorted(checkpoints.get("engines", {}).items())),
    )


def release_of(row: Json) -> Release:
    others = tuple((str(dtype), float(fraction)) for dtype, fraction in row.get("others", ()))
    return Release(
        hf_id=row.get("hf_id", ""), format=row["format"], experts_only=row.get("experts_only"), others=others
    )


def chip_of(row: Json) -> Chip:
    """One accelerator in SI units. Unknown power and PCIe bandwidth are NaN.

    Of memory that a GPU shares with the host, what the operating system gives it counts.
    """
    nan, software = float("nan"), dict(row["software"])
    given_fraction = software.pop("gpu_memory_fraction", 1.0)
    return Chip(
        slug=row["slug"],
        name=row["name"],
        vendor=row["vendor"],
        family=row["family"].replace(" ", "-"),
        kind=row["kind"],
        memory_bytes=(row.get("usual_memory_gib") or row["memory_gib"]) * GIB * given_fraction,
        memory_bytes_per_s=row["memory_gb_per_s"] * GB,
        flops_per_s={dtype: tflops * TERA for dtype, tflops in row["dense_tflops"].items()},
        cores=row["cores"] or 1,
        sram_bytes=(row["sram_mib"] or 0) * 2.0**20,
        watts=row["tdp_watts"] if row["tdp_watts"] is not None else nan,
        idle_watts=row["idle_watts"] if row["idle_watts"] is not None else nan,
        links=tuple(
            Link(
                name=tier["name"],
                bytes_per_s=tier["gb_per_s"] * GB,
                latency_s=tier.get("latency_us", 0) * MICRO,
                chips=tier["chips"],
                topology=tier.get("topology", "switch"),
                shapes=() if near else tuple(tuple(map(int, s.split("x"))) for s in row.get("slices", ())),
                wraps_from=tier.get("wraps_from", 0),
            )
            for near, tier in enumerate(row["links"])
        ),
        stacks=tuple(row["stacks"]),
        chips_per_host=row["chips_per_host"],
        pcie_bytes_per_s=row["pcie_gb_per_s"] * GB if row["pcie_gb_per_s"] else nan,
        chassis=row["chassis"],
        **software,
        served=row["served"],
        not_served_reason=row["not_served_reason"],
        release_year=row["release_year"] or 0,
        market=row.get("market", {}).get("segment", ""),
        market_terms=row.get("market", {}).get("terms", ""),
        partitions=partitions_of(row),
    )


def capped(chip: Chip, cap_fraction: float, snapshot: Snapshot) -> Chip:
    """The chip under a power cap; unchanged if its power is not published."""
    if cap_fraction >= 1.0 or math.isnan(chip.watts):
        return chip
    idle = chip.idle_watts if not math.isnan(chip.idle_watts) else chip.watts * snapshot.assumptions[IDLE]["value"]
    speed = capped_speed_fraction(cap_fraction, idle / chip.watts)
    rates = {dtype: rate * speed for dtype, rate in chip.flops_per_s.items()}
    return replace(chip, watts=max(chip.watts * cap_fraction, idle), flops_per_s=rates)


def _from_row(kind: type, row: Json, **converted: object) -> Any:
    """A dataclass from the row's keys that are its fields; lists become tuples."""
    names = {f.name for f in fields(kind)}
    values = {k: tuple(v) if isinstance(v, list) else v for k, v in row.items() if k in names and k not in converted}
    return kind(**values, **converted)


def framework_of(row: Json) -> Serving:
    return _from_row(
        Serving,
        row,
        weights=rules_of(row, "weights"),
        caches=rules_of(row, "caches"),
        start_checks=start_rules_of(row),
        chip_defaults=chip_defaults_of(row),
        runtime_bytes=row["runtime_gib"] * GIB,
        launch=launch_facts_of(row["launch"]),
        flags=_from_row(FlagLists, row.get("flags", {})),
    )


def launch_facts_of(row: Json | None) -> LaunchFacts | None:
    """How a framework is launched; None if it is only listed in the catalog."""
    return _from_row(LaunchFacts, row, template=template_of(row["template"])) if row else None


def quantization_of(row: Json) -> Quantization:
    return _from_row(Quantization, row, source=row.get("source", first_source(row.get("sources", {}))))


def quantizations_of(rows: Sequence[Json]) -> tuple[Quantization, ...]:
    return tuple(quantization_of(r) for r in rows if r.get("applies_to", "weights") == "weights")


def workload_of(spec: Json, assumed_cv: float = 1.0, assumed_range: tuple[float, float] | None = None) -> Workload:
    """The engine's workload, in SI units, from a validated workload file.

    assumed_cv, assumed_range: of the gaps between arrivals, if neither the file nor its trace says how bursty they are.
    """
    traffic, kind = spec["traffic"], KINDS[spec["kind"]]
    if kind.trains:
        return training_workload(spec)
    slo = {key: value for key, value in spec["slo"].items() if kind.uses(f"slo.{key}")}

    def seconds(key: str) -> float | None:
        return slo[key] * MILLI if slo.get(key) is not None else None

    prompts, hit_fraction, turns = prompts_of(traffic)
    expected, sure = confidences_of(slo)
    trace = trace_of(traffic) if kind.uses("traffic.trace") else None
    arrival_cv = arrival_cv_of(traffic, trace)
    return Workload(
        name=spec["name"],
        kind=kind,
        input_tokens=prompts,
        output_tokens=lengths_of(traffic["output_tokens"]),
        requests_per_s_mean=traffic["requests_per_s"]["mean"],
        requests_per_s_peak=traffic["requests_per_s"]["peak"],
        prefix_cache_hit_fraction=hit_fraction,
        prefix_classes=prefix_classes_of(traffic),
        arrival_cv=assumed_cv if arrival_cv is None else arrival_cv,
        arrival_cv_range=assumed_range if arrival_cv is None else None,
        turns=turns,
        images=images_of(traffic),
        drawing=drawing_of(traffic),
        audio=bool(traffic.get("audio")),
        documents=float(traffic.get("documents_per_request") or 1),
        unit=unit_of(traffic),
        structured_output=spec.get("structured_output", "no") == "yes",
        host_cache_hit_fraction=traffic.get("host_cache_hit_rate"),
        users=users_of(traffic),
        trace=trace,
        week=week_of(traffic["load_curve"]) if kind.uses("traffic.load_curve") else (),
        growth_fraction_per_year=traffic["growth_fraction_per_year"],
        forecast=forecast_of(spec),
        deadline_s=spec["batch"]["deadline_hours"] * 3600 if kind.has_deadline else None,
        slo=Slo(
            ttft_p95_s=seconds("ttft_ms_p95"),
            tpot_p95_s=seconds("tpot_ms_p95"),
            e2e_p95_s=seconds("e2e_ms_p95"),
            tokens_per_s_per_user=slo.get("tokens_per_s_per_user"),
            spare_hosts={"n+1": 1, "n+2": 2}.get(slo.get("availability") or "n", 0),
            doubled=slo.get("availability") == "2n",
            default_spares=kind.uses("slo.availability") and spares_by_default(spec),
            confidence=expected,
            sure_confidence=sure,
            headroom_fraction=slo.get("headroom_fraction") or 0.0,
        ),
        constraints=constraints_of(spec),
        objective=spec["objective"],
        weights=tuple(sorted(spec.get("weights", {}).items())),
        team=tuple(sorted(spec.get("team", {}).items())),
        task=spec.get("task", "any"),
        variants=spec.get("variants", "show"),
        drafts=spec.get("speculative", "yes") == "yes",
        apart=spec.get("disaggregated", "yes") == "yes" and not constraints_of(spec).fixes_servers,
        horizon_months=spec["tco"]["horizon_months"],
        discount_fraction=spec["tco"]["discount_rate"],
    )


def constraints_of(spec: Json) -> Constraints:
    c = spec["constraints"]
    choices: dict[str, Any] = {
        f"{key}_{side}": tuple(c[key][side]) for key in CHOICES if key in c for side in ("allow", "deny")
    }
    return Constraints(
        **choices,
        exclude=tuple(c.get("exclude", ())),
        acquisition=tuple(c["acquisition"]),
        terms=terms_of(spec),
        quality=c["quality"],
        partitions=c.get("partitions", "auto"),
        layout=layout_of(c.get("layout") or {}),
        max_batched_tokens=c.get("max_batched_tokens"),
        max_running_requests=c.get("max_running_requests"),
        max_accelerators=c["max_accelerators"],
        max_usd_per_month=c["max_usd_per_month"],
        max_capex_usd=c.get("max_capex_usd"),
        inventory_chips={slug: n + spec["owned"].get(slug, 0) for slug, n in spec["inventory"].items()},
        max_rack_watts=c["site"]["kw_per_rack"] * KILO if c["site"]["kw_per_rack"] is not None else None,
        cooling=c["site"]["cooling"],
        max_watts=c["site"]["max_kw"] * KILO if c["site"]["max_kw"] is not None else None,
    )


def layout_of(given: Json) -> tuple[int, int, int, int]:
    tp, pp, ep, dp = (given.get(name) or 0 for name in ("tp", "pp", "ep", "dp"))
    return tp, pp, ep, dp


def training_workload(spec: Json, tokens: float | None = None) -> Workload:
    """The engine's workload of a kind that trains; tokens: of a budget, once they are known."""
    task = task_of(spec, tokens)
    return Workload(
        name=spec["name"],
        kind=KINDS[spec["kind"]],
        input_tokens=lengths_of_task(task),
        output_tokens=lengths_of_task(task),
        requests_per_s_mean=0.0,
        requests_per_s_peak=0.0,
        prefix_cache_hit_fraction=0.0,
        slo=Slo(),
        constraints=constraints_of(spec),
        objective=spec["objective"],
        weights=tuple(sorted(spec.get("weights", {}).items())),
        team=tuple(sorted(spec.get("team", {}).items())),
        horizon_months=spec["tco"]["horizon_months"],
        discount_fraction=spec["tco"]["discount_rate"],
        training=task,
    )


def forecast_of(spec: Json) -> tuple[float, ...]:
    """Traffic of each month of the horizon over today's, from growth, ramp, seasons and the end; empty: constant.

    Month m (from 0) has the traffic of its first day: (1 + growth) ** (m / 12) times the ramp and the season.
    """
    traffic, months = spec["traffic"], spec["tco"]["horizon_months"]
    growth, ramp = traffic["growth_fraction_per_year"], traffic.get("ramp_months") or 0
    season, end = traffic.get("seasonality") or [], traffic.get("ends_after_months")
    if not growth and not ramp and not season and not (end and end < months):
        return ()
    ratios = [
        (1.0 + growth) ** (m / 12.0)
        * (min((m + 1) / (ramp + 1), 1.0) if ramp else 1.0)
        * (season[m % len(season)] if season else 1.0)
        * (0.0 if end and m >= end else 1.0)
        for m in range(months)
    ]
    return tuple(ratios)


def catalog_of(spec: Json, snapshot: Snapshot) -> Catalog:
    """What the search reads: the snapshot as engine values, with the workload's assumptions and owned hosts."""
    cap = float(spec["tco"].get(CAP, 1.0))
    chips = {row["slug"]: capped(chip_of(row), cap, snapshot) for row in snapshot.accelerators}
    assumptions = assumptions_of(spec, snapshot.assumptions)
    site = assumptions_of(spec, snapshot.assumptions, snapshot.regions.get(snapshot.site))
    assumed = offers.assumed(snapshot, assumptions, chips)
    own_prices = spec.get(PRICE_FIELD, {})
    return Catalog(
        **model_parts(spec, snapshot),
        accelerators=tuple(chips.values()),
        offers=offers.with_owned(
            (
                *offers.offers_of(snapshot, assumptions, site, chips),
                *(at_price(o, own_prices[o.accelerator]) for o in assumed if o.accelerator in own_prices),
            ),
            spec["owned"],
            snapshot,
            site,
            chips,
        ),
        assumed_offers=assumed,
        other_offers=offers.offers_of(replace(snapshot, prices=snapshot.other_terms), assumptions, site, chips),
        serverless_offers=offers.offers_of(replace(snapshot, prices=snapshot.serverless), assumptions, site, chips),
        quantizations=quantizations_of(snapshot.quantizations),
        frameworks=tuple(framework_of(row) for row in snapshot.frameworks),
        assumptions=assumptions,
        site_assumptions=site,
        stale=snapshot.stale,
        licences=offers.licences_of(snapshot.licences, _software(spec, snapshot.assumptions), site.vat_fraction),
        acceptances=acceptances_of(snapshot.assumptions),
        host_copy=host_copy_of(snapshot.assumptions),
        grammar_mask_s=snapshot.assumptions[GRAMMAR_MASK]["value"] * MICRO,
        weight_store=weight_store_of(snapshot.assumptions),
        prepared_start=cold_start_of(snapshot.assumptions),
    )


def with_host_speed(calibrations: Scopes, rows: Json, tco: Json) -> Scopes:
    """The calibrations with the assumed speed of hosts: a probe's beats the default, and `tco:` beats both."""
    if HOST_SPEED in tco:
        return with_host_factor(calibrations, float(tco[HOST_SPEED]), everywhere=True)
    return with_host_factor(calibrations, float(rows[HOST_SPEED]["value"]))


def host_ratios(tco: Json, snapshot: Snapshot, chip: str) -> tuple[float, float] | None:
    """(fastest, slowest) host time of a chip's machines over the assumed one.

    None where the workload gives it or a probe measured it, and without a range.
    """
    row = snapshot.assumptions[HOST_SPEED]
    is_known = HOST_SPEED in tco or "host_factor" in snapshot.calibrations.get(f"accelerator:{chip}", {})
    if is_known or not row.get("low") or not row.get("high"):
        return None
    return float(row["low"]) / float(row["value"]), float(row["high"]) / float(row["value"])


def model_parts(spec: Json, snapshot: Snapshot) -> dict[str, Any]:
    """The fields of a Catalog that depend on the model."""
    vendors = {chip["slug"]: chip["vendor"] for chip in snapshot.accelerators}
    return {
        "model": replace(model_of(snapshot.model), adapters=adapters_of(spec)),
        "draft_model": model_of(snapshot.draft_model) if snapshot.draft_model else None,
        "reward_model": model_of(snapshot.reward_model) if snapshot.reward_model else None,
        "hosted": hosted_apis.chip_vendor_prices(snapshot.hosted, vendors),
        "scopes": with_host_speed(  # with the corrections by measured rows of this model
            snapshot.calibrations | snapshot.conditioned,
            snapshot.assumptions,
            spec["tco"],
        ),
    }


def _software(spec: Json, rows: Json) -> float:
    return float(spec.get("tco", {}).get(SOFTWARE, rows[SOFTWARE]["value"]))


MIG = "MIG"  # a partitioning that may mix profiles on one card


def partitions_of(row: Json) -> tuple[Partition, ...]:
    """Partition profiles with at least two instances; bandwidth follows the L2 slices if they are fewer."""
    partitions = row.get("partitions") or {}
    return tuple(
        Partition(
            way=partitions["way"],
            profile=p["name"],
            instances=p["instances"],
            memory_bytes=p["gib"] * GIB,
            bandwidth_fraction=min(p["memory_slices"], p["l2_slices"]) / partitions["memory_slices"],
            compute_fraction=p["cores"] / row["cores"],
            cores=p["cores"],
            sram_fraction=p["l2_slices"] / partitions["memory_slices"],
            compute_slices_fraction=p["compute_slices"] / partitions["compute_slices"]
            if partitions["way"] == MIG
            else 0.0,
            memory_slices_fraction=p["memory_slices"] / partitions["memory_slices"]
            if partitions["way"] == MIG
            else 0.0,
        )
        for p in partitions.get("profiles", [])
        if p["instances"] > 1
    )


def adapters_of(spec: Json) -> Adapters | None:
    """The LoRA adapters of a workload; None if it has none."""
    a = spec.get("adapters")
    if not a or not a["count"]:
        return None
    return Adapters(
        count=a["count"],
        rank=a["rank"],
        active=a["active"] or a["count"],
        attention_only=a["targets"] == "attention",
    )
