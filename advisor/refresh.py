"""Refreshes prices from public sources and reports which saved answers change with them.

Off until `ASSAY_PRICE_SOURCES` names a source, or an operator runs `manage.py prices sync --from NAME`.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from datetime import date
from pathlib import Path
from typing import Any

import requests
import structlog
from django.conf import settings
from django.core.mail import send_mail
from django.db import transaction
from django.db.models import Q
from kombu.exceptions import ChannelError
from kombu.exceptions import OperationalError as BrokerError

from advisor import answer, inputs, webhooks
from advisor.celery import app
from advisor.engine.terms import release_key, usd_text
from advisor.models import Advice
from catalog import clock
from catalog.models import (
    ApiPrice,
    Calibration,
    CatalogLoad,
    Framework,
    Organisation,
    Price,
    PriceRefresh,
    PriceSource,
)
from catalog.pricing import imports, sync
from catalog.pricing.sources import SOURCES

log = structlog.get_logger("assay.prices")
State = PriceRefresh.State
Json = dict[str, Any]
Offer = tuple[str, ...]
Paid = tuple[float | None, float | None]
PRICED = ("prices", "other_terms", "serverless", "hosted")  # the parts of a snapshot that hold prices
VERSIONS = ("engine_version", "catalog_version", "asked_on", "prices_as_of", "parts")
ALL = tuple(each.name for each in fields(inputs.Snapshot) if each.name not in VERSIONS)
WEBHOOK_TIMEOUT_S = 10
LACKING_SHOWN = 20
MODELS_SHOWN = 5
MOVED_ANSWERS = 20


class NoSource(ValueError):
    """No source is named or turned on."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """A saved answer with another first choice or another cost at the new prices."""

    advice: str
    organisation: int
    name: str
    what: str  # winner | cost | feasibility
    before: str  # label of the first choice; empty: nothing met the limits
    after: str
    usd_per_month_before: float | None
    usd_per_month_after: float | None
    change_fraction: float | None  # of the cost


def run(
    names: Sequence[str], by: str, file: Path | None = None, as_of: date | None = None, cloud: str = ""
) -> PriceRefresh:
    """Reads the named sources, or those that are turned on, and stores the report.

    `as_of` and `cloud`: of `file`, where it does not say. Raises NoSource, sync.AlreadyRunning, FixtureError (unknown
    name or cloud, day in the future) and OSError (`file` cannot be read).
    """
    names = list(names) or settings.PRICE_SOURCES
    if not names:
        raise NoSource(
            "no price source is turned on; name one with --from, or set ASSAY_PRICE_SOURCES, such as "
            f"azure,openrouter (of {', '.join(SOURCES)})"
        )
    with sync.only_one(by) as row:
        answers = sync.downloaded(names, file, as_of, cloud)
        is_new = any(not isinstance(found, str) and found.texts for _, found in answers)
        day = clock.today()
        _reported(row, is_new, lambda: [sync.as_json(sync.add(source, found, by, day)) for source, found in answers])
    notify(row)
    return row


def run_with(by: str, act: Callable[[], list[Json]]) -> PriceRefresh:
    """One run in which `act` adds prices and says what it did with each source; stores the report.

    Raises sync.AlreadyRunning, and whatever `act` raises.
    """
    with sync.only_one(by) as row:
        _reported(row, True, act)
    notify(row)
    return row


def compare(by: str, organisation: Organisation | None = None) -> PriceRefresh:
    """Computes the newest saved answers again with the data of today, against the data that they rest on.

    organisation: whose; None: of all. Stores the report like a refresh. Raises sync.AlreadyRunning.
    """
    with sync.only_one(by) as row:
        watched = [advice for advice in _watched(organisation) if advice.snapshot]
        stored = [inputs.Snapshot.read(advice.snapshot or {}) for advice in watched]
        changed = [change for pair in zip(watched, stored, strict=True) if (change := _change(*pair, ALL))]
        with transaction.atomic():
            _ended(row, [], changed, watched)
            _tell_winners(row, changed, watched)
    return row


def start_comparison(organisation: Organisation, by: str) -> str:
    """Has a worker compare the answers of an organization. Why it cannot; empty: it was started."""
    if PriceRefresh.objects.filter(finished_at=None, lease_until__gte=clock.now()).exists():
        return "Prices are being refreshed, or answers compared, already. Try again later."
    try:
        app.send_task("answers.compare", args=[organisation.pk, by])
    except (BrokerError, ChannelError, OSError) as error:
        log.warning("broker not available", error=str(error))
        return "The workers cannot be reached. Try again later."
    return ""


def _reported(row: PriceRefresh, is_new: bool, act: Callable[[], list[Json]]) -> None:
    """Acts, compares saved answers before and after where there is something new, and ends the run with its report."""
    watched = _watched() if is_new else []
    before = [inputs.take_snapshot(advice.workload.spec, advice.organisation) for advice in watched]
    done = act()
    changed = [change for pair in zip(watched, before, strict=True) if (change := _change(*pair))]
    with transaction.atomic():
        _ended(row, done, changed, watched)
        _tell_winners(row, changed, watched)


def _tell_winners(row: PriceRefresh, changed: Sequence[Change], watched: Sequence[Advice]) -> None:
    """Tells organizations whose answers would have another first choice."""
    for advice, change in ((a, c) for c in changed for a in watched if str(a.pk) == c.advice and c.what != "cost"):
        before, after = (
            {"label": getattr(change, when), "usd_per_month": getattr(change, f"usd_per_month_{when}")}
            for when in ("before", "after")
        )
        webhooks.winner_changed(advice, f"refresh {row.pk}", before, after)


@contextmanager
def told_of_moves(owner: Organisation | None) -> Iterator[None]:
    """Tells the organizations that see prices of `owner` (None: all) which of those they rely on differ afterwards."""
    watching = [(each, *_relied(each)) for each in webhooks.subscribers("price.moved", owner)]
    yield
    for each, uses, before in watching:
        after = _paid(each, uses)
        moved = [_move(uses[offer], before.get(offer), after.get(offer))
                 for offer in uses if before.get(offer) != after.get(offer)]  # fmt: skip
        webhooks.prices_moved(each, moved)


Uses = Mapping[Offer, tuple[Json, list[str]]]  # an option, and the answers with this offer


def _relied(organisation: Organisation) -> tuple[Uses, dict[Offer, Paid]]:
    """The offers of an organization's current answers, and what it pays for them now."""
    uses: dict[Offer, tuple[Json, list[str]]] = {}
    for advice in _watched(organisation):
        found = advice.answer or {}
        alone = (each["option"] for each in (found.get("portfolio") or {}).get("alone", ()))
        for option in (*found.get("recommendations", ()), *filter(None, alone)):
            uses.setdefault(_offer(option), (option, []))[1].append(str(advice.pk))
    return uses, _paid(organisation, uses)


