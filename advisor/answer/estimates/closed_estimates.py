"""Fixed deployments by closed formulas alone: thousands at once, as arrays. A single one is a batch of one."""

import marshal
import math
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from advisor import workload
from advisor.answer.estimates.single_estimate import (
    basis_warning,
    cache_sizes,
    cheapest,
    corrections_of,
    fixed_of,
    formulas,
    has_closed_form,
    load_warnings,
    memory_gib,
    price,
    with_scopes,
)
from advisor.answer.options.option import setup
from advisor.answer.quick.kept import Kept, revision_for
from advisor.engine import ENGINE_VERSION
from advisor.engine.estimate import (
    Calibrations,
    Means,
    at_numbers_of,
    means_on,
    prepare,
    queued_requests,
    unknown_bandwidth,
    vectors_on,
)
from advisor.engine.network import Model
from advisor.engine.search import describe
from advisor.engine.step import Lane, Lanes, has_decoder_beside, join_lanes, lanes
from advisor.engine.terms import Case, Scopes, length_class
from advisor.inputs import number, read_once, rounded
from advisor.result import ClosedEstimate
from advisor.workload import (
    LEAST_RATE_PER_S,
    MAX_CONCURRENCY,
    Deployment,
    Fixed,
    TrainingRun,
    WorkloadError,
    error,
)
from catalog import clock
from catalog.models import Organisation

Json = dict[str, Any]
NUMBERS = ("isl", "osl", "concurrency", "rate")  # of which one validation serves any plain values
MOST_TOKENS, MOST_RATE_PER_S = 1_000_000, 1e6
NAMES, MOST_NAME_CHARACTERS = ("model", "accelerator", "framework"), 120
CONVERTED = frozenset(("workload", "trace"))  # keys from which others follow
KINDS_KEPT, FORMS_KEPT, ESTIMATORS_KEPT = 10_000, 1_000, 2
HOSTS_KEPT, PRICES_KEPT = 50, 10_000  # of an estimator; callers choose the keys
MOST_KEY_BYTES = 4_000  # of a kind that is kept
ESTIMATORS = Kept(ESTIMATORS_KEPT)


@dataclass(frozen=True, kw_only=True, slots=True)
class Numbers:
    """What varies within a kind."""

    isl: int
    osl: int
    concurrency: int | None  # None: max
    rate: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """A valid deployment with its lane. `shared`: the fields that do not depend on the numbers."""

    fixed: Fixed
    case: Case
    lane: Lane
    shared: Json


@dataclass(frozen=True, kw_only=True, slots=True)
class Kind:
    """A valid deployment at any numbers. `corrected`: its lanes by what measurements say at a class of lengths."""

    deployment: Deployment
    fixed: Fixed  # not corrected
    asked: dict[tuple[int, int], Asked]  # by the classes of the lengths
    corrected: list[tuple[Scopes, Asked]]


