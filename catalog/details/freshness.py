"""How fresh the catalog is: the newest date and version of each kind of data, and what was applied last."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import date
from typing import Any

from django.db.models import Max

from catalog import clock
from catalog.models import (
    Accelerator,
    ApiPrice,
    Calibration,
    CatalogBundle,
    CatalogLoad,
    EvidenceImport,
    EvidenceRow,
    ExchangeRate,
    Framework,
    HeldEvidence,
    Organisation,
    Price,
    PriceRefresh,
    PriceSource,
    Scorecard,
    ScoredRow,
    ServedModel,
)
from catalog.pricing.current import by_age
from catalog.pricing.derived import current_offers
from catalog.pricing.sources import models

BUNDLE = "bundle"  # name of the row of PriceSource in which the schedule of bundles notes its readings
UNREAD = "not re-read"  # in a source: taken over from an older catalog
RELEASE = re.compile(r"v?\d+(\.\d+)+(\.post\d+)?|b\d+")  # of a framework; sources also state dates and commits
MOST_LACKING = 200  # models, and instances and chips, in the JSON
SHOWN = 20  # of them, in words
REPORTS = 50  # newest refreshes in which a source's last report is looked for
Json = dict[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Kind:
    """One kind of data. newest and oldest: dates of its sources, ISO; empty: it has no rows."""

    name: str
    rows: int
    newest: str
    oldest: str
    age_days: int | None  # of the newest
    by_age: dict[str, int]  # rows: up to 30, 90 and 365 days old, and older
    said: str  # what else there is to know, such as versions


def found(organisation: Organisation | None = None) -> Json:
    """Kinds of data, serving frameworks, the catalog's version, the last bundle and the last price refresh.

    organisation: whose saved answers are named; None: those of all.
    """
    load = CatalogLoad.objects.order_by("-loaded_at", "-pk").first()
    bundle = CatalogBundle.objects.filter(undone_at=None).first()
    refresh = PriceRefresh.objects.exclude(finished_at=None).first()
    read = last_read()
    return {
        "as_of": clock.today().isoformat(),
        "catalog": {
            "version": load.version[:12] if load else "",
            "loaded_at": f"{load.loaded_at:%Y-%m-%d %H:%M}" if load else "",
        },
        "kinds": [asdict(kind) for kind in kinds()],
        "frameworks": list(frameworks()),
        "bundle": {
            "made_at": f"{bundle.made_at:%Y-%m-%d %H:%M}" if bundle else "",
            "key": bundle.key if bundle else "",
            "applied_at": f"{bundle.applied_at:%Y-%m-%d %H:%M}" if bundle else "",
            "error": next(iter(PriceSource.objects.filter(name=BUNDLE).values_list("error", flat=True)), ""),
        },
        "price_refresh": _last(refresh, organisation),
        "lacking": {source: done["proposed"] for source, done in read.items() if done.get("proposed")},
        "lacking_models": lacking_models(read),
        "lacking_offers": lacking_offers(read),
    }


def kinds() -> Iterator[Kind]:
    yield _kind("prices", current_offers().values_list("as_of", flat=True))
    hosted = ApiPrice.objects.filter(withdrawn=None).values("provider", "name").annotate(newest=Max("as_of"))
    yield _kind("prices of hosted APIs", (row["newest"] for row in hosted))
    yield _kind("purchase prices", _newest_purchases())
    newest = ExchangeRate.objects.values("currency").annotate(newest=Max("as_of"))
    yield _kind("exchange rates", (row["newest"] for row in newest))
    chips = list(Accelerator.objects.all())
    unread = sum(UNREAD in str(chip.sources) for chip in chips)
    yield _kind("accelerators", (chip.as_of for chip in chips), f"{unread} with a source that was not read again")
    yield _kind("models", ServedModel.objects.values_list("as_of", flat=True), _newest_models())
    yield _kind("frameworks", Framework.objects.values_list("as_of", flat=True))
    yield _measurements()
    yield _imported_figures()
    yield _kind("calibrations", Calibration.objects.values_list("as_of", flat=True))


def _kind(name: str, dates: Iterable[date], said: str = "") -> Kind:
    days = sorted(dates)
    return Kind(
        name=name,
        rows=len(days),
        newest=days[-1].isoformat() if days else "",
        oldest=days[0].isoformat() if days else "",
        age_days=(clock.today() - days[-1]).days if days else None,
        by_age=by_age(days, clock.today()),
        said=said,
    )


def _newest_purchases() -> Iterator[date]:
    rows = Price.objects.filter(organisation=None, term="purchase").values("provider", "instance", "accelerator")
    return (row["newest"] for row in rows.annotate(newest=Max("as_of")))


def _newest_models(most: int = 3) -> str:
    names = ServedModel.objects.order_by("-as_of", "slug").values_list("hf_id", flat=True)[:most]
    return f"last added or read: {', '.join(names)}" if names else ""


def _measurements() -> Kind:
    """Rows state a year, a month or a day; only whole days have an age."""
    stated = whole_days(ScoredRow.objects.values_list("measured_on", flat=True))
    card = Scorecard.objects.first()
    said = (
        f"{ScoredRow.objects.count():,} figures; scored on {card.as_of} with engine {card.engine_version}"
        if card
        else ""
    )
    return _kind("measurements", stated, said)


def _imported_figures() -> Kind:
    """Measured figures of other sources: shown, and part of no score."""
    sources = EvidenceImport.objects.order_by().values("source_key").distinct().count()
    held = HeldEvidence.objects.filter(state=HeldEvidence.State.HELD).count()
    said = f"{EvidenceRow.objects.count():,} figures of {sources} sources; {held} held" if sources else ""
    return _kind("imported measurements", whole_days(EvidenceRow.objects.values_list("measured_on", flat=True)), said)


def whole_days(stated: Iterable[str]) -> list[date]:
    return [date.fromisoformat(day) for day in stated if len(day) == len("2026-11-27")]


def frameworks() -> Iterator[Json]:
    """Each framework's newest version in the catalog, and the newest version of it that has measured rows."""
    rows = ScoredRow.objects.exclude(framework_version="").values_list("framework", "framework_version").distinct()
    measured: dict[str, list[str]] = {}
    for name, version in rows:
        if RELEASE.fullmatch(version):
            measured.setdefault(name, []).append(version)
    versions: dict[str, Framework] = {}
    for row in Framework.objects.all():
        if row.slug not in versions or row.as_of >= versions[row.slug].as_of:
            versions[row.slug] = row
    for slug, row in sorted(versions.items()):
        newest = max(measured.get(slug, []), key=numbers, default="")
        yield {
            "framework": slug,
            "name": row.name,
            "version": row.version,
            "as_of": row.as_of.isoformat(),
            "measured_version": newest,
        }