def _paid(organisation: Organisation, uses: Uses) -> dict[Offer, Paid]:
    """What the organization pays for these offers: per hour and to buy, or per million input and output tokens."""
    sellers, day = {offer[0] for offer in uses}, clock.today()
    found: dict[Offer, Paid] = {
        (row["provider"], row["name"]): (row["usd_per_mtok_input"], row["usd_per_mtok_output"])
        for row in inputs.hosted_apis.paid(ApiPrice.objects.filter(provider__in=sellers), organisation, day)
    }
    for row in inputs.offers.paid(sellers, organisation, day):
        offer = tuple(row[name] for name in ("provider", "instance", "region", "accelerator", "term"))
        found[offer] = row["usd_per_hour"], row["purchase_usd"]
    return found


def _move(use: tuple[Json, list[str]], before: Paid | None, after: Paid | None) -> Json:
    option, answers = use
    units = ("input", "output") if option["acquisition"] == "api" else ("per_hour", "purchase")
    named = {name: option.get(name) for name in ("provider", "instance", "region", "accelerator", "term")}
    usd = {f"usd_{when}": dict(zip(units, paid or (None, None), strict=True))
           for when, paid in (("before", before), ("after", after))}  # fmt: skip
    return {**named, **usd, "answers": sorted(set(answers))[:MOVED_ANSWERS]}


def _ended(row: PriceRefresh, done: list[Json], changed: Sequence[Change], watched: Sequence[Advice]) -> None:
    """Ends a run with its report."""
    report = {
        "date": clock.today().isoformat(),
        "sources": done,
        "stale": sync.stale_offers(clock.today()),
        "answers_checked": len(watched),
        "answers_changed": [asdict(change) for change in changed],
        "threshold_fraction": settings.PRICE_CHANGE_FRACTION,
    }
    failed = bool(done) and all(each["error"] for each in done)
    sync.finish(row, State.FAILED if failed else State.DONE, report, done[0]["error"] if failed else "")