class Estimator:
    """Estimates on one state of the catalog. What differs in its numbers alone is validated once."""

    def __init__(self, organisation: Organisation | None = None) -> None:
        self.organisation = organisation
        self.kinds: dict[bytes, Kind] = {}
        self.errors: dict[tuple[bytes, Numbers], WorkloadError] = {}
        self.corrections: dict[tuple[Any, ...], tuple[Scopes, Model]] = {}
        self.kept = 0  # classes of lengths, and errors
        self.forms: dict[bytes, Deployment] = {}
        self.calibrations: dict[float | None, Calibrations] = defaultdict(dict)
        self.prices: dict[Any, Json] = {}
        self.read: Json = {}  # of the catalog

    def asked(self, raw: Mapping[str, Any]) -> Asked:
        """Raises WorkloadError, as a single estimate does."""
        numbers = plain(raw)
        key = kind_key(raw, numbers) if numbers else None
        if key is None or numbers is None:
            return self.validated(raw)
        known = self.kinds.get(key)
        if known is not None and allowed(known.fixed, numbers):
            return changed(self.at_lengths(known, numbers), numbers)
        stated = key, numbers  # the error shown can depend on any of the numbers
        if stated in self.errors:
            raise WorkloadError(self.errors[stated].errors)  # the kept one would keep the frames of all its calls
        try:
            kind = self.kind(raw)
            found = self.at_lengths(kind)
        except WorkloadError as failure:
            self.count()
            self.errors[stated] = WorkloadError(failure.errors)
            raise
        if allowed(kind.fixed, numbers):
            self.count()
            self.kinds[key] = kind
        return found

    def parsed(self, raw: Mapping[str, Any]) -> Deployment | TrainingRun:
        """As parse_estimate, which checks no name against the catalog; what differs in plain names and numbers alone
        is checked once.
        """
        numbers = plain(raw)
        names = {key: raw[key] for key in NAMES if key in raw}
        if numbers is None or not all(map(plain_name, names.values())) or not CONVERTED.isdisjoint(raw):
            return workload.parse_estimate(raw)
        rest = {key: value for key, value in raw.items() if key not in NAMES}
        key = key_of(rest, given(raw, numbers), tuple(names))
        if key is None:
            return workload.parse_estimate(raw)
        known = self.forms.get(key)
        if known is None:
            found = workload.parse_estimate(raw)
            if isinstance(found, Deployment):
                if len(self.forms) >= FORMS_KEPT:
                    self.forms.clear()
                self.forms[key] = found
            return found
        users = "max" if numbers.concurrency is None else numbers.concurrency
        stated = {"isl": type(known.isl)(numbers.isl), "osl": numbers.osl, "concurrency": users, "rate": numbers.rate}
        return known.model_copy(update=names | {key: value for key, value in stated.items() if key in raw})

    def count(self) -> None:
        self.kept += 1
        if self.kept >= KINDS_KEPT:
            self.kinds.clear()
            self.errors.clear()
            self.kept = 0

    def validated(self, raw: Mapping[str, Any]) -> Asked:
        return self.at_lengths(self.kind(raw))

    def kind(self, raw: Mapping[str, Any]) -> Kind:
        d = self.parsed(raw)
        if not isinstance(d, Deployment):
            raise WorkloadError([error("method", "training has no estimate by closed formulas", "full, lora, qlora")])
        with read_once(self.read):
            fixed, _ = fixed_of(d, self.organisation, corrected=False)
        if not has_closed_form(fixed):
            message = "has no formula for recorded requests, users who think and separate pools"
            raise WorkloadError([error("method", message, "simulated")])
        return Kind(deployment=d, fixed=fixed, asked={}, corrected=[])

    def at_lengths(self, kind: Kind, numbers: Numbers | None = None) -> Asked:
        """The deployment as it was stated, or one that differs from it in lengths of the class of these numbers."""
        d = kind.deployment
        isl, osl = (numbers.isl, numbers.osl or d.osl) if numbers else (d.isl, d.osl)
        lengths = length_class(isl), length_class(osl)
        found = kind.asked.get(lengths)
        if found is None:
            own = self.corrections_of(kind.fixed, isl, osl) if d.use_measurements else {}
            found = next((each for scopes, each in kind.corrected if scopes == own), None)
            if found is None:
                found = self.laned(with_scopes(kind.fixed, own), d.host_speed_ratio)
                kind.corrected.append((own, found))
            kind.asked[lengths] = found
            self.count()
        return found

    def corrections_of(self, fixed: Fixed, isl: float, osl: float) -> Scopes:
        key = (
            fixed.case.model_id,
            id(fixed.model),
            fixed.accelerator.slug,
            length_class(isl),
            length_class(osl),
            min(isl, osl) > 0,
        )
        found, of = self.corrections.get(key, ({}, None))
        if of is not fixed.model:
            with read_once(self.read):
                found = corrections_of(fixed, float(isl), float(osl))
            if len(self.corrections) >= KINDS_KEPT:
                self.corrections.clear()
            self.corrections[key] = found, fixed.model
        return found

    def laned(self, fixed: Fixed, host_speed_ratio: float | None) -> Asked:
        if len(self.calibrations) >= HOSTS_KEPT and host_speed_ratio not in self.calibrations:
            self.calibrations.clear()
        own = prepare(fixed.case, fixed.resources, self.calibrations[host_speed_ratio])
        if isinstance(own, str):
            raise WorkloadError([error("", own)])
        return Asked(fixed=fixed, case=fixed.case, lane=own[0], shared=shared(fixed, own[0]))

    def results(
        self, entries: Sequence[Mapping[str, Any]], ends_at: float = math.inf
    ) -> Iterator[Json | WorkloadError | None]:
        """Of each entry, in their order; None after `ends_at`, by time.monotonic()."""
        known: list[Asked | WorkloadError | None] = []
        for raw in entries:
            if time.monotonic() > ends_at:
                known.append(None)
                continue
            try:
                known.append(self.asked(raw))
            except WorkloadError as failure:
                known.append(failure)
        computed = self.estimates([each for each in known if isinstance(each, Asked)])
        for each in known:
            yield next(computed) if isinstance(each, Asked) else each

    def estimates(self, asked: Sequence[Asked]) -> Iterator[Json | WorkloadError]:
        """In their order. The arrays of all are computed first."""
        own = with_arrays(asked)
        busy = closed_rows(asked, own)
        for i, each in enumerate(asked):
            built, row = own[i]
            yield self.estimate(each, built, row, busy[i])

    def estimate(self, each: Asked, built: "Group", row: int, m: Means) -> Json | WorkloadError:
        fixed, case, pool = each.fixed, each.case, each.fixed.pools[-1]
        if built.unknown[row]:
            return WorkloadError([error("", unknown_bandwidth(each.lane))])
        fits, at_once = built.fits[row], built.running[row]
        if math.isfinite(m.running_requests):
            at_once = max(math.ceil(m.running_requests * pool.pp * pool.dp), 1)
        memory = memory_gib(fixed.model, built.lanes, row, pool, at_once)
        found = {
            **each.shared,
            "concurrency": at_once,
            "isl": case.source_tokens or case.isl,
            "osl": case.osl,
            "rate": number(case.client.rate_per_s) if case.client.rate_per_s else None,
            "memory": memory,
            "fits": fits,
            **cache_sizes(each.lane, built.lanes, row, pool),
        }
        if not fits:
            return found
        found["closed_form"] = formulas(fixed, m)
        found |= self.price_of(fixed, memory)
        if not fixed.model.encoder_only:
            found |= throughput(case, m, found["usd_per_hour"])
        seats = built.seats[row] * case.chips // each.lane.choice.tp
        if more := load_warnings(case, seats, m.capacity_requests_per_s):
            found["warnings"] = [*found["warnings"], *more]
        return found

    def price_of(self, fixed: Fixed, memory: dict[str, float]) -> Json:
        """Fields of the cheapest offer; the memory in use decides only where a part of a host is rented."""
        chip = fixed.accelerator
        key = (chip.slug, fixed.pools, tuple(memory.values()) if chip.kind == "cpu" else ())
        found = self.prices.get(key)
        if found is None:
            with read_once(self.read):
                found = price(cheapest(chip, fixed.pools, memory))
            if len(self.prices) >= PRICES_KEPT:
                self.prices.clear()
            self.prices[key] = found
        return found


