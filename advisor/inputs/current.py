"""Today's catalog as engine values, for estimates of single deployments and for scoring."""

from dataclasses import replace

from advisor.engine.cost import Assumptions
from advisor.engine.estimate import Resources
from advisor.engine.network import Model, to_shape
from advisor.engine.step import acceptances_of, host_copy_of
from advisor.engine.terms import UNKNOWN_UNIT, Offer, Scopes
from advisor.engine.terms import Accelerator as Chip
from advisor.inputs import measured
from advisor.inputs.check import own_model_error
from advisor.inputs.from_catalog import _accelerator, _frameworks, _quantization, assumption, calibrations, model_row
from advisor.inputs.names import models, one
from advisor.inputs.prices import hosts, offers
from advisor.inputs.prices.assumptions import ARRIVAL_CV, HOST_SPEED, arrival_cv_key, assumptions_of
from advisor.inputs.read_once import once
from advisor.inputs.snapshot import Snapshot
from advisor.inputs.to_engine import chip_of, framework_of, model_of, quantizations_of, with_host_speed
from advisor.workload import Config, WorkloadError, deployment, error
from catalog import clock
from catalog.models import Accelerator, Assumption, Organisation, QuantizationMethod, ServedModel


def catalog_chip(a: Accelerator) -> Chip:
    """One accelerator of the catalog as an engine value."""
    return chip_of(_accelerator(a))


@once(key=lambda models=None, organisation=None: (None if models is None else tuple(models), organisation))
def catalog_resources(models: list[str] | None = None, organisation: Organisation | None = None) -> Resources:
    """The catalog as an organization sees it, as engine values: all models, or those with these Hugging Face IDs."""
    names = catalog_model_ids(organisation) if models is None else models
    found = {name: model for name in names if (model := known_model(name, organisation))}
    return replace(without_models(organisation), models=found)


@once()
def known_model(hf_id: str, organisation: Organisation | None) -> Model | None:
    """One model of the catalog as an engine value; None: there is none of this ID."""
    seen = ServedModel.objects.seen_by(organisation).filter(hf_id=hf_id)
    return model_of(model_row(hf_id, organisation)) if seen.exists() else None


@once()
def without_models(organisation: Organisation | None) -> Resources:
    """Everything else of the catalog."""
    rows = {a.key: assumption(a) for a in Assumption.objects.order_by("key")}
    return Resources(
        models={},
        accelerators={a.slug: chip_of(_accelerator(a)) for a in Accelerator.objects.all()},
        quantizations=quantizations_of([_quantization(q) for q in QuantizationMethod.objects.order_by("slug")]),
        frameworks=tuple(framework_of(row) for row in _frameworks()),
        scopes=with_host_speed(calibrations(organisation), rows, {}),
        acceptances=acceptances_of(rows),
    )


def catalog_model_id(name: str, organisation: Organisation | None = None) -> str:
    """The Hugging Face ID of a model given by ID, slug or short name; an unknown name is returned unchanged."""
    return one(name, models(organisation))


def resources_with(model: str | Config, organisation: Organisation | None = None) -> tuple[str, Resources]:
    """(ID, catalog) with one model, given by name or as its config.json; not corrected. Raises WorkloadError."""
    if isinstance(model, Config):
        if isinstance(model.config, str):
            message = "file paths are not accepted here"
            raise WorkloadError([error("model.config", message, "the contents of config.json")])
        if doubt := own_model_error(model.config, model.confirm_size):
            raise WorkloadError([doubt])
        return "own-model", deployment.with_config(catalog_resources([], organisation), "own-model", model.config)
    model_id = catalog_model_id(model, organisation)
    known = catalog_resources([model_id], organisation)
    if model_id not in known.models:
        deployment.named("model", model_id, dict.fromkeys(catalog_model_ids(organisation)))
    return model_id, known


def with_model(known: Resources, name: str, organisation: Organisation | None = None) -> tuple[str, Resources]:
    """(ID, catalog) with one more model, such as one that drafts; unchanged if there is none of this name."""
    model_id = catalog_model_id(name, organisation)
    model = known_model(model_id, organisation)
    return model_id, replace(known, models={**known.models, model_id: model}) if model else known


def corrections(known: Resources, model_id: str, chip_slug: str, isl: float, osl: float) -> Scopes:
    """The calibration scopes of a model's measured stacks on one chip, for these token lengths."""
    name = model_id
    if name == "own-model":  # measured as the catalog's model of its shape, without the adapters served with it
        name = measured.catalog_name(to_shape(replace(known.models[name], adapters=None)))
    if min(isl, osl) <= 0 or not name:
        return {}
    return measured.scopes_for(name, isl, osl, chip=chip_slug)


@once()
def catalog_model_ids(organisation: Organisation | None = None) -> list[str]:
    return list(ServedModel.objects.seen_by(organisation).order_by("hf_id").values_list("hf_id", flat=True))


@once()
def host_copy_fraction() -> float:
    """Of the link to the host that large copies reach."""
    copies = host_copy_of({a.key: assumption(a) for a in Assumption.objects.filter(key="host-copy-fraction")})
    return copies.rate_fraction if copies else 1.0


@once()
def assumed_burstiness(task: str) -> tuple[float, tuple[float, float] | None]:
    """(coefficient of variation, its range) of arrivals at a rate, if it is not stated."""
    rows = {a.key: a for a in Assumption.objects.filter(key__startswith=ARRIVAL_CV)}
    found = rows[arrival_cv_key({"task": task}, rows)]
    return found.value, None if found.low is None or found.high is None else (found.low, found.high)


@once()
def host_speed_range() -> tuple[float, float] | None:
    """(fastest, slowest) host that estimates allow for, as host times over those assumed; None without a range."""
    row = Assumption.objects.filter(key=HOST_SPEED).first()
    return (row.low / row.value, row.high / row.value) if row and row.low and row.high else None


@once(key=lambda chip: chip.slug)
def market(chip: Chip) -> tuple[tuple[Offer, ...], Assumptions]:
    """Today's offers of one chip in the sizes that are sold, and the cost assumptions behind them."""
    rows, assumptions = everything_sold()
    prices = [p for p in rows.prices if p["accelerator"] == chip.slug]
    snapshot = replace(rows, prices=prices, instances=hosts.instance_types(prices))
    found = offers.offers_of(snapshot, assumptions, assumptions, {chip.slug: chip})
    return tuple(o for o in found if UNKNOWN_UNIT not in o.marks), assumptions


@once()
def everything_sold() -> tuple[Snapshot, Assumptions]:
    """Today's prices of every chip, without expired ones, and the cost assumptions."""
    day = clock.today()
    rows = {a.key: assumption(a) for a in Assumption.objects.order_by("key")}
    snapshot = Snapshot(
        asked_on=day.isoformat(),
        instances={},
        prices=[p for p in offers.prices([], None, day) if not offers.is_stale(p, day)],
        regions=offers.regions(),
        units=offers.units(),
        assumptions=rows,
        fabrics=offers.fabrics(),
        slices=offers.slices(),
    )
    return snapshot, assumptions_of({}, rows)
