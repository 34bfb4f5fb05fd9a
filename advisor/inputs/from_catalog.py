"""Reads the catalog rows that an answer needs into a snapshot."""

import datetime
from copy import copy
from typing import Any

from django.db.models import Q

from advisor.engine import ENGINE_VERSION
from advisor.engine.network import from_stored_config, to_shape
from advisor.engine.terms import MEASURED, RELEASED, release_key
from advisor.inputs import measured
from advisor.inputs.prices import hosted_apis, hosts, offers
from advisor.inputs.snapshot import Snapshot
from advisor.stored import SNAPSHOT_VERSION
from advisor.workload import PORTFOLIO, WorkloadError, error, terms_of
from catalog import clock
from catalog.models import (
    Accelerator,
    Assumption,
    Calibration,
    CatalogLoad,
    ExchangeRate,
    Framework,
    Organisation,
    QuantizationMethod,
    ScoredRow,
    ServedModel,
)

CHIP_SCOPE = "accelerator:"
Json = dict[str, Any]

# --- rows to a snapshot -----------------------------------------------------------------------------------------


def take_snapshot(spec: Json, organisation: Organisation | None = None) -> Snapshot:
    """The catalog rows that an answer uses.

    Prices, discounts and licenses are those known on the workload's `prices_as_of`, by default today.
    """
    if spec["kind"] == PORTFOLIO:
        return Snapshot.of_parts([take_snapshot(part, organisation) for part in spec["workloads"]])
    taken = Snapshot(**market_rows(spec, organisation), **model_rows(spec, organisation))
    return offers.at_price_ratios(taken, spec.get("price_ratios", {}))


def market_question(spec: Json) -> Json:
    """What `market_rows` reads of a workload: workloads with an equal one have the same market."""
    asked = spec["constraints"]
    constraints = {name: asked[name]["allow"] for name in ("providers", "accelerators")}
    return {
        "kind": spec["kind"],
        "constraints": {name: {"allow": allowed} for name, allowed in constraints.items()}
        | {"exclude": asked["exclude"], "terms": asked.get("terms"), "site": {"region": asked["site"].get("region")}}
        | {"regions": {"asked": any(asked["regions"].values())}},
        "owned": spec["owned"],
        "tco": {"currency": spec["tco"].get("currency", "USD")},
        "prices_as_of": spec.get("prices_as_of"),
    }


def model_question(spec: Json) -> Json:
    """What `model_rows` reads of a workload."""
    lengths = {name: (spec.get("traffic") or {}).get(name) for name in ("input_tokens", "output_tokens")}
    return {
        "kind": spec["kind"],
        "model": spec["model"],
        "finetuning": {"reward_model": reward_model_of(spec)},
        "traffic": lengths,
        "use_measurements": spec.get("use_measurements"),
        "prices_as_of": spec.get("prices_as_of"),
    }


def shared_rows(question: Json, organisation: Organisation | None) -> Json:
    """The rows that a market question or a model question asks for, to be stored and read by `joined`."""
    if "model" in question:
        return model_rows(question, organisation)
    return market_rows(question, organisation) | {"version": SNAPSHOT_VERSION}


def joined(market: Json, model: Json, price_ratios: Json) -> Snapshot:
    """The snapshot of the stored rows of a market and of a model."""
    return offers.at_price_ratios(Snapshot.read({**market, **model}), price_ratios)


def model_rows(spec: Json, organisation: Organisation | None) -> Json:
    """The part of a snapshot that depends on the model: its shape, its draft model and its hosted APIs."""
    model = model_row(spec["model"], organisation)
    hosted = hosted_apis.rows(model["hf_id"], organisation, asked_on(spec))
    reward = reward_model_of(spec)
    return {
        "model": model,
        "draft_model": draft_row(model, organisation),
        "reward_model": model_row(reward, organisation) if reward else None,
        "hosted": hosted,
        "conditioned": measured.scopes_of_spec(spec, measured_name(model), organisation),
    }


def measured_name(model: Json) -> str:
    """The Hugging Face ID under which measured rows of a model's architecture count; empty if there is none."""
    if "config" not in model:
        return str(model["hf_id"])
    return measured.catalog_name(to_shape(from_stored_config(model["config"], "own-model")))