def kept(organisation: Organisation | None) -> Estimator:
    """The estimator of today's catalog, which the process keeps until the catalog changes."""
    key = (revision_for(organisation), organisation.pk if organisation else None, clock.today())
    return ESTIMATORS.get(key, lambda: Estimator(organisation))


def answer(raw: Mapping[str, Any], organisation: Organisation | None = None) -> ClosedEstimate:
    """One estimate. Raises WorkloadError."""
    estimator = Estimator(organisation)
    (found,) = estimator.estimates([estimator.asked(raw)])
    if isinstance(found, WorkloadError):
        raise found
    return ClosedEstimate.read(found)


# --- what is asked ----------------------------------------------------------------------------------------------


def plain(raw: Mapping[str, Any]) -> Numbers | None:
    """The numbers, if they are of their plain types and in their ranges; others are validated one by one."""
    isl, osl = raw.get("isl"), raw.get("osl", 0)
    concurrency, rate = raw.get("concurrency", "max"), raw.get("rate")
    if not (type(isl) is int and 1 <= isl <= MOST_TOKENS and type(osl) is int and 0 <= osl <= MOST_TOKENS):
        return None
    if concurrency != "max" and not (type(concurrency) is int and 1 <= concurrency <= MAX_CONCURRENCY):
        return None
    if rate is not None and not (type(rate) in (int, float) and LEAST_RATE_PER_S <= rate <= MOST_RATE_PER_S):
        return None
    users = None if concurrency == "max" else concurrency
    return Numbers(isl=isl, osl=osl, concurrency=users, rate=None if rate is None else float(rate))


