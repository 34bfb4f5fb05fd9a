"""What a study asks: its four kinds as people write them, checked and cut into pieces of a few seconds.

A point is one row of the results. Each has `set`, the values that tell it from the others, and what is computed for
it: a validated workload, or the arguments of an estimate.
"""

import calendar
import datetime
import hashlib
import itertools
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, cast

from pydantic import Field, JsonValue, ValidationError

from advisor import inputs
from advisor.answer import quick
from advisor.workload import (
    MAX_ERRORS,
    PORTFOLIO,
    Name,
    Section,
    WorkloadError,
    error,
    explained,
    named,
    parse,
    parse_estimate,
    past_day,
    unnamed,
    with_changes,
)
from catalog import clock
from catalog.models import Accelerator, Organisation, ServedModel

Json = dict[str, Any]
Errors = list[dict[str, str]]
MAX_WORKLOADS, MAX_GRID, MAX_DAYS, MAX_ESTIMATES = 2_000, 5_000, 400, 50_000
# Points of a piece, from the CPU seconds of one on the reference machine (docs/how-to/studies.md): an answer takes 5 to
# 13 s, a ranking 0.2 s, an estimate 0.15 s, the rows of a market 0.4 s and those of a model 0.05 s.
ANSWERS, RANKINGS, ESTIMATES, MARKETS, MODELS = 1, 40, 24, 8, 60
CLOSED_FORM = "closed_form"
SIZES = (1, 2, 4, 8, 16)  # tensor-parallel sizes that `tp: auto` tries
# What inputs.with_catalog_names changes in a workload.
NAMED = ("model", "finetuning", "constraints", "owned", "inventory", "usd_per_accelerator_hour")
Day = Annotated[str, Field(pattern=r"^\d{4}-\d{2}-\d{2}$")]
Raw = dict[str, JsonValue]


class Named(Section):
    name: Name | None = None
    """Title; default: derived from the study."""


class Searched(Named):
    """A study of answers to workloads."""

    method: Literal["simulated", "closed_form"] = "simulated"
    """closed_form: each row is the first option of the ranking by formulas, not simulated."""


class WorkloadsStudy(Searched):
    """The same question for each of many workloads."""

    kind: Literal["workloads"]
    workloads: Annotated[list[Raw], Field(min_length=1, max_length=MAX_WORKLOADS)]
    """Workloads, as in a workload file. For the command line also the paths of files."""
    prices_as_of: Day | None = None
    """Prices as they were known on this day; default: today."""


class GridStudy(Searched):
    """One workload with every combination of some values."""

    kind: Literal["grid"]
    workload: Raw
    """The workload that is changed."""
    grid: Annotated[
        dict[str, Annotated[list[JsonValue], Field(min_length=1, max_length=MAX_GRID)]],
        Field(min_length=1, max_length=8),
    ]
    """Path of a field, such as traffic.requests_per_s.mean, to its values."""
    prices_as_of: Day | None = None
    """Prices as they were known on this day; default: today."""


class PricesStudy(Searched):
    """One workload at the prices of several days."""

    kind: Literal["prices"]
    workload: Raw
    """The workload."""
    first_day: Day
    """First day."""
    last_day: Day | None = None
    """Last day; default: today."""
    every: Literal["week", "month"] = "month"
    """Step between the days."""


class EstimatesStudy(Named):
    """Models by accelerators: one replica of each pair, without a search."""

    kind: Literal["estimates"]
    models: Annotated[list[Name], Field(min_length=1, max_length=2_000)] | Literal["all"] = "all"
    """Hugging Face IDs."""
    accelerators: Annotated[list[Name], Field(min_length=1, max_length=2_000)] | Literal["all"] = "all"
    """Catalog names."""
    weights: Annotated[list[Name], Field(min_length=1, max_length=20)] = ["bf16"]
    """Weight formats."""
    isl: Annotated[int, Field(ge=1, le=1_000_000)]
    """Input tokens per request."""
    osl: Annotated[int, Field(ge=0, le=1_000_000)] = 0
    """Output tokens per request."""
    concurrency: Annotated[int, Field(ge=1, le=20_000)] | Literal["max"] = 32
    """Requests in flight."""
    tp: Annotated[int, Field(ge=1, le=64)] | Literal["auto"] = "auto"
    """Tensor-parallel size; auto: the smallest of 1, 2, 4, 8 and 16 whose memory is enough."""