def numbers(version: str) -> tuple[int, ...]:
    """A version as numbers, to find the newest: 0.5.10 is newer than 0.5.9."""
    return tuple(int(part) for part in "".join(c if c.isdigit() else " " for c in version).split())


def last_read() -> dict[str, Json]:
    """What each price source gave when it was last read."""
    found: dict[str, Json] = {}
    for refresh in PriceRefresh.objects.exclude(report={})[:REPORTS]:
        for done in refresh.report.get("sources", ()):
            if not done.get("error") and not done.get("not_modified"):
                found.setdefault(done["source"], done)
    return found


def lacking_models(read: Mapping[str, Json], most: int = MOST_LACKING) -> list[Json]:
    """Hosted models that sources list and the catalog still lacks, the most used first.

    By tokens on OpenRouter, where its rankings were read; then by the number of providers that list the model.
    """
    known = models()
    found: dict[str, Json] = {}
    for source, done in read.items():
        for model in done.get("models", ()):
            slugs = (known.slug("", name) for name in (model["name"], model["hf_id"]) if name)
            if any(slugs):
                continue
            one = found.setdefault(
                model["key"],
                {"name": model["name"], "hf_id": "", "providers": set(), "tokens": 0, "sources": []},
            )
            one["hf_id"] = one["hf_id"] or model["hf_id"]
            one["providers"].update(model["providers"])
            one["tokens"] += model["tokens"]
            one["sources"].append(source)
    rows = sorted(found.values(), key=lambda one: (-one["tokens"], -len(one["providers"]), one["name"]))
    return [one | {"providers": len(one["providers"]), "sources": sorted(one["sources"])} for one in rows[:most]]


