"""Catalog rows to a snapshot, and a snapshot to engine values: the only place where units are converted."""

import datetime
import math
from collections.abc import Callable, Iterable
from dataclasses import fields, replace
from typing import Any

from django.db.models import Q
from django.utils import timezone

from advisor import bill, hosted, offers, portfolio
from advisor.assumed import CAP, COLD_START, COSTS, EGRESS, IDLE, SOFTWARE, STORAGE, assumptions_of
from advisor.engine import ENGINE_VERSION
from advisor.engine.command_template import template_of
from advisor.engine.demand import week_of
from advisor.engine.drafting import acceptances_of, small_of
from advisor.engine.estimate import Resources
from advisor.engine.hardware import Accelerator as Chip
from advisor.engine.hardware import Link
from advisor.engine.hf_config import from_hf_config
from advisor.engine.mix import mixed
from advisor.engine.model import Model, from_shape
from advisor.engine.money import Assumptions, capped_speed_fraction
from advisor.engine.offload import host_copy_of
from advisor.engine.plan import BATCH, Constraints, FlagLists, LaunchFacts, Lengths, Offer, Quantization, Slo, Workload
from advisor.engine.plan import Framework as Serving
from advisor.engine.portfolio import Member
from advisor.engine.search import Catalog, Scored, posed_in, search
from advisor.engine.starts import start_of
from advisor.extent import not_used, packed, unpacked
from advisor.mixing import mix_json
from advisor.result import answer_json, choice_json
from advisor.sharing import adapters_of, beside, partitions_of
from advisor.traffic import trace_of, users_of
from advisor.workload import CHOICES
from advisor.workload_text import WorkloadError, error
from catalog.models import (
    Accelerator,
    Assumption,
    Calibration,
    CatalogLoad,
    Framework,
    Organisation,
    QuantizationMethod,
    ServedModel,
)

CHIP_SCOPE = "accelerator:"
GIB, GB, TERA, KILO, MILLI, MICRO = 2.0**30, 1e9, 1e12, 1e3, 1e-3, 1e-6
Json = dict[str, Any]

# --- rows to a snapshot -----------------------------------------------------------------------------------------


def snapshot(spec: Json, organisation: Organisation | None = None) -> Json:
    """What the engine will read for this question, or for each workload of a portfolio."""
    if spec["kind"] == portfolio.PORTFOLIO:
        return portfolio.snapshot([_snapshot(part, organisation) for part in spec["workloads"]])
    return _snapshot(spec, organisation)


def _snapshot(spec: Json, organisation: Organisation | None) -> Json:
    """What the engine will read for this question, JSON-able; a re-run from it gives the same answer.

    Prices, discounts and licences are those known on the day that the question names, else today.
    """
    day = asked_on(spec)
    newest = CatalogLoad.objects.order_by("-pk").first()
    named = spec["constraints"]["providers"]["allow"]
    chips = [_accelerator(a) for a in Accelerator.objects.order_by("slug")]
    served = {chip["slug"] for chip in chips if chip["served"]}
    terms = spec["constraints"]["terms"]
    prices = [p for p in offers.prices(named, organisation, day, terms) if p["accelerator"] in served]
    current = [p for p in prices if not offers.is_stale(p, day)]
    site = spec["constraints"]["site"].get("region") or ""
    places = {f"{p['provider']}-{p['region']}" for p in current} | {site}
    model = model_row(spec["model"])
    sold = {p["accelerator"] for p in current} | set(spec["owned"])
    allowed = set(spec["constraints"]["accelerators"]["allow"]) or sold
    taken = {
        "engine_version": ENGINE_VERSION,
        "catalog_version": newest.version if newest else "",
        "asked_on": day.isoformat(),
        "prices_as_of": max((p["as_of"] for p in prices), default=None),
        "model": model,
        "draft_model": draft_row(model["slug"]),
        "accelerators": [chip if chip["slug"] in sold else chip | {"sources": {}, "software": {}} for chip in chips],
        "prices": current,
        "other_terms": [p for p in offers.other_terms(organisation, day, terms) if p["accelerator"] in sold & allowed],
        "hosted": hosted.rows(model["hf_id"], organisation, day),
        "stale": offers.otherwise(day) | offers.stale(prices, day),
        "licences": offers.licences(organisation, day),
        "units": [u for u in offers.units() if u["accelerator"] in sold],
        # host times are among the calibrations
        "frameworks": [{k: v for k, v in row.items() if k != "host_times"} for row in _frameworks()],
        "quantizations": [_quantization(q) for q in QuantizationMethod.objects.order_by("slug")],
        "regions": {slug: figures for slug, figures in offers.regions().items() if slug in places},
        "site": site,
        "assumptions": {a.key: assumption(a) for a in Assumption.objects.order_by("key")},
        "calibrations": calibrations(),
        "calibration_rows": calibration_rows(),
    }
    return packed(taken)


