"""Measured rows that correct the predictions of an answer.

They are the scorecard's, an organization's own load tests, and, where there is neither, imported figures.

The predictions of these rows are physics alone. Which levels help is decided in advisor.fidelity.
"""

import functools
import hashlib
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import yaml
from django.db.models import Case, Q, When

from advisor.engine.calibration import Observed, Pooling, conditioning
from advisor.engine.network import from_shape
from advisor.engine.terms import ANY, LOAD_TEST, MODEL, STACK, Place, kind_named, length_class, release, scope_of
from advisor.inputs.read_once import once
from catalog.models import EvidenceRow, MeasuredFigure, Organisation, ScoredRow, ServedModel
from catalog.revision import revision
from catalog.shipped import FIXTURES

if TYPE_CHECKING:
    from advisor.models import LoadTest

Json = dict[str, Any]
PATH = FIXTURES / "calibration" / "fit" / "conditioning.yaml"
PARAMETERS = FIXTURES / "calibration" / "fit" / "parameters.yaml"
OWN = "own"  # the site of an organization's load tests, and of its questions
TPOT, TTFT, OFFLINE, STATIC, PREFILL = "tpot", "ttft", "offline", "static", "prefill"
IMPORTED = "imported"  # the class of imported figures, whatever release of the framework they are of
FREEDOM = 4.0  # degrees of freedom of the errors of imported figures
FAR_IMPORTED = math.log(4.0)  # an imported figure further off than this has that error
TIMES = {"tpot_ms_mean": 0, "itl_ms_mean": 1, "tpot_ms_p50": 2, "output_tokens_per_s": 3}  # the first of a run counts


# --- rows ---------------------------------------------------------------------------------------------------------


def class_of(row: ScoredRow) -> str:
    """The class of figures that a row belongs to; empty if no correction uses it.

    Rows of unknown clients, offered rates, two pools, or a layout that the source does not state are scored, but do not
    correct anything: what differs there is the situation, not the speed of the steps.
    """
    if row.circumstance == "disputed" or row.bias_fraction is None or row.mode != "agg" or layout_of(row) is None:
        return ""
    throughput = "tokens_per_s" in row.metric
    if row.phase == "serving" and row.client_known and row.client in ("steady", "burst"):
        if row.metric in ("tpot_ms_mean", "itl_ms_mean"):
            return TPOT
        return TTFT if row.metric == "ttft_ms_mean" else ""
    if row.phase == "offline":
        return OFFLINE if throughput else ""
    if row.phase == "static":
        return STATIC if throughput or row.metric.startswith(("tpot", "e2e")) else ""
    if row.phase == "prefill" and row.metric in ("ttft_ms", "ttft_ms_mean", "prefill_tokens_per_s"):
        return PREFILL
    return ""


def layout_of(row: MeasuredFigure) -> tuple[int, int, int, int] | None:
    """(tp, pp, ep, dp) of a row; None if not stated or of several pools."""
    return layout_of_text(row.layout)


def layout_of_text(layout: str) -> tuple[int, int, int, int] | None:
    """(tp, pp, ep, dp) of a layout such as tp4 ep4."""
    if not layout or "|" in layout:
        return None
    sizes = {name: int(number) for name, number in re.findall(r"\b(tp|pp|ep|dp)(\d+)", layout)}
    return sizes.get("tp", 1), sizes.get("pp", 1), sizes.get("ep", 1), sizes.get("dp", 1)


def observed_of(rows: Iterable[ScoredRow], wanted: str, shapes: Mapping[str, str]) -> list[Observed]:
    """The rows of one class. The same measurement, published by two sources, counts once.

    shapes: Hugging Face ID -> name of the shape, which models of the same architecture share.
    """
    found: list[Observed] = []
    seen = set()
    for row in rows:
        if class_of(row) != wanted:
            continue
        layout = layout_of(row)
        assert layout is not None and row.bias_fraction is not None
        model = shapes.get(row.model, row.model)
        place = Place(
            framework=row.framework,
            version=row.framework_version,
            model=model,
            chip=row.accelerator,
            format=row.weights_dtype,
            layout=layout,
            lengths=(length_class(row.isl), length_class(row.osl)),
            site=row.source_key,
        )
        same = (replace(place, site=""), row.isl, row.osl, row.concurrency, row.metric, row.measured)
        if row.measured is not None and same in seen:
            continue
        seen.add(same)
        sign = -1.0 if "tokens_per_s" in row.metric else 1.0
        error = conditioning.limited(-sign * math.log1p(row.bias_fraction))
        found.append(
            Observed(key=row.key, place=place, log_error=error, group=f"{row.accelerator}|{model}|{row.source_key}")
        )
    return found


