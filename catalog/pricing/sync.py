"""Reads public price sources and adds what is new. One run at a time; each source is added whole or not at all.

Each row of a feed has one outcome: read = new + changed + confirmed + held + skipped. A row behind several offers
counts as what happened to the most eventful of them.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import structlog
from django.db import IntegrityError, transaction

from catalog import clock
from catalog.importers.prices import Account, Offer, hosted
from catalog.loading import fixtures, load
from catalog.loading.fixtures import FixtureError, Row
from catalog.models import Accelerator, ApiPrice, ApiProvider, Availability, Price, PriceRefresh, PriceSource
from catalog.pricing import hosted_checks, imports
from catalog.pricing.current import STALE_DAYS, by_age
from catalog.pricing.derived import current_offers
from catalog.pricing.download import Unreachable, session
from catalog.pricing.sources import Download, Source, cloud_of, named

log = structlog.get_logger("assay.prices")
LEASE = timedelta(hours=1)
CONFIRM_DAYS = 7  # an unchanged price is stored again, with its new date, after this time
MAX_MODELS = 500  # that a source lists and the catalog lacks, in a report
MAX_LINES = 50  # of each kind in a report
Offers = dict[tuple[Any, ...], tuple[date, Any]]  # newest date and price of each offer
OUTCOMES = ("new", "changed", "confirmed", "held")  # the most eventful first
SAME_FRACTION = 0.001  # prices that differ by less are one price, rounded differently
SAME_DECIMALS = 2  # or rounded to at least as many
FILE_DAY = re.compile(r"20\d\d-[01]\d-[0-3]\d")
CARRIED = (  # of a hosted model: what a price list without them does not take away
    *("output_tokens_per_s", "ttft_ms", "speed_kind", "speed_as_of", "speed_source", "quantization", "hardware"),
    *("notes", "max_input_tokens"),
)


class AlreadyRunning(Exception):
    """Another run of `prices sync` has not finished."""


@dataclass(kw_only=True, slots=True)
class Read:
    """What reading one source did, in rows of the feed. `new` and `changed` are lines for people, at most MAX_LINES.

    read = added + changed_prices + confirmed + held + the sum of `skipped`.
    """

    source: str
    as_of: str = ""  # the day of the data
    dated_by: str = ""  # what states it
    read: int = 0
    error: str = ""  # nothing of this source was changed
    not_modified: bool = False  # the source has not changed since the last time
    added: int = 0  # offers that were not known
    changed_prices: int = 0
    confirmed: int = 0  # same price, read again
    held: int = 0
    skipped: dict[str, int] = field(default_factory=dict)  # by reason
    sold_out: int = 0  # offers that the source says are sold out
    offers: dict[str, int] = field(default_factory=dict)  # of all, by outcome: one row may make several
    proposed: dict[str, str] = field(default_factory=dict)  # instances and chips that the catalog lacks
    listed: dict[str, int] = field(default_factory=dict)  # offers of each of them
    models: list[dict[str, Any]] = field(default_factory=list)  # hosted models that the catalog lacks, most used first
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


def downloaded(
    names: Sequence[str], file: Path | None = None, as_of: date | None = None, cloud: str = ""
) -> list[tuple[Source, Download | str]]:
    """Each source with what it answered, or with the reason why it could not be read. Changes no price.

    `as_of` and `cloud`: the day of a file, and the cloud that it is of, where the file does not say.
    FixtureError: no such source or cloud, or a day in the future.
    """
    opened = session()
    found: list[tuple[Source, Download | str]] = []
    for source in map(named, names):
        if file is not None:
            found.append((source, _from_file(source, file, as_of, cloud)))
            continue
        known = PriceSource.objects.filter(name=source.name).first()
        try:
            answer: Download | str = source.download(opened, known.etags if known else {})
        except Unreachable as error:
            answer = str(error)
        found.append((source, answer))
    return found


def _from_file(source: Source, file: Path, as_of: date | None, cloud: str) -> Download:
    """A file as if it was downloaded on its own day."""
    text = file.read_text(encoding="utf-8")
    today = clock.today()
    if as_of and as_of > today:
        raise FixtureError(f"{as_of} is in the future; give the day of the data with --as-of")
    day, dated_by = str(as_of or ""), "--as-of"
    if not day and (named_days := FILE_DAY.findall(file.name)):
        day, dated_by = named_days[-1], "the name of the file"
    if not day:
        day, dated_by = source.newest(text), "the newest day in the file"
    if not day:
        written = datetime.fromtimestamp(file.stat().st_mtime, UTC).date()
        day, dated_by = written.isoformat(), "the time of the file; give --as-of if its data are older"
    name = cloud_of(file, cloud) if source.by_cloud else file.stem
    return Download(texts={name: text}, as_of=min(day, today.isoformat()), dated_by=dated_by)


def add(source: Source, answer: Download | str, by: str, day: date) -> Read:
    """Adds the new prices of one source; on an error, none."""
    done = Read(source=source.name)
    try:
        if isinstance(answer, str):
            raise Unreachable(answer)
        done.not_modified = not answer.texts
        done.as_of, done.dated_by = answer.as_of or day.isoformat(), answer.dated_by
        account = Account()
        rows = [row for name, text in answer.texts.items() for row in source.rows(name, text, done.as_of, account)]
        done.read, done.skipped, done.proposed, done.listed = (
            account.read, account.skipped, account.proposed, account.listed
        )  # fmt: skip
        done.models = sorted(account.models.values(), key=by_use)[:MAX_MODELS]
        with transaction.atomic():
            store(source, rows, by, done, account.gone)
    except (Unreachable, FixtureError) as error:
        done = Read(source=source.name, error=str(error))
    _note(source, answer, done.error)
    log.info("price source read", source=source.name, added=done.added, held=done.held, error=done.error)
    return done


def by_use(model: Mapping[str, Any]) -> tuple[Any, ...]:
    """Sort key of hosted models: the most tokens first, then the most providers."""
    return -model["tokens"], -len(model["providers"]), model["name"]


def _note(source: Source, answer: Download | str, error: str) -> None:
    now = clock.read()
    row, _ = PriceSource.objects.get_or_create(name=source.name, defaults={"tried_at": now})
    row.tried_at, row.error = now, error
    if not error and isinstance(answer, Download):
        row.read_at, row.etags = now, {**row.etags, **answer.etags}
    row.save()


Outcome = str  # of OUTCOMES, or why an offer is skipped
STOPPED = "is from a provider that withdrew all its models in the catalog, and this list keeps what is gone"


def store(source: Source, offers: Sequence[Offer], by: str, done: Read, gone: Sequence[Row] = ()) -> imports.Imported:
    """Adds the offers that are new, changed or confirmed, holds what looks like a mistake, and counts all in `done`.

    gone: what the source says about the availability of offers without a price.
    """
    return _add_hosted(source, offers, by, done) if source.hosted else _add_prices(source, offers, gone, by, done)


def _add_prices(source: Source, offers: Sequence[Offer], gone: Sequence[Row], by: str, done: Read) -> imports.Imported:
    chips = set(Accelerator.objects.values_list("slug", flat=True))
    units = load.known_units()
    given: list[tuple[Offer, Row]] = []
    outcomes: list[tuple[Offer, Outcome]] = []
    for offer in offers:
        if offer["accelerator"] not in chips:
            outcomes.append((offer, "accelerator not in the catalog"))
            continue
        row = _readable(source, offer)
        if row is None:
            outcomes.append((offer, "unreadable row"))
        elif load.lacks_unit(row, units):
            outcomes.append((offer, "priced per accelerator, and fixtures/smallest_units.csv has no line for it"))
        else:
            given.append((offer, row))
    names = ("provider", "instance", "region", "accelerator__slug", "term", "as_of", "usd_per_hour", "purchase_usd")
    known: Offers = {}
    for *key, as_of, usd, purchase_usd in Price.objects.filter(organisation=None).values_list(*names):
        name = tuple(key)
        if name not in known or known[name][0] < as_of:
            known[name] = as_of, usd or purchase_usd
    wanted, skipped = _worth_storing(
        given,
        known,
        lambda row: (row["provider"], row["instance"], row["region"] or "", row["accelerator"], row["term"]),
        lambda row: row["usd_per_hour"] or row["purchase_usd"],
        done,
    )
    imported = imports.add(
        [row for _, row, _ in wanted], source.name, f"{source.name} {done.as_of}", by, None,
        [offer.hold for offer, _, _ in wanted],
    )  # fmt: skip
    stated = [*(row for _, row in given), *(row for row in gone if row["accelerator"] in chips)]
    load.append_availability(stated)
    done.sold_out = sum(row["availability"] == Availability.State.SOLD_OUT for row in stated)
    _settle(done, [*outcomes, *skipped], wanted, imported)
    return imported


def _readable(source: Source, offer: Offer) -> Row | None:
    """The row of an offer; None if a figure of the feed cannot be one. FixtureError: the reader made a mistake."""
    try:
        return fixtures.price(source.name, offer)
    except FixtureError:
        if offer["term"] not in fixtures.TERMS:
            raise
        return None


def _add_hosted(source: Source, offers: Sequence[Offer], by: str, done: Read) -> imports.Imported:
    endpoints = _endpoints()
    given: list[tuple[Offer, Row]] = []
    outcomes: list[tuple[Offer, Outcome]] = []
    holds: dict[int, str] = {}
    known: Offers = {
        key: (row.as_of, tuple(getattr(row, name) for name in load.API_FIGURES)) for key, row in endpoints.items()
    }
    by_model: dict[tuple[str, str], list[ApiPrice]] = {}
    for stored in endpoints.values():
        by_model.setdefault((stored.provider, stored.model.slug), []).append(stored)
    offered = {provider for (provider, _), row in endpoints.items() if not row.withdrawn}
    doubtful = {provider for provider, _ in endpoints} - offered  # all that the catalog knows of them is withdrawn
    left = set(ApiProvider.objects.exclude(withdrawn=None).values_list("slug", flat=True)) - offered
    seen: set[tuple[Any, ...]] = set()
    for offer in sorted(offers, key=lambda each: _plainness(each, endpoints)):
        try:
            row = fixtures.api_price(source.name, offer)
        except FixtureError:
            outcomes.append((offer, "unreadable row"))
            continue
        of_model = by_model.get((row["provider"], row["model"]), [])
        before = _same_endpoint(row, of_model)
        if before is not None:
            row["name"] = before.name
            for name in CARRIED:
                row[name] = row.get(name) or getattr(before, name)
        reason, hold = _withdrawal(source, row, before, of_model)
        if before is None and not of_model and source.keeps_withdrawn and not reason:
            reason = "the provider stopped selling API access per token" if row["provider"] in left else ""
            hold = STOPPED if row["provider"] in doubtful else hold
        marks = _marks(row)
        if reason:
            outcomes.append((offer, reason))
        elif marks & seen:
            outcomes.append((offer, "another name or region of an endpoint"))
        else:
            seen |= marks
            holds[len(given)] = hold or (hosted_checks.jump(before, row) if before else "")
            given.append((offer, row))
    order = {id(row): place for place, (_, row) in enumerate(given)}
    wanted, skipped = _worth_storing(
        given,
        known,
        lambda row: (row["provider"], row["name"]),
        lambda row: tuple(row[name] for name in load.API_FIGURES),
        done,
    )
    market = hosted_checks.market_of(endpoints.values(), date.fromisoformat(done.as_of))
    market = hosted_checks.with_rows(market, [row for _, row, _ in wanted])
    reasons = [holds[order[id(row)]] or hosted_checks.suspicion({**row, **offer}, market) for offer, row, _ in wanted]
    imported = imports.keep(
        [row for _, row, _ in wanted], reasons, source.name, f"{source.name} {done.as_of}", by, None
    )
    _settle(done, [*outcomes, *skipped], wanted, imported)
    return imported


def _endpoints() -> dict[tuple[str, str], ApiPrice]:
    """The newest row of each endpoint."""
    rows = ApiPrice.objects.select_related("model").order_by("as_of", "pk")
    return {(row.provider, row.name): row for row in rows}


def _same_endpoint(row: Row, of_model: Sequence[ApiPrice]) -> ApiPrice | None:
    """The endpoint of the provider that this row is of: the same name, or the same in another spelling."""
    exact = [stored for stored in of_model if stored.name == row["name"]]
    alike = [stored for stored in of_model if _tail(stored.name) == _tail(row["name"])]
    loose = [stored for stored in of_model if hosted.spelled(stored.name) == hosted.spelled(row["name"])]
    return next(iter(exact or alike or (loose if len(loose) == 1 else ())), None)


def _tail(name: str) -> str:
    return re.sub(r"[^a-z0-9:@]+", "", name.split("/")[-1].lower())


def _plainness(offer: Offer, endpoints: Mapping[tuple[str, str], ApiPrice]) -> tuple[bool, int]:
    """Sort key: known names first, then the shortest; those of regions are longer."""
    return (offer["provider"], offer["name"]) not in endpoints, len(offer["name"])


def _marks(row: Row) -> set[tuple[Any, ...]]:
    """What two rows have in common if they are one endpoint in other regions, or under another name at one price."""
    model = (row["provider"], row["model"])
    tail = _tail(hosted.ARN.sub("", row["name"].split("/")[-1].lower()))
    return {(*model, tail), (*model, hosted.spelled(row["name"]), _figures(row))}


def _withdrawal(source: Source, row: Row, before: ApiPrice | None, of_model: Sequence[ApiPrice]) -> tuple[str, str]:
    """Why an endpoint is not offered, and why a person has to decide on it; both empty: neither.

    A provider's withdrawal stands until a list that drops what is gone has the model again, with a newer date.
    """
    if row.get("withdrawn") and (before is None or before.withdrawn):
        return "withdrawn by the provider", ""
    gone = [stored for stored in ([before] if before else of_model) if stored.withdrawn]
    if not gone or (before is None and len(gone) < len(of_model)):
        return "", ""
    last = max(gone, key=lambda stored: (stored.withdrawn, stored.as_of))
    if row["as_of"] <= last.withdrawn:
        return "withdrawn by the provider", ""
    if not source.keeps_withdrawn:
        return "", ""
    if before is None or _same_price(_figures(before), _figures(row)):
        return "withdrawn by the provider, and this list keeps what is gone", ""
    return "", f"was withdrawn on {last.withdrawn}, and this list, which keeps what is gone, has another price now"


def _figures(row: ApiPrice | Row) -> tuple[Any, ...]:
    return tuple(row[name] if isinstance(row, dict) else getattr(row, name) for name in load.API_FIGURES)


def _worth_storing(
    rows: Sequence[tuple[Offer, Row]],
    known: Offers,
    key: Callable[[Row], tuple[Any, ...]],
    price: Callable[[Row], Any],
    done: Read,
) -> tuple[list[tuple[Offer, Row, Outcome]], list[tuple[Offer, Outcome]]]:
    """The rows that are new, changed, or unchanged for CONFIRM_DAYS; and why others are not stored.

    The first of each offer.
    """
    kept: dict[tuple[Any, ...], tuple[Offer, Row, Outcome]] = {}
    skipped: list[tuple[Offer, Outcome]] = []
    for source_row, row in rows:
        offer = key(row)
        last, usd = known.get(offer, (None, None))
        same = last is not None and _same_price(usd, price(row)) and not row.get("withdrawn")
        if offer in kept:
            skipped.append((source_row, "second price of an offer"))
        elif last is not None and last >= row["as_of"]:
            day = "the same day" if last == row["as_of"] else "a later day"
            skipped.append((source_row, f"the catalog has a price of {day}"))
        elif same and last is not None and (row["as_of"] - last).days < CONFIRM_DAYS:
            skipped.append((source_row, f"unchanged for less than {CONFIRM_DAYS} days"))
        else:
            outcome = "new" if last is None else "confirmed" if same else "changed"
            kept[offer] = source_row, row, outcome
            name = " ".join(str(part) for part in offer if part)
            if outcome == "new":
                done.new.append(f"{name}: {_shown(price(row))}")
            elif outcome == "changed":
                now = f"withdrawn {gone}" if (gone := row.get("withdrawn")) else _shown(price(row))
                done.changed.append(f"{name}: {_shown(usd)} -> {now} ({last} -> {row['as_of']})")
    return list(kept.values()), skipped


def _settle(
    done: Read,
    skipped: Sequence[tuple[Offer, Outcome]],
    wanted: Sequence[tuple[Offer, Row, Outcome]],
    imported: imports.Imported,
) -> None:
    """Counts each row of the feed once: as the most eventful outcome of the offers that it is behind."""
    outcomes = list(skipped)
    for (offer, _, outcome), verdict in zip(wanted, imported.verdicts, strict=True):
        if verdict == "discarded":
            outcome = "discarded by a person before"
        outcomes.append((offer, "held" if verdict == "held" else outcome))
    rank = {outcome: place for place, outcome in enumerate(OUTCOMES)}
    of_row: dict[int, Outcome] = {}
    for offer, outcome in outcomes:
        done.offers[outcome] = done.offers.get(outcome, 0) + 1
        for number in offer.rows:
            if number not in of_row or rank.get(outcome, len(rank)) < rank.get(of_row[number], len(rank)):
                of_row[number] = outcome
    for outcome in of_row.values():
        if outcome not in rank:
            done.skipped[outcome] = done.skipped.get(outcome, 0) + 1
    counted = [sum(each == outcome for each in of_row.values()) for outcome in OUTCOMES]
    done.added, done.changed_prices, done.confirmed, done.held = counted
    done.quarantined = [f"{imports.offer_name(held.row)}: {held.reason}" for held in imported.held[:MAX_LINES]]
    del done.new[MAX_LINES:], done.changed[MAX_LINES:]


def _same_price(old: Any, new: Any) -> bool:
    """Whether two prices, or tuples of them, are the same but for rounding."""
    if isinstance(old, tuple):
        return all(_same_price(one, other) for one, other in zip(old, new, strict=True))
    if old is None or new is None or old == new:
        return bool(old == new)
    a, b = Decimal(old).normalize(), Decimal(new).normalize()
    coarse, fine = sorted((a, b), key=lambda usd: -int(usd.as_tuple().exponent))
    decimals = -int(coarse.as_tuple().exponent)
    rounded = decimals >= SAME_DECIMALS and fine.quantize(Decimal(1).scaleb(-decimals)) == coarse
    return rounded or abs(a - b) <= Decimal(SAME_FRACTION) * max(a, b)


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
    return {name: n for name, n in by_age(current_offers().values_list("as_of", flat=True), day).items() if n}


def as_json(done: Read) -> dict[str, Any]:
    return asdict(done)