def asked_on(spec: Json) -> datetime.date:
    """The day whose prices count."""
    named = spec.get("prices_as_of")
    return datetime.date.fromisoformat(named) if named else timezone.localdate()


def calibrations() -> Json:
    """The newest calibration of each name, over the host times that the files of frameworks state."""
    stated = {f"framework:{f['slug']}": host_times_of(f) for f in _frameworks() if f.get("host_times")}
    measured = {
        c.name: stated.get(c.name, {}) | c.values | {"basis": c.basis, "source": c.fitted_on}
        for c in newest_calibrations()
    }
    return stated | measured


def calibration_rows() -> Json:
    """Which rows of the catalog the calibrations of chips are: an answer names those that it used."""
    return {
        c.name: {"id": c.pk, "measured_on": c.as_of.isoformat(), "by_machines": bool(c.measured)}
        for c in newest_calibrations()
        if c.name.startswith(CHIP_SCOPE)
    }


def newest_calibrations() -> list[Calibration]:
    """Of each name; none where an undo left nothing."""
    newest = {c.name: c for c in Calibration.objects.order_by("name", "created_at", "pk")}
    return [c for c in newest.values() if c.values]


def host_times_of(row: Json) -> Json:
    """A framework's host times by the names of engine.hardware.Overhead, in seconds."""
    given = row["host_times"]
    return {
        "uncompiled_s_per_layer": given["uncompiled_ms_per_layer"] / 1e3,
        "ngram_s": given["ngram_ms"] / 1e3,
        "ngram_s_per_sequence": given["ngram_ms_per_sequence"] / 1e3,
        "adapter_kernel_s": given["adapter_kernel_us"] / 1e6,
        "further_adapter_s": given["further_adapter_us"] / 1e6,
    }


def model_row(wanted: str | Json) -> Json:
    if isinstance(wanted, str):
        row = ServedModel.objects.get(Q(hf_id=wanted) | Q(slug=wanted))
        return {
            "hf_id": row.hf_id,
            "slug": row.slug,
            "shape": row.shape,
            "native_dtype": row.native_dtype,
            "max_context_tokens": row.max_context_tokens,
            "published_parameters": row.published_parameters,
            "sources": row.sources,
        }
    config = wanted["config"]
    if not isinstance(config, dict):  # the command line has read its file before
        raise WorkloadError([error("model.config", "paths are not read here", "the contents of config.json")])
    return {"hf_id": config.get("_name_or_path") or "own-model", "slug": "own-model", "config": config}


def draft_row(slug: str) -> Json | None:
    """The small model that could draft for this one, where the catalog has it."""
    small = small_of(slug)
    return model_row(small) if small and ServedModel.objects.filter(hf_id=small).exists() else None


def _accelerator(a: Accelerator) -> Json:
    columns = (
        "slug name vendor family kind memory_gib memory_gb_per_s dense_tflops cores sram_mib links pcie_gb_per_s "
        "chips_per_host tdp_watts idle_watts stacks software partitions served not_served_reason sources"
    ).split()
    row = {name: getattr(a, name) for name in columns}
    # answers list the sources of figures; how software counts a chip is none
    return row | {"sources": {part: source for part, source in a.sources.items() if part != "software"}}


def _frameworks() -> list[Json]:
    """Every version of what serves; training and libraries are catalogued beside it."""
    rows = Framework.objects.order_by("slug", "version")
    return [_framework(f) for f in rows if f.settings.get("role", "serving") == "serving"]


def _framework(f: Framework) -> Json:
    counted = {"facts_as_of": f.sources["facts"]["as_of"]} if "first_release" in f.settings else {}
    return {"slug": f.slug, "name": f.name, "version": f.version, "launch": None, **counted, **f.settings}


def _quantization(q: QuantizationMethod) -> Json:
    return {"slug": q.slug, "name": q.name, **q.settings, "sources": q.sources}


def first_source(sources: Json) -> str:
    return next((str(entry.get("source", "")) for entry in sources.values()), "")


def assumption(a: Assumption) -> Json:
    figure: Json = next(iter(a.sources.values()), {})
    return {
        "value": a.value, "unit": a.unit, "source": first_source(a.sources),
        "low": a.low, "high": a.high, "as_of": figure.get("as_of"),
    }  # fmt: skip


# --- a snapshot to engine values --------------------------------------------------------------------------------