def imported_of(rows: Iterable[EvidenceRow], shapes: Mapping[str, str]) -> list[Observed]:
    """One observation for each imported run of a closed loop: its time per token, of any release of the framework.

    Throughput counts for one user, whose tokens follow each other. Groups that tests of this project compare with
    correct nothing.
    """
    found: dict[tuple[Any, ...], tuple[int, Observed]] = {}
    for row in rows:
        model, layout = shapes.get(row.model, row.model), layout_of(row)
        one = row.concurrency == 1
        timed = row.metric in TIMES and (one or row.metric != "output_tokens_per_s")
        closed = row.phase == "serving" and row.mode == "agg" and row.client in ("steady", "burst")
        apart = (row.accelerator, row.model, row.source_key) in kept_apart()
        if layout is None or not timed or not closed or apart or not row.measured or not row.predicted:
            continue
        place = Place(
            framework=row.framework, version=ANY, model=model, chip=row.accelerator, format=row.weights_dtype,
            layout=layout, lengths=(length_class(row.isl), length_class(row.osl)), site=row.source_key,
        )  # fmt: skip
        run = (place, row.framework_version, row.isl, row.osl, row.concurrency, row.measured_on)
        sign = -1.0 if row.metric == "output_tokens_per_s" else 1.0
        error = conditioning.limited(sign * math.log(row.measured / row.predicted), FAR_IMPORTED)
        group = f"{row.accelerator}|{model}|{row.source_key}"
        rank = TIMES[row.metric]
        if run not in found or rank < found[run][0]:
            found[run] = rank, Observed(key=row.key, place=place, log_error=error, group=group)
    return [observed for _, observed in found.values()]


@functools.cache
def kept_apart(path: Path = PARAMETERS) -> frozenset[tuple[str, ...]]:
    """(chip, model, source) of public reports that tests compare with."""
    if not path.exists():
        return frozenset()
    return frozenset(map(tuple, yaml.safe_load(path.read_text(encoding="utf-8"))["scopes"]["excluded"]))


@functools.lru_cache(maxsize=1)
def _architectures(revision: str) -> tuple[dict[str, str], dict[str, str]]:
    """(Hugging Face ID -> first ID of its architecture, architecture -> that ID)."""
    first: dict[str, str] = {}
    names = {}
    for row in ServedModel.objects.order_by("hf_id"):
        if row.shape.get("blocks"):
            names[row.hf_id] = first.setdefault(_architecture(row.shape), row.hf_id)
    return names, first


def _architecture(shape: Mapping[str, Any]) -> str:
    return repr(from_shape("", dict(shape)))


def shapes() -> dict[str, str]:
    """Hugging Face ID -> the first ID with the same architecture, for all models of the catalog."""
    return _architectures(revision())[0]


@functools.cache
def poolings(path: Path = PATH) -> dict[str, Pooling]:
    """The fitted poolings by class of figures; empty if there is no file."""
    if not path.exists():
        return {}
    return {
        figure: Pooling(variances=values["variances"], noise=values["noise"], levels=tuple(values["levels"]))
        for figure, values in yaml.safe_load(path.read_text(encoding="utf-8")).items()
    }


# --- an answer ----------------------------------------------------------------------------------------------------


def catalog_name(shape: Mapping[str, Any]) -> str:
    """The Hugging Face ID under which rows of this architecture count; empty: the catalog has no such model."""
    return _architectures(revision())[1].get(_architecture(shape), "") if shape.get("blocks") else ""


def scopes_for(
    model: str, isl: float, osl: float, batch: bool = False, own: Sequence[Observed] = (), chip: str = ""
) -> dict[str, Json]:
    """Calibration scopes with the corrections of all measured stacks of this model, for these token lengths.

    batch: throughput of requests that all wait from the start, else TPOT of users that come and go. own: rows of the
    organization's load tests. chip: only what an estimate on this one uses; empty: all.
    """
    asked = (model, (length_class(isl), length_class(osl)), OFFLINE if batch else TPOT, tuple(own))
    return _scopes_on(*asked, chip) if chip else _scopes_for(*asked)  # those of each chip would be too many to keep


