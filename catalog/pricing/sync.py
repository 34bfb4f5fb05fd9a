"""Reads public price sources and adds what is new. One run at a time; each source is added whole or not at all."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import structlog
from django.db import IntegrityError, transaction

from catalog import clock
from catalog.loading import fixtures, load
from catalog.loading.fixtures import FixtureError, Row
from catalog.models import Accelerator, ApiPrice, Price, PriceRefresh, PriceSource
from catalog.pricing import imports
from catalog.pricing.current import STALE_DAYS
from catalog.pricing.derived import current_offers
from catalog.pricing.download import Unreachable, session
from catalog.pricing.sources import Download, Skipped, Source, named

log = structlog.get_logger("assay.prices")
LEASE = timedelta(hours=1)
CONFIRM_DAYS = 7  # an unchanged price is stored again, with its new date, after this time
RECENT = ("up to 30 days old", "up to 90 days")  # ages in `offers_by_age`
MAX_LINES = 50  # of each kind in a report
Offers = dict[tuple[Any, ...], tuple[date, Any]]  # newest date and price of each offer


class AlreadyRunning(Exception):
    """Another run of `prices sync` has not finished."""


@dataclass(kw_only=True, slots=True)
class Read:
    """What reading one source did. `new` and `changed` are lines for people, at most MAX_LINES each."""

    source: str
    error: str = ""  # nothing of this source was changed
    not_modified: bool = False  # the source has not changed since the last time
    added: int = 0  # offers that were not known
    changed_prices: int = 0
    confirmed: int = 0  # same price, read again
    held: int = 0
    skipped: Skipped = field(default_factory=dict)
    new: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    quarantined: list[str] = field(default_factory=list)


@contextmanager
def only_one(by: str) -> Iterator[PriceRefresh]:
    """The record of a run. Raises AlreadyRunning; a run whose lease has ended counts as interrupted."""
    PriceRefresh.objects.filter(state=PriceRefresh.State.RUNNING, lease_until__lt=clock.now()).update(
        state=PriceRefresh.State.FAILED, finished_at=clock.now(), error="The run was interrupted."
    )
    try:
        with transaction.atomic():
            row = PriceRefresh.objects.create(made_by=by[:150], lease_until=clock.read() + LEASE)
    except IntegrityError as error:
        raise AlreadyRunning("prices are being refreshed already; see `manage.py prices status`") from error
    try:
        yield row
    except BaseException as error:
        finish(row, PriceRefresh.State.FAILED, error=f"{type(error).__name__}: {error}")
        raise


def finish(row: PriceRefresh, state: str, report: Mapping[str, Any] | None = None, error: str = "") -> None:
    row.state, row.finished_at, row.error, row.report = state, clock.read(), error, dict(report or {})
    row.save(update_fields=["state", "finished_at", "error", "report"])


def downloaded(names: Sequence[str], file: Path | None = None) -> list[tuple[Source, Download | str]]:
    """Each source with what it answered, or with the reason why it could not be read. Changes no price."""
    opened = session()
    found: list[tuple[Source, Download | str]] = []
    for source in map(named, names):
        if file is not None:
            found.append((source, Download(texts={file.stem: file.read_text(encoding="utf-8")})))
            continue
        known = PriceSource.objects.filter(name=source.name).first()
        try:
            answer: Download | str = source.download(opened, known.etags if known else {})
        except Unreachable as error:
            answer = str(error)
        found.append((source, answer))
    return found


def add(source: Source, answer: Download | str, by: str, day: date) -> Read:
    """Adds the new prices of one source; on an error, none."""
    done = Read(source=source.name)
    try:
        if isinstance(answer, str):
            raise Unreachable(answer)
        done.not_modified = not answer.texts
        rows = [
            row for name, text in answer.texts.items() for row in source.rows(name, text, day.isoformat(), done.skipped)
        ]
        with transaction.atomic():
            (_add_hosted if source.hosted else _add_prices)(source, rows, by, day, done)
    except (Unreachable, FixtureError) as error:
        done = Read(source=source.name, error=str(error))
    _note(source, answer, done.error)
    log.info("price source read", source=source.name, added=done.added, held=done.held, error=done.error)
    return done


def _note(source: Source, answer: Download | str, error: str) -> None:
    now = clock.read()
    row, _ = PriceSource.objects.get_or_create(name=source.name, defaults={"tried_at": now})
    row.tried_at, row.error = now, error
    if not error and isinstance(answer, Download):
        row.read_at, row.etags = now, {**row.etags, **answer.etags}
    row.save()


def _add_prices(source: Source, rows: Sequence[Row], by: str, day: date, done: Read) -> None:
    chips = set(Accelerator.objects.values_list("slug", flat=True))
    given = [fixtures.price(source.name, row) for row in rows if row["accelerator"] in chips]
    if missing := len(rows) - len(given):
        done.skipped["accelerator not in the catalog"] = missing
    units = load.known_units()
    if unsure := sum(load.lacks_unit(row, units) for row in given):
        done.skipped["priced per accelerator, and fixtures/smallest_units.csv has no line for it"] = unsure
        given = [row for row in given if not load.lacks_unit(row, units)]
    names = ("provider", "instance", "region", "accelerator__slug", "term", "as_of", "usd_per_hour", "purchase_usd")
    known: Offers = {}
    for *key, as_of, usd, purchase_usd in Price.objects.filter(organisation=None).values_list(*names):
        offer = tuple(key)
        if offer not in known or known[offer][0] < as_of:
            known[offer] = as_of, usd or purchase_usd
    wanted = _worth_storing(
        given,
        known,
        lambda row: (row["provider"], row["instance"], row["region"] or "", row["accelerator"], row["term"]),
        lambda row: row["usd_per_hour"] or row["purchase_usd"],
        done,
    )
    imported = imports.add(wanted, source.name, f"{source.name} {day}", by, None)
    done.held = len(imported.held)
    done.quarantined = [f"{imports.offer_name(held.row)}: {held.reason}" for held in imported.held[:MAX_LINES]]


def _add_hosted(source: Source, rows: Sequence[Row], by: str, day: date, done: Read) -> None:
    given = [fixtures.api_price(source.name, row) for row in rows]
    known: Offers = {}
    for provider, name, as_of, *usd in ApiPrice.objects.values_list("provider", "name", "as_of", *load.API_FIGURES):
        if (provider, name) not in known or known[provider, name][0] < as_of:
            known[provider, name] = as_of, tuple(usd)
    load.append_api_prices(
        _worth_storing(
            given,
            known,
            lambda row: (row["provider"], row["name"]),
            lambda row: tuple(row[name] for name in load.API_FIGURES),
            done,
        )
    )


def _worth_storing(
    rows: Sequence[Row],
    known: Offers,
    key: Callable[[Row], tuple[Any, ...]],
    price: Callable[[Row], Any],
    done: Read,
) -> list[Row]:
    """The rows that are new, changed, or unchanged for CONFIRM_DAYS; counted in `done`. The first of each offer."""
    kept: dict[tuple[Any, ...], Row] = {}
    for row in rows:
        offer = key(row)
        if offer in kept:
            done.skipped["second price of an offer"] = done.skipped.get("second price of an offer", 0) + 1
            continue
        last, usd = known.get(offer, (None, None))
        if last is not None and last >= row["as_of"]:
            continue  # the catalog already has a price of this or a later day
        if usd == price(row) and last is not None and (row["as_of"] - last).days < CONFIRM_DAYS:
            continue
        kept[offer] = row
        name = " ".join(str(part) for part in offer if part)
        if last is None:
            done.added += 1
            done.new.append(f"{name}: {_shown(price(row))}")
        elif usd == price(row):
            done.confirmed += 1
        else:
            done.changed_prices += 1
            done.changed.append(f"{name}: {_shown(usd)} -> {_shown(price(row))} ({last} -> {row['as_of']})")
    del done.new[MAX_LINES:], done.changed[MAX_LINES:]
    return list(kept.values())


def _shown(usd: Any) -> str:
    parts = usd if isinstance(usd, tuple) else (usd,)
    return " / ".join(f"{float(part):g}" for part in parts if part is not None) + " USD"


def stale_offers(day: date) -> dict[str, int]:
    """Current public offers that were last read over STALE_DAYS ago, by provider."""
    old = current_offers().filter(as_of__lt=day - timedelta(days=STALE_DAYS)).values_list("provider", flat=True)
    counts: dict[str, int] = {}
    for provider in old:
        counts[provider] = counts.get(provider, 0) + 1
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def offers_by_age(day: date) -> dict[str, int]:
    """How many current public offers were read up to 30, 90 and 365 days ago, and before."""
    limits = {RECENT[0]: 30, RECENT[1]: 90, "up to a year": 365, "older": 10**6}
    counts = dict.fromkeys(limits, 0)
    for as_of in current_offers().values_list("as_of", flat=True):
        counts[next(name for name, most in limits.items() if (day - as_of).days <= most)] += 1
    return {name: count for name, count in counts.items() if count}


def as_json(done: Read) -> dict[str, Any]:
    return asdict(done)