KINDS: dict[str, type[Named]] = {
    "workloads": WorkloadsStudy,
    "grid": GridStudy,
    "prices": PricesStudy,
    "estimates": EstimatesStudy,
}
Complete = Callable[[Json], Json]


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """A checked study: `axes` are the names and types of what varies, `phases` the points by phase and piece."""

    kind: str
    name: str
    prices_as_of: datetime.date
    axes: tuple[tuple[str, str], ...]
    phases: tuple[list[list[Json]], list[list[Json]]]

    @property
    def points(self) -> int:
        return sum(map(len, self.phases[1]))

    @property
    def sha256(self) -> str:
        """Of what is asked: the same request has the same."""
        return digest(
            [
                self.kind,
                self.name,
                [
                    [point["set"], point["asked"], *([point["method"]] if "method" in point else [])]
                    for point in itertools.chain(*self.phases[1])
                ],
            ]
        )


def digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def planned(raw: Mapping[str, Any], organisation: Organisation, complete: Complete = dict) -> Plan:
    """The study that a file or a body describes. Raises WorkloadError, whose fields name the workload by its index.

    complete: reads the files that a validated workload refers to; only the command line has one.
    """
    kind = raw.get("kind")
    if not isinstance(kind, str) or kind not in KINDS:
        shown = "is required" if kind is None else "is not a kind of study"
        raise WorkloadError([error("kind", shown, ", ".join(KINDS))])
    try:
        study = KINDS[str(kind)].model_validate(dict(raw))
    except ValidationError as failure:
        raise WorkloadError(explained(failure, KINDS[str(kind)])) from None
    asked = Asked(organisation, complete, getattr(study, "method", ""))
    return PLANS[str(kind)](study, asked)


class Asked:
    """Checks workloads one after the other against the catalog; names that recur are looked up once."""

    def __init__(self, organisation: Organisation, complete: Complete, method: str = "") -> None:
        self.organisation, self.complete, self.method = organisation, complete, method
        self.found: dict[str, Json] = {}
        self.errors: Errors = []

    def workload(self, raw: Mapping[str, Any], field: str, day: str | None) -> Json:
        """The validated workload; {} after an error, which is kept."""
        if len(self.errors) > MAX_ERRORS:
            return {}
        try:
            if raw.get("kind") == PORTFOLIO:
                raise WorkloadError([error("kind", "a portfolio cannot be part of a study", "its workloads")])
            spec = self.complete(parse({**raw, **({"prices_as_of": day} if day else {})}))
            if self.method == CLOSED_FORM:
                quick.check_kind(spec)
            spec = self.with_names(spec)
            inputs.check_catalog(spec, self.organisation, before=len(self.errors))
            return spec
        except WorkloadError as failure:
            self.errors += [{**each, "field": f"{field}.{each['field']}".strip(".")} for each in failure.errors]
            return {}

    def with_names(self, spec: Json) -> Json:
        key = digest({name: spec.get(name) for name in NAMED})
        if key not in self.found:
            known = inputs.with_catalog_names(spec, self.organisation)
            self.found[key] = {name: known[name] for name in NAMED if name in known}
        return named({**unnamed(spec), **self.found[key]})

    def check(self) -> None:
        if self.errors:
            raise WorkloadError(self.errors)


# --- the kinds --------------------------------------------------------------------------------------------------


def of_workloads(study: WorkloadsStudy, asked: Asked) -> Plan:
    day = day_of(study.prices_as_of, "prices_as_of")
    points = [
        {"set": {}, "asked": asked.workload(raw, f"workloads[{i}]", day)} for i, raw in enumerate(study.workloads)
    ]
    asked.check()
    return searched(study, points, (), day, f"{len(points)} workloads")