def model_of(row: Json) -> Model:
    if "config" in row:
        return from_hf_config(row["config"], row["slug"])
    shape = row["shape"] | {"native_dtype": row["native_dtype"]}
    if row["max_context_tokens"]:
        shape["max_context_tokens"] = row["max_context_tokens"]
    return from_shape(row["slug"], shape)


def chip_of(row: Json) -> Chip:
    """Human units to SI; an absent power or PCIe figure stays NaN: unknown, never guessed."""
    nan = float("nan")
    return Chip(
        slug=row["slug"],
        name=row["name"],
        vendor=row["vendor"],
        family=row["family"].replace(" ", "-"),
        kind=row["kind"],
        memory_bytes=row["memory_gib"] * GIB,
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
            )
            for tier in row["links"]
        ),
        stacks=tuple(row["stacks"]),
        chips_per_host=row["chips_per_host"],
        pcie_bytes_per_s=row["pcie_gb_per_s"] * GB if row["pcie_gb_per_s"] else nan,
        **row.get("software", {}),
        served=row["served"],
        not_served_reason=row["not_served_reason"],
        partitions=partitions_of(row),
    )


def chip(a: Accelerator) -> Chip:
    """One accelerator of the catalog as an engine value."""
    return chip_of(_accelerator(a))


def capped(chip: Chip, cap_fraction: float, taken: Json) -> Chip:
    """The chip under a power cap; without published power, as it is."""
    if cap_fraction >= 1.0 or math.isnan(chip.watts):
        return chip
    idle = chip.idle_watts if not math.isnan(chip.idle_watts) else chip.watts * taken["assumptions"][IDLE]["value"]
    speed = capped_speed_fraction(cap_fraction, idle / chip.watts)
    rates = {dtype: rate * speed for dtype, rate in chip.flops_per_s.items()}
    return replace(chip, watts=max(chip.watts * cap_fraction, idle), flops_per_s=rates)


def _picked(kind: type, row: Json, **converted: object) -> Any:
    """A dataclass from the keys of a row that it has; lists become tuples."""
    names = {f.name for f in fields(kind)}
    plain = {k: tuple(v) if isinstance(v, list) else v for k, v in row.items() if k in names and k not in converted}
    return kind(**plain, **converted)


def framework_of(row: Json) -> Serving:
    return _picked(
        Serving,
        row,
        runtime_bytes=row["runtime_gib"] * GIB,
        launch=launch_facts_of(row.get("launch")),
        flags=_picked(FlagLists, row.get("flags", {})),
    )


def launch_facts_of(row: Json | None) -> LaunchFacts | None:
    """How a framework starts; None for one that is only catalogued."""
    return _picked(LaunchFacts, row, template=template_of(row["template"])) if row else None


def quantization_of(row: Json) -> Quantization:
    return _picked(Quantization, row, source=row.get("source", first_source(row.get("sources", {}))))


def quantizations_of(rows: list[Json]) -> tuple[Quantization, ...]:
    return tuple(quantization_of(r) for r in rows if r.get("applies_to", "weights") == "weights")


def lengths_of(section: Json) -> Lengths:
    return Lengths(mean_tokens=section["mean"], p95_tokens=section["p95"] if "p95" in section else section["mean"])