def _watched(organisation: Organisation | None = None) -> list[Advice]:
    """The newest finished answers of an organization, by default of all, one for each workload, at today's prices."""
    rows = Advice.objects.filter(state=Advice.State.DONE).select_related("workload", "organisation")
    rows = rows.filter(organisation=organisation) if organisation else rows
    found: dict[tuple[int, str], Advice] = {}
    for advice in rows.defer("snapshot", "result").order_by("-created_at")[: 10 * settings.PRICE_WATCHED]:
        spec = advice.workload.spec
        if not spec.get("prices_as_of") and len(found) < settings.PRICE_WATCHED:
            found.setdefault((advice.organisation_id, repr(spec)), advice)
    return list(found.values())


def _change(advice: Advice, before: inputs.Snapshot, parts: Sequence[str] = PRICED) -> Change | None:
    """How the answer changes from the data before to those of today; None if by less than the threshold.

    parts: fields of a snapshot; where these are equal, so is the answer.
    """
    spec = advice.workload.spec
    after = inputs.take_snapshot(spec, advice.organisation)
    if _parts(before, parts) == _parts(after, parts):
        return None
    try:
        old, new = (_first(answer.recommend(spec, snapshot)) for snapshot in (before, after))
    except Exception:  # an answer that cannot be computed must not stop the refresh
        log.exception("answer not compared", advice=str(advice.pk))
        return None
    fraction = new[1] / old[1] - 1 if old[1] and new[1] else None
    what = "feasibility" if bool(old[0]) != bool(new[0]) else "winner" if old[0] != new[0] else "cost"
    if what == "cost" and abs(fraction or 0.0) < settings.PRICE_CHANGE_FRACTION:
        return None
    return Change(
        advice=str(advice.pk),
        organisation=advice.organisation_id,
        name=advice.workload.name,
        what=what,
        before=old[0],
        after=new[0],
        usd_per_month_before=old[1],
        usd_per_month_after=new[1],
        change_fraction=fraction,
    )


def _parts(snapshot: inputs.Snapshot, names: Sequence[str]) -> list[Any]:
    return [getattr(part, name) for part in snapshot.parts or (snapshot,) for name in names]


def _first(found: Any) -> tuple[str, float | None]:
    """Label and monthly cost of the first choice."""
    if found.portfolio is not None:
        return found.verdict, found.portfolio.alone_usd_per_month
    options = found.recommendations
    return (options[0].label, options[0].usd_per_month) if options else ("", None)


@dataclass(frozen=True, kw_only=True, slots=True)
class Resting:
    """A saved answer and what it rests on that is newer now; nothing was computed again."""

    advice: str
    organisation: str
    name: str
    asked_on: str
    newer: list[str]  # in words; empty: it rests on the newest data


def resting(organisation: Organisation | None = None) -> list[Resting]:
    """The newest saved answers, those that PRICE_WATCHED counts, with what is newer now."""
    load = CatalogLoad.objects.order_by("-pk").first()
    frameworks: dict[str, Framework] = {}
    for row in sorted(Framework.objects.order_by("as_of", "pk"), key=lambda row: release_key(row.version) or ()):
        frameworks[row.slug] = row
    calibrations = Calibration.objects.of_everyone().order_by("pk").values_list("organisation", "name", "pk")
    newest = {(owner, name): pk for owner, name, pk in calibrations}
    return [
        Resting(
            advice=str(advice.pk),
            organisation=advice.organisation.slug,
            name=advice.workload.name,
            asked_on=advice.created_at.date().isoformat(),
            newer=[*_newer_data(advice, load, newest), *_newer_parts(advice, frameworks)],
        )
        for advice in _watched(organisation)
    ]


def _newer_data(
    advice: Advice, load: CatalogLoad | None, newest: Mapping[tuple[int | None, str], int]
) -> Iterator[str]:
    if load and load.version != advice.catalog_version:
        yield f"the catalog: version {load.version[:12]} of {load.loaded_at:%Y-%m-%d}"
    used = Calibration.objects.seen_by(advice.organisation).filter(pk__in=advice.calibration_ids)
    rows = used.values_list("organisation", "name", "pk")
    names = sorted({name for owner, name, pk in rows if newest[owner, name] != pk})
    if names:
        yield f"calibrations: {', '.join(names[:3])}{' and more' if len(names) > 3 else ''}"