def of_grid(study: GridStudy, asked: Asked) -> Plan:
    day = day_of(study.prices_as_of, "prices_as_of")
    count = 1
    for values in study.grid.values():
        count *= len(values)
    if count > MAX_GRID:
        raise WorkloadError([error("grid", f"has {count:,} combinations", f"at most {MAX_GRID:,}")])
    base = asked.workload(study.workload, "workload", day)
    asked.check()
    points = []
    for combination in itertools.product(*study.grid.values()):
        changes = dict(zip(study.grid, combination, strict=True))
        shown = ", ".join(f"{path}={json.dumps(value)}" for path, value in changes.items())
        spec = asked.workload(changed(study.workload, changes), f"grid[{shown}]", day)
        points.append({"set": changes, "asked": spec})
    asked.check()
    return searched(study, points, tuple(study.grid), day, f"{base['name']}, {count} variants")


def changed(raw: Mapping[str, Any], changes: Mapping[str, Any]) -> Json:
    """The workload with these values at these paths. Raises WorkloadError."""
    found = dict(raw)
    for path, value in changes.items():
        found = with_changes(with_sections(found, path), {path: value})
    return found


def with_sections(raw: Mapping[str, Any], path: str) -> Json:
    """The workload with each number above the path written as a section, {mean: number}. Raises WorkloadError."""
    found, at, *rest = dict(raw), *path.split(".")
    if not rest or found.get(at) is None:
        return found
    inner = found[at]
    if isinstance(inner, int | float) and not isinstance(inner, bool):
        inner = {"mean": inner}
    if not isinstance(inner, Mapping):
        message = f"{at} is {json.dumps(inner)[:60]}, not a section of keys"
        raise WorkloadError([error(f"grid.{path}", message, "the path of a field")])
    return {**found, at: with_sections(inner, ".".join(rest))}


def of_prices(study: PricesStudy, asked: Asked) -> Plan:
    days = days_between(study)
    base = asked.workload(study.workload, "workload", None)
    asked.check()
    points = [{"set": {"day": day}, "asked": asked.workload(study.workload, f"day {day}", day)} for day in days]
    asked.check()
    return searched(study, points, ("day",), days[-1], f"{base['name']}, {days[0]} to {days[-1]}")


def day_of(value: str | None, field: str) -> str:
    """A day up to today, by default today. Raises WorkloadError."""
    if value is None:
        return clock.today().isoformat()
    try:
        return past_day(value)
    except ValueError as fault:
        raise WorkloadError([error(field, *fault.args)]) from None


def days_between(study: PricesStudy) -> list[str]:
    """The days, from the first on. Raises WorkloadError."""
    first, last = (
        datetime.date.fromisoformat(day_of(getattr(study, field), field)) for field in ("first_day", "last_day")
    )
    if first > last:
        raise WorkloadError([error("first_day", "is after last_day", f"a date up to {last}")])
    days: list[str] = []
    for step in range(MAX_DAYS + 1):
        day = first + datetime.timedelta(weeks=step) if study.every == "week" else months_after(first, step)
        if day > last:
            return days
        days.append(day.isoformat())
    raise WorkloadError([error("every", f"gives more than {MAX_DAYS} days", "month, or a later first_day")])


def months_after(day: datetime.date, months: int) -> datetime.date:
    """The same day of a later month, or that month's last day."""
    year, month = divmod(day.year * 12 + day.month - 1 + months, 12)
    return datetime.date(year, month + 1, min(day.day, calendar.monthrange(year, month + 1)[1]))