def market_rows(spec: Json, organisation: Organisation | None) -> Json:
    """The part of a snapshot that does not depend on the model: hardware, software, prices, assumptions."""
    day = asked_on(spec)
    newest = CatalogLoad.objects.order_by("-pk").first()
    providers = spec["constraints"]["providers"]["allow"]
    chips = [_accelerator(a) for a in Accelerator.objects.order_by("slug")]
    served = {chip["slug"] for chip in chips if chip["served"]}
    terms = terms_of(spec)
    kinds = offers.kinds_for(spec["constraints"]["exclude"])
    prices = [p for p in offers.prices(providers, organisation, day, terms, kinds) if p["accelerator"] in served]
    market = offers.marketplace(day)
    asked_places = any(spec["constraints"]["regions"].values())
    used = offers.used(prices, day, providers, market, by_place=asked_places)
    site = spec["constraints"]["site"].get("region") or ""
    places = {f"{p['provider']}-{p['region']}" for p in used} | {site}
    serverless = [p for p in offers.serverless(organisation, day) if p["accelerator"] in served]
    sold = {p["accelerator"] for p in (*used, *serverless)} | set(spec["owned"])
    allowed = set(spec["constraints"]["accelerators"]["allow"]) or served
    other_terms = [p for p in offers.other_terms(organisation, day, terms) if p["accelerator"] in served & allowed]
    return {
        "engine_version": ENGINE_VERSION,
        "catalog_version": newest.version if newest else "",
        "asked_on": day.isoformat(),
        "prices_as_of": max((p["as_of"] for p in prices), default=day.isoformat()),
        "accelerators": [chip if chip["slug"] in sold else chip | {"sources": {}, "software": {}} for chip in chips],
        "prices": [without_host(p) for p in used],
        "other_terms": [without_host(p) for p in other_terms],
        "serverless": [without_host(p) for p in serverless],
        "marketplace": market,
        "stale": offers.sold_only_otherwise(day),
        "licences": offers.licences(organisation, day),
        "instances": hosts.instance_types([p for p in used if p["accelerator"] in allowed] + other_terms + serverless),
        "units": [u for u in offers.units() if u["accelerator"] in sold],
        "fabrics": [f for f in offers.fabrics() if f["accelerator"] in sold & allowed],
        "slices": [s for s in offers.slices() if s["accelerator"] in sold & allowed],
        # host times are part of `calibrations`
        "frameworks": [{k: v for k, v in row.items() if k != "host_times"} for row in newest_of(_frameworks())],
        "quantizations": [_quantization(q) for q in QuantizationMethod.objects.order_by("slug")],
        "regions": {slug: figures for slug, figures in offers.regions().items() if slug in places},
        "site": site,
        "assumptions": {a.key: assumption(a) for a in Assumption.objects.order_by("key")},
        "calibrations": calibrations(organisation),
        "currency": currency_of(spec, day),
        "calibration_rows": calibration_rows(organisation),
    }


def currency_of(spec: Json, day: datetime.date) -> Json | None:
    """The newest rate on that day of the currency that documents convert to; None: USD."""
    code = spec["tco"].get("currency", "USD")
    rows = ExchangeRate.objects.filter(currency=code, as_of__lte=day).order_by("-as_of")
    rate = None if code == "USD" else rows.first() or ExchangeRate.objects.filter(currency=code).first()
    if rate is None:
        return None
    return {"code": code, "per_usd": float(rate.per_usd), "as_of": rate.as_of.isoformat(), "source": rate.source}


def without_host(price: Json) -> Json:
    """The price without the host's figures, which a snapshot has once for each instance."""
    return {name: value for name, value in price.items() if name not in hosts.IN_PRICES}


def asked_on(spec: Json) -> datetime.date:
    """The day whose prices apply."""
    day = spec.get("prices_as_of")
    return datetime.date.fromisoformat(day) if day else clock.today()


def calibrations(organisation: Organisation | None = None) -> Json:
    """The newest calibration of each name; it overrides the host times in the framework's file.

    What an organization measured itself overrides what all share, for its answers alone.
    """
    rows = newest_of(_frameworks())
    stated = {f"framework:{f['slug']}": host_times_of(f) for f in rows if f.get("host_times")}
    for f in rows:
        if "released" in f:
            stated[RELEASED + f["slug"]] = dict.fromkeys(f["released"], 1.0)
    for name, version in (
        ScoredRow.objects.exclude(phase="training").order_by().values_list("framework", "framework_version").distinct()
    ):
        stated.setdefault(MEASURED + name, {})[version] = 1.0
    measured = {
        c.name: stated.get(c.name, {}) | c.values | {"basis": c.basis, "source": c.fitted_on}
        for c in newest_calibrations(organisation)
    }
    return stated | measured


def calibration_rows(organisation: Organisation | None = None) -> Json:
    """Row IDs and dates of the chips' calibrations, so that an answer can name the ones it used."""
    return {
        c.name: {"id": c.pk, "measured_on": c.as_of.isoformat(), "by_machines": bool(c.measured)}
        for c in newest_calibrations(organisation)
        if c.name.startswith(CHIP_SCOPE)
    }


