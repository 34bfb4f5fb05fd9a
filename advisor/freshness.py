"""How fresh each part of the catalog is: its newest date and version, and what price sources list and it lacks."""

from typing import Any

from django.db.models import Count, Max

from catalog import clock
from catalog.models import (
    Accelerator,
    ApiPrice,
    Benchmark,
    Calibration,
    CatalogLoad,
    Framework,
    Price,
    PriceRefresh,
    Scorecard,
    ServedModel,
)
from catalog.pricing import sync

Json = dict[str, Any]
REPORTS = 50  # newest refreshes in which a source's last report is looked for
KINDS = {
    "prices": Price.objects.filter(organisation=None),
    "hosted_prices": ApiPrice.objects.all(),
    "models": ServedModel.objects.all(),
    "chips": Accelerator.objects.all(),
    "frameworks": Framework.objects.all(),
    "measurements": Benchmark.objects.all(),
    "calibrations": Calibration.objects.all(),
}


def freshness() -> Json:
    """The newest date (ISO) and number of rows of each kind, the newest version of each framework, the version of the
    fixtures, and what the last report of each price source says that the catalog lacks."""
    found: Json = {}
    for kind, rows in KINDS.items():
        counted = rows.aggregate(newest=Max("as_of"), rows=Count("pk"))
        found[kind] = {"newest": _iso(counted["newest"]), "rows": counted["rows"]}
    found["prices"]["offers_by_age"] = sync.offers_by_age(clock.today())
    found["frameworks"]["versions"] = {
        row.slug: {"version": row.version, "as_of": _iso(row.as_of)}
        for row in Framework.objects.order_by("as_of", "pk")
    }
    scored = Scorecard.objects.first()
    found["measurements"]["scored"] = _iso(scored.as_of) if scored else None
    last = CatalogLoad.objects.order_by("-loaded_at").first()
    found["catalog"] = {"version": last.version[:12], "loaded": _iso(last.loaded_at.date())} if last else {}
    found["lacking"] = lacking()
    return found


def lacking() -> dict[str, dict[str, str]]:
    """Instances and chips that each price source listed when it was last read, and that the catalog lacks."""
    found: dict[str, dict[str, str]] = {}
    for refresh in PriceRefresh.objects.exclude(report={})[:REPORTS]:
        for done in refresh.report["sources"]:
            if not done["error"] and not done["not_modified"]:
                found.setdefault(done["source"], done.get("proposed", {}))
    return found


def _iso(day: Any) -> str | None:
    return day.isoformat() if day else None


def lines(found: Json) -> list[str]:
    """The same in words."""
    told = [
        f"catalog {found['catalog'].get('version', 'not loaded')}, loaded {found['catalog'].get('loaded', 'never')}"
    ]
    for kind in KINDS:
        told.append(f"{kind.replace('_', ' ')}: {found[kind]['rows']} rows, newest {found[kind]['newest'] or 'none'}")
    told += [f"  {slug} {row['version']} ({row['as_of']})" for slug, row in found["frameworks"]["versions"].items()]
    ages = ", ".join(f"{count} {age}" for age, count in found["prices"]["offers_by_age"].items())
    told.append(f"current public offers: {ages or 'none'}")
    for source, names in found["lacking"].items():
        told += [f"not in the catalog, listed by {source}: {name}: {what}" for name, what in names.items()]
    return told