def searched(study: Searched, points: list[Json], axes: tuple[str, ...], day: str, title: str) -> Plan:
    """Pieces that answer workloads, after those that read what they need of the catalog."""
    markets: dict[str, Json] = {}
    models: dict[str, Json] = {}
    for i, point in enumerate(points):
        for name, kept, question in (
            ("market", markets, inputs.market_question(point["asked"])),
            ("model", models, inputs.model_question(point["asked"])),
        ):
            point[name] = digest(question)
            kept[point[name]] = question
        point["index"] = i
        point |= {"method": CLOSED_FORM} if study.method == CLOSED_FORM else {}
    reads = [*cut(keyed(markets), MARKETS), *cut(keyed(models), MODELS)]
    size = RANKINGS if study.method == CLOSED_FORM else ANSWERS
    return plan(study, reads, cut(points, size), axes, day, title)


def keyed(questions: Mapping[str, Json]) -> list[Json]:
    return [{"key": key, "asked": question} for key, question in questions.items()]


def of_estimates(study: EstimatesStudy, asked: Asked) -> Plan:
    """Model by model, so that a piece reads few models."""
    models, chips = names_of(study, asked)
    asked.check()
    count = len(models) * len(chips) * len(study.weights)
    if count > MAX_ESTIMATES:
        raise WorkloadError([error("models", f"give {count:,} estimates", f"at most {MAX_ESTIMATES:,}")])
    fixed: Json = {"isl": study.isl, "osl": study.osl, "concurrency": study.concurrency}
    points: list[Json] = []
    for i, (model, weights, chip) in enumerate(itertools.product(models, study.weights, chips)):
        values: Json = {"model": model, "accelerator": chip, "weights": weights}
        points.append({"index": i, "set": values, "asked": {**values, **fixed, "tp": study.tp}})
    sizes = {} if study.tp == "auto" else {"tp": study.tp}
    parse_estimate({**points[0]["set"], **fixed, **sizes})
    title = f"{len(models)} model{'s' * (len(models) > 1)} by {len(chips)} accelerator{'s' * (len(chips) > 1)}"
    day = clock.today().isoformat()
    return plan(study, [[{"key": "", "asked": {}}]], cut(points, ESTIMATES), tuple(points[0]["set"]), day, title)


def names_of(study: EstimatesStudy, asked: Asked) -> tuple[list[str], list[str]]:
    """The models, as the organization sees them, and the accelerators by their catalog names."""
    known = {
        "models": dict(ServedModel.objects.seen_by(asked.organisation).order_by("hf_id").values_list("slug", "hf_id")),
        "accelerators": {
            a: a for a in Accelerator.objects.filter(served=True).order_by("slug").values_list("slug", flat=True)
        },
    }
    found: dict[str, list[str]] = {}
    for field, names in known.items():
        given = getattr(study, field)
        if given == "all":
            found[field] = list(dict.fromkeys(names.values()))
            continue
        meant = {name.casefold(): name for name in names.values()} | names
        found[field] = list(dict.fromkeys(meant.get(name.casefold(), "") for name in given))
        for i, name in enumerate(given):
            if name.casefold() not in meant:
                url = f"/api/v1/{field}"
                asked.errors.append(error(f"{field}[{i}]", f"{name} is not in the catalog", f"all, or names of {url}"))
    return found["models"], found["accelerators"]


def plan(
    study: Named, reads: list[list[Json]], pieces: list[list[Json]], axes: Sequence[str], day: str, title: str
) -> Plan:
    kind = cast(Any, study).kind
    as_of = datetime.date.fromisoformat(day)
    typed = tuple((axis, type_of(point["set"][axis] for piece in pieces for point in piece)) for axis in axes)
    return Plan(kind=kind, name=study.name or title[:120], prices_as_of=as_of, axes=typed, phases=(reads, pieces))


def type_of(values: Iterable[Any]) -> str:
    """Of a column of the results: float64 where all values are numbers, else string."""
    numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
    return "float64" if numbers else "string"


def cut(points: Sequence[Json], size: int) -> list[list[Json]]:
    return [list(points[at : at + size]) for at in range(0, len(points), size)]


PLANS: dict[str, Callable[[Any, Asked], Plan]] = {
    "workloads": of_workloads,
    "grid": of_grid,
    "prices": of_prices,
    "estimates": of_estimates,
}