def newest_calibrations(organisation: Organisation | None = None) -> list[Calibration]:
    """The newest calibration of each name, with an organization's own values over the shared ones.

    A name whose undo left no values is left out. A chip family without values of its own stays: its basis says that its
    chips have rows in the fit.
    """
    newest = {c.name: c for c in Calibration.objects.order_by("name", "created_at", "pk")}
    if organisation is not None:
        own = Calibration.objects.of_everyone().filter(organisation=organisation).order_by("created_at", "pk")
        for row in {c.name: c for c in own}.values():
            newest[row.name] = laid_over(row, newest.get(row.name))
    return [c for c in newest.values() if c.values or not c.undoes_id]


def laid_over(own: Calibration, shared: Calibration | None) -> Calibration:
    """An organization's calibration, which has only what it measured, with the shared values for the rest (unsaved)."""
    if shared is None:
        return own
    if not own.values:
        return shared
    merged = copy(own)
    merged.values = shared.values | own.values
    merged.basis = own.basis if own.basis == "measured" else shared.basis
    return merged


def host_times_of(row: Json) -> Json:
    """A framework's host times in seconds, by the field names of the engine's Overhead."""
    times = row["host_times"]
    return {
        "uncompiled_s_per_layer": times["uncompiled_ms_per_layer"] / 1e3,
        "ngram_s": times["ngram_ms"] / 1e3,
        "ngram_s_per_sequence": times["ngram_ms_per_sequence"] / 1e3,
        "adapter_kernel_s": times["adapter_kernel_us"] / 1e6,
        "further_adapter_s": times["further_adapter_us"] / 1e6,
        "adapter_launch_s": times.get("adapter_launch_us", 0.0) / 1e6,
        "eager_s_per_layer": times["eager_ms_per_layer"] / 1e3,
        "eager_s_per_expert_layer": times["eager_ms_per_expert_layer"] / 1e3,
        "uncertain_ratio": times["uncertain_ratio"],
    }


def model_row(model: str | Json, organisation: Organisation | None = None) -> Json:
    """The catalog row of a model given by ID or slug, or the row of a model given by its config.json.

    Raises ServedModel.DoesNotExist: the organization sees no such model.
    """
    if isinstance(model, str):
        row = ServedModel.objects.first_named(organisation, Q(hf_id=model) | Q(slug=model))
        if row is None:
            raise ServedModel.DoesNotExist(f"no model {model}")
        return {
            "hf_id": row.hf_id,
            "slug": row.slug,
            "shape": row.shape,
            "native_dtype": row.native_dtype,
            "checkpoints": row.checkpoints,
            "max_context_tokens": row.max_context_tokens,
            "published_parameters": row.published_parameters,
            "sources": row.sources,
        }
    config = model["config"]
    if not isinstance(config, dict):  # the command line replaces a path by the file's contents
        raise WorkloadError([error("model.config", "file paths are not accepted here", "the contents of config.json")])
    return {"hf_id": config.get("_name_or_path") or "own-model", "slug": "own-model", "config": config}


def reward_model_of(spec: Json) -> str | None:
    """The model that scores the responses of GRPO; None: rules do, or nothing is generated."""
    name: str | None = (spec.get("finetuning") or {}).get("reward_model")
    return name


def draft_row(model: Json, organisation: Organisation | None) -> Json | None:
    """The draft model for speculative decoding with this model; None if the catalog has none."""
    small = model.get("checkpoints", {}).get("drafts", {}).get("draft")
    known = small and ServedModel.objects.seen_by(organisation).filter(hf_id=small).exists()
    return model_row(small, organisation) if known else None


def _accelerator(a: Accelerator) -> Json:
    columns = (
        "slug name vendor family kind memory_gib memory_gb_per_s dense_tflops cores sram_mib links pcie_gb_per_s "
        "chips_per_host chassis tdp_watts idle_watts stacks software partitions served not_served_reason sources "
        "release_year"
    ).split()
    row = {name: getattr(a, name) for name in columns} | ({"market": a.market} if a.market else {})
    if any(tier.get("topology") == "torus" for tier in a.links):
        row["slices"] = [unit.shape for unit in a.units.all() if unit.kind == offers.SLICE]
    if a.usual_memory_gib:
        row["usual_memory_gib"] = a.usual_memory_gib
    # answers list the sources of figures, and `software` holds no figures
    return row | {"sources": {part: source for part, source in a.sources.items() if part != "software"}}


def _frameworks() -> list[Json]:
    """All versions of the serving frameworks, oldest first, without training frameworks and libraries."""
    rows = sorted(Framework.objects.all(), key=lambda f: (f.slug, release_key(f.version) or (), f.version))
    return [_framework(f) for f in rows if f.settings.get("role", "serving") == "serving"]


def newest_of(rows: list[Json]) -> list[Json]:
    """The last version of each framework, in the order of the rows."""
    return list({row["slug"]: row for row in rows}.values())


def _framework(f: Framework) -> Json:
    facts = {"facts_as_of": f.sources["facts"]["as_of"]} if "first_release" in f.settings else {}
    return {"slug": f.slug, "name": f.name, "version": f.version, "launch": None, **facts, **f.settings}


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