def workload_of(spec: Json) -> Workload:
    traffic, slo, c = spec["traffic"], spec["slo"], spec["constraints"]

    def seconds(key: str) -> float | None:
        return slo[key] * MILLI if slo.get(key) is not None else None

    choices: dict[str, Any] = {
        f"{key}_{side}": tuple(c[key][side]) for key in CHOICES if key in c for side in ("allow", "deny")
    }
    return Workload(
        name=spec["name"],
        kind=spec["kind"],
        input_tokens=lengths_of(traffic["input_tokens"]),
        output_tokens=lengths_of(traffic["output_tokens"]),
        requests_per_s_mean=traffic["requests_per_s"]["mean"],
        requests_per_s_peak=traffic["requests_per_s"]["peak"],
        prefix_cache_hit_fraction=traffic["prefix_cache_hit_rate"],
        host_cache_hit_fraction=traffic.get("host_cache_hit_rate"),
        users=users_of(traffic),
        trace=None if spec["kind"] == BATCH else trace_of(traffic),
        week=() if spec["kind"] == BATCH else week_of(traffic["load_curve"]),
        growth_fraction_per_year=traffic["growth_fraction_per_year"],
        deadline_s=spec["batch"]["deadline_hours"] * 3600 if spec["kind"] == BATCH else None,
        slo=Slo()
        if spec["kind"] == BATCH
        else Slo(
            ttft_p95_s=seconds("ttft_ms_p95"),
            tpot_p95_s=seconds("tpot_ms_p95"),
            e2e_p95_s=seconds("e2e_ms_p95"),
            tokens_per_s_per_user=slo.get("tokens_per_s_per_user"),
            spare_replicas={"n+1": 1, "n+2": 2}.get(slo.get("availability", "n"), 0),
            doubled=slo.get("availability") == "2n",
        ),
        constraints=Constraints(
            **choices,
            acquisition=tuple(c["acquisition"]),
            quality=c["quality"],
            partitions=c.get("partitions", "auto"),
            max_accelerators=c["max_accelerators"],
            max_usd_per_month=c["max_usd_per_month"],
            inventory_chips={slug: n + spec["owned"].get(slug, 0) for slug, n in spec["inventory"].items()},
            max_rack_watts=c["site"]["kw_per_rack"] * KILO if c["site"]["kw_per_rack"] is not None else None,
            cooling=c["site"]["cooling"],
            max_watts=c["site"]["max_kw"] * KILO if c["site"]["max_kw"] is not None else None,
        ),
        objective=spec["objective"],
        weights=tuple(sorted(spec.get("weights", {}).items())),
        team=tuple(sorted(spec.get("team", {}).items())),
        task=spec.get("task", "any"),
        variants=spec.get("variants", "show"),
        drafts=spec.get("speculative", "yes") == "yes",
        apart=spec.get("disaggregated", "yes") == "yes",
        horizon_months=spec["tco"]["horizon_months"],
        discount_fraction=spec["tco"]["discount_rate"],
    )


def catalog_of(spec: Json, taken: Json) -> Catalog:
    taken = unpacked(taken)
    cap = float(spec["tco"].get(CAP, 1.0))
    chips = {row["slug"]: capped(chip_of(row), cap, taken) for row in taken["accelerators"]}
    assumptions = assumptions_of(spec, taken["assumptions"])
    site = assumptions_of(spec, taken["assumptions"], taken["regions"].get(taken["site"]))
    return Catalog(
        model=replace(model_of(taken["model"]), adapters=adapters_of(spec)),
        accelerators=tuple(chips.values()),
        offers=offers.with_owned(offers.offers_of(taken, assumptions, site, chips), spec["owned"], taken, site, chips),
        other_offers=offers.offers_of(taken | {"prices": taken.get("other_terms", [])}, assumptions, site, chips),
        quantizations=quantizations_of(taken["quantizations"]),
        frameworks=tuple(framework_of(row) for row in taken["frameworks"]),
        scopes=taken["calibrations"],
        assumptions=assumptions,
        site_assumptions=site,
        stale=taken["stale"],
        licences=offers.licences_of(taken["licences"], _software(spec, taken["assumptions"])),
        hosted=hosted.by_maker(taken["hosted"]),
        acceptances=acceptances_of(taken["assumptions"]),
        draft_model=model_of(taken["draft_model"]) if taken.get("draft_model") else None,
        host_copy=host_copy_of(taken["assumptions"]),
        prepared_start=start_of(taken["assumptions"]),
    )


def _software(spec: Json, rows: Json) -> float:
    return float(spec.get("tco", {}).get(SOFTWARE, rows[SOFTWARE]["value"]))


def resources(models: list[str] | None = None) -> Resources:
    """The whole catalog as engine values, for single deployments and for scoring."""
    rows = ServedModel.objects.all() if models is None else ServedModel.objects.filter(hf_id__in=models)
    return Resources(
        models={r.hf_id: model_of(model_row(r.hf_id)) for r in rows},
        accelerators={a.slug: chip_of(_accelerator(a)) for a in Accelerator.objects.all()},
        quantizations=quantizations_of([_quantization(q) for q in QuantizationMethod.objects.order_by("slug")]),
        frameworks=tuple(framework_of(row) for row in _frameworks()),
        scopes=calibrations(),
    )


def model_id(wanted: str) -> str:
    """The id of a model named by its id or its slug; an unknown name stays as it is."""
    found = ServedModel.objects.filter(Q(hf_id=wanted) | Q(slug=wanted)).values_list("hf_id", flat=True).first()
    return found or wanted


def model_ids() -> list[str]:
    return list(ServedModel.objects.order_by("hf_id").values_list("hf_id", flat=True))


def market(chip: Chip) -> tuple[tuple[Offer, ...], Assumptions]:
    """Today's offers of one chip, and what turns a purchase and a watt into dollars."""
    day = timezone.localdate()
    found = [p for p in offers.prices([], None, day) if p["accelerator"] == chip.slug and not offers.is_stale(p, day)]
    assumptions = assumptions_of({}, {a.key: assumption(a) for a in Assumption.objects.order_by("key")})
    taken = {"prices": found, "regions": offers.regions(), "units": offers.units(), "site": ""}
    return offers.offers_of(taken, assumptions, assumptions, {chip.slug: chip}), assumptions