def _newer_parts(advice: Advice, frameworks: Mapping[str, Framework]) -> Iterator[str]:
    """Newer prices and framework versions of the options."""
    options = [o for o in (advice.answer or {}).get("recommendations", ()) if o.get("price_as_of")]
    read = _prices_since(options, advice.organisation) if options else {}
    said: dict[str, None] = {}
    for option in options:
        now = frameworks.get(option.get("framework") or "")
        if now is not None and option.get("framework_version") not in ("", None, now.version):
            said[f"{now.name} {now.version} instead of {option['framework_version']}"] = None
        rows = [row for row in read.get(_offer(option), ()) if row[0].isoformat() >= option["price_as_of"]]
        if len(rows) > 1 and rows[0][1:] != rows[-1][1:]:
            before, after = (" / ".join(usd_text(float(usd)) for usd in row[1:] if usd) for row in (rows[0], rows[-1]))
            said[f"{option['provider']} {option['instance']}: {after} on {rows[-1][0]} instead of {before}"] = None
    yield from said


SEVERAL = re.compile(r"\(\d+ (GPU|chip)s\)")  # how an option names several chips of an offer that is priced per chip


def _offer(option: Mapping[str, Any]) -> Offer:
    instance = SEVERAL.sub(r"(per \1)", option["instance"])
    if option["acquisition"] == "api":
        return option["provider"], instance
    return option["provider"], instance, *(option.get(name) or "" for name in ("region", "accelerator", "term"))


def _prices_since(options: Sequence[Mapping[str, Any]], organisation: Organisation) -> dict[Offer, list[Any]]:
    """(day, prices) of each offer of these sellers since the oldest price of the options, oldest first."""
    rows = Q(provider__in={o["provider"] for o in options}, as_of__gte=min(o["price_as_of"] for o in options))
    found: dict[Offer, list[Any]] = {}
    own = Q(organisation=None) | Q(organisation=organisation)
    names = ("provider", "instance", "region", "accelerator__slug", "term")
    prices = Price.objects.filter(rows & own, accelerator__slug__in={o.get("accelerator") or "" for o in options})
    for *offer, day, hourly, bought in prices.order_by("as_of", "pk").values_list(
        *names, "as_of", "usd_per_hour", "purchase_usd"
    ):
        found.setdefault(tuple(offer), []).append((day, hourly, bought))
    hosted = ApiPrice.objects.filter(rows).order_by("as_of", "pk")
    for *offer, day, read, written in hosted.values_list(
        "provider", "name", "as_of", "usd_per_mtok_input", "usd_per_mtok_output"
    ):
        found.setdefault(tuple(offer), []).append((day, read, written))
    return found


def changes_for(report: Mapping[str, Any], organisation: Organisation) -> list[Json]:
    """The changes of a report that are of this organization's answers."""
    mine = {str(pk) for pk in Advice.objects.filter(organisation=organisation).values_list("pk", flat=True)}
    return [change for change in report.get("answers_changed", ()) if change["advice"] in mine]


def resting_lines(found: Sequence[Resting]) -> list[str]:
    """The same in words, for a terminal."""
    old = [row for row in found if row.newer]
    told = [f"saved answers: {len(found)} newest, {len(old)} rest on older data"]
    return told + [f"  {row.name} of {row.asked_on} ({row.organisation}): {'; '.join(row.newer)}" for row in old]


def status() -> dict[str, Any]:
    """Each source, how old the current public offers are, how many prices wait, and when a refresh last ended."""
    known = {row.name: row for row in PriceSource.objects.all()}
    sources = []
    for name, source in SOURCES.items():
        row = known.get(name)
        sources.append(
            {
                "name": name,
                "title": source.title,
                "address": source.address,
                "on": name in settings.PRICE_SOURCES,
                "needs": source.needs,
                "read_at": f"{row.read_at:%Y-%m-%d %H:%M}" if row and row.read_at else None,
                "error": row.error if row else "",
            }
        )
    last = PriceRefresh.objects.exclude(finished_at=None).first()
    return {
        "sources": sources,
        "offers_by_age": sync.offers_by_age(clock.today()),
        "held": len(imports.waiting()),
        "last_refresh": f"{last.finished_at:%Y-%m-%d %H:%M} {last.state}" if last and last.finished_at else None,
    }


