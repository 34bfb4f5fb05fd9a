"""Names as people write them: any case, display names, and common short names such as H100, AWS or Llama-3.1-8B."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from django.db.models import Q, QuerySet

from advisor.workload import fold, unnamed
from advisor.workload import named as with_name
from catalog.loading.places import places
from catalog.models import Accelerator, Framework, Organisation, Price, QuantizationMethod, Region, ServedModel

Json = dict[str, Any]
Known = dict[str, list[str]]  # folded name -> the catalog's own names


def prices_seen_by(organisation: Organisation | None) -> QuerySet[Price]:
    """The public prices, and the own prices of this organization alone."""
    return Price.objects.filter(Q(organisation=None) | Q(organisation=organisation))


def with_catalog_names(spec: Mapping[str, Any], organisation: Organisation | None = None) -> Json:
    """The workload with the catalog's own names; unknown names stay as they are, for check_catalog to report.

    Providers and regions include those of the organization's own prices.

    A short name of several chips stands for all of them in allow and deny lists (H100: SXM, PCIe, NVL).
    """
    named = unnamed(spec)
    if isinstance(spec["model"], str):
        named["model"] = one(spec["model"], models())
    constraints, chips = dict(spec["constraints"]), accelerators()
    prices = prices_seen_by(organisation)
    known = {
        "accelerators": chips,
        "vendors": folded(Accelerator.objects.values_list("vendor", flat=True)),
        "providers": folded(prices.values_list("provider", flat=True)),
        "regions": folded([*prices.values_list("region", flat=True), *Region.objects.values_list("slug", flat=True)]),
        "frameworks": frameworks(),
        "formats": formats(),
    }
    areas = {fold(place): [place] for place in places()}  # before regions: US is the country
    for field, names in known.items():
        first = areas if field == "regions" else {}
        lists = {side: [each for name in given for each in first.get(fold(name)) or all_of(name, names)]
                 for side, given in spec["constraints"][field].items()}  # fmt: skip
        constraints[field] = {side: list(dict.fromkeys(given)) for side, given in lists.items()}
    named["constraints"] = constraints
    for field in ("owned", "inventory"):
        counts: Counter[str] = Counter()  # two spellings of one chip add up
        for name, count in spec[field].items():
            counts[one(name, chips)] += count
        named[field] = dict(counts)
    given = spec.get("usd_per_accelerator_hour", {})
    named["usd_per_accelerator_hour"] = {each: usd for name, usd in given.items() for each in all_of(name, chips)}
    if spec.get("workloads"):
        # a part that is still a path is reported by check_catalog
        parts = spec["workloads"]
        named["workloads"] = [with_catalog_names(p, organisation) if isinstance(p, Mapping) else p for p in parts]
    return with_name(named)


def folded(names: Iterable[str]) -> Known:
    known: Known = {}
    for name in dict.fromkeys(names):
        known.setdefault(fold(name), []).append(name)
    return known


def all_of(name: str, known: Known) -> list[str]:
    """The catalog's names for `name`; itself where the catalog has none."""
    if any(name in names for names in known.values()):
        return [name]
    return known.get(fold(name), [name])


def one(name: str, known: Known) -> str:
    """The catalog's only name for `name`; itself where there is none or more than one."""
    names = all_of(name, known)
    return names[0] if len(names) == 1 else name


def accelerators() -> Known:
    """Slugs by slug, by display name, and by the first word of the slug (h100: h100-sxm, h100-pcie, ...)."""
    known: Known = {}
    rows = list(Accelerator.objects.values_list("slug", "name"))
    for slug, name in rows:
        for written in {fold(slug), fold(name)}:
            known.setdefault(written, []).append(slug)
    series: Known = {}
    for slug, _ in rows:
        series.setdefault(slug.split("-")[0], []).append(slug)
    return {**{short: slugs for short, slugs in series.items() if any(c.isdigit() for c in short)}, **known}


def models() -> Known:
    """Hugging Face IDs by ID, by slug, and by the part after the slash."""
    known: Known = {}
    for hf_id, slug in ServedModel.objects.values_list("hf_id", "slug"):
        for written in {fold(hf_id), fold(slug), fold(hf_id.rpartition("/")[2])}:
            known.setdefault(written, []).append(hf_id)
    return known


def frameworks() -> Known:
    """Slugs by slug, display name and aliases."""
    known: Known = {}
    for row in Framework.objects.all():
        for written in {fold(row.slug), fold(row.name), *map(fold, row.settings.get("aliases", ()))}:
            if row.slug not in known.setdefault(written, []):
                known[written].append(row.slug)
    return known


def formats() -> Known:
    known: Known = {}
    for slug, name in QuantizationMethod.objects.values_list("slug", "name"):
        for written in {fold(slug), fold(name)}:
            known.setdefault(written, []).append(slug)
    return known