def plain_name(name: Any) -> bool:
    """Whether every check of a name's text passes and leaves it as it is."""
    return type(name) is str and name.isprintable() and 0 < len(name) <= MOST_NAME_CHARACTERS and name == name.strip()


def kind_key(raw: Mapping[str, Any], numbers: Numbers) -> bytes | None:
    """Of everything but the numbers."""
    return key_of(raw, given(raw, numbers), (numbers.osl > 0,))


def given(raw: Mapping[str, Any], n: Numbers) -> tuple[bool, ...]:
    """Which numbers are stated, and how."""
    return "osl" in raw, "concurrency" in raw, n.concurrency is None, "rate" in raw, n.rate is None


def key_of(raw: Mapping[str, Any], *more: tuple[Any, ...]) -> bytes | None:
    """Of all but the numbers; None: it would be too long to keep."""
    rest = [(key, value) for key, value in raw.items() if key not in NUMBERS]
    try:
        key = marshal.dumps((rest, more), 2)  # unlike ==, it tells 1 from True and from 1.0
    except ValueError:
        return None
    return key if len(key) <= MOST_KEY_BYTES else None


def allowed(fixed: Fixed, n: Numbers) -> bool:
    """Whether numbers pass every check that depends on them without a warning, so that no other check is needed."""
    model, case = fixed.model, fixed.case
    if case.input_p95 or case.output_p95 or case.prefix_classes or has_decoder_beside(model) or model.source_tokens:
        return False
    if (n.concurrency or 0) * case.client.requests_per_user > 10 * MAX_CONCURRENCY:
        return False
    if model.encoder_only:
        return n.osl <= 1 and n.isl <= model.max_context_tokens
    return n.osl >= 1 and n.isl + n.osl <= model.max_context_tokens


def changed(known: Asked, n: Numbers) -> Asked:
    """The same kind with other numbers."""
    client = known.case.client if n.rate is None else replace(known.case.client, rate_per_s=n.rate)
    users = None if n.concurrency is None else float(n.concurrency)
    case = replace(known.case, isl=float(n.isl), osl=float(max(n.osl, 1)), concurrency=users, client=client)
    return Asked(fixed=known.fixed, case=case, lane=at_numbers_of(case, known.lane), shared=known.shared)


def shared(fixed: Fixed, lane: Lane) -> Json:
    case, pool = fixed.case, fixed.pools[-1]
    basis = lane.choice.efficiency.basis
    replicas = f"{pool.replicas} replicas" if pool.replicas > 1 else "1 replica"
    return {
        "method": "closed_form",
        "label": f"{case.chips} x {fixed.accelerator.name}, {describe(lane)}, {replicas}",
        "model": case.model_id,
        "accelerator": fixed.accelerator.slug,
        "accelerator_name": fixed.accelerator.name,
        "accelerator_count": case.chips,
        **setup(lane),
        "moe_tp": pool.moe_tp,
        "replicas": pool.replicas,
        "client": case.client.kind,
        "seats": case.max_batch or pool.max_batch or lane.framework.max_running_requests,
        "max_batched_tokens": lane.max_batched_tokens,
        "warnings": [*fixed.doubts, *basis_warning(basis)],
        "basis": basis,
        "engine_version": ENGINE_VERSION,
    }