def lacking_offers(read: Mapping[str, Json], most: int = MOST_LACKING) -> list[Json]:
    """Instances and chips that sources list and the catalog lacks, those with the most offers first."""
    rows = [
        {"listed_by": source, "name": name, "what": what, "offers": done.get("listed", {}).get(name, 1)}
        for source, done in read.items()
        for name, what in done.get("proposed", {}).items()
    ]
    return sorted(rows, key=lambda row: (-row["offers"], row["listed_by"], row["name"]))[:most]


def _last(refresh: PriceRefresh | None, organisation: Organisation | None) -> Json:
    """When prices were last refreshed, and which saved answers of the organization changed; None: of all."""
    if refresh is None or refresh.finished_at is None:
        return {"at": "", "state": "", "answers_checked": 0, "answers_changed": []}
    report = refresh.report or {}
    return {
        "at": f"{refresh.finished_at:%Y-%m-%d %H:%M}",
        "state": refresh.state,
        "answers_checked": report.get("answers_checked", 0),
        "answers_changed": [
            change["name"]
            for change in report.get("answers_changed", ())
            if organisation is None or change.get("organisation") == organisation.pk
        ],
    }


def lines(status: Json) -> list[str]:
    """The same in words, for a terminal."""
    told = [f"catalog {status['catalog']['version']}, loaded {status['catalog']['loaded_at']} UTC"]
    for kind in status["kinds"]:
        ages = ", ".join(f"{count} {age}" for age, count in kind["by_age"].items() if count)
        said = f"; {kind['said']}" if kind["said"] else ""
        told.append(f"{kind['name']}: newest {kind['newest'] or 'none'}; {ages or 'no rows'}{said}")
    told += [
        f"{row['framework']} {row['version']}: read {row['as_of']}, newest measured {row['measured_version'] or 'none'}"
        for row in status["frameworks"]
    ]
    bundle, last = status["bundle"], status["price_refresh"]
    told.append(
        f"bundle: made {bundle['made_at']}, applied {bundle['applied_at']} UTC" if bundle["made_at"] else "bundle: none"
    )
    if bundle["error"]:
        told.append(f"the last scheduled bundle was not applied: {bundle['error']}")
    changed = f"; answers that change: {', '.join(last['answers_changed'])}" if last["answers_changed"] else ""
    told.append(f"price refresh: {last['at']} UTC {last['state']}{changed}" if last["at"] else "price refresh: never")
    told += [f"not in the catalog: {model_line(model)}" for model in status["lacking_models"][:SHOWN]]
    told += [f"not in the catalog, {offer_line(row)}" for row in status["lacking_offers"][:SHOWN]]
    return told


def model_line(model: Json) -> str:
    """A model that the catalog lacks, with how much it is used."""
    used = [f"{model['tokens'] / 1e9:,.0f} billion tokens on OpenRouter"] if model["tokens"] else []
    used += [f"{model['providers']} provider{'s' * (model['providers'] != 1)}"] if model["providers"] else []
    return f"model {model['name']}{f' ({hf_id})' if (hf_id := model['hf_id']) else ''}: {', '.join(used)}"


def offer_line(row: Json) -> str:
    """An instance or chip that the catalog lacks, with how many offers there are of it."""
    return (
        f"listed by {row['listed_by']}: {row['name']}: {row['what']}; {row['offers']} offer{'s' * (row['offers'] != 1)}"
    )