# --- the whole road ---------------------------------------------------------------------------------------------


def recommend(spec: Json, taken: Json, progress: Callable[[str, float], None] | None = None) -> Json:
    """Runs the engine on a snapshot; the JSON of `advise`."""
    if spec["kind"] == portfolio.PORTFOLIO:
        return _portfolio(spec, taken, progress)
    return _answered(spec, taken, progress)


def _portfolio(spec: Json, taken: Json, progress: Callable[[str, float], None] | None) -> Json:
    """Each workload alone, then all on one fleet."""
    tell, count = progress or (lambda stage, fraction: None), len(spec["workloads"])
    answers, members = [], []

    def inside(i: int, name: str) -> Callable[[str, float], None]:
        return lambda stage, done: tell(f"{name}: {stage}", (i + done) / (count + 1))

    for i, (part, its) in enumerate(zip(spec["workloads"], taken["parts"], strict=True)):
        answer, member = _member(part, its, inside(i, part["name"]))
        answers.append(answer)
        members.append(member)
    tell("sharing one fleet", count / (count + 1))
    used = {c["id"]: c for answer in answers for c in answer["calibrations"]}
    told = {"calibrations": list(used.values()), "calibration_ids": sorted(used)}
    return portfolio.result(spec, taken, answers, members) | told


def _answered(spec: Json, taken: Json, progress: Callable[[str, float], None] | None) -> Json:
    """The JSON of `advise` for one workload."""
    taken, workload, catalog = _posed(spec, taken)
    found = search(workload, catalog, progress)
    answer = answer_json(spec, taken, workload, catalog, found) | calibrations_used(taken, found.shown)
    answer |= beside(workload, catalog, found, answer["recommendations"])
    if workload.kind == "serving":
        answer["mix"] = mix_json(workload, mixed(workload, catalog, found))
    return _with_hosted(spec, taken, catalog, answer)


def calibrations_used(taken: Json, ranked: Iterable[Scored]) -> Json:
    """Which calibrations of chips the answer rests on: of those ranked, and of any that machines here measured, since
    a wrong one may also keep its chip out of the ranking."""
    slugs = {s.lane.choice.accelerator.slug for s in ranked}
    found = [
        {"id": row["id"], "name": name, "measured_on": row["measured_on"]}
        for name, row in taken.get("calibration_rows", {}).items()
        if row["by_machines"] or name.removeprefix(CHIP_SCOPE) in slugs
    ]
    return {"calibrations": found, "calibration_ids": [c["id"] for c in found]}


def _member(spec: Json, taken: Json, progress: Callable[[str, float], None] | None) -> tuple[Json, Member]:
    """One workload of a portfolio: what is told of it, and what it was made from."""
    taken, workload, catalog = _posed(spec, taken)
    found = search(workload, catalog, progress, choice_alone=True)
    answer = choice_json(spec, taken, workload, catalog, found) | calibrations_used(taken, found.ranked)
    member = Member(workload=workload, catalog=catalog, answer=found, week=workload.week)
    return _with_hosted(spec, taken, catalog, answer), member


def _posed(spec: Json, taken: Json) -> tuple[Json, Workload, Catalog]:
    """The snapshot in full, with what the question says of money and growth; the question as the engine computes it."""
    taken = unpacked(taken) | {
        "tco": spec["tco"],
        "growth_fraction_per_year": spec["traffic"]["growth_fraction_per_year"],
    }
    cold_start_s = float(spec["tco"].get(COLD_START, taken["assumptions"].get(COLD_START, {"value": 0.0})["value"]))
    return taken, *posed_in(replace(workload_of(spec), cold_start_s=cold_start_s), catalog_of(spec, taken))


def _with_hosted(spec: Json, taken: Json, catalog: Catalog, answer: Json) -> Json:
    """The answer beside what is sold by the token, and what of the question it did not use."""
    services = {name for name in taken["assumptions"] if name.startswith((EGRESS, STORAGE))}
    bought = hosted.hosted(spec, [] if catalog.model.adapters else taken["hosted"], answer["recommendations"])
    answer["recommendations"] = bill.beside_hosted(answer["recommendations"], bought)
    verdict = hosted.verdict(spec, bought, answer["verdict"], bool(answer["recommendations"]))
    return {**answer, "verdict": verdict, "hosted": bought, "not_used": not_used(spec, COSTS | services)}