# --- as arrays --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class Group:
    """The lanes of one model as arrays, and lists with a value for each lane."""

    lanes: Lanes
    fits: list[bool]
    unknown: list[bool]  # it fits, but the bandwidth between its accelerators is not known
    seats: list[int]  # requests that run at once on one lane
    running: list[int]  # requests in flight in each replica


def with_arrays(asked: Sequence[Asked]) -> list[tuple[Group, int]]:
    """The group of each deployment, and its row in it."""
    members: dict[tuple[int, int, bool], list[int]] = defaultdict(list)
    for i, each in enumerate(asked):
        draft, kind = each.lane.draft, bool(each.case.concurrency or each.case.has_arrivals)
        members[id(each.fixed.model), id(draft.model) if draft else 0, kind].append(i)
    found: list[tuple[Group, int]] = [None] * len(asked)  # type: ignore[list-item]
    for rows in members.values():
        group = group_of([asked[i] for i in rows])
        for row, i in enumerate(rows):
            found[i] = group, row
    return found


def group_of(asked: Sequence[Asked]) -> Group:
    built = lanes(asked[0].fixed.model, [each.lane for each in asked])
    fits = built.memory.fits
    seats, running = [], []
    for row, each in enumerate(asked):
        case, pool = each.case, each.fixed.pools[-1]
        seats.append(queued_requests(case, each.lane, built, row))
        stated = case.concurrency and max(math.ceil(case.concurrency / pool.replicas), 1)
        running.append(stated or seats[-1] * pool.pp * pool.dp)
    unknown = fits & ~np.isfinite(built.times.linear_s).all(axis=-1)
    return Group(lanes=built, fits=fits.tolist(), unknown=unknown.tolist(), seats=seats, running=running)


def closed_rows(asked: Sequence[Asked], own: Sequence[tuple[Group, int]]) -> list[Means]:
    """Means of each deployment; those of `max` run on a lane for as many requests as fit."""
    found = [Means()] * len(asked)
    full = [at_full_concurrency(each, group, row) for each, (group, row) in zip(asked, own, strict=True)]
    parts: dict[tuple[int, bool], list[int]] = defaultdict(list)  # by group, and whether it has lanes of its own
    for i, each in enumerate(asked):
        parts[id(own[i][0]), full[i] is not each].append(i)
    for vectors, compute in ((True, vectors_on), (False, means_on)):
        order, built = list[int](), list[Lanes]()
        for (_, is_full), rows in parts.items():
            if asked[rows[0]].fixed.model.encoder_only == vectors:
                order += rows
                group = own[rows[0]][0]
                own_lanes = group_of([full[i] for i in rows]).lanes if is_full else group.lanes
                built.append(own_lanes)
        if order:
            means = compute([full[i].case for i in order], [full[i].lane for i in order], join_lanes(built))
            for i, each_mean in zip(order, means, strict=True):
                found[i] = each_mean
    return found


def at_full_concurrency(each: Asked, group: Group, row: int) -> Asked:
    """A closed loop of as many requests as fit, if it does not state how many."""
    if each.case.concurrency or each.case.has_arrivals or each.fixed.model.encoder_only:
        return each
    case = replace(each.case, concurrency=float(group.running[row] * each.fixed.pools[-1].replicas))
    return replace(each, case=case, lane=at_numbers_of(case, each.lane))


def throughput(case: Case, m: Means, usd_per_hour: float | None) -> Json:
    """Of the whole deployment, prompts included."""
    mean = (case.client.length_low_fraction + case.client.length_high_fraction) / 2
    total = m.output_tokens_per_s + m.requests_per_s * (case.source_tokens or case.isl) * mean
    priced = usd_per_hour is not None and math.isfinite(total) and total > 0
    return {
        "requests_per_s": number(m.requests_per_s),
        "output_tokens_per_s_per_accelerator": number(m.output_tokens_per_s / case.chips),
        "total_tokens_per_s": number(total),
        "usd_per_mtok_blended": rounded((usd_per_hour or 0.0) / (total * 3600.0) * 1e6) if priced else None,
    }
