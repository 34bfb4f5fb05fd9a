"""Refreshes prices from public sources and reports which saved answers change with them.

Off until `ASSAY_PRICE_SOURCES` names a source, or an operator runs `manage.py prices sync --from NAME`.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path
from typing import Any

import requests
import structlog
from django.conf import settings
from django.core.mail import send_mail

from advisor import answer, inputs
from advisor.engine.terms import usd_text
from advisor.models import Advice
from catalog import clock
from catalog.models import PriceRefresh, PriceSource
from catalog.pricing import imports, sync
from catalog.pricing.sources import SOURCES

log = structlog.get_logger("assay.prices")
State = PriceRefresh.State
Json = dict[str, Any]
PRICED = ("prices", "other_terms", "serverless", "hosted")  # the parts of a snapshot that hold prices
WEBHOOK_TIMEOUT_S = 10
LACKING_SHOWN = 20
MODELS_SHOWN = 5


class NoSource(ValueError):
    """No source is named or turned on."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """A saved answer with another first choice or another cost at the new prices."""

    advice: str
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


def _reported(row: PriceRefresh, is_new: bool, act: Callable[[], list[Json]]) -> None:
    """Acts, compares saved answers before and after where there is something new, and ends the run with its report."""
    watched = _watched() if is_new else []
    before = [inputs.take_snapshot(advice.workload.spec, advice.organisation) for advice in watched]
    done = act()
    changed = [change for pair in zip(watched, before, strict=True) if (change := _change(*pair))]
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


def _watched() -> list[Advice]:
    """The newest finished answers of all organizations, one for each workload, at today's prices."""
    rows = Advice.objects.filter(state=Advice.State.DONE).select_related("workload", "organisation")
    found: dict[tuple[int, str], Advice] = {}
    for advice in rows.defer("snapshot", "result").order_by("-created_at")[: 10 * settings.PRICE_WATCHED]:
        spec = advice.workload.spec
        if not spec.get("prices_as_of") and len(found) < settings.PRICE_WATCHED:
            found.setdefault((advice.organisation_id, repr(spec)), advice)
    return list(found.values())


def _change(advice: Advice, before: inputs.Snapshot) -> Change | None:
    """How the answer changes from the prices before to those of today; None if by less than the threshold."""
    spec = advice.workload.spec
    after = inputs.take_snapshot(spec, advice.organisation)
    if _prices(before) == _prices(after):
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
        name=advice.workload.name,
        what=what,
        before=old[0],
        after=new[0],
        usd_per_month_before=old[1],
        usd_per_month_after=new[1],
        change_fraction=fraction,
    )


def _prices(snapshot: inputs.Snapshot) -> list[Any]:
    return [getattr(part, name) for part in snapshot.parts or (snapshot,) for name in PRICED]


def _first(found: Any) -> tuple[str, float | None]:
    """Label and monthly cost of the first choice."""
    if found.portfolio is not None:
        return found.verdict, found.portfolio.alone_usd_per_month
    options = found.recommendations
    return (options[0].label, options[0].usd_per_month) if options else ("", None)


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