@once()
def _scopes_for(model: str, lengths: tuple[int, int], wanted: str, own: tuple[Observed, ...]) -> dict[str, Json]:
    return _scopes_on(model, lengths, wanted, own, "")


def _scopes_on(
    model: str, lengths: tuple[int, int], wanted: str, own: tuple[Observed, ...], chip: str
) -> dict[str, Json]:
    found: dict[str, Json] = {}
    imported, rows = _evidence(model, IMPORTED, ()), _evidence(model, wanted, own)
    if imported is not None:
        for scope, values in scopes_of(imported, lengths, chip).items():
            found[scope] = values | {"imported": True}
    if rows is not None and rows.effects:
        found |= scopes_of(rows, lengths, chip)
    return found


@once()
def _evidence(model: str, wanted: str, own: tuple[Observed, ...]) -> conditioning.Evidence | None:
    """The rows of one class, and those of the organization's load tests; None: nothing was fitted to this class."""
    pooling = poolings().get(wanted)
    if pooling is None:
        return None
    rows = _imported_of_model(model) if wanted == IMPORTED else _observed_of_model(model, wanted)
    return conditioning.Evidence([*rows, *own], pooling)


@once()
def _observed_of_model(model: str, wanted: str) -> list[Observed]:
    """The rows of one class of a model and of those with its architecture."""
    return observed_of(ScoredRow.objects.filter(model__in=_alike(model)).order_by("pk"), wanted, shapes())


@once()
def _imported_of_model(model: str) -> list[Observed]:
    rows = EvidenceRow.objects.filter(model__in=_alike(model), metric__in=TIMES).order_by("pk").defer("given")
    return imported_of(rows, shapes())


def _alike(model: str) -> list[str]:
    """The models of this one's architecture, itself included."""
    known = shapes()
    return [hf_id for hf_id, shape in known.items() if shape == known.get(model, model)] or [model]


def scopes_of_spec(spec: Json, model: str, organisation: Organisation | None) -> dict[str, Json]:
    """The corrections for a workload; empty if it does not want any, or is of a kind that has none."""
    kind = kind_named(spec["kind"])
    if kind.trains or not kind.generates_tokens or spec.get("use_measurements") == "no":
        return {}
    isl, osl = (_mean(spec["traffic"].get(name)) for name in ("input_tokens", "output_tokens"))
    if not isl or not osl:
        return {}
    own = own_observed(model, organisation) if kind.has_arrivals else []
    return scopes_for(model, isl, osl, not kind.has_arrivals, own)


def _mean(given: Any) -> float | None:
    """Mean tokens of a workload's lengths; None if only a trace file states them."""
    mean = given.get("mean") if isinstance(given, Mapping) else given
    return float(mean) if isinstance(mean, int | float) else None


def own_observed(model: str, organisation: Organisation | None) -> list[Observed]:
    """The organization's load tests against the physics of their option.

    The step factor with which the simulation of the test's own load agrees with it (load_tests.matching). Where there
    is none, TPOT, if the load was the predicted one; a prediction that was corrected itself is divided by its
    correction, so that no measurement counts twice.
    """
    from advisor.models import LoadTest

    known = shapes()
    name, found = known.get(model, model), []
    tests = LoadTest.objects.filter(option__advice__organisation=organisation)
    for test in tests.select_related("option__advice__workload").order_by("pk"):
        asked = test.option.advice.workload.spec.get("model")
        if not isinstance(asked, str) or name != known.get(hf_id(asked), hf_id(asked)):
            continue
        option = test.option.detail
        if option.get("speculative"):  # the steps of a deployment with drafts are not those of one without
            continue
        factor, noise = factor_of(test)
        if factor is None:
            continue
        lengths = test.measured["input_tokens_mean"], test.measured["output_tokens_mean"]
        place = Place(
            framework=option["framework"],
            version=option["framework_version"],
            model=name,
            chip=option["accelerator"],
            format=option["weights_dtype"],
            layout=(option["tp"], option["pp"], option["ep"], option["dp"]),
            lengths=(length_class(lengths[0]), length_class(lengths[1])),
            site=OWN,
        )
        error, key = conditioning.limited(math.log(factor)), f"{LOAD_TEST} {test.pk}"
        found.append(Observed(key=key, place=place, log_error=error, group=f"load_test_{test.pk}", noise=noise))
    return found