# --- telling people -----------------------------------------------------------------------------------------------


def lines(row: PriceRefresh) -> list[str]:
    """The report in words."""
    report = row.report
    if not report:
        return [f"price refresh of {row.started_at:%Y-%m-%d %H:%M}: {row.state}{': ' + row.error if row.error else ''}"]
    told = [_source_line(done) for done in report["sources"]]
    for done in report["sources"]:
        told += [f"  changed {line}" for line in done["changed"][:10]]
        told += [f"  held {line}" for line in done["quarantined"][:10]]
        told += [f"  skipped {count}: {reason}" for reason, count in sorted(done["skipped"].items(), key=_most_first)]
        offers = done.get("listed", {})
        lacking = sorted(done.get("proposed", {}).items(), key=lambda pair: -offers.get(pair[0], 0))
        if names := [model["name"] for model in done.get("models", ())]:
            told.append(f"  models not in the catalog: {len(names)}, first {', '.join(names[:MODELS_SHOWN])}")
        told += [f"  not in the catalog: {name}: {what}" for name, what in lacking[:LACKING_SHOWN]]
        told += [f"  not in the catalog: {len(lacking) - LACKING_SHOWN} more"] if len(lacking) > LACKING_SHOWN else []
    if stale := report["stale"]:
        told.append(f"offers read over 90 days ago: {sum(stale.values())} ({_counted(stale)})")
    told.append(
        f"saved answers: {report['answers_checked']} checked; {len(report['answers_changed'])} have another first "
        f"choice, or a cost that differs by more than {report['threshold_fraction']:.0%}"
    )
    return told + [f"  {change_line(change)}" for change in report["answers_changed"]]


def _most_first(counted: tuple[str, int]) -> tuple[int, str]:
    return -counted[1], counted[0]


def _source_line(done: Json) -> str:
    if done["error"]:
        return f"{done['source']}: not read: {done['error']}"
    if done["not_modified"]:
        return f"{done['source']}: unchanged since the last time"
    skipped = sum(done["skipped"].values())
    gone = f", {done['sold_out']} sold out" if done.get("sold_out") else ""
    dated = f" of {done['as_of']} (by {done['dated_by']})" if done.get("dated_by") else ""
    return (
        f"{done['source']}{dated}: {done['added']} new, {done['changed_prices']} changed, "
        f"{done['confirmed']} confirmed, {done['held']} held, {skipped} skipped of {done.get('read', 0)} rows read"
        f"{gone}"
    )


def _counted(counts: dict[str, int]) -> str:
    shown = [f"{name} {count}" for name, count in list(counts.items())[:5]]
    return ", ".join(shown) + (f" and {len(counts) - 5} more providers" if len(counts) > 5 else "")


def change_line(change: Json) -> str:
    """One changed answer in words."""
    cost = [_usd(change[f"usd_per_month_{when}"]) for when in ("before", "after")]
    if change["what"] == "cost":
        return f"{change['name']}: {change['after']} costs {cost[1]} instead of {cost[0]} a month"
    before, after = (change[when] or "no deployment" for when in ("before", "after"))
    return f"{change['name']}: {after} ({cost[1]} a month) instead of {before} ({cost[0]})"


def _usd(usd: float | None) -> str:
    return "no price" if usd is None else f"{usd_text(usd)}"


def notify(row: PriceRefresh) -> None:
    """Sends the report to the webhook and the addresses in the settings; a failure is only logged."""
    if settings.PRICE_WEBHOOK_URL:
        body = {"state": row.state, "started_at": row.started_at.isoformat(), "error": row.error, "report": row.report}
        try:
            requests.post(settings.PRICE_WEBHOOK_URL, json=body, timeout=WEBHOOK_TIMEOUT_S).raise_for_status()
        except requests.RequestException as error:
            log.warning("webhook failed", error=type(error).__name__)
    if settings.PRICE_EMAILS:
        changed = len(row.report.get("answers_changed", ()))
        title = f"Assay prices of {row.started_at:%Y-%m-%d}: {row.state}, {changed} saved answers change"
        try:
            send_mail(title, "\n".join(lines(row)), None, settings.PRICE_EMAILS)
        except OSError as error:
            log.warning("e-mail failed", error=type(error).__name__)