def factor_of(test: "LoadTest") -> tuple[float | None, float | None]:
    """(factor of a load test on the steps of physics alone, variance of its logarithm); (None, None): it says none."""
    matched = test.measured.get("matched") or {}
    if "time_factor" in matched:
        return matched["time_factor"], matched["log_sd"] ** 2
    option = test.option.detail
    predicted, seen = (option.get("tpot_ms") or {}).get("mean"), test.measured["tpot_ms"].get("mean")
    if not test.comparable or not predicted or not seen:
        return None, None
    return seen / predicted * (option.get("correction") or {}).get("time_factor", 1.0), None


def own_state(organisation: Organisation | None) -> str:
    """Changes when the organization's load tests do, for what is kept of earlier questions."""
    from advisor.models import LoadTest

    tests = LoadTest.objects.filter(option__advice__organisation=organisation)
    switches = {"matched": Q(measured__has_key="matched"), "compared": Q(comparable=True), "used": Q(calibrates=True)}
    values = {name: Case(When(on, then=True), default=False) for name, on in switches.items()}
    rows = tests.annotate(**{f"is_{name}": value for name, value in values.items()})
    found = rows.order_by("pk").values_list("pk", *(f"is_{name}" for name in values))  # sums of keys would collide
    return hashlib.sha256(repr(list(found)).encode()).hexdigest()[:20]


def hf_id(name: str) -> str:
    """The Hugging Face ID of a model that a workload names by ID or slug."""
    row = ServedModel.objects.filter(Q(hf_id=name) | Q(slug=name)).only("hf_id").first()
    return row.hf_id if row else name


def scopes_of(rows: conditioning.Evidence, lengths: tuple[int, int], chip: str = "") -> dict[str, Json]:
    """The corrections of each stack and layout in these rows, and of other chips where the model level is used.

    chip: leaves out stacks on others; empty: none.
    """
    found: dict[str, Json] = {}
    levels = [level for level, _ in rows.effects]
    for o in rows.observed:
        p = o.place
        for layout in (p.layout, None) if chip in ("", p.chip) else ():
            scope = scope_of(p.chip, p.framework, p.version, p.format, layout)
            if scope not in found:
                found[scope] = _values(rows, _at(p, layout or (0, 0, 0, 0), lengths))
        if MODEL in levels:
            scope = scope_of(ANY, p.framework, ANY, ANY, None)
            if scope not in found:
                elsewhere = Place(
                    framework=p.framework, version=ANY, model=p.model, chip=ANY, format=ANY, layout=(0, 0, 0, 0),
                    lengths=lengths, site=OWN,
                )  # fmt: skip
                found[scope] = _values(rows, elsewhere)
    return {scope: values for scope, values in found.items() if values["rows"]}


def _doubt(rows: conditioning.Evidence, place: Place) -> float:
    """By how much less certain imported figures are that disagree with the prediction more than others do.

    They may be of another situation than they say, so the interval also grows back towards the prediction: the errors
    are taken as Student's t with few degrees of freedom, whose scale grows with the distance of what was seen.
    """
    if place.version != ANY:
        return 1.0
    errors = rows.errors[rows.at(place, STACK)].tolist()
    expected = sum(variance for _, variance in rows.effects) + rows.noise
    distance = median(errors) ** 2 / expected if errors else 0.0
    return math.sqrt(max((FREEDOM + distance) / (FREEDOM + 1.0), 1.0))


def _at(p: Place, layout: tuple[int, int, int, int], lengths: tuple[int, int]) -> Place:
    return Place(
        framework=p.framework, version=release(p.version), model=p.model, chip=p.chip, format=p.format, layout=layout,
        lengths=lengths, site=OWN,
    )  # fmt: skip


def _values(rows: conditioning.Evidence, place: Place) -> Json:
    found = rows.posterior(place)
    return {
        "time_factor": round(math.exp(found.log_mean), 4),
        "log_sd": round(found.log_sd * _doubt(rows, place), 4),
        "rows": found.rows,
        "level": found.level,
        "keys": list(found.keys),
    }
